"""Tests of `tfrl.layers.jax_modules` where JAX is missing or modules are none."""

import sys
import types

import pytest

from tfrl.layers import jax_modules

PAIR = types.SimpleNamespace(init=lambda rng: rng, apply=lambda params, rng: params)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (jax_modules.from_jax, (lambda inputs: inputs, lambda params, x: x)),
        (jax_modules.from_flax, (PAIR,)),
        (jax_modules.from_nnx, (PAIR,)),
        (jax_modules.from_haiku, (PAIR,)),
    ],
    ids=["jax", "flax", "nnx", "haiku"],
)
def test_without_jax(monkeypatch, make, arguments):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match="expected the library jax; found none; run"):
        make(*arguments)


@pytest.mark.parametrize("make", [jax_modules.from_flax, jax_modules.from_haiku])
@pytest.mark.parametrize(
    "pair", [3, type(PAIR), lambda x: x], ids=["number", "class", "function"]
)
def test_no_pair(make, pair):
    with pytest.raises(TypeError, match="expected an object with `init` and `apply`"):
        make(pair)
