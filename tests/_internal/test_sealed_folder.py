"""Tests of `tfrl._internal.sealed_folder`."""

import json

import pytest

from tfrl._internal import sealed_folder
from tfrl.configuring import configs


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "inner").mkdir()
    sealed_folder.seal(tmp_path, "manifest.json", {"step": 3})
    return tmp_path


def test_what_was_sealed_is_read_back(folder):
    body = sealed_folder.unseal(folder, "manifest.json")
    sealed_folder.compare_files(folder, body)
    assert body["step"] == 3 and list(body["files"]) == ["a"]


def test_files_of_inner_folders(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b").write_bytes(b"content")
    (tmp_path / "a").write_bytes(b"")
    sealed_folder.seal(tmp_path, "manifest.json", {}, ["inner/b"])
    body = sealed_folder.unseal(tmp_path, "manifest.json")
    assert list(body["files"]) == ["a", "inner/b"]
    sealed_folder.compare_files(tmp_path, body)
    (tmp_path / "inner" / "b").unlink()
    with pytest.raises(sealed_folder.DamageError, match="inner/b cannot be read"):
        sealed_folder.compare_files(tmp_path, body)


def test_a_changed_manifest_is_found(folder):
    path = folder / "manifest.json"
    whole = json.loads(path.read_text())
    whole["manifest"]["step"] = 4
    path.write_text(json.dumps(whole))
    with pytest.raises(sealed_folder.DamageError, match="not as it was written"):
        sealed_folder.unseal(folder, "manifest.json")
    path.unlink()
    with pytest.raises(sealed_folder.DamageError, match="cannot be read"):
        sealed_folder.unseal(folder, "manifest.json")


FOLDERS = sealed_folder.StepFolders("ckpt-", "structure.json", {2: {"step": int}})


def written(folder, step, score=None):
    def write(path, before):
        assert before is None or before.name != path.name
        (path / "a").write_bytes(b"content")
        return {"score": score}, ()

    return FOLDERS.save("test", folder, step, None, {}, write)


def used(*paths):
    found = []
    FOLDERS.use("test", paths, lambda path, body: found.append(body))
    return found


def test_steps_are_sorted_as_numbers(tmp_path):
    for step in (9, 20, 100):
        written(tmp_path, step)
    (tmp_path / "ckpt-007").mkdir()
    (tmp_path / ".writing-ckpt-8").mkdir()
    assert FOLDERS.steps(tmp_path) == [9, 20, 100]
    with pytest.raises(ValueError, match="expected a step after 100, .*; got 21;"):
        written(tmp_path, 21)


def test_best_has_the_highest_score_and_of_equals_the_newest(tmp_path):
    for step, score in [(1, 2.0), (2, 2.0), (3, None), (4, -5.0), (10, 9.0)]:
        written(tmp_path, step, score)
    (tmp_path / "ckpt-10" / "structure.json").write_bytes(b"{}")
    assert FOLDERS.best(tmp_path) == 2


def test_written_is_used(tmp_path):
    (body,) = used(written(tmp_path, 3, 0.5))
    assert (body["step"], body["score"], list(body["files"])) == (3, 0.5, ["a"])


def test_formats_of_later_versions_are_refused(tmp_path):
    sealed_folder.seal(tmp_path, "structure.json", {"format": 3})
    with pytest.raises(ValueError, match="`test`: .* format 2; got format 3"):
        used(tmp_path)


def test_only_damaged_ones_are_an_error(tmp_path):
    paths = [written(tmp_path, step) for step in (1, 2)]
    for path in paths:
        (path / "structure.json").write_bytes(b"{}")
    with (
        pytest.warns(UserWarning, match="ckpt-[12] is damaged"),
        pytest.raises(ValueError, match="got only damaged ones"),
    ):
        used(*paths)
    with pytest.raises(ValueError, match="got .*ckpt-1, damaged .*; take another"):
        used(paths[0])


@pytest.mark.parametrize("error", [OSError("no"), sealed_folder.DamageError("no")])
def test_what_cannot_be_read_is_damaged(tmp_path, error):
    def read(path, body):
        raise error

    with pytest.raises(ValueError, match=r"got .*ckpt-1, damaged \(no\)"):
        FOLDERS.use("test", [written(tmp_path, 1)], read)


def test_what_is_sealed_comes_back():
    body = {"format": 1, "parts": [[None, "a\u00e9", 2.5], {"b": []}]}
    data = sealed_folder.sealed(body)
    assert data.isascii() and data.endswith(b"\n")
    assert sealed_folder.unsealed(data) == body


def test_no_changed_bit_is_unsealed():
    data = sealed_folder.sealed({"format": 1, "name": "ab"})
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            with pytest.raises(ValueError, match="`unsealed`: `data` expected as"):
                sealed_folder.unsealed(bytes(changed))


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"{}", b"[" * 100_000, b'{"manifest":{}}', b"\xff\x00"],
    ids=["nothing", "list", "null", "empty", "deep", "no-digest", "no-text"],
)
def test_other_texts_are_not_unsealed(data):
    with pytest.raises(ValueError, match="`unsealed`: `data` expected as"):
        sealed_folder.unsealed(data)


def test_what_json_lacks_is_not_sealed():
    with pytest.raises(TypeError):
        sealed_folder.sealed({"a": {1, 2}})


@pytest.mark.parametrize(
    ("value", "like", "expected"),
    [
        (3, int, True),
        (True, int, False),
        (1 << 63, int, False),
        (1.0, int, False),
        (None, None, True),
        (None, (int, None), True),
        ("a", (int, None), False),
        ([], [int], True),
        ([1, "a"], [int], False),
        ([1, "a"], [int, str], True),
        ([1], [int, str], False),
        ({}, [int], False),
        ({"a": 1, "b": 2}, {str: int}, True),
        ({"a": 1, "b": "2"}, {str: int}, False),
        ({"a": 1, "b": "2"}, {"a": int}, True),
        ({}, {"a": int}, False),
        ([], {"a": int}, False),
    ],
)
def test_shapes(value, like, expected):
    assert sealed_folder.fits(value, like) is expected


TEXT = "a = 'ä'\n\n# b\nc = 1"


def test_only_what_was_written_is_intact():
    data = sealed_folder.digested(TEXT)
    assert data.endswith(TEXT.encode()) and sealed_folder.has_digest(data)
    assert sealed_folder.is_intact(data)
    for place in range(0, len(data), 3):
        changed = bytearray(data)
        changed[place] ^= 1
        assert not sealed_folder.is_intact(bytes(changed)), place
        assert not sealed_folder.is_intact(data[:place]), place
    assert not sealed_folder.is_intact(data + b"\n")
    assert not sealed_folder.is_intact(TEXT.encode())
    assert not sealed_folder.has_digest(TEXT.encode())


@pytest.mark.parametrize("text", ["", "fast = 0.5\n"])
def test_gin_reads_past_it(text, tmp_path):
    configs.parse([configs.write(tmp_path, text=text)])
    assert ("fast = 0.5" in configs.configured()) == bool(text)
    configs.clear()
