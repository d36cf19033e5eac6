"""Type-ahead of `laha serve` over a million label names: the slowest of many kinds of query.

python benchmarks/label_search.py
"""

from __future__ import annotations

import random
import time
from statistics import median

from laha.prepared import Label
from laha.serve.label_search import LabelSearch
from record import record, row

LABELS, BAR = 1_000_000, 0.1
SYLLABLES = ["ka", "ro", "mi", "ter", "lo", "gy", "sta", "ne", "ber", "al", "con", "tri"]
# Frequent and rare beginnings, later words, several words, parts of words, and what is nowhere.
QUERIES = ["", "k", "ka", "karomi", "alcon bertri", "tri tri", "ogy", "erloconsta", "xyz abc", "zzz"]


def random_labels(count: int) -> list[Label]:
    """Return labels of one to four made-up words."""
    draw = random.Random(0)

    def word() -> str:
        return "".join(draw.choices(SYLLABLES, k=draw.randint(2, 4)))

    return [Label(" ".join(word() for _ in range(draw.randint(1, 4))), draw.randint(1, 1_000)) for _ in range(count)]


def seconds(search: LabelSearch, query: str) -> float:
    """Return the median time of a query."""
    times = []
    for _ in range(9):
        began = time.perf_counter()
        search.find(query, 10)
        times.append(time.perf_counter() - began)
    return median(times)


def main() -> None:
    labels = random_labels(LABELS)
    began = time.perf_counter()
    search = LabelSearch(labels)
    made = time.perf_counter() - began
    slowest = max(seconds(search, query) for query in QUERIES)
    of = f"type-ahead over {LABELS:,} labels"
    record(
        "label_search",
        [
            row("label-search", f"{of}: the slowest query", slowest, "s", BAR, slowest < BAR, None, "lower"),
            row("label-search-made", f"{of}: made at the start", made, "s", None, None, None, "lower"),
        ],
    )


if __name__ == "__main__":
    main()
