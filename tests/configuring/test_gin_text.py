"""Tests of what `configs.parse` reads, and what it says of text that is not of gin."""

import builtins
import importlib
import os

import pytest

from tfrl.configuring import _gin_text, configs


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
    found = _gin_text.read_all([path], [])
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


# Text, and what its error says.
WRONG = {
    "dynamic": ("from __gin__ import dynamic_registration", "is not supported"),
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
    "include-address": ("include 'gs://bucket/a.gin'", "a gin file; got"),
    "include-null": ("include 'a\\x00b'", "a gin file"),
    "nested": ("launch.what = " + "[" * 40_000, "gin syntax"),
    "nested-closed": ("launch.what = " + "[" * 2_000 + "]" * 2_000, "gin syntax"),
    "minus": ("launch.what = " + "-" * 40_000 + "1", "gin syntax"),
    "digits": ("launch.what = " + "9" * 10_000, "gin syntax"),
    "null": ("launch.what = '\0'", "gin syntax"),
    "surrogate": ("launch.what = '\\ud800'", None),
    "unfinished": ("launch.what = '''", "gin syntax"),
    "unhashable": ("launch.what = {[1]: 2}", "gin syntax; got unhashable"),
    "include-surrogate": ("include '\\ud800'", "a gin file; got"),
    "include-itself": ("include 'run.gin'", "no file to include itself"),
    "include-folder": ("include '.'", "a gin file; got '.' .Is a directory"),
    "long-name": ("x" * 40_000 + ".rate = 1.0", "a configurable's name; got `xxx"),
    "long-macro": ("launch.rate = %" + "x" * 40_000, "a defined macro; got `%xxx"),
    "long-value": (f"launch.rate = '{'x' * 40_000}'", "float for `launch.rate`; got"),
    "long-file": (f"include '{'x' * 40_000}'", "a gin file; got '...xxx"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=list(WRONG))
def test_wrong_text_is_refused_in_one_line(tmp_path, nothing_runs, text, message):
    path = tmp_path / "run.gin"
    path.write_text(text)
    if message is None:
        configs.parse([path])
        return
    with pytest.raises(ValueError, match=message) as caught:
        configs.parse([path])
    assert str(caught.value).startswith(f"`parse`: {tmp_path}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2_000


def test_lines_count_where_they_begin(tmp_path):
    path = tmp_path / "run.gin"
    for text, line in {
        "a = 1\nlaunch.what = [1,\n  @no_such,\n  2]": 3,
        "launch:\n  rate = 1.0\n  what = @no_such()\n": 3,
        "launch:\n  rate = 1.0\n  rade = 2.0\n": 3,
        "a = 1\nlaunch.what = [1,\n {[1]: 2}]": 3,
    }.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=f"run.gin:{line}: expected"):
            configs.parse([path])
