"""Random numbers for all families: one seed gives the same ones wherever it is used.

They are made of the bits of the counter-based Philox generator, which are equal
eagerly, in graphs and under XLA; TensorFlow's own draws are others under XLA. The seed
is the key itself. TensorFlow derives a key from it first, and XLA does that again for
every number: on a CPU this takes four times as long as the bits.
"""

import contextlib
import contextvars
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import compile, random

# The upper half of the counter: `tf.random.Generator` keeps to 0 there.
_STREAM = 0x5851F42D4C957F2D
# One less than a dtype's mantissa has, so that half a unit is not rounded away.
_DIGITS = {tf.float64: 52, tf.float32: 23, tf.float16: 10, tf.bfloat16: 7}
# Which part of the numbers is drawn, and of how many.
_part: contextvars.ContextVar[tuple[Any, int]] = contextvars.ContextVar(
    "part of draws", default=(0, 1)
)


@contextlib.contextmanager
def part(index: Any, count: int) -> Iterator[None]:
    """Draws within it, in a graph, what is a part of a greater draw.

    What is drawn of a shape `[n, ...]` are the rows `index * n` to `(index + 1) * n` of
    what the same seed draws of `[count * n, ...]`. So replicas, each with rows of its
    own, draw together what one draws for all rows.

    Args:
        index: of the part, an int or int32 `[]`.
        count: of parts.

    Example:
        >>> @tf.function
        ... def second():
        ...     with part(1, 2):
        ...         return uniform([2], 7, tf.float32)
        >>> bool(tf.reduce_all(second() == uniform([4], 7, tf.float32)[2:]))
        True
    """
    token = _part.set((index, count))
    try:
        yield
    finally:
        _part.reset(token)


def normal(shape: Any, seed: Any, dtype: tf.DType) -> tf.Tensor:
    """Draws standard normal numbers.

    They are the quantiles of `uniform`: none is beyond 5.3 (8.2 in float64), where 1 of
    8 million would be.

    Args:
        shape: their shape, ints or an integer tensor.
        seed: what `random.new_seed` takes, or a function that returns it.
        dtype: floating; what is narrower than float32 is drawn in float32.

    Returns:
        The numbers.
    """
    return _normal(*_arguments(shape, seed), dtype)


def uniform(shape: Any, seed: Any, dtype: tf.DType) -> tf.Tensor:
    """Draws uniform numbers, none of them 0 or 1.

    They are odd multiples of 2^-24 (2^-53 in float64, 2^-11 in float16, 2^-8 in
    bfloat16).

    Args:
        shape: their shape, ints or an integer tensor.
        seed: what `random.new_seed` takes, or a function that returns it.
        dtype: floating.

    Returns:
        The numbers.
    """
    return _uniform(*_arguments(shape, seed), dtype)


def gumbel(shape: Any, seed: Any, dtype: tf.DType) -> tf.Tensor:
    """Draws standard Gumbel numbers, `-log(-log u)` of those of `uniform`.

    The option of the greatest `logit + g` is a draw of the options' distribution.

    Args:
        shape: their shape, ints or an integer tensor.
        seed: what `random.new_seed` takes, or a function that returns it.
        dtype: floating.

    Returns:
        The numbers.
    """
    return -tf.math.log(-tf.math.log(uniform(shape, seed, dtype)))


def log_gamma(concentration: tf.Tensor, shape: Any, seed: Any) -> tf.Tensor:
    """Draws logarithms of numbers with gamma distributions, of rate 1.

    With z normal and d = concentration - 1/3, `v = (1 + z / sqrt(9 d))^3` is taken with
    the probability `min(1, exp(z^2 / 2 + d (1 - v + log v)))`, else drawn anew; then
    d v is a draw. A concentration below 1 is drawn as one greater by 1, and multiplied
    by the power `1 / concentration` of a uniform number.

    Args:
        concentration: > 0, float32 or float64, of a shape that broadcasts to `shape`.
        shape: their shape, ints or an integer tensor.
        seed: what `random.new_seed` takes, or a function that returns it.

    Returns:
        The logarithms, without a gradient. They are finite from 1e-30 on, where the
        draws themselves underflow.

    References:
        Marsaglia, Tsang, 2000, A simple method for generating gamma variables.
    """
    return _log_gamma(tf.stop_gradient(concentration), *_arguments(shape, seed))


