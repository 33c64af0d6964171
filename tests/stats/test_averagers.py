"""Averagers by hand, and the variables that they share with normalizers."""

import copy

import modes
import numpy as np
import pytest
import tensorflow as tf

from tfrl import stats

DTYPES = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
SPEC = {"a": tf.TensorSpec([2]), "b": (tf.TensorSpec([], tf.float64),)}
MAKERS = {
    "EMAverager": lambda: stats.EMAverager(SPEC, 0.1),
    "AdaptiveAverager": lambda: stats.AdaptiveAverager(SPEC),
    "WindowAverager": lambda: stats.WindowAverager(SPEC, 3),
    "EMNormalizer": lambda: stats.EMNormalizer(SPEC, 0.1),
    "AdaptiveNormalizer": lambda: stats.AdaptiveNormalizer(SPEC),
    "WindowNormalizer": lambda: stats.WindowNormalizer(SPEC, 3),
}
# Those that differ in how batches are weighed or in what is kept.
SOME = ("AdaptiveAverager", "EMNormalizer", "WindowNormalizer")


def makers(names=MAKERS, default=SOME):
    return pytest.mark.parametrize(
        "make",
        [
            pytest.param(
                MAKERS[name],
                id=name,
                marks=[] if name in default else [pytest.mark.slow],
            )
            for name in names
        ],
    )


def batches(count, rows=6, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "a": (1e5 + rng.normal(size=(rows, 2))).astype(np.float32),
            "b": (rng.normal(size=(2, rows)),),
        }
        for _ in range(count)
    ]


def assert_equal_variables(one, two, **tolerance):
    assert len(one.variables) == len(two.variables) > 2
    for mine, yours in zip(one.variables, two.variables, strict=True):
        np.testing.assert_allclose(mine, yours, **tolerance)


def fed(module, data):
    for batch in data:
        module.update(batch)
    return module


@DTYPES
def test_average_outer_dims_keeps_the_dtype(dtype):
    values = tf.fill([3000], tf.constant(100.0, dtype))
    with tf.GradientTape() as tape:
        tape.watch(values)
        average = stats.average_outer_dims(values, tf.TensorSpec([]))
    assert average.dtype == dtype
    assert float(average) == 100.0, "float16 sums overflow"
    slope = tf.cast(tape.gradient(average, values), tf.float64)
    np.testing.assert_allclose(slope, np.full(3000, 1 / 3000), rtol=1e-2)


def test_update_rate_may_be_a_variable():
    rate = tf.Variable(0.5)
    averager = stats.ScalarEMAverager(rate)
    assert float(averager.get()) == 0.0
    averager.update(4.0)
    rate.assign(0.25)
    # Sum 2 and mass 1/2 become 1.5 + 0.25 and 5/8.
    np.testing.assert_allclose(averager.average(1.0), 1.75 / 0.625)
    assert any(variable is rate for variable in averager.variables)


@DTYPES
def test_results_have_the_dtype_of_the_spec(dtype):
    averager = stats.ScalarEMAverager(1e-3, dtype=tf.as_dtype(dtype))
    for _ in range(50):
        average = averager.average(tf.constant([1.0, 3.0], dtype))
    assert average.dtype == dtype
    np.testing.assert_allclose(tf.cast(average, tf.float64), 2.0, rtol=1e-6)
    # A Python float has the precision of the spec.
    averager = stats.ScalarEMAverager(0.1, dtype=tf.float64)
    assert float(averager.average(0.1)) == 0.1


