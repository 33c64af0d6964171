"""What a network says to all rows of a trajectory, computed in pieces."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl.agents import replicated
from tfrl.core import records


class Outputs(NamedTuple):
    """What an actor and critic says to the `R = T * N` rows of a trajectory.

    Attributes:
        parameters: `[R, n]`, of the head.
        values: `[R]`.
        next_values: `[R]`, values of the successors.

    Example:
        >>> Outputs(tf.zeros([3, 2]), tf.zeros([3]), tf.ones([3])).values.shape
        TensorShape([3])
    """

    parameters: tf.Tensor
    values: tf.Tensor
    next_values: tf.Tensor


def in_pieces(policy: Any, trajectory: records.Trajectory, n_rows: int) -> Outputs:
    """Computes a network's outputs by several calls, each row's once.

    Most successors are the observations of the next step, of which the values are
    known; the others are those of episodes' ends and of the last step.

    Args:
        policy: the `ActorCriticPolicy` that acted.
        trajectory: what it met, `[T, N]`, not in a graph.
        n_rows: of each call.

    Returns:
        `Outputs`, time outermost.

    Example:
        >>> policy = tfrl.policies.ActorCriticPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2),
        ...     learner=tfrl.agents.TrainState.create)
        >>> flags = np.zeros((2, 1), bool)
        >>> trajectory = tfrl.core.Trajectory(
        ...     np.array([[[0.0]], [[0.1]]], "f"), np.zeros((2, 1), int), flags, flags,
        ...     flags, np.array([[[0.1]], [[0.2]]], "f"), ~flags)
        >>> outputs = in_pieces(policy, trajectory, n_rows=8)
        >>> bool(outputs.next_values[0] == outputs.values[1])
        True
    """
    first, second = (
        [np.asarray(leaf) for leaf in tf.nest.flatten(nest)]
        for nest in (trajectory.observations, trajectory.next_observations)
    )
    n_steps, n_envs = trajectory.rewards.shape
    n_all = n_steps * n_envs
    apart = np.ones((n_steps, n_envs), bool)
    apart[:-1] = False
    for now, then in zip(first, second, strict=True):
        differ = (then[:-1] != now[1:]).reshape(n_steps - 1, n_envs, -1)
        apart[:-1] |= differ.any(-1)
    ends = np.flatnonzero(apart)
    # Pieces of one size are compiled once; the last is filled up by its last row.
    size = min(n_rows, n_all)
    rows = np.concatenate([np.arange(n_all), n_all + ends])
    rows = np.pad(rows, (0, -len(rows) % size), "edge")
    flat = [
        [leaf.reshape(n_all, *leaf.shape[2:]) for leaf in leaves]
        for leaves in (first, second)
    ]

    def taken(picked: np.ndarray) -> Any:
        here, there = picked[picked < n_all], picked[picked >= n_all] - n_all
        leaves = [
            np.concatenate([x[here], y[there]]) for x, y in zip(*flat, strict=True)
        ]
        return tf.nest.pack_sequence_as(trajectory.observations, leaves)

    light = policy.without_optimizer()
    pieces = [
        replicated.run_alone(_compiled_outputs, light, taken(rows[i : i + size]))
        for i in range(0, len(rows), size)
    ]
    parameters, values = (np.concatenate(x) for x in zip(*pieces, strict=True))
    following = np.append(values[n_envs:n_all], np.zeros(n_envs, values.dtype))
    following[ends] = values[n_all : n_all + len(ends)]
    return Outputs(*map(tf.constant, (parameters[:n_all], values[:n_all], following)))


def _outputs(policy: Any, observations: Any) -> tuple[tf.Tensor, tf.Tensor]:
    return policy.state(policy.normalize(observations))


_compiled_outputs = replicated.compiled_update(_outputs)
