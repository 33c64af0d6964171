"""Tests of masks and temperatures of action heads."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.distributions import epsilon_greedy, heads_of_spaces
from tfrl.host import heads

S = gym.spaces


def test_masks_by_hand():
    head = heads_of_spaces.action_head(S.MultiDiscrete([2, 3]))
    logits = np.log(np.array([[1.0, 3.0, 1.0, 2.0, 5.0]], np.float32))
    mask = np.array([[True, False, True, True, False]])
    host = head.host_masked(logits, mask)
    expected = [[0.0, -np.inf, 0.0, np.log(2.0), -np.inf]]

    @tf.function
    def everything(logits, mask):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            out = head.masked(logits, mask)
            log_prob = head.log_prob(out, [[0, 1]])
            entropy = head.entropy(out)
            result = log_prob + entropy
        return out, log_prob, entropy, head.mode(out), tape.gradient(result, logits)

    for given in (mask, mask.astype(np.int8)):
        out, log_prob, entropy, mode, slope = everything(tf.constant(logits), given)
        for found in (out, host):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        np.testing.assert_allclose(log_prob, [np.log(2 / 3)], rtol=1e-5)
        chances = np.array([1 / 3, 2 / 3])
        np.testing.assert_allclose(entropy, [-chances @ np.log(chances)], rtol=1e-5)
        np.testing.assert_array_equal(mode, [[0, 1]])
        slope = slope.numpy()
        assert np.isfinite(slope).all()
        np.testing.assert_array_equal(slope[0, [1, 4]], [0.0, 0.0])
    np.testing.assert_array_equal(head.host_mode(host), [[0, 1]])


def test_temperature_by_hand():
    head = heads_of_spaces.action_head(S.Discrete(2))
    for tempered in (head.tempered, head.host_tempered):
        out = tempered(np.array([[1.0, -np.inf]], np.float32), 0.5)
        np.testing.assert_array_equal(out, [[2.0, -np.inf]])
    head = heads_of_spaces.action_head(S.Box(-1.0, 1.0, (1,)))
    for tempered in (head.tempered, head.host_tempered):
        out = np.asarray(tempered(np.array([[3.0, np.log(0.2)]], np.float32), 4.0))
        np.testing.assert_allclose(out, [[3.0, np.log(0.8)]], rtol=1e-5)
    traced = tf.function(head.tempered)(tf.constant([[3.0, 0.0]]), tf.constant(2.0))
    np.testing.assert_allclose(traced, [[3.0, np.log(2.0)]], rtol=1e-6)


@pytest.mark.parametrize("space", [S.Discrete(3), S.MultiDiscrete([1, 2])], ids=str)
def test_masks_that_do_not_fit(space):
    head = heads_of_spaces.action_head(space)
    parameters = np.zeros([2, 3], np.float32)
    for masked in (head.masked, head.host_masked):
        with pytest.raises(TypeError, match="CategoricalHead`: `mask` expected bool"):
            masked(parameters, np.ones([2, 3], np.float32))
        with pytest.raises(ValueError, match=r"`mask` must have shape \[..., 3\]"):
            masked(parameters, np.ones([2, 4], bool))
        with pytest.raises(ValueError, match="`mask`.* option"):
            masked(parameters, np.array([[True] * 3, [False] * 3]))


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan])
def test_temperatures_are_positive(temperature):
    for space in (S.Discrete(3), S.Box(-1.0, 1.0, (1,)), S.Tuple([S.Discrete(2)])):
        head = heads_of_spaces.action_head(space)
        parameters = np.zeros([1, head.n_outputs], np.float32)
        for tempered in (head.tempered, head.host_tempered):
            with pytest.raises(ValueError, match="`temperature` expected a number > 0"):
                tempered(parameters, temperature)


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (5, 3), (4, 1, 3), ()], ids=str)
def test_masks_are_one_for_all_rows_or_one_for_each(shape):
    mask, values = np.ones(shape, bool), np.zeros([4, 3], np.float32)
    press = heads_of_spaces.action_head(S.Discrete(3))
    nested = heads_of_spaces.action_head(S.Tuple([S.Discrete(3)]))
    for call in (
        *(press.masked, press.host_masked, nested.masked, nested.host_masked),
        lambda values, mask: epsilon_greedy.epsilon_greedy_logits(values, 0.1, mask),
        lambda values, mask: heads.epsilon_greedy_logits(values, 0.1, mask),
    ):
        with pytest.raises(ValueError, match=r"`mask` must have shape \[..., 3\]"):
            call(values, mask)
        for fitting in (np.array([True, False, True]), np.ones([4, 3], np.int8)):
            assert np.shape(call(values, fitting)) == (4, 3)


def test_masked_options_are_never_drawn():
    head = heads_of_spaces.action_head(S.Discrete(3))
    parameters = np.tile(np.array([0.0, -np.inf, 1.0], np.float32), (2000, 1))
    assert 1 not in head.sample(parameters, seed=[3, 7]).numpy()
    assert 1 not in head.host_sample(parameters, np.random.default_rng(0))
