"""What `FitModel` makes of a batch before and after its loss is computed."""

import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfrl.core import records
from tfrl.layers import target
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
        if not layer.built or _is_hollow(layer):
            raise ValueError(
                "`FitModel`: `network` expected a built one, with weights; got "
                f"{layer.name!r} without its weights, of which `build` makes none in a "
                "subclassed model; give it a `keras.Input`, or call it once on a batch"
            )


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


def _is_hollow(layer: Any) -> bool:
    """Whether Keras takes a model for built whose layers are not."""
    parts = layer.layers if isinstance(layer, keras.Model) else []
    return not layer.weights and any(not x.built or _is_hollow(x) for x in parts)


def checked_optimizers(names: list[str], given: Any) -> dict[str, Any]:
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
