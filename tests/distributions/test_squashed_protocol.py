"""`SquashedNormal` as a distribution of TFP: shapes, graphs, divergences, errors."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import distributions
from tfrl.distributions import squashed

tfd = tfp.distributions

SEED = np.array([3, 7], np.int32)
LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)


def a_policy(batch=(3,)):
    rng = np.random.default_rng(0)
    loc = tf.constant(rng.normal(size=[*batch, 2]), tf.float32)
    scale = tf.constant(rng.uniform(0.1, 1.0, [*batch, 2]), tf.float32)
    return squashed.SquashedNormal(loc, scale, LOW, HIGH)


def test_the_bounds_give_the_shape_of_an_event():
    cases = [
        ((4, 2), (), LOW, (4,), (2,)),
        ((), (), LOW, (), (2,)),
        ((4, 1), (5, 1, 2), LOW, (5, 4), (2,)),
        ((4, 2), (2,), -1.0, (4, 2), ()),
        ((6, 2, 3), (3,), -np.ones((2, 3), "f"), (6,), (2, 3)),
    ]
    for loc, scale, low, batch, event in cases:
        dist = squashed.SquashedNormal(tf.zeros(loc), tf.ones(scale), low, low + 2)
        assert (dist.batch_shape, dist.event_shape) == (batch, event)
        assert dist.sample([7, 8]).shape == (7, 8, *batch, *event)
        assert dist.mode().shape == (*batch, *event)
        assert dist.log_prob(dist.mode()).shape == batch
        np.testing.assert_array_equal(dist.batch_shape_tensor(), batch)
        np.testing.assert_array_equal(dist.event_shape_tensor(), event)


def test_mode_is_where_the_normals_mode_goes():
    dist = a_policy()
    expected = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.tanh(dist.loc)
    np.testing.assert_allclose(dist.mode(), expected, rtol=1e-6)


@pytest.mark.parametrize("statistic", ["mean", "stddev", "variance", "entropy"])
def test_what_has_no_closed_form(statistic):
    with pytest.raises(NotImplementedError, match="SquashedNormal"):
        getattr(a_policy(), statistic)()


def test_entropy_can_be_estimated():
    # The uniform distribution over [-1, 1], nearly: loc 0, scale 0.8744.
    dist = squashed.SquashedNormal(0.0, 0.8744, -1.0, 1.0)
    _, log_probs = dist.experimental_sample_and_log_prob(20_000, seed=SEED)
    np.testing.assert_allclose(-np.mean(log_probs), np.log(2.0), atol=0.02)
    estimate, _ = distributions.estimated_entropy(dist, num_samples=2000)
    np.testing.assert_allclose(estimate, np.log(2.0), atol=0.05)


def test_slices_and_copies_keep_everything():
    dist = a_policy()
    part = dist[1:]
    assert part.batch_shape == [2]
    np.testing.assert_array_equal(part.loc, dist.loc[1:])
    value = dist.mode()
    np.testing.assert_array_equal(part.log_prob(value[1:]), dist.log_prob(value)[1:])
    other = dist.copy(scale=2.0 * dist.scale)
    np.testing.assert_array_equal(other.high, HIGH)
    assert set(dist.parameters) == {
        *("loc", "scale", "low", "high", "validate_args", "allow_nan_stats", "name")
    }


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_into_and_out_of_functions(jit):
    @tf.function(jit_compile=jit)
    def score(dist, value):
        return dist.log_prob(value)

    @tf.function
    def widen(dist):
        return dist.copy(scale=2.0 * dist.scale)

    for seed in (1, 2):
        dist = a_policy()
        value = dist.sample(seed=seed)
        expected = dist.log_prob(value.numpy())
        np.testing.assert_allclose(score(dist, value), expected, rtol=1e-4, atol=1e-4)
        wide = widen(dist)
        assert isinstance(wide, squashed.SquashedNormal)
        np.testing.assert_array_equal(wide.scale, 2.0 * dist.scale)
    assert score.experimental_get_tracing_count() == 1
    assert widen.experimental_get_tracing_count() == 1


def test_unknown_shapes():
    unknown = tf.TensorSpec([None, None])

    @tf.function(input_signature=[unknown, unknown])
    def everything(loc, scale):
        dist = squashed.SquashedNormal(loc, scale, LOW, HIGH)
        value, log_prob = dist.experimental_sample_and_log_prob([4], seed=SEED)
        return value, log_prob, dist.log_prob(value), dist.mode()

    dist = a_policy()
    value, log_prob, again, mode = everything(dist.loc, dist.scale)
    expected = dist.experimental_sample_and_log_prob([4], seed=SEED)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(log_prob, expected[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(again, log_prob, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(mode, dist.mode(), rtol=1e-6)


def test_unknown_rank_of_the_event():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def make(low):
        return squashed.SquashedNormal(0.0, 1.0, low, low + 1.0).mode()

    with pytest.raises(ValueError, match="`low` and `high` expected a known rank"):
        make(0.0)


def test_variables_are_read_when_used():
    loc, scale = tf.Variable([0.0, 0.0]), tf.Variable([1.0, 1.0])
    dist = squashed.SquashedNormal(loc, scale, LOW, HIGH)
    before = dist.log_prob(dist.mode())
    loc.assign([0.0, 0.5])
    with tf.GradientTape() as tape:
        after = dist.log_prob([0.0, 2.5])
    assert float(before) > float(after)
    of_loc, of_scale = tape.gradient(after, [loc, scale])
    np.testing.assert_allclose(of_loc, [0.0, -0.5], atol=1e-6)
    np.testing.assert_allclose(of_scale, [-1.0, -0.75], atol=1e-6)
    assert dist.trainable_variables == (loc, scale)


def test_bijector_to_the_events():
    dist = a_policy()
    bijector = dist.experimental_default_event_space_bijector()
    np.testing.assert_allclose(bijector.forward([0.0, 0.0]), [0.0, 2.5])


# Divergence.


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
def test_divergence_is_that_of_the_normals(in_graph):
    one, two = a_policy(), a_policy().copy(loc=[0.1, -0.3], scale=0.7)
    divergence = tfd.kl_divergence
    got = (tf.function(divergence) if in_graph else divergence)(one, two)
    normals = [tfd.MultivariateNormalDiag(d.loc, d.scale + [0, 0]) for d in (one, two)]
    np.testing.assert_allclose(got, tfd.kl_divergence(*normals), rtol=1e-5)
    # Against draws: the logarithms' mean, within five standard errors.
    value, log_probs = one.experimental_sample_and_log_prob([20_000], seed=SEED)
    ratios = (log_probs - two.log_prob(value)).numpy()
    error = ratios.std(0) / np.sqrt(len(ratios))
    assert np.all(np.abs(ratios.mean(0) - got) < 5 * error)


def test_no_divergence_between_other_bounds():
    one, two = a_policy(), a_policy().copy(high=HIGH + 1)
    with pytest.raises(ValueError, match="expected the bounds of `distribution_a`"):
        tfd.kl_divergence(one, two)
    assert np.isnan(tf.function(tfd.kl_divergence)(one, two)).all()
    with pytest.raises(ValueError, match="expected the bounds of `distribution_a`"):
        tfd.kl_divergence(one, squashed.SquashedNormal(0.0, 1.0, -np.ones(3), 1.0))
    one = squashed.SquashedNormal([0.0, 0.0], 1.0, -1.0, LOW + 3)
    with pytest.raises(ValueError, match="expected the bounds of `distribution_a`"):
        tfd.kl_divergence(one, one.copy(high=LOW + 4))
    two = squashed.SquashedNormal([0.0, 0.0], 1.0, [-1.0, -1.0], LOW + 3)
    assert float(tfd.kl_divergence(one, two)) == 0.0


# Errors.


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"scale": 0.0}, "`scale` expected numbers > 0"),
        ({"scale": tf.constant([1.0, -1.0])}, "`scale` expected numbers > 0"),
        ({"scale": np.nan}, "`scale` expected numbers > 0"),
        ({"low": HIGH, "high": LOW}, "`high` expected numbers > `low`"),
        ({"high": LOW}, "`high` expected numbers > `low`"),
        ({"high": np.inf}, "`high` expected finite numbers"),
        ({"low": [-np.inf, 0.0]}, "`low` expected finite numbers"),
        (
            {"loc": tf.zeros([3])},
            r"`loc` expected a shape that ends in .*\[2\]; got \[3\]",
        ),
        ({"scale": tf.ones([4, 3])}, "`scale` expected a shape that ends in"),
        ({"low": -1.0, "high": np.ones(1, "f")}, "`loc` expected a shape that ends in"),
    ],
    ids=[
        "scale 0",
        "scale below 0",
        "scale NaN",
        "swapped",
        "equal",
        "no upper bound",
        "no lower bound",
        "loc",
        "scale",
        "event of 1",
    ],
)
def test_bad_parameters(changes, match):
    good = {"loc": [0.0, 0.0], "scale": 1.0, "low": LOW, "high": HIGH}
    with pytest.raises(ValueError, match=f"`SquashedNormal`: {match}"):
        squashed.SquashedNormal(**{**good, **changes})
    # In a graph too, if the numbers are written into it.
    with pytest.raises(ValueError, match=f"`SquashedNormal`: {match}"):
        tf.function(lambda: squashed.SquashedNormal(**{**good, **changes}).mode())()


def test_integers_are_no_parameters():
    with pytest.raises(TypeError, match="`loc` expected a floating-point dtype"):
        squashed.SquashedNormal(tf.constant([0, 0]), 1.0)
    assert squashed.SquashedNormal(0, 1, 0, 2).dtype == tf.float32


def test_validation_at_run_time():
    @tf.function(input_signature=[tf.TensorSpec([]), tf.TensorSpec([])])
    def score(scale, value):
        dist = squashed.SquashedNormal(0.0, scale, validate_args=True)
        return dist.log_prob(value)

    assert np.isfinite(score(1.0, 0.5))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`scale` must be"):
        score(-1.0, 0.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="within the bounds"):
        score(1.0, 1.5)
