"""Words and spans a second on one core, beside scikit-learn's analyzer, the plain way.

Its words have no offsets and none of one letter; in Japanese they are whole clauses, so there it gives characters.
Run with `python benchmarks/tokenizer.py`; the time is CPU time, the best of a few passes, rated by our words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sklearn.feature_extraction.text import CountVectorizer

from laha.datasets import open_corpus
from laha.vocabulary import Tokenizer
from record import record, row

BAR = 1e6  # words a second: the words of a million abstracts in minutes
WORDS = 1_500_000  # in a pass: enough for about a second
SENTENCE = "図書館の司書は毎日、新しい本を読んで、数千の主題から適切な見出し語を選びます。"
PASSES = 5


def texts_of_pydocs() -> list[str]:
    texts = open_corpus("builtin:pydocs", "train").texts
    return list(texts) * (WORDS // sum(map(len, map(str.split, texts))) + 1)


def texts_of_japanese() -> list[str]:
    return [SENTENCE * 10] * (WORDS // len(SENTENCE * 10) + 1)


def seconds(read: Callable[[str], object], texts: Sequence[str]) -> float:
    """Return the CPU time of reading all texts, at its best."""
    times = []
    for _ in range(PASSES):
        began = time.process_time()
        for text in texts:
            read(text)
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    tokenizer = Tokenizer()
    readers = {"words": tokenizer.words, "spans": lambda text: list(tokenizer.spans(text))}
    rows = []
    for id, name, texts, analyzer in (
        ("pydocs", "builtin:pydocs", texts_of_pydocs(), "word"),
        ("japanese", "Japanese, each character a word", texts_of_japanese(), "char"),
    ):
        words = sum(len(tokenizer.words(text)) for text in texts)
        baseline = words / seconds(CountVectorizer(analyzer=analyzer).build_analyzer(), texts)
        for what, read in readers.items():
            value = words / seconds(read, texts)
            claim = f"{what} of {name}, on one core; baseline: the analyzer of CountVectorizer(analyzer={analyzer!r})"
            rows.append(row(f"{what}-{id}", claim, value, "words/s", BAR, value >= BAR, baseline, "higher"))
    record("tokenizer", rows)


if __name__ == "__main__":
    main()
