"""Computation for some entries of a batch: those that a mask selects."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import autograph, checks, operands
from tfrl.core import nest
from tfrl.ops import tensors

TensorLike: TypeAlias = operands.TensorLike


def conditional_update(
    target: Any, cond: TensorLike, func: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Updates the entries of a batch where a condition holds.

        result[b] = func(*args[b], **kwargs[b])  where cond[b], else target[b]

    `func` is called once, with the selected entries of its arguments stacked, and sees
    no others; where none is selected it is not called and the result is `target`.
    Gradients flow into `target` and through `func`. With `target=()` and a `func` that
    returns `()` it is called for its effects only.

    Called eagerly with all entries selected, what `func` returns is returned as it is.
    In a graph there are no such differences: dtypes, and shapes but for the batch, must
    be those of `target`; `func` is traced once with an unknown number of entries. Under
    XLA that number is a dynamic size bounded by `B`, which elementwise ops, reductions
    and matrix products take. For a `func` that wants static sizes, compute all entries:
    `reset_state_if_necessary(target, func(*args), cond)` has the same result where
    `func` treats each entry by itself, and finite values and gradients for all.

    Args:
        target: nest of tensors `[B, ...]`, or `()`.
        cond: `[B]`, bool.
        func: takes the arguments as they are nested, with `[M, ...]` for the `M`
            selected entries, and returns a nest like `target`.
        *args: nests of tensors `[B, ...]`; None leaves stay.
        **kwargs: nests of tensors `[B, ...]`; None leaves stay.

    Returns:
        A nest like `target`.

    Raises:
        ValueError: if `cond` is not `[B]`, the batch of an argument is not `B`, or the
            structure or a shape that `func` returns is not that of `target`.
        TypeError: if `cond` is not bool, or a dtype that `func` returns is not that of
            `target`.

    Example:
        >>> roots = conditional_update(tf.zeros([3]), [True, False, True], tf.sqrt,
        ...                            tf.constant([4.0, -1.0, 9.0]))
        >>> roots.numpy()
        array([2., 0., 3.], dtype=float32)
    """
    where = "conditional_update"
    checks.check_type(where, "func", func, Callable, "a function")
    mask = _mask(where, "cond", cond, tf.bool)
    for name, value in {"target": target, "args": args, "kwargs": kwargs}.items():
        _check_batch(where, name, value, "cond", mask)
    func = autograph.as_the_caller(func)
    known = tf.get_static_value(mask)
    if known is not None and not known.any():
        return target
    if known is not None and known.all():
        return func(*args, **kwargs)

    def updated() -> list[tf.Tensor]:
        given = nest.map_leaves(lambda x: tf.boolean_mask(x, mask), (args, kwargs))
        updates = func(*given[0], **given[1])
        operands.check_structure(where, "func", updates, "target", target)
        count = None if known is None else int(known.sum())
        return [
            _scattered(where, old, mask, new, count)
            for old, new in zip(leaves, tf.nest.flatten(updates), strict=True)
        ]

    flat = tf.nest.flatten(target)
    leaves = [checks.as_tensor(where, "target", leaf) for leaf in flat]
    if known is not None:
        return tf.nest.pack_sequence_as(target, updated())
    results = tf.cond(tf.reduce_any(mask), updated, lambda: list(leaves))
    return tf.nest.pack_sequence_as(target, results)


def select_from_mask(data: Any, mask: TensorLike) -> Any:
    """Keeps the entries of a batch that a mask selects.

    Args:
        data: nest of tensors `[B, ...]`; None leaves stay.
        mask: `[B]`, bool or numbers; True or other than 0 selects.

    Returns:
        A nest like `data` of tensors `[M, ...]`, the `M` selected entries in order.

    Raises:
        ValueError: if `mask` is not `[B]`.

    Example:
        >>> select_from_mask({"a": tf.constant([1, 2, 3])}, [1, 0, 2])["a"].numpy()
        array([1, 3], dtype=int32)
    """
    where = "select_from_mask"
    chosen = _mask(where, "mask", mask)
    _check_batch(where, "data", data, "mask", chosen)
    chosen = tf.cast(chosen, tf.bool)
    return nest.map_leaves(lambda x: tf.boolean_mask(x, chosen), data)


