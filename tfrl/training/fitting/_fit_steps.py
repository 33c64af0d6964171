"""What `FitModel` makes of a batch before and after its loss is computed."""

import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrl.core import records
from tfrl.ops import tensors
from tfrl.replay.sampling import transitions


def check_network(network: Any) -> None:
    """Raises unless it is a built Keras layer or a dict of them."""
    layers = [*network.values()] if isinstance(network, Mapping) else [network]
    if not layers or not all(isinstance(x, keras.layers.Layer) for x in layers):
        raise TypeError(
            "`FitModel`: `network` expected a Keras layer or model, or a dict of them; "
            f"got {network!r}; make one"
        )
    for layer in layers:
        if not layer.built:
            raise ValueError(
                "`FitModel`: `network` expected a built one; got "
                f"{layer.name!r} without its weights; give it a `keras.Input`, or call "
                "it once"
            )
        if _is_hollow(layer):
            raise ValueError(
                "`FitModel`: `network` expected one with weights; got "
                f"{layer.name!r}, which has none, as `build` makes none within a "
                "subclassed model; call it once on a batch"
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


def _is_hollow(layer: Any) -> bool:
    """Whether Keras takes a model for built whose layers are not."""
    parts = layer.layers if isinstance(layer, keras.Model) else []
    return not layer.weights and any(not x.built or _is_hollow(x) for x in parts)


def checked_optimizers(losses: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Returns an optimizer, or what Keras makes one of, for each of the losses."""
    where, names = "FitModel.compile", [*losses]
    if given is None:
        raise TypeError(
            f"`{where}`: `optimizer` expected a Keras optimizer or the name of one; "
            "got None; leave it out for the default"
        )
    is_dict = isinstance(given, Mapping) and "class_name" not in given
    if names == [""]:
        if is_dict:
            raise TypeError(
                f"`{where}`: `optimizer` expected one for all networks; got a dict of "
                f"{sorted(given)}; give one, or each network a loss of its own"
            )
        return {"": given}
    if isinstance(given, str):
        return dict.fromkeys(names, given)
    found = [*given.values()] if is_dict else []
    if not is_dict or {*given} != {*names} or len({*map(id, found)}) < len(found):
        what = sorted(given) if is_dict else f"one {type(given).__name__}"
        raise TypeError(
            f"`{where}`: `optimizer` expected a dict with one of its own for each of "
            f"{sorted(names)}; got {what}; give each loss its own"
        )
    return {name: given[name] for name in names}


def check_compilation(metrics: Any, others: Mapping[str, Any]) -> None:
    """Raises if Keras' `compile` is asked for what `loss_fn` decides."""
    where = "FitModel.compile"
    for name, value in others.items():
        if value is not None:
            raise TypeError(
                f"`{where}`: `{name}` expected nothing, since `loss_fn` says what is "
                f"minimised and reported; got {value!r:.80}; leave it out, and name "
                "reports in `metrics`"
            )
    if not isinstance(metrics, Mapping | None):
        raise TypeError(
            f"`{where}`: `metrics` expected a dict from names of reports; "
            f"got {metrics!r}; say what they are made of"
        )


def told(loss_fn: Any, model: Any, batch: Any, **options: bool) -> Any:
    """Returns what a loss says; explains what mixed precision and new weights do."""
    before = len(model.trainable_variables)
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
    return result


def unpacked(data: Any) -> tuple[Any, Any]:
    """Splits what a dataset gives into the batch for the loss and its weights.

    Keras' tuples `(x,)`, `(x, y)` and `(x, y, sample_weight)` become `x` or `(x, y)`; a
    `Sample` of a replay has weights of its own; everything else is the batch itself.
    """
    if isinstance(data, transitions.Sample):
        return data, data.weights
    if type(data) is not tuple:
        return data, None
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    if isinstance(x, transitions.Sample) and y is None and weights is None:
        return x, x.weights
    return (x if y is None else (x, y)), weights


def checked(result: Any) -> tuple[tf.Tensor, Any]:
    """Returns losses, float32 at least, and reports of what a loss returned."""
    if isinstance(result, records.LossInfo):
        losses, extra = result
    elif type(result) is tuple and len(result) == 2:
        losses, extra = result
    else:
        losses, extra = result, ()
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
    return (
        losses if losses.dtype == tf.float64 else tf.cast(losses, tf.float32)
    ), extra


def priorities(batch: Any, *told: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns indices and priorities that go from a step to a `PrioritizedReplay`."""
    for extra in told:
        found = extra.get("priorities") if isinstance(extra, Mapping) else None
        found = getattr(extra, "priorities", found)
        if found is not None:
            return batch.indices, found
    raise ValueError(
        "`FitModel.fit`: `loss_fn` expected to report `priorities` [B] for a "
        f"PrioritizedReplay; got {told[0]!r:.200}; report them, as `td_loss` does"
    )


def penalty(network: Any, dtype: tf.DType) -> tf.Tensor:
    """Returns the sum of the losses that layers of a network add by themselves."""
    layers = tf.nest.flatten(network)
    found = [tf.cast(x, dtype) for layer in layers for x in layer.losses]
    return tf.add_n(found) if found else tf.zeros([], dtype)


def updater_config(updater: Any, network: Any) -> dict[str, Any] | None:
    """Returns the arguments that make a target updater of a network again."""
    if updater is None:
        return None
    own, given = map(tf.nest.flatten, (network, updater.models))
    if list(map(id, own)) != list(map(id, given)):
        raise ValueError(
            "`FitModel.get_config`: `target_updater` expected to be of the network, to "
            "be made again; got one of other models; save the weights alone"
        )
    return {
        "target_models": updater.target_models,
        "tau": updater.tau,
        "period": updater.period,
        "delayed_update": updater.delayed_update,
    }


class Weighted:
    """Losses of a batch, their weights, and the mean over the global batch.

    Attributes:
        weights: one for each loss.
        total: `[]`, weight of this replica's batch in a mean over batches.
        share: `[]`, this replica's part of the mean over the global batch: the sum over
            replicas is that mean.
        mean: `[]`, over the batch of this replica.
    """

    def __init__(
        self, losses: tf.Tensor, weights: Any, batch: Any, *, over_weights: bool
    ) -> None:
        if losses.shape.rank == 0:
            if weights is not None:
                raise ValueError(
                    "`FitModel`: `loss_fn` expected to return a loss per element of a "
                    "batch with weights; got a single number; leave the mean to "
                    "`FitModel`"
                )
            size = _batch_size(batch)
            self.weights, self.total = tf.ones_like(losses), tf.cast(size, losses.dtype)
            losses = losses * self.total
        else:
            self.weights = _weights_for(losses, weights)
            losses = losses * self.weights
            count = tf.cast(tf.size(losses), losses.dtype)
            self.total = tf.reduce_sum(self.weights) if over_weights else count
        total = tf.reduce_sum(losses)
        self.mean = tf.math.divide_no_nan(total, self.total)
        self.share = tf.math.divide_no_nan(total, _over_replicas(self.total))


class Part(NamedTuple):
    """A loss of a batch: its mean, the network's own losses, and what it reported."""

    mean: Weighted
    penalty: tf.Tensor
    extra: Any
    batch: Any

    @property
    def share(self) -> tf.Tensor:
        """This replica's part of what is to be minimised."""
        return self.mean.share + self.penalty / n_replicas()

    @property
    def told(self) -> tuple[tf.Tensor, Any]:
        """The loss and the reports."""
        return self.mean.mean + self.penalty, self.extra


def n_replicas() -> int:
    """Returns over how many replicas the step runs that is being traced."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def _over_replicas(value: tf.Tensor) -> tf.Tensor:
    if n_replicas() == 1:
        return value
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


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
