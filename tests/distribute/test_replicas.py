"""Replicas are logical CPUs; `rows_of` and `mean_of` below are the oracles."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import pytree
from tfrl.distribute import replicas


class Pair(pytree.PyTreeNode):
    first: tf.Tensor
    second: tf.Tensor
    name: str = pytree.nonpytree_field(default="pair")


@pytest.fixture(scope="module")
def strategy():
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )


def local(strategy, value):
    return [each.numpy() for each in strategy.experimental_local_results(value)]


def rows_of(batch, number, n_replicas):
    """Row by row: the rows that replica `number` gets."""
    share = len(batch) // n_replicas
    return [row for i, row in enumerate(batch.tolist()) if i // share == number]


def mean_of(values):
    total = 0.0
    for value in values:
        total = total + np.asarray(value, np.float64)
    return total / len(values)


def test_replicate_gives_each_replica_the_values_on_its_device(strategy):
    tree = {"w": np.float32([1.0, 2.0]), "n": 3, "flag": True, "none": None}
    copies = replicas.replicate(tree, strategy)
    assert copies["none"] is None
    for name in ("w", "n", "flag"):
        values = strategy.experimental_local_results(copies[name])
        assert len(values) == 2
        for value, device in zip(values, ("CPU:0", "CPU:1"), strict=True):
            assert value.device.endswith(f"device:{device}")
            np.testing.assert_array_equal(value, tree[name])
    single = replicas.unreplicate(copies)
    assert single["none"] is None and single["w"].dtype == tf.float32
    np.testing.assert_array_equal(single["w"], [1.0, 2.0])


def test_nodes_and_variables_round_trip(strategy):
    with strategy.scope():
        mirrored = tf.Variable(4.0)
    keras_variable = keras.Variable([5.0])
    node = Pair(first=mirrored, second=(keras_variable, tf.Variable(6)), name="other")
    copies = replicas.replicate(node, strategy)
    assert isinstance(copies, Pair) and copies.name == "other"
    assert local(strategy, copies.first) == [4.0, 4.0]
    single = replicas.unreplicate(copies)
    assert isinstance(single, Pair) and single.name == "other"
    assert float(single.first) == 4.0
    assert [np.ravel(x).tolist() for x in single.second] == [[5.0], [6]]
    # A later assignment must not reach what was taken.
    taken = replicas.unreplicate(mirrored)
    mirrored.assign(7.0)
    assert float(taken) == 4.0 and local(strategy, copies.first) == [4.0, 4.0]


def test_unreplicate_takes_the_first_and_leaves_other_leaves(strategy):
    numbers = tf.function(
        lambda: strategy.run(
            lambda: tf.distribute.get_replica_context().replica_id_in_sync_group + 10
        )
    )()
    assert local(strategy, numbers) == [10, 11]
    text = "plain"
    tree = replicas.unreplicate({"n": numbers, "text": text, "none": None})
    assert int(tree["n"]) == 10 and tree["text"] is text and tree["none"] is None


@pytest.mark.parametrize("as_tensor", [False, True], ids=["array", "tensor"])
def test_shard_batch_splits_the_rows_in_order(strategy, as_tensor):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 2)), rng.integers(9, size=6)
    batch = (x, y) if not as_tensor else (tf.constant(x), tf.constant(y))
    shares = replicas.shard_batch(Pair(first=batch[0], second=batch[1]), strategy)
    for whole, share in ((x, shares.first), (y, shares.second)):
        values = strategy.experimental_local_results(share)
        for number, (value, device) in enumerate(
            zip(values, ("CPU:0", "CPU:1"), strict=True)
        ):
            assert value.device.endswith(f"device:{device}")
            assert value.numpy().tolist() == rows_of(whole, number, 2)
            assert value.dtype == whole.dtype
    assert shares.name == "pair"


def test_one_replica_gets_plain_tensors():
    tree = {"x": np.arange(3.0), "none": None}
    for one in (None, tf.distribute.OneDeviceStrategy("CPU:1")):
        for value in (replicas.shard_batch(tree, one), replicas.replicate(tree, one)):
            assert isinstance(value["x"], tf.Tensor) and value["none"] is None
            np.testing.assert_array_equal(replicas.unreplicate(value)["x"], tree["x"])


def test_a_tpu_gets_its_inputs_from_the_host(strategy, monkeypatch):
    """No TPU is at hand: what tfrl takes for its strategy is replaced."""
    monkeypatch.setattr(tf.distribute, "TPUStrategy", tf.distribute.MirroredStrategy)
    with strategy.scope():  # whose replicas are the default
        shares = replicas.shard_batch(np.arange(4.0))
        copies = replicas.replicate(1.0)
    assert [x.tolist() for x in local(strategy, shares)] == [[0.0, 1.0], [2.0, 3.0]]
    assert local(strategy, copies) == [1.0, 1.0]
    for value in (shares, copies):
        for each in strategy.experimental_local_results(value):
            assert each.device.endswith("CPU:0")


def test_mean_averages_every_dtype_and_has_the_gradient_of_the_mean(strategy):
    rng = np.random.default_rng(1)
    tree = {
        "half": rng.normal(size=[2, 3]).astype(np.float16),
        "single": rng.normal(size=[2]).astype(np.float32),
        "double": rng.normal(size=[2, 2]),
        "other": rng.normal(size=[2]),
        "count": np.array([1, 4]),
        "flag": np.array([True, False]),
    }

    @tf.function(autograph=False)
    def means(shares):
        def step(values):
            node = Pair(first=values, second=None)
            averaged = replicas.mean(node)
            assert isinstance(averaged, Pair) and averaged.second is None
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            with tf.GradientTape() as tape:
                x = 1.0 + 4.0 * tf.cast(number, tf.float32)
                tape.watch(x)
                total = replicas.mean(x) ** 2
            return averaged.first, tape.gradient(total, x)

        return strategy.run(step, (shares,))

    result, gradient = means(replicas.shard_batch(tree, strategy))
    # Each replica differentiates mean^2 = 3^2, of which half a step comes back from
    # either: 2 * 3 * (1/2 + 1/2).
    assert local(strategy, gradient) == [6.0, 6.0]
    for name, values in tree.items():
        floating = values.dtype.kind == "f"
        tolerance = 1e-3 if name == "half" else 1e-7
        for value in strategy.experimental_local_results(result[name]):
            assert value.dtype == (values.dtype if floating else tf.float32)
            np.testing.assert_allclose(
                value, mean_of([values[:1], values[1:]]), rtol=tolerance
            )


def test_mean_with_one_replica_only_casts():
    tree = {"x": 1.5, "n": 2, "none": None}
    result = replicas.mean(tree)
    assert float(result["x"]) == 1.5 and result["none"] is None
    assert float(result["n"]) == 2.0 and result["n"].dtype == tf.float32


def test_inside_a_graph_with_rows_unknown_until_called(strategy):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 1])])
    def total(batch):
        shares = replicas.shard_batch({"x": batch}, strategy)
        scale = replicas.replicate(tf.reduce_max(batch), strategy)
        values = strategy.run(
            lambda x, s: replicas.mean(tf.reduce_mean(x["x"]) / s), (shares, scale)
        )
        return replicas.unreplicate(values)

    assert float(total([[1.0], [2.0], [3.0], [4.0]])) == 2.5 / 4.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="split"):
        total([[1.0], [2.0], [3.0]])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (np.zeros([7, 2]), "2 replicas share evenly; got 7; pad it with 1 row"),
        (np.zeros([0, 2]), "rows for every replica; got 0"),
        ({"x": np.zeros([2]), "y": 1.0}, "rank of at least 1; got shape []"),
        ((np.zeros([4]), np.zeros([2])), "one number of rows; got [2, 4]"),
    ],
    ids=["uneven", "empty", "scalar", "differing"],
)
def test_batches_that_do_not_split(strategy, batch, message):
    with pytest.raises(ValueError, match="batch` expected .*" + re.escape(message)):
        replicas.shard_batch(batch, strategy)


@pytest.mark.parametrize("function", [replicas.replicate, replicas.shard_batch])
def test_bad_leaves_strategies_and_places(strategy, function):
    shares = replicas.shard_batch(np.zeros([4]), strategy)
    with pytest.raises(TypeError, match="got a per-replica value"):
        function({"x": shares}, strategy)
    with pytest.raises(TypeError, match="`strategy` expected a tf.distribute.Strategy"):
        function(np.zeros([2]), "mirrored")
    with pytest.raises(ValueError, match="expected outside `strategy.run`"):
        tf.function(lambda: strategy.run(lambda: function(tf.zeros([2]))))()


def test_what_else_is_refused(strategy):
    with pytest.raises(ValueError, match="got 3; pad it with 1 row"):  # while tracing
        tf.function(lambda x: replicas.shard_batch(x, strategy))(tf.zeros([3]))
    with pytest.raises(TypeError, match="dense arrays; got RaggedTensor"):
        replicas.shard_batch(tf.ragged.constant([[1], [2, 3]]), strategy)
    in_scope = pytest.raises(ValueError, match="expected inside `strategy.run`")
    with strategy.scope(), in_scope:
        replicas.mean(tf.constant(1.0))


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_gathered_is_what_was_shared_out_in_every_dtype(strategy, in_graph, axis):
    bits = np.random.default_rng(0).integers(0, 2, (4, 3 * 16 * 8)).astype(bool)
    data = np.packbits(bits, axis=-1)
    half = data.astype(tf.bfloat16.as_numpy_dtype)
    rows = {"bool": bits, "bfloat16": half, "none": None}
    for code in "bBhHiIlLefdFD":
        rows[code] = data.view(code)
    parts = np.split(np.arange(4), 2)
    expected = {
        name: x if x is None or not axis else np.hstack([x[p] for p in parts])
        for name, x in rows.items()
    }

    def function():
        with strategy.scope():
            shared = replicas.shard_batch(rows)
            found = replicas.gathered(shared, axis)
        for name, x in found.items():
            assert x is None or x.shape == expected[name].shape
        return found

    found = tf.function(function)() if in_graph else function()
    for name, x in expected.items():
        if x is None:
            assert found[name] is None
            continue
        assert found[name].dtype == x.dtype
        np.testing.assert_array_equal(found[name], x)


def test_without_a_strategy_nothing_is_gathered():
    assert replicas.gathered({"rows": 3, "none": None}) == {"rows": 3, "none": None}
