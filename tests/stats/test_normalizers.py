"""Normalizers against float64; `test_averagers` has what averagers do too."""

import inspect

import modes as test_modes
import numpy as np
import pytest
import tensorflow as tf

from tfrl import stats
from tfrl.core import modes

KINDS = {
    "exponential": lambda spec, **rest: stats.EMNormalizer(spec, 0.1, **rest),
    "adaptive": stats.AdaptiveNormalizer,
    "window": lambda spec, **rest: stats.WindowNormalizer(spec, 3, **rest),
}
EVERY_KIND = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())


def recent(batches, kind):
    """Mean and variance of all values, each with its batch's weight, in float64."""
    rates = {"exponential": lambda _: 0.1, "adaptive": lambda t: 8.0 / (8.0 + t)}
    weights = []
    for t in range(len(batches)):
        rate = rates[kind](t)
        weights = [(1 - rate) * weight for weight in weights] + [rate]
    weights = np.array(weights) / sum(weights)
    wide = [np.asarray(batch, np.float64) for batch in batches]
    mean = sum(w * batch.mean(0) for w, batch in zip(weights, wide, strict=True))
    parts = [((batch - mean) ** 2).mean(0) for batch in wide]
    return mean, sum(w * part for w, part in zip(weights, parts, strict=True))


@pytest.mark.parametrize("kind", ["exponential", "adaptive"])
@pytest.mark.parametrize("offset", [0.0, -1e7])
def test_float32_equals_float64_arithmetic(kind, offset):
    rng = np.random.default_rng(0)
    normalizer = KINDS[kind](tf.TensorSpec([3]))
    batches = []
    for rows in (16, 1, 40, 7, 16):
        batches.append((offset + rng.normal(size=(rows, 3))).astype(np.float32))
        got = normalizer.normalize(batches[-1])
        mean, variance = recent(batches, kind)
        expected = (batches[-1].astype(np.float64) - mean) / np.sqrt(variance + 1e-10)
        assert got.dtype == tf.float32
        np.testing.assert_allclose(got, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{"unit_std": True}, {"zero_mean": False}])
def test_nests_take_every_option(options, make=stats.AdaptiveNormalizer):
    spec = {"a": tf.TensorSpec([2]), "b": [tf.TensorSpec([])]}
    values = {
        "a": tf.constant([[1.0, 2.0], [3.0, 6.0]]),
        "b": [tf.constant([1.0, 2.0])],
    }
    nested = make(spec, **options).normalize(values)
    alone = make(spec["a"], **options).normalize(values["a"])
    np.testing.assert_array_equal(nested["a"], alone)
    assert isinstance(nested["b"], list)


def test_clipping_is_for_positive_bounds_and_never_for_calls():
    normalizer = stats.AdaptiveNormalizer(tf.TensorSpec([]), auto_update=False)
    normalizer.update(tf.constant([-1.0, 1.0]))
    for bound, expected in (
        (2.0, 2.0),
        (0.0, 9.0),
        (-1.0, 9.0),
        (None, 9.0),
        (tf.constant(3.0), 3.0),
    ):
        got = normalizer.normalize(tf.constant(9.0), clip_value=bound)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    np.testing.assert_allclose(normalizer(tf.constant(9.0), training=False), 9.0)


@EVERY_KIND
def test_what_saw_nothing_leaves_values_as_they_are(make):
    options = {"float16": {"zero_mean": False}, "bfloat16": {"unit_std": True}}
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        values = tf.constant([[0.5, -300.0], [2.0, 0.0]], dtype)
        normalizer = make(tf.TensorSpec([2], dtype), **options.get(dtype, {}))
        got = normalizer(values, training=False)
        assert got.dtype == dtype
        np.testing.assert_allclose(*map(wide, (got, values)), rtol=1e-9)
        assert count(normalizer) == 0
    # The one thing recorded otherwise, here by hand.
    normalizer = make(tf.TensorSpec([]), auto_update=False)
    np.testing.assert_allclose(normalizer.normalize(tf.constant(0.5)), 5e4, rtol=1e-6)


