"""Tests of `tfrl.policies.critics`."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import train_state
from tfrl.distributions import heads_of_spaces
from tfrl.policies import critics

S = gym.spaces
BOX = S.Box(-1.0, 1.0, (3,))
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
A = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)


def made(**settings):
    given = {"hidden_units": (8, 6), "n_critics": 3, **settings}
    return train_state.TrainState.create(critics.Critics.for_space(BOX, 2, **given))


def layer(params, name, i, x):
    kernel, bias = (params[f"critics/{name}/{x}"][i] for x in ("kernel", "bias"))
    return x @ kernel + bias


def test_each_critic_is_a_network_of_its_own():
    state = made()
    values = state((X, A))
    assert values.shape == (3, 4)
    for i in range(3):
        outputs = np.concatenate([X, A], axis=-1)
        for name in ("hidden_0", "hidden_1"):
            outputs = np.maximum(layer(state.params, name, i, outputs), 0.0)
        expected = layer(state.params, "output", i, outputs)[:, 0]
        np.testing.assert_allclose(values[i], expected, rtol=1e-4, atol=1e-6)
    assert not np.allclose(values[0], values[1])
    assert made(n_outputs=5)((X, A)).shape == (3, 4, 5)
    of_states = critics.Critics.for_space(BOX, 0, hidden_units=(8,), n_critics=1)
    assert of_states(X).shape == (1, 4)


def test_hidden_layers_are_dropped_and_normalized():
    state = made(layer_norm=True, dropout_rate=0.25, hidden_units=(400,))
    network = state.model_def
    (mask,) = network.dropout_masks(4, tf.constant([1, 2]))
    assert mask.shape == (4, 3, 400)
    np.testing.assert_allclose(np.unique(mask), [0.0, 4 / 3], rtol=1e-6)
    assert np.mean(mask == 0.0) == pytest.approx(0.25, abs=0.03)
    values = state((X, A), masks=[mask])
    for i in range(3):
        x = layer(state.params, "hidden_0", i, np.concatenate([X, A], axis=-1))
        x = x * mask[:, i]
        x = x - np.mean(x, axis=-1, keepdims=True)
        x = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5)
        expected = layer(state.params, "output", i, np.maximum(x, 0.0))[:, 0]
        np.testing.assert_allclose(values[i], expected, rtol=1e-3, atol=1e-5)
    assert made().model_def.dropout_masks(4, tf.constant([1, 2])) == []


@pytest.mark.parametrize(
    ("space", "squash", "raw", "expected"),
    [
        (S.Box(-2.0, 2.0, (1,)), True, [[0.5]], [[np.tanh(0.5)]]),
        (S.Box(-2.0, 6.0, (1,)), False, [[4.0]], [[0.5]]),
        (S.Box(-2.0, 6.0, (1,)), False, [[90.0]], [[1.0]]),
        (S.Box(-np.inf, np.inf, (1,)), False, [[9.0]], [[9.0]]),
        (S.Discrete(3, start=5), False, [1], [[0.0, 1.0, 0.0]]),
        (S.MultiDiscrete([2, 3]), False, [[1, 2]], [[0.0, 1.0, 0.0, 0.0, 1.0]]),
    ],
    ids=["squashed", "clipped", "beyond", "free", "choice", "choices"],
)
def test_features_of_actions(space, squash, raw, expected):
    head = heads_of_spaces.action_head(space, squash=squash)
    features = critics.action_features(head, tf.constant(raw))
    np.testing.assert_allclose(features, expected, rtol=1e-6)
    assert features.shape[-1] == critics.n_action_features(head)
    pair = heads_of_spaces.action_head(S.Dict(b=space, a=S.Discrete(2)), squash=None)
    if squash or not pair.has_log_std:
        both = {"a": tf.constant([0]), "b": tf.constant(raw)}
        found = critics.action_features(pair, both)
        np.testing.assert_allclose(found, [[1.0, 0.0, *expected[0]]], rtol=1e-6)


def test_a_critic_that_does_not_fit_is_refused():
    seen = keras.Input((3,)), keras.Input((2,))
    joined = keras.layers.Concatenate()(seen)
    wide = keras.Model(seen, keras.layers.Dense(2)(joined))
    with pytest.raises(
        ValueError, match=r"maps .* to values \[B\].*got shape \[2, 2\]"
    ):
        critics.given_critics([wide], BOX, 2)
    assert critics.given_critics([wide], BOX, 2, n_outputs=2)((X, A)).shape == (1, 4, 2)
    for name, value in (("n_critics", 0), ("dropout_rate", 1.0), ("n_outputs", 0)):
        with pytest.raises(ValueError, match=f"`Critics`: `{name}`"):
            made(**{name: value})
