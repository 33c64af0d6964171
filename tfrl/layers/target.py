"""Copies of weights that follow those being trained, and what is done now and then."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrl._internal import adapted_layers, autograph, checks
from tfrl.core import nest
from tfrl.schedules import schedulers

_NAMES = "models", "target_models"


class Periodically(tf.Module):
    """Calls a function at every `period`-th call.

    The calls are counted in a variable, which `tf.train.Checkpoint` saves. In
    `tf.function` and under XLA the function becomes a branch of the graph; in a replica
    of `tf.distribute` it then cannot make replicas talk to each other.

    Args:
        body: function without arguments; what it returns is dropped.
        period: it is called at the calls number `period`, `2 * period`, ...
        name: name of the module.

    Raises:
        TypeError: if `body` cannot be called, or `period` is not an integer.
        ValueError: if `period` is less than 1.

    Example:
        >>> chimes = []
        >>> clock = Periodically(lambda: chimes.append("dong"), period=3)
        >>> for hour in range(7):
        ...     clock()
        >>> chimes
        ['dong', 'dong']
    """

    def __init__(
        self, body: Callable[[], Any], period: int, name: str = "periodically"
    ) -> None:
        super().__init__(name=name)
        if not callable(body):
            kind = "a function without arguments"
            raise checks.wrong_type("Periodically", "body", body, kind)
        self.period = checks.check_whole_number("Periodically", "period", period, low=1)
        self._body = body
        self._calls = _make_count()

    def __call__(self) -> None:
        """Counts a call, and calls `body` if its turn has come."""
        _count(self._calls, self.period, self._body)


class TargetUpdater(tf.Module):
    """Lets the weights of target models follow those of the models being trained.

        target <- (1 - tau) * target + tau * model       at every `period`-th call

    That is for what is trained: weights that are `trainable` in the model or the target
    when the updater is made. All others (statistics of batches, counters) are copied.
    States of random generators stay as they are.

    With `delayed_update` the target becomes what the model was before, `recent`:

        target <- recent                                 at every `period`-th call
        recent <- (1 - tau) * recent + tau * model       then, at every call
        recent <- model                                  instead at `tau=1`, likewise
                                                         at every `period`-th call

    Calls work eagerly, in `tf.function`, under XLA, and in replicas and across replicas
    of a `tf.distribute` strategy in whose scope the updater was made.

    `tf.train.Checkpoint` of the updater saves the count of calls and `recent`, not the
    models.

    Args:
        models: a built Keras layer or model, a `tf.Module`, a variable, or a nest of
            these. Weights they share with the targets stay out of it.
        target_models: the same with as many weights of the same shapes and dtypes.
        tau: share of the new weights in [0, 1]; 1 copies them. Also a function without
            arguments, such as a schedule of `tfrl.schedules`, which is asked at every
            call; one that shall change inside `tf.function` must return a tensor.
        period: calls between updates of the target; the first is the `period`-th.
        init_copy: whether to copy the models to the targets at once.
        delayed_update: whether the targets become the recent models.
        name: name of the module.

    Raises:
        TypeError: if a model is something else, or `period` is not an integer.
        ValueError: if a number is out of range, a layer is not built, the weights do
            not fit together or are the same ones, or variables of a strategy come
            without its scope.

    Example:
        >>> weight, target = tf.Variable(8.0), tf.Variable(0.0)
        >>> update = TargetUpdater(weight, target, tau=0.5, init_copy=False)
        >>> for _ in range(3):
        ...     update()
        >>> target.numpy()
        np.float32(7.0)

    References:
        Mnih et al., 2015, Human-Level Control through Deep Reinforcement Learning:
        copies at intervals. Lillicrap et al., 2016, Continuous Control with Deep
        Reinforcement Learning: slow averages.
    """

    def __init__(
        self,
        models: Any,
        target_models: Any,
        tau: Any = 1.0,
        period: int = 1,
        init_copy: bool = True,
        delayed_update: bool = False,
        name: str = "TargetUpdater",
    ) -> None:
        super().__init__(name=name)
        where = "TargetUpdater"
        if not callable(tau):
            checks.check_within(where, "tau", tau, 0.0, 1.0)
        self.period = checks.check_whole_number(where, "period", period, low=1)
        pairs = _paired(
            _weights("models", models), _weights("target_models", target_models)
        )
        # Behind a function: a checkpoint would take in the models.
        self._given = functools.partial(tuple, (models, target_models))
        self._known = [{id(x) for x in _weights("models", y)} for y in self._given()]
        self._pairs: Callable[[], list[_Pair]] = functools.partial(list, pairs)
        self.tau, self.delayed_update = tau, delayed_update
        self._copies = not callable(tau) and tau == 1.0
        self._rate = schedulers.as_scheduler(tau)
        if init_copy:
            for pair in pairs:
                pair.target.assign(pair.model)
            for target in tf.nest.flatten(target_models):
                if isinstance(target, keras.layers.Layer):
                    adapted_layers.renew(target)
        self._recent = [
            tf.Variable(tf.convert_to_tensor(pair.model), trainable=False)
            for pair in pairs
            if delayed_update
        ]
        self._calls = _make_count()
        _check_scope(self._calls, [pair.target for pair in pairs])
        self._compiled: Any = None

    @property
    def models(self) -> Any:
        """The models, as they were given."""
        return self._given()[0]

    @property
    def target_models(self) -> Any:
        """The targets, as they were given."""
        return self._given()[1]

    def __call__(self) -> None:
        """Counts a call, and updates what is to be updated at it.

        Raises:
            ValueError: if a model has got other weights, as by `enable_lora`.
        """
        for name, models, known in zip(_NAMES, self._given(), self._known, strict=True):
            if {id(weight) for weight in _weights(name, models)} != known:
                raise _changed(name, models, known)
        rate = self._rate()
        # Python's floats shall not make a detour over float32.
        given = tf.is_tensor(rate)
        rate = tf.cast(rate, tf.float64) if given else tf.constant(rate, tf.float64)
        replicas = tf.distribute.has_strategy()
        if tf.inside_function() or (
            replicas and not tf.distribute.in_cross_replica_context()
        ):
            self._update(rate)
            return
        if self._compiled is None:  # one call instead of several for each weight
            function = tf.function(self._update, autograph=False)
            self._compiled = function.get_concrete_function(
                tf.TensorSpec([], tf.float64)
            )
        self._compiled(rate)

    def _update(self, rate: tf.Tensor) -> None:
        _count(self._calls, self.period, lambda: self._update_targets(rate))
        if self.delayed_update and not self._copies:
            self._follow(self._recent, rate)

    def _update_targets(self, rate: tf.Tensor) -> None:
        targets = [pair.target for pair in self._pairs()]
        if not self.delayed_update:
            self._follow(targets, rate)
            return
        for target, recent in zip(targets, self._recent, strict=True):
            _own(target).assign(recent)
        if self._copies:
            self._follow(self._recent, rate)

    def _follow(self, followers: list[Any], rate: tf.Tensor) -> None:
        for pair, follower in zip(self._pairs(), followers, strict=True):
            new = tf.convert_to_tensor(pair.model)
            if pair.trained and not self._copies:
                old = tf.convert_to_tensor(follower)
                new = old + tf.cast(rate, old.dtype) * (new - old)
            _own(follower).assign(new)


class _Pair(NamedTuple):
    model: Any
    target: Any
    trained: bool


def _own(variable: Any) -> Any:
    """Returns a replica's own copy of a variable, elsewhere the variable.

    Replicas compute the same. Where they had to agree first, as `aggregation` has it,
    no branch of a graph could assign.
    """
    context = tf.distribute.get_replica_context()
    value = variable.value if isinstance(variable, keras.Variable) else variable
    copied = isinstance(value, tf.distribute.DistributedValues)
    if context is None or not (copied and tf.distribute.has_strategy()):
        return variable
    index = tf.get_static_value(context.replica_id_in_sync_group)
    if index is None:  # all replicas of TPUs are one graph, in which they may agree
        return variable
    copies = context.strategy.experimental_local_results(value)
    return copies[index % len(copies)]


def _make_count() -> tf.Variable:
    # Each replica of a strategy counts its own calls; they are all the same.
    return tf.Variable(0, trainable=False, dtype=tf.int64, name="calls")


def _count(calls: tf.Variable, period: int, body: Callable[[], Any]) -> None:
    """Counts a call; every `period`-th one calls `body`."""
    body = autograph.as_the_caller(body)

    def run() -> None:
        body()

    number = calls.assign_add(1)
    if period == 1:
        run()
    else:
        tf.cond(number % period == 0, run, lambda: None)


def _weights(name: str, models: Any) -> list[Any]:
    """Returns the weights of a nest of models, each once."""
    found: list[Any] = []
    for model in tf.nest.flatten(models):
        if isinstance(model, keras.layers.Layer):
            if not model.built:
                raise ValueError(
                    f"`TargetUpdater`: `{name}` expected built layers; got "
                    f"{model.name!r} without its weights; call it once on a batch"
                )
            found += model.weights
        elif isinstance(model, tf.Variable | keras.Variable):
            found.append(model)
        elif isinstance(model, tf.Module):
            found += [variable for _, variable in nest.get_all_parameters(model)]
        else:
            kinds = "Keras layers, `tf.Module`s, variables or a nest of these"
            raise checks.wrong_type("TargetUpdater", name, model, kinds)
    return list({id(weight): weight for weight in found}.values())


def _changed(name: str, models: Any, known: set[int]) -> ValueError:
    """The error of models whose weights are not those that were known."""
    layers = [x for x in tf.nest.flatten(models) if isinstance(x, keras.layers.Layer)]
    inner = [y for x in layers for y in x._flatten_layers()]
    new = [x.name for x in inner if any(id(y) not in known for y in x.weights)]
    found = f"new ones in {new[-1]!r}" if new else "fewer"
    return ValueError(
        f"`TargetUpdater`: `{name}` expected the weights that were there when it was "
        f"made; got {found}, as by `enable_lora` or `quantize`; make another updater, "
        "with a target that was changed alike"
    )


def _paired(weights: list[Any], targets: list[Any]) -> list[_Pair]:
    where = "TargetUpdater"
    if len(weights) != len(targets):
        raise ValueError(
            f"`{where}`: `target_models` expected {len(weights)} weights as `models` "
            f"have; got {len(targets)}"
        )
    for index, (weight, target) in enumerate(zip(weights, targets, strict=True)):
        wanted, got = (
            f"{tf.as_dtype(each.dtype).name} of shape {list(each.shape)}"
            for each in (weight, target)
        )
        if wanted != got:
            raise ValueError(
                f"`{where}`: `target_models` expected {wanted} for weight {index} "
                f"({weight.name}), as in `models`; got {got} ({target.name})"
            )
    pairs = [
        _Pair(weight, target, bool(weight.trainable or target.trainable))
        for weight, target in zip(weights, targets, strict=True)
        if weight is not target
    ]
    if not pairs:
        hollow = (
            "call each model once on a batch: `build` makes none in subclassed ones"
        )
        shared = "build the models twice, `keras.models.clone_model` does it"
        raise ValueError(
            f"`{where}`: `target_models` expected weights of their own; got "
            f"{'those of `models`' if weights else 'none'}; "
            f"{shared if weights else hollow}"
        )
    return pairs


def _check_scope(count: tf.Variable, weights: list[Any]) -> None:
    """Raises if weights have a copy per replica and the count has not."""
    for weight in weights:
        value = weight.value if isinstance(weight, keras.Variable) else weight
        if isinstance(value, tf.distribute.DistributedValues) and not isinstance(
            count, tf.distribute.DistributedValues
        ):
            raise ValueError(
                "`TargetUpdater`: `target_models` of a `tf.distribute` strategy "
                "expected its scope; got a call outside; make the updater in "
                "`with strategy.scope():`"
            )
