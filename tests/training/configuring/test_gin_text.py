"""Tests of `tfrl.training.configuring._gin_text`: what configurations can hold."""

import builtins
import importlib
import os

import pytest

from tfrl.training.configuring import _gin_text, configs


def launch(rate: float = 0.1, what=None):
    return rate, what


@pytest.fixture(autouse=True)
def made():
    configs.clear()
    yield configs.register({"launch": launch}, module="safe")["launch"]
    configs.clear()


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fails if anything is imported by name, started or evaluated."""
    ran = []

    def watch(name):
        def run(*arguments, **options):
            ran.append((name, arguments))
            raise AssertionError(f"{name} ran")

        return run

    for owner, name in [
        (importlib, "import_module"),
        (os, "system"),
        (os, "popen"),
        (builtins, "eval"),
        (builtins, "exec"),
    ]:
        monkeypatch.setattr(owner, name, watch(name))
    yield ran
    assert ran == []


def test_statements_are_read_with_their_places(tmp_path):
    (tmp_path / "base.gin").write_text("b = 2")
    path = tmp_path / "run.gin"
    path.write_text("a = 1\ninclude 'base.gin'\nx/launch.what = [@launch, @s/launch()]")
    found = _gin_text.read_file(path, "here", ())
    assert [str(each) for each in found] == [
        "a = 1",
        "b = 2",
        "x/launch.what = [@launch, @s/launch()]",
    ]
    assert [os.path.basename(each.place) for each in found] == [
        "run.gin:1",
        "base.gin:1",
        "run.gin:3",
    ]


def test_safe_admits_literals_macros_and_references(tmp_path, made, nothing_runs):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "base.gin").write_text("fast = {'a': (0.5, None, True)}")
    path = tmp_path / "run.gin"
    path.write_text(
        "include 'deep/base.gin'\nlaunch.what = [%fast, @s/launch()]\n"
        "s/launch.what = None"
    )
    configs.parse([path], ["launch.rate = 2.0"], safe=True)
    rate, what = made(rate=3.0)
    assert (rate, what) == (3.0, [{"a": (0.5, None, True)}, (2.0, None)])


# Text, and what its error says, if `safe`.
HOSTILE = {
    "import": ("import os", "no import where `safe`; got `import os`"),
    "import-from": ("from os import path", "no import where `safe`"),
    "import-as": ("import os.path as p", "no import where `safe`"),
    "dynamic": ("from __gin__ import dynamic_registration", "no import where `safe`"),
    "import-late": ("a = 1\n\nimport antigravity", "no import where `safe`"),
    "call": ("launch.what = @os.system()", "a configurable's name; got `os.system`"),
    "reference": ("launch.what = @os.system", "configurable's name; got `os.system`"),
    "builtin": ("launch.what = @eval()", "a configurable's name; got `eval`"),
    "binding": ("os.system.command = 'ls'", "configurable's name; got `os.system`"),
    "python-call": ("launch.what = __import__('os')", "gin syntax"),
    "expression": ("launch.what = 1 + 1", "gin syntax"),
    "comprehension": ("launch.what = [x for x in ()]", "gin syntax"),
    "lambda": ("launch.what = lambda: 0", "gin syntax"),
    "f-string": ("launch.what = f'{launch}'", "gin syntax"),
    "statement": ("exec('import os')", "gin syntax"),
    "macro-call": ("launch.what = %os.system()", "gin syntax|a defined macro"),
    "include-absolute": ("include '/etc/passwd'", "only files below the folder"),
    "include-up": ("include '../other.gin'", "only files below the folder"),
    "include-link": ("include 'link.gin'", "only files below the folder"),
    "include-address": ("include 'gs://bucket/a.gin'", "a gin file; got"),
    "include-null": ("include 'a\\x00b'", "a gin file|gin syntax|only files"),
    "nested": ("launch.what = " + "[" * 40_000, "gin syntax"),
    "nested-closed": ("launch.what = " + "[" * 2_000 + "]" * 2_000, "gin syntax"),
    "minus": ("launch.what = " + "-" * 40_000 + "1", "gin syntax"),
    "digits": ("launch.what = " + "9" * 10_000, "gin syntax"),
    "null": ("launch.what = '\0'", "gin syntax"),
    "surrogate": ("launch.what = '\\ud800'", None),
    "unfinished": ("launch.what = '''", "gin syntax"),
    "unhashable": ("launch.what = {[1]: 2}", "gin syntax; got unhashable"),
    "include-pipe": ("include 'pipe'", r"a gin file; got '.*pipe' \(no plain file"),
    "include-surrogate": ("include '\\ud800'", "a gin file; got"),
    "include-tree": ("include 'b0.gin'", "at most 50000 characters in 250 files"),
    "include-huge": ("include 'huge.gin'", "at most 50000 characters"),
    "strings": ("launch.what = " + "'a' " * 12_000, "more than 1000 strings in a row"),
    "long-name": ("x" * 40_000 + ".rate = 1.0", "a configurable's name; got `xxx"),
    "long-macro": ("launch.rate = %" + "x" * 40_000, "a defined macro; got `%xxx"),
    "long-value": (f"launch.rate = '{'x' * 40_000}'", "float for `launch.rate`; got"),
}


@pytest.mark.parametrize(("text", "message"), HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_text_is_refused_in_one_line(tmp_path, nothing_runs, text, message):
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "other.gin").write_text("a = 1")
    (folder / "link.gin").symlink_to(tmp_path / "other.gin")
    os.mkfifo(folder / "pipe")
    (folder / "huge.gin").touch()
    os.truncate(folder / "huge.gin", 10**11)
    (folder / "b30.gin").touch()
    for i in range(30):
        (folder / f"b{i}.gin").write_text(f"include 'b{i + 1}.gin'\n" * 2)
    path = folder / "run.gin"
    path.write_text(text)
    if message is None:
        configs.parse([path], safe=True)
        return
    with pytest.raises(ValueError, match=message) as caught:
        configs.parse([path], safe=True)
    assert str(caught.value).startswith(f"`parse`: {folder}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2_000


def test_lines_are_safe_too(nothing_runs, tmp_path):
    with pytest.raises(ValueError, match="bindings:1: expected no import"):
        configs.parse(bindings=["import os"], safe=True)
    (tmp_path / "a.gin").write_text("a = 1")
    with pytest.raises(ValueError, match="bindings:1: expected only files below"):
        configs.parse(bindings=[f"include '{tmp_path}/a.gin'"], safe=True)


def test_long_texts_are_not_safe(nothing_runs, tmp_path):
    (tmp_path / "a.gin").write_text("# " + "x" * 60_000)
    message = r"at most 50000 .* more with '.*a.gin'; shorten"
    with pytest.raises(ValueError, match=message):
        configs.parse([tmp_path / "a.gin"], safe=True)
    with pytest.raises(ValueError, match="bindings:2: expected at most 50000"):
        configs.parse(bindings=["a = 1", "# " + "x" * 60_000], safe=True)
    configs.parse([tmp_path / "a.gin"])


def test_an_included_file_is_safe_too(tmp_path, nothing_runs):
    (tmp_path / "base.gin").write_text("import os")
    (tmp_path / "run.gin").write_text("include 'base.gin'")
    with pytest.raises(ValueError, match=r"base\.gin:1: expected no import"):
        configs.parse([tmp_path / "run.gin"], safe=True)
