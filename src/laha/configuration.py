"""Settings as frozen dataclasses: built from names and values, with every mistake named."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, TypeVar, get_args, get_type_hints

from laha.errors import ConfigurationError, nearest

C = TypeVar("C")


def known_settings(kind: type) -> list[str]:
    """Return the names of a configuration's settings."""
    return [field.name for field in fields(kind)]


def check_known(kind: type, names: Iterable[str]) -> None:
    """Refuse a setting that the configuration lacks, naming the nearest that it has."""
    known = known_settings(kind)
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there is no setting '{name}': {nearest(name, known)}")


def parse_settings(kind: type, pairs: Iterable[str]) -> dict[str, Any]:
    """Read `key=value` strings as the types that the configuration gives its settings.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Kitchen:
    ...     ovens: int = 1
    ...     heat: float = 180.0
    >>> parse_settings(Kitchen, ["ovens=2", "heat=200"])
    {'ovens': 2, 'heat': 200.0}
    >>> parse_settings(Kitchen, ["oven=2"])
    Traceback (most recent call last):
    laha.errors.ConfigurationError: there is no setting 'oven': did you mean 'ovens'?
    """
    types = get_type_hints(kind)
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ConfigurationError(f"'{pair}' is no setting: write key=value, such as --set epochs=5")
        check_known(kind, [name])
        settings[name] = _parse(name, text, types[name])
    return settings


def _parse(name: str, text: str, wanted: Any) -> Any:
    choices = _choices(wanted)
    if type(None) in choices and text.lower() in ("none", "auto"):
        return None
    for choice in choices:
        if choice is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if choice in (int, float):
            try:
                return choice(text)
            except ValueError:
                continue
        if choice is str:
            return text
    raise ConfigurationError(f"{name}={text}: the value must be {_named(choices)}")


def _choices(wanted: Any) -> tuple[type, ...]:
    return get_args(wanted) or (wanted,)  # of `int | None`, both


def _named(choices: tuple[type, ...]) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", type(None): "none"}
    return " or ".join(names[choice] for choice in choices)


def parse_duration(text: str) -> float:
    """Read a time such as 90, 90s, 10m or 1.5h as seconds.

    >>> parse_duration("10m"), parse_duration("90"), parse_duration("1.5h")
    (600.0, 90.0, 5400.0)
    """
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:].lower())
    try:
        seconds = float(text if unit is None else text[:-1]) * (unit or 1)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigurationError(f"--budget {text}: give a time such as 90s, 10m or 2h")
    return seconds


def build(kind: type[C], settings: Mapping[str, Any]) -> C:
    """Make a configuration of the given settings, the others at their defaults; None means the default."""
    check_known(kind, settings)
    types = get_type_hints(kind)
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        choices = _choices(types[name])
        # Integral and Real let numpy's numbers through, which searches over settings give.
        if int in choices and isinstance(value, Integral) and not isinstance(value, bool):
            given[name] = int(value)
        elif float in choices and isinstance(value, Real) and not isinstance(value, bool):
            given[name] = float(value)
        elif not isinstance(value, tuple(choice for choice in choices if choice not in (int, float))):
            raise ConfigurationError(f"{name}={value!r}: the value must be {_named(choices)}")
    return kind(**given)


def check_range(configuration: object, names: Collection[str], low: float, high: float = sys.float_info.max) -> None:
    """Refuse a number outside `low` to `high`."""
    for name in names:
        value = getattr(configuration, name)
        if value is not None and not low <= value <= high:
            reach = f"at least {low:g}" if high == sys.float_info.max else f"between {low:g} and {high:g}"
            raise ConfigurationError(f"{name}={value}: the value must be {reach}")


def check_choice(configuration: object, name: str, choices: Collection[str]) -> None:
    """Refuse a word that is none of the choices."""
    value = getattr(configuration, name)
    if value not in choices:
        raise ConfigurationError(f"{name}={value}: {nearest(value, list(choices))}")
