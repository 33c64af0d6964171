"""Functions that compute again what their gradient needs, instead of keeping it."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import arguments


def lean_function(func: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that its gradient needs less memory and more time.

    Between the forward and the backward pass only the arguments are kept. For the
    gradient `func` is called once more with them, so a chain of lean functions keeps
    the intermediate results of one link at a time. Values and gradients are those of
    `func`; gradients reach floating tensors anywhere in the arguments and variables
    that `func` uses.

    `func` must do the same in both calls:

    - Tensors it needs are arguments. Of variables it may close over any; a tensor it
      closes over gets no gradient.
    - Random numbers come from stateless ops and a seed among the arguments.
    - It has no effects. A Keras layer may have some: dropout draws the same mask
      again, and moving averages are updated once.
    - In a graph it controls its flow with `tf.cond` and `tf.while_loop`, as autograph
      does not look into it.

    Second derivatives and forward-mode differentiation through the result are not
    supported. In a functional Keras model use `keras.RematScope`.

    Args:
        func: function, builtin, Keras layer or model, `tf.Module`, or any other
            callable, of nests of tensors and anything else to a nest of tensors and
            anything else. It is not changed.

    Returns:
        A function with the arguments and results of `func`, which is its
        `__wrapped__`.

    Raises:
        TypeError: if `func` is not callable; when called, for a symbolic Keras tensor.

    Example:
        >>> layer = keras.layers.Dense(3, activation="relu")
        >>> lean_layer = lean_function(layer)
        >>> x = tf.ones([2, 4])
        >>> with tf.GradientTape() as tape:
        ...     loss = tf.reduce_sum(lean_layer(x))
        >>> [grad.shape for grad in tape.gradient(loss, layer.trainable_variables)]
        [TensorShape([4, 3]), TensorShape([3])]

    References:
        Chen, Xu, Zhang and Guestrin, 2016, Training Deep Nets with Sublinear Memory
        Cost, section 3.
    """
    if not callable(func):
        kind = "a function, layer or module"
        raise arguments.wrong_type("lean_function", "func", func, kind)

    # A layer's attributes are not those of a function: `updated` leaves them out.
    @functools.wraps(func, updated=())
    def lean(*args: Any, **kwargs: Any) -> Any:
        return _call(func, args, kwargs)

    return lean


def _call(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    given = tf.nest.flatten((args, kwargs), expand_composites=True)
    if any(isinstance(leaf, keras.KerasTensor) for leaf in given):
        raise TypeError(
            "`lean_function`: arguments expected tensors; got a symbolic Keras tensor; "
            "build the functional model with its layers under `keras.RematScope`"
        )
    floating = [index for index, leaf in enumerate(given) if _is_floating(leaf)]
    weights, state = _layer_state(func, args, kwargs)
    inputs = [given[index] for index in floating] + [each.value for each in weights]
    called, result = False, None

    def flat(*tensors: tf.Tensor) -> list[tf.Tensor]:
        nonlocal called, result
        filled = list(given)
        for index, tensor in zip(floating, tensors, strict=False):
            filled[index] = tensor
        scope: Any = contextlib.nullcontext()
        if called:
            if not inputs:
                filled = [_after(tensors[0], leaf) for leaf in given]
            if isinstance(func, keras.layers.Layer):
                inner = zip(weights, tensors[len(floating) :], strict=False)
                scope = keras.StatelessScope([*inner, *state])
        args_again, kwargs_again = _packed((args, kwargs), filled)
        with scope:
            value = func(*args_again, **kwargs_again)
        if not called:
            called, result = True, value
        parts = tf.nest.flatten(value, expand_composites=True)
        return [part for part in parts if _is_floating(part)]

    # `tf.recompute_grad` alone takes neither nests nor keywords nor None, and makes
    # graphs compute again only what depends on a floating argument.
    outputs = iter(tf.recompute_grad(flat)(*(inputs or [tf.zeros([])])))
    parts = tf.nest.flatten(result, expand_composites=True)
    whole = _packed(result, [next(outputs) if _is_floating(p) else p for p in parts])
    result = None
    return whole


def _layer_state(
    func: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[list[keras.Variable], list[tuple[keras.Variable, tf.Tensor]]]:
    """What a Keras layer reads that is no variable, and what it may change.

    Args:
        func: any function.
        args: of the call to come.
        kwargs: of the call to come.

    Returns:
        Weights that stand for tensors, as in `stateless_call`; and the other variables
        with their values before the call.
    """
    if not isinstance(func, keras.layers.Layer):
        return [], []
    if not func.built:
        # Tracing makes the variables and runs nothing.
        tf.function(
            lambda: _no_tensors(func(*args, **kwargs)), autograph=False
        ).get_concrete_function()
    weights = [
        each
        for each in func.trainable_variables
        if not isinstance(each.value, tf.Variable)
    ]
    state = [
        (each, tf.identity(each.value)) for each in func.variables if not each.trainable
    ]
    return weights, state


def _after(tick: tf.Tensor, leaf: Any) -> Any:
    """An integer tensor of a graph made dependent on `tick`, which is 0."""
    symbolic = tf.is_symbolic_tensor(leaf) and leaf.dtype.is_integer
    if not symbolic or tf.get_static_value(leaf) is not None:
        return leaf
    return leaf + tf.cast(tick, leaf.dtype)


def _is_floating(leaf: Any) -> bool:
    if not tf.is_tensor(leaf) or isinstance(leaf, tf.Variable | keras.Variable):
        return False
    return leaf.dtype.is_floating or leaf.dtype.is_complex


def _packed(nest: Any, leaves: Sequence[Any]) -> Any:
    return tf.nest.pack_sequence_as(nest, leaves, expand_composites=True)


def _no_tensors(_: Any) -> None:
    return None
