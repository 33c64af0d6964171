"""What `configs.parse` says of wrong text, and of bindings taken together."""

import builtins
import importlib
import os

import gin
import pytest

from tfrl.configuring import configs


def engine(rate: float = 0.1, what=None):
    return rate, what


@pytest.fixture(autouse=True)
def made():
    configs.clear()
    yield configs.register({"engine": engine}, module="checked")["engine"]
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


# Text, and what its error says.
WRONG = {
    "call": ("engine.what = @os.system()", "a configurable's name; got `os.system`"),
    "reference": ("engine.what = @os.system", "configurable's name; got `os.system`"),
    "builtin": ("engine.what = @eval()", "a configurable's name; got `eval`"),
    "binding": ("os.system.command = 'ls'", "configurable's name; got `os.system`"),
    "python-call": ("engine.what = __import__('os')", "gin syntax"),
    "expression": ("engine.what = 1 + 1", "gin syntax"),
    "comprehension": ("engine.what = [x for x in ()]", "gin syntax"),
    "lambda": ("engine.what = lambda: 0", "gin syntax"),
    "f-string": ("engine.what = f'{engine}'", "gin syntax"),
    "statement": ("exec('import os')", "gin syntax"),
    "macro-call": ("engine.what = %os.system()", "gin syntax|a defined macro"),
    "include-address": ("include 'gs://bucket/a.gin'", "a gin file; got"),
    "include-null": ("include 'a\\x00b'", "a gin file"),
    "nested": ("engine.what = " + "[" * 40_000, "gin syntax"),
    "nested-closed": ("engine.what = " + "[" * 2_000 + "]" * 2_000, "gin syntax"),
    "minus": ("engine.what = " + "-" * 40_000 + "1", "gin syntax"),
    "digits": ("engine.what = " + "9" * 10_000, "gin syntax"),
    "null": ("engine.what = '\0'", "gin syntax"),
    "surrogate": ("engine.what = '\\ud800'", None),
    "unfinished": ("engine.what = '''", "gin syntax"),
    "unhashable": ("engine.what = {[1]: 2}", "gin syntax; got unhashable"),
    "include-surrogate": ("include '\\ud800'", "a gin file; got"),
    "long-name": ("x" * 40_000 + ".rate = 1.0", "a configurable's name; got `xxx"),
    "long-macro": ("engine.rate = %" + "x" * 40_000, "a defined macro; got `%xxx"),
    "long-value": (f"engine.rate = '{'x' * 40_000}'", "float for `engine.rate`; got"),
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
        "a = 1\nengine.what = [1,\n  @no_such,\n  2]": 3,
        "engine:\n  rate = 1.0\n  what = @no_such()\n": 3,
        "engine:\n  rate = 1.0\n  rade = 2.0\n": 3,
        "a = 1\nengine.what = [1,\n {[1]: 2}]": 3,
    }.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=f"run.gin:{line}: expected"):
            configs.parse([path])


@gin.configurable(module="checked", allowlist=["a"])
def listed(a: int = 1, b: int = 2):
    return a, b


def ladder(n_rungs, text):
    return "\n".join(text.format(i, i + 1) for i in range(n_rungs))


# Text, the line that the error names, and what it says.
REFUSED = {
    "in a list": ("engine.what = [{'a': @engine()}]", 1, "without a loop"),
    "in a scope": (
        "engine.what = @s/engine()\ns/engine.what = @engine()",
        2,
        "without a loop; got `s/engine.what",
    ),
    "inherited": (
        "engine.what = @s/engine()",
        1,
        "references and macros without a loop",
    ),
    "by a macro": (
        "engine.what = %again\nagain = [@s/engine()]",
        1,
        "without a loop; got `engine.what",
    ),
    "macro chain": (
        "a0 = 0\n" + ladder(2000, "a{1} = %a{0}") + "\nengine.what = %a2000",
        2002,
        "a value that can be made; got max",
    ),
    "brackets": (
        "engine.what = " + "[" * 480 + "]" * 480,
        1,
        "a value that gin can write|gin syntax",
    ),
    "unhashable": ("m = [1]\nengine.what = {%m: 2}", 2, "unhashable type"),
    "required inside": (
        "engine.what = [(%gin.REQUIRED,)]",
        1,
        "a value; got `engine.what",
    ),
    "required, short": ("engine.rate = %REQUIRED", 1, "a value; got `engine.rate"),
    "no macro": ("engine.what = @gin.macro()", 1, "a value that gin can write"),
    "minus": ("engine.what = -1j", 1, "a value that gin can write"),
    "hexadecimal": ("engine.what = 0x" + "f" * 5000, 1, "a value that gin can write"),
    "parameter as a macro": (
        "engine.what = %engine.rate",
        1,
        "a defined macro; got `%engine.rate`",
    ),
    "not listed": (
        "listed.b = 3",
        1,
        r"a parameter for conf.*got `listed.b` \(.*allow",
    ),
}


@pytest.mark.parametrize(("text", "line", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_made_is_told_with_its_line(tmp_path, made, text, line, message):
    configs.parse(bindings=["engine.rate = 2.0"])
    path = tmp_path / "run.gin"
    path.write_text(text)
    place = rf"{path}:{r'[0-9]+' if line is None else line}"
    with pytest.raises(
        ValueError, match=rf"`parse`: {place}: expected .*{message}"
    ) as e:
        configs.parse([path])
    assert "\n" not in str(e.value) and len(str(e.value)) < 1_000
    # What was parsed before is still in effect.
    assert made() == (2.0, None)


def test_what_ends_is_made(made):
    configs.parse(
        bindings=[
            "engine.what = [@s/engine(), @engine, %deep]",
            "s/engine.what = @s/t/engine()",
            "s/t/engine.what = None",
            "deep = " + "[" * 40 + "]" * 40,
            "m0 = 1",
            ladder(40, "m{1} = %m{0}"),
            "s/t/engine.rate = %m40",
            *(f"u{i}/engine.what = [@u{i + 1}/engine()] " for i in range(20)),
            "u20/engine.what = 7",
        ]
    )
    rate, (inner, called, deep) = made()
    assert (rate, inner) == (0.1, (0.1, (1, None)))
    assert called is not None and len(deep) == 1
    with gin.config_scope("u1"):
        found = made()
    for _ in range(19):
        found = found[1][0]
    assert found == (0.1, 7)
