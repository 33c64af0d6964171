"""What an agent needs beside `keras.Model.fit`, one callback for each need.

The callbacks work in `FitModel.fit`, `AgentModel.fit` and any other `keras.Model.fit`;
those of other rooms, and Keras' own, go with them. What Keras' callbacks do with an agent:

| callback | with an agent |
| --- | --- |
| `History` | has the mean loss, every report of the loss, and what `Collect`, `Rollouts` and `Evaluate` add, by epoch |
| `ProgbarLogger` | shows the same |
| `CSVLogger` | writes the same; its columns are those of the first epoch: evaluate in that one |
| `TensorBoard` | writes the same as `epoch_*`, validation under `validation/` |
| `RemoteMonitor` | sends the same |
| `LambdaCallback` | as ever |
| `EarlyStopping` | `monitor="val_return_mean", mode="max"`, listed after `Evaluate` |
| `ReduceLROnPlateau` | the same; not with a schedule as the learning rate |
| `LearningRateScheduler` | as ever; a schedule of `tfrl.schedules` in the optimizer moves every step instead of every epoch |
| `ModelCheckpoint` | saves network, targets, their counters and the optimizer, not replay and environments |
| `BackupAndRestore` | the same, and the epoch: a resumed run is not the same run; `RunCheckpoint` makes it that |
| `SwapEMAWeights` | evaluates the averages if listed before `Evaluate`; `TargetUpdater` follows what trains |
| `TerminateOnNaN` | looks at the mean loss of the epoch so far, as ever |

They work in `AgentModel.fit` too, but for those that set an optimizer
(`LearningRateScheduler`, `ReduceLROnPlateau`, `SwapEMAWeights`): agents have their own,
and schedules for its learning rate. There `ModelCheckpoint` saves the whole agent.

Order counts where one reads what another wrote: `Collect` or `Rollouts` first, then
`Evaluate`, then what monitors, `RunCheckpoint` last.
"""
# ruff: noqa: E501

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from gymnasium.vector import VectorEnv

from tfrl.core import checks
from tfrl.layers import target
from tfrl.replay import episodes
from tfrl.schedules import progress, schedulers
from tfrl.training import evaluation
from tfrl.training.collecting import _stored
from tfrl.training.fitting import _fit_data, _playing


