"""What losses of a `FitModel` are, and what they tell: weighted, named, as means."""

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrl.core import records
from tfrl.layers import target
from tfrl.ops import tensors

TRAINING, TESTING = "training", "testing"


def check_updater(updater: Any, network: Any) -> None:
    """Raises unless it is None, or updates targets of what is in the network."""
    if not isinstance(updater, target.TargetUpdater | None):
        raise TypeError(
            "`FitModel`: `target_updater` expected a TargetUpdater or None; got "
            f"{type(updater).__name__}; make one of network and target"
        )
    known = {id(x) for layer in tf.nest.flatten(network) for x in layer.variables}
    for model in [] if updater is None else tf.nest.flatten(updater.models):
        if not {id(x) for x in getattr(model, "variables", [model])} <= known:
            raise ValueError(
                "`FitModel`: `target_updater` expected one of models in `network`; got "
                f"one of {getattr(model, 'name', model)!r}, which is not there and "
                "would never move; make one of network and target"
            )


def checked_losses(network: Any, loss_fn: Any) -> dict[str, Any]:
    """Returns losses by the names of the networks that they train; "" trains all."""
    if not isinstance(loss_fn, Mapping):
        _check_loss(loss_fn)
        return {"": loss_fn}
    known = [*network] if isinstance(network, Mapping) else []
    unknown = [name for name in loss_fn if name not in known or not name]
    if unknown or not loss_fn:
        raise ValueError(
            "`FitModel`: `loss_fn` expected losses by names of networks, "
            f"{known or 'of which a single one has none'}; got {[*loss_fn]}; name them "
            "alike"
        )
    owners: dict[int, str] = {}
    for name, loss in loss_fn.items():
        _check_loss(loss)
        for weight in network[name].trainable_variables:
            if owners.setdefault(id(weight), name) != name:
                raise ValueError(
                    "`FitModel`: `network` expected networks of which each weight has "
                    f"one optimizer; got {weight.path!r} in {owners[id(weight)]!r} and "
                    f"{name!r}; give what they share a loss of its own, or one loss to "
                    "all"
                )
    return dict(loss_fn)


def _check_loss(loss_fn: Any) -> None:
    """Raises unless it is a function that is not one of labels and predictions."""
    if not callable(loss_fn):
        raise TypeError(
            "`FitModel`: `loss_fn` expected a function of the model and a batch; "
            f"got {loss_fn!r}; define one"
        )
    if [*inspect.signature(loss_fn).parameters][:2] == ["y_true", "y_pred"]:
        raise TypeError(
            "`FitModel`: `loss_fn` expected a function of the model and a batch that "
            f"returns a loss per element; got {loss_fn!r:.80}, which takes `y_true` "
            "and `y_pred`; define one that calls the model and then this loss, without "
            "its reduction"
        )


def told(loss_fn: Any, model: Any, batch: Any, training: bool) -> tuple[Any, Any]:
    """Returns losses, float32 at least, and reports, as a loss tells them."""
    before = len(model.trainable_variables)
    takes_training = "training" in inspect.signature(loss_fn).parameters
    options = {"training": training} if takes_training else {}
    try:
        result = loss_fn(model, batch, **options)
    except TypeError as error:
        narrow = re.search("b?float16", str(error))
        if narrow is None or all(x.dtype == narrow[0] for x in model.weights):
            raise
        raise TypeError(
            "`FitModel`: `network` expected to end in a float32 layer, such as "
            f"Dense(..., dtype='float32'), under mixed_{narrow[0]}; got outputs of "
            f"{narrow[0]}: {error}"
        ) from error
    if len(model.trainable_variables) > before:
        raise ValueError(
            "`FitModel`: `network` expected one that has all its weights; got one "
            "that makes some when it is first called; call it once on a batch before"
        )
    is_pair = isinstance(result, records.LossInfo) or (
        type(result) is tuple and len(result) == 2
    )
    losses, extra = result if is_pair else (result, ())
    if isinstance(losses, records.LossInfo | tuple | list | dict) or losses is None:
        raise TypeError(
            "`FitModel`: `loss_fn` expected to return a loss per element, or it and a "
            f"nest of reports; got {type(result).__name__}; return "
            "LossInfo(loss, extra)"
        )
    losses = tf.convert_to_tensor(losses)
    if not losses.dtype.is_floating:
        raise TypeError(
            f"`FitModel`: `loss_fn` expected floating losses; got {losses.dtype}; "
            "convert them"
        )
    return losses if losses.dtype == tf.float64 else tf.cast(losses, tf.float32), extra


class Part(NamedTuple):
    """A loss of a batch on a replica.

    Attributes:
        mean: `[]`, over the batch, with what the network's layers add by themselves.
        share: `[]`, the part of the mean over the global batch: the sum over replicas
            is that mean.
        weights: one for each loss.
        total: `[]`, weight of the batch in a mean over batches.
        extra: what the loss reported.
    """

    mean: tf.Tensor
    share: tf.Tensor
    weights: tf.Tensor
    total: tf.Tensor
    extra: Any


