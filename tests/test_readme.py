"""The README says what the result files and the program say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import typer

from laha.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", ["experiments", "benchmarks"])
def test_the_results_are_those_of_the_files(folder: str) -> None:
    spec = importlib.util.spec_from_file_location("table", ROOT / folder / "table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.table() in README, f"run 'python {folder}/table.py' and put its output into the README"


def test_every_verb_is_in_the_readme() -> None:
    verbs = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert verbs == set(re.findall(r"^\| `laha (\w+)", README, flags=re.MULTILINE))


def test_every_source_file_has_its_place() -> None:
    architecture = README.split("## How it is built")[1].split("## Results")[0]
    files = {path.stem for path in (ROOT / "src" / "laha").glob("*.py")} - {"__init__", "__main__"}
    assert not {name for name in files if f"`{name}`" not in architecture}
