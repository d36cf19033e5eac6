"""Label vectors: node2vec (Grover & Leskovec 2016) on the label graph, walks first and skip-gram over them second."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.errors import ConfigurationError

WALKERS = 1 << 16  # walks made at once: enough to hide numpy's cost a call, 10 MiB a batch at length 40
SENTENCES = 1 << 12  # walks read back at once for skip-gram

Progress = Callable[[str, float], None]


def walks(
    graph: csr_matrix,
    walks_per_label: int = 10,
    length: int = 40,
    p: float = 1.0,
    q: float = 1.0,
    seed: int = 0,
) -> Iterator[NDArray[np.int32]]:
    """Yield batches of second-order random walks, (walks, length) label ids, each label as often a start.

    From label v, reached from t, a walk goes on to x with probability proportional to weight(v, x) times 1/p if x is t,
    1 if x is joined to t, and 1/q otherwise; the first step goes by weight alone. The graph must be symmetric. Labels
    without an edge make no walks. An exact draw takes about max(1, 1/q) / min(1/p, 1, 1/q) trials at worst.
    """
    check_positive(walks_per_label=walks_per_label, length=length, p=p, q=q)
    walker = Walker(graph, p, q)
    starts = np.flatnonzero(np.diff(graph.indptr))
    random = np.random.default_rng(seed)
    together = max(1, WALKERS // max(1, len(starts)))  # rounds over all labels that fit into one batch
    for done in range(0, walks_per_label, together):
        rounds = np.tile(starts, (min(together, walks_per_label - done), 1))
        order = random.permuted(rounds, axis=1).ravel()
        for begin in range(0, len(order), WALKERS):
            yield walker.walk(order[begin : begin + WALKERS], length, random)


def check_positive(**settings: float) -> None:
    """Refuse settings that are not positive numbers."""
    for name, value in settings.items():
        if not 0 < value < np.inf:
            raise ConfigurationError(f"{name} is {value}: set it to a number above 0")


class Walker:
    """Walks many labels at once by rejection sampling, so that no table of second-order probabilities is needed.

    A trial draws x from v's edges by weight and a height up to max(1, 1/q), and accepts x below its bias. The way back,
    whose bias 1/p may tower above that, is cut off at this height, and the part cut off is drawn directly: the
    weight of the edge just taken is known. What most trials need not know, whether x is joined to t, is looked up only
    where the height lies between 1 and 1/q.
    """

    def __init__(self, graph: csr_matrix, p: float, q: float):
        graph = csr_matrix(graph)
        graph.sort_indices()
        self.labels = graph.shape[0]
        self.neighbour = graph.indices
        self.first, self.last = graph.indptr[:-1], graph.indptr[1:] - 1
        self.weight = graph.data
        total = np.concatenate(([0.0], np.cumsum(graph.data, dtype=np.float64)))
        self.cumulative = total[1:]  # over the edges of all labels in a row: one search draws for every label
        self.offset = total[graph.indptr[:-1]]
        self.strength = total[graph.indptr[1:]] - self.offset
        self.edges = np.repeat(np.arange(self.labels), np.diff(graph.indptr)) * self.labels + graph.indices  # sorted
        self.back, self.out = 1 / p, 1 / q
        self.height = max(1.0, self.out)

    def walk(self, starts: NDArray[Any], length: int, random: np.random.Generator) -> NDArray[np.int32]:
        """Walk from each start: (walks, length). Each walk advances whenever a trial of its own is accepted."""
        paths = np.empty((len(starts), length), dtype=np.int32)
        paths[:, 0] = starts
        if length == 1:
            return paths
        edge = self.propose(starts, random)
        paths[:, 1] = self.neighbour[edge]
        taken = self.weight[edge].astype(np.float64)  # of the edge each walk took last, the same in both directions
        step = np.full(len(starts), 1)
        active = np.arange(len(starts) if length > 2 else 0)
        while len(active):
            at = step[active]
            edge, following, accepted = self.trial(paths[active, at - 1], paths[active, at], taken[active], random)
            moved = active[accepted]
            # A walk that took the part cut off goes back over the edge it came by, whose weight stays the same.
            taken[moved] = np.where(edge[accepted] < 0, taken[moved], self.weight[edge[accepted]])
            step[moved] += 1
            paths[moved, step[moved]] = following[accepted]
            active = active[step[active] < length - 1]
        return paths

    def propose(self, labels: NDArray[Any], random: np.random.Generator) -> NDArray[np.int64]:
        """Draw an edge of each label by weight."""
        target = self.offset[labels] + random.random(len(labels)) * self.strength[labels]
        edge = np.searchsorted(self.cumulative, target, side="right")
        # Rounding must not lead to another label's edge.
        return np.asarray(np.clip(edge, self.first[labels], self.last[labels]))

    def trial(
        self, previous: NDArray[Any], current: NDArray[Any], taken: NDArray[np.float64], random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """Try one step of each walk: its edge (-1 for the part cut off), its label, and whether it is accepted."""
        cut_off = max(self.back - self.height, 0.0) * taken
        whole = self.strength[current] * self.height
        direct = random.random(len(current)) * (whole + cut_off) >= whole
        edge = np.where(direct, -1, self.propose(current, random))
        following = np.where(direct, previous, self.neighbour[edge])
        height = random.random(len(current)) * self.height
        returns = following == previous
        # A label with one edge has nowhere else to go, however unlikely p makes the way back.
        accepted = direct | (height < np.where(returns, self.back, min(1.0, self.out)))
        accepted |= self.first[current] == self.last[current]
        unsure = np.flatnonzero(~accepted & ~returns)
        joined = self.joined(previous[unsure], following[unsure])
        accepted[unsure] = height[unsure] < np.where(joined, 1.0, self.out)
        return edge, following, accepted

    def joined(self, left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
        """Say which pairs of labels have an edge."""
        wanted = left.astype(np.int64) * self.labels + right
        found = np.minimum(np.searchsorted(self.edges, wanted), len(self.edges) - 1)
        return np.asarray(self.edges[found] == wanted)


def train_label_vectors(
    graph: csr_matrix,
    dimensions: int = 256,
    walks_per_label: int = 10,
    length: int = 40,
    window: int = 5,
    p: float = 1.0,
    q: float = 1.0,
    epochs: int = 1,
    seed: int = 0,
    workers: int = 1,
    negative: int = 5,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Train a vector for each label by skip-gram over walks: (labels, dimensions), mean squared entry 1.

    A label without an edge gets a random vector of its own. Reproducible with `workers` = 1. `progress` is told the
    stage, "walks" or "skip-gram", and the part of it that is done.
    """
    check_positive(dimensions=dimensions, window=window, epochs=epochs, negative=negative, workers=workers)
    report = progress or (lambda stage, done: None)
    known = np.diff(graph.indptr) > 0
    vectors = np.zeros((graph.shape[0], dimensions), dtype=np.float32)
    if known.any():
        settings = {"vector_size": dimensions, "window": window, "negative": negative, "epochs": epochs}
        with tempfile.TemporaryFile() as file:
            corpus = WalkFile(file, length, graph.shape[0])
            for batch in walks(graph, walks_per_label, length, p, q, seed):
                corpus.append(batch)
                report("walks", corpus.walks / (int(known.sum()) * walks_per_label))
            corpus.progress = lambda read: report("skip-gram", read / (corpus.walks * epochs))
            vectors = skip_gram(corpus, settings | {"seed": seed, "workers": workers})
    fill(vectors, ~known, seed)
    # L is frozen, so its scale is never learned: at 1, W_q L starts at the scale of the encoder's states.
    return vectors / np.sqrt(np.square(vectors).mean()) if vectors.size else vectors


