"""Tests of tfrl.bijectors.standard, and of parameters, memory, equality and bounds.

Laws and recordings are in test_laws.
"""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors
from tfrl.bijectors import _transform

tfb, tfd = tfp.bijectors, tfp.distributions


def test_affine():
    bijector = bijectors.AffineTransform(1.0, -2.0)
    x = tf.constant([[1.0, 3.0]])
    np.testing.assert_array_equal(bijector.forward(x), [[-1.0, -5.0]])
    np.testing.assert_array_equal(bijector.inverse([[-1.0, -5.0]]), x)
    got = bijector.forward_log_det_jacobian(x)
    np.testing.assert_allclose(got, np.log([[2.0, 2.0]]), rtol=1e-6)
    got = bijector.inverse_log_det_jacobian(x, event_ndims=1)
    np.testing.assert_allclose(got, [-2 * np.log(2.0)], rtol=1e-6)


@pytest.mark.parametrize("event_dim", [0, 1, 2])
def test_affine_sums_over_the_event_of_the_input(event_dim):
    scale = tf.constant([[2.0], [-3.0]])
    bijector = bijectors.AffineTransform(tf.zeros([4, 1, 1]), scale, event_dim)
    x = tf.zeros([2, 3])
    slopes = np.broadcast_to(np.log([[2.0], [3.0]]), (4, 2, 3))
    expected = slopes.sum(axis=tuple(range(-event_dim, 0))) if event_dim else slopes
    got = bijector.forward_log_det_jacobian(x)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert bijector.forward(x).shape == (4, 2, 3)


