"""The Bi-LSTM document encoder (DESIGN 1, `H = (H_f ; H_b)`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Word ids -> states of a forward and a backward LSTM over each document.

    Runs over padded batches, without packing: the backward direction reads every document reversed within its own
    length, so that neither direction meets padding before a word, and padding changes nothing.
    """

    def __init__(
        self, words: int, word_dimensions: int, units: int, word_dropout: float = 0.0, state_dropout: float = 0.0
    ):
        super().__init__()
        self.word_vectors = nn.Embedding(words, word_dimensions, padding_idx=0)
        self.forward_lstm = nn.LSTM(word_dimensions, units, batch_first=True)
        self.backward_lstm = nn.LSTM(word_dimensions, units, batch_first=True)
        self.word_dropout = nn.Dropout(word_dropout)
        self.state_dropout = nn.Dropout(state_dropout)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return H, one row a word: forward states, then backward states."""
        vectors = self.word_dropout(self.word_vectors(words))  # (batch, n, 300)
        reversal = reversed_positions(lengths, words.shape[1]).unsqueeze(-1)  # (batch, n, 1)
        with beside(vectors.device):  # a direction alone leaves most of a GPU idle
            backward_states, _ = self.backward_lstm(vectors.gather(1, reversal.expand_as(vectors)))
            backward_states = backward_states.gather(1, reversal.expand_as(backward_states))
        forward_states, _ = self.forward_lstm(vectors)  # (batch, n, r)
        join(backward_states)
        states: Tensor = self.state_dropout(torch.cat([forward_states, backward_states], dim=-1))
        return states  # (batch, n, 2r)


@contextmanager
def beside(device: torch.device) -> Iterator[None]:
    """Let a GPU work on what follows beside all else, until `join`; a CPU does one thing after the other."""
    if device.type != "cuda":
        yield
        return
    stream = _stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield


def join(result: Tensor) -> None:
    """Wait for what was done `beside`."""
    if result.is_cuda:
        current = torch.cuda.current_stream(result.device)
        current.wait_stream(_stream(result.device))
        result.record_stream(current)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream


def reversed_positions(lengths: Tensor, n: int) -> Tensor:
    """Return for each position the one it trades places with: word t of a document of length l with word l - 1 - t.

    >>> reversed_positions(torch.tensor([3, 1]), 4)
    tensor([[2, 1, 0, 3],
            [0, 1, 2, 3]])
    """
    position = torch.arange(n, device=lengths.device)
    mirrored = lengths.unsqueeze(1) - 1 - position  # (batch, n)
    return torch.where(mirrored >= 0, mirrored, position)


def word_mask(lengths: Tensor, n: int) -> Tensor:
    """Return which positions hold words, True, and which padding, False."""
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(1)  # (batch, n)