def part(
    told: tuple[tf.Tensor, Any],
    weights: Any,
    batch: Any,
    network: Any,
    *,
    over_weights: bool,
) -> Part:
    """Returns means of losses that were `told`, and their weights; see `FitModel`."""
    losses, extra = told
    dtype = losses.dtype
    if losses.shape.rank == 0:
        if weights is not None:
            raise ValueError(
                "`FitModel`: `loss_fn` expected to return a loss per element of a "
                "batch with weights; got a single number; leave the mean to "
                "`FitModel`"
            )
        weights, total = tf.ones_like(losses), tf.cast(_batch_size(batch), dtype)
        summed = losses * total
    else:
        weights = _weights_for(losses, weights)
        summed = tf.reduce_sum(losses * weights)
        total = tf.cast(tf.size(losses), dtype)
        total = tf.reduce_sum(weights) if over_weights else total
    layers = tf.nest.flatten(network)
    added = [tf.cast(x, dtype) for layer in layers for x in layer.losses]
    penalty = tf.add_n(added) if added else tf.zeros([], dtype)
    context = tf.distribute.get_replica_context()
    n_replicas = 1 if context is None else context.num_replicas_in_sync
    everywhere = total
    if n_replicas > 1:
        everywhere = context.all_reduce(tf.distribute.ReduceOp.SUM, total)
    return Part(
        tf.math.divide_no_nan(summed, total) + penalty,
        tf.math.divide_no_nan(summed, everywhere) + penalty / n_replicas,
        weights,
        total,
        extra,
    )


def _batch_size(batch: Any) -> tf.Tensor:
    leaves = [tf.convert_to_tensor(x) for x in tf.nest.flatten(batch) if x is not None]
    sizes = [tf.shape(leaf)[0] for leaf in leaves if leaf.shape.rank != 0]
    return sizes[0] if sizes else tf.constant(1)


def _weights_for(losses: tf.Tensor, weights: Any) -> tf.Tensor:
    if weights is None:
        return tf.ones_like(losses)
    weights = tf.cast(weights, losses.dtype)
    extra_axes = (weights.shape.rank or 0) - (losses.shape.rank or 0)
    if extra_axes == 1 and weights.shape[-1] == 1:
        weights = tf.squeeze(weights, -1)
    rank = weights.shape.rank
    if rank is not None and not losses.shape[:rank].is_compatible_with(weights.shape):
        raise ValueError(
            f"`FitModel`: `loss_fn` expected to return losses of a shape that begins "
            f"with that of the weights, {weights.shape}; got {losses.shape}; leave the "
            "mean over the batch to `FitModel`"
        )
    return tf.broadcast_to(tensors.expand_dims_as(weights, losses), tf.shape(losses))


