"""What on-policy agents learn from: advantages of the steps of a trajectory."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfrl.core import records
from tfrl.ops import value
from tfrl.policies import actor_critic


class Experience(NamedTuple):
    """Rows of experience with what they say about the policy that made them.

    Attributes:
        observations: nest of `[R, *shape]`, normalized.
        actions: nest of `[R, ...]`, raw.
        weights: `[R]`, 1 for experience and 0 for rows that carry none.
        log_probs: `[R]`, of the actions taken.
        values: `[R]`.
        returns: `[R]`, targets of the values.
        advantages: `[R]`, returns - values.

    Example:
        >>> zero, one = tf.constant([0.0, 0.0]), tf.constant([1.0, 3.0])
        >>> rows = Experience(zero, zero, tf.constant([1.0, 0.0]), zero, zero, one, one)
        >>> float(rows.mean(rows.returns))
        1.0
    """

    observations: Any
    actions: Any
    weights: tf.Tensor
    log_probs: tf.Tensor
    values: tf.Tensor
    returns: tf.Tensor
    advantages: tf.Tensor

    def total(self) -> tf.Tensor:
        """Returns the sum of the weights, 1 at least: what `mean` divides by."""
        return tf.maximum(tf.reduce_sum(self.weights), 1.0)

    def mean(self, values: tf.Tensor, total: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the weighted mean of `[R]`; 0 where all weights are 0.

        Args:
            values: `[R]`.
            total: what to divide by instead, as of a batch of which the rows are a
                part.
        """
        total = self.total() if total is None else total
        return tf.reduce_sum(values * self.weights) / total

    def variance(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the weighted variance of `[R]`."""
        return self.mean((values - self.mean(values)) ** 2)

    def explained_variance(self) -> tf.Tensor:
        """Returns `1 - Var[returns - values] / Var[returns]`; 0 for equal returns."""
        spread = self.variance(self.returns)
        unexplained = self.variance(self.returns - self.values)
        ratio = unexplained / tf.where(spread > 0, spread, tf.ones_like(spread))
        return tf.where(spread > 0, 1.0 - ratio, tf.zeros_like(ratio))


class Outputs(NamedTuple):
    """What an actor and critic says to the `R = T * N` rows of a trajectory.

    Attributes:
        parameters: `[R, n]`, of the head.
        values: `[R]`.
        next_values: `[R]`, values of the successors.
    """

    parameters: tf.Tensor
    values: tf.Tensor
    next_values: tf.Tensor


def estimate_advantages(
    policy: actor_critic.ActorCriticPolicy,
    trajectory: records.Trajectory,
    rewards: tf.Tensor,
    *,
    gamma: float,
    lambda_: float,
    outputs: Outputs | None = None,
) -> Experience:
    """Computes values, log-probabilities and generalized advantages of a trajectory.

        discounts[t] = gamma * (1 - terminated[t])
        G[t] = rewards[t] + discounts[t] * ((1 - l[t]) * V(next[t]) + l[t] * G[t + 1])
        l[t] = lambda_ * (1 - truncated[t])
        advantages = G - V(observations)

    Truncated episodes bootstrap from the value of their last observation.

    Args:
        policy: the one that acted.
        trajectory: what it met, `[T, N]`.
        rewards: `[T, N]`, those of the trajectory or scaled ones.
        gamma: discount factor.
        lambda_: 0 trusts the values, 1 the rewards.
        outputs: what the network says to the observations, where that is known; then
            `next_observations` are not looked at.

    Returns:
        `Experience` of `R = T * N` rows, time outermost.

    Raises:
        ValueError: if the shapes do not fit each other.

    Example:
        >>> policy = tfrl.agents.PPO().create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0).policy
        >>> flags = tf.constant([[False]])
        >>> trajectory = tfrl.core.Trajectory(
        ...     tf.zeros([1, 1, 1]), tf.constant([[0]]), tf.ones([1, 1]), ~flags, flags,
        ...     tf.zeros([1, 1, 1]), ~flags)
        >>> rows = estimate_advantages(
        ...     policy, trajectory, trajectory.rewards, gamma=0.9, lambda_=0.95)
        >>> rows.returns.numpy().tolist()
        [1.0]

    References:
        Schulman et al., 2016, High-Dimensional Continuous Control Using Generalized
        Advantage Estimation, eq. 16.
    """
    outer = trajectory.rewards.shape

    def fold(leaf: tf.Tensor) -> tf.Tensor:
        return tf.reshape(leaf, [-1, *leaf.shape[2:]])

    trajectory = tf.nest.map_structure(tf.convert_to_tensor, trajectory)
    observations = tf.nest.map_structure(
        fold, policy.normalize(trajectory.observations)
    )
    if outputs is None:
        successors = tf.nest.map_structure(
            fold, policy.normalize(trajectory.next_observations)
        )
        next_values = policy.state(successors, method="critic")
        parameters, values = policy.state(observations)
    else:
        parameters, values, next_values = outputs
    actions = tf.nest.map_structure(fold, trajectory.actions)
    dtype = values.dtype
    returns = value.td_lambda_return(
        tf.cast(rewards, dtype),
        gamma * (1 - tf.cast(trajectory.terminated, dtype)),
        tf.reshape(next_values, outer),
        lambda_ * (1 - tf.cast(trajectory.truncated, dtype)),
    )
    return Experience(
        observations=observations,
        actions=actions,
        weights=tf.cast(fold(trajectory.valid), dtype),
        log_probs=policy.head.log_prob(parameters, actions),
        values=values,
        returns=fold(returns),
        advantages=fold(returns) - values,
    )
