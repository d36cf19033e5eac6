"""XML-CNN (Liu et al. 2017): convolutions over word vectors, dynamic max pooling, a bottleneck, an output a label."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from laha.network.encoder import word_mask


class ConvolutionEncoder(nn.Module):
    """Word ids -> for each width a map of features, one row a window; window t reads words t to t + width - 1.

    Behind a document's last word stand vectors of zeros, whatever the padding is, so that padding changes nothing.
    """

    def __init__(self, words: int, word_dimensions: int, widths: Sequence[int], maps: int, word_dropout: float = 0.0):
        super().__init__()
        self.word_vectors = nn.Embedding(words, word_dimensions, padding_idx=0)
        self.widths = tuple(widths)
        self.convolutions = nn.ModuleList(nn.Conv1d(word_dimensions, maps, width) for width in widths)
        self.word_dropout = nn.Dropout(word_dropout)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return the maps of all widths side by side, one row a word."""
        inside = word_mask(lengths, words.shape[1]).unsqueeze(-1)
        vectors = self.word_dropout(self.word_vectors(words)) * inside  # (batch, n, 300)
        vectors = vectors.transpose(1, 2)  # (batch, 300, n)
        maps = [
            convolution(F.pad(vectors, (0, width - 1)))
            for convolution, width in zip(self.convolutions, self.widths, strict=True)
        ]
        return torch.cat(maps, dim=1).relu().transpose(1, 2)  # (batch, n, widths * maps)


class XMLCNNNetwork(nn.Module):
    """Scores of labels from one vector a document."""

    def __init__(
        self,
        words: int,
        word_dimensions: int,
        labels: int,
        widths: Sequence[int] = (2, 4, 8),
        maps: int = 128,
        chunks: int = 8,
        bottleneck: int = 512,
        word_dropout: float = 0.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.labels, self.chunks = labels, chunks
        self.encoder = ConvolutionEncoder(words, word_dimensions, widths, maps, word_dropout)
        self.bottleneck = nn.Linear(len(widths) * maps * chunks, bottleneck)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(bottleneck, labels)

    def encode(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return the documents' vectors."""
        features = self.encoder(words, lengths)  # (batch, n, widths * maps)
        pooled = dynamic_max_pool(features, lengths, self.chunks)  # (batch, chunks * widths * maps)
        hidden: Tensor = self.dropout(self.bottleneck(pooled).relu())
        return hidden  # (batch, bottleneck)

    def score(self, encoded: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits of the given labels (all without)."""
        if labels is None:
            logits: Tensor = self.output(encoded)
            return logits  # (batch, k)
        return F.linear(encoded, self.output.weight[labels], self.output.bias[labels])

    def forward(self, words: Tensor, lengths: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits of documents given as padded word ids and lengths."""
        return self.score(self.encode(words, lengths), labels)

    def numbers_per_label(self, n: int) -> int:
        """Count the numbers held at once for one document and one label: its score."""
        return 1


def dynamic_max_pool(features: Tensor, lengths: Tensor, chunks: int) -> Tensor:
    """Return the maximum of every feature over each of so many chunks of a document's own words, chunk after chunk.

    A document with fewer words than chunks has chunks that share words.

    >>> dynamic_max_pool(torch.tensor([[[1.0], [3.0], [2.0], [9.0]]]), torch.tensor([3]), 2)
    tensor([[3., 3.]])
    """
    number = torch.arange(chunks, device=lengths.device)
    starts = lengths.unsqueeze(1) * number // chunks  # (batch, chunks)
    ends = -(-lengths.unsqueeze(1) * (number + 1) // chunks)  # rounded up
    longest = -(-features.shape[1] // chunks) + 1
    words = starts.unsqueeze(-1) + torch.arange(longest, device=lengths.device)  # (batch, chunks, longest)
    words = torch.minimum(words, ends.unsqueeze(-1) - 1).flatten(1)  # the last word again, where a chunk is shorter
    read = features.gather(1, words.unsqueeze(-1).expand(-1, -1, features.shape[2]))
    most = read.view(len(read), chunks, longest, -1).amax(dim=2)
    return most.flatten(1)  # (batch, chunks * features)