class WalkFile:
    """Walks on disk, so that they are made once, whatever the epochs, and never all in memory.

    Skip-gram reads them as an iterable of lists of label ids that can be started anew.
    """

    def __init__(self, file: IO[bytes], length: int, labels: int):
        self.file = file
        self.length = length
        self.walks = 0
        self.counts = np.zeros(labels, dtype=np.int64)  # how often each label was walked over
        self.read = 0
        self.progress: Callable[[int], None] = lambda read: None

    def append(self, batch: NDArray[np.int32]) -> None:
        """Write walks at the end."""
        batch.tofile(self.file)
        self.walks += len(batch)
        self.counts += np.bincount(batch.ravel(), minlength=len(self.counts))

    def __iter__(self) -> Iterator[list[int]]:
        self.file.seek(0)
        for begin in range(0, self.walks, SENTENCES):
            count = min(SENTENCES, self.walks - begin)
            yield from np.fromfile(self.file, dtype=np.int32, count=count * self.length).reshape(count, -1).tolist()
            self.read += count
            self.progress(self.read)


def skip_gram(corpus: WalkFile, settings: dict[str, Any]) -> NDArray[np.float32]:
    """Train skip-gram with negative sampling: a row for each label, zero where it was never walked over."""
    from gensim.models import Word2Vec  # takes a second to import, and only training needs it

    # No label is dropped for being rare, nor walks thinned for being frequent, as all labels of a small set are.
    model = Word2Vec(sg=1, min_count=1, sample=0, **settings)
    # Ids as they are, no strings: gensim only looks tokens up in a dictionary.
    counts = {label: int(corpus.counts[label]) for label in np.flatnonzero(corpus.counts).tolist()}
    model.build_vocab_from_freq(counts)
    model.train(corpus, total_examples=corpus.walks, total_words=sum(counts.values()), epochs=settings["epochs"])
    vectors = np.zeros((len(corpus.counts), settings["vector_size"]), dtype=np.float32)
    vectors[np.array(model.wv.index_to_key)] = model.wv.vectors
    return vectors