def wide(tensor):
    return tf.cast(tensor, tf.float64)


XLA = pytest.param("xla", marks=pytest.mark.slow)


@EVERY_KIND
@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e200])
@pytest.mark.parametrize("mode", ["eager", XLA])
def test_a_batch_that_is_not_finite_is_not_learned_from(make, bad, mode):
    spec = {"a": tf.TensorSpec([2], tf.float64), "b": tf.TensorSpec([], tf.float64)}
    rng = np.random.default_rng(0)

    def batch():
        return {"a": tf.constant(rng.normal(size=[4, 2])), "b": tf.zeros([4], "double")}

    normalizer, other = make(spec), make(spec)
    run = test_modes.in_mode(mode, normalizer.normalize)
    for good in (batch(), batch()):
        spoiled = good["a"].numpy()
        spoiled[0, 1] = bad
        before = [v.numpy() for v in normalizer.variables]
        got = run({**good, "a": tf.constant(spoiled)})
        for old, new in zip(before, normalizer.variables, strict=True):
            np.testing.assert_array_equal(old, new)
        # Other rows are normalized as ever.
        right = other(good, training=False)["a"][1:]
        np.testing.assert_allclose(got["a"][1:], right, rtol=1e-9)
        got, right = run(good), other.normalize(good)
        np.testing.assert_allclose(got["a"], right["a"], rtol=1e-9)
    assert count(normalizer) == 2


def count(normalizer):
    return int(normalizer.variables[0])


def test_calls_update_in_training_whatever_auto_update_says():
    normalizer = stats.EMNormalizer(tf.TensorSpec([]), auto_update=False)
    values = tf.constant([1.0, 2.0])
    normalizer.normalize(values)
    assert count(normalizer) == 0
    normalizer(values)
    assert count(normalizer) == 1
    with modes.eval_context():
        normalizer(values)
        assert count(normalizer) == 1
        normalizer(values, training=True)
        assert count(normalizer) == 2
    with modes.replay_context():
        normalizer(values)
        assert count(normalizer) == 3
        normalizer(values, training=False)
        assert count(normalizer) == 3
    normalizer.training = False
    normalizer(values)
    assert count(normalizer) == 3


def test_extreme_values_normalize_to_finite_ones():
    for size in (1e-38, 1e4, 1e30):
        normalizer = stats.EMNormalizer(tf.TensorSpec([]), variance_epsilon=0.0)
        values = tf.constant([size, -size, size, -size], tf.float64)
        np.testing.assert_allclose(
            normalizer.normalize(values), [1, -1, 1, -1], rtol=1e-6
        )
    normalizer = stats.EMNormalizer(tf.TensorSpec([]))
    got = normalizer.normalize(tf.constant([1e30, -1e30]))
    np.testing.assert_allclose(got, [1.0, -1.0], rtol=1e-6)


def test_constant_values_normalize_to_zero():
    normalizer = stats.AdaptiveNormalizer(tf.TensorSpec([2]))
    values = tf.fill([5, 2], 1234567.0)
    for _ in range(3):
        np.testing.assert_array_equal(normalizer.normalize(values), tf.zeros([5, 2]))


