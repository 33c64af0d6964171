"""What is refused before `keras.Model.fit` begins."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import checks, dtype_policies
from tfrl.replay.sampling import prioritized, uniform

Replay = uniform.UniformReplay | prioritized.PrioritizedReplay

_NOT_OF_AGENTS = "validation_data", "validation_split", "class_weight", "sample_weight"
# Arguments of `fit` that are counts, and the least of each.
_COUNTS = {
    **{"epochs": 0, "initial_epoch": 0, "batch_size": 1, "steps_per_epoch": 1},
    **{"validation_steps": 1, "validation_batch_size": 1, "validation_freq": 1},
}


def check_counts(where: str, options: Mapping[str, Any]) -> None:
    """Raises unless the counts among arguments of `fit` are counts, or None.

    Args:
        where: the asking method, for the message.
        options: arguments by name.

    Raises:
        TypeError: if one is no whole number.
        ValueError: if one is too small.

    Example:
        >>> check_counts("fit", {"steps_per_epoch": None, "epochs": 3})
    """
    for name, low in _COUNTS.items():
        value = options.get(name)
        # The epochs themselves after which is validated are Keras' other form.
        if value is not None and not isinstance(value, list | tuple | set):
            checks.check_whole_number(where, name, value, low=low)


def check_replay(where: str, replay: Any, steps_name: str, steps: int | None) -> None:
    """Raises unless a replay has something to draw, and an end is told."""
    if steps is None:
        raise ValueError(
            f"`{where}`: `{steps_name}` expected a number beside "
            f"{type(replay).__name__}, which has no end; got None; say how many steps"
        )
    if isinstance(replay, Replay) and not replay.size:
        remedy = "give `Collect(warm_up_steps=...)` at least a batch, or "
        raise ValueError(
            f"`{where}`: `x` expected a replay with something to draw before the "
            f"first step; got nothing; {remedy if where.endswith('.fit') else ''}add "
            "steps to the store"
        )


def check_weights(where: str, y: Any, options: Mapping[str, Any]) -> None:
    """Raises for sample weights that Keras would pass over, as there is no `y`."""
    if options.get("sample_weight") is not None and y is None:
        raise ValueError(
            f"`{where}`: `sample_weight` expected None without `y`, beside which alone "
            "Keras hands weights on; got some; give a dataset of (x, y, weights)"
        )


def check_agent_options(model: Any, options: Mapping[str, Any]) -> None:
    """Raises if `fit` is asked for what agents decide, or what they cannot."""
    if not model.trainable:
        raise ValueError(
            "`AgentModel.fit`: `trainable` expected True, as an agent trains by its "
            "own update; got False; freeze layers of the `network` that it is made of"
        )
    for name in _NOT_OF_AGENTS:
        value = options.get(name)
        if value is not None and not (isinstance(value, float) and value == 0.0):
            raise ValueError(
                f"`AgentModel.fit`: `{name}` expected nothing, as agents say what they "
                "learn, and nothing of other data; got some; leave it out (to judge "
                "the agent, add `tfrl.training.Evaluate` to the callbacks)"
            )


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
        quantized = dtype_policies.quantized_layers(layer)
        if quantized:
            raise ValueError(
                "`FitModel`: `network` expected one that can be trained; got "
                f"{layer.name!r} with quantized layers, {quantized}; quantize it after "
                "training"
            )


def _is_hollow(layer: Any) -> bool:
    """Whether Keras takes a model for built whose layers are not."""
    parts = layer.layers if isinstance(layer, keras.Model) else []
    return not layer.weights and any(not x.built or _is_hollow(x) for x in parts)


def check_strategy(strategy: tf.distribute.Strategy, where: str = "FitModel") -> None:
    """Raises if Keras cannot `fit` a model of a strategy."""
    for name in ("MultiWorkerMirroredStrategy", "ParameterServerStrategy"):
        if isinstance(strategy, getattr(tf.distribute, name)):
            raise ValueError(
                f"`{where}`: expected a strategy of one process; got {name}, under "
                "which `fit` of Keras 3 fails; use MirroredStrategy, or the loop of "
                "`tfrl.training.Trainer`, which takes several workers"
            )


def check_spec(model: keras.Model, data: tf.data.Dataset) -> None:
    """Raises if Keras cannot split what a dataset gives among replicas."""
    where = f"{type(model).__name__}.fit"
    count = model.distribute_strategy.num_replicas_in_sync
    for spec in tf.nest.flatten(data.element_spec) if count > 1 else []:
        if spec.dtype == tf.bool:
            raise ValueError(
                f"`{where}`: `x` expected no bool beside a strategy, since Keras "
                f"averages a batch over replicas to look at it; got {spec}; cast it"
            )
        size = spec.shape[0] if spec.shape.rank else None
        if size is not None and size % count:
            raise ValueError(
                f"`{where}`: `x` expected batches of a multiple of {count}, the "
                f"number of replicas; got {size}; change the batch size"
            )
