"""A schedule laid over the time there is: where it does not hold all steps, the schedule falls faster, not shorter."""

from __future__ import annotations

UNMEASURED = 20  # steps: the first compile kernels
MEASURED = 20  # steps before a measurement counts


class Pace:
    """Says how far a schedule of `steps` steps is, given the seconds that all of them may take.

    >>> pace, done = Pace(limit=100.0, steps=1000), 0.0
    >>> for step in range(1, 101):  # a second a step
    ...     done = pace.advance(done, step, seconds=float(step))
    >>> round(done, 6), pace.over(100.0)
    (1.0, True)
    """

    def __init__(self, limit: float, steps: int):
        self.limit, self.steps = limit, steps
        self._taken = 0
        self._first: tuple[int, float] | None = None  # where measuring began: step, seconds

    def over(self, seconds: float) -> bool:
        """Tell whether the time is up."""
        return seconds >= self.limit

    def advance(self, done: float, step: int, seconds: float) -> float:
        """Return the part of the schedule done after so many steps and seconds, from the part done a step before."""
        self._taken += 1
        if self._taken == UNMEASURED:
            self._first = step, seconds
        left = float(self.steps - step + 1)  # the step just taken among them
        if self._first is not None and self._taken >= UNMEASURED + MEASURED:
            pace = (seconds - self._first[1]) / (step - self._first[0])
            left = min(left, max(0.0, self.limit - seconds) / max(pace, 1e-9) + 1)
        return min(1.0, done + (1 - done) / left)
