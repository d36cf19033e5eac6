"""The built-in corpus: which docstrings become documents, and what they are tagged with."""

from __future__ import annotations

import ast
import json
import sys

import pytest

from laha import pydocs

SOURCE = '''
class Box:
    """A box that holds things in order."""

    def put(self, thing, *, twice=False):
        """Put a thing into the box.

        Indented:
            further.
        """
        def inner(hidden):
            raise KeyError("not raised by put itself")
        if not thing:
            raise errors.EmptyError("nothing")
        try:
            raise ValueError
        except ValueError as error:
            raise error

    def _hide(self, thing):
        """Hide a thing where nobody looks."""

class _Private:
    def method(self, thing):
        """Do something that nobody may call."""

async def fetch(url, /):
    """Fetch what an address points to."""
    raise ValueError(url)

def short(thing):
    """Too few words."""

def again(other):
    """Fetch what an address points to."""
'''


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Stand a small package in for the standard library and nothing for the others."""
    package = tmp_path / "shop"
    (package / "_store" / "tests").mkdir(parents=True)
    (package / "_store" / "box.py").write_text(SOURCE)
    (package / "_store" / "tests" / "test_box.py").write_text("def test():\n    'Test that the box holds things.'")
    (package / "__init__.py").write_text("def ask(url):\n    'Ask for what an address points to.'")
    (package / "broken.py").write_text("def (:")
    (package / "binary.py").write_bytes(b"\0\xff")
    (package / "odd.py").write_text("def odd(url):\n    'Match a digit by the pattern \\d.'")
    (tmp_path / "_twin.py").write_text("def ask(url):\n    'Ask the twin of a public module.'")
    monkeypatch.setattr(pydocs.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(pydocs, "PACKAGES", {})


@pytest.mark.usefixtures("library")
def test_documents_are_public_docstrings_with_modules_parameters_and_exceptions():
    assert list(pydocs.read_docstrings()) == [
        ("shop.ask", "Ask for what an address points to.", ("shop", "arg url")),
        ("shop._store.box.Box", "A box that holds things in order.", ("shop",)),
        (
            "shop._store.box.Box.put",
            "Put a thing into the box.\n\nIndented:\n    further.",
            ("shop", "arg thing", "arg twice", "raises EmptyError", "raises ValueError"),
        ),
        ("shop._store.box.fetch", "Fetch what an address points to.", ("shop", "arg url", "raises ValueError")),
        ("shop.odd.odd", "Match a digit by the pattern \\d.", ("shop", "shop.odd", "arg url")),
    ]


@pytest.mark.usefixtures("library")
def test_labels_of_under_three_documents_are_dropped():
    parts = pydocs.build_parts()
    names = {name for corpus in parts.present().values() for name in corpus.label_names}
    assert names == {"shop", "arg url"}
    assert sum(len(corpus) for corpus in parts.present().values()) == 5


def test_the_part_depends_on_the_name_alone():
    parts = [pydocs.part_of(f"module.name{number}") for number in range(2000)]
    assert 150 < parts.count("test") < 250
    assert 150 < parts.count("valid") < 250
    assert pydocs.part_of("json.dumps") == "valid"


def test_the_installed_libraries_are_found_without_importing_them(monkeypatch):
    monkeypatch.delitem(sys.modules, "sklearn", raising=False)
    modules = dict(pydocs.find_sources())
    assert modules["json"].samefile(json.__file__)
    assert {"numpy.lib._npyio_impl", "scipy.stats._continuous_distns", "sklearn.svm._classes"} <= modules.keys()
    assert not any("tests" in name.split(".") or name.startswith("test.") for name in modules)
    assert "sklearn" not in sys.modules


def test_the_cache_key_names_the_recipe_and_versions():
    assert pydocs.cache_key().startswith(f"pydocs-{pydocs.RECIPE}-python3.")
    assert "-sklearn" in pydocs.cache_key()


def test_a_bare_raise_names_no_exception():
    function = ast.parse("def f():\n    raise\n    raise errors[0]\n    raise make()()").body[0]
    assert pydocs.exceptions(function) == []
