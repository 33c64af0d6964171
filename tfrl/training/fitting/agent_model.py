"""An agent as a Keras model, trained by `fit`."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, named_arrays
from tfrl.agents import agent as agents
from tfrl.core import records
from tfrl.exporting import export
from tfrl.replay.sampling import transitions
from tfrl.saving import checkpoints
from tfrl.schedules import progress
from tfrl.training import _minibatches, _plan, cadence
from tfrl.training.fitting import _fit_checks, _fit_data, _recipes, fit_callbacks

_COUNTS = "env_steps", "iterations"
_Source = Callable[[Any, int], Iterable[tuple[Any, int]]]


@keras.saving.register_keras_serializable("tfrl")
class AgentModel(_fit_data.OwnFit):
    """A Keras model whose train step is the `update` of an agent.

        agent, info = agent.update(experience)

    Every array of the agent is a weight of the model: parameters, the optimizer's
    moments, targets, normalizers, counters. `save_weights`, `ModelCheckpoint` and
    `BackupAndRestore` save them, and `agent` is made of the current weights. As the
    agent brings its optimizer with it, none of the weights is `trainable`, and
    `compile()` takes neither optimizer nor loss.

    `fit(x)` learns from

    - a `UniformReplay` or `PrioritizedReplay`, with `batch_size` and
      `steps_per_epoch`, which `Collect` fills;
    - `Rollouts(envs, n_steps=T)` with `steps_per_epoch`: a trajectory for each step;
    - whatever else Keras accepts, such as a `tf.data.Dataset` of batches `[B, ...]`:
      dictionaries or `Sample`s, as the agent takes them, or `(observations, actions)`;
      also `Trajectory`s `[T, N, ...]`.

    A step is one of the agent's compiled updates, called from Python: `train_step` is
    not traced, and `jit_compile` affects only `predict`, since agents choose themselves
    what XLA compiles. With `steps_per_execution=K` an update gets K minibatches
    `[K, B, ...]`, which is much faster; K trajectories are learned from one by one.

    The logs are means over the epoch of the scalars in the agent's info, plus, where it
    has no `loss`, the sum of its losses as `loss`, which `TerminateOnNaN` watches.
    Schedules follow the training: "iterations" are minibatches or trajectories,
    "percent" is the share of `epochs * steps_per_epoch`, "env_steps" the steps that
    callbacks played. `Collect`, `Rollouts` and `Evaluate` need no `policy`, and that of
    `RecordVideo` may be None: the agent acts.

    With a `RunCheckpoint` its folder is a run like one of `Trainer`; see there for what
    `tfrl --resume` continues.

    Under a `MirroredStrategy` make agent and model in its scope; the replicas share
    each gradient step as they do in `update`.

    Args:
        agent: such as `DQN().create(...)` returns; see `create` for one that can be
            saved as `.keras`.
        **kwargs: as in `keras.Model`.

    Attributes:
        env_steps: int64 weight, steps of experience so far; callbacks count them.
        iterations: int64 weight, minibatches or trajectories learned from so far.
        recipe: what `create` was given; None if the agent was made before.

    Raises:
        TypeError: if `agent` is not an agent, or holds anything but arrays.
        ValueError: if the strategy in scope has several processes.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> model = AgentModel.create(
        ...     tfrl.agents.PPO(minibatch_size=8),
        ...     envs.single_observation_space, envs.single_action_space)
        >>> model.compile()
        >>> rollouts = tfrl.training.Rollouts(envs, n_steps=8)
        >>> history = model.fit(rollouts, epochs=2, steps_per_epoch=2, verbose=0)
        >>> history.history["env_steps"], int(model.agent.n_updates_done)
        ([32.0, 64.0], 4)
        >>> model.predict(np.zeros([3, 4]), verbose=0).shape
        (3, 2)
    """

    def __init__(self, agent: agents.Agent, **kwargs: Any) -> None:
        _fit_checks.check_strategy(tf.distribute.get_strategy(), "AgentModel")
        policy = getattr(agent, "policy", None)
        is_agent = callable(getattr(agent, "update", None)) and hasattr(policy, "act")
        if isinstance(agent, type) or not is_agent:
            raise TypeError(
                "`AgentModel`: `agent` expected an agent, with `policy` and `update`; "
                f"got {agent!r:.80}; hyper-parameters are for `AgentModel.create`"
            )
        leaves = named_arrays.name_arrays(agent, "agent")
        # Agents know their dtypes; a global policy of mixed precision does not.
        super().__init__(**{"dtype": "float32", "autocast": False, **kwargs})
        self._structure: Any = None
        self.recipe: _recipes.Recipe | None = None
        self._named = {
            name.replace("/", "."): self._weight(name, np.asarray(leaf))
            for name, leaf in leaves.items()
            if leaf is not None
        }
        for name in _COUNTS:
            self._named[name] = self._weight(name, np.array(0, np.int64))
        self.env_steps, self.iterations = (self._named[name] for name in _COUNTS)
        self.agent = agent
        self._source: _Source | None = None
        self._drawn: _minibatches.Minibatches | None = None
        self._first, self._steps, self._total = 0, 0, 0
        self._sums: dict[str, float] = {}
        self._count = 0
        self.built = True

    @classmethod
    def create(
        cls,
        config: agents.AgentConfig,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        name: str | None = None,
        **arguments: Any,
    ) -> Self:
        """Returns the model of a new agent, whose `.keras` files can be loaded.

        A program that loads one must `import tfrl.training` before
        `keras.saving.load_model`; `import tfrl` alone does not register the class.

        Args:
            config: hyper-parameters, such as `DQN()`.
            observation_space: of one environment.
            action_space: of one environment.
            name: of the model.
            **arguments: of `config.create`, such as `seed` and `network`.

        Returns:
            An untrained model.

        Raises:
            TypeError: if `config` makes no agent.
            ValueError: if spaces or arguments do not fit.
        """
        config = _plan.checked_agent(config, "AgentModel.create", "config")
        recipe = _recipes.Recipe(config, observation_space, action_space, arguments)
        return cls._of_recipe(recipe, name)

    @classmethod
    def _of_recipe(cls, recipe: _recipes.Recipe, name: str | None) -> Self:
        model = cls(recipe.made(), name=name)
        model.recipe = recipe
        return model

    @property
    def agent(self) -> Any:
        """The agent with the current weights; another of its structure may be set."""
        values = iter([tf.convert_to_tensor(each.value) for each in self._leaves()])
        flat = tf.nest.flatten(self._structure)
        # Of what is None there is no weight.
        given = [None if leaf is None else next(values) for leaf in flat]
        return tf.nest.pack_sequence_as(self._structure, given)

    @agent.setter
    def agent(self, agent: Any) -> None:
        values = [leaf for leaf in tf.nest.flatten(agent) if leaf is not None]
        found = [tuple(np.shape(value)) for value in values]
        wanted = [tuple(variable.shape) for variable in self._leaves()]
        if found != wanted:
            raise ValueError(
                f"`AgentModel`: `agent` expected {len(wanted)} arrays of the shapes of "
                f"the model's weights; got {len(found)} of other shapes; keep them"
            )
        for variable, value in zip(self._leaves(), values, strict=True):
            variable.assign(value)
        self._structure = tf.nest.map_structure(
            lambda leaf: None if leaf is None else 0, agent
        )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Returns the outputs of the policy's network for observations `[B, *shape]`.

        Keras passes numbers on as float32: float64 observations with large offsets lose
        digits, which `agent.policy` and exported policies keep.

        Raises:
            TypeError: if the policy is no network.
        """
        del training  # Keras hands it on.
        policy = self.agent.policy
        if not hasattr(policy, "outputs"):
            raise TypeError(
                "`AgentModel`: `agent` expected one whose policy is a network, to be "
                f"called; got {type(policy).__name__}; act by `model.agent.policy.act`"
            )
        first = tf.nest.flatten(inputs)[0]
        size = tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
        return policy.outputs(inputs, policy.initial_state(size))[0]

    def compile(
        self,
        optimizer: None = None,
        loss: None = None,
        *,
        steps_per_execution: int = 1,
        jit_compile: Any = "auto",
        **others: None,
    ) -> None:
        """Configures training; the agent determines most of it.

        Args:
            optimizer: None.
            loss: None.
            steps_per_execution: minibatches in one update, K.
            jit_compile: as in Keras, for `predict`.
            **others: nothing; Keras' other arguments are up to the agent.

        Raises:
            TypeError: if there is another argument, such as `optimizer` or `loss`.
            ValueError: if `steps_per_execution` is less than 1.
        """
        names = "AgentModel.compile", "steps_per_execution"
        checks.check_whole_number(*names, steps_per_execution, low=1)
        for name, value in {"optimizer": optimizer, "loss": loss, **others}.items():
            if value is None:
                continue
            raise TypeError(
                f"`AgentModel.compile`: `{name}` expected nothing, since the agent "
                f"has losses, optimizers and updates of its own; got {value!r:.80}; "
                "leave it out"
            )
        super().compile(
            optimizer=None,
            steps_per_execution=steps_per_execution,
            jit_compile=jit_compile,
        )

    _lone_optimizer = (
        "the agent has its own; give the agent's hyper-parameters schedules"
    )

    def _check_fit(self, y: Any, options: Mapping[str, Any]) -> None:  # noqa: ARG002
        _fit_checks.check_agent_options(self, options)

    @contextlib.contextmanager
    def _reading(
        self, x: Any, batch_size: int | None, options: dict[str, Any]
    ) -> Iterator[tuple[Any, int | None, list[Any]]]:
        where = "AgentModel.fit"
        if isinstance(x, transitions.Sample | records.Trajectory):
            raise TypeError(
                f"`{where}`: `x` expected data of several steps; got one "
                f"{type(x).__name__}; take `model.agent.update`, or put it into a "
                "tf.data.Dataset"
            )
        self._source, own = functools.partial(_fit_data.read_experience, self), []
        if isinstance(x, _fit_checks.Replay | fit_callbacks.Rollouts):
            name, given = "steps_per_epoch", x
            _fit_checks.check_replay(where, given, name, options.get(name))
            if isinstance(given, _fit_checks.Replay):
                size = 32 if batch_size is None else batch_size
                drawn = _minibatches.Minibatches(f"`{where}`: `x`", given, size)
                self._source = lambda _, count: [(drawn.drawn(count), count)]
                self._drawn = drawn
            else:
                self._source = lambda _, count: (
                    (given.trajectory(self), 1) for _ in range(count)
                )
                own = [given]
            # Keras counts steps by it, and reads none of it.
            n_replicas = self.distribute_strategy.num_replicas_in_sync
            x = tf.data.Dataset.from_tensors(tf.zeros([n_replicas])).repeat()
            untuned = tf.data.Options()
            # To free the thread that tunes may take a minute.
            untuned.autotune.enabled = False
            x = x.with_options(untuned)
            batch_size = None
        try:
            yield x, batch_size, own
        finally:
            self._source = self._drawn = None

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Refuses: agents are judged by playing.

        Args:
            *args: as in Keras.
            **kwargs: as in Keras.

        Raises:
            ValueError: always.
        """
        del args, kwargs
        raise ValueError(
            "`AgentModel.evaluate`: expected to be asked for nothing, as agents are "
            "judged by playing; use `tfrl.training.evaluate(model.agent.policy, envs, "
            "n_episodes, seed=0)`"
        )

    test_on_batch = evaluate

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Refuses: give a single batch to the agent's `update`.

        Args:
            *args: as in Keras.
            **kwargs: as in Keras.

        Raises:
            ValueError: always.
        """
        del args, kwargs
        raise ValueError(
            "`AgentModel.train_on_batch`: expected to be asked for nothing, as `fit` "
            "knows what came before; use `model.agent, info = model.agent.update(...)`"
        )

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Refuses: the weights are those of a whole agent, which goes on learning.

        Args:
            *args: as in Keras.
            **kwargs: as in Keras.

        Raises:
            ValueError: always.
        """
        del args, kwargs
        raise ValueError(
            "`AgentModel.quantize`: expected to be asked for nothing, as the weights "
            "are those of an agent, which goes on learning; quantize a copy of its "
            "policy, `model.agent.policy.to_keras()`"
        )

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """None: the logs are the agent's info."""
        return []

    def reset_metrics(self) -> None:
        """Resets the means in the logs as an epoch begins."""
        self._sums, self._count = {}, 0

    def make_train_function(self, force: bool = False) -> Any:  # noqa: ARG002
        """Makes what `fit` calls for every execution of steps."""
        self.train_function = self._train

    def train_step(self, data: Any) -> dict[str, float]:
        """Updates the agent, eagerly, with `[K, B, ...]` or a trajectory.

        Args:
            data: the experience, as the agent takes it.

        Returns:
            Its info, without what only replays use.
        """
        with (
            self.distribute_strategy.scope(),
            progress.progress_context(self.progress()),
        ):
            learned = self.agent.update(data)
            self.agent, info = _plan.checked_update(learned, "AgentModel")
        priorities = info.pop("priorities", None)
        if self._drawn is not None:
            self._drawn.learned(priorities)
        return {k: cadence.number("AgentModel", k, x) for k, x in info.items()}

    def progress(self) -> progress.Progress:
        """Returns how far training has come, in numbers.

        Returns:
            The percent is 0 as long as `fit` does not know how many steps there will
            be.
        """
        iterations, env_steps = (
            int(self.iterations.numpy()),
            int(self.env_steps.numpy()),
        )
        done = (iterations - self._first) / self._total if self._total else 0.0
        percent = min(max(done, 0.0), 1.0)
        return progress.Progress(percent, iterations, env_steps, env_steps)

    def save_own_variables(self, store: Any) -> None:
        """Puts all weights into a file, by their places in the agent."""
        for name, variable in self._named.items():
            store[name] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote.

        Raises:
            ValueError: if it is of another agent; no weight has been changed then.
        """
        found = {name: tuple(store[name].shape) for name in store.keys()}  # noqa: SIM118
        named = checkpoints.named_as_saved(self._named, found, self.agent)
        wanted = {name: tuple(x.shape) for name, x in named.items()}
        apart = sorted(
            name for name in {**wanted, **found} if wanted.get(name) != found.get(name)
        )
        if apart:
            raise ValueError(
                "`AgentModel`: weights expected of an agent like this one; got others: "
                f"{', '.join(apart[:3])}; make the agent as it was saved"
            )
        for name, variable in named.items():
            variable.assign(store[name])

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str | None = None,  # noqa: A002
        verbose: Any = None,  # noqa: ARG002
        **options: Any,
    ) -> None:
        """Writes the policy to be served, as `tfrl.exporting.export_policy` does.

        Args:
            filepath: folder to create, or a file with the suffix `.tflite`.
            format: "tf_saved_model", "litert", or None to follow the path.
            verbose: as in Keras; nothing is printed.
            **options: of `export_policy`; its spaces are those of `create` by default.

        Raises:
            ValueError: if the format is not that of the path, or a space is not known;
                this or a TypeError as in `export_policy`.
        """
        is_file = os.fspath(filepath).endswith(".tflite")
        wanted = "litert" if is_file else "tf_saved_model"
        if format not in (None, wanted):
            raise ValueError(
                f"`AgentModel.export`: `format` expected {wanted!r} of such a path, "
                f"'litert' of a .tflite file; got {format!r}"
            )
        for name in ("observation_space", "action_space"):
            options.setdefault(name, getattr(self.recipe, name, None))
            if options[name] is None:
                raise ValueError(
                    f"`AgentModel.export`: `{name}` expected a space of a model that "
                    "was not made by `AgentModel.create`; got None"
                )
        export.export_policy(self, filepath, **options)

    def get_config(self) -> dict[str, Any]:
        """Everything `from_config` needs.

        Raises:
            ValueError: if the model was not made by `create`, or its arguments cannot
                be found again or make another agent.
        """
        if self.recipe is None:
            raise ValueError(
                "`AgentModel`: `agent` expected one that can be made again, to be "
                "saved; got one that was made before; make the model by "
                "`AgentModel.create`, or save the weights alone"
            )
        return {"name": self.name, "recipe": self.recipe.described(self.agent)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Makes the model that `get_config` described, of a new agent."""
        recipe = _recipes.understood(config["recipe"], custom_objects)
        return cls._of_recipe(recipe, config["name"])

    def get_compile_config(self) -> dict[str, Any]:
        """Everything `compile_from_config` needs."""
        if not self.compiled:
            return {}
        return {
            "steps_per_execution": self.steps_per_execution,
            "jit_compile": self.jit_compile,
        }

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles as `get_compile_config` described."""
        self.compile(**config)

    def _train(self, iterator: Any) -> dict[str, float]:
        is_over, most = True, self.steps_per_execution
        if self._steps:
            most = min(most, self._steps - self._count)
        source: Any = self._source
        for experience, count in source(iterator, most):
            for name, value in self.train_step(experience).items():
                self._sums[name] = self._sums.get(name, 0.0) + count * value
            self.iterations.assign_add(count)
            self._count += count
            is_over = False
        if is_over:
            raise StopIteration
        means = {name: total / self._count for name, total in self._sums.items()}
        return _fit_data.with_loss(means)

    def _begin_epoch(self, epoch: int, epochs: int, steps: int) -> None:
        """Sets what share of the training an iteration is."""
        self._first = int(self.iterations.numpy()) - epoch * steps
        self._steps, self._total = steps, epochs * steps

    def _weight(self, name: str, value: np.ndarray) -> Any:
        return self.add_weight(
            name=name.replace("/", "."),
            shape=value.shape,
            dtype=value.dtype.name,
            initializer=lambda shape, dtype: tf.constant(value, dtype, shape),
            trainable=False,
            autocast=False,
        )

    def _leaves(self) -> list[Any]:
        return [x for name, x in self._named.items() if name not in _COUNTS]
