"""What `_gin_hooks` needs of gin; a failure says in words what gin has changed."""

import gin
import pytest
from gin import config_parser

from tfrl.configuring import _gin_hooks, configs


@gin.configurable(module="hooks", denylist=["b"])
def hooked(a: int = 1, b: int = 2):
    return a, b


@pytest.fixture(autouse=True)
def _forget():
    configs.clear()
    yield
    configs.clear()


def value_of(text):
    ((_, binding),) = _gin_hooks.statements(f"hooked.a = {text}")
    return binding.value


def test_the_parser_tells_statements_apart():
    text = "import os\ninclude 'a.gin'\ns/hooked.a = 3\nx/m = 1\nhooked:\n  a = 2\n"
    words = "`config_parser.ConfigParser` or its statements changed"
    found = dict(_gin_hooks.statements(text))
    assert found[1].format() == "import os" and found[1].module == "os", words
    assert isinstance(found[1], _gin_hooks.Import), words
    assert isinstance(found[2], _gin_hooks.Include), words
    assert found[2].filename == "a.gin", words
    bindings = [x for x in found.items() if isinstance(x[1], _gin_hooks.Binding)]
    assert bindings == [
        (3, _gin_hooks.Binding("s", "hooked", "a", 3)),
        (4, _gin_hooks.Binding("x", "m", "", 1)),
        (6, _gin_hooks.Binding("", "hooked", "a", 2)),
    ], words


def test_errors_of_the_parser_tell_the_line():
    with pytest.raises(_gin_hooks.GinSyntaxError) as error:
        [*_gin_hooks.statements("a = 1\nb = = 2")]
    assert error.value.args[1] == 2, "SyntaxErrors of gin's parser have no `lineno`"
    with pytest.raises(_gin_hooks.GinSyntaxError) as unknown:
        [*_gin_hooks.statements("a = 1\nb = [@s/missing]")]
    assert unknown.value.args[1:] == (2, "missing"), (
        "`ParserDelegate` no longer lets a SyntaxError through, or `current_token` of "
        "the parser is no token of `tokenize`"
    )


def test_references_tell_what_they_call():
    (call,) = _gin_hooks.references([{"x": value_of("@s/t/hooked()")}])
    words = "`iterate_references` or `ConfigurableReference` changed"
    assert _gin_hooks.called(call, "u") == ("s/t", "hooks.hooked"), words
    assert _gin_hooks.called(value_of("@hooked()"), "u") == ("u", "hooks.hooked"), words
    assert _gin_hooks.called(value_of("@hooked"), "u") is None, words
    assert repr(call) == "@s/t/hooked()", words


def test_macros_and_constants_are_told_apart():
    words = "`gin.macro` or `gin.constant` have other names"
    assert _gin_hooks.macro_name(value_of("%s/speed")) == "s/speed", words
    assert _gin_hooks.macro_name(value_of("@hooked")) is None, words
    for text in ("%gin.REQUIRED", "%REQUIRED"):
        assert _gin_hooks.is_required(value_of(text)), words
        assert _gin_hooks.macro_name(value_of(text)) is None, words


def test_names_are_completed_and_checked():
    binding = _gin_hooks.Binding("s", "hooked", "a", 3)
    words = "`ParsedBindingKey` changed"
    assert _gin_hooks.key(binding) == ("s", "hooks.hooked", "a"), words
    macro = _gin_hooks.Binding("s", "m", "", 3)
    assert _gin_hooks.key(macro) == ("s/m", "gin.macro", "value"), words
    gin.bind_parameter(_gin_hooks.key(macro), 3)
    assert gin.query_parameter("%s/m") == 3, "macros are bound to something else"
    for name in ("b", "c"):
        with pytest.raises(ValueError, match=f"'{name}'"):
            _gin_hooks.key(binding._replace(parameter=name))


def test_what_gin_prints_it_reads():
    words = "`gin.config.parse_value` changed"
    for text in ("[1, (2.5, 'a')]", "{'a': None}", "@s/hooked()", "%m", "b'x'"):
        assert _gin_hooks.is_writable(value_of(text)), words
    for value in (float("inf"), -1j, object()):
        assert not _gin_hooks.is_writable(value), words


def test_names_that_can_be_registered():
    assert _gin_hooks.is_name("a.b") and not _gin_hooks.is_name("a b"), (
        "`config_parser.MODULE_RE` changed"
    )
    assert config_parser.MODULE_RE.match("a")
