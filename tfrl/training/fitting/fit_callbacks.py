"""What an agent needs beside `keras.Model.fit`, one callback for each need.

The callbacks work in `FitModel.fit`, `AgentModel.fit` and any other `keras.Model.fit`;
so do those of other rooms and Keras' own. What Keras' callbacks do with an agent:

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
| `LearningRateScheduler` | as ever; a schedule of `tfrl.schedules` in the optimizer, of 'iterations', moves every step instead of every epoch |
| `ModelCheckpoint` | saves network, targets, their counters and the optimizer, not replay and environments |
| `BackupAndRestore` | the same, and the epoch: a resumed run is not the same run; `RunCheckpoint` makes it that |
| `SwapEMAWeights` | evaluates the averages if listed before `Evaluate`; `TargetUpdater` follows what trains |
| `TerminateOnNaN` | looks at the mean loss of the epoch so far, as ever |

Those that set an optimizer (`LearningRateScheduler`, `ReduceLROnPlateau`,
`SwapEMAWeights`) are refused by a `FitModel` with several optimizers and by an
`AgentModel`, whose agent has its own: give schedules to the optimizers, or to the
agent. In an `AgentModel`, `ModelCheckpoint` saves the whole agent.

Order matters where one reads what another wrote: `Collect` or `Rollouts` first, then
`Evaluate`, then those that monitor, `RunCheckpoint` last.
"""
# ruff: noqa: E501

import os
import pathlib
import warnings
from typing import Any

import gymnasium as gym
import keras
import numpy as np
from gymnasium.vector import VectorEnv

from tfrl._internal import checks, gym_checks
from tfrl.core import records
from tfrl.policies import host_policy
from tfrl.policies import policy as policies
from tfrl.replay import episodes
from tfrl.schedules import progress
from tfrl.summaries.filming import video
from tfrl.training import cadence, evaluation
from tfrl.training.collecting import _delivery, collection
from tfrl.training.fitting import _fit_data


class _Acting(keras.callbacks.Callback):
    """A callback that acts by a policy, or as the agent of the model does.

    Attributes:
        envs: a vector environment, or a single one, in which it acts.

    Args:
        policy: as in `Collect`.
        **counts: numbers that must be 1 at least, by name.
        seed: must be 0 at least.
    """

    envs: Any

    def __init__(self, policy: Any, *, seed: int, **counts: int) -> None:
        super().__init__()
        self._where = type(self).__name__
        self._given = policy
        if policy is not None:
            self._given = policies.as_policy(self._where, "policy", policy)
        seed = checks.check_whole_number(self._where, "seed", seed, low=0)
        for name, count in counts.items():
            checks.check_whole_number(self._where, name, count, low=1)
        self._seed = seed
        # What it was made with, for the record of the run.
        self.settings = {"policy": self._given, "seed": seed, **counts}
        self._host: host_policy.HostPolicy | None = None

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Checks the policy and the environments before the first batch."""
        self._policy()

    def _policy(self, probe: Any = None) -> Any:
        """Returns what acts now; the agent's copy is compared on observations."""
        if self._given is not None:
            return self._given
        agent = getattr(self.model, "agent", None)
        if agent is None:
            raise TypeError(
                f"`{self._where}`: `policy` expected a policy, or a function from "
                "observations to actions; got None beside a "
                f"{type(self.model).__name__}, which has no agent that could act"
            )
        if self._host is None:
            recipe = getattr(self.model, "recipe", None)
            if recipe is not None:
                recipe.check_envs(self._where, self.envs)
            needed = getattr(agent, "needs_log_probs", False)
            self._host = host_policy.HostPolicy(agent.policy, log_probs=needed)
        else:
            self._host.push(agent.policy, probe)
        return self._host

    def _is_due(self, epoch: int, every_epochs: int) -> bool:
        """Whether an epoch is the first, one of every few, or the last."""
        last = epoch + 1 == self.params.get("epochs")
        return not epoch or last or (epoch + 1) % every_epochs == 0


