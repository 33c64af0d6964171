"""The linear recurrence behind every return and advantage of this room.

    y[t] = x[t] + a[t] * y[t + 1]        backward in time
    y[t] = x[t] + a[t] * y[t - 1]        forward in time

Where a is 0 the neighbour does not count, even if it is infinite or NaN. The gradient
is the same recurrence run the other way, so nothing has to be remembered but the
outputs, and no loop is ever differentiated.
"""

from collections.abc import Callable

import tensorflow as tf

At = Callable[..., tf.Tensor]


def linear_recurrence(
    coefficients: Callable[[At], tuple[tf.Tensor, tf.Tensor]],
    steps: int | tf.Tensor,
    initial: tf.Tensor,
    backward: bool = True,
) -> tf.Tensor:
    """Solves `y[t] = x[t] + a[t] * y[t + 1]` along the first axis.

    One loop over time, as fast as memory under XLA and slow in a plain graph: call it
    inside functions that `core.compile.compiled(jit_compile=True)` made. Differentiable
    any number of times.

    Args:
        coefficients: returns `a` and `x`, element by element, from whole sequences `s`
            it reads as `at(s)` for step t and `at(s, 1)` for step t + 1. The loop calls
            it for one step, which spares passes over memory, the gradient for all.
        steps: `T`.
        initial: `[...]`, what stands beyond the end: `y[T]`, or `y[-1]` if not
            `backward`. `a` and `x` broadcast to its shape.
        backward: whether time runs from the last step to the first.

    Returns:
        `[T, ...]`, `y` in the order of time.

    Example:
        >>> rewards = tf.constant([9.0, 1.0, 2.0])
        >>> linear_recurrence(lambda at: (0.5, at(rewards, 1)), 2,
        ...                   tf.constant(4.0)).numpy()
        array([3., 4.], dtype=float32)
    """

    @tf.custom_gradient
    def solve(decays: tf.Tensor, _: tf.Tensor, initial: tf.Tensor) -> tf.Tensor:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            # An input reaches the outputs before it, through the decays before it.
            nothing = tf.zeros_like(initial)
            reach = _shifted(decays, nothing, not backward)
            flow = given_recurrence(reach, upstream, nothing, not backward)
            # Not the loop's own result: a second gradient would go into the loop.
            to_decays = flow * _shifted(outputs, initial, backward)
            end = slice(-1, None) if backward else slice(0, 1)
            # A sum over at most one step: there is none where T is 0.
            to_initial = tf.reduce_sum(decays[end] * flow[end], axis=0)
            return to_decays, flow, to_initial

        return _loop(coefficients, steps, initial, backward), gradient

    # Only the gradient reads these, so where none is taken they are never computed.
    shape = tf.concat([[steps], tf.shape(initial)], axis=0)
    decays, inputs = (
        tf.broadcast_to(whole, shape)
        for whole in coefficients(lambda s, ahead=0: s[ahead : ahead + steps])
    )
    outputs = solve(decays, inputs, initial)
    return outputs


def given_recurrence(
    decays: tf.Tensor, inputs: tf.Tensor, initial: tf.Tensor, backward: bool = True
) -> tf.Tensor:
    """`linear_recurrence` of `a` and `x` themselves, each `[T, ...]`.

    Example:
        >>> given_recurrence(tf.constant([0.5, 0.5]), tf.constant([1.0, 2.0]),
        ...                  tf.constant(4.0), backward=False).numpy()
        array([3. , 3.5], dtype=float32)
    """
    return linear_recurrence(
        lambda at: (at(decays), at(inputs)), length(decays), initial, backward
    )


def length(sequence: tf.Tensor) -> int | tf.Tensor:
    """Size of the first axis, as a number where the graph knows it.

    Example:
        >>> length(tf.zeros([3, 2]))
        3
    """
    steps = sequence.shape[0]
    return tf.shape(sequence)[0] if steps is None else steps


def added(value: tf.Tensor, weight: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """`value + weight * other`; `value` where a weight of 0 hides what is not finite.

    Example:
        >>> float(added(tf.constant(1.0), tf.constant(0.0), tf.constant(np.nan)))
        1.0
    """
    # Around the sum: between its parts the choice would keep them from being fused.
    hidden = tf.equal(weight, 0.0) & ~tf.math.is_finite(other)
    return tf.where(hidden, value, value + weight * other)


def _loop(
    coefficients: Callable[[At], tuple[tf.Tensor, tf.Tensor]],
    steps: int | tf.Tensor,
    initial: tf.Tensor,
    backward: bool,
) -> tf.Tensor:
    def body(
        count: tf.Tensor, carry: tf.Tensor, outputs: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        step = steps - 1 - count if backward else count
        decay, value = coefficients(lambda s, ahead=0: tf.gather(s, step + ahead))
        carry = added(value, decay, carry)
        return count + 1, carry, outputs.write(step, carry)

    outputs = tf.TensorArray(initial.dtype, steps, element_shape=initial.shape)
    state = (tf.constant(0), initial, outputs)
    return tf.while_loop(lambda count, *_: count < steps, body, state)[2].stack()


def _shifted(sequence: tf.Tensor, edge: tf.Tensor, backward: bool) -> tf.Tensor:
    """Each step's neighbour on the side the recurrence comes from; `edge` beyond."""
    if backward:
        return tf.concat([sequence, edge[tf.newaxis]], axis=0)[1:]
    return tf.concat([edge[tf.newaxis], sequence], axis=0)[:-1]
