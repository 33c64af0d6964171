"""Tests of data_parallel on two logical CPUs; the whole batch on one is the oracle."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfrl
from tfrl.distribute import data_parallel, replicas

ROWS = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
# So different on both halves of the batch that an average is no accident.
ROWS[4:] *= 5


class Net(tf.Module):
    """A net in numpy-checkable form: loss = mean((x w)^2 + b)."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable([1.0, -2.0, 0.5])
        self.b = tf.Variable(3.0)
        self.unused = tf.Variable(1.0)
        self.calls = []

    def _loss(self, x):
        return tf.reduce_mean(tf.linalg.matvec(x, self.w) ** 2 + self.b)

    @data_parallel.data_distributed
    def loss(self, x):
        """The loss."""
        return self._loss(x)

    @data_parallel.data_distributed_when(lambda self: self.b.trainable)
    def when_trained(self, x):
        return self._loss(x)

    @data_parallel.data_distributed
    def nest(self, x, *, scale, label):
        """Tensors of several kinds, and what is none."""
        parts = {"product": x * self.w, "same": x, "scale": scale, "label": label}
        return parts, (tf.shape(x)[0], None, self.b)

    @data_parallel.data_distributed
    def distribution(self, x):
        return tfp.distributions.Normal(x, self.b)

    @data_parallel.data_distributed
    def opaque(self, x):
        return object()


def gradient_by_hand(w, x):
    return (2 * x.T @ (x @ w) / len(x)).astype(np.float32)


@pytest.fixture(scope="module")
def strategy():
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )


@pytest.fixture
def net(strategy):
    with strategy.scope():
        return Net()


def traced(function):
    return tf.function(function, autograph=False)


def run(strategy, function, *args, mode=traced):
    """Runs a function on shards of the arguments; returns each replica's results."""
    wrapped = function if mode is None else mode(function)
    shards = replicas.shard_batch(args, strategy)
    results = strategy.run(wrapped, shards)
    locals_of = strategy.experimental_local_results
    flat = [locals_of(leaf) for leaf in tf.nest.flatten(results)]
    return [
        tf.nest.pack_sequence_as(results, [leaf[i] for leaf in flat]) for i in (0, 1)
    ]


def gradients(net, method, x):
    with tf.GradientTape() as tape:
        loss = getattr(net, method)(x)
    return tape.gradient(loss, [net.w, net.b, net.unused], unconnected_gradients="zero")


def test_gradients_are_those_of_the_whole_batch_unless_turned_off(strategy, net):
    with strategy.scope():
        fixed, by_rank = Net(), Net()
        fixed.b = tf.Variable(3.0, trainable=False)
    net._ddp_activated_rank, by_rank._ddp_activated_rank = 0, -1

    def step(x):
        averaged = gradients(net, "loss", x), gradients(net, "when_trained", x)
        off = (net, "_loss"), (fixed, "when_trained"), (by_rank, "loss")
        return averaged, [gradients(*which, x)[0] for which in off]

    w = np.float32([1, -2, 0.5])
    whole = gradient_by_hand(w, ROWS)
    for i, (averaged, off) in enumerate(run(strategy, step, ROWS)):
        for of_w, of_b, unused in averaged:
            np.testing.assert_allclose(of_w, whole, rtol=1e-5)
            assert (float(of_b), float(unused)) == (1.0, 0.0)
        of_the_shard = gradient_by_hand(w, ROWS[4 * i : 4 * i + 4])
        assert not np.allclose(of_the_shard, whole)
        for found in off:
            np.testing.assert_allclose(found, of_the_shard, rtol=1e-5)


def test_gradients_are_averaged_eagerly_too(strategy, net):
    found = run(strategy, lambda x: gradients(net, "loss", x)[0], ROWS, mode=None)
    for each in found:
        expected = gradient_by_hand(np.float32([1, -2, 0.5]), ROWS)
        np.testing.assert_allclose(each, expected, rtol=1e-5)


def test_one_replica_calls_the_method_itself():
    net = Net()
    assert net.loss.__name__ == "loss"
    assert net.loss.__doc__ == "The loss."
    x = tf.constant(ROWS)
    with tf.GradientTape() as tape:
        loss = net.loss(x)
    expected = gradient_by_hand(net.w.numpy(), ROWS)
    np.testing.assert_allclose(tape.gradient(loss, net.w), expected, rtol=1e-5)
    assert isinstance(net.distribution(x), tfp.distributions.Normal)
    performer = data_parallel.make_ddp_performer(net, Net._loss, 0, True)
    assert float(performer(x)) == float(loss)


def test_gradients_of_arguments_and_of_other_paths_stay_local(strategy, net):
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = net.loss(x) + net._loss(x)
        return tape.gradient(loss, [x, net.w])

    halves = ROWS[:4], ROWS[4:]
    whole = gradient_by_hand(net.w.numpy(), ROWS)
    for (of_x, of_w), rows in zip(run(strategy, step, ROWS), halves, strict=True):
        w = net.w.numpy()
        local = 4 * np.outer(rows @ w, w) / len(rows)
        np.testing.assert_allclose(of_x, local, rtol=1e-5)
        expected = whole + gradient_by_hand(w, rows)
        np.testing.assert_allclose(of_w, expected, rtol=1e-5)


