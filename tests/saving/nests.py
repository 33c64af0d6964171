"""Arrays of every dtype that files may hold, for hypothesis, and what is equal."""

import collections
import pickle

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

plain_arrays = np_st.arrays(
    st.one_of(
        np_st.boolean_dtypes(),
        np_st.integer_dtypes(endianness="?"),
        np_st.floating_dtypes(sizes=(16, 32, 64)),
        np_st.complex_number_dtypes(),
        np_st.byte_string_dtypes(max_len=3),
        np_st.unicode_string_dtypes(max_len=3, endianness="?"),
        np_st.datetime64_dtypes(),
        np_st.timedelta64_dtypes(),
    ),
    np_st.array_shapes(min_dims=0, min_side=0, max_side=3),
)


def same(a, b):
    """Equality that also compares types, dtypes, NaN and the signs of zeros."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tf.Tensor):
        return a.dtype == b.dtype and same(a.numpy(), b.numpy())
    if isinstance(a, np.bytes_):
        return bytes(a) == bytes(b)
    if isinstance(a, np.ndarray | np.generic):
        if a.dtype.hasobject:
            return a.shape == b.shape and same(a.tolist(), b.tolist())
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float | complex):
        return pickle.dumps(a) == pickle.dumps(b)  # Every bit of a NaN.
    if isinstance(a, list | tuple | collections.deque):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    return a == b