def fill(vectors: NDArray[np.float32], missing: NDArray[np.bool_], seed: int) -> None:
    """Give each missing label a random vector of the others' mean norm, from the seed and the label's index alone."""
    others = vectors[~missing]
    norm = np.linalg.norm(others, axis=1).mean() if len(others) else np.sqrt(vectors.shape[1])
    for label in np.flatnonzero(missing).tolist():
        drawn = np.random.default_rng([seed, label]).standard_normal(vectors.shape[1])
        vectors[label] = drawn * (norm / np.linalg.norm(drawn))


def read_label_vectors(path: str | Path, label_names: list[str], seed: int = 0) -> NDArray[np.float32]:
    """Read a vector for each label, as they stand in the file: (labels, dimensions).

    A `.npy` file holds one row a label, in the order of `label_names`. Any other is text, a line a label: its name, a
    tab, its numbers separated by spaces; other names in it are passed over, and a label it lacks gets a random vector
    as one without an edge does.
    """
    path = Path(path)
    try:
        return read_array(path, len(label_names)) if path.suffix == ".npy" else read_text(path, label_names, seed)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror}): name a file of label vectors") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 text: convert it, or give a .npy file") from error


def read_array(path: Path, labels: int) -> NDArray[np.float32]:
    """Read a `.npy` file of one row a label."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ConfigurationError(f"{path}: not a .npy file of numbers: write it with numpy.save") from error
    if array.ndim != 2 or len(array) != labels or not np.issubdtype(array.dtype, np.number):
        raise ConfigurationError(
            f"{path}: an array of shape {array.shape} for {labels} labels: give one row of numbers a label"
        )
    if not np.isfinite(array).all():
        raise ConfigurationError(f"{path}: some entries are not finite: mend or retrain the vectors")
    return np.ascontiguousarray(array, dtype=np.float32)


def read_text(path: Path, label_names: list[str], seed: int) -> NDArray[np.float32]:
    """Read a text file of one label a line: name, tab, numbers."""
    index = {name: label for label, name in enumerate(label_names)}
    vectors: NDArray[np.float32] | None = None
    missing = np.ones(len(label_names), dtype=np.bool_)
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            name, tab, numbers = line.rstrip("\n").partition("\t")
            if not tab and number == 1 and len(line.split()) == 2:
                continue  # word2vec's heading: how many vectors, how many dimensions
            label = index.get(name)
            if tab and label is None:
                continue
            vector = parse(numbers, f"{path}, line {number}")
            if vectors is None:
                vectors = np.zeros((len(label_names), len(vector)), dtype=np.float32)
            if len(vector) != vectors.shape[1]:
                raise ConfigurationError(
                    f"{path}, line {number}: {len(vector)} numbers where the lines before have {vectors.shape[1]}:"
                    " give every label as many"
                )
            vectors[label] = vector
            missing[label] = False
    if vectors is None:
        raise ConfigurationError(
            f"{path}: holds none of the {len(label_names)} labels: check the names before the tabs"
        )
    fill(vectors, missing, seed)
    return vectors


def parse(numbers: str, where: str) -> NDArray[np.float32]:
    """Read the numbers of one line."""
    try:
        vector = np.array(numbers.split(), dtype=np.float32)
    except ValueError:
        vector = np.zeros(0, dtype=np.float32)
    if not len(vector) or not np.isfinite(vector).all():
        raise ConfigurationError(
            f"{where}: not a label, a tab and finite numbers separated by spaces: mend or remove it"
        )
    return vector
