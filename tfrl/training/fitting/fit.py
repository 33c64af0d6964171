"""An agent inside `keras.Model.fit`.

`FitModel` takes a network and a loss; Keras does the rest. What an agent needs beyond a
data set comes as callbacks: `Collect`, `Rollouts`, `Evaluate`, `RunCheckpoint`.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.layers import target
from tfrl.replay.sampling import prioritized
from tfrl.schedules import progress
from tfrl.training.fitting import (
    _fit_checks,
    _fit_data,
    _fit_losses,
    _recipes,
    fit_callbacks,
)

_REDUCTIONS = ("sum_over_batch_size", "mean_with_sample_weight")


@keras.saving.register_keras_serializable("tfrl")
class FitModel(_fit_data.OwnFit):
    """Trains a network with any loss of a batch, through Keras' `fit`.

        loss = mean over the batch of weights * loss_fn(model, batch)
               + regularization losses of the network

    `compile(optimizer, metrics=..., jit_compile=..., steps_per_execution=...)` and
    `fit(data, epochs, steps_per_epoch, callbacks, validation_data)` are Keras' own
    except for this:

    - `loss_fn` gets what the data set gives: a nest, or `x` or `(x, y)` of Keras'
      tuples `(x, y, sample_weight)`. Sample weights multiply its losses; so do those of
      a replay's `Sample`. The mean is that of the global batch on any strategy.
    - Every report of `loss_fn` is in the logs under its name (those in nests joined by
      `_`): its weighted mean over the epoch. What `td_loss` reports for each element,
      `priorities` and `errors`, is for replays and not in the logs.
      `compile(metrics={name: ...})` makes Keras metrics of any report instead; a report
      that is a pair is `(y_true, y_pred)` to them.
    - `fit` takes a `UniformReplay` or `PrioritizedReplay` for data, with `batch_size`
      and `steps_per_epoch`. Each batch is drawn when its step begins, after all
      callbacks; priorities are updated by what `loss_fn` reports as `priorities`.
    - Schedules of `tfrl.schedules` that `loss_fn` calls without an argument follow the
      training, step by step: "iterations" are those of the optimizer, "percent" is
      the share of `epochs * steps_per_epoch`, "env_steps" the steps that callbacks
      collected.
    - A target network is updated after every step, inside the compiled function.

    Several networks may each have a loss and an optimizer, under the same names:

        FitModel({"actor": a, "critic": c}, {"actor": loss_a, "critic": loss_c})
        compile({"actor": keras.optimizers.Adam(3e-4), "critic": "adam"})

    A loss may call all of them, but moves only the weights of its own network: all
    gradients are taken at the weights before the step. A network without a loss stays
    as it is. The logs then have `actor_loss`, `critic_loss`, reports such as
    `critic_td_error`, and `loss`, the sum.

    A program that loads a `.keras` file of a `FitModel` must `import tfrl.training`
    before `keras.saving.load_model`; `import tfrl` alone does not register the class.

    The losses are computed in float32 at least; under mixed precision end the network
    in a float32 layer, as always with Keras.

    Args:
        network: a built Keras layer or model, or a dict of them. `model(x)`,
            `predict` and `export` are those of a single one.
        loss_fn: function of this model and a batch that returns `LossInfo`, or a loss
            per element `[B, ...]`, or both a loss and a nest of reports. An argument
            `training`, if it has one, says whether the network is being trained. A dict
            of such functions, by name of network, trains each network with its own.
        target_updater: of the network; its targets are saved with the model and get
            no gradient (they become not `trainable`).
        reduction: "sum_over_batch_size" divides by the number of losses,
            "mean_with_sample_weight" by the sum of their weights.
        **kwargs: as in `keras.Model`.

    Attributes:
        network: as given.
        target_network: what `target_updater` updates, or None.
        env_steps: int64 variable, steps of experience so far; callbacks count them.

    Raises:
        TypeError: if an argument is something else.
        ValueError: if a network is not built, `reduction` is neither of the two, a loss
            belongs to no network, networks with losses of their own share weights, or
            the strategy in scope has several processes.

    Example:
        >>> network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> def loss_fn(model, batch):
        ...     q_values = model.network(batch["observations"])
        ...     q_values = tfrl.losses.q_taken(q_values, batch["actions"])
        ...     return tfrl.losses.td_loss(q_values, batch["returns"])
        >>> model = FitModel(network, loss_fn)
        >>> model.compile(keras.optimizers.Adam(1e-2))
        >>> data = tf.data.Dataset.from_tensors({
        ...     "observations": tf.ones([8, 4]), "actions": tf.zeros([8], tf.int32),
        ...     "returns": tf.ones([8])}).repeat()
        >>> history = model.fit(data, epochs=2, steps_per_epoch=5, verbose=0)
        >>> sorted(history.history)
        ['loss']
    """

    def __init__(
        self,
        network: Any,
        loss_fn: Callable[..., Any] | Mapping[str, Callable[..., Any]],
        target_updater: target.TargetUpdater | None = None,
        reduction: str = "sum_over_batch_size",
        **kwargs: Any,
    ) -> None:
        _fit_checks.check_strategy(tf.distribute.get_strategy())
        _fit_checks.check_network(network)
        losses = _fit_losses.checked_losses(network, loss_fn)
        _fit_losses.check_updater(target_updater, network)
        checks.check_one_of("FitModel", "reduction", reduction, _REDUCTIONS)
        first = tf.nest.flatten(network)[0]
        # The network decides what is rounded; a loss scale goes by its policy.
        super().__init__(**{"dtype": first.dtype_policy, "autocast": False, **kwargs})
        self.network = network
        self.loss_fn = loss_fn
        self.target_updater = target_updater
        self.reduction = reduction
        self.target_network = None
        if target_updater is not None:
            for layer in tf.nest.flatten(target_updater.target_models):
                if isinstance(layer, keras.layers.Layer):
                    layer.trainable = False
            self.target_network = target_updater.target_models
        self._reports = _fit_losses.Reports()
        # By the name of what they train; "" is everything.
        self._loss_fns = losses
        self.optimizers: dict[str, Any] = {}
        self._counts = tuple(
            tf.Variable(0, trainable=False, dtype=tf.int64, name=name)
            for name in ("env_steps", "first_iteration", "total_iterations")
        )
        self.env_steps = self._counts[0]
        self._ledger: _fit_data.PriorityLedger | None = None
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Calls the network."""
        del training  # Keras hands it on.
        if not isinstance(self.network, keras.layers.Layer):
            raise ValueError(
                "`FitModel`: `network` expected a single one to be called; got "
                f"{sorted(self.network)}; call the one you mean"
            )
        return self.network(inputs)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The mean loss, and what is made of the reports of `loss_fn`."""
        return [*super().metrics, *self._reports.active()]

    def compile(
        self,
        optimizer: Any = "rmsprop",
        metrics: Mapping[str, Any] | None = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: Any = "auto",
        auto_scale_loss: bool = True,
        **others: None,
    ) -> None:
        """Configures training; the loss is known already.

        Args:
            optimizer: as in Keras; with several losses a dict with one for each, or the
                name of one, of which each loss gets its own instance.
            metrics: names of reports of `loss_fn` to a Keras metric or a list of them,
                instead of the report's mean. A metric of one operand gets the report;
                one of two gets a report that is a pair `(y_true, y_pred)`. Both get the
                weights.
            run_eagerly: as in Keras.
            steps_per_execution: as in Keras.
            jit_compile: as in Keras: "auto" compiles by XLA where there is a GPU.
            auto_scale_loss: as in Keras.
            **others: nothing; `loss_fn` replaces Keras' other arguments.

        Raises:
            TypeError: if `metrics` is no dict of metrics, `optimizer` None or not what
                the losses need, or there is another argument, such as `loss`.
        """
        _fit_checks.check_compilation(metrics, others)
        names = "FitModel.compile", "steps_per_execution"
        checks.check_whole_number(*names, steps_per_execution, low=1)
        first, *further = self._loss_fns
        given = _checked_optimizers([first, *further], optimizer)
        if further:
            self._lone_optimizer = (
                f"there is one for each of {[*self._loss_fns]}; give each optimizer a "
                "schedule as its learning rate"
            )
        super().compile(
            optimizer=given[first],
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution,
            jit_compile=jit_compile,
            auto_scale_loss=auto_scale_loss,
        )
        with self.distribute_strategy.scope():
            self._reports = _fit_losses.Reports(metrics)
            self.optimizers = {first: self.optimizer}
            for name in further:
                made = keras.optimizers.get(given[name])
                if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
                    made = keras.optimizers.LossScaleOptimizer(made)
                self.optimizers[name] = made
            for name, each in self.optimizers.items():
                each.build(self._trained(name).trainable_variables)

    def _check_fit(self, y: Any, options: Mapping[str, Any]) -> None:
        _fit_checks.check_weights("FitModel.fit", y, options)

    @contextlib.contextmanager
    def _reading(
        self, x: Any, batch_size: int | None, options: dict[str, Any]
    ) -> Iterator[tuple[Any, int | None, list[Any]]]:
        where, own = "FitModel.fit", []
        if isinstance(x, fit_callbacks.Playing):
            raise TypeError(
                f"`{where}`: `x` expected data, or a replay; got {type(x).__name__}; "
                "what learns from trajectories is an agent, in `AgentModel.fit`"
            )
        if isinstance(x, prioritized.PrioritizedReplay):
            own = [_fit_data.PriorityLedger(self, x, batch_size or 32)]
            self._use(own[0])
        try:
            if isinstance(x, _fit_checks.Replay):
                steps = options.get("steps_per_epoch")
                x = _fit_data.drawn(where, x, batch_size, "steps_per_epoch", steps)
                batch_size = None
            validation = options.get("validation_data")
            if isinstance(validation, _fit_checks.Replay):
                size = options.pop("validation_batch_size", None)
                steps = options.get("validation_steps")
                options["validation_data"] = _fit_data.drawn(
                    where, validation, size, "validation_steps", steps
                )
            yield x, batch_size, own
        finally:
            self._use(None)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Computes losses and reports without training; see `keras.Model.evaluate`.

        Args:
            x: data as Keras takes it, or a replay, with `batch_size` and `steps`.
            *args: as in Keras.
            **kwargs: as in Keras.

        Returns:
            As in Keras.
        """
        _fit_checks.check_strategy(self.distribute_strategy)
        _fit_checks.check_weights(
            "FitModel.evaluate", args[:1] or kwargs.get("y"), kwargs
        )
        if isinstance(x, _fit_checks.Replay):
            size = kwargs.pop("batch_size", None)
            steps = kwargs.get("steps")
            x = _fit_data.drawn("FitModel.evaluate", x, size, "steps", steps)
        with self._testing():
            return super().evaluate(x, *args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Computes losses and reports of one batch; see `keras.Model.test_on_batch`.

        Args:
            *args: as in Keras.
            **kwargs: as in Keras.

        Returns:
            As in Keras.
        """
        with self._testing():
            return super().test_on_batch(*args, **kwargs)

    @contextlib.contextmanager
    def _testing(self) -> Iterator[None]:
        """Lets the metrics be those of tests."""
        before, self._reports.phase = self._reports.phase, _fit_losses.TESTING
        try:
            yield
        finally:
            self._reports.phase = before

    def train_step(self, data: Any) -> dict[str, Any]:
        """Takes one step of the optimizer; `fit` compiles it."""
        with progress.progress_context(self.progress()):
            batch = _fit_data.unpacked(data)
            parts, gradients = {}, {}
            for name, optimizer in self.optimizers.items():
                with tf.GradientTape() as tape:
                    parts[name] = self._part(name, batch, training=True)
                    loss = optimizer.scale_loss(parts[name].share)
                weights = self._trained(name).trainable_weights
                gradients[name] = tape.gradient(loss, weights)
            self._tell(parts, _fit_losses.TRAINING)
            if self._ledger is not None:
                told = [x.extra for x in parts.values()]
                self._ledger.write(*_fit_data.priorities(batch[0], *told))
            # Else one step in a few thousand takes the gradient of an early layer
            # through weights of a later one that were updated already.
            flat = [g for each in gradients.values() for g in each if g is not None]
            with tf.control_dependencies(flat):
                for name, optimizer in self.optimizers.items():
                    self._apply(name, optimizer, gradients[name])
            if self.target_updater is not None:
                self.target_updater()
        return self.get_metrics_result()

    def test_step(self, data: Any) -> dict[str, Any]:
        """Computes losses and reports of one batch; `evaluate` compiles it."""
        with progress.progress_context(self.progress()):
            batch = _fit_data.unpacked(data)
            parts = {x: self._part(x, batch, training=False) for x in self._loss_fns}
            self._tell(parts, _fit_losses.TESTING)
        return self.get_metrics_result()

    def progress(self) -> progress.Progress:
        """Returns how far training has come.

        Returns:
            Numbers; inside `tf.function` tensors, which are read at each step. The
            percent is 0 as long as `fit` does not know how many steps there will be.
        """
        env_steps, first, total = (tf.convert_to_tensor(each) for each in self._counts)
        iterations = self._iterations()
        done = tf.cast(self._iterations(of_batches=True) - first, tf.float32)
        percent = tf.math.divide_no_nan(done, tf.cast(total, tf.float32))
        percent = tf.clip_by_value(percent, 0.0, 1.0)
        numbers: list[Any] = [percent, iterations, env_steps, env_steps]
        if tf.executing_eagerly():
            numbers = [each.numpy().item() for each in numbers]
        return progress.Progress(*numbers)

    def _iterations(self, of_batches: bool = False) -> tf.Tensor:
        """Returns the steps taken, or the batches that an optimizer gathered for them.

        The optimizer of a frozen network takes none.
        """
        counts = []
        for each in (self.optimizer, *self.optimizers.values()):
            count = tf.cast(tf.convert_to_tensor(each.iterations), tf.int64)
            inner = getattr(each, "inner_optimizer", each)
            gathered = inner.gradient_accumulation_steps if of_batches else None
            counts.append(count * (gathered or 1))
        return tf.reduce_max(counts)

    def _trained(self, name: str) -> Any:
        """Returns the network that a loss trains."""
        return self.network[name] if name else self

    def _apply(self, name: str, optimizer: Any, gradients: list[Any]) -> None:
        """Moves the weights of a network, or warns, as Keras does, if it has none."""
        weights = self._trained(name).trainable_weights
        if weights:
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
        else:
            which = f"network {name!r}" if name else "model"
            warnings.warn(
                f"The {which} does not have any trainable weights.", stacklevel=2
            )

    def _part(
        self, name: str, batch: tuple[Any, Any], *, training: bool
    ) -> _fit_losses.Part:
        """Returns this replica's part of a loss of a batch with weights."""
        data, weights = batch
        told = _fit_losses.told(self._loss_fns[name], self, data, training)
        network = self.network[name] if name else self.network
        over_weights = self.reduction == "mean_with_sample_weight"
        return _fit_losses.part(told, weights, data, network, over_weights=over_weights)

    def _tell(self, parts: Mapping[str, _fit_losses.Part], phase: str) -> None:
        """Puts what the losses told into the logs."""
        first = next(iter(parts.values()))
        total = tf.add_n([x.mean for x in parts.values()])
        tracker = next(each for each in self.metrics if each.name == "loss")
        tracker.update_state(total, sample_weight=first.total)
        extra = _fit_losses.joined({n: (x.mean, x.extra) for n, x in parts.items()})
        self._reports.update(phase, extra, first.weights, first.total)

    def _begin_epoch(self, epoch: int, epochs: int, steps: int) -> None:
        """Sets what share of the training an iteration is."""
        self._counts[1].assign(self._iterations(of_batches=True) - epoch * steps)
        self._counts[2].assign(epochs * steps)

    def _use(self, ledger: _fit_data.PriorityLedger | None) -> None:
        if ledger is not self._ledger:
            # What is traced writes into the ledger of its time.
            self._ledger, self.train_function = ledger, None

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Exports the network; see `keras.Model.export`.

        Args:
            filepath: as in Keras.
            *args: as in Keras.
            **kwargs: as in Keras.
        """
        if isinstance(self.network, keras.Model):
            self.network.export(filepath, *args, **kwargs)
        else:
            super().export(filepath, *args, **kwargs)

    def own_variables(self) -> dict[str, tf.Variable]:
        """Returns the model's state that is not a weight of a layer, by name."""
        updater = self.target_updater
        kept = () if updater is None else updater.variables
        targets = {f"target_{index}": each for index, each in enumerate(kept)}
        return {"env_steps": self.env_steps, **targets}

    def save_own_variables(self, store: Any) -> None:
        """Puts the count of steps and the state of the target updater into a file."""
        for name, variable in self.own_variables().items():
            store[name] = tf.convert_to_tensor(variable).numpy()

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote."""
        for name, variable in self.own_variables().items():
            variable.assign(store[name])

    def get_config(self) -> dict[str, Any]:
        """Everything `from_config` needs.

        Raises:
            ValueError: if the target updater belongs to other models than the network,
                or a function or class is not registered and could not be loaded.
        """
        given = {
            "network": self.network,
            "loss_fn": self.loss_fn,
            "target_updater": _recipes.updater_config(
                self.target_updater, self.network
            ),
            "reduction": self.reduction,
        }
        return super().get_config() | _recipes.described_as(given)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Makes the model that `get_config` described."""
        given = keras.saving.deserialize_keras_object(
            config, custom_objects=custom_objects
        )
        if given["target_updater"] is not None:
            given["target_updater"] = target.TargetUpdater(
                given["network"], init_copy=False, **given["target_updater"]
            )
        return cls(**given)

    def get_compile_config(self) -> dict[str, Any]:
        """Everything `compile_from_config` needs."""
        config = super().get_compile_config()
        if not config:
            return config
        names = ("optimizer", "run_eagerly", "steps_per_execution", "jit_compile")
        kept = {name: config[name] for name in names}
        if "" not in self.optimizers:
            kept["optimizer"] = dict(self.optimizers)
        return _recipes.described_as({**kept, "metrics": self._reports.given})

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles as `get_compile_config` described."""
        self.compile(**keras.saving.deserialize_keras_object(config))


def _checked_optimizers(names: list[str], given: Any) -> dict[str, Any]:
    """Returns an optimizer, or what Keras makes one of, for each of the losses."""
    where = "FitModel.compile"
    if given is None:
        raise TypeError(
            f"`{where}`: `optimizer` expected a Keras optimizer or the name of one; "
            "got None; leave it out for the default"
        )
    is_lone = names == [""]
    is_dict = isinstance(given, Mapping) and "class_name" not in given
    if not is_dict and (is_lone or isinstance(given, str)):
        return dict.fromkeys(names, given)
    # A name makes a new one each time.
    found = [x for x in given.values() if not isinstance(x, str)] if is_dict else []
    if {*names} != ({*given} if is_dict else {}) or len({*map(id, found)}) < len(found):
        wanted = f"a dict with one of its own for each of {sorted(names)}"
        wanted = "one for all networks" if is_lone else wanted
        got = f"a dict of {sorted(given)}" if is_dict else f"one {type(given).__name__}"
        raise TypeError(
            f"`{where}`: `optimizer` expected {wanted}; got {got}; give each loss its "
            "own"
        )
    return {name: given[name] for name in names}
