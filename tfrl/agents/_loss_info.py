"""What a loss function returns: loss, info, new extra variables."""

from typing import Any

import tensorflow as tf


def loss_and_info(result: Any, has_aux: bool) -> tuple[tf.Tensor, Any]:
    """Returns the scalar loss and the info that a loss function returned.

    Args:
        result: what it returned.
        has_aux: whether that is to be a pair.

    Returns:
        Both; the info is `()` without `has_aux`.

    Raises:
        ValueError: if it is something else.

    Example:
        >>> loss, info = loss_and_info((tf.constant(1.0), {"n": 2}), has_aux=True)
        >>> float(loss), info
        (1.0, {'n': 2})
    """
    where = "`TrainState.apply_loss_fn`: `loss_fn` expected to return"
    info: Any = ()
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise ValueError(
                f"{where} a pair of loss and info, as `has_aux=True` says; got "
                f"{result!r:.80}; return `loss, info`"
            )
        result, info = result
    loss = tf.convert_to_tensor(result)
    if loss.shape.rank != 0:
        raise ValueError(
            f"{where} a scalar loss; got shape {loss.shape}; take the mean, or pass "
            "`has_aux=True` for a pair"
        )
    return loss, info


def checked_extra(extra: Any, like: Any) -> Any:
    """Returns the extra variables of an info.

    Args:
        extra: what the info has.
        like: those of the state.

    Returns:
        `extra`.

    Raises:
        ValueError: if they differ in structure.

    Example:
        >>> checked_extra({"mean": 1.0}, {"mean": 0.0})
        {'mean': 1.0}
    """
    try:
        tf.nest.assert_same_structure(extra, like)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`TrainState.apply_loss_fn`: info's `extra_variables` expected the nest "
            f"that `state(..., mutable=True)` returns; got another one: {error}"
        ) from error
    return extra
