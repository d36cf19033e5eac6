"""Share independent pieces of work among the cores, a thread each: many small products do not split well inside."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier
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

    return list(_pool(threads).map(run, pieces))


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return threads that compute alone: if each asked for all cores in turn, they would fight for them."""
    begun = Barrier(threads + 1)

    def begin() -> None:
        torch.set_num_threads(1)
        begun.wait()

    pool = ThreadPoolExecutor(threads, thread_name_prefix="laha", initializer=begin)
    for _ in range(threads):
        pool.submit(int)
    begun.wait()
    torch.set_num_threads(threads)  # torch remembers the last number asked for, whichever thread asked
    return pool


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not follow into a forked process
