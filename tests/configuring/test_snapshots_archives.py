"""Tests of the archives that snapshots are packed into, and of hostile ones."""

import gzip
import io
import os
import tarfile

import pytest

from tfrl.configuring import snapshots


def planted(root, files):
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("TFRL_SNAPSHOT_REPO_ROOTS", "ALF_SNAPSHOT_REPO_ROOTS"):
        monkeypatch.delenv(name, raising=False)


def pack(root, run):
    snapshots.generate_snapshot(root, None, run)
    return (run / "tfrl.tar.gz").read_bytes()


def unpack(data, run):
    """The files that a run restores of an archive."""
    run.mkdir(exist_ok=True)
    (run / "tfrl.tar.gz").write_bytes(data)
    snapshots.unzip_snapshot(run)
    folder = run / "snapshot"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def archive(*members):
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


INIT = ("tfrl/__init__.py", b"x = 1")
SOURCE = {
    "tfrl/__init__.py": b"",
    "tfrl/part/deep.py": b"y = 2\n",
    "tfrl/\xe9.gin": b"a = 1",
    "tfrl/data.json": b"{}",
    "tfrl/fast.so": b"\x7fELF",
}


def test_source_comes_back_and_nothing_else_goes_in(tmp_path):
    others = ["tfrl/weights.npy", "tfrl/__pycache__/a.pyc", "other/a.py", "setup.py"]
    root = planted(tmp_path / "code", {**SOURCE, **dict.fromkeys(others, b"no")})
    (root / "tfrl" / "broken.py").symlink_to("nowhere")
    assert unpack(pack(root, tmp_path / "run"), tmp_path / "run") == SOURCE


def test_links_are_kept_as_what_they_lead_to(tmp_path):
    files = {"tfrl/__init__.py": b"", "else.py": b"y", "else/a.py": b"z"}
    root = planted(tmp_path / "code", files)
    (root / "tfrl" / "linked.py").symlink_to(root / "else.py")
    for name, target in [("one", "../else"), ("two", "../else"), ("loop", "../tfrl")]:
        (root / "tfrl" / name).symlink_to(target)
    assert unpack(pack(root, tmp_path / "run"), tmp_path / "run") == {
        "tfrl/__init__.py": b"",
        "tfrl/linked.py": b"y",
        "tfrl/one/a.py": b"z",
        "tfrl/two/a.py": b"z",
    }


def test_what_is_too_large_is_not_packed(tmp_path, monkeypatch):
    files = {"tfrl/__init__.py": b"", "tfrl/a.json": bytes(2**16)}
    monkeypatch.setattr(snapshots, "_MOST_BYTES", 2**15)
    with pytest.raises(ValueError, match="`tfrl` expected at most 32768 bytes"):
        pack(planted(tmp_path / "code", files), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_same_files_give_the_same_bytes(tmp_path):
    first = pack(planted(tmp_path / "a", SOURCE), tmp_path / "run")
    again = planted(tmp_path / "b", dict(reversed(SOURCE.items())))
    os.utime(again / "tfrl" / "data.json", (0, 0))
    (again / "tfrl" / "data.json").chmod(0o600)
    assert pack(again, tmp_path / "other") == first
    with tarfile.open(fileobj=io.BytesIO(first)) as opened:
        assert opened.getnames() == sorted(SOURCE)


def test_archives_of_others_are_read(tmp_path):
    data = archive(("tfrl", {"type": tarfile.DIRTYPE}), INIT, ("tfrl/e.py", None))
    files = {"tfrl/__init__.py": b"x = 1", "tfrl/e.py": b""}
    assert unpack(data, tmp_path) == files


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
HOSTILE = {
    "parent": (archive(INIT, ("../tfrl/a.py", b"x")), "is no path in"),
    "parent_inside": (archive(INIT, ("tfrl/../../a.py", b"x")), "is no path in"),
    "absolute": (archive(INIT, ("/tfrl/a.py", b"x")), "is no path in"),
    "dot": (archive(INIT, ("./tfrl/a.py", b"x")), "is no path in"),
    "dot_inside": (archive(INIT, ("tfrl/./a.py", b"x")), "is no path in"),
    "empty_part": (archive(INIT, ("tfrl//a.py", b"x")), "is no path in"),
    "other_package": (archive(INIT, ("os/__init__.py", b"x")), "is no path in"),
    "bare_file": (archive(("tfrl", b"x")), "holds no package 'tfrl'"),
    "symlink": (archive(INIT, ("tfrl/a.py", LINK)), "is no ordinary file"),
    "symlink_to_folder": (
        archive(INIT, ("tfrl/a", {**LINK, "linkname": "/"}), ("tfrl/a/b.py", b"x")),
        "is no ordinary file",
    ),
    "hard_link": (
        archive(INIT, ("tfrl/a.py", {**LINK, "type": tarfile.LNKTYPE})),
        "is no ordinary file",
    ),
    "device": (
        archive(INIT, ("tfrl/a.py", {"type": tarfile.CHRTYPE})),
        "is no ordinary file",
    ),
    "pipe": (
        archive(INIT, ("tfrl/a.py", {"type": tarfile.FIFOTYPE})),
        "is no ordinary file",
    ),
    "no_package": (archive(("tfrl/a.py", b"x")), "holds no package 'tfrl'"),
    "empty": (b"", "in which this is wrong"),
    "no_gzip": (b"PK\x03\x04" + bytes(40), "gzipped|ended before"),
    "no_tar": (gzip.compress(b"hello" * 1000), "header|empty|truncated"),
    "empty_tar": (gzip.compress(b""), "header|empty|truncated"),
    "cut": (archive(INIT)[:-20], "gzipped|ended before"),
    "cut_inside": (
        gzip.compress(gzip.decompress(archive(INIT))[:514]),
        "end of data|truncated|invalid",
    ),
    "pickle": (b"\x80\x05cos\nsystem\n(S'true'\ntR.", "gzipped|ended before"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused(case, tmp_path):
    data, message = HOSTILE[case]
    with pytest.raises(ValueError, match=rf"`root_dir` .*tfrl.tar.gz', .*{message}"):
        unpack(data, tmp_path / "run")
    assert os.listdir(tmp_path / "run") == ["tfrl.tar.gz"]
    assert os.listdir(tmp_path) == ["run"]


def test_every_damage_shows_or_does_none(tmp_path):
    data = archive(INIT, ("tfrl/a.py", b"y = 2" * 10))
    expected = unpack(data, tmp_path)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            files = unpack(bytes(damaged), tmp_path)
        except ValueError:
            continue
        # Gzip notes times and names that do not matter.
        assert files == expected


def test_bombs_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(snapshots, "_MOST_BYTES", 2**20)
    bomb = archive(INIT, ("tfrl/a.py", bytes(2**21)))
    assert len(bomb) < 2**14
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        unpack(bomb, tmp_path)


def test_huge_headers_are_no_memory(tmp_path):
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**40
    data = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(ValueError, match="`root_dir` .*, in which this is wrong"):
        unpack(data, tmp_path)
