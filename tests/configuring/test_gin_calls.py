import re

import gin
import pytest

from tfrl.configuring import configs, gin_calls


def plain(size: int = 1, other: object = None) -> tuple:
    return size, other


@gin.configurable("calls_decorated")
def decorated(size: int = 1) -> int:
    return size


@pytest.fixture
def wrapped():
    yield configs.register({"calls_plain": plain})["calls_plain"]
    configs.clear()


def test_what_is_bound(wrapped):
    assert gin_calls.bound_call(wrapped) == (plain, {})
    configs.parse(
        bindings=["calls_plain.size = 3", "calls_plain.other = @calls_decorated()"]
    )
    assert gin_calls.bound_call(wrapped) == (plain, {"size": 3, "other": 1})
    configs.parse(bindings=["calls_decorated.size = 5"])
    assert gin_calls.bound_call(decorated)[1] == {"size": 5}
    for other in (plain, len, 3, [], None, "calls_plain"):
        assert gin_calls.bound_call(other) is None, other


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