def test_power():
    bijector = bijectors.PowerTransform([2.0, -0.5])
    x = tf.constant([3.0, 4.0])
    np.testing.assert_allclose(bijector.forward(x), [9.0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(bijector.inverse([9.0, 0.5]), x, rtol=1e-6)
    got = bijector.forward_log_det_jacobian(x)
    np.testing.assert_allclose(got, np.log([6.0, 0.0625]), rtol=1e-6)
    for exponent in (0.5, -0.5, 2.0):
        assert np.isnan(bijectors.PowerTransform(exponent).inverse([-2.0]))
    y = tf.zeros([2])
    with tf.GradientTape() as tape:
        tape.watch(y)
        log_det = bijector.inverse_log_det_jacobian(y)
    assert np.isfinite(log_det).all()
    assert np.isfinite(tape.gradient(log_det, y)).all()
    exponent = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(exponent)
        x = bijectors.PowerTransform(exponent).inverse(8.0)
    np.testing.assert_allclose(tape.gradient(x, exponent), -2 / 9 * np.log(8.0), 1e-6)


def test_abs():
    bijector = bijectors.AbsTransform()
    x = tf.constant([-2.0, 3.0])
    y = bijector.forward(x)
    np.testing.assert_array_equal(y, [2.0, 3.0])
    assert bijector.inverse(y) is x
    np.testing.assert_array_equal(bijector.inverse(tf.identity(y)), [2.0, 3.0])
    for refused in (
        bijector.forward_log_det_jacobian,
        bijector.inverse_log_det_jacobian,
    ):
        with pytest.raises(NotImplementedError, match="`AbsTransform` has no log-det"):
            refused(x)


def test_softmax():
    bijector = bijectors.SoftmaxTransform()
    x = tf.constant([[0.0, np.log(3.0)], [1000.0, 1000.0]])
    y = bijector.forward(x)
    np.testing.assert_allclose(y, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(bijector.inverse(tf.identity(y)), np.log(y), rtol=1e-6)
    assert bijector.inverse(y) is x
    assert bijector.forward_min_event_ndims == 1
    with pytest.raises(NotImplementedError, match="`SoftmaxTransform` has no log-det"):
        bijector.forward_log_det_jacobian(x)


def test_get_invertible():
    for cls in (bijectors.Softsign, tfb.Exp):
        assert bijectors.get_invertible(cls) is cls
    for given in (bijectors.Softsign(), int, np.tanh):
        with pytest.raises(
            TypeError, match="`get_invertible`: `cls` expected a subcla"
        ):
            bijectors.get_invertible(given)


def test_refusals():
    for scale in (0.0, [1.0, 0.0], tf.constant(0.0), np.nan):
        with pytest.raises(
            ValueError, match="`AffineTransform`: `scale` expected numbe"
        ):
            bijectors.AffineTransform(0.0, scale)
    with pytest.raises(ValueError, match="`exponent` expected numbers other than 0"):
        bijectors.PowerTransform(0)
    with pytest.raises(ValueError, match="`event_dim` expected an int of at least"):
        bijectors.AffineTransform(0.0, 1.0, -1)
    with pytest.raises(TypeError, match="`event_dim` expected an int of .*; got 1.5"):
        bijectors.AffineTransform(0.0, 1.0, 1.5)


def test_increasing():
    x = tf.constant([0.5, 1.0, 2.0])
    base = tfd.Uniform(0.25, 4.0)
    for bijector in (
        bijectors.AffineTransform(1.0, -2.0),
        bijectors.PowerTransform(-1.0),
        bijectors.PowerTransform(2.0),
        bijectors.ExpTransform(),
        bijectors.StableTanh(),
    ):
        y = tf.identity(bijector.forward(x))
        got = tfd.TransformedDistribution(base, bijector).cdf(y)
        rises = bool(y[0] < y[1])
        expected = base.cdf(x) if rises else 1.0 - base.cdf(x)
        np.testing.assert_allclose(got, expected, rtol=1e-4)


# What all bijectors share.


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


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_numbers_take_the_dtype_of_the_input(dtype):
    x = tf.cast([0.5, 1.0], dtype)
    for low in (-1, np.float32(-1), [-1.0], np.array([-1])):
        bijector = bijectors.Softclip(low, 1.0)
        assert bijector.dtype is None
        for function in ("forward", "inverse", "forward_log_det_jacobian"):
            assert getattr(bijector, function)(x).dtype == dtype
    y = bijectors.Softclip(-0.1, 0.3).forward(tf.constant([9.0], tf.float64))
    assert y.numpy()[0] <= 0.3
    np.testing.assert_allclose(y, [0.3], rtol=1e-3)


def test_what_is_refused():
    with pytest.raises(TypeError, match="`PowerTransform`: `exponent` expected a num"):
        bijectors.PowerTransform(None)
    with pytest.raises(TypeError, match="`StableTanh`: `y` expected a floating-point"):
        bijectors.StableTanh().inverse([1, 2])
    with pytest.raises(ValueError, match="`StableTanh`: `cache_size` expected one of"):
        bijectors.StableTanh(cache_size=2)


MISFITS = {
    "scale": bijectors.AffineTransform(1.0, [2.0, 3.0], 1),
    "loc": bijectors.AffineTransform(tf.Variable([2.0, 3.0]), 1.0),
    "exponent": bijectors.PowerTransform(np.array([2.0, 3.0])),
    "high": bijectors.Softupper([2.0, 3.0]),
    "hinge_softness": bijectors.Softplus(tf.constant([2.0, 3.0])),
}


@pytest.mark.parametrize("name", MISFITS)
def test_vectors_fit_what_is_transformed(name):
    bijector, x = MISFITS[name], tf.ones([4, 3])
    kind = type(bijector).__name__
    for call, argument in (
        (bijector.forward, "x"),
        (bijector.inverse, "y"),
        (lambda x: bijector.forward_log_det_jacobian(x, 1), "x"),
        (lambda x: bijector.inverse_log_det_jacobian(x, 1), "y"),
    ):
        match = rf"`{kind}`: `{argument}` expected a .* `{name}` \(2,\); got \(4, 3\)"
        with pytest.raises(ValueError, match=match):
            call(x)
        # In a graph what is not known passes, as what broadcasts does.
        run = tf.function(call, [tf.TensorSpec([None, None])])
        assert run(tf.ones([4, 2])).shape[0] == 4
        assert call(tf.ones([4, 1])).shape[0] == 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_trainable_softness_is_positive(dtype):
    of_softness = bijectors.Softplus.parameter_properties(dtype=dtype)["hinge_softness"]
    bijector = of_softness.default_constraining_bijector_fn()
    assert bijector.forward(tf.constant(-100.0, dtype)) > 0


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


def test_log_prob_of_a_fresh_sample_is_exact():
    def sampled(loc):
        base = tfd.Normal(loc, 0.1)
        distribution = tfd.TransformedDistribution(base, bijectors.StableTanh())
        sample = distribution.sample(5, seed=tf.constant([1, 2]))
        x = tf.stop_gradient(distribution.bijector.inverse(sample))
        expected = base.log_prob(x) - bijectors.StableTanh().forward_log_det_jacobian(x)
        return sample, distribution.log_prob(sample), expected

    for run in (sampled, tf.function(sampled, jit_compile=True)):
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
    x, scale = tf.constant([0.5, 2.0]), tf.Variable(2.0, dtype=tf.float64)
    for value in (2.0, 4.0):
        scale.assign(value)
        with tf.GradientTape() as tape:
            tape.watch(x)
            bijector = bijectors.AffineTransform(0.0, scale)
            y = bijector.forward(x)
            log_prob = tfd.TransformedDistribution(
                tfd.Normal(0.0, 1.0), bijector
            ).log_prob(x)
        np.testing.assert_array_equal(y, value * x)
        expected = tfd.Normal(0.0, value).log_prob(x)
        np.testing.assert_allclose(log_prob, expected, rtol=1e-6)
        slope, pull = tape.gradient([y, log_prob], [x, scale])
        assert pull.dtype == tf.float64
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


def test_tensors_make_no_traces_and_variables_learn():
    traces = []

    @tf.function
    def forward(bijector, x):
        traces.append(bijector)
        return bijector.forward(x)

    for softness in (1.0, 2.0):
        forward(bijectors.Softplus(tf.constant(softness)), tf.zeros([2]))
    assert len(traces) == 1
    for _ in range(2):  # equal numbers make equal types
        forward(bijectors.Softclip(-1.0, 1.0, 0.5), tf.zeros([2]))
    assert len(traces) == 2
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
    with pytest.raises(ValueError, match="`event_ndims` expected a number of axes"):
        bijectors.AffineTransform(0.0, 1.0, 1).forward_log_det_jacobian(x, 0)


def test_validate_args():
    bijector = bijectors.StableTanh(validate_args=True)
    np.testing.assert_allclose(bijector.inverse([1.0]), [8.664], rtol=1e-3)
    for value in (1.5, -1.5):
        with pytest.raises(tf.errors.InvalidArgumentError, match="in its range"):
            bijector.inverse([value])


def test_what_was_pickled_before_shapes_were_looked_at():
    old = bijectors.AffineTransform(1.0, [2.0, 3.0], 1)
    del old.__dict__["_with_shape"]
    np.testing.assert_array_equal(old.forward(tf.ones([4, 2]))[0], [3.0, 4.0])
