"""What `gin_calls` needs of gin; a failure says in words what gin has changed."""

import functools
import re

import cloudpickle
import gin
import pytest
from gin import config_parser

from tfrl.configuring import configs, gin_calls


class Plain:
    def __init__(self, size: int = 1) -> None:
        self.size = size


def plain(size: int = 1, other: object = None) -> tuple:
    return size, other


@gin.configurable("calls_decorated")
def decorated(size: int = 1) -> int:
    return size


@pytest.fixture(autouse=True)
def _forget():
    configs.clear()
    yield
    configs.clear()


def test_what_is_bound():
    wrapped = configs.register({"calls_plain": plain})["calls_plain"]
    assert gin_calls.bound_call(wrapped) == (plain, {})
    configs.parse(
        bindings=["calls_plain.size = 3", "calls_plain.other = @calls_decorated()"]
    )
    assert gin_calls.bound_call(wrapped) == (plain, {"size": 3, "other": 1})
    configs.parse(bindings=["calls_decorated.size = 5"])
    assert gin_calls.bound_call(decorated)[1] == {"size": 5}
    wrapped = configs.register({"calls_class": Plain})["calls_class"]
    configs.parse(bindings=["calls_class.size = 7"])
    assert gin_calls.bound_call(wrapped) == (Plain, {"size": 7})
    for other in (Plain, object, plain, len, 3, [], None, "calls_plain"):
        assert gin_calls.bound_call(other) is None, other


def test_what_is_configured_is_sent_without_gin():
    found = configs.register({"calls_plain": plain, "calls_class": Plain})
    configs.parse(
        bindings=["calls_plain.other = @calls_class()", "calls_class.size = 7"]
    )
    wrapped, made = found["calls_plain"], found["calls_class"]()
    given = [wrapped, functools.partial(wrapped, 5), {"a": (made, len)}]
    sent = cloudpickle.loads(cloudpickle.dumps(gin_calls.without_gin(given)))
    assert sent[0].func is plain and sent[1]()[0] == 5
    assert type(sent[0]()[1]) is Plain and sent[0]()[1].size == 7
    assert type(sent[2]["a"][0]) is Plain and sent[2]["a"][0].size == 7
    assert sent[2]["a"][1] is len


NAMES = {"here:A": "A", "here:f": "f"}


def test_calls_are_written_so_that_gin_reads_them():
    arguments = {
        "number": 3,
        "nothing": None,
        "units": (4, 4),
        "agent": {"=call": "here:A", "rate": 0.1, "inner": {"=name": "here:f"}},
        "kwargs": {"a": 1},
    }
    assert gin_calls.written_call("T", arguments, NAMES) == [
        "T.number = 3",
        "T.nothing = None",
        "T.units = (4, 4)",
        "T.agent = @A()",
        "T.kwargs = {'a': 1}",
        "A.rate = 0.1",
        "A.inner = @f",
    ]


@pytest.mark.parametrize(
    "value",
    [
        {"=call": "elsewhere:A"},
        {"=lost": "a function"},
        float("inf"),
        float("nan"),
        object(),
        [{"=call": "here:A"}],
        {"inner": {"=call": "here:A"}},
    ],
    ids=lambda value: re.sub(" at 0x.*", "", repr(value)),
)
def test_what_gin_has_no_words_for(value):
    assert gin_calls.written_call("T", {"x": value}, NAMES) is None


def test_one_name_has_one_set_of_bindings():
    two = [{"=call": "here:A", "rate": rate} for rate in (0.1, 0.2)]
    assert gin_calls.written_call("T", {"x": two[0], "y": two[1]}, NAMES) is None


@gin.configurable(module="hooks", denylist=["b"])
def hooked(a: int = 1, b: int = 2):
    return a, b


def value_of(text):
    ((_, binding),) = gin_calls.statements(f"hooked.a = {text}")
    return binding.value


