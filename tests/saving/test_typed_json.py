"""Tests of `tfrl.saving.typed_json`."""

import enum
import struct
from collections import OrderedDict, namedtuple

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from saving.nests import plain_arrays, same

from tfrl.saving import typed_json

keys = st.one_of(st.text(max_size=4), st.integers(), st.booleans(), st.tuples())
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**200), max_value=2**200),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    plain_arrays,
    plain_arrays.filter(lambda a: a.size and a.dtype.kind != "S").map(
        lambda a: a.reshape(-1)[0]
    ),
)
nests = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=8,
)


@hypothesis.given(nests)
@hypothesis.settings(max_examples=100)
def test_every_nest_comes_back(nest):
    text = typed_json.to_json(nest)
    assert "\n" not in text and text.isascii()
    assert same(typed_json.from_json(text), nest)


@pytest.mark.parametrize(
    "value",
    [
        {"~tuple": [1]},
        {"~": 1, "a": 2},
        {1: "int", "1": "str", (1, "a"): "tuple", None: "none"},
        {"z": 1, "a": 2},
        10**5000,
        -0.0,
        "\ud800 lone surrogate",
        "\ud83d\ude00",
        {"\ud83d\ude00": 1},
        struct.unpack(">d", bytes.fromhex("fff8000000001234"))[0],
        np.array(3.5),
        np.zeros((0, 3), np.int8),
        tf.constant([1.5, -2.0], tf.bfloat16).numpy(),
        tf.constant(1.5, tf.bfloat16).numpy(),
        np.arange(6.0).reshape(2, 3).T,
        np.zeros(1, [("x", "f4")]),
        np.zeros(3, [("a", "S0"), ("b", "i4")])["a"],
        np.random.default_rng(3).bit_generator.state,
        np.random.Generator(np.random.MT19937(3)).bit_generator.state,
    ],
    ids=lambda value: type(value).__name__,
)
def test_awkward_values_come_back(value):
    assert same(typed_json.from_json(typed_json.to_json(value)), value)


def test_text_in_parts_of_earlier_versions_comes_back():
    text = typed_json.from_json('{"~text": ["\\ud83d", "\\ude00"]}')
    assert [*map(ord, text)] == [0xD83D, 0xDE00]
    minus_nan = typed_json.from_json('{"~float": "bits:fff8000000000000"}')
    assert np.signbit(minus_nan) and np.isnan(minus_nan)
    assert np.isnan(typed_json.from_json('{"~float": "nan"}'))


def test_arrays_are_new_and_writable():
    array = np.arange(3)
    copy = typed_json.from_json(typed_json.to_json([array]))[0]
    copy[0] = 9
    assert array[0] == 0


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {2}]}, r"`value\['a'\]\[1\]` expected .*; got set"),
        (Colour.RED, "got Colour"),
        (OrderedDict(a=1), "got OrderedDict"),
        (namedtuple("Pair", "x y")(1, 2), "got Pair"),
        ([np.array([None])], r"`value\[0\]`: dtype object is none of numbers"),
        (np.bytes_(b"a\0"), "got bytes_"),
        ({frozenset(): 1}, "key frozenset.* got frozenset"),
        (1j, "got complex"),
    ],
)
def test_other_types_are_refused_by_place(value, message):
    with pytest.raises(TypeError, match=message):
        typed_json.to_json(value)


def test_a_nest_that_contains_itself_is_refused():
    nest = []
    nest.append(nest)
    with pytest.raises(ValueError, match="contains itself"):
        typed_json.to_json(nest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        '{"~eval": "1"}',
        '{"~tuple": [1], "b": 2}',
        '{"~array": ["<f4", [2], "AAAA"]}',
        '{"~array": ["<f4", [1], "AAAAAAAAAAA="]}',
        '{"~array": ["O", [1], "AAAAAAAAAAA="]}',
        '{"~array": ["<f4", [-1, -1], "AAAAAA=="]}',
        '{"~array": ["V0", [1152921504606846976], ""]}',
        '{"~array": ["f4,(", [0], ""]}',
        '{"~array": [{"names": ["a"], "formats": ["f4"], "offsets": [1e30]}, [0], ""]}',
        f'{{"~array": [{{"names":["a"],"formats":["f4"],"itemsize":{2**70}}},[0],""]}}',
        '{"~text": 5}',
        '{"~float": "bits:x"}',
        '{"~bytes": "*"}',
        '{"~dict": [[[1], 2]]}',
        "[" * 100000,
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="`from_json`: `text` expected the output"):
        typed_json.from_json(text)
