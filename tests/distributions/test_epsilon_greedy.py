"""Tests of `tfrl.distributions.epsilon_greedy`; of its masks also beside the heads."""

import gymnasium as gym
import numpy as np
import pytest

from tfrl.distributions import epsilon_greedy, heads_of_spaces
from tfrl.host import heads

S = gym.spaces


@pytest.mark.parametrize("with_mask", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("epsilon", [0.3, np.array([0.0, 0.3, 1.0], "f")], ids=str)
def test_epsilon_greedy_by_hand(epsilon, with_mask):
    values = np.array([[1.0, 5.0, 5.0, 2.0], [-3.0, -1, -2, -4], [0, 0, 0, 0]])
    mask = np.array([[1, 0, 0, 1], [1, 0, 1, 1], [0, 0, 1, 0]], bool) | (not with_mask)
    best = np.array([3, 2, 2]) if with_mask else np.array([1, 1, 0])
    shares = np.broadcast_to(np.asarray(epsilon)[..., None], (3, 1))
    expected = shares * mask / mask.sum(-1, keepdims=True)
    expected = expected + (1 - shares) * np.eye(4)[best]
    given = mask if with_mask else None
    for function in (epsilon_greedy.epsilon_greedy_logits, heads.epsilon_greedy_logits):
        for dtype in ("float32", "float64"):
            logits = function(values.astype(dtype), epsilon, given)
            assert logits.dtype == dtype
            np.testing.assert_allclose(np.exp(logits), expected, rtol=1e-5, atol=1e-7)
            assert np.all(np.isneginf(logits) == (expected == 0))
    head = heads_of_spaces.action_head(S.Discrete(4))
    assert np.isfinite(head.log_prob(logits, best)[:1]).all()


def test_epsilon_greedy_refuses_what_does_not_fit():
    values = np.zeros([2, 3], np.float32)
    for function in (epsilon_greedy.epsilon_greedy_logits, heads.epsilon_greedy_logits):
        with pytest.raises(TypeError, match="`mask` expected bool or integers"):
            function(values, 0.1, np.ones([2, 3], np.float32))
        with pytest.raises(ValueError, match="`mask`"):
            function(values, 0.1, np.ones([2, 4], bool))
        with pytest.raises(ValueError, match="`mask`"):
            function(values, 0.1, np.zeros([2, 3], bool))
    with pytest.raises(TypeError, match="`epsilon_greedy_logits`: `values` expected a"):
        epsilon_greedy.epsilon_greedy_logits([1, 2], 0.1)


@pytest.mark.parametrize("function", [epsilon_greedy.epsilon_greedy_logits, None])
@pytest.mark.parametrize("epsilon", [-0.1, 1.5, np.nan, np.array([0.5, 2.0], "f")])
def test_shares_of_random_actions_are_shares(function, epsilon):
    function = function or heads.epsilon_greedy_logits
    with pytest.raises(ValueError, match="`epsilon_greedy_logits`: `epsilon` expected"):
        function(np.zeros([2, 3], np.float32), epsilon)
