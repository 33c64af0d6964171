"""One step of the recursion, by hand and against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import operands
from tfrl.exploration import noise


@pytest.fixture
def white(monkeypatch):
    """Puts given numbers in the place of random ones."""
    numbers = []

    def draw(shape, seed, dtype):
        array = np.asarray(numbers.pop(0))
        assert array.shape == tuple(shape)
        return tf.constant(array, dtype)

    monkeypatch.setattr(tf.random, "stateless_normal", draw)
    tf.config.run_functions_eagerly(True)
    yield numbers
    tf.config.run_functions_eagerly(False)


def test_steps_by_hand(white):
    white.extend([[1.0, -1.0], [0.0, 4.0]])
    variable = tf.Variable([0.0, 2.0])
    first = noise._step(variable, tf.constant([0, 0]), 1.0, 0.5, 0.1)
    np.testing.assert_allclose(first, [0.6, 1.4], rtol=1e-6)
    second = noise._step(variable, tf.constant([0, 0]), 1.0, 0.5, 1.0, None, 2.0)
    np.testing.assert_allclose(second, [0.8, 2.0], rtol=1e-6)
    np.testing.assert_array_equal(variable, second)


@pytest.mark.parametrize(
    "dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64], ids=lambda d: d.name
)
def test_every_dtype_in_every_mode(dtype):
    seed = tf.constant([3, 4])
    settings = (np.float64(0.1), [[0.2], [0.3]], tf.constant(0.5), -0.4, 0.4)

    def run(jit):
        variable = tf.Variable(tf.zeros([2, 3], dtype))
        step = tf.function(noise._step, jit_compile=jit) if jit is not None else None
        step = step or noise._step
        for _ in range(2):
            value = step(variable, seed, *settings)
        return value

    eager, graph, xla = run(None), run(False), run(True)
    assert {eager.dtype, graph.dtype, xla.dtype} == {dtype}
    np.testing.assert_array_equal(eager, graph)
    # XLA has a normal distribution of its own making.
    assert np.all(np.abs(xla.numpy().astype(float)) <= 0.4005)
    white = tf.random.stateless_normal([2, 3], seed, dtype=dtype).numpy().astype(float)
    x = np.zeros([2, 3])
    for _ in range(2):
        x = np.clip(x + np.array([[0.2], [0.3]]) * (0.1 - x) + 0.5 * white, -0.4, 0.4)
    tolerance = (
        8 * float(np.finfo(dtype.as_numpy_dtype).eps) if dtype.size > 2 else 2e-2
    )
    np.testing.assert_allclose(eager.numpy().astype(float), x, atol=tolerance)


def test_restarted_where_the_mask_says_so():
    value = tf.ones([3, 2])
    some = noise._restarted(value, [5.0, 6.0], [True, False, True])
    np.testing.assert_array_equal(some, [[5, 6], [1, 1], [5, 6]])
    compiled = tf.function(noise._restarted, jit_compile=True)
    np.testing.assert_array_equal(compiled(value, 0.0, None), np.zeros([3, 2]))
    with pytest.raises(ValueError, match=r"`x` expected the first axes"):
        noise._restarted(value, 0.0, [True, False])


def test_broadcasting_is_checked():
    shape = tf.TensorShape([3, 2])
    for fine in (None, 1.0, [1.0, 2.0], np.ones([3, 1]), tf.ones([3, 2])):
        operands.check_broadcasts("noise", "mu", fine, shape)
    for bad in (np.ones([3]), np.ones([1, 3, 2]), tf.ones([4, 2])):
        with pytest.raises(ValueError, match=r"`noise`: `mu` expected a number or an"):
            operands.check_broadcasts("noise", "mu", bad, shape)


def test_each_replica_of_a_strategy_has_a_process_of_its_own():
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        process = noise.OUProcess(tf.zeros([3]), damping=0.5, stddev=1.0, seed=0)
        noisy = noise.OrnsteinUhlenbeckNoise(random_seed=0)
        noisy(tf.zeros([3]))
    run = tf.function(lambda: strategy.run(lambda: (process(), noisy(tf.zeros([3])))))
    for _ in range(3):
        first, second = zip(
            *map(strategy.experimental_local_results, run()), strict=True
        )
        for one, other in zip(first, second, strict=True):
            assert np.all(one != other)
