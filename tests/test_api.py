"""The public face: `laha.__all__` is what is visible, all of it resolves, and nothing heavy is imported for it."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import laha

BUDGET = 0.4  # seconds, the interpreter's own start included
HEAVY = {"torch", "gensim", "sklearn", "scipy", "pandas", "matplotlib"}
COMMANDS = {"import laha": ["-c", "import laha"], "laha --help": ["-m", "laha", "--help"]}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, timeout=60)


def test_what_is_public_is_what_is_visible():
    assert dir(laha) == sorted([*laha.__all__, "__version__"])
    assert len(set(laha.__all__)) == len(laha.__all__)


@pytest.mark.parametrize("name", laha.__all__)
def test_every_public_name_resolves_and_is_documented(name):
    value = getattr(laha, name)
    assert value.__doc__
    assert getattr(importlib.import_module(value.__module__), name) is value


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(laha.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {alias.asname: node.module for node in block.body for alias in node.names}
    assert declared == laha._PUBLIC


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'laha' has no attribute 'Laha'"):
        _ = laha.Laha


def test_the_version_is_the_packages():
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^version = "(.*)"$', text, re.MULTILINE)[1] == laha.__version__


@pytest.mark.parametrize("command", COMMANDS)
def test_starting_imports_nothing_heavy(command):
    names = re.findall(r"\| +(\w+)", run("-X", "importtime", *COMMANDS[command]).stderr)
    assert "laha" in names
    assert HEAVY & set(names) == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_starting_is_quick(command):
    def seconds() -> float:
        began = time.perf_counter()
        run(*COMMANDS[command])
        return time.perf_counter() - began

    # The best of a few: other work on the machine can only slow one down.
    assert min(seconds() for _ in range(3)) < BUDGET
