"""Stacks of frames, as environments show them, and the frames that a replay keeps.

A stack is `[..., k, *shape]`, as of `gymnasium.wrappers.FrameStackObservation`, oldest
first; a nest of observations is one of stacks. The last frame of each is enough: those
before it were last ones too, and the first of an episode stands for those before it.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import records
from tfrl.replay.sampling import transitions

_WRAPPED = "as `gymnasium.wrappers.FrameStackObservation`, outermost, shows them"


def frame_specs(specs: Any) -> Any:
    """Returns the specs of frames, of those of stacks."""
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape[1:], x.dtype), specs)


def check_reset(observations: Any, count: int) -> None:
    """Raises a ValueError unless stacks are what episodes begin with.

    Args:
        observations: nest of `[N, k, *shape]`, after a reset.
        count: k.
    """
    for leaf in tf.nest.flatten(observations):
        if leaf.shape[1:2] != (count,) or not (leaf == leaf[:, -1:]).all():
            raise ValueError(
                f"`Replayed`: `frame_stack` expected observations [{count}, ...] that "
                f"begin with a frame {count} times, {_WRAPPED}; got others, of shape "
                f"{[*leaf.shape[1:]]}; leave it None"
            )


def last_frames(trajectory: records.Trajectory) -> records.Trajectory:
    """Returns what a replay keeps of a trajectory `[T, N]` of stacks.

    Raises:
        ValueError: if a step did more to a stack than to add a frame.
    """
    pair = trajectory.observations, trajectory.next_observations
    for before, after in zip(*map(tf.nest.flatten, pair), strict=True):
        same = before[:, :, 1:] == after[:, :, :-1]
        if not same[trajectory.valid].all():
            raise ValueError(
                "`Replayed`: `frame_stack` expected stacks to which a step adds one "
                f"frame, {_WRAPPED}; got others; leave it None"
            )
    seen, then = tf.nest.map_structure(lambda x: x[:, :, -1], pair)
    return trajectory._replace(observations=seen, next_observations=then)


def stacked(sample: transitions.Sample) -> transitions.Sample:
    """Returns minibatches `[K, B]` with stacks as environments show them.

    Args:
        sample: whose frames are on the last axis, as of `Transitions`.
    """
    data = sample.data
    pair = data.observations, data.next_observations
    seen, then = tf.nest.map_structure(lambda x: np.moveaxis(x, -1, 2), pair)
    return sample._replace(
        data=data._replace(observations=seen, next_observations=then)
    )