def _arguments(shape: Any, seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
    seed = random.checked_seed("sample", seed() if callable(seed) else seed)
    return tf.convert_to_tensor(shape, tf.int32), seed


@compile.compiled(static=("dtype",))
def _normal(
    shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType, stream: Any = 0
) -> tf.Tensor:
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    draws = math.sqrt(2.0) * tf.math.erfinv(_centred(shape, seed, wide, stream))
    return tf.cast(_joined(draws, shape), dtype)


@compile.compiled(static=("dtype",))
def _uniform(
    shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType, stream: Any = 0
) -> tf.Tensor:
    draws = 0.5 + 0.5 * _centred(shape, seed, dtype, stream)
    return tf.cast(_joined(draws, shape), dtype)


@compile.compiled
def _log_gamma(
    concentration: tf.Tensor, shape: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    dtype = concentration.dtype
    row = tf.stack([_size(shape)])
    wanted = tf.reshape(tf.broadcast_to(concentration, shape), row)
    is_small = wanted < 1.0
    d = tf.where(is_small, wanted + 1.0, wanted) - 1.0 / 3.0
    step = tf.math.rsqrt(9.0 * d)
    # Of greater ones next to nothing is refused, less than rounding alone might.
    few = d < 1e5

    def draw(turn: tf.Tensor, pending: tf.Tensor, log_root: tf.Tensor) -> Any:
        new = step * _normal(row, seed, dtype, 2 * turn - 1)
        chance = tf.math.log(_uniform(row, seed, dtype, 2 * turn))
        log_new = tf.math.log1p(new)
        excess = log_new - new * (1.0 - new * (0.5 - new / 3.0))
        # A comparison with NaN is false: what is not a number is not drawn for ever.
        refused = (new <= -1.0) | (few & (chance > 3.0 * d * excess))
        return turn + 1, pending & refused, tf.where(pending, log_new, log_root)

    def any_pending(turn: tf.Tensor, pending: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        del turn
        return tf.reduce_any(pending)

    start = tf.ones([], tf.int32), tf.ones_like(is_small), tf.zeros_like(d)
    log_root = tf.while_loop(any_pending, draw, start)[-1]
    power = tf.math.log(_uniform(row, seed, dtype)) / wanted
    power = tf.where(is_small, power, tf.zeros_like(power))
    return tf.reshape(tf.math.log(d) + 3.0 * log_root + power, shape)


def _centred(
    shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType, stream: Any
) -> tf.Tensor:
    """Uniform numbers `[2, n]` between -1 and 1, as many as needed or one more.

    They are those of `uniform`, doubled and less 1, in float32 or float64, of all
    parts.
    """
    n_parts = _part.get()[1]
    whole, wide = tf.int32, tf.float32
    if dtype == tf.float64:
        whole, wide = tf.int64, tf.float64
    start = tf.bitwise.left_shift(
        tf.cast(stream, tf.uint64), tf.constant(40, tf.uint64)
    )
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([2, (n_parts * _size(shape) + 1) // 2]),
        key=tf.reshape(tf.bitcast(seed, tf.uint64), [1]),
        counter=tf.stack([start, tf.constant(_STREAM, tf.uint64)]),
        alg=tf.random.Algorithm.PHILOX.value,
        dtype=whole,
    )
    digits = _DIGITS[dtype]
    high = tf.bitwise.right_shift(bits, tf.constant(8 * whole.size - digits, whole))
    return (tf.cast(high, wide) + 0.5) * 2.0 ** (1 - digits)


def _joined(pairs: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """The two rows `[2, n]` one after the other, of them a part, in the given shape.

    XLA fuses no such operation along a long last axis with what comes next on a CPU.
    That is why it is here: of the generator's code it makes no vectors, and it would
    neither of anything that is fused with it.
    """
    row = tf.concat(tf.split(pairs, 2), axis=1)
    size = _size(shape)
    return tf.reshape(tf.slice(row, [0, _part.get()[0] * size], [1, size]), shape)


def _size(shape: tf.Tensor) -> Any:
    """Number of elements, a plain one where it is known."""
    known = tf.get_static_value(shape)
    return tf.reduce_prod(shape) if known is None else int(np.prod(known, dtype=int))