class Collect(keras.callbacks.Callback):
    """Plays environments between the steps of training and keeps what happened.

    After each step of the optimizer `steps_per_batch` steps are played in each
    environment, by the network as it is then. With `steps_per_execution` of k they are
    played k times after each execution.

    The logs of an epoch get `return_mean` and `length_mean` of the last 100 finished
    episodes (NaN before the first) and `env_steps`.

    Args:
        envs: vector environment.
        store: `EpisodeStore`, or a function that takes a `Trajectory` of NumPy arrays
            `[steps_per_batch, N, ...]`.
        act: function of the network's outputs for the observations, as NumPy arrays
            `[N, ...]`, and of a `np.random.Generator`, that returns actions `[N, ...]`.
            Schedules called in it follow the training. None for an `AgentModel`, whose
            agent knows how to act.
        steps_per_batch: steps in each environment after each step of the optimizer.
        warm_up_steps: steps of experience, over all environments, to be played before
            the first batch is drawn.
        network: what acts; that of the model by default.
        to_env: from the actions that are kept to those that the environments take.
        seed: of the environments and of the generator.
        every_batches: plays after so many steps of the optimizer, instead of each.

    Raises:
        TypeError: if `envs`, `store`, `act`, `network` or `seed` is something else.
        ValueError: if a number is out of range.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> store = tfrl.replay.EpisodeStore(
        ...     tf.TensorSpec([4]), tf.TensorSpec([], tf.int64), 1000, 2)
        >>> collect = Collect(
        ...     envs, store, lambda q_values, rng: rng.integers(2, size=len(q_values)),
        ...     warm_up_steps=20)
        >>> network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> model = tfrl.training.FitModel(network, lambda model, sample: (
        ...     tf.reduce_sum(model(sample.data.observations) ** 2, axis=-1)))
        >>> model.compile("sgd")
        >>> history = model.fit(
        ...     tfrl.replay.UniformReplay(store), steps_per_epoch=5,
        ...     callbacks=[collect], verbose=0)
        >>> history.history["env_steps"]
        [30.0]
    """

    def __init__(
        self,
        envs: VectorEnv,
        store: Any,
        act: Callable[[Any, np.random.Generator], Any] | None = None,
        steps_per_batch: int = 1,
        warm_up_steps: int = 0,
        network: Any = None,
        to_env: Callable[[Any], Any] | None = None,
        seed: int = 0,
        every_batches: int = 1,
    ) -> None:
        super().__init__()
        if not (isinstance(store, episodes.EpisodeStore) or callable(store)):
            raise TypeError(
                "`Collect`: `store` expected an EpisodeStore or a function of a "
                f"Trajectory; got {type(store).__name__}; make one"
            )
        checks.check_whole_number("Collect", "steps_per_batch", steps_per_batch, low=1)
        checks.check_whole_number("Collect", "warm_up_steps", warm_up_steps, low=0)
        checks.check_whole_number("Collect", "every_batches", every_batches, low=1)
        self._player = _playing.Player(
            "Collect",
            envs,
            steps_per_batch,
            act,
            network=network,
            to_env=to_env,
            seed=seed,
        )
        self._store, self._warm_up_steps = store, warm_up_steps
        self._steps = _fit_data.StepCounter()
        self._every, self._batches = every_batches, 0

    @property
    def envs(self) -> VectorEnv:
        """What is played in."""
        return self._player.collector.envs

    @property
    def env_steps(self) -> int:
        """Steps of experience so far, over all environments."""
        return self._player.collector.env_steps

    def before_fit(self, model: Any) -> None:
        """Plays what has to be there before the first batch; `FitModel.fit` calls it.

        Args:
            model: whose network acts.
        """
        while self.env_steps < self._warm_up_steps:
            self._collect(model)
        self._player.tell(model)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Plays what `before_fit` would have, in models without it."""
        self.before_fit(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Counts steps anew."""
        self._steps.begin_epoch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Plays."""
        self._batches += self._steps.passed(batch, self.params)
        due, self._batches = divmod(self._batches, self._every)
        for _ in range(due):
            self._collect(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reports."""
        if logs is not None:
            logs.update(self._player.logs())

    def state(self) -> dict[str, Any]:
        """Returns what `RunCheckpoint` saves: environments and generators.

        Returns:
            Plain data; the store is saved for itself.
        """
        return {**self._player.state(), "batches": self._batches}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes up where `state` was returned.

        Args:
            state: what `state()` returned.
        """
        same = self._player.set_state(state)
        self._batches = state.get("batches", 0)
        if not same and isinstance(self._store, episodes.EpisodeStore):
            self._store.cut()

    def _collect(self, model: Any) -> None:
        trajectory = self._player.play(model)
        if not isinstance(self._store, episodes.EpisodeStore):
            self._store(trajectory)
            return
        _stored.add(self._store, trajectory)


class Evaluate(keras.callbacks.Callback):
    """Plays whole episodes at the end of epochs to judge the network.

    The logs get `val_return_mean`, `val_return_std` and `val_length_mean`, in the
    epochs in which it evaluates: the first, every `every_epochs`-th and the last.

    Args:
        envs: vector environment of its own.
        act: as of `Collect`; for a greedy policy without use of the generator.
        n_episodes: how many to play.
        every_epochs: epochs between evaluations.
        network: what acts; that of the model by default.
        seed: of the environments and the generator, a new one for each epoch.
        stop_at: ends the training when the mean return is at least this; None does not.

    Raises:
        TypeError: if `act` cannot be called, or `envs`, `network` or `seed` is
            something else.
        ValueError: if a number is out of range.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> evaluate = Evaluate(envs, lambda q_values, rng: q_values.argmax(-1), 4)
        >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(
        ...     np.ones([8, 4]), np.ones([8, 2]), callbacks=[evaluate], verbose=0)
        >>> sorted(history.history)
        ['loss', 'val_length_mean', 'val_return_mean', 'val_return_std']
    """

    def __init__(
        self,
        envs: VectorEnv,
        act: Callable[[Any, np.random.Generator], Any] | None = None,
        n_episodes: int = 20,
        every_epochs: int = 1,
        network: Any = None,
        seed: int = 0,
        stop_at: float | None = None,
    ) -> None:
        super().__init__()
        _playing.check_envs("Evaluate", envs)
        self._acting = _playing.Acting("Evaluate", act, network)
        checks.check_whole_number("Evaluate", "seed", seed, low=0)
        checks.check_whole_number("Evaluate", "n_episodes", n_episodes, low=1)
        checks.check_whole_number("Evaluate", "every_epochs", every_epochs, low=1)
        self._envs, self._n_episodes = envs, n_episodes
        self._every_epochs, self._seed = every_epochs, seed
        self._stop_at = stop_at

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Evaluates and reports."""
        last = epoch + 1 == self.params.get("epochs")
        if epoch and not last and (epoch + 1) % self._every_epochs:
            return
        seed = self._seed + 1_000_003 * (epoch + 1)
        rng = np.random.default_rng(seed)

        def chosen(observations: Any) -> np.ndarray:
            actions = self._acting.chosen(self.model, observations, rng)
            return _playing.checked_actions("Evaluate", actions, self._envs)

        by_agent = self._acting.is_by_agent
        policy: Any = self._acting.agent_of(self.model) if by_agent else chosen
        played = evaluation.evaluate(policy, self._envs, self._n_episodes, seed=seed)
        if self._stop_at is not None and played.returns.mean() >= self._stop_at:
            self.model.stop_training = True
        if logs is not None:
            logs["val_return_mean"] = float(played.returns.mean())
            logs["val_return_std"] = float(played.returns.std())
            logs["val_length_mean"] = float(played.lengths.mean())