@pytest.mark.parametrize(
    ("kind", "setting", "name"),
    [
        ("EMAverager", 0.0, "update_rate"),
        ("EMAverager", 2.0, "update_rate"),
        ("AdaptiveAverager", 0.0, "speed"),
        ("WindowAverager", 0, "window_size"),
    ],
)
def test_bad_settings(kind, setting, name):
    for kind_name, args in ((kind, [SPEC]), (f"Scalar{kind}", [])):
        with pytest.raises(ValueError, match=f"`{kind_name}`: `{name}` expected"):
            getattr(stats, kind_name)(*args, setting)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (tf.TensorSpec([None]), ValueError),
        (tf.TensorSpec([], tf.int32), TypeError),
    ],
)
def test_bad_specs(spec, error):
    with pytest.raises(error, match="`EMNormalizer`: `tensor_spec` expected"):
        stats.EMNormalizer(spec)
    with pytest.raises(error, match="`WindowAverager`: `tensor_spec` expected"):
        stats.WindowAverager(spec, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@makers([name for name in MAKERS if "Averager" in name], default=MAKERS)
def test_a_batch_that_is_not_finite_is_passed_over(make, bad):
    averager, other = make(), make()
    (zeros,) = tf.nest.flatten(averager.get())[1:]
    for good in batches(3):
        right = other.average(good)
        spoiled = {**good, "a": good["a"] + np.float32(bad)}
        for got in (averager.average(good), averager.average(spoiled)):
            np.testing.assert_array_equal(got["a"], right["a"])
            np.testing.assert_array_equal(got["b"], right["b"])
    assert float(zeros) == 0.0


@makers()
def test_every_variable_comes_back_from_a_checkpoint(make, tmp_path):
    module = fed(make(), batches(5))
    path = tf.train.Checkpoint(module=module).write(str(tmp_path / "checkpoint"))
    other = make()
    tf.train.Checkpoint(module=other).read(path).assert_consumed()
    assert_equal_variables(module, other, rtol=0)
    again = copy.deepcopy(module)
    (batch,) = batches(1, seed=1)
    for one in (module, other, again):
        fed(one, [batch])
        assert int(one.variables[0]) == 6
        assert_equal_variables(module, one, rtol=0)


@pytest.mark.parametrize("mode", [pytest.param("graph", marks=pytest.mark.slow), "xla"])
@makers()
def test_update_in_a_graph_equals_eager(make, mode):
    eager, compiled = fed(make(), batches(3)), make()
    update = modes.in_mode(mode, compiled.update)
    for batch in batches(3):
        update(tf.nest.map_structure(tf.constant, batch))
    assert_equal_variables(eager, compiled, rtol=1e-6, atol=1e-7)


@makers([name for name in MAKERS if "Normalizer" in name], default=["WindowNormalizer"])
def test_saved_model_goes_on_where_the_module_was(make, tmp_path):
    module = fed(make(), batches(2))
    two = tf.TensorSpec([None, 2]), tf.TensorSpec([None, None], tf.float64)
    module.served = tf.function(
        module.normalize, input_signature=[{"a": two[0], "b": (two[1],)}]
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for batch in batches(2, seed=1):
        batch = tf.nest.map_structure(tf.constant, batch)
        expected, got = module.normalize(batch), loaded.served(batch)
        np.testing.assert_allclose(got["a"], expected["a"], atol=1e-6)
        np.testing.assert_allclose(got["b"][0], expected["b"][0], atol=1e-9)


@pytest.mark.parametrize(
    ("name", "graph", "sizes"),
    [
        ("AdaptiveAverager", False, [4, 2]),
        ("EMNormalizer", True, [6, 0]),
        pytest.param("EMNormalizer", False, [4, 2], marks=pytest.mark.slow),
        pytest.param("AdaptiveAverager", True, [6, 0], marks=pytest.mark.slow),
        pytest.param("WindowNormalizer", True, [4, 2], marks=pytest.mark.slow),
    ],
)
def test_replicas_learn_from_the_global_batch(name, graph, sizes):
    # The default way of reducing leaves a thread pool to the garbage collector.
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    alone = MAKERS[name]()
    with strategy.scope():
        module = MAKERS[name]()

    def share(values, axis):
        parts = tf.split(values, sizes, axis)
        return strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    def step(a, b):
        strategy.run(lambda a, b: module.update({"a": a, "b": (b,)}), (a, b))

    if graph:
        step = tf.function(step, autograph=False)
    for batch in batches(3):
        step(share(batch["a"], 0), share(batch["b"][0], 1))
    fed(alone, batches(3))
    for kept, expected in zip(module.variables, alone.variables, strict=True):
        first, second = strategy.experimental_local_results(kept)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(first, expected, rtol=1e-6, atol=1e-6)
    # Outside the replicas an update takes what it is given for the whole batch.
    fed(module, batches(1, seed=1))
    fed(alone, batches(1, seed=1))
    assert_equal_variables(module, alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_no_gradient_flows_back_through_the_statistics(make):
    module, (batch,) = make(), batches(1)
    values = tf.constant(batch["a"])
    with tf.GradientTape() as tape:
        tape.watch(values)
        module.update({"a": values, "b": batch["b"]})
        kept = tf.add_n([tf.reduce_sum(v) for v in module.variables[2:]])
    assert tape.gradient(kept, values) is None


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"a": np.ones([3, 2], np.int64)}, TypeError, "`tensor` .* got int64"),
        ({"a": np.ones([3], np.float32)}, ValueError, r"shape \[..., \*\[2\]\]"),
        ({"c": 1.0}, ValueError, "structure"),
    ],
    ids=["integers", "shape", "nest"],
)
@makers()
def test_bad_input_is_refused_before_anything_is_learned(make, change, error, match):
    module, (batch,) = make(), batches(1)
    with pytest.raises(error, match=match):
        module.update({**batch, **change})
    assert int(module.variables[0]) == 0
