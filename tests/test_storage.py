"""The model folder: what is written is read back, equal content gives equal bytes, damage is refused by name."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from laha.errors import ModelError
from laha.storage import (
    FORMAT_VERSION,
    MANIFEST,
    atomic_file,
    atomic_folder,
    check_replaceable,
    is_folder_of,
    read_jsonl,
    read_lines,
    read_manifest,
    read_tensors,
    write_jsonl,
    write_lines,
    write_manifest,
    write_tensors,
)

round_trip = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
text = st.text(st.characters(codec="utf-8"))
one_line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"))
dtypes = st.sampled_from([np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_])
tensors = st.dictionaries(
    text.filter(lambda name: name != "__metadata__"),
    dtypes.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))),
    max_size=4,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


# Files


@round_trip
@given(tensors, st.dictionaries(text, text, max_size=4))
def test_tensors_and_metadata_survive(tmp_path, given, metadata):
    write_tensors(tmp_path / "t", given, metadata)
    found, found_metadata = read_tensors(tmp_path / "t")
    assert found_metadata == metadata
    assert found.keys() == given.keys()
    for name, array in given.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_equal_tensors_give_equal_bytes_in_whatever_order_and_layout(tmp_path):
    matrix = np.arange(6.0).reshape(2, 3)
    metadata = dict.fromkeys("pqrstu", "value")
    write_tensors(tmp_path / "a", {"x": matrix, "y": matrix[0]}, metadata)
    write_tensors(
        tmp_path / "b", {"y": matrix[0], "x": np.asfortranarray(matrix)}, dict(reversed(list(metadata.items())))
    )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0{}trailing"])
def test_a_broken_file_of_tensors_is_named(tmp_path, content):
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"weights\.safetensors cannot be read .*: restore it from a copy"):
        read_tensors(tmp_path / "weights.safetensors")


@round_trip
@given(st.lists(one_line))
def test_lines_survive(tmp_path, lines):
    write_lines(tmp_path / "lines", lines)
    assert read_lines(tmp_path / "lines") == lines


@pytest.mark.parametrize("line", ["a\nb", "a\r", "\r\n"])
def test_a_line_with_a_break_is_refused(tmp_path, line):
    with pytest.raises(ModelError, match="holds a line break"):
        write_lines(tmp_path / "vocabulary.txt", [line])


@round_trip
@given(st.lists(st.dictionaries(text, json_values, max_size=3), max_size=4))
def test_json_lines_survive(tmp_path, rows):
    write_jsonl(tmp_path / "rows", rows)
    assert read_jsonl(tmp_path / "rows") == rows


@pytest.mark.parametrize(
    ("line", "problem"), [("{", "broken JSON"), ("[1]", "not a JSON object"), ("[" * 10**5, "broken JSON")]
)
def test_a_broken_json_line_is_named(tmp_path, line, problem):
    (tmp_path / "labels.jsonl").write_text('{"a": 1}\n' + line + "\n")
    with pytest.raises(ModelError, match=rf"labels\.jsonl, line 2: {problem}: restore the file"):
        read_jsonl(tmp_path / "labels.jsonl")


# The manifest


def make_folder(path, kind: str = "model", **fields):
    with atomic_folder(path) as folder:
        write_tensors(folder / "weights.safetensors", {"w": np.arange(3.0)})
        write_lines(folder / "vocabulary.txt", ["cat"])
        write_jsonl(folder / "labels.jsonl", [{"name": "Tiere 🐈"}])
        write_manifest(folder, kind, {"model": "laha", **fields})
    return path


def edit_manifest(folder, **changes):
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def test_a_manifest_tells_format_kind_fields_and_files(tmp_path):
    manifest = read_manifest(make_folder(tmp_path / "m", epochs=3), "model")
    assert (manifest["format"], manifest["kind"], manifest["model"], manifest["epochs"]) == (1, "model", "laha", 3)
    assert set(manifest["files"]) == {"weights.safetensors", "vocabulary.txt", "labels.jsonl"}
    assert manifest["files"]["vocabulary.txt"] == {"sha256": hashlib.sha256(b"cat\n").hexdigest(), "bytes": 4}


def test_equal_models_give_equal_folders(tmp_path):
    first, second = make_folder(tmp_path / "a"), make_folder(tmp_path / "b")
    assert {f.name: f.read_bytes() for f in first.iterdir()} == {f.name: f.read_bytes() for f in second.iterdir()}


@pytest.mark.parametrize("name", ["weights.safetensors", "vocabulary.txt", "labels.jsonl"])
@pytest.mark.parametrize("place", [0, -1])
def test_a_flipped_byte_is_refused_by_name(tmp_path, name, place):
    file = make_folder(tmp_path / "m") / name
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelError, match=rf"{re.escape(name)} does not match its sha256: it is damaged, restore"):
        read_manifest(tmp_path / "m", "model")
    assert read_manifest(tmp_path / "m", "model", check=False)["model"] == "laha"


def test_a_missing_file_is_refused_by_name(tmp_path):
    (make_folder(tmp_path / "m") / "labels.jsonl").unlink()
    with pytest.raises(ModelError, match=r"labels\.jsonl is missing: restore the folder from a copy"):
        read_manifest(tmp_path / "m", "model")


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "sub/evil", "..", ".", "", "nul\0"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path, name):
    folder = make_folder(tmp_path / "m")
    (tmp_path / "evil").write_bytes(b"")
    (folder / "sub").mkdir()
    (folder / "sub" / "evil").write_bytes(b"")
    edit_manifest(folder, files={name: {"sha256": hashlib.sha256(b"").hexdigest()}})
    with pytest.raises(ModelError, match="is missing: restore the folder"):
        read_manifest(folder, "model")


@pytest.mark.parametrize("files", [{}, None, ["other", "shape"]])
def test_a_newer_format_is_refused_whatever_else_it_holds(tmp_path, files):
    edit_manifest(make_folder(tmp_path / "m"), format=FORMAT_VERSION + 1, files=files)
    with pytest.raises(ModelError, match=r"has format 2, newer than this laha reads \(1\): upgrade with 'pip install"):
        read_manifest(tmp_path / "m", "model")


def test_another_kind_is_refused(tmp_path):
    make_folder(tmp_path / "m", kind="prepared")
    with pytest.raises(ModelError, match=r"m is a prepared folder, where a model folder is needed"):
        read_manifest(tmp_path / "m", "model")
    assert is_folder_of(tmp_path / "m", "prepared")
    assert not is_folder_of(tmp_path / "m", "model")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 10**5,
        b'{"format": 1, "kind": "model"}',
        b'{"format": null, "kind": "model", "files": {}}',
        b'{"format": 1, "kind": "model", "files": []}',
        b'{"format": 1, "kind": "model", "files": {"labels.jsonl": {"bytes": 3}}}',
        b'{"format": 1, "kind": "model", "files": {"labels.jsonl": null}}',
    ],
)
def test_a_damaged_manifest_is_named(tmp_path, content):
    (make_folder(tmp_path / "m") / MANIFEST).write_bytes(content)
    with pytest.raises(ModelError, match=r"manifest\.json is damaged \(.*\): restore it from a copy or make"):
        read_manifest(tmp_path / "m", "model")


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"there is no model at .*nowhere: check the path"):
        read_manifest(tmp_path / "nowhere", "model")
    for path in (tmp_path, tmp_path / "file"):
        (tmp_path / "file").touch()
        with pytest.raises(ModelError, match=r"is not a model folder: it has no manifest\.json"):
            read_manifest(path, "model")
        assert not is_folder_of(path, "model")


# All or nothing


def contents(folder) -> dict[str, bytes | None]:
    return {str(f.relative_to(folder)): f.read_bytes() if f.is_file() else None for f in folder.rglob("*")}


def test_a_new_folder_replaces_an_older_model(tmp_path):
    make_folder(tmp_path / "m", epochs=1)
    (tmp_path / "m" / "leftover.txt").touch()
    make_folder(tmp_path / "m", epochs=2)
    assert read_manifest(tmp_path / "m", "model")["epochs"] == 2
    assert not (tmp_path / "m" / "leftover.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m"], "nothing temporary stays"


def test_an_empty_folder_and_missing_parents_are_welcome(tmp_path):
    (tmp_path / "empty").mkdir()
    make_folder(tmp_path / "empty")
    make_folder(tmp_path / "not" / "yet" / "there")
    assert is_folder_of(tmp_path / "not" / "yet" / "there", "model")


@pytest.mark.parametrize("name", ["thesis.doc", MANIFEST])
def test_a_foreign_folder_is_never_overwritten(tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text('{"name": "a web page has a manifest.json too"}')
    before = contents(tmp_path)
    with pytest.raises(ModelError, match=r"mine holds other files and will not be overwritten: name a new folder"):
        make_folder(tmp_path / "mine")
    assert contents(tmp_path) == before


def test_a_file_is_never_overwritten_by_a_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ModelError, match=r"file is a file: name a folder that does not exist yet"):
        check_replaceable(tmp_path / "file")


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_folder_whose_making_fails_leaves_everything_as_it_was(tmp_path, existing, error):
    if existing:
        make_folder(tmp_path / "m")
    before = contents(tmp_path)

    def broken():
        with atomic_folder(tmp_path / "m") as folder:
            (folder / "half").touch()
            raise error("stopped")

    with pytest.raises(error, match="stopped"):
        broken()
    assert contents(tmp_path) == before


def test_a_file_appears_whole_and_leaves_nothing_temporary(tmp_path):
    with atomic_file(tmp_path / "sub" / "log.json") as temporary:
        temporary.write_text("new")
        assert not (tmp_path / "sub" / "log.json").exists()
    assert contents(tmp_path) == {"sub": None, "sub/log.json": b"new"}


@pytest.mark.parametrize("existing", [True, False])
def test_a_file_whose_making_fails_leaves_the_old_one(tmp_path, existing):
    if existing:
        (tmp_path / "log.json").write_text("old")
    before = contents(tmp_path)

    def broken():
        with atomic_file(tmp_path / "log.json") as temporary:
            temporary.write_text("half")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        broken()
    assert contents(tmp_path) == before
