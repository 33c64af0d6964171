"""Evaluation of policies in compiled environments: many steps in a call of a graph."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.environments.compiled import vector_env, wrappers
from tfrl.training import evaluation

# Between two of them somebody may ask to end.
_STEPS_PER_CALL = 128


class CompiledEvaluation:
    """Plays whole episodes as `tfrl.training.evaluate` does, with the same chance.

    It is no program of XLA: to compile one takes longer than some evaluations last.

    Args:
        envs: in which is played, in AutoReset; they stay as they are.
    """

    def __init__(self, envs: vector_env.CompiledVectorEnv) -> None:
        self._env, self._n_envs = envs.compiled, envs.num_envs
        # Of one method TensorFlow counts traces over all objects, and warns of them.
        self._begin = tf.function(functools.partial(self._begun), autograph=False)
        self._play = tf.function(functools.partial(self._played), autograph=False)

    def evaluated(
        self, policy: Any, n_episodes: int, seed: int, before: Callable[[], None]
    ) -> evaluation.Evaluation:
        """Returns what the episodes brought.

        Args:
            policy: which acts on tensors.
            n_episodes: at least 1.
            seed: of the environments.
            before: called before every so many steps; it may raise.

        Raises:
            ValueError: if a reward is NaN.
        """
        tally, done = evaluation.Tally(self._n_envs, n_episodes), 2
        key = tf.constant(vector_env.seed_before_reset(seed))
        carried = self._begin(policy, key)
        while not tally.is_full():
            before()
            *carried, rewards, ended = self._play(
                policy, key, tf.constant(done), *carried
            )
            for row in zip(np.asarray(rewards), np.asarray(ended), strict=True):
                if not tally.is_full():
                    tally.add(*row, True)
            done += _STEPS_PER_CALL
        return tally.evaluation()

    def _begun(self, policy: Any, key: tf.Tensor) -> tuple:
        memory = policy.initial_state(self._n_envs)
        memory = tf.nest.map_structure(tf.convert_to_tensor, memory)
        return *self._env.reset(key + tf.constant([0, 1]), self._n_envs), memory

    def _played(
        self, policy: Any, key: tf.Tensor, done: tf.Tensor, *begun: Any
    ) -> tuple:
        """What is carried after some steps, their rewards and ends, both `[T, N]`."""
        n_envs = self._n_envs
        initial = policy.initial_state(n_envs)
        initial = tf.nest.map_structure(tf.convert_to_tensor, initial)

        def body(t: Any, state: Any, seen: Any, memory: Any, *columns: Any) -> tuple:
            chance = key + tf.stack([0, done + t])
            acted = policy.act(seen, memory, seed=chance, temperature=0.0)
            noise = self._env.draw(chance, [n_envs])
            step = self._env.step(state, acted.actions, noise)
            ended = step.terminated | step.truncated
            memory = wrappers.chosen(ended, initial, acted.state)
            rows = zip(columns, (step.rewards, ended), strict=True)
            written = [column.write(t, x) for column, x in rows]
            return t + 1, step.state, step.observations, memory, *written

        columns = [
            tf.TensorArray(dtype, _STEPS_PER_CALL, element_shape=[n_envs])
            for dtype in (tf.float32, tf.bool)
        ]
        _, *after, rewards, ended = tf.while_loop(
            lambda t, *_: t < _STEPS_PER_CALL, body, (tf.constant(0), *begun, *columns)
        )
        return *after, rewards.stack(), ended.stack()
