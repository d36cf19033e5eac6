"""A budget of time: what of training still fits into it."""

from __future__ import annotations

import math
import time

NETWORK_FROM = 3.0  # epochs that must fit for a network to pay: fewer leave it behind the experts that need seconds
SECONDS_A_WORD = {"cpu": 5e-5, "cuda": 1e-6}  # of a network's epoch, roughly: what a budget is planned by
WORDS_A_SECOND = 250_000  # that skip-gram reads, roughly
OF_VECTORS, OF_LEXICAL, OF_FUSION = 0.15, 0.3, 0.1  # shares of the time for word vectors, lexical expert, fusion
ON_CPU = 1800.0  # seconds that a CPU gets when nobody says
QUICK_BELOW = 600.0  # seconds below which label trees are the quick kind


class Budget:
    """Seconds from now on; 0 is no limit.

    >>> Budget(0).left, Budget(0).quick, Budget(300).quick
    (inf, False, True)
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._ends = time.perf_counter() + seconds if seconds else math.inf

    @property
    def left(self) -> float:
        """The seconds left, the fusion's set aside; infinity without a limit."""
        return self._ends - time.perf_counter() - OF_FUSION * self.seconds

    @property
    def quick(self) -> bool:
        """Whether there is no time for what takes minutes."""
        return 0 < self.seconds < QUICK_BELOW

    @property
    def lexical_seconds(self) -> float:
        """What the lexical expert may take; 0 without a limit."""
        return max(1.0, OF_LEXICAL * self.left) if self.seconds else 0.0

    def word_passes(self, words: int) -> int | None:
        """Return how often skip-gram may read a corpus of so many words; None: as often as it likes."""
        if not self.seconds:
            return None
        return max(1, int(OF_VECTORS * self.left * WORDS_A_SECOND / max(1, words)))

    def network_epochs(self, words: int, device: str, vectors: bool) -> float:
        """Estimate the network's epochs that fit, after word vectors where there are none yet."""
        left = self.left - (0 if vectors else (self.word_passes(words) or 0) * words / WORDS_A_SECOND)
        return left / max(1e-9, words * SECONDS_A_WORD[device])
