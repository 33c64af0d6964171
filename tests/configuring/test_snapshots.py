"""Tests of `tfrl.configuring.snapshots`."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import golden_io
import pytest

from tfrl.configuring import snapshots

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = {
    case["id"]: case
    for stem in ("alf/common", "alf/misc")
    for case in golden_io.load(stem)
    if case["symbol"].split(".")[1]
    in ("is_repo_root", "snapshot_repo_roots", "get_revision", "get_diff")
}
VARIABLE = "TFRL_SNAPSHOT_REPO_ROOTS"


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in (VARIABLE, "ALF_SNAPSHOT_REPO_ROOTS", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def package(root, name, text="value = 1\n"):
    folder = pathlib.Path(root, name)
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)
    (folder / "part.py").write_text("value = 2\n")
    return str(root)


@pytest.fixture
def run(tmp_path):
    """The folder of a run with a snapshot of a small `tfrl`."""
    root = package(tmp_path / "code", "tfrl")
    snapshots.generate_snapshot(root, None, tmp_path / "run")
    return tmp_path / "run"


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, text=True)


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "a.py").write_text("a\n")
    (folder / "b.py").write_text("b\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def test_golden_is_complete():
    assert len(GOLDEN) == 5


def test_golden_repo_root(tmp_path):
    assert "common/is_repo_root/001" in GOLDEN
    package(tmp_path, "mine")
    assert snapshots.is_repo_root(str(tmp_path), "mine")
    assert not snapshots.is_repo_root(tmp_path, "other")
    (tmp_path / "other" / "__init__.py").mkdir(parents=True)
    assert not snapshots.is_repo_root(tmp_path, "other")


@pytest.mark.parametrize("case", [x for x in GOLDEN if "snapshot_repo_roots" in x])
def test_golden_repo_roots(case, monkeypatch):
    case = GOLDEN[case]
    for name, value in case.get("setup", {}).get("env", {}).items():
        monkeypatch.setenv(name, value)
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match="expected pairs .* got 'abc'"):
            snapshots.snapshot_repo_roots()
    else:
        assert snapshots.snapshot_repo_roots() == case["out"]


def test_golden_revision(repository):
    revision = snapshots.get_revision(str(repository))
    assert len(revision) == GOLDEN["misc/get_revision/001"]["out"]["len"]
    assert int(revision, 16)


def test_golden_diff(repository):
    expected = GOLDEN["misc/get_diff/001"]["out"]
    assert snapshots.get_diff(repository) == expected["clean"]
    (repository / "b.py").write_text("b\nmore\n")
    (repository / "untracked.py").write_text("c\n")
    (repository / "a.py").chmod(0o755)
    diff = snapshots.get_diff(repository)
    assert ("b.py" in diff and "+more" in diff) == expected["dirty_has_b"]
    assert ("untracked" in diff) == expected["untracked_in_diff"]
    assert "a.py" not in diff


def test_the_diff_is_to_the_commit(repository):
    (repository / "b.py").write_text("staged\n")
    git(repository, "add", ".")
    assert "+staged" in snapshots.get_diff(repository)
    inner = repository / "inner"
    inner.mkdir()
    assert snapshots.get_diff(inner) == snapshots.get_diff(repository)


def test_git_of_a_hook_leads_nowhere_else(repository, monkeypatch, tmp_path):
    revision = snapshots.get_revision(repository)
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    assert snapshots.get_revision(repository) == revision


@pytest.mark.parametrize("name", ["get_revision", "get_diff"])
def test_no_repository_is_an_error(name, tmp_path, monkeypatch):
    ask = getattr(snapshots, name)
    with pytest.raises(ValueError, match=f"`{name}`: `module_root`.*not a git repos"):
        ask(tmp_path)
    with pytest.raises(ValueError, match="missing': fatal: cannot change to"):
        ask(tmp_path / "missing")
    git(tmp_path, "init", "--quiet")
    with pytest.raises(ValueError, match="`module_root` expected"):
        ask(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="No such file or directory: 'git'"):
        ask(tmp_path)


def test_several_roots_are_read(monkeypatch):
    monkeypatch.setenv(VARIABLE, "mine=/code/mine:other=/b=c:tfrl=/elsewhere")
    expected = {"mine": "/code/mine", "other": "/b=c"}
    assert snapshots.snapshot_repo_roots() == expected


@pytest.mark.parametrize(
    "text", ["a", "a=", "=b", "a=b:", "a=b:c", "a/b=c", "a=b:a=c", "../a=b"]
)
def test_other_roots_are_refused(text, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=f"`{VARIABLE}` expected pairs"):
        snapshots.snapshot_repo_roots()


def test_the_root_is_this_repository():
    assert snapshots.package_root() == str(ROOT)


def test_snapshots_of_several_packages_are_imported(tmp_path, monkeypatch):
    package(tmp_path / "code", "mine", "import tfrl\nvalue = 3\n")
    monkeypatch.setenv(VARIABLE, f"mine={tmp_path / 'code'}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "before"))
    (tmp_path / "a.gin").write_text("a = 1")
    run = tmp_path / "run"
    snapshots.generate_snapshot(snapshots.package_root(), tmp_path / "a.gin", run)
    assert sorted(os.listdir(run)) == ["a.gin", "mine.tar.gz", "tfrl.tar.gz"]
    # What happens to the source and to the variable later does not matter.
    shutil.rmtree(tmp_path / "code")
    monkeypatch.delenv(VARIABLE)
    snapshots.unzip_snapshot(run)
    variables = snapshots.get_snapshot_env_vars(run)
    assert variables["PYTHONPATH"] == f"{run / 'snapshot'}:{tmp_path / 'before'}"
    code = "import mine, mine.part, tfrl; print(mine.value, mine.part.value)"
    printed = subprocess.run(
        [sys.executable, "-c", f"{code}; print(mine.__file__, tfrl.__file__)"],
        env=variables,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    folder = run / "snapshot"
    inits = [str(folder / name / "__init__.py") for name in ("mine", "tfrl")]
    assert printed == ["3", "2", *inits]
    for path in (ROOT / "tfrl").rglob("*.py"):
        assert (folder / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


def test_restoring_again_changes_nothing(run):
    snapshots.unzip_snapshot(run)
    before = (run / "snapshot").stat().st_ino
    (run / "snapshot" / "tfrl" / "__pycache__").mkdir()
    (run / "snapshot" / "tfrl" / "__pycache__" / "a.pyc").write_bytes(b"")
    snapshots.unzip_snapshot(run)
    assert (run / "snapshot").stat().st_ino == before


@pytest.mark.parametrize("change", ["edited", "added", "removed", "linked"])
def test_what_was_changed_is_restored(change, run):
    snapshots.unzip_snapshot(run)
    folder = run / "snapshot" / "tfrl"
    if change == "edited":
        (folder / "part.py").write_text("value = 9\n")
    elif change == "added":
        (folder / "more.py").write_text("")
    elif change == "removed":
        (folder / "part.py").unlink()
    else:
        (folder / "more.py").symlink_to("part.py")
    snapshots.unzip_snapshot(run)
    assert sorted(os.listdir(folder)) == ["__init__.py", "part.py"]
    assert (folder / "part.py").read_text() == "value = 2\n"
    assert sorted(os.listdir(run)) == ["snapshot", "tfrl.tar.gz"]


@pytest.mark.parametrize("harm", ["cut", "renamed", "traversal"])
def test_a_bad_archive_is_named_and_restores_nothing(harm, run):
    path = run / "tfrl.tar.gz"
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    elif harm == "renamed":
        path = shutil.copy(path, run / "other.tar.gz")
    else:
        with tarfile.open(path, "w:gz") as archive:
            archive.add(run.parent / "code" / "tfrl" / "part.py", "../a.py")
    with pytest.raises(ValueError, match=f"`root_dir`.*{path.name}', in which this is"):
        snapshots.unzip_snapshot(run)
    assert not (run / "snapshot").exists()


def test_a_pipe_and_an_endless_file_are_no_archives(run):
    with (run / "more.tar.gz").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"more.tar.gz', .*[Nn]ot a gzipped file"):
        snapshots.unzip_snapshot(run)
    (run / "more.tar.gz").unlink()
    (run / "tfrl.tar.gz").unlink()
    os.mkfifo(run / "tfrl.tar.gz")
    with pytest.raises(ValueError, match=r"expected a folder with 'tfrl\.tar\.gz'"):
        snapshots.unzip_snapshot(run)


def test_a_folder_without_a_snapshot_is_refused(tmp_path):
    for ask in (snapshots.unzip_snapshot, snapshots.get_snapshot_env_vars):
        with pytest.raises(ValueError, match=r"expected a folder with 'tfrl\.tar\.gz'"):
            ask(tmp_path / "nothing")


def test_the_working_folder_must_not_hide_the_snapshot(run, monkeypatch):
    monkeypatch.chdir(run.parent / "code")
    with pytest.raises(ValueError, match=r"got '.*code' with \['tfrl'\]"):
        snapshots.get_snapshot_env_vars(run)


def test_bad_arguments_write_nothing(tmp_path, monkeypatch):
    root = package(tmp_path / "code", "tfrl")
    run = tmp_path / "run"
    with pytest.raises(ValueError, match="`dest_path` expected outside of the package"):
        snapshots.generate_snapshot(root, None, tmp_path / "code" / "tfrl" / "run")
    with pytest.raises(ValueError, match="`tfrl` expected in a folder that holds"):
        snapshots.generate_snapshot(tmp_path, None, run)
    with pytest.raises(ValueError, match="`conf_file` expected a file or None"):
        snapshots.generate_snapshot(root, tmp_path / "no.gin", run)
    monkeypatch.setenv(VARIABLE, f"other={tmp_path}")
    with pytest.raises(ValueError, match="`other` expected in a folder that holds"):
        snapshots.generate_snapshot(root, None, run)
    assert not run.exists()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"cgroup": "0::/user.slice\n"}, False),
        ({"cgroup": "12:cpu:/docker/0123\n"}, True),
        ({"cgroup": "0::/kubepods/burstable\n"}, True),
        ({".dockerenv": ""}, True),
    ],
    ids=["nothing", "host", "docker", "kubernetes", "marker"],
)
def test_containers_are_known(files, expected, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    marker, groups = str(tmp_path / ".dockerenv"), str(tmp_path / "cgroup")
    monkeypatch.setattr(snapshots, "_CONTAINER_FILES", (marker,))
    monkeypatch.setattr(snapshots, "_CONTROL_GROUPS", (groups, "missing"))
    assert snapshots.is_inside_docker_container() is expected
