"""Means and metrics of what a loss reports, in the logs of `keras.Model.fit`."""

import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

TRAINING, TESTING = "training", "testing"


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
        means = self._means.get(self.phase)
        return [] if means is None else [*means.values(), *self._flat]

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
