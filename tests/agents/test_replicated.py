"""Several replicas learn what one learns from the same batch, in calls of a moment."""

import contextlib
from typing import Any, NamedTuple

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
import training_workers
from agent_examples import two_replicas

from tfrl.agents import gradient_transforms, replicated, train_state
from tfrl.agents.on_policy import ppo
from tfrl.core import compile


@pytest.fixture(name="two")
def _two():
    return two_replicas()


def test_a_step_is_that_of_the_weighted_global_batch(two):
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=8), np.array([1.0, 0.0, 2.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    state = train_state.TrainState.create(
        tf.multiply, tf.constant(0.5, tf.float64), gradient_transforms.sgd(0.1)
    )

    def steps(x, weights):
        total = tf.reduce_sum(weights) / replicated.n_replicas()

        def loss_fn(state, params, rows):
            x, weights = rows
            errors = (state(x, params=params) - 1.0) ** 2
            loss = tf.reduce_sum(errors * weights) / total
            return loss, {"loss": loss}

        def body(step, states, _):
            states, info = states.apply_loss_fn(loss_fn, (x, weights))
            return step + 1, states, info["loss"]

        states = replicated.ReplicatedState.create(state)
        loss = tf.zeros([], tf.float64)
        return tf.while_loop(
            lambda step, *_: step < 3, body, (tf.constant(0), states, loss)
        )

    expected = 0.5
    for _ in range(3):
        errors = expected * x - 1.0
        loss = (weights * errors**2).sum() / weights.sum()
        expected -= 0.1 * (weights * 2.0 * errors * x).sum() / weights.sum()
    inputs = tf.constant(x), tf.constant(weights)
    _, alone, alone_loss = steps(*inputs)
    with two.scope():
        _, shared, shared_loss = tf.function(steps)(*inputs)
        state = shared.state
    for got, got_loss in [(alone.state, alone_loss), (state, shared_loss)]:
        np.testing.assert_allclose(got.params, expected, rtol=1e-12)
        np.testing.assert_allclose(got_loss, loss, rtol=1e-12)
        assert int(got.step) == 4


def test_rows_that_replicas_cannot_share(two):
    replicated.check_rows("f", "rows", 7)
    with two.scope():
        replicated.check_rows("f", "rows", 8)
        for rows, message in (
            ((7,), r"`f`: `rows` expected .* 2 replicas share"),
            ((1,), r"got 1; take one of \[2\]"),
            ((3, 6), r"got 3; take one of \[2, 6\]"),
            ((3, 9), "got 3; no number fits"),
        ):
            with pytest.raises(ValueError, match=message):
                replicated.check_rows("f", "rows", *rows)
        with pytest.raises(ValueError, match=r"`PPO`: `minibatch_size` .* got 3; take"):
            spaces = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
            ppo.PPO(minibatch_size=3).create(*spaces, n_envs=4, n_steps=6)
    with pytest.raises(ValueError, match="expected the scope of the strategy"):
        two.run(tf.function(lambda: replicated.n_replicas()))


def test_one_device_computes_where_its_strategy_says():
    strategy = tf.distribute.OneDeviceStrategy("CPU:1")
    update = compile.jit(tf.square)
    with strategy.scope():
        assert replicated.run_update(update, tf.constant(3.0)).device.endswith("CPU:1")
        assert replicated.run_alone(tf.square, 3.0).device.endswith("CPU:1")
    assert replicated.run_update(update, tf.constant(3.0)).device.endswith("CPU:0")


def quadratic(n_steps=5, n_rows=8):
    """A state, a loss of it and batches, and what K steps by hand make of them."""
    x = np.random.default_rng(0).normal(1.0, 0.5, (n_steps, n_rows))
    state = train_state.TrainState.create(
        tf.multiply, tf.constant(0.5, tf.float64), gradient_transforms.sgd(0.1)
    )

    def loss_fn(state, params, rows):
        errors = state(rows["x"], params=params) - 1.0
        loss = tf.reduce_mean(errors**2)
        mean = {"mean": tf.reduce_mean(rows["x"])}
        return loss, {"loss": loss, "nest": mean, "rows": {"errors": errors}}

    params, losses, errors = 0.5, [], []
    for row in x:
        errors.append(params * row - 1.0)
        losses.append(((params * row - 1.0) ** 2).mean())
        params -= 0.1 * (2.0 * (params * row - 1.0) * row).mean()
    return state, loss_fn, {"x": x}, params, np.mean(losses), errors


@pytest.mark.parametrize(
    ("where", "n_steps"),
    [("alone", 1), ("alone", 5), ("replicas", 1), ("replicas", 5)],
)
def test_take_steps_is_k_steps_by_hand(two, where, n_steps):
    state, loss_fn, batches, params, loss, errors = quadratic(n_steps)
    scope = two.scope() if where == "replicas" else contextlib.nullcontext()
    update = replicated.compiled_update(
        lambda state, batches: replicated.take_steps(state, loss_fn, batches)
    )
    with scope:
        found, info = replicated.run_update(update, state, batches)
    np.testing.assert_allclose(found.params, params, rtol=1e-10)
    np.testing.assert_allclose(info["loss"], loss, rtol=1e-10)
    np.testing.assert_allclose(info["nest"]["mean"], batches["x"].mean(), rtol=1e-10)
    np.testing.assert_allclose(info["rows"]["errors"], errors, rtol=1e-8, atol=1e-10)
    assert int(found.step) == n_steps + 1 and int(state.step) == 1
    odd = {"x": batches["x"][:, :7]}
    with two.scope(), pytest.raises(ValueError, match="7"):
        replicated.run_update(update, state, odd)


def test_an_info_is_of_numbers():
    state, _, batches, *_ = quadratic()

    def steps(info):
        def loss_fn(state, params, rows):
            return tf.reduce_mean(state(rows["x"], params=params)), info

        return replicated.take_steps(state, loss_fn, batches)[1]

    for info in (None, {"loss": None}, object()):
        with pytest.raises(ValueError, match="`loss_fn` expected to return a loss and"):
            steps(info)
    found = steps({"one": 1, "half": 0.5})
    assert (float(found["one"]), float(found["half"])) == (1.0, 0.5)


def test_no_minibatches_are_refused():
    state, loss_fn, batches, *_ = quadratic()
    nothing = {"x": batches["x"][:0]}
    with pytest.raises(ValueError, match="`take_steps`: `batches` expected .* K = 0"):
        replicated.take_steps(state, loss_fn, nothing)


def test_a_compiled_update_is_traced_once_for_one_shape():
    traced = []

    def update(state, x):
        traced.append(1)
        return state.apply_loss_fn(
            loss_fn=lambda params: tf.reduce_mean(state(x, params=params) ** 2)
        )

    compiled = replicated.compiled_update(update)
    state, *_ = quadratic()
    for value in (1.0, 2.0):
        x = tf.fill([3], tf.constant(value, tf.float64))
        expected = float(state.params) * (1.0 - 0.2 * value**2)
        state = compiled(state, x)
        assert float(state.params) == pytest.approx(expected)
    assert len(traced) == compiled.trace_count() == 1


class Inside(keras.layers.Layer):
    """A layer of layers that are in containers."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = {"first": [parts[0]], "others": list(parts[1:])}

    def call(self, inputs):
        for part in (*self.parts["first"], *self.parts["others"]):
            inputs = part(inputs)
        return inputs


def dense():
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    return train_state.TrainState.create(network)


def convolutional():
    layers = keras.layers.Conv2D(2, 2), keras.layers.Flatten(), keras.layers.Dense(1)
    model = Inside(*layers)
    model(np.zeros((1, 4, 4, 1), np.float32))
    return train_state.TrainState.create(model)


@pytest.mark.usefixtures("by_xla")
def test_xla_is_for_all_but_convolutions_on_a_cpu(monkeypatch):
    by_xla = replicated.compiled_update(tf.square).xla
    image = convolutional()
    function = train_state.TrainState.create(tf.multiply, tf.constant(1.0))
    assert by_xla(dense(), {"x": 1.0}) and by_xla(function)
    assert not by_xla(image)
    assert not by_xla(1, {"nest": [(image,)]})
    with tf.distribute.OneDeviceStrategy("CPU:1").scope():
        assert not by_xla(image)
    gpu = tf.config.LogicalDevice("/device:GPU:0", "GPU")
    devices = [*tf.config.list_logical_devices(), gpu]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    assert by_xla(image)


class Count(NamedTuple):
    step: Any
    stop: Any


@pytest.fixture(name="cut")
def _cut(monkeypatch):
    """Cuts an update whose steps take so many seconds each; returns what calls took."""
    now = [0.0]
    monkeypatch.setattr(replicated.time, "perf_counter", lambda: now[0])

    def cut(work, seconds=1e-5, end=None):
        sizes = []

        def advance(progress, until):
            sizes.append(int(until) - int(progress.step))
            now[0] += seconds * sizes[-1]
            stop = end is not None and int(until) >= end
            return Count(until, tf.constant(stop))

        start = Count(tf.constant(0), tf.constant(False))
        assert int(replicated.in_pieces(work, advance, start).step) == sum(sizes)
        return sizes

    return cut


def test_pieces_grow_to_a_fraction_of_a_second(cut):
    work = replicated.Work(dense(), 1_000, 4)
    assert cut(work) == [1, 4, 16, 64, 256, 659]
    assert cut(work._replace(n_steps=20), seconds=0.09) == [1, *[3] * 6, 1]
    assert cut(work, end=3) == [1, 4]


def test_workers_cut_alike(monkeypatch, cut):
    monkeypatch.setattr(replicated, "n_replicas", lambda: 2)
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 7 * (6 * 10 * 4 + 1e6))
    work = replicated.Work(dense(), 16, 4)
    assert not work.is_brief and work._replace(n_steps=7).is_brief
    assert cut(work, seconds=0.001) == [7, 7, 2]
    assert cut(work._replace(state=convolutional())) == [1] * 16


def test_pieces_are_alike_and_brief(monkeypatch):
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 7 * (6 * 10 * 4 + 1e6))
    work = replicated.Work(dense(), 12, 4)
    sizes = {n: work._replace(n_steps=n).n_piece_steps for n in (1, 7, 12, 14, 13)}
    assert sizes == {1: 1, 7: 7, 12: 6, 14: 7, 13: 1}
    assert work._replace(state=convolutional()).n_piece_steps == 1
    known = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 2)])
    state = train_state.TrainState.create(known)
    assert work._replace(state=state)._row_work(replicated._works(state)) == 10 * 3 * 3
    assert work._replace(state=state).n_piece_steps == 6


def test_what_is_brief():
    small, image = dense(), convolutional()
    assert replicated.Work(small, 160, 64).is_brief
    assert not replicated.Work(small, 10_000, 4).is_brief
    assert not replicated.Work(small, 1, 10**9).is_brief
    assert not replicated.Work(image, 1, 1).is_brief
    function = train_state.TrainState.create(lambda p, x: p * x, tf.ones([10]))
    assert replicated.Work(function, 100, 64).is_brief
    assert replicated.Work(function, 1, 1).n_forward_rows > 1_000_000
    assert replicated.Work(image, 1, 1).n_forward_rows == 128


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "bc"])
def test_eight_replicas_equal_one_after_50_updates(tmp_path, algorithm):
    told = {"algorithm": algorithm, "n_replicas": 8, "n_updates": 50}
    told["folder"] = str(tmp_path / "run")
    with training_workers.start(told) as process:
        _, text = process.communicate(timeout=500)
    assert process.returncode == 0, text
    one, eight = (training_workers.weights(tmp_path / "run", rank) for rank in (0, 1))
    for expected, value in zip(one, eight, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6)


ADAM = gradient_transforms.adamw(0.1)
TRANSFORMS = {
    "adamw": ADAM,
    "clipped": gradient_transforms.chain(
        gradient_transforms.clip_by_global_norm(0.5), ADAM
    ),
    "clipped apart": keras.optimizers.Adam(0.1, clipnorm=0.01),
    "centered": gradient_transforms.rmsprop(0.1, centered=True, momentum=0.9),
    "keras": keras.optimizers.Adam(0.1, clipvalue=0.2),
    "by schedule": gradient_transforms.sgd(lambda n: 0.1 / tf.cast(n + 1, tf.float32)),
}


@pytest.mark.parametrize(
    "wide", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["small", "wide"]
)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_steps_on_many_parameters_are_those_of_the_state(name, wide):
    """Small networks take them on one vector, which nobody needs to know."""
    rng = np.random.default_rng(0)
    params = {"w": tf.constant(rng.normal(size=(3, 2)), tf.float32)}
    params["nested"] = [tf.constant([1.0, -2.0]), tf.constant(0.5)]
    params["unused"] = tf.ones([4 + wide * 2**18])

    def apply(params, x):
        pair, number = params["nested"]
        return tf.tanh(x @ params["w"]) @ pair[:, None] + number

    def loss_fn(state, params, rows):
        # What the state itself says is a constant.
        before = state(rows, params=state.params)
        loss = tf.reduce_mean((state(rows, params=params) + before) ** 2)
        return loss, {"loss": loss}

    state = train_state.TrainState.create(apply, params, TRANSFORMS[name])
    batches = tf.constant(rng.normal(size=(5, 8, 3)), tf.float32)
    found, info = replicated.take_steps(state, loss_fn, batches)
    losses = []
    for batch in batches:
        state, loss = state.apply_loss_fn(
            loss_fn=lambda p, s=state, b=batch: loss_fn(s, p, b), has_aux=True
        )
        losses.append(loss["loss"])
    tf.nest.assert_same_structure(found, state)
    for got, expected in zip(
        tf.nest.flatten(found), tf.nest.flatten(state), strict=True
    ):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(info["loss"], np.mean(losses), rtol=1e-5)
