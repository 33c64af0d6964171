"""`tools/release` refuses what is not ready, and builds what is whole."""

import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = '"""Title."""\n\n__version__ = "1.2.0"\n'
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-24\n\n- New.\n"


@pytest.fixture(scope="module")
def release():
    path = str(ROOT / "tools" / "release")
    loader = importlib.machinery.SourceFileLoader("release", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_commit_that_is_ready_has_no_faults(release):
    given = PACKAGE, CHANGELOG, ["v1.1.9", "other"], []
    assert release.faults_of_commit("1.2.0", *given) == []
    assert release.notes_of("1.2.0", CHANGELOG) == "- New."


@pytest.mark.parametrize(
    ("version", "changed", "word"),
    [
        ("1.2", {}, "'1.2' is no semantic version"),
        ("01.2.0", {}, "'01.2.0' is no semantic version"),
        ("1.3.0", {}, "says 1.2.0, not 1.3.0"),
        ("1.2.0", {"changelog": "## [1.2.0]\n\n- New.\n"}, "CHANGELOG.md has nothing"),
        ("1.2.0", {"changelog": "## [1.2.0] - 2026-11-24\n"}, "CHANGELOG.md has"),
        ("1.2.0", {"tags": ["v1.2.0"]}, "v1.2.0 is released already"),
        ("1.2.0", {"tags": ["v1.10.0"]}, "v1.10.0 is released already"),
        ("1.2.0", {"changes": ["tfrl/x.py"]}, "not committed: tfrl/x.py"),
    ],
)
def test_what_is_not_ready_is_refused(release, version, changed, word):
    ready = {"package": PACKAGE, "changelog": CHANGELOG, "tags": [], "changes": []}
    faults = release.faults_of_commit(version, **{**ready, **changed})
    assert any(word in fault for fault in faults), faults


def test_what_a_wheel_lacks_is_told(release, tmp_path):
    wheel = tmp_path / "tfrl-1.2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tfrl-1.2.0.dist-info/METADATA", "Name: tfrl\nVersion: 1.1.0\n")
        file.writestr("tfrl/__init__.py", PACKAGE)
        file.writestr("tfrl/left_over.py", "")
    tracked = ["README.md", "configs/one.gin", "tfrl/__init__.py", "tfrl/py.typed"]
    faults = release.faults_of_files("1.2.0", wheel, tracked)
    assert "Version is '1.1.0', not '1.2.0'" in faults
    assert "the wheel has tfrl/left_over.py" in faults
    for name in ("tfrl/py.typed", "configs/one.gin", "LICENSE"):
        assert f"the wheel lacks {name}" in faults


@pytest.mark.slow
def test_this_tree_builds_whole(release, tmp_path):
    """A copy of it, committed and with a dated section of its version."""
    copy, git = (
        tmp_path / "copy",
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"],
    )
    names = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(names, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(lambda name: (ROOT / name).is_file(), told.stdout.splitlines()):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    changelog = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    package = (copy / "tfrl" / "__init__.py").read_text(encoding="utf-8")
    version = release.stated_version(package)
    dated = changelog.replace("## [Unreleased]", f"## [{version}] - 2026-11-24", 1)
    (copy / "CHANGELOG.md").write_text(dated, encoding="utf-8")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=copy, check=True)
    command = [sys.executable, "tools/release", version, "--no-install"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"git tag -a v{version}" in done.stdout
    assert len(list((copy / "build" / "dist").iterdir())) == 2