def test_nests_come_back_as_they_were(strategy, net):
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            parts, (count, none, b) = net.nest(x, scale=2.0, label="text")
            loss = tf.reduce_mean(parts["product"]) + tf.reduce_mean(parts["same"]) + b
            likelihood = tf.reduce_mean(net.distribution(x).log_prob(0.0))
        assert (parts["scale"], parts["label"], none) == (2.0, "text", None)
        assert count.dtype == tf.int32
        first = tape.gradient(loss, [net.w, net.b])
        through = tape.gradient(likelihood, net.b)
        return first, tape.gradient(loss, net.w), parts["product"], count, through

    of_distribution = np.mean(ROWS.astype(np.float64) ** 2) / 3.0**3 - 1 / 3.0
    for i, found in enumerate(run(strategy, step, ROWS)):
        first, again, product, count, through = found
        np.testing.assert_allclose(through, of_distribution, rtol=1e-5)
        np.testing.assert_allclose(first[0], ROWS.mean(0) / 3, rtol=1e-5)
        np.testing.assert_array_equal(first[0], again)
        assert (float(first[1]), int(count)) == (1.0, 4)
        expected = ROWS[4 * i : 4 * i + 4] * net.w.numpy()
        np.testing.assert_allclose(product, expected, rtol=1e-6)


def test_what_cannot_be_averaged_is_an_error(strategy, net):
    with pytest.raises(TypeError, match=r"to return nests of tensors; got <object"):
        run(strategy, net.opaque, ROWS, mode=None)


def test_rows_of_an_embedding_are_averaged(strategy):
    class Table(keras.layers.Embedding):
        @data_parallel.data_distributed
        def total(self, ids):
            return tf.reduce_mean(self(ids))

    with strategy.scope():
        table = Table(4, 1)
        table.build()

    def step(ids):
        with tf.GradientTape() as tape:
            loss = table.total(ids)
        return tape.gradient(loss, table.trainable_variables[0].value)

    for found in run(strategy, step, np.int32([0, 0, 1, 3])):
        np.testing.assert_allclose(found, [[0.5], [0.25], [0], [0.25]])


class WithBuffers(tf.Module):
    def __init__(self):
        super().__init__()
        self.norm = keras.layers.BatchNormalization()
        self.norm.build([None, 3])
        self.mean = tf.Variable(0.0, trainable=False)
        self.count = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.rng = tf.random.Generator.from_seed(1)
        self.memory = tfrl.replay.DataBuffer(
            tf.TensorSpec([], tf.float32), capacity=2, device="/CPU:0"
        )

    @data_parallel.data_distributed
    def read(self, x):
        return self.norm(x), self.mean + 0, self.count + 0


def test_buffers_take_the_values_of_replica_0(strategy):
    with strategy.scope():
        module = WithBuffers()
    shared = {id(one) for one in data_parallel._buffers(module)}
    moving = {id(one) for one in module.norm.non_trainable_variables}
    assert shared == {id(module.mean), id(module.count), *moving}

    def step(x):
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        module.mean.assign(tf.cast(number, tf.float32) + 0.1)
        module.count.assign(tf.cast(number, tf.int64) + 7)
        for variable in module.norm.non_trainable_variables:
            variable.assign(tf.fill([3], tf.cast(number, tf.float32) + 2.0))
        return module.read(x)

    expected = (ROWS - 2.0) / np.sqrt(2.0 + 1e-3)
    for i, (normal, mean, count) in enumerate(run(strategy, step, ROWS)):
        assert (float(mean), int(count)) == (np.float32(0.1), 7)
        np.testing.assert_allclose(normal, expected[4 * i : 4 * i + 4], rtol=1e-5)


def test_a_performer_runs_on_every_replica(strategy, net):
    performer = data_parallel.make_ddp_performer(net, Net._loss, ddp_rank=1)
    with strategy.scope():
        found = performer(replicas.shard_batch(ROWS, strategy))
    first, second = strategy.experimental_local_results(found)
    w = net.w.numpy()
    np.testing.assert_allclose(first, np.mean((ROWS[:4] @ w) ** 2) + 3, rtol=1e-5)
    np.testing.assert_allclose(second, np.mean((ROWS[4:] @ w) ** 2) + 3, rtol=1e-5)


def test_bad_arguments():
    make = data_parallel.make_ddp_performer
    with pytest.raises(TypeError, match="make_ddp_performer`: `method` expected"):
        make(None, "loss", 0)
    with pytest.raises(ValueError, match="make_ddp_performer`: `ddp_rank` expected"):
        make(None, len, -1)
    with pytest.raises(TypeError, match="data_distributed_when`: `cond` expected"):
        data_parallel.data_distributed_when(True)
