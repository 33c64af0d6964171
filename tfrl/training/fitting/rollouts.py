"""Experience that is played for one epoch of `fit` and learned from in it."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl.core import checks, records
from tfrl.replay.sampling import transitions
from tfrl.training.fitting import _fit_data, _playing


class Rollouts(keras.callbacks.Callback):
    """Plays a trajectory at the beginning of every epoch and offers it in minibatches.

    Given to `FitModel.fit` as data it is its own callback. Each epoch passes over the
    steps of its trajectory, shuffled anew for each pass; with

        steps_per_epoch = passes * n_steps * N / minibatch_size

    there are that many `passes`. Minibatches are `Sample`s: `data` holds rows of what
    `prepare` returned, `weights` are 0 where a row is no experience (an environment
    that only reset itself) and 1 elsewhere.

    Given to `AgentModel.fit` it plays a trajectory for every step, by the agent as it
    is then, which learns from it as it sees fit: without `act`, `prepare` and
    `minibatch_size`.

    The logs get what those of `Collect` get.

    Args:
        envs: vector environment of N.
        act: as of `Collect`.
        prepare: function of the model and of a `Trajectory` of NumPy arrays
            `[n_steps, N, ...]`, that returns a nest of arrays `[n_steps, N, ...]`;
            None for an `AgentModel`.
        n_steps: steps in each environment and trajectory.
        minibatch_size: rows in a minibatch; divides `n_steps * N`. None for an
            `AgentModel`.
        network: what acts; that of the model by default.
        to_env: as of `Collect`.
        seed: of the environments, the generator and the minibatches.

    Raises:
        TypeError: if `act` or `prepare` cannot be called, or one of what goes together
            is None.
        ValueError: if a number is out of range.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> def act(logits, rng):
        ...     return (logits + rng.gumbel(size=logits.shape)).argmax(-1)
        >>> def prepare(model, trajectory):
        ...     return trajectory.observations, trajectory.actions, trajectory.rewards
        >>> def loss_fn(model, sample):
        ...     observations, actions, rewards = sample.data
        ...     log_probs = tf.nn.log_softmax(model(observations))
        ...     return -rewards * tf.gather(log_probs, actions, batch_dims=1)
        >>> model = tfrl.training.FitModel(network, loss_fn)
        >>> model.compile("sgd")
        >>> rollouts = Rollouts(envs, act, prepare, n_steps=8, minibatch_size=4)
        >>> history = model.fit(rollouts, epochs=2, steps_per_epoch=4, verbose=0)
        >>> history.history["env_steps"]
        [16.0, 32.0]
    """

    def __init__(
        self,
        envs: VectorEnv,
        act: Callable[[Any, np.random.Generator], Any] | None = None,
        prepare: Callable[[Any, Any], Any] | None = None,
        n_steps: int = 128,
        minibatch_size: int | None = None,
        network: Any = None,
        to_env: Callable[[Any], Any] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        where = "Rollouts"
        missing = [x is None for x in (act, prepare, minibatch_size)]
        if (prepare is not None and not callable(prepare)) or (
            any(missing) and not all(missing)
        ):
            raise TypeError(
                f"`{where}`: `prepare` expected a function of the model and a "
                "trajectory, beside `act` and `minibatch_size`, or all of them None "
                f"for an `AgentModel`; got {prepare!r}; define it"
            )
        checks.check_whole_number(where, "n_steps", n_steps, low=1)
        if minibatch_size is not None:
            checks.check_whole_number(where, "minibatch_size", minibatch_size, low=1)
        _playing.check_envs(where, envs)
        if minibatch_size is not None and n_steps * envs.num_envs % minibatch_size:
            raise ValueError(
                f"`{where}`: `minibatch_size` expected to divide n_steps * N = "
                f"{n_steps * envs.num_envs}; got {minibatch_size}; choose a divisor"
            )
        self._player = _playing.Player(
            where, envs, n_steps, act, network=network, to_env=to_env, seed=seed
        )
        self._prepare: Any = prepare
        self._minibatch_size: Any = minibatch_size
        self._order_rng = np.random.default_rng([seed, 1])
        self._rows: list[np.ndarray] | None = None
        self._structure: Any = None
        self._order = np.empty(0, np.int64)
        self._fresh = False

    @property
    def envs(self) -> VectorEnv:
        """What is played in."""
        return self._player.collector.envs

    def minibatches(self, model: Any) -> tf.data.Dataset:
        """Returns the dataset that `fit` reads; `FitModel.fit` asks for it.

        The first call plays a trajectory, to see what minibatches look like.

        Args:
            model: whose network acts.

        Returns:
            A dataset without end of `Sample`s.
        """
        if self._prepare is None:
            raise TypeError(
                "`FitModel.fit`: `x` expected Rollouts with `act`, `prepare` and "
                "`minibatch_size`; got some for an `AgentModel`; give all three"
            )
        if self._rows is None:
            self._play(model)
        rows: Any = self._rows
        size = self._minibatch_size
        specs = [tf.TensorSpec([size, *x.shape[1:]], x.dtype) for x in rows]

        def tensors(_: tf.Tensor) -> transitions.Sample:
            dtypes = [spec.dtype for spec in specs]
            drawn = tf.numpy_function(self._next, [], dtypes, stateful=True)
            for tensor, spec in zip(drawn, specs, strict=True):
                tensor.set_shape(spec.shape)
            *data, indices, weights = drawn
            return transitions.Sample(
                data=tf.nest.pack_sequence_as(self._structure, data),
                indices=indices,
                weights=weights,
                probabilities=tf.fill([size], 1.0 / len(rows[0])),
            )

        return _fit_data.in_step(tf.data.Dataset.counter().map(tensors))

    def trajectory(self, model: Any) -> records.Trajectory:
        """Plays and returns a trajectory; `AgentModel.fit` asks for it at every step.

        Args:
            model: made from an agent, which acts.

        Returns:
            `[n_steps, N]`, of NumPy arrays.

        Raises:
            TypeError: if there is a `prepare`, or the model has no agent.
        """
        if self._prepare is not None:
            raise TypeError(
                "`AgentModel.fit`: `x` expected Rollouts without `act`, `prepare` and "
                "`minibatch_size`, as the agent acts and learns by itself; got them; "
                "leave them out"
            )
        return self._player.play(model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Plays, unless nothing was learned yet from what was played before."""
        if self._prepare is None:
            return
        if not self._fresh:
            self._play(self.model)
        self._fresh = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reports."""
        if logs is not None:
            logs.update(self._player.logs())

    def state(self) -> dict[str, Any]:
        """Returns what `RunCheckpoint` saves: environments and generators.

        Returns:
            Plain data, complete between epochs.
        """
        return {**self._player.state(), "order": self._order_rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes up where `state` was returned.

        Args:
            state: what `state()` returned.
        """
        self._player.set_state(state)
        self._order_rng.bit_generator.state = state["order"]
        self._fresh = False

    def _play(self, model: Any) -> None:
        trajectory = self._player.play(model)
        nest = self._prepare(model, trajectory)
        outer = trajectory.rewards.shape
        leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(nest)]
        for leaf in leaves:
            if leaf.shape[:2] != outer:
                raise ValueError(
                    f"`Rollouts`: `prepare` expected to return arrays of {list(outer)} "
                    f"and more axes; got {list(leaf.shape)}; keep time and environments"
                )
        count = trajectory.rewards.size
        self._structure = tf.nest.map_structure(lambda _: 0, nest)
        leaves += [np.arange(count).reshape(outer), trajectory.valid.astype(np.float32)]
        self._rows = [leaf.reshape(count, *leaf.shape[2:]) for leaf in leaves]
        self._order = np.empty(0, np.int64)
        self._fresh = True

    def _next(self) -> list[np.ndarray]:
        rows: Any = self._rows
        if not self._order.size:
            self._order = self._order_rng.permutation(len(rows[0]))
        taken, self._order = np.split(self._order, [self._minibatch_size])
        return [leaf.take(taken, 0) for leaf in rows]
