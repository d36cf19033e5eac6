"""Settings: strings become the types a configuration gives them, and every mistake is named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laha.configuration import build, check_choice, check_known, check_range, known_settings, parse_settings
from laha.errors import ConfigurationError


@dataclass(frozen=True)
class Kitchen:
    ovens: int = 1
    heat: float = 180.0
    guests: int | None = 4
    cook: str = "anna"
    recipe: str | None = None
    gas: bool = False


def test_the_settings_are_known_in_order():
    assert known_settings(Kitchen) == ["ovens", "heat", "guests", "cook", "recipe", "gas"]


# From the command line


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("ovens=2", 2),
        ("ovens=-2", -2),
        ("heat=200", 200.0),
        ("heat=1e-3", 0.001),
        ("guests=7", 7),
        ("guests=none", None),
        ("guests=auto", None),
        ("cook=berta", "berta"),
        ("cook=none", "none"),
        ("cook=", ""),
        ("recipe=a=b.txt", "a=b.txt"),
        ("recipe=None", None),
        ("gas=true", True),
        ("gas=False", False),
    ],
)
def test_a_value_has_the_type_of_its_setting(pair, value):
    (parsed,) = parse_settings(Kitchen, [pair]).values()
    assert (parsed, type(parsed)) == (value, type(value))


def test_the_last_of_two_values_counts():
    assert parse_settings(Kitchen, ["ovens=2", "heat=100", "ovens=3"]) == {"ovens": 3, "heat": 100.0}


@given(st.integers(), st.floats(allow_nan=False), st.none() | st.integers(), st.booleans())
def test_what_python_prints_is_read_back(ovens, heat, guests, gas):
    given = {"ovens": ovens, "heat": heat, "guests": guests, "gas": gas}
    assert parse_settings(Kitchen, [f"{name}={value}" for name, value in given.items()]) == given


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("oven=2", "there is no setting 'oven': did you mean 'ovens'?"),
        ("=2", "there is no setting '': known: cook, gas, guests, heat, ovens, recipe"),
        ("ovens", "'ovens' is no setting: write key=value, such as --set epochs=5"),
        ("ovens=two", "ovens=two: the value must be a whole number"),
        ("ovens=2.5", "ovens=2.5: the value must be a whole number"),
        ("ovens=none", "ovens=none: the value must be a whole number"),
        ("ovens=true", "ovens=true: the value must be a whole number"),
        ("heat=hot", "heat=hot: the value must be a number"),
        ("guests=some", "guests=some: the value must be a whole number or none"),
        ("gas=1", "gas=1: the value must be true or false"),
    ],
)
def test_a_mistake_is_named(pair, message):
    with pytest.raises(ConfigurationError) as error:
        parse_settings(Kitchen, [pair])
    assert str(error.value) == message


# From Python


def test_what_is_not_given_keeps_its_default_and_none_means_the_default():
    assert build(Kitchen, {}) == Kitchen()
    assert build(Kitchen, {"ovens": None, "guests": None, "heat": 90.0}) == Kitchen(heat=90.0)


def test_whole_numbers_serve_as_numbers_and_numpys_as_pythons():
    kitchen = build(Kitchen, {"ovens": np.int64(2), "heat": 200, "guests": np.int32(3)})
    assert kitchen == Kitchen(ovens=2, heat=200.0, guests=3)
    assert [type(value) for value in (kitchen.ovens, kitchen.heat, kitchen.guests)] == [int, float, int]
    assert type(build(Kitchen, {"heat": np.float32(0.5)}).heat) is float


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gass": True}, "there is no setting 'gass': did you mean 'gas'?"),
        ({"ovens": True}, "ovens=True: the value must be a whole number"),
        ({"ovens": 2.0}, "ovens=2.0: the value must be a whole number"),
        ({"ovens": "2"}, "ovens='2': the value must be a whole number"),
        ({"heat": False}, "heat=False: the value must be a number"),
        ({"guests": 1.5}, "guests=1.5: the value must be a whole number or none"),
        ({"gas": 1}, "gas=1: the value must be true or false"),
        ({"cook": 5}, "cook=5: the value must be a word"),
        ({"recipe": 5}, "recipe=5: the value must be a word or none"),
    ],
)
def test_a_wrong_value_is_named(settings, message):
    with pytest.raises(ConfigurationError) as error:
        build(Kitchen, settings)
    assert str(error.value) == message


def test_the_settings_given_are_not_changed():
    given = {"heat": 200}
    build(Kitchen, given)
    assert given == {"heat": 200}
    assert type(given["heat"]) is int


# Ranges and choices


def test_a_range_includes_its_ends_and_none():
    check_range(Kitchen(ovens=1, heat=2, guests=None), ("ovens", "heat", "guests"), 1, 2)
    check_range(Kitchen(ovens=10**400), ("guests",), 0)


@pytest.mark.parametrize("heat", [-0.1, 2.1, float("nan"), float("inf")])
def test_a_number_out_of_range_is_named(heat):
    with pytest.raises(ConfigurationError, match=f"heat={heat}: the value must be between 0 and 2"):
        check_range(Kitchen(heat=heat), ("heat",), 0, 2)


@pytest.mark.parametrize("heat", [0.5, float("nan"), float("inf")])
def test_a_range_without_an_end_still_ends_before_infinity(heat):
    with pytest.raises(ConfigurationError, match=f"heat={heat}: the value must be at least 1"):
        check_range(Kitchen(heat=heat), ("heat",), 1)


def test_a_word_that_is_no_choice_names_the_nearest():
    check_choice(Kitchen(), "cook", ("anna", "berta"))
    with pytest.raises(ConfigurationError, match="cook=ana: did you mean 'anna'"):
        check_choice(Kitchen(cook="ana"), "cook", ("anna", "berta"))


def test_names_can_be_checked_alone():
    check_known(Kitchen, ["ovens", "gas"])
    with pytest.raises(ConfigurationError, match="there is no setting 'coook': did you mean 'cook'"):
        check_known(Kitchen, ["ovens", "coook"])