class Playing(_fit_data.StepCounter, _Acting):
    """A callback that plays environments, and can be saved amid episodes.

    Args:
        envs: vector environment.
        n_steps: steps that are played at once.
        policy: as in `Collect`.
        seed: of the environments and of what the policy draws.
        **counts: as in `_Acting`.
    """

    def __init__(
        self, envs: VectorEnv, n_steps: int, policy: Any, *, seed: int, **counts: int
    ) -> None:
        super().__init__(policy, seed=seed, **counts)
        gym_checks.check_vector(self._where, "envs", envs)
        self.envs, self.settings["n_steps"] = envs, n_steps
        self.collector = collection.Collector(envs, n_steps, seed)
        self._rng = np.random.default_rng(seed)
        self._told = 0

    @property
    def env_steps(self) -> int:
        """Steps of experience so far, over all environments."""
        return self.collector.env_steps

    def trajectory(self, model: Any) -> records.Trajectory:
        """Plays on in all environments, as the model would now.

        Args:
            model: whose agent acts, unless there is a policy.

        Returns:
            `[T, N]`, of NumPy arrays.

        Raises:
            TypeError: if there is neither a policy nor an agent.
        """
        self.set_model(model)
        with progress.progress_context(self._progress(self.env_steps)):
            policy = self._policy(self.collector.observations)
            played = self.collector.collect(policy, self._rng)
        self._tell_steps(model)
        return played

    def _tell_steps(self, model: Any) -> None:
        """Adds what was played since the last time to the steps of the model."""
        if hasattr(model, "env_steps"):
            model.env_steps.assign_add(self.env_steps - self._told)
        self._told = self.env_steps

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reports."""
        if logs is None:
            return
        for name in ("return", "length"):
            values = getattr(self.collector, f"episode_{name}s")
            logs[f"{name}_mean"] = float(np.mean(values)) if values else float("nan")
        counted = getattr(self.model, "env_steps", self.env_steps)
        logs["env_steps"] = float(np.asarray(counted))

    def state(self) -> dict[str, Any]:
        """Returns what `RunCheckpoint` saves: environments and generators.

        Returns:
            Plain data; what stores keep is saved for itself.
        """
        return collection.captured(self._rng, self.collector)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from where `state` was returned.

        Args:
            state: what `state()` returned.
        """
        seed = self._seed + 7_919 * (1 + state["collector"]["env_steps"])
        notice = collection.restore(state, self._rng, self.collector, seed)
        self._told = self.env_steps
        if notice is not None:
            warnings.warn(f"`{self._where}`: {notice}", stacklevel=2)
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Does what new episodes ask for."""


class Collect(Playing):
    """Plays environments between the steps of training and keeps what happened.

    After each step of the optimizer, `steps_per_batch` steps are played in each
    environment by the current policy. With `steps_per_execution` of k they are played k
    times after each execution.

    The logs of an epoch get `return_mean` and `length_mean` of the last 100 finished
    episodes (NaN before the first) and `env_steps`.

    Args:
        envs: vector environment.
        store: `EpisodeStore`, or a function that takes a `Trajectory` of NumPy arrays
            `[steps_per_batch, N, ...]`.
        policy: a `tfrl.policies.Policy`, or a function from a nest of observations
            `[N, *shape]` to actions; `FunctionPolicy(function, network=...)` acts by
            the network that is trained. Schedules called in it follow the training.
            None for an `AgentModel`, whose agent knows how to act.
        steps_per_batch: steps in each environment after each step of the optimizer.
        warm_up_steps: steps of experience, over all environments, to be played before
            the first batch is drawn.
        seed: of the environments and of what the policy draws.
        every_batches: plays after every so many optimizer steps, instead of each.

    Raises:
        TypeError: if `envs`, `store`, `policy` or `seed` is something else.
        ValueError: if a number is out of range.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> store = tfrl.replay.EpisodeStore(
        ...     tf.TensorSpec([4]), tf.TensorSpec([], tf.int64), 1000, 2)
        >>> network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> softmax = tfrl.policies.FunctionPolicy(
        ...     lambda q, rng: (q + rng.gumbel(size=q.shape)).argmax(-1), network=network)
        >>> collect = Collect(envs, store, softmax, warm_up_steps=20)
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
        policy: Any = None,
        steps_per_batch: int = 1,
        warm_up_steps: int = 0,
        seed: int = 0,
        every_batches: int = 1,
    ) -> None:
        if not (isinstance(store, episodes.EpisodeStore) or callable(store)):
            raise TypeError(
                "`Collect`: `store` expected an EpisodeStore or a function of a "
                f"Trajectory; got {type(store).__name__}; make one"
            )
        checks.check_whole_number("Collect", "steps_per_batch", steps_per_batch, low=1)
        checks.check_whole_number("Collect", "warm_up_steps", warm_up_steps, low=0)
        super().__init__(
            envs, steps_per_batch, policy, seed=seed, every_batches=every_batches
        )
        self._store, self._warm_up_steps = store, warm_up_steps
        self.settings |= {"store": store, "warm_up_steps": warm_up_steps}
        self._every, self._batches = every_batches, 0

    def before_fit(self, model: Any) -> None:
        """Plays what has to be there before the first batch; `FitModel.fit` calls it.

        Args:
            model: the model that is trained.
        """
        if not self.env_steps:
            self._begin_anew()
        while self.env_steps < self._warm_up_steps:
            self._collect(model)
        self._tell_steps(model)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Plays what `before_fit` would have, in models without it."""
        self.before_fit(self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Plays."""
        self._batches += self._steps_passed(batch)
        due, self._batches = divmod(self._batches, self._every)
        for _ in range(due):
            self._collect(self.model)

    def state(self) -> dict[str, Any]:
        """As in `Rollouts`."""
        return {**super().state(), "batches": self._batches}

    def set_state(self, state: dict[str, Any]) -> None:
        """As in `Rollouts`.

        Args:
            state: what `state()` returned.
        """
        super().set_state(state)
        self._batches = state.get("batches", 0)

    def _begin_anew(self) -> None:
        if isinstance(self._store, episodes.EpisodeStore):
            self._store.cut()

    def _collect(self, model: Any) -> None:
        played = self.trajectory(model)
        if isinstance(self._store, episodes.EpisodeStore):
            _delivery.add_trajectory(self._store, played)
        else:
            self._store(played)


