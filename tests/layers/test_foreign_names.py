"""Tests of `tfrl.layers._foreign_names`: what can be named is found again."""

import json
import math

import foreign_layers
import pytest

from tfrl.layers import _foreign_names

VALUES = {
    "function": foreign_layers.network,
    "class": foreign_layers.Affine,
    "built in": math.sqrt,
    "nest": {"a": (1, 2.5, None), "b": ["x", True, foreign_layers.Mix]},
    "object": foreign_layers.Chain.__init__.__globals__["core"],
}


@pytest.mark.parametrize("kind", VALUES)
def test_names_come_back_from_json(kind):
    data = json.loads(json.dumps(_foreign_names.described("from_jax", VALUES[kind])))
    found = _foreign_names.made("from_jax", data)
    assert found == VALUES[kind] and type(found) is type(VALUES[kind])


@pytest.mark.parametrize("value", [lambda x: x, object(), {1: 2}, foreign_layers.Mix()])
def test_what_has_no_name(value):
    with pytest.raises(ValueError, match="`from_jax`: expected functions, classes and"):
        _foreign_names.described("from_jax", [value])


@pytest.mark.parametrize("name", ["absent_module:f", "math:absent", "no colon", ":"])
def test_what_is_not_there(name):
    with pytest.raises(ValueError, match="`x`: expected what a module that is import"):
        _foreign_names.made("x", {"name": name})


def test_nothing_is_imported_for_a_file():
    with pytest.raises(ValueError, match="got .*antigravity.*; import the module"):
        _foreign_names.made("x", {"name": "antigravity:fly"})


@pytest.mark.parametrize("data", [{"linen": {"name": "math:sqrt"}, "fields": {}}, {}])
def test_what_is_no_module_of_flax(data):
    with pytest.raises(ValueError, match="`x`: expected what a module that is import"):
        _foreign_names.made("x", data)
