"""Steps of a policy as rows that offline learners read."""

from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from tfrl._internal import allowed_actions, checks, gym_checks
from tfrl.policies import policy as policies
from tfrl.training.collecting import _played_actions, collection

_WHERE = "record_transitions"
_COLUMNS = (
    *("observations", "actions", "rewards"),
    *("terminated", "truncated", "next_observations"),
)


def record_transitions(
    policy: Any,
    envs: VectorEnv,
    n_steps: int,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    epsilon: float = 0.0,
    tell_cut: bool = False,
) -> Any:
    """Plays steps and returns them as transitions, episode after episode.

    Args:
        policy: a `tfrl.policies.Policy`, a function from observations `[N, *shape]` to
            actions (arrays or lists), or None for actions uniform in their space, or
            among those that an `"action_mask"` in the observations allows.
        envs: vector environment of N; it is reset. Each plays a share of the steps, so
            with few steps and long episodes, many environments show only the beginning.
        n_steps: number of transitions. Environments play until there are that many;
            steps in which one only resets do not count.
        seed: of environments and draws.
        temperature: as in `Policy.act`: 1 acts as the policy learned, 0 greedily.
        epsilon: share of steps with a uniform action instead.
        tell_cut: whether to return as well, `[n_steps]` bool, where an episode was cut
            off while it was still running.

    Returns:
        Nests of arrays `[n_steps, ...]`: `observations`, `actions` as environments take
        them, `rewards`, `terminated`, `truncated` and `next_observations`, at an
        episode's end its last observation. Episodes still running at the end count as
        truncated. Actions of a function stay as they were played, also beyond bounds to
        which an environment clips them; learners take them once you have clipped them.

    Raises:
        TypeError: if an argument is of another type.
        ValueError: if `epsilon` or `n_steps` is out of range, or an environment or a
            function returns what it should not.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2)
        >>> rows = record_transitions(None, envs, n_steps=9)
        >>> rows["observations"].shape, bool(rows["truncated"][-1])
        ((9, 4), True)
    """
    checks.check_whole_number(_WHERE, "n_steps", n_steps, low=1)
    seed = checks.check_whole_number(_WHERE, "seed", seed, low=0)
    checks.check_within(_WHERE, "epsilon", epsilon, 0.0, 1.0)
    if policy is not None:
        policy = policies.as_policy(_WHERE, "policy", policy)
    acting = _Explored(policy, envs, epsilon if policy is not None else 1.0, seed)
    collector = collection.Collector(envs, n_steps, seed)
    chance, parts = np.random.default_rng([seed, 1]), []
    while collector.env_steps < n_steps:
        collector.n_steps = -(-(n_steps - collector.env_steps) // envs.num_envs)
        parts.append(collector.collect(acting, chance, temperature))
    # The first ones in time; what each environment did follows itself.
    valid = np.concatenate([part.valid for part in parts]).swapaxes(0, 1)
    number = valid.T.cumsum().reshape(valid.T.shape).T
    kept = valid & (number <= n_steps)
    rows: dict[str, Any] = {
        name: tf.nest.map_structure(
            lambda *x: np.concatenate(x).swapaxes(0, 1)[kept],
            *(getattr(part, name) for part in parts),
        )
        for name in _COLUMNS
    }
    last = kept.sum(1).cumsum()[kept.any(1)] - 1
    cut = np.zeros(n_steps, bool)
    cut[last] = ~(rows["terminated"] | rows["truncated"])[last]
    rows["truncated"] |= cut
    return (rows, cut) if tell_cut else rows


class _Explored:
    """A policy that now and then acts at random, and tells what environments take.

    Args:
        policy: or None.
        envs: whose actions are drawn.
        epsilon: how often.
        seed: of these draws.
    """

    def __init__(self, policy: Any, envs: VectorEnv, epsilon: float, seed: int) -> None:
        self._policy, self._epsilon, self._n_steps = policy, epsilon, 0
        self._envs = envs
        self._single, seen = envs.single_action_space, envs.single_observation_space
        self._is_masked = bool(gym_checks.masked_choices(seen, self._single))
        self._space = batch_space(self._single, envs.num_envs)
        self._space.seed(seed)
        self._chance = np.random.default_rng([seed, 2])
        self._redraws = np.random.default_rng([seed, 3])

    def initial_state(self, batch_size: int) -> Any:
        return () if self._policy is None else self._policy.initial_state(batch_size)

    def act(self, observations: Any, state: Any = (), **options: Any) -> policies.Acted:
        if self._policy is None:
            drawn = self._drawn(observations)
            return policies.Acted(drawn, drawn, None, state)
        acted = self._policy.act(observations, state, **options)
        actions = acted.actions
        if isinstance(self._policy, policies.FunctionPolicy):
            seen = _played_actions.Seen(observations, self._n_steps)
            actions = _played_actions.checked(_WHERE, actions, self._envs, seen)
        actions = tf.nest.map_structure(np.asarray, actions)
        self._n_steps += 1
        if self._epsilon:
            drawn = self._drawn(observations)
            n_envs = len(tf.nest.flatten(actions)[0])
            explored = self._chance.random(n_envs) < self._epsilon

            def mixed(own: np.ndarray, other: np.ndarray) -> np.ndarray:
                rows = explored.reshape(-1, *[1] * (own.ndim - 1))
                return np.where(rows, other, own)

            actions = tf.nest.map_structure(mixed, actions, drawn)
        return policies.Acted(actions, actions, None, acted.state)

    def _drawn(self, observations: Any) -> Any:
        drawn = self._space.sample()
        if not self._is_masked:
            return drawn
        masks = observations[gym_checks.MASK]
        return allowed_actions.redrawn(self._single, drawn, masks, self._redraws)
