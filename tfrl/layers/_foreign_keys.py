"""Keys of foreign layers: integers that say what is drawn next."""

from typing import Any

import numpy as np
import tensorflow as tf

_PHILOX = 1


def as_key(name: str, key: Any) -> np.ndarray:
    """Returns a key as integers; an int, and None for 0, become a scalar int64."""
    if key is None or isinstance(key, int) and not isinstance(key, bool):
        # The same 64 bits, whatever the sign.
        return np.array((key or 0) % 2**64, np.uint64).view(np.int64)
    kind = getattr(key, "dtype", None)
    array = None if kind is None else _as_array(key)
    if array is None or array.dtype.kind not in "iu":
        got = type(key).__name__ if kind is None else f"dtype {kind}"
        raise TypeError(
            f"`AsKeras`: `{name}` expected an int or an array of integers; got {got}; "
            "of a typed key of JAX take jax.random.key_data"
        )
    return array


def next_key(key: tf.Tensor) -> tf.Tensor:
    """Returns the key that follows one of 64 bits."""
    return tf.reshape(_children(key, 1), key.shape)


def key_of_replica(key: tf.Tensor) -> tf.Tensor:
    """Returns a key of this replica's own, where there are several."""
    context = tf.distribute.get_replica_context()
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if context is None or replicas == 1:
        return key
    # The first child is the key of the next call.
    return _children(key, 1 + replicas)[1 + context.replica_id_in_sync_group]


def _children(key: tf.Tensor, count: int) -> tf.Tensor:
    """Keys that are drawn from one, `[count, *key.shape]`."""
    if key.shape.num_elements() * key.dtype.size != 8:
        raise ValueError(
            "`AsKeras`: `rng` expected 64 bits, a scalar int64 or two int32; got "
            f"shape {key.shape.as_list()}, {key.dtype.name}; pass `rng_updater`, and "
            "fold in the replica where there are several"
        )
    # One kernel: the key of every call is made while a model trains. TensorFlow's own
    # draws from a seed scramble it first, so that these bits are in none of them.
    children = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[count],
        key=tf.reshape(tf.bitcast(key, tf.uint64), [1]),
        counter=np.zeros([2], np.uint64),
        alg=_PHILOX,
        dtype=tf.uint64,
    )
    return tf.reshape(tf.bitcast(children, key.dtype), [count, *key.shape])


def _as_array(key: Any) -> np.ndarray | None:
    try:
        return np.asarray(key)
    except TypeError:
        return None