class UpdateTarget(keras.callbacks.Callback):
    """Calls a `TargetUpdater` once for each step of the optimizer.

    For models that are no `FitModel`: that updates its targets itself, inside the
    compiled step. With `steps_per_execution` of k the calls come k at a time.

    Args:
        updater: the `TargetUpdater`, or anything to be called without arguments, such
            as `Periodically`.

    Raises:
        TypeError: if `updater` cannot be called.

    Example:
        >>> model, copy = (keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        ...                for _ in range(2))
        >>> model.compile("sgd", "mse")
        >>> _ = model.fit(np.ones([8, 1]), np.ones([8]), verbose=0, callbacks=[
        ...     UpdateTarget(tfrl.layers.TargetUpdater(model, copy))])
        >>> bool((model.get_weights()[0] == copy.get_weights()[0]).all())
        True
    """

    def __init__(self, updater: target.TargetUpdater | Callable[[], Any]) -> None:
        super().__init__()
        if not callable(updater):
            raise TypeError(
                "`UpdateTarget`: `updater` expected a TargetUpdater; got "
                f"{updater!r}; make one"
            )
        self._updater, self._steps = updater, _fit_data.StepCounter()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Counts steps anew."""
        self._steps.begin_epoch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Updates."""
        for _ in range(self._steps.passed(batch, self.params)):
            self._updater()


class FollowSchedule(keras.callbacks.Callback):
    """Sets something to what a schedule says, before every batch.

    The schedule follows the training: "iterations" are those of the optimizer; in a
    `FitModel` "env_steps" are what `Collect` or `Rollouts` played, and "percent" is the
    share of the training that is done. With `steps_per_execution` of k it is set once for k steps.

    Args:
        schedule: of `tfrl.schedules`, or any function without arguments.
        variable: a Keras or TensorFlow variable, a function that takes the value, or
            "learning_rate" for that of the optimizer.
        name: under which the logs of epochs tell the last value; None for none.

    Raises:
        TypeError: if `variable` is none of these, or `schedule` no schedule.

    Example:
        >>> model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> rate = tfrl.schedules.StepScheduler("iterations", [(1, 0.5), (9, 0.25)])
        >>> follow = FollowSchedule(rate, "learning_rate", name="rate")
        >>> model.fit(np.ones([8, 1]), np.ones([8]), batch_size=4, verbose=0,
        ...           callbacks=[follow]).history["rate"]
        [0.25]
    """

    def __init__(self, schedule: Any, variable: Any, name: str | None = None) -> None:
        super().__init__()
        self._schedule = schedulers.as_scheduler(schedule)
        known = (
            variable == "learning_rate"
            if isinstance(variable, str)
            else (hasattr(variable, "assign") or callable(variable))
        )
        if not known:
            raise TypeError(
                "`FollowSchedule`: `variable` expected a variable, a function or "
                f'"learning_rate"; got {variable!r}; pass what is to be set'
            )
        self._variable, self._name = variable, name
        self._value: float = float("nan")

    @property
    def sets_rate(self) -> bool:
        """Whether it sets the learning rate of the model's optimizer."""
        return isinstance(self._variable, str)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Sets the variable."""
        with progress.progress_context(_playing.progress_of(self.model, 0)):
            value = self._schedule()
        self._value = float(value)
        if isinstance(self._variable, str):
            self.model.optimizer.learning_rate = value
        elif hasattr(self._variable, "assign"):
            self._variable.assign(value)
        else:
            self._variable(value)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reports."""
        if logs is not None and self._name is not None:
            logs[self._name] = self._value