class Reports:
    """The metrics of a model, which come to be when its loss first says what it tells.

    Training and validation have their own: a loss may tell more in one than in the
    other, and what is not told is not in the logs.

    Attributes:
        phase: `TRAINING` or `TESTING`, whose metrics `active` returns.
        given: names of reports to the metrics that are made of them, as `compile` got
            them.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        self.phase = TRAINING
        self.given = {} if given is None else dict(given)
        self._asked = {name: _metrics(name, each) for name, each in self.given.items()}
        self._flat = [each for some in self._asked.values() for each in some]
        names = [each.name for each in self._flat]
        if len({*names}) < len(names):
            raise ValueError(
                f"`FitModel.compile`: `metrics` expected different names; got {names}; "
                "name the metrics"
            )
        self._means: dict[str, dict[str, keras.metrics.Metric]] = {}

    def active(self) -> list[keras.metrics.Metric]:
        """Returns the metrics of the phase in which the model is."""
        # Both phases share those asked for, which have to be reset before the first
        # report too.
        return [*self._means.get(self.phase, {}).values(), *self._flat]

    def update(
        self, phase: str, extra: Any, weights: tf.Tensor, total: tf.Tensor
    ) -> None:
        """Takes in what a loss told of one batch.

        Args:
            phase: `TRAINING` or `TESTING`.
            extra: nest of tensors: one value per element of the batch, or one for all.
            weights: `[B, ...]`, one per element, for values of that many axes.
            total: `[]`, weight of a value for all.
        """
        known, asked = _parts(extra, self._asked), {}
        for name in self._asked:
            if name not in known:
                raise ValueError(
                    f"`FitModel.compile`: `metrics` expected names among what the "
                    f"loss reports, {sorted(known)}; got {name!r}; report it, or "
                    "take it out"
                )
            asked[name] = known.pop(name)
        values = dict(_named("", known))
        means = self._made(phase, list(values))
        if list(means) != list(values):
            raise ValueError(
                "`FitModel`: `loss_fn` expected to report the same at every call; got "
                f"{list(values)} after {list(means)}; report constants where there is "
                "nothing to say"
            )
        for name, mean in means.items():
            _update(mean, (values[name],), weights, total)
        for name, operands in asked.items():
            pair = operands if isinstance(operands, tuple | list) else (operands,)
            for metric in self._asked[name]:
                _check_operands(name, metric, len(pair))
                _update(metric, pair, weights, total)

    def _made(self, phase: str, names: list[str]) -> dict[str, keras.metrics.Metric]:
        def make(_: Any = None) -> None:
            # Variables of the outermost scope, as those that were made before.
            with tf.init_scope():
                self._means[phase] = {name: keras.metrics.Mean(name) for name in names}

        if phase not in self._means:
            taken = {"loss", *(each.name for each in self._flat)}
            for name in names:
                if name in taken:
                    raise ValueError(
                        f"`FitModel`: `loss_fn` expected reports of other names than "
                        f"{sorted(taken)}; got {name!r}; rename it"
                    )
            replica = tf.distribute.get_replica_context()
            make() if replica is None else replica.merge_call(make)
        return self._means[phase]


def joined(told: Mapping[str, tuple[tf.Tensor, Any]]) -> Any:
    """Returns what several losses told as one nest of reports.

    Args:
        told: loss and reports by the name of the network; of a single loss without a
            name the reports are returned as they are.
    """
    if [*told] == [""]:
        return told[""][1]
    found: dict[str, Any] = {}
    for name, (loss, extra) in told.items():
        further = {f"{name}_{key}": x for key, x in _parts(extra).items()}
        both = sorted({f"{name}_loss", *found} & {*further})
        if both:
            raise ValueError(
                "`FitModel`: `loss_fn` expected reports of other names than those of "
                f"losses and each other; got {both}; rename them"
            )
        found |= {f"{name}_loss": loss, **further}
    return found


def _metrics(name: str, given: Any) -> list[keras.metrics.Metric]:
    found = []
    for each in given if isinstance(given, list | tuple) else [given]:
        try:
            metric = keras.metrics.get(each)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`FitModel.compile`: `metrics` expected metrics for {name!r}; got "
                f"{each!r}; give a `keras.metrics.Metric` or the name of one"
            ) from error
        if isinstance(metric, type):
            metric = metric()
        if not isinstance(metric, keras.metrics.Metric):
            wrapped = getattr(metric, "__name__", "metric")
            metric = keras.metrics.MeanMetricWrapper(metric, name=f"{name}_{wrapped}")
        found.append(metric)
    return found


def _parts(extra: Any, asked: Collection[str] = ()) -> dict[str, Any]:
    """Returns reports by name.

    Of a named tuple for a replay that is what is no tensor with a number per element,
    or is asked for.
    """
    found = _children(extra)
    parts = {"report": extra} if found is None else dict(found)
    if isinstance(extra, Mapping) or "priorities" not in parts:
        return parts
    each = {k for k, x in parts.items() if tf.is_tensor(x) and x.shape.rank}
    return {k: x for k, x in parts.items() if k not in each or k in asked}


def _check_operands(name: str, metric: Any, count: int) -> None:
    parameters = inspect.signature(metric.update_state).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return
    names = [each.name for each in parameters if each.name != "sample_weight"]
    if len(names) != count:
        raise ValueError(
            f"`FitModel.compile`: `metrics` expected a metric of {count} operand"
            f"{'s' * (count > 1)} for the report {name!r}; got {metric.name!r}, which "
            f"takes {names}; report (y_true, y_pred) to one of two, and a tensor to "
            "one of one"
        )


def _update(metric: Any, operands: Any, weights: tf.Tensor, total: tf.Tensor) -> None:
    rank = operands[-1].shape.rank if tf.is_tensor(operands[-1]) else None
    weight = total if rank == 0 else weights
    tensors = [tf.stop_gradient(tf.convert_to_tensor(each)) for each in operands]
    if rank is not None and rank < (weight.shape.rank or 0):
        # Values of `[B]` beside losses of `[B, ...]`.
        weight = tf.reduce_mean(weight, axis=list(range(rank, weight.shape.rank)))
    metric.update_state(*tensors, sample_weight=weight)


def _children(nest: Any) -> Iterator[tuple[str, Any]] | None:
    """The parts of a nest by name, or None if it is a leaf."""
    if isinstance(nest, Mapping):
        return iter(nest.items())
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return zip(nest._fields, nest, strict=True)
    if isinstance(nest, list | tuple):
        return ((str(index), each) for index, each in enumerate(nest))
    return None


def _named(prefix: str, nest: Any) -> Iterator[tuple[str, tf.Tensor]]:
    """Yields the leaves of a nest under names without slashes."""
    parts = _children(nest)
    if parts is not None:
        for key, part in parts:
            yield from _named(f"{prefix}_{key}" if prefix else str(key), part)
    elif nest is not None:
        value = tf.convert_to_tensor(nest)
        if not (
            value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool
        ):
            raise TypeError(
                f"`FitModel`: `loss_fn` expected to report numbers; got {value.dtype} "
                f"as {prefix!r}; leave it out"
            )
        yield prefix, tf.cast(value, tf.float32)
