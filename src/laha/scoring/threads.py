"""Share independent pieces of work among the cores, a thread each: many small products do not split well inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def share(work: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
    """Return `work(piece)` of every piece, in order; without gradients they run on as many threads as torch may use.

    >>> share(lambda number: number + 1, [1, 2, 3])
    [2, 3, 4]
    """
    threads = torch.get_num_threads()
    # Autograd and autocast belong to the thread that began them.
    alone = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")
    if threads == 1 or len(pieces) < 2 or alone:
        return [work(piece) for piece in pieces]
    inference = torch.is_inference_mode_enabled()

    def run(piece: T) -> R:
        with torch.inference_mode(inference), torch.no_grad():
            return work(piece)

    try:
        # Inside, each computes with one thread, or every thread would ask for all cores and they would fight.
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(run, pieces))
    finally:
        torch.set_num_threads(threads)
