"""Micro-batches: texts of many requests wait a few milliseconds for each other and go through the model together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Condition, Thread
from typing import Any

from laha.serve.problems import RequestProblem

Pairs = list[tuple[int, float]]  # the label ids and scores of one text, best first
Predict = Callable[[Sequence[str], int], list[Pairs]]
SMALLEST = 8  # labels asked of the model at least, so that requests for few go together


@dataclass
class Work:
    """Texts that wait for their labels, or a call that needs the model for itself."""

    texts: list[str]
    depth: int
    call: Callable[[], Any] | None = None
    future: Future[Any] = field(default_factory=Future)


def depth_of(top: int) -> int:
    """Round up to a power of two: requests of like depth share a batch, and a deep one does not burden the others.

    >>> [depth_of(top) for top in (1, 8, 9, 100)]
    [8, 8, 16, 128]
    """
    return max(SMALLEST, 1 << (top - 1).bit_length())


class Batcher:
    """One thread that has the model to itself and takes as many waiting texts at once as it may."""

    def __init__(
        self,
        predict: Predict,
        batch_texts: int,
        milliseconds: float,
        max_queue: int,
        observe: Callable[[int, float], None] = lambda texts, seconds: None,
    ):
        self._predict, self._observe = predict, observe
        self._batch_texts, self._seconds, self._max_queue = batch_texts, milliseconds / 1000, max_queue
        self._queue: deque[Work] = deque()
        self._changed = Condition()
        self._stopping = False
        self.waiting = 0  # texts in the queue; a call counts as one
        self._thread = Thread(target=self._run, name="laha-model", daemon=True)
        self._thread.start()

    async def best(self, texts: list[str], top: int) -> list[Pairs]:
        """Return the best labels of each text: at least `top`, where the model has so many."""
        if not texts:
            return []
        found: list[Pairs] = await asyncio.wrap_future(self._put(Work(texts, depth_of(top))))
        return found

    async def call(self, call: Callable[[], Any]) -> Any:
        """Return what a function returns that uses the model."""
        return await asyncio.wrap_future(self._put(Work([], 0, call)))

    def stop(self) -> None:
        """Finish what waits, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _put(self, work: Work) -> Future[Any]:
        size = len(work.texts) or 1
        with self._changed:
            if self._stopping:
                raise RequestProblem(503, "the server stops: ask again in a moment")
            if self.waiting and self.waiting + size > self._max_queue:  # alone, a large request is taken
                raise RequestProblem(429, f"{self.waiting} texts wait already: ask again in a moment")
            self._queue.append(work)
            self.waiting += size
            self._changed.notify()
        return work.future

    def _run(self) -> None:
        while taken := self._next():
            batch = [work for work in taken if work.future.set_running_or_notify_cancel()]  # the others have gone
            began = time.perf_counter()
            if batch and batch[0].call is not None:
                _answer(batch, lambda call=batch[0].call: [call()])  # type: ignore[misc]
            elif batch:
                self._answer_texts(batch)
                self._observe(sum(len(work.texts) for work in batch), time.perf_counter() - began)

    def _answer_texts(self, batch: list[Work]) -> None:
        try:
            found = self._labels(batch)
        except Exception:  # one text may be at fault: the others shall have their labels
            for work in batch:
                _answer([work], lambda work=work: self._labels([work]))  # type: ignore[misc]
            return
        _answer(batch, lambda: found)

    def _next(self) -> list[Work]:
        """Wait for work; return a call, or requests of one depth that fill a batch; nothing once stopped and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping)
            if not self._queue:
                return []
            if self._queue[0].call is None and self._seconds:
                deadline = time.monotonic() + self._seconds
                while self.waiting < self._batch_texts and not self._stopping:
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        break
            taken = [self._queue.popleft()]
            size = len(taken[0].texts)
            if taken[0].call is None:
                left_over: deque[Work] = deque()
                while self._queue:
                    work = self._queue.popleft()
                    fits = work.depth == taken[0].depth and size + len(work.texts) <= self._batch_texts
                    (taken if fits else left_over).append(work)
                    size += len(work.texts) if fits else 0
                self._queue = left_over
            self.waiting -= size or 1
            return taken

    def _labels(self, batch: list[Work]) -> list[list[Pairs]]:
        texts = [text for work in batch for text in work.texts]
        found: list[Pairs] = []
        for start in range(0, len(texts), self._batch_texts):  # one request may hold more than a batch
            found += self._predict(texts[start : start + self._batch_texts], batch[0].depth)
        ends = [0]
        for work in batch:
            ends.append(ends[-1] + len(work.texts))
        return [found[start:end] for start, end in pairwise(ends)]


def _answer(batch: list[Work], compute: Callable[[], list[Any]]) -> None:
    """Give every request its part of the result, or all of them the error."""
    try:
        for work, part in zip(batch, compute(), strict=True):
            work.future.set_result(part)
    except BaseException as error:  # a request must never wait for ever
        for work in batch:
            if not work.future.done():
                work.future.set_exception(error)
