"""Seeds: one call for the global ones, int32 [2] tensors for stateless ops."""

import os
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks

# The key by which TensorFlow's stateless ops make keys and counters of seeds.
_SEED_KEY = 0x02461E293EC8F720


def set_random_seed(seed: int | None) -> int:
    """Seeds Python, numpy, TensorFlow and Keras.

    The seed used is `seed mod 2^32`. An explicit seed also makes TensorFlow's ops
    deterministic, which slows some down, lets a few raise an error, and cannot be
    undone in the process.

    Args:
        seed: an int, or None for one drawn from process id and clock.

    Returns:
        The seed used; passing it again repeats the run.

    Raises:
        TypeError: if `seed` is neither int nor None.

    Example:
        >>> set_random_seed(2**32 + 5)  # doctest: +SKIP
        5
    """
    if seed is None:
        entropy = np.random.SeedSequence([os.getpid(), time.time_ns()])
        used = int(entropy.generate_state(1)[0])
    else:
        used = checks.check_whole_number("set_random_seed", "seed", seed) % 2**32
    keras.utils.set_random_seed(used)
    if seed is not None:
        tf.config.experimental.enable_op_determinism()
    return used


def new_seed(seed: Any = None) -> tf.Tensor:
    """Returns the int32 `[2]` seed that stateless ops of TensorFlow and TFP take.

    An int gives its low and its high 32 bits, the same for a Python int, a numpy int
    and a scalar tensor. None draws a fresh seed from TensorFlow's global generator,
    inside `tf.function` at every call.

    Args:
        seed: an int of at most 64 bits, an integer tensor of shape `[]` or `[2]`
            (what `tf.random.Generator.make_seeds` or Keras' `SeedGenerator.next`
            return is narrowed to int32), or None.

    Returns:
        `[2]` int32.

    Raises:
        TypeError: if `seed` is not of integers.
        ValueError: if it has another shape or more than 64 bits.

    Example:
        >>> new_seed(7).numpy()
        array([7, 0], dtype=int32)
    """
    return checked_seed("new_seed", seed)


def checked_seed(where: str, seed: Any) -> tf.Tensor:
    """Returns what `new_seed` does; the errors name `where`, the asking function.

    Example:
        >>> checked_seed("act", "today")
        Traceback (most recent call last):
        ...
        TypeError: `act`: `seed` expected an int in [...]; got 'today'
    """
    if seed is None:
        return tf.random.uniform(
            [2], minval=tf.int32.min, maxval=tf.int32.max, dtype=tf.int32
        )
    if not hasattr(seed, "shape") and not isinstance(seed, list | tuple):
        seed = checks.check_whole_number(where, "seed", seed, -(2**63), 2**64 - 1)
        halves = np.array([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], np.uint32)
        return tf.constant(halves.view(np.int32))
    pair = checks.as_tensor(where, "seed", seed, numeric=False)
    if not pair.dtype.is_integer:
        raise TypeError(
            f"`{where}`: `seed` expected an int or an int32 tensor of shape [2]; "
            f"got dtype {pair.dtype.name}"
        )
    if pair.shape == []:
        return tf.bitcast(tf.cast(pair, tf.int64), tf.int32)
    if not pair.shape.is_compatible_with([2]):
        raise ValueError(
            f"`{where}`: `seed` expected shape [] or [2]; got {pair.shape}"
        )
    return tf.ensure_shape(tf.cast(pair, tf.int32), [2])


def split_seed(seed: Any, n: int) -> list[tf.Tensor]:
    """Returns `n` seeds of independent streams, made from one.

    The counter-based Philox generator makes them, so they are the same eagerly, in
    `tf.function` and under XLA, on every device.

    Args:
        seed: what `new_seed` takes.
        n: how many, at least 1.

    Returns:
        A list of `n` int32 tensors of shape `[2]`.

    Raises:
        ValueError: if `n` is less than 1.

    References:
        Salmon, Moraes, Dror, Shaw (2011), "Parallel random numbers: as easy as
        1, 2, 3".

    Example:
        >>> noise_seed, action_seed = split_seed(7, 2)
        >>> noise_seed.shape
        TensorShape([2])
    """
    count, pair = checks.check_whole_number("split_seed", "n", n, low=1), new_seed(seed)
    if tf.executing_eagerly():
        found = tf.random.split(pair, count, alg="philox")
    else:
        found = _split_in_graph(pair, count)
    return tf.unstack(found, num=count)


def _split_in_graph(seed: tf.Tensor, n: int) -> tf.Tensor:
    """Returns what `tf.random.split` does by Philox, `[n, 2]`, with less to compile.

    It runs the generator twice: on the seed, of which it makes a key and a counter, and
    on these. XLA writes out the generator's code where each number is used, and that of
    the first run within it. In a loop it is there once.
    """
    size = 4 * -(-n // 2)

    def run(turn: Any, key: tf.Tensor, counter: tf.Tensor, _: tf.Tensor) -> tuple:
        bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[size],
            key=key,
            counter=counter,
            alg=tf.random.Algorithm.PHILOX.value,
            dtype=tf.int32,
        )
        words = tf.bitcast(tf.reshape(bits[:4], [2, 2]), tf.uint64)
        return turn + 1, words[:1], words * tf.constant([0, 1], tf.uint64), bits

    start = tf.bitcast(tf.cast(seed, tf.int64), tf.uint64)
    *_, bits = tf.while_loop(
        lambda turn, *_: turn < 2,
        run,
        (0, tf.constant([_SEED_KEY], tf.uint64), start, tf.zeros([size], tf.int32)),
    )
    return tf.reshape(bits, [-1, 2])[:n]
