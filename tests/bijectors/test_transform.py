"""Tests of what the bijectors share: parameters, memory, equality, bounds."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors
from tfrl.bijectors import _transform

tfb, tfd = tfp.bijectors, tfp.distributions


def test_inside():
    y = tf.constant([-2.0, -1.0, 0.0, 0.5, 1.0, np.nan])
    expected = [np.nan, np.nextafter(np.float32(-1), np.float32(0)), 0.0, 0.5]
    below_one = np.nextafter(np.float32(1), np.float32(0))
    with tf.GradientTape() as tape:
        tape.watch(y)
        got = _transform.inside(y, -1.0, 1.0)
    np.testing.assert_array_equal(got, [*expected, below_one, np.nan])
    np.testing.assert_array_equal(tape.gradient(got, y), [0, 0, 1, 1, 0, 0])
    tiny = np.finfo(np.float32).tiny
    got = _transform.inside(tf.zeros([2]), np.float32([0, -1]), np.float32([1, 0]))
    np.testing.assert_array_equal(got, [tiny, -tiny])
    got = _transform.inside(tf.constant([-1e38, np.inf]), -np.inf, np.inf)
    np.testing.assert_array_equal(got, np.float32([-1e38, np.finfo(np.float32).max]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("low", [-1, np.float32(-1), [-1.0], np.array([-1])], ids=repr)
def test_numbers_take_the_dtype_of_the_input(low, dtype):
    bijector = bijectors.Softclip(low, 1.0)
    assert bijector.dtype is None
    x = tf.cast([0.5, 1.0], dtype)
    for function in ("forward", "inverse", "forward_log_det_jacobian"):
        assert getattr(bijector, function)(x).dtype == dtype
    y = bijectors.Softclip(-0.1, 0.3).forward(tf.constant([9.0], tf.float64))
    assert y.numpy()[0] <= 0.3
    np.testing.assert_allclose(y, [0.3], rtol=1e-3)


def test_tensors_take_the_dtype_of_the_input_too():
    low = tf.Variable(-1.0, dtype=tf.float64)
    bijector = bijectors.Softclip(low, tf.constant(1))
    with tf.GradientTape() as tape:
        y = bijector.forward(tf.constant([0.0], tf.float16))
    assert y.dtype == tf.float16
    assert tape.gradient(y, low).dtype == tf.float64
    got = bijectors.AffineTransform(0.0, [tf.constant(2.0), tf.constant(3.0)])
    assert got.forward([1.0, 1.0]).numpy().tolist() == [2.0, 3.0]


def test_what_is_no_number():
    with pytest.raises(
        TypeError, match="`exponent` expected a number, an array or a t"
    ):
        bijectors.PowerTransform(None)
    with pytest.raises(
        TypeError, match="`StableTanh`: `y` expected a floating-point dty"
    ):
        bijectors.StableTanh().inverse([1, 2])


def test_the_inverse_of_an_output_is_the_input():
    bijector = bijectors.StableTanh()
    x = tf.constant([-30.0, 0.5, 30.0])
    y = bijector.forward(x)
    assert bijector.inverse(y) is x
    assert bijectors.StableTanh().inverse(y) is x
    assert bijectors.Softsign().inverse(y) is not x
    np.testing.assert_allclose(bijector.inverse(tf.identity(y))[2], 8.664, atol=1e-3)
    exact = bijector.forward_log_det_jacobian(x)
    np.testing.assert_array_equal(bijector.inverse_log_det_jacobian(y), -exact)
    assert bijectors.StableTanh(cache_size=0).inverse(y) is not x
    y = bijectors.StableTanh(cache_size=0).forward(x)
    assert bijector.inverse(y) is not x


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "jit"])
def test_log_prob_of_a_fresh_sample_is_exact(jit_compile):
    def sampled(loc):
        base = tfd.Normal(loc, 0.1)
        distribution = tfd.TransformedDistribution(base, bijectors.StableTanh())
        sample = distribution.sample(5, seed=tf.constant([1, 2]))
        x = tf.stop_gradient(distribution.bijector.inverse(sample))
        expected = base.log_prob(x) - bijectors.StableTanh().forward_log_det_jacobian(x)
        return sample, distribution.log_prob(sample), expected

    function = tf.function(sampled, jit_compile=jit_compile)
    for run in (sampled, function):
        sample, log_prob, expected = run(tf.constant(20.0))
        np.testing.assert_array_equal(sample, 1.0)
        np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
        assert log_prob.numpy().min() > 30.0


def test_memory_ends_with_the_output():
    class Kept(bijectors.ExpTransform):
        pass

    bijector = Kept()
    y, kept = bijector.forward(tf.constant([1.0])), weakref.ref(bijector)
    del bijector
    gc.collect()
    assert kept() is not None
    assert float(Kept().inverse(y)[0]) == 1.0
    del y
    gc.collect()
    assert kept() is None
    graphs = []

    def round_trip(x):
        y = bijectors.ExpTransform().forward(x)
        graphs.append(weakref.ref(y.graph))
        return bijectors.ExpTransform().inverse(y)

    function = tf.function(round_trip, autograph=False)
    assert function(tf.constant([1.0])).numpy() == 1.0
    del function
    gc.collect()
    assert graphs[0]() is None


def test_every_tape_sees_the_computation():
    x, scale = tf.constant([0.5, 2.0]), tf.Variable(2.0)
    kept = []
    for value in (2.0, 4.0):
        scale.assign(value)
        bijector = bijectors.AffineTransform(0.0, scale)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = bijector.forward(x)
            kept.append(y)
            distribution = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), bijector)
            log_prob = distribution.log_prob(x)
        np.testing.assert_array_equal(y, value * x)
        slope, pull = tape.gradient([y, log_prob], [x, scale])
        expected = tfd.Normal(0.0, value).log_prob(x)
        np.testing.assert_allclose(log_prob, expected, rtol=1e-6)
        np.testing.assert_allclose(slope, value - x / value**2, rtol=1e-6)
        pulled = tf.reduce_sum(x) + tf.reduce_sum(x**2 / value**3 - 1.0 / value)
        np.testing.assert_allclose(pull, pulled, rtol=1e-6)


EQUAL = {
    "numbers": lambda: bijectors.Softclip(-1, 1, 0.5),
    "arrays": lambda: bijectors.Softclip(np.array([-1.0, -2.0]), [1.0, 2.0]),
    "tensors": lambda: bijectors.Softplus(tf.constant([0.5, 1.0])),
    "event": lambda: bijectors.AffineTransform(0.0, 2.0, event_dim=1),
    "power": lambda: bijectors.PowerTransform(3.0),
    "none": bijectors.ExpTransform,
}
UNEQUAL = {
    "numbers": lambda: bijectors.Softclip(-1, 1, 0.6),
    "arrays": lambda: bijectors.Softclip(np.array([-1.0, -2.5]), [1.0, 2.0]),
    "tensors": lambda: bijectors.Softplus(tf.constant([0.5, 2.0])),
    "event": lambda: bijectors.AffineTransform(0.0, 2.0),
    "power": lambda: bijectors.PowerTransform(tf.Variable(3.0)),
    "none": bijectors.SigmoidTransform,
}


@pytest.mark.parametrize("name", EQUAL)
def test_equality(name):
    one, other = EQUAL[name](), EQUAL[name]()
    assert one == other
    assert hash(one) == hash(other)
    assert one != UNEQUAL[name]()
    assert one.copy(name="another") == one
    assert one.copy(cache_size=0).cache_size == 0
    assert len({one, other, UNEQUAL[name]()}) == 2


@pytest.mark.parametrize("name", EQUAL)
def test_crosses_functions(name):
    bijector = EQUAL[name]()
    traces = []

    @tf.function
    def there_and_back(given):
        traces.append(given)
        return given, given.forward(tf.ones([3, 2]))

    got, y = there_and_back(bijector)
    assert got == bijector
    assert hash(got) == hash(bijector)
    assert got.parameters.keys() == bijector.parameters.keys()
    np.testing.assert_array_equal(y, bijector.forward(tf.ones([3, 2])))
    there_and_back(EQUAL[name]())
    assert len(traces) == 1


def test_tensors_make_no_traces_and_variables_learn():
    traces = []

    @tf.function
    def forward(bijector, x):
        traces.append(bijector)
        return bijector.forward(x)

    for softness in (1.0, 2.0):
        forward(bijectors.Softplus(tf.constant(softness)), tf.zeros([2]))
    assert len(traces) == 1
    scale = tf.Variable(2.0)
    bijector = bijectors.AffineTransform(0.0, scale)
    assert bijector.trainable_variables == (scale,)
    assert hash(bijector) == hash(bijectors.AffineTransform(0.0, scale))
    with tf.GradientTape() as tape:
        y = tf.function(lambda: bijector.forward(tf.ones([3])))()
    assert tape.gradient(y, scale).numpy() == 3.0


def test_saved_and_in_loops(tmp_path):
    bijector = bijectors.Softclip(-1.0, tf.constant([1.0, 2.0]))
    spec = tf.type_spec_from_value(bijector)
    assert spec == tf.type_spec_from_value(bijector.copy())
    (last,) = tf.while_loop(
        lambda b: b.high[0] < 2.5,
        lambda b: (bijectors.Softclip(-1.0, b.high + 1.0),),
        [bijector],
    )
    np.testing.assert_array_equal(last.high, [3.0, 4.0])
    module = tf.Module()
    module.forward = tf.function(
        lambda high, x: bijectors.Softclip(-1.0, high).forward(x),
        input_signature=[tf.TensorSpec([2]), tf.TensorSpec([None, 2])],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    x = tf.constant([[0.5, -3.0]])
    got = loaded.forward(bijector.high, x)
    np.testing.assert_allclose(got, bijector.forward(x), rtol=1e-6)


def test_names_of_others_stay_theirs(tmp_path):
    module = tf.Module()
    for owner, room in (("tfp", tfb), ("tfrl", bijectors)):
        spec = tf.type_spec_from_value(room.Softplus(tf.constant(2.0)))
        module.forward = tf.function(
            lambda bijector: bijector.forward(tf.ones([2])), input_signature=[spec]
        )
        # Fails where the name of the type leads to another class.
        with pytest.warns(UserWarning, match=f"type {owner}[.]"):
            tf.saved_model.save(module, str(tmp_path))


def test_shapes_for_distributions():
    low = np.full([4, 1], -1.0)
    bijector = bijectors.Softclip(low, tf.ones([3]))
    assert bijector.experimental_batch_shape() == [4, 3]
    assert bijector.experimental_batch_shape(x_event_ndims=1) == [4]
    distribution = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), bijector)
    assert distribution.batch_shape == [4, 3]
    assert distribution.sample(2, seed=(0, 1)).shape == (2, 4, 3)
    assert distribution[1].batch_shape == [3]
    affine = bijectors.AffineTransform(tf.zeros([4, 3]), 2.0, event_dim=1)
    assert affine.experimental_batch_shape() == [4]
    chained = tfb.Chain([affine, bijectors.StableTanh()])
    x = tf.random.stateless_normal([4, 3], (1, 2)) * 20
    y = chained.forward(x)
    assert chained.inverse(y) is x
    expected = 3 * np.log(2) + tf.reduce_sum(
        bijectors.StableTanh().forward_log_det_jacobian(x), axis=-1
    )
    np.testing.assert_allclose(-chained.inverse_log_det_jacobian(y, 1), expected)


def test_event_ndims():
    bijector = bijectors.StableTanh()
    x = tf.random.stateless_normal([2, 3], (1, 2))
    full = bijector.forward_log_det_jacobian(x)
    got = bijector.forward_log_det_jacobian(x, event_ndims=np.int32(1))
    np.testing.assert_allclose(got, tf.reduce_sum(full, -1), rtol=1e-6)
    got = bijector.inverse_log_det_jacobian(bijector.forward(x), event_ndims=2)
    np.testing.assert_allclose(got, -tf.reduce_sum(full), rtol=1e-6)
    with pytest.raises(ValueError, match="`x` expected rank of at least 3; got shape"):
        bijector.forward_log_det_jacobian(x, event_ndims=3)
    with pytest.raises(
        ValueError, match="`event_ndims` expected a number of axes of at"
    ):
        bijectors.AffineTransform(0.0, 1.0, 1).forward_log_det_jacobian(x, 0)


def test_validate_args():
    bijector = bijectors.StableTanh(validate_args=True)
    np.testing.assert_allclose(bijector.inverse([1.0]), [8.664], rtol=1e-3)
    for value in (1.5, -1.5):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="numbers in its range"
        ):
            bijector.inverse([value])


def test_cache_size_is_checked():
    with pytest.raises(ValueError, match="`StableTanh`: `cache_size` expected one of"):
        bijectors.StableTanh(cache_size=2)
