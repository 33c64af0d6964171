"""Keys: what is taken for one, what follows it, what each replica has of it."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.layers import _foreign


@pytest.mark.parametrize(
    ("key", "want"),
    [
        (None, 0),
        (5, 5),
        (-1, -1),
        (2**64 - 1, -1),
        (np.uint8(3), np.uint8(3)),
        (tf.constant([1, 2]), np.array([1, 2], np.int32)),
    ],
    ids=["none", "int", "negative", "unsigned", "small", "tensor"],
)
def test_keys_become_arrays(key, want):
    got = _foreign.as_key("rng", key)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == (want.dtype if hasattr(want, "dtype") else np.int64)


@pytest.mark.parametrize("key", [True, 0.5, "a", np.zeros([2]), np.array(["a"])])
def test_other_things_are_no_keys(key):
    with pytest.raises(TypeError, match="`AsKeras`: `seed` expected an int or an arr"):
        _foreign.as_key("seed", key)


FORMS = {
    "int64": tf.constant(7, tf.int64),
    "uint64": tf.constant(7, tf.uint64),
    "int32 pair": tf.constant([7, 0]),
    "uint32 pair": tf.constant([7, 0], tf.uint32),
    "int64 vector": tf.constant([7], tf.int64),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_next_key_has_the_form_of_the_last(form):
    key = FORMS[form]
    following = _foreign.next_key(key)
    assert (following.shape, following.dtype) == (key.shape, key.dtype)
    bits = tf.reshape(tf.bitcast(following, tf.uint32), [2])
    np.testing.assert_array_equal(bits, philox(7)[:2])
    compiled = tf.function(_foreign.next_key, jit_compile=True)(key)
    np.testing.assert_array_equal(compiled, following)


def philox(key):
    """The first block of Philox 4x32 of ten rounds."""
    low, high, block = key % 2**32, key >> 32, [0, 0, 0, 0]
    for _ in range(10):
        one, two = 0xD2511F53 * block[0], 0xCD9E8D57 * block[2]
        block = [
            (two >> 32) ^ block[1] ^ low,
            two % 2**32,
            (one >> 32) ^ block[3] ^ high,
            one % 2**32,
        ]
        low, high = (low + 0x9E3779B9) % 2**32, (high + 0xBB67AE85) % 2**32
    return block


def test_keys_do_not_come_again():
    assert len({int(k) for k in chain(tf.constant(0, tf.int64), 1000)}) == 1000


def chain(key, count):
    step = tf.function(_foreign.next_key)
    for _ in range(count):
        yield key
        key = step(key)


def test_keys_of_other_widths_need_an_updater():
    for key in (tf.constant(7), tf.zeros([4], tf.uint32)):
        with pytest.raises(ValueError, match="`rng` expected 64 bits, .*`rng_updater`"):
            _foreign.next_key(key)


def test_one_replica_has_the_key_and_two_have_their_own():
    key = tf.constant(7, tf.int64)
    assert _foreign.key_of_replica(key) is key
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    run = tf.function(lambda: strategy.run(lambda: _foreign.key_of_replica(key)))
    one, two = map(int, strategy.experimental_local_results(run()))
    following = int(_foreign.next_key(key))
    assert len({one, two, following, int(key)}) == 4