def reset_state_if_necessary(
    state: Any, initial_state: Any, reset_mask: TensorLike
) -> Any:
    """Puts the initial state in place of the state of some batch entries.

        result[b] = initial_state[b]  where reset_mask[b], else state[b]

    Args:
        state: nest of tensors `[B, ...]`; None leaves stay.
        initial_state: nest of tensors in the same structure and shapes; they are cast
            to the dtypes of `state`.
        reset_mask: `[B]`, bool.

    Returns:
        A nest like `state`.

    Raises:
        ValueError: if structures or shapes differ, or `reset_mask` is not `[B]`.
        TypeError: if `reset_mask` is not bool.

    Example:
        >>> state, initial = {"h": tf.constant([1.0, 2.0])}, {"h": tf.zeros([2])}
        >>> reset_state_if_necessary(state, initial, [False, True])["h"].numpy()
        array([1., 0.], dtype=float32)
    """
    where = "reset_state_if_necessary"
    mask = _mask(where, "reset_mask", reset_mask, tf.bool)
    _check_batch(where, "state", state, "reset_mask", mask)
    operands.check_structure(where, "initial_state", initial_state, "state", state)

    def chosen(current: Any, initial: Any) -> Any:
        if current is None:
            return None
        current = checks.as_tensor(where, "state", current)
        initial = checks.as_tensor(where, "initial_state", initial)
        checks.check_same_shape(where, state=current, initial_state=initial)
        over = tensors.expand_dims_as(mask, current)
        return tf.where(over, tf.cast(initial, current.dtype), current)

    return tf.nest.map_structure(chosen, state, initial_state)


def _mask(where: str, name: str, value: TensorLike, dtype: Any = None) -> tf.Tensor:
    mask = checks.as_tensor(where, name, value)
    checks.check_rank(where, name, mask, exact=1)
    if dtype not in (None, mask.dtype):
        raise TypeError(
            f"`{where}`: `{name}` expected dtype bool; got {mask.dtype.name}"
        )
    # Its rank must be known for the tensors it selects from.
    return tf.ensure_shape(mask, [None])


def _check_batch(
    where: str, name: str, value: Any, mask_name: str, mask: tf.Tensor
) -> None:
    """Raises unless each tensor of a nest has as many entries as the mask."""
    for leaf in tf.nest.flatten(value):
        if leaf is None:
            continue
        shape = tf.TensorShape(leaf.shape if hasattr(leaf, "shape") else np.shape(leaf))
        if shape.rank == 0 or not shape[:1].is_compatible_with(mask.shape):
            raise ValueError(
                f"`{where}`: `{name}` expected a first axis as long as `{mask_name}` "
                f"{mask.shape}; got shape {shape}"
            )


def _scattered(
    where: str, old: tf.Tensor, mask: tf.Tensor, new: Any, count: int | None
) -> tf.Tensor:
    """`old` with `new` in place of the `count` entries selected."""
    new = checks.as_tensor(where, "func", new)
    if new.dtype != old.dtype:
        raise TypeError(
            f"`{where}`: `func` expected to return dtype {old.dtype.name}, that of "
            f"`target`; got {new.dtype.name}"
        )
    wanted = tf.TensorShape([count]).concatenate(old.shape[1:])
    if not new.shape.is_compatible_with(wanted):
        raise ValueError(
            f"`{where}`: `func` expected to return shape {wanted}, one entry of "
            f"`target` for each selected one; got {new.shape}"
        )
    if old.shape[1:].num_elements() == 0:
        return old  # TensorFlow refuses to scatter into what is empty.
    return tf.tensor_scatter_nd_update(old, tf.where(mask), new)
