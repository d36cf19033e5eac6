"""Tag documents from a label set too large to read, and see the words behind every tag."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laha.corpus import Corpus as Corpus
    from laha.datasets import open_corpus as open_corpus
    from laha.datasets import open_parts as open_parts
    from laha.errors import LahaError as LahaError
    from laha.evaluation import Report as Report
    from laha.evaluation import evaluate as evaluate
    from laha.explain import Explanation as Explanation
    from laha.prepared import Prepared as Prepared
    from laha.prepared import prepare as prepare
    from laha.ranking import TopK as TopK
    from laha.registry import create as create
    from laha.registry import load as load
    from laha.tagger import LAHA as LAHA

__version__ = "0.1.0"

# Imported on first use, so that `import laha` and `laha --help` do not wait for torch.
_PUBLIC = {
    "LAHA": "laha.tagger",
    "Corpus": "laha.corpus",
    "Explanation": "laha.explain",
    "LahaError": "laha.errors",
    "Prepared": "laha.prepared",
    "Report": "laha.evaluation",
    "TopK": "laha.ranking",
    "create": "laha.registry",
    "evaluate": "laha.evaluation",
    "load": "laha.registry",
    "open_corpus": "laha.datasets",
    "open_parts": "laha.datasets",
    "prepare": "laha.prepared",
}
__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'laha' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
