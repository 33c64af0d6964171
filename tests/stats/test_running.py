"""What averagers and normalizers share: their variables, wherever they are used."""

import copy

import numpy as np
import pytest
import tensorflow as tf

from tfrl import stats

SPEC = {"a": tf.TensorSpec([2]), "b": (tf.TensorSpec([], tf.float64),)}
MAKERS = {
    "EMAverager": lambda: stats.EMAverager(SPEC, 0.1),
    "AdaptiveAverager": lambda: stats.AdaptiveAverager(SPEC),
    "WindowAverager": lambda: stats.WindowAverager(SPEC, 3),
    "EMNormalizer": lambda: stats.EMNormalizer(SPEC, 0.1),
    "AdaptiveNormalizer": lambda: stats.AdaptiveNormalizer(SPEC),
    "WindowNormalizer": lambda: stats.WindowNormalizer(SPEC, 3),
}
EVERY_KIND = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
EVERY_NORMALIZER = pytest.mark.parametrize(
    "make",
    [make for name, make in MAKERS.items() if "Normalizer" in name],
    ids=[name for name in MAKERS if "Normalizer" in name],
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


@EVERY_KIND
def test_every_variable_comes_back_from_a_checkpoint(make, tmp_path):
    module = fed(make(), batches(5))
    path = tf.train.Checkpoint(module=module).write(str(tmp_path / "checkpoint"))
    other = make()
    tf.train.Checkpoint(module=other).read(path).assert_consumed()
    assert_equal_variables(module, other, rtol=0)
    (batch,) = batches(1, seed=1)
    assert_equal_variables(fed(module, [batch]), fed(other, [batch]), rtol=0)


@EVERY_KIND
def test_update_in_a_graph_and_under_xla_equals_eager(make):
    eager, graph, xla = make(), make(), make()
    for compiled, jit in ((graph, False), (xla, True)):
        update = tf.function(compiled.update, jit_compile=jit)
        for batch in batches(3):
            update(tf.nest.map_structure(tf.constant, batch))
    fed(eager, batches(3))
    assert_equal_variables(eager, graph, rtol=1e-6, atol=1e-7)
    assert_equal_variables(eager, xla, rtol=1e-6, atol=1e-7)


@EVERY_NORMALIZER
def test_saved_model_goes_on_where_the_module_was(make, tmp_path):
    module = fed(make(), batches(2))
    module.served = tf.function(
        module.normalize,
        input_signature=[
            {
                "a": tf.TensorSpec([None, 2]),
                "b": (tf.TensorSpec([None, None], tf.float64),),
            }
        ],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for batch in batches(2, seed=1):
        batch = tf.nest.map_structure(tf.constant, batch)
        expected, got = module.normalize(batch), loaded.served(batch)
        np.testing.assert_allclose(got["a"], expected["a"], atol=1e-6)
        np.testing.assert_allclose(got["b"][0], expected["b"][0], atol=1e-9)


@EVERY_KIND
def test_a_copy_lives_its_own_life(make):
    module = fed(make(), batches(1))
    other = copy.deepcopy(module)
    assert_equal_variables(module, other, rtol=0)
    fed(other, batches(1, seed=1))
    assert [int(kept.variables[0]) for kept in (module, other)] == [1, 2]


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize(
    "name", ["AdaptiveAverager", "EMNormalizer", "WindowNormalizer"]
)
def test_replicas_learn_from_the_global_batch(name, graph):
    # The default way of reducing leaves a thread pool to the garbage collector.
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    alone = MAKERS[name]()
    with strategy.scope():
        module = MAKERS[name]()

    def share(values, axis):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.split(values, [4, 2], axis)[
                context.replica_id_in_sync_group
            ]
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
    (batch,) = batches(1, seed=1)
    assert_equal_variables(
        fed(module, [batch]), fed(alone, [batch]), rtol=1e-6, atol=1e-6
    )


@EVERY_KIND
def test_no_gradient_flows_back_through_the_statistics(make):
    module, (batch,) = make(), batches(1)
    values = tf.constant(batch["a"])
    with tf.GradientTape() as tape:
        tape.watch(values)
        module.update({"a": values, "b": batch["b"]})
        kept = tf.add_n([tf.reduce_sum(v) for v in module.variables[2:]])
    assert tape.gradient(kept, values) is None


@EVERY_KIND
@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"a": np.ones([3, 2], np.int64)}, TypeError, "`values` .* got int64"),
        (
            {"a": np.ones([3], np.float32)},
            ValueError,
            r"expected shape \[..., \*\[2\]\]",
        ),
        ({"c": 1.0}, ValueError, "structure"),
    ],
    ids=["integers", "shape", "nest"],
)
def test_bad_input_is_refused_before_anything_is_learned(make, change, error, match):
    module, (batch,) = make(), batches(1)
    with pytest.raises(error, match=match):
        module.update({**batch, **change})
    assert int(module.variables[0]) == 0


@pytest.mark.parametrize(
    ("spec", "error", "match"),
    [
        (tf.TensorSpec([None]), ValueError, "`tensor_spec` expected known dimensions"),
        (tf.TensorSpec([], tf.int32), TypeError, "`tensor_spec` expected a floating"),
    ],
    ids=["unknown size", "integers"],
)
def test_bad_specs(spec, error, match):
    with pytest.raises(error, match=f"`EMNormalizer`: {match}"):
        stats.EMNormalizer(spec)
    with pytest.raises(error, match=f"`WindowAverager`: {match}"):
        stats.WindowAverager(spec, 3)
