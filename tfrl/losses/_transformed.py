"""How the scalar prediction losses use and save their transforms."""

from typing import Any

import keras
import tensorflow as tf

from tfrl.ops import tensors, value_transforms

_OWN = {
    cls.__name__: cls
    for cls in (
        value_transforms.Log1pTransform,
        value_transforms.Sqrt1pTransform,
        value_transforms.SqrtLinearTransform,
    )
}


def check_transform(where: str, transform: Any) -> None:
    """Raises unless `transform` is None or transforms in both directions.

    Args:
        where: name of the class that checks.
        transform: what it was given.

    Raises:
        TypeError: if a direction is missing.

    Example:
        >>> check_transform("SquareLoss", None)
        >>> check_transform("SquareLoss", tf.math.log1p)
        Traceback (most recent call last):
        ...
        TypeError: `SquareLoss`: `transform` expected an InvertibleTransform or None;
        got <...log1p...>; see tfrl.ops
    """
    directions = ("transform", "inverse_transform")
    if transform is not None and not all(
        callable(getattr(transform, name, None)) for name in directions
    ):
        raise TypeError(
            f"`{where}`: `transform` expected an InvertibleTransform or None; "
            f"got {transform!r}; see tfrl.ops"
        )


def forward(
    transform: value_transforms.InvertibleTransform | None, target: tf.Tensor
) -> tf.Tensor:
    """Targets in the domain of the prediction.

    Args:
        transform: the transform; None changes nothing.
        target: `[...]`, floating.

    Returns:
        `[...]`, in the dtype to compute in.

    Example:
        >>> forward(None, tf.ones([2], tf.float16)).dtype.name
        'float32'
    """
    target = tensors.widened(target)
    return target if transform is None else transform.transform(target)


def backward(
    transform: value_transforms.InvertibleTransform | None, values: tf.Tensor
) -> tf.Tensor:
    """Predictions in the domain of the target.

    Args:
        transform: the transform; None changes nothing.
        values: `[...]`, floating.

    Returns:
        `[...]`, the dtype of `values`.

    Example:
        >>> backward(None, tf.constant([1.0, 2.0])).numpy()
        array([1., 2.], dtype=float32)
    """
    return values if transform is None else transform.inverse_transform(values)


def serialized(value: Any) -> Any:
    """An argument of a loss as data for `keras.saving`.

    Args:
        value: a transform or a plain value. Transforms that are not of `tfrl.ops` need
            `get_config` and `keras.saving.register_keras_serializable`.

    Returns:
        What `deserialized` turns back.

    Raises:
        TypeError: if Keras cannot save it.

    Example:
        >>> serialized(value_transforms.SqrtLinearTransform(eps=0.01))
        {'tfrl_transform': 'SqrtLinearTransform', 'eps': 0.01}
    """
    name = type(value).__name__
    if type(value) is _OWN.get(name):
        return {"tfrl_transform": name, **vars(value)}
    return keras.saving.serialize_keras_object(value)


def deserialized(config: Any) -> Any:
    """The argument that `serialized` made data of.

    Args:
        config: the data.

    Returns:
        The argument.

    Raises:
        TypeError: if Keras does not know the class.

    Example:
        >>> transform = deserialized({"tfrl_transform": "Log1pTransform", "alpha": 2.0})
        >>> transform.alpha
        2.0
    """
    if isinstance(config, dict) and config.get("tfrl_transform") in _OWN:
        arguments = {k: v for k, v in config.items() if k != "tfrl_transform"}
        return _OWN[config["tfrl_transform"]](**arguments)
    return keras.saving.deserialize_keras_object(config)
