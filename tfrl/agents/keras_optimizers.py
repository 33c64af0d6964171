"""Keras optimizers as gradient transforms."""

from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import _gradient_parts, gradient_transforms
from tfrl.schedules import schedulers

_CLIPS = {"clipnorm": "norm", "global_clipnorm": "global_norm", "clipvalue": "value"}
_COMMON = {
    *("name", "learning_rate", "weight_decay", "ema_momentum"),
    *("ema_overwrite_frequency", *_CLIPS),
}
_OPTIONS = {
    keras.optimizers.SGD: {"momentum", "nesterov"},
    keras.optimizers.RMSprop: {"rho", "momentum", "epsilon", "centered"},
    keras.optimizers.Adam: {"beta_1", "beta_2", "epsilon"},
    keras.optimizers.AdamW: {"beta_1", "beta_2", "epsilon"},
}
# What to do about what has no exact translation.
_INSTEAD = {
    keras.optimizers.Adagrad: "take `tfrl.agents.adagrad` instead",
    keras.optimizers.Lamb: "take `tfrl.agents.lamb` instead",
    keras.optimizers.Lion: "take `tfrl.agents.lion` instead",
    keras.optimizers.Nadam: "take `tfrl.agents.nadam` instead",
    keras.optimizers.LossScaleOptimizer: "pass the optimizer inside it, and for halves "
    "that need no scaled loss take bfloat16",
    "amsgrad": "leave it out, no optimizer of `tfrl.agents` has it",
    "gradient_accumulation_steps": "take `tfrl.agents.accumulated` instead",
    "loss_scale_factor": "leave it out, or scale the loss where it is computed",
    "use_ema": "leave it out; `tfrl.agents.target_update` averages parameters",
    "optimizer.iterations": "make a new one",
    "exclude_from_weight_decay": "take `tfrl.agents.partitioned` instead",
    "weight_decay": "take `tfrl.agents.adamw`, or decay without momentum",
    "learning_rate": "take a schedule of Keras or of `tfrl.schedules`",
}
_OTHERWISE = "take an optimizer of `tfrl.agents`, such as `adam`, instead"


def from_keras(
    optimizer: keras.optimizers.Optimizer,
) -> gradient_transforms.GradientTransform:
    """Translates a Keras optimizer from its configuration.

    `SGD`, `RMSprop`, `Adam` and `AdamW` translate, with a number or a
    `LearningRateSchedule` as learning rate and with any of their clippings. Updates
    equal Keras' own, also where Keras departs from the functions here: its Adam adds
    `epsilon` to the root of the biased mean square, its SGD multiplies by the
    learning rate before the momentum. What the configuration does not contain, such as
    `exclude_from_weight_decay`, cannot be translated; use `tfrl.agents.partitioned`. In
    place of `Adagrad`, `Lamb`, `Lion`, `Nadam` and `gradient_accumulation_steps` take
    `tfrl.agents.adagrad`, `lamb`, `lion`, `nadam` and `accumulated`.

    Args:
        optimizer: an optimizer that has not taken a step.

    Returns:
        The transform.

    Raises:
        TypeError: if `optimizer` is not a Keras optimizer.
        ValueError: if an option, which is named, has no exact translation.

    Example:
        >>> len(from_keras(keras.optimizers.Adam(1e-3, global_clipnorm=0.5)).parts)
        3
    """
    kind = keras.optimizers.Optimizer
    checks.check_type("from_keras", "optimizer", optimizer, kind, "a Keras optimizer")
    if type(optimizer) not in _OPTIONS:
        names = sorted(kind.__name__ for kind in _OPTIONS)
        instead = _INSTEAD.get(type(optimizer))
        name, expected = type(optimizer).__name__, f"one of {names}"
        raise _untranslatable("optimizer", name, expected, instead or _OTHERWISE)
    steps = int(tf.convert_to_tensor(optimizer.iterations))
    if steps:
        raise _untranslatable("optimizer.iterations", steps, "an unused optimizer's 0")
    config = optimizer.get_config()
    if config["weight_decay"] is not None and _excludes(optimizer):
        option, expected = "exclude_from_weight_decay", "not to have been called"
        raise _untranslatable(option, "a call", expected)
    known = _OPTIONS[type(optimizer)] | _COMMON
    for option, value in config.items():
        if option not in known and value is not None and value is not False:
            raise _untranslatable(option, value, "None or False")
    return gradient_transforms.GradientTransform(tuple(_parts(config)))


def _excludes(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether some weights do not decay, which no configuration tells."""
    names = "_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"
    return any(getattr(optimizer, name, None) for name in names)


def _parts(config: dict[str, Any]) -> list[Any]:
    rate, decay = _learning_rate(config["learning_rate"]), config["weight_decay"]
    parts: list[Any] = [
        _gradient_parts.Clip(float(config[option]), by)
        for option, by in _CLIPS.items()
        if (config[option] or 0) > 0
    ]
    scale: tuple[Any, ...]
    if "beta_1" in config:
        scale = (config["beta_1"], config["beta_2"], config["epsilon"])
        parts.append(_gradient_parts.ScaleByAdam(*scale, eps_hat=True))
    elif "rho" in config:
        scale = (config["rho"], config["epsilon"])
        centered = config["centered"]
        parts.append(_gradient_parts.ScaleByRms(*scale, centered=centered))
    decays = [] if decay is None else [_gradient_parts.AddDecayedWeights(decay)]
    if not config.get("momentum"):
        return [*parts, *decays, rate]
    nesterov = config.get("nesterov", False)
    trace = _gradient_parts.Trace(config["momentum"], nesterov)
    if not decays:
        return [*parts, rate, trace]
    # A decay must bypass the trace, so the rate has to come last: the same only
    # while it does not change.
    if isinstance(rate, _gradient_parts.ScaleBySchedule):
        raise _untranslatable(
            "weight_decay", decay, "None beside both momentum and a schedule"
        )
    return [*parts, trace, *decays, rate]


def _learning_rate(value: Any) -> Any:
    if isinstance(value, float):
        return _gradient_parts.ScaleByLearningRate(value)
    try:
        schedule = keras.optimizers.schedules.deserialize(value)
    except (TypeError, ValueError) as error:
        raise _untranslatable(
            "learning_rate", value, "a registered schedule"
        ) from error
    if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        raise _untranslatable("learning_rate", value, "a number or a Keras schedule")
    schedulers.check_counts_updates("from_keras", schedule)
    return _gradient_parts.ScaleBySchedule(schedule, sign=-1.0)


def _untranslatable(
    option: str, value: Any, expected: str, instead: str | None = None
) -> ValueError:
    return ValueError(
        f"`from_keras`: `{option}` expected {expected}; got {value!r:.80}; "
        f"{instead or _INSTEAD.get(option, _OTHERWISE)}"
    )
