"""What on-policy agents learn from: advantages of the steps of a trajectory."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfrl.core import records
from tfrl.ops import value
from tfrl.policies import recurrent


class Experience(NamedTuple):
    """Rows of experience with what they say about the policy that made them.

    `R` is the number of rows. For a policy with a memory it is two axes, `[N, T]`:
    whole sequences, one for each environment.

    Attributes:
        observations: nest of `[R, *shape]`, normalized.
        actions: nest of `[R, ...]`, raw.
        weights: `[R]`, 1 for experience and 0 for rows without any.
        log_probs: `[R]`, of the actions taken.
        values: `[R]`.
        returns: `[R]`, targets of the values.
        advantages: `[R]`, of the actions taken.
        states: nest of `[N, ...]`, what was remembered before the first steps; `()` for
            a policy without memory.
        begins: `[N, T]` bool, where an episode begins and nothing is remembered;
            likewise.

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
    states: Any = ()
    begins: Any = ()

    def total(self) -> tf.Tensor:
        """Returns the sum of the weights, 1 at least: what `mean` divides by."""
        return tf.maximum(tf.reduce_sum(self.weights), 1.0)

    def mean(self, values: tf.Tensor, total: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the weighted mean of `[R]`; 0 where all weights are 0.

        Args:
            values: `[R]`.
            total: what to divide by instead, such as that of a batch of which the rows
                are a part.
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
    """Outputs of an actor and critic for the `R = T * N` rows of a trajectory.

    Attributes:
        parameters: `[R, n]`, of the head.
        values: `[R]`.
        next_values: `[R]`, values of the successors.
    """

    parameters: tf.Tensor
    values: tf.Tensor
    next_values: tf.Tensor


def outputs_of(policy: Any, trajectory: records.Trajectory) -> Outputs:
    """Returns the outputs of a policy for a trajectory.

    With a memory, they are computed one step after the other, from what was remembered
    before the first. The successor of each step, even the last observation of an
    episode, is valued with the memory after that step.

    Args:
        policy: an actor and critic.
        trajectory: `[T, N]`.

    Example:
        >>> policy = tfrl.agents.PPO().create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0).policy
        >>> flags = tf.constant([[False]])
        >>> outputs_of(policy, tfrl.core.Trajectory(
        ...     tf.zeros([1, 1, 1]), tf.constant([[0]]), tf.ones([1, 1]), ~flags, flags,
        ...     tf.zeros([1, 1, 1]), ~flags)).parameters.shape
        TensorShape([1, 2])
    """
    observations = policy.normalize(trajectory.observations)
    successors = _mapped(_folded, policy.normalize(trajectory.next_observations))
    if not has_memory(policy):
        parameters, values = policy.state(_mapped(_folded, observations))
        return Outputs(parameters, values, policy.state(successors, method="critic"))
    given = _mapped(_swapped, observations), *_memory(trajectory)
    said = policy.state(given, method="sequences")
    parameters, values, memories = (_folded(_swapped(x)) for x in said)
    return Outputs(parameters, values, policy.state((successors, memories))[1])


def has_memory(policy: Any) -> bool:
    """Whether a policy's outputs for a step depend on those before.

    Args:
        policy: one of `tfrl.policies`.

    Example:
        >>> has_memory(None)
        False
    """
    return isinstance(policy, recurrent.RecurrentPolicy)


def estimate_advantages(
    policy: Any,
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
        trajectory: what it experienced, `[T, N]`.
        rewards: `[T, N]`, those of the trajectory or scaled ones.
        gamma: discount factor.
        lambda_: 0 trusts the values, 1 the rewards.
        outputs: the network's outputs for the observations, where known; then
            `next_observations` are ignored.

    Returns:
        `Experience` of `R = T * N` rows, time outermost; for a policy with a memory, N
        sequences of T steps.

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
    trajectory = _mapped(tf.convert_to_tensor, trajectory)
    outputs = outputs_of(policy, trajectory) if outputs is None else outputs
    dtype = outputs.values.dtype
    returns = value.td_lambda_return(
        tf.cast(rewards, dtype),
        gamma * (1 - tf.cast(trajectory.terminated, dtype)),
        tf.reshape(outputs.next_values, trajectory.rewards.shape),
        lambda_ * (1 - tf.cast(trajectory.truncated, dtype)),
    )
    targets = _folded(returns)
    return _experience(policy, trajectory, outputs, targets, targets - outputs.values)


def estimate_corrected_advantages(
    policy: Any,
    trajectory: records.Trajectory,
    rewards: tf.Tensor,
    *,
    gamma: float,
    lambda_: float,
    clip_rho: float = 1.0,
    clip_pg_rho: float = 1.0,
    outputs: Outputs | None = None,
) -> Experience:
    """Computes values and advantages of a policy from what an older one experienced.

        rhos[t] = policy(actions[t]) / exp(log_probs[t])
        returns, advantages = vtrace(values, rewards, rhos, ...)

    Args:
        policy: the one that learns.
        trajectory: what another experienced, `[T, N]`, with the `log_probs` of its
            actions.
        rewards: `[T, N]`, those of the trajectory or scaled ones.
        gamma: discount factor.
        lambda_: as in `tfrl.ops.vtrace`; the trace is cut where an episode is.
        clip_rho: largest ratio that weighs a temporal difference.
        clip_pg_rho: largest ratio that weighs an advantage.
        outputs: as in `estimate_advantages`.

    Returns:
        `Experience`, as in `estimate_advantages`; the advantages are already weighted.

    Raises:
        ValueError: if the shapes do not fit each other.

    Example:
        >>> policy = tfrl.agents.PPO().create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0).policy
        >>> flags = tf.constant([[False]])
        >>> trajectory = tfrl.core.Trajectory(
        ...     tf.zeros([1, 1, 1]), tf.constant([[0]]), tf.ones([1, 1]), ~flags, flags,
        ...     tf.zeros([1, 1, 1]), ~flags, log_probs=tf.constant([[-0.1]]))
        >>> rows = estimate_corrected_advantages(
        ...     policy, trajectory, trajectory.rewards, gamma=0.9, lambda_=1.0)
        >>> 0.5 < float(rows.returns[0]) < 0.6
        True

    References:
        Espeholt et al., 2018, IMPALA: Scalable Distributed Deep-RL with Importance
        Weighted Actor-Learner Architectures, section 4.
    """
    trajectory = _mapped(tf.convert_to_tensor, trajectory)
    outputs = outputs_of(policy, trajectory) if outputs is None else outputs
    dtype, outer = outputs.values.dtype, trajectory.rewards.shape
    actions = _mapped(_folded, trajectory.actions)
    log_probs = policy.head.log_prob(outputs.parameters, actions)
    found = value.vtrace(
        tf.reshape(outputs.values, outer),
        tf.reshape(outputs.next_values, outer),
        tf.cast(rewards, dtype),
        gamma * (1 - tf.cast(trajectory.terminated, dtype)),
        tf.exp(tf.reshape(log_probs, outer) - tf.cast(trajectory.log_probs, dtype)),
        lambda_ * (1 - tf.cast(trajectory.truncated, dtype)),
        clip_rho,
        clip_pg_rho,
    )
    learned = _folded(found.targets), _folded(found.advantages)
    return _experience(policy, trajectory, outputs, *learned)


def _experience(
    policy: Any,
    trajectory: records.Trajectory,
    outputs: Outputs,
    returns: tf.Tensor,
    advantages: tf.Tensor,
) -> Experience:
    """What was found of the `T * N` rows, in the order in which they are learned."""
    observations = policy.normalize(trajectory.observations)
    actions = _mapped(_folded, trajectory.actions)
    rows = Experience(
        observations=_mapped(_folded, observations),
        actions=actions,
        weights=tf.cast(_folded(trajectory.valid), outputs.values.dtype),
        log_probs=policy.head.log_prob(outputs.parameters, actions),
        values=outputs.values,
        returns=returns,
        advantages=advantages,
    )
    if not has_memory(policy):
        return rows
    outer = trajectory.rewards.shape
    rows = _mapped(lambda x: _swapped(tf.reshape(x, [*outer, *x.shape[1:]])), rows)
    states, begins = _memory(trajectory)
    return rows._replace(states=states, begins=begins)


def _memory(trajectory: records.Trajectory) -> tuple[Any, tf.Tensor]:
    """What was remembered before the first steps, and where nothing is, `[N, T]`."""
    # A row in which an environment only resets is of no episode.
    ended = trajectory.terminated | trajectory.truncated | ~trajectory.valid
    begins = tf.concat([tf.zeros_like(ended[:1]), ended[:-1]], axis=0)
    return _mapped(lambda x: x[0], trajectory.states), _swapped(begins)


def _mapped(function: Callable[[tf.Tensor], tf.Tensor], nest: Any) -> Any:
    return tf.nest.map_structure(function, nest)


def _folded(leaf: tf.Tensor) -> tf.Tensor:
    return tf.reshape(leaf, [-1, *leaf.shape[2:]])


def _swapped(leaf: tf.Tensor) -> tf.Tensor:
    return tf.transpose(leaf, [1, 0, *range(2, leaf.shape.rank)])
