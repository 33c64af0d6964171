"""Tests of what `configs.parse` says of bindings taken together."""

import gin
import pytest

from tfrl.configuring import configs


def engine(rate: float = 0.1, what=None):
    return rate, what


@gin.configurable(module="checked", allowlist=["a"])
def listed(a: int = 1, b: int = 2):
    return a, b


@pytest.fixture(autouse=True)
def made():
    configs.clear()
    yield configs.register({"engine": engine}, module="checked")["engine"]
    configs.clear()


def ladder(n_rungs, text):
    return "\n".join(text.format(i, i + 1) for i in range(n_rungs))


# Text, the line that the error names, and what it says.
REFUSED = {
    "itself": ("engine.what = @engine()", 1, "references and macros without a loop"),
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
    "macros": ("a = [%b]\nb = %c\nc = {'x': %a}", 1, "macros without a loop; got `a ="),
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