def test_debug_summaries_show_the_first_elements(tmp_path):
    spec = [tf.TensorSpec([3]), tf.TensorSpec([])]
    normalizer = stats.EMNormalizer(spec, debug_summaries=True, name="obs")
    normalizer._summarized = 2
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=7):
        normalizer.update([tf.constant([[1.0, 2.0, 3.0]]), tf.constant([4.0])])
    writer.close()
    (path,) = tmp_path.iterdir()
    records = tf.data.TFRecordDataset(str(path))
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in records]
    shown = {
        value.tag: float(tf.make_ndarray(value.tensor))
        for event in events
        for value in event.summary.value
    }
    elements = ["0/mean/0", "0/mean/1", "0/variance/0", "0/variance/1", "1/mean/0"]
    assert set(shown) == {f"obs/{path}" for path in [*elements, "1/variance/0"]}
    assert (shown["obs/0/mean/1"], shown["obs/1/mean/0"]) == (2.0, 4.0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"zero_mean": False, "unit_std": True}, "`zero_mean` expected to be True"),
        ({"variance_epsilon": -1.0}, "`variance_epsilon` expected numbers in"),
    ],
    ids=["nothing to do", "epsilon"],
)
def test_bad_options(options, match):
    with pytest.raises(ValueError, match=f"`AdaptiveNormalizer`: {match}"):
        stats.AdaptiveNormalizer(tf.TensorSpec([]), **options)


SCALARS = {
    "exponential": (stats.ScalarEMNormalizer, stats.EMNormalizer, {"update_rate": 0.2}),
    "window": (
        stats.ScalarWindowNormalizer,
        stats.WindowNormalizer,
        {"window_size": 2},
    ),
    "adaptive": (
        stats.ScalarAdaptiveNormalizer,
        stats.AdaptiveNormalizer,
        {"speed": 3.0},
    ),
}


@pytest.mark.parametrize("kind", SCALARS)
def test_scalar_normalizers_equal_the_general_ones(kind):
    scalar, general, setting = SCALARS[kind]
    options = [{}, {"zero_mean": False}, {"unit_std": True}, {"variance_epsilon": 0.5}]
    for option in options:
        one = scalar(**setting, **option)
        two = general(tf.TensorSpec([]), **setting, **option)
        for values in np.random.default_rng(0).normal(size=(3, 2, 3)).astype("float32"):
            np.testing.assert_array_equal(one.normalize(values), two.normalize(values))
    assert float(one.normalize(tf.constant(7.0))) != 7.0
    ours, theirs = (inspect.signature(made).parameters for made in (scalar, general))
    assert list(ours)[0] == next(iter(setting))
    assert set(ours) == set(theirs) - {"tensor_spec"}
    defaults = {name: p.default for name, p in ours.items() if name != "name"}
    assert defaults == {name: theirs[name].default for name in defaults}


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_after_a_reset_everything_is_as_in_the_beginning(mode):
    rng = np.random.default_rng(8)
    first, second = rng.normal(3.0, 2.0, size=(2, 5, 4, 2))
    settings = {
        "EM": {"update_rate": 0.1},
        "Adaptive": {},
        "Window": {"window_size": 3},
    }
    for kind, setting in settings.items():
        for name in (f"{kind}Normalizer", f"{kind}Averager"):
            used, fresh = (
                getattr(stats, name)(tf.TensorSpec([2]), **setting) for _ in range(2)
            )
            for batch in first:
                used.update(tf.constant(batch, tf.float32))
            reset = used.reset
            (tf.function(reset, jit_compile=True) if mode == "xla" else reset)()
            for batch in second:
                used.update(tf.constant(batch, tf.float32))
                fresh.update(tf.constant(batch, tf.float32))
            for one, other in zip(used.variables, fresh.variables, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "kind", [stats.EMNormalizer, stats.WindowNormalizer, stats.AdaptiveNormalizer]
)
@pytest.mark.parametrize(
    "bad", [np.ones([3, 2], np.int32), np.ones([3], np.float32)], ids=["int", "shape"]
)
def test_errors_name_the_class_and_the_argument(kind, bad):
    normalizer = kind(tf.TensorSpec([2]), auto_update=False)
    error = TypeError if bad.dtype == np.int32 else ValueError
    for call in (
        normalizer.normalize,
        normalizer.update,
        lambda tensor: normalizer(tensor, training=False),
    ):
        with pytest.raises(error, match=f"^`{kind.__name__}`: `tensor` expected"):
            call(bad)
