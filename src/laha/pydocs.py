"""The built-in corpus `pydocs`: docstrings of the installed Python libraries, tagged by where and what they document.

Nothing is downloaded and nothing is imported: the sources of the standard library, numpy, scipy and scikit-learn are
parsed with `ast`. A document is the docstring of a public function, method or class. Its labels are the public modules
around it at every level (`scipy`, `scipy.stats`) and, for functions and methods, `arg NAME` for each parameter and
`raises NAME` for each exception raised.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import platform
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

from laha.corpus import Corpus, Parts, Record

# Raised whenever the rules below change, so that a corpus cached under older rules is not taken for this one.
RECIPE = 1
PACKAGES = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}  # import name -> distribution name
SKIPPED_FOLDERS = {
    *("test", "tests", "site-packages", "dist-packages", "__pycache__"),
    *("idlelib", "lib2to3", "turtledemo", "ensurepip", "distutils", "tkinter"),  # programs, or often not installed
    *("_lib", "_vendor", "_external", "externals", "array_api_compat", "array_api_extra"),  # copies of other libraries
}
MINIMUM_WORDS = 5
MINIMUM_DOCUMENTS = 3

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def cache_key() -> str:
    """Name the corpus by everything its content depends on: the recipe and the versions it was read from."""
    versions = [f"python{platform.python_version()}"]
    for package, distribution in PACKAGES.items():
        try:
            versions.append(package + metadata.version(distribution))
        except metadata.PackageNotFoundError:
            versions.append(f"{package}-none")
    return "-".join(["pydocs", str(RECIPE), *versions])


def build_parts() -> Parts:
    """Read the docstrings of the installed libraries and split them into train, valid and test by name."""
    documents = list(read_docstrings())
    frequency = Counter(label for _, _, labels in documents for label in labels)
    records: dict[str, list[Record]] = {"train": [], "valid": [], "test": []}
    for name, text, labels in documents:
        kept = tuple(label for label in labels if frequency[label] >= MINIMUM_DOCUMENTS)
        if kept:
            part = records[part_of(name)]
            part.append(Record(text, kept, name, len(part) + 1))
    corpora = {part: Corpus.from_records(members, "pydocs") for part, members in records.items()}
    return Parts(corpora["train"], corpora["valid"], corpora["test"], "pydocs")


def part_of(name: str) -> str:
    """Choose the part of a document by a hash of its name: a tenth is test, a tenth valid, the rest train.

    >>> part_of("json.dumps"), part_of("random.shuffle")
    ('valid', 'train')
    """
    tenth = int(hashlib.sha1(name.encode()).hexdigest(), 16) % 10
    return {0: "test", 1: "valid"}.get(tenth, "train")


def read_docstrings() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the qualified name, docstring and labels of each document, a docstring that recurs only once."""
    seen = set()
    for module, path in find_sources():
        tree = parse(path)
        if tree is None:
            continue
        for name, node in public_definitions(tree, module):
            text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
            if len(text.split()) >= MINIMUM_WORDS and text not in seen:
                seen.add(text)
                yield name, text, labels_of(module, node)


def find_sources() -> Iterator[tuple[str, Path]]:
    """Yield the dotted name and the file of every module, in an order that does not depend on the file system."""
    yield from modules_under(Path(sysconfig.get_path("stdlib")), prefix="")
    for package in PACKAGES:
        spec = util.find_spec(package)  # finding a top-level package does not import it
        if spec is not None and spec.origin is not None:
            yield from modules_under(Path(spec.origin).parent, prefix=package)


def modules_under(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules in a folder and below it, without the folders to skip."""
    for path in sorted(folder.rglob("*.py")):
        places = path.relative_to(folder).with_suffix("").parts
        twin_in_c = not prefix and places[0].startswith("_")  # such as _pydecimal, documented as decimal
        if not twin_in_c and not SKIPPED_FOLDERS.intersection(places):
            names = [name for name in (prefix, *places) if name and name != "__init__"]
            yield ".".join(names), path


def parse(path: Path) -> ast.Module | None:
    """Parse a source file, or return None for one that this Python cannot read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return None


def public_definitions(tree: ast.Module | ast.ClassDef, place: str) -> Iterator[tuple[str, Definition]]:
    """Yield the public functions and classes of a module and the methods of its public classes, with their names."""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            name = f"{place}.{node.name}"
            yield name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node, name)


def labels_of(module: str, node: Definition) -> tuple[str, ...]:
    """List the labels of a documented function or class.

    >>> node = ast.parse("def pick(self, size):\\n    raise ValueError('size')").body[0]
    >>> labels_of("numpy.random._generator", node)
    ('numpy', 'numpy.random', 'arg size', 'raises ValueError')
    """
    labels = []
    names = module.split(".")
    for depth, name in enumerate(names, start=1):
        if name.startswith("_"):  # where the code happens to be kept, which says nothing to a reader
            break
        labels.append(".".join(names[:depth]))
    if not isinstance(node, ast.ClassDef):
        labels += [f"arg {name}" for name in parameters(node)]
        labels += [f"raises {name}" for name in exceptions(node)]
    return tuple(dict.fromkeys(labels))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """List the named parameters of a function, without those that every method has."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument.arg for argument in named if argument.arg not in ("self", "cls")]


def exceptions(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """List the exceptions that a function's own body raises by name, those of functions within it left out."""
    names = []
    pending: list[ast.AST] = list(reversed(function.body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = raised.attr if isinstance(raised, ast.Attribute) else getattr(raised, "id", "")
            if name[:1].isupper():  # `raise error` re-raises a variable, which names no exception
                names.append(name)
        if not isinstance(node, Definition):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))
    return names
