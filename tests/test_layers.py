"""The layers of the house: a file imports only from lower layers and from the files above it in its own."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import laha

SOURCE = Path(laha.__file__).parent
# Each layer's files in the order in which data flows. A new file gets its place here.
SERVE = [
    *["serve", "serve.configuration", "serve.problems", "serve.batching", "serve.label_search", "serve.label_details"],
    *[
        "serve.monitoring",
        "serve.schemas",
        "serve.service",
        "serve.guard",
        "serve.routes",
        "serve.annif",
        "serve.pages",
    ],
    *["serve.app", "serve.server"],
]
LAYERS = [
    ["errors", "configuration", "progress", "budget", "ranking", "storage"],
    [
        *["corpus", "feedback", "formats", "writers", "pydocs", "datasets", "statistics", "vocabulary", "stems"],
        *["word_vectors", "label_graph", "label_neighbours", "label_vectors", "label_tree", "prepared"],
        *["label_content", "features", "metrics", "batches"],
    ],
    [
        *["network", "network.encoder", "network.document_head", "network.self_attention"],
        *["network.interaction_attention", "network.fusion", "network.prediction", "network.laha"],
        *["network.attention_xml", "network.attention_xml_tree", "network.xml_cnn", "network.exam"],
    ],
    [
        *["scoring", "scoring.streaming", "scoring.threads", "scoring.folded", "scoring.folded_attention_xml"],
        *[
            "scoring.fused_forward",
            "scoring.fused_backward",
            "scoring.fused_hopper",
            "scoring.fused",
            "scoring.paths",
            "scoring.label_index",
        ],
        *[
            "scoring.shortlist",
            "scoring.beam",
            "scoring.scorer",
            "candidates",
            "checkpoint",
            "training_log",
            "pace",
            "training",
        ],
        *["head_training", "calibration", "evaluation", "explain", "heat_map", "results"],
    ],
    [
        *["estimator", "deep_estimator", "attention_estimator", "baselines", "baselines.popular"],
        *["baselines.attentionxml", "baselines.exam", "baselines.xml_cnn", "baselines.classical"],
        *["baselines.tree_growth", "baselines.forest", "baselines.fastxml", "baselines.pfastrexml", "baselines.sleec"],
        *["baselines.label_trees", "baselines.parabel", "baselines.bonsai", "baselines.one_vs_all"],
        *["baselines.peers", "baselines.peers.folder_files", "baselines.peers.omikuji", "baselines.peers.napkinxc"],
        *["baselines.peers.libpecos_child", "baselines.peers.libpecos"],
        *["experts", "experts.proposals", "experts.neighbours", "experts.label_names", "experts.lexical"],
        *["experts.network", "experts.tree", "experts.fusion", "experts.panel", "experts.hearing", "experts.evidence"],
        *["tagger", "registry", "tagging", "training_folder"],
    ],
    ["demo", "comparison_report", "comparison", "terminal", "options", *SERVE, "cli"],
    ["", "__main__"],  # the package itself, which names what is public, and `python -m laha`
]
ORDER = [name for layer in LAYERS for name in layer]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def imported(source: str) -> Iterator[str]:
    """Yield the full names that a source imports anywhere in it, `laha.x` in a string (the registry's way) included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and node.value in {f"laha.{name}" for name in ORDER}:
            yield node.value


def own_module(name: str) -> str | None:
    """Return which of our modules an imported name comes from, `""` being the package; None if it is not ours."""
    head, *rest = name.split(".")
    if head != "laha":
        return None
    while rest and ".".join(rest) not in ORDER:
        rest.pop()
    return ".".join(rest)


def violations(module: str, source: str) -> list[str]:
    """Return the imports of a module's source that break the layers, each with the reason."""
    found = []
    for name in imported(source):
        own = own_module(name)
        if name.startswith("."):
            found.append(f"{module} imports {name}: write the full name, laha.…")
        elif module.startswith("network"):
            package = name.split(".")[0]
            if own is None and package != "torch" and package not in sys.stdlib_module_names:
                found.append(f"{module} imports {name}: the network is made of torch alone")
            elif own is not None and not own.startswith("network"):
                found.append(f"{module} imports {name}: the network knows nothing of ours but itself")
        if own is not None and name != "laha.__version__" and ORDER.index(own) >= ORDER.index(module):
            found.append(f"{module} imports {name}, which stands below it: move one of them")
    return found


def test_every_file_has_its_place():
    assert sorted(ORDER) == sorted(FILES), "give a new file its place in LAYERS"


@pytest.mark.parametrize("module", ORDER)
def test_the_layers_hold(module):
    assert violations(module, FILES[module].read_text(encoding="utf-8")) == []


def test_the_packages_of_a_folder_hold_no_code():
    for name in ("network", "scoring", "baselines", "baselines.peers", "serve"):
        (docstring,) = ast.parse(FILES[name].read_text(encoding="utf-8")).body
        assert isinstance(docstring, ast.Expr)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("corpus", "from laha.datasets import open_corpus"),
        ("corpus", "from laha import datasets"),
        ("corpus", "import laha.datasets as d"),
        ("corpus", "def late():\n    from laha.cli import main"),
        ("corpus", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from laha.tagger import LAHA"),
        ("corpus", "from laha import LAHA"),
        ("corpus", "import laha"),
        ("corpus", "import_module('laha.tagger')"),
        ("corpus", "from .errors import LahaError"),
        ("corpus", "from laha.corpus import Corpus"),
        ("storage", "from laha.corpus import Corpus"),
        ("evaluation", "from laha.tagger import LAHA"),
        ("network.encoder", "from laha.network.laha import LAHANetwork"),
        ("network.encoder", "from laha.errors import LahaError"),
        ("network.encoder", "import numpy as np"),
    ],
)
def test_a_planted_violation_is_found(module, source):
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("results", "from laha import __version__"),
        ("datasets", "from laha import pydocs"),
        ("training", "from laha.network.laha import LAHANetwork\nimport numpy as np"),
        ("network.laha", "import math\nfrom torch import nn\nfrom laha.network.encoder import Encoder"),
        ("registry", "MODELS = {'laha': ('laha.tagger', 'LAHA')}"),
        ("errors", "SETTING = 'network'"),
    ],
)
def test_what_the_layers_allow_passes(module, source):
    assert violations(module, source) == []
