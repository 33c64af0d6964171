"""Evaluation of policies in compiled environments: many steps in a call of a graph."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.agents import carrying
from tfrl.core import compile
from tfrl.environments.compiled import protocol, vector_env, wrappers
from tfrl.training import evaluation

# Between two of them somebody may ask to end.
_STEPS_PER_CALL = 128


class CompiledEvaluation:
    """Plays whole episodes as `tfrl.training.evaluate` does, with the same chance.

    It is no program of XLA: to compile one takes longer than some evaluations last.

    Args:
        env: in which is played, in AutoReset.
        n_envs: copies of it.
    """

    def __init__(self, env: protocol.CompiledEnv, n_envs: int) -> None:
        self._env, self._n_envs = env, n_envs
        options = {"differentiable": False, "xla": False}
        self._begin = compile.jit(self._begun, **options)
        self._play = compile.jit(self._played, **options)

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
        policy = carrying.lent(policy)
        carried = self._begin(policy, key)
        while not tally.is_full():
            before()
            given = policy, key, tf.constant(done), carried
            *carried, rewards, ended = self._play(*given)
            for row in zip(np.asarray(rewards), np.asarray(ended), strict=True):
                if not tally.is_full():
                    tally.add(*row, True)
            done += _STEPS_PER_CALL
        return tally.evaluation()

    def _begun(self, policy: Any, key: tf.Tensor) -> tuple:
        memory = policy.initial_state(self._n_envs)
        memory = tf.nest.map_structure(tf.convert_to_tensor, memory)
        return *self._env.reset(key + tf.constant([0, 1]), self._n_envs), memory

    def _played(self, policy: Any, key: Any, done: Any, begun: Sequence[Any]) -> tuple:
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
