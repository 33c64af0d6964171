"""Tests of `tfrl.training.configuring._source_archive`."""

import gzip
import io
import os
import tarfile

import pytest

from tfrl.training.configuring import _source_archive


def planted(root, files):
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def archive(*members, close=True):
    """An archive of (name, content or changes of its header)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, content in members:
            member = tarfile.TarInfo(name)
            data = content if isinstance(content, bytes) else b""
            member.size = len(data)
            for key, value in ({} if data else dict(content or {})).items():
                setattr(member, key, value)
            made.addfile(member, io.BytesIO(data))
    return gzip.compress(file.getvalue())


INIT = ("mine/__init__.py", b"x = 1")
SOURCE = {
    "mine/__init__.py": b"",
    "mine/part/deep.py": b"y = 2\n",
    "mine/\xe9.gin": b"a = 1",
    "mine/data.json": b"{}",
    "mine/fast.so": b"\x7fELF",
}


def test_source_comes_back_and_nothing_else_goes_in(tmp_path):
    others = ["mine/weights.npy", "mine/__pycache__/a.pyc", "other/a.py", "setup.py"]
    planted(tmp_path, {**SOURCE, **dict.fromkeys(others, b"no")})
    (tmp_path / "mine" / "broken.py").symlink_to("nowhere")
    data = _source_archive.packed(tmp_path, "mine")
    assert _source_archive.unpacked(data, "mine") == SOURCE


def test_links_are_kept_as_what_they_lead_to(tmp_path):
    planted(tmp_path, {"mine/__init__.py": b"", "else.py": b"z"})
    (tmp_path / "mine" / "linked.py").symlink_to(tmp_path / "else.py")
    data = _source_archive.packed(tmp_path, "mine")
    assert _source_archive.unpacked(data, "mine")["mine/linked.py"] == b"z"


def test_links_to_folders_are_kept_as_what_they_lead_to(tmp_path):
    planted(tmp_path, {"mine/__init__.py": b"", "else/a.py": b"z"})
    for name, target in [("one", "../else"), ("two", "../else"), ("loop", "../mine")]:
        (tmp_path / "mine" / name).symlink_to(target)
    files = _source_archive.unpacked(_source_archive.packed(tmp_path, "mine"), "mine")
    assert sorted(files) == ["mine/__init__.py", "mine/one/a.py", "mine/two/a.py"]


@pytest.mark.parametrize("case", ["large", "many", "unprintable"])
def test_what_could_not_be_unpacked_is_not_packed(case, tmp_path, monkeypatch):
    files = {"mine/__init__.py": b"", "mine/a.json": bytes(2**16)}
    if case == "large":
        monkeypatch.setattr(_source_archive, "MOST_BYTES", 2**15)
    elif case == "many":
        monkeypatch.setattr(_source_archive, "_MOST_FILES", 1)
    else:
        files["mine/a\xa0b.json"] = b"{}"
    with pytest.raises(ValueError, match="it holds more than|is no plain path"):
        _source_archive.packed(planted(tmp_path, files), "mine")


def test_the_same_files_give_the_same_bytes(tmp_path):
    first = _source_archive.packed(planted(tmp_path / "a", SOURCE), "mine")
    again = planted(tmp_path / "b", dict(reversed(SOURCE.items())))
    os.utime(again / "mine" / "data.json", (0, 0))
    (again / "mine" / "data.json").chmod(0o600)
    assert _source_archive.packed(again, "mine") == first
    with tarfile.open(fileobj=io.BytesIO(first)) as opened:
        assert opened.getnames() == sorted(SOURCE)


def test_archives_of_others_are_read():
    data = archive(("mine", {"type": tarfile.DIRTYPE}), INIT, ("mine/e.py", None))
    files = {"mine/__init__.py": b"x = 1", "mine/e.py": b""}
    assert _source_archive.unpacked(data, "mine") == files


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
HOSTILE = {
    "parent": (archive(INIT, ("../mine/a.py", b"x")), "does not belong to"),
    "parent_inside": (archive(INIT, ("mine/../../a.py", b"x")), "is no plain path"),
    "absolute": (archive(INIT, ("/mine/a.py", b"x")), "does not belong to"),
    "dot": (archive(INIT, ("./mine/a.py", b"x")), "does not belong to"),
    "dot_inside": (archive(INIT, ("mine/./a.py", b"x")), "is no plain path"),
    "empty_part": (archive(INIT, ("mine//a.py", b"x")), "is no plain path"),
    "other_package": (archive(INIT, ("os/__init__.py", b"x")), "does not belong to"),
    "bare_file": (archive(INIT, ("mine", b"x")), "does not belong to"),
    "control": (archive(INIT, ("mine/a\n.py", b"x")), "is no plain path"),
    "symlink": (archive(INIT, ("mine/a.py", LINK)), "is no ordinary file"),
    "symlink_to_folder": (
        archive(INIT, ("mine/a", {**LINK, "linkname": "/"}), ("mine/a/b.py", b"x")),
        "is no ordinary file",
    ),
    "hard_link": (
        archive(INIT, ("mine/a.py", {**LINK, "type": tarfile.LNKTYPE})),
        "is no ordinary file",
    ),
    "device": (
        archive(INIT, ("mine/a.py", {"type": tarfile.CHRTYPE})),
        "is no ordinary file",
    ),
    "pipe": (
        archive(INIT, ("mine/a.py", {"type": tarfile.FIFOTYPE})),
        "is no ordinary file",
    ),
    "twice": (archive(INIT, INIT), "is there twice"),
    "file_and_folder": (
        archive(INIT, ("mine/a", b"x"), ("mine/a/b.py", b"x")),
        "'mine/a' is a file and a folder",
    ),
    "no_package": (archive(("mine/a.py", b"x")), "holds no package 'mine'"),
    "empty": (b"", "no gzipped archive|damaged"),
    "no_gzip": (b"PK\x03\x04" + bytes(40), "no gzipped archive"),
    "no_tar": (gzip.compress(b"hello" * 1000), "damaged"),
    "empty_tar": (gzip.compress(b""), "damaged"),
    "cut": (archive(INIT)[:-20], "no gzipped archive"),
    "cut_inside": (gzip.compress(gzip.decompress(archive(INIT))[:514]), "damaged|data"),
    "pickle": (b"\x80\x05cos\nsystem\n(S'true'\ntR.", "no gzipped archive"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused(case):
    data, message = HOSTILE[case]
    with pytest.raises(ValueError, match=message):
        _source_archive.unpacked(data, "mine")


def test_every_damage_shows_or_does_none():
    data = archive(INIT, ("mine/a.py", b"y = 2" * 10))
    expected = _source_archive.unpacked(data, "mine")
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            files = _source_archive.unpacked(bytes(damaged), "mine")
        except ValueError:
            continue
        # Gzip notes times and names that do not matter.
        assert files == expected


def test_bombs_are_refused(monkeypatch):
    monkeypatch.setattr(_source_archive, "MOST_BYTES", 2**20)
    bomb = archive(INIT, ("mine/a.py", bytes(2**21)))
    assert len(bomb) < 2**14
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        _source_archive.unpacked(bomb, "mine")
    monkeypatch.setattr(_source_archive, "_MOST_FILES", 3)
    many = archive(INIT, *[(f"mine/{i}.py", b"x") for i in range(3)])
    with pytest.raises(ValueError, match="more than 3 files"):
        _source_archive.unpacked(many, "mine")
    folders = archive(INIT, *[(f"mine/{i}", {"type": tarfile.DIRTYPE}) for i in "abc"])
    with pytest.raises(ValueError, match="more than 3 files"):
        _source_archive.unpacked(folders, "mine")


def test_huge_headers_are_no_memory():
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**40
    data = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(ValueError, match="damaged|holds no package"):
        _source_archive.unpacked(data, "mine")
