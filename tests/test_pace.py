"""A schedule over a time: whole when the time is up, the plain one where the time does not matter."""

from __future__ import annotations

import pytest

from laha.pace import Pace


def run(limit: float, steps: int, second: float, from_step: int = 0) -> list[float]:
    """Return what is done after each step, of so many seconds, until time or steps are up."""
    pace, done, course = Pace(limit, steps), 0.0, []
    for step in range(from_step + 1, steps + 1):
        done = pace.advance(done, step, step * second)
        course.append(done)
        if pace.over(step * second):
            break
    return course


def test_with_time_enough_it_is_the_share_of_steps() -> None:
    assert run(limit=1e9, steps=200, second=0.1) == pytest.approx([step / 200 for step in range(1, 201)])


@pytest.mark.parametrize("steps", [300, 1_000, 100_000])
def test_with_too_little_time_it_ends_with_the_time(steps: int) -> None:
    course = run(limit=200.0, steps=steps, second=1.0)
    assert len(course) == 200
    assert course[-1] == pytest.approx(1, abs=0.02)
    assert course == sorted(course)
    assert course[100] == pytest.approx(0.5, abs=0.15)  # falls evenly, not at the end


def test_the_first_slow_steps_are_not_measured() -> None:
    pace, done, seconds = Pace(100.0, 1_000), 0.0, 0.0
    for step in range(1, 41):
        seconds += 2.0 if step <= 20 else 0.05  # kernels compile
        done = pace.advance(done, step, seconds)
    assert done == pytest.approx(40 / 1_000, rel=0.01)  # 59 seconds are left for 960 steps of 0.05


def test_before_anything_is_measured_it_goes_by_steps() -> None:
    assert run(limit=5.0, steps=1_000, second=1.0) == pytest.approx([0.001, 0.002, 0.003, 0.004, 0.005])
