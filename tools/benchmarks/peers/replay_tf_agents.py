"""Replay of TF-Agents, compiled, for the benchmarks of replays.

It has no release for this TensorFlow Probability and imports the predecessor of
Gymnasium; its buffer uses neither.
"""

import sys

import gymnasium
import tensorflow as tf

sys.modules.setdefault("gym", gymnasium)

from tf_agents.replay_buffers import tf_uniform_replay_buffer  # noqa: E402

tf.get_logger().setLevel("ERROR")  # get_next is deprecated, though datasets call it


class TfAgents:
    """`TFUniformReplayBuffer`: time steps of environments, drawn as pairs."""

    def __init__(self, case, width):
        spec = (
            tf.TensorSpec(case.shape, case.dtype),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([], tf.float32),
            tf.TensorSpec([], tf.bool),
            tf.TensorSpec([], tf.bool),
        )
        self.buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(
            spec, width, max_length=case.capacity // width
        )
        self.add = tf.function(self._add)
        self.sample = tf.function(self._sample)

    def ready(self, step):
        seen = step.observations, step.actions, step.rewards
        return tuple(map(tf.constant, (*seen, step.terminated, step.truncated)))

    def _add(self, *step):
        self.buffer.add_batch(step)

    def _sample(self, n):
        return self.buffer.get_next(n, num_steps=2)[0]

    def read(self, found):
        seen, *numbers = (leaf.numpy() for leaf in found[:4])
        return seen[:, 0], *(leaf[:, 0] for leaf in numbers), seen[:, 1]

    def save(self, folder):
        tf.train.Checkpoint(buffer=self.buffer).write(f"{folder}/buffer")

    def load(self, folder):
        checkpoint = tf.train.Checkpoint(buffer=self.buffer)
        checkpoint.read(f"{folder}/buffer").assert_consumed()
