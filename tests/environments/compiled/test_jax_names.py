"""Environments of libraries of JAX, by name."""

import functools
import sys

import numpy as np
import pytest

from tfrl.environments import compiled


@pytest.mark.parametrize(
    ("library", "module"),
    [("gymnax", "gymnax"), ("brax", "brax"), ("playground", "mujoco_playground")],
)
def test_a_library_of_jax_that_is_missing_is_named(monkeypatch, library, module):
    monkeypatch.setitem(sys.modules, module, None)
    asked = rf"`make_compiled`: .*pip install {library} .*`tfrl\[{library}\]`"
    with pytest.raises(ImportError, match=asked):
        compiled.make_compiled(f"{library}/ant", 2)


@pytest.mark.slow
def test_make_compiled_takes_names_of_gymnax():
    pytest.importorskip("gymnax")
    envs = compiled.make_compiled("gymnax/Breakout-MinAtar", 2)
    assert envs.reset(seed=0)[0].shape == (2, 10, 10, 4)
    assert envs.step(np.array([0, 2]))[0].shape == (2, 10, 10, 4)
    with pytest.raises(ValueError, match="`env_id` expected one of .*Asterix-MinAtar"):
        compiled.make_compiled("gymnax/Breakout")


@pytest.mark.slow
def test_make_compiled_takes_names_of_brax():
    pytest.importorskip("brax.envs")
    asked = {"backend": "spring"}
    envs = compiled.make_compiled("brax/inverted_pendulum", 2, env_kwargs=asked)
    assert envs.compiled.env.n_steps == 1000
    assert envs.reset(seed=0)[0].shape == (2, 4)


@pytest.mark.slow
def test_make_compiled_takes_names_of_mujoco_playground():
    pytest.importorskip("mujoco_playground")
    make = functools.partial(compiled.make_compiled, "playground/CartpoleBalance", 2)
    envs = make(env_kwargs={"episode_length": 7})
    assert envs.compiled.env.n_steps == 7
    assert envs.reset(seed=0)[0].shape == (2, 5)
    for wrong in ({"episodes": 7}, {"episode_length": "long"}):
        with pytest.raises(ValueError, match="`env_kwargs` expected settings of 'Cart"):
            make(env_kwargs=wrong)