def test_the_parser_tells_statements_apart():
    text = "import os\ninclude 'a.gin'\ns/hooked.a = 3\nx/m = 1\nhooked:\n  a = 2\n"
    words = "`config_parser.ConfigParser` or its statements changed"
    found = dict(gin_calls.statements(text))
    assert found[1].format() == "import os" and found[1].module == "os", words
    assert isinstance(found[1], gin_calls.Import), words
    assert isinstance(found[2], gin_calls.Include), words
    assert found[2].filename == "a.gin", words
    bindings = [x for x in found.items() if isinstance(x[1], gin_calls.Binding)]
    assert bindings == [
        (3, gin_calls.Binding("s", "hooked", "a", 3)),
        (4, gin_calls.Binding("x", "m", "", 1)),
        (6, gin_calls.Binding("", "hooked", "a", 2)),
    ], words


def test_errors_of_the_parser_tell_the_line():
    with pytest.raises(gin_calls.GinSyntaxError) as error:
        [*gin_calls.statements("a = 1\nb = = 2")]
    assert error.value.args[1] == 2, "SyntaxErrors of gin's parser have no `lineno`"
    with pytest.raises(gin_calls.GinSyntaxError) as unknown:
        [*gin_calls.statements("a = 1\nb = [@s/missing]")]
    assert unknown.value.args[1:] == (2, "missing"), (
        "`ParserDelegate` no longer lets a SyntaxError through, or `current_token` of "
        "the parser is no token of `tokenize`"
    )


def test_references_tell_what_they_call():
    (call,) = gin_calls.references([{"x": value_of("@s/t/hooked()")}])
    words = "`iterate_references` or `ConfigurableReference` changed"
    assert gin_calls.called(call, "u") == ("s/t", "hooks.hooked"), words
    assert gin_calls.called(value_of("@hooked()"), "u") == ("u", "hooks.hooked"), words
    assert gin_calls.called(value_of("@hooked"), "u") is None, words
    assert repr(call) == "@s/t/hooked()", words


def test_macros_and_constants_are_told_apart():
    words = "`gin.macro` or `gin.constant` have other names"
    assert gin_calls.macro_name(value_of("%s/speed")) == "s/speed", words
    assert gin_calls.macro_name(value_of("@hooked")) is None, words
    for text in ("%gin.REQUIRED", "%REQUIRED"):
        assert gin_calls.is_required(value_of(text)), words
        assert gin_calls.macro_name(value_of(text)) is None, words


def test_names_are_completed_and_checked():
    binding = gin_calls.Binding("s", "hooked", "a", 3)
    words = "`ParsedBindingKey` changed"
    assert gin_calls.key(binding) == ("s", "hooks.hooked", "a"), words
    macro = gin_calls.Binding("s", "m", "", 3)
    assert gin_calls.key(macro) == ("s/m", "gin.macro", "value"), words
    gin.bind_parameter(gin_calls.key(macro), 3)
    assert gin.query_parameter("%s/m") == 3, "macros are bound to something else"
    for name in ("b", "c"):
        with pytest.raises(ValueError, match=f"'{name}'"):
            gin_calls.key(binding._replace(parameter=name))


def test_short_names_are_completed_to_all_that_they_may_mean():
    words = "`_REGISTRY.matching_selectors` changed"
    for module in ("one", "more.of"):
        configs.register({"calls_several": plain}, module=module)
    names = ["more.of.calls_several", "one.calls_several"]
    assert gin_calls.full_names("calls_several") == names, words
    assert gin_calls.full_names("of.calls_several") == names[:1], words


def test_what_gin_prints_it_reads():
    words = "`gin.config.parse_value` changed"
    for text in ("[1, (2.5, 'a')]", "{'a': None}", "@s/hooked()", "%m", "b'x'"):
        assert gin_calls.is_writable(value_of(text)), words
    for value in (float("inf"), -1j, object()):
        assert not gin_calls.is_writable(value), words


def test_names_that_can_be_registered():
    assert gin_calls.is_name("a.b") and not gin_calls.is_name("a b"), (
        "`config_parser.MODULE_RE` changed"
    )
    assert config_parser.MODULE_RE.match("a")