class Rollouts(Playing):
    """Plays a trajectory for every step of `AgentModel.fit`.

    It is data and callback of `fit` at once; the logs get the same as with `Collect`.

    Args:
        envs: vector environment of N.
        n_steps: steps in each environment and trajectory, T.
        policy: as in `Collect`; None for the agent as it is then.
        seed: of the environments and of what the policy draws.

    Raises:
        TypeError: if `envs`, `policy` or `seed` is something else.
        ValueError: if a number is out of range.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> model = tfrl.training.AgentModel.create(
        ...     tfrl.agents.PPO(minibatch_size=8),
        ...     envs.single_observation_space, envs.single_action_space)
        >>> model.compile()
        >>> rollouts = Rollouts(envs, n_steps=8)
        >>> history = model.fit(rollouts, epochs=2, steps_per_epoch=2, verbose=0)
        >>> history.history["env_steps"]
        [32.0, 64.0]
    """

    def __init__(
        self, envs: VectorEnv, n_steps: int = 128, policy: Any = None, seed: int = 0
    ) -> None:
        checks.check_whole_number("Rollouts", "n_steps", n_steps, low=1)
        super().__init__(envs, n_steps, policy, seed=seed)


class Evaluate(_Acting):
    """Plays whole episodes at the end of epochs to judge the policy.

    The logs get `val_return_mean`, `val_return_std` and `val_length_mean`, and
    `val_success_rate` for environments that report `info["is_success"]`, in the epochs
    in which it evaluates: the first, every `every_epochs`-th and the last.

    Args:
        envs: a separate vector environment.
        policy: as in `Collect`; asked for its best actions (temperature 0). None for
            the current agent of an `AgentModel` or a `Trainer`; others stay.
        n_episodes: how many to play.
        every_epochs: epochs between evaluations.
        seed: of the environments and of draws, a new one for each epoch.
        stop_at: ends the training when the mean return is at least this; None does not.

    Raises:
        TypeError: if `envs`, `policy` or `seed` is something else.
        ValueError: if a number is out of range.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> greedy = tfrl.policies.FunctionPolicy(
        ...     lambda q_values, rng: q_values.argmax(-1), network=model)
        >>> evaluate = Evaluate(envs, greedy, n_episodes=4)
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(
        ...     np.ones([8, 4]), np.ones([8, 2]), callbacks=[evaluate], verbose=0)
        >>> sorted(history.history)
        ['loss', 'val_length_mean', 'val_return_mean', 'val_return_std']
    """

    def __init__(
        self,
        envs: VectorEnv,
        policy: Any = None,
        n_episodes: int = 20,
        every_epochs: int = 1,
        seed: int = 0,
        stop_at: float | None = None,
    ) -> None:
        super().__init__(
            policy, seed=seed, n_episodes=n_episodes, every_epochs=every_epochs
        )
        gym_checks.check_vector("Evaluate", "envs", envs)
        self.envs, self._n_episodes = envs, n_episodes
        self._every_epochs, self._stop_at = every_epochs, stop_at
        self.settings["stop_at"] = stop_at

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Evaluates and reports."""
        if not self._is_due(epoch, self._every_epochs):
            return
        seed = self._seed + 1_000_003 * (epoch + 1)
        policy = self._policy()
        played = evaluation.evaluate(policy, self.envs, self._n_episodes, seed=seed)
        if self._stop_at is not None and played.returns.mean() >= self._stop_at:
            self.model.stop_training = True
        if logs is not None:
            for name, number in cadence.judged(played).items():
                logs[name.replace("eval/", "val_", 1)] = number


class RecordVideo(_Acting):
    """Plays an episode at the end of epochs and keeps it as an animated GIF or a video.

    The files are `epoch_0001.gif` and so on: of the first epoch, every
    `every_epochs`-th and the last.

    Args:
        env: one environment, made with `render_mode="rgb_array"`.
        policy: as in `Evaluate`, of a batch of one.
        directory: where to write; made if it does not exist.
        every_epochs: epochs between episodes.
        seed: of the environment and of draws; each episode begins alike.
        ending: what to write, `.gif` or `.mp4`.
        **options: as in `tfrl.summaries.record_episode`.

    Raises:
        TypeError: if `policy` is not a policy.
        ValueError: if `every_epochs` is less than 1, `env` renders no arrays, or
            `ending` is another.

    Example:
        >>> import tempfile
        >>> class Grey(gym.Wrapper):
        ...     render_mode = "rgb_array"
        ...     def render(self):
        ...         return np.full([8, 8, 3], 99, np.uint8)
        >>> folder = tempfile.mkdtemp()
        >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> greedy = tfrl.policies.FunctionPolicy(
        ...     lambda q_values, rng: q_values.argmax(-1), network=model)
        >>> record = RecordVideo(Grey(gym.make("CartPole-v1")), greedy, folder)
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(
        ...     np.ones([8, 4]), np.ones([8, 2]), callbacks=[record], verbose=0)
        >>> os.listdir(folder)
        ['epoch_0001.gif']
    """

    def __init__(
        self,
        env: gym.Env,
        policy: Any,
        directory: str | os.PathLike[str],
        every_epochs: int = 1,
        seed: int = 0,
        ending: str = ".gif",
        **options: Any,
    ) -> None:
        super().__init__(policy, seed=seed, every_epochs=every_epochs)
        checks.check_one_of("RecordVideo", "ending", ending, [".gif", ".mp4"])
        gym_checks.check_renders("RecordVideo", env)
        self.envs, self._ending, self._options = env, ending, options
        self._directory, self._every_epochs = pathlib.Path(directory), every_epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Plays and writes."""
        if not self._is_due(epoch, self._every_epochs):
            return
        rng = np.random.default_rng(self._seed)
        policy, seed = collection.of_one(self._policy(), rng), self._seed
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"epoch_{epoch + 1:04d}{self._ending}"
        video.record_episode(self.envs, path, policy, seed=seed, **self._options)


class Ending(keras.callbacks.Callback):
    """Ends the training after the epoch in which it is asked to.

    Args:
        asked: tells whether to end.

    Attributes:
        epoch: epochs done.
    """

    def __init__(self, asked: Any) -> None:
        super().__init__()
        self._asked, self.epoch = asked, 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Looks."""
        self.epoch = epoch + 1
        if self._asked():
            self.model.stop_training = True
