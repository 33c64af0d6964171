"""Several replicas learn what one learns from the same batch."""

import contextlib

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import training_workers

from tfrl.agents import (
    _on_policy,
    _pieces,
    gradient_transforms,
    policy_gradient,
    ppo,
    replicated,
    train_state,
)
from tfrl.core import records

T, N = 6, 4


@pytest.fixture(scope="module", name="two")
def _two():
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def make_trajectory(seed):
    rng = np.random.default_rng(seed)
    flags = rng.random((3, T, N))
    return records.Trajectory(
        observations=rng.normal(size=(T, N, 3)).astype(np.float32),
        actions=rng.integers(0, 2, (T, N)).astype(np.int32),
        rewards=rng.normal(size=(T, N)).astype(np.float32),
        terminated=flags[0] < 0.1,
        truncated=flags[1] < 0.1,
        next_observations=rng.normal(size=(T, N, 3)).astype(np.float32),
        # Of some minibatches one replica's part weighs more than the other's.
        valid=flags[2] < 0.7,
    )


def make_agent(config):
    space = gym.spaces.Box(-1.0, 1.0, (3,))
    counts = {"n_envs": N, "n_steps": T} if isinstance(config, ppo.PPO) else {}
    return config.create(space, gym.spaces.Discrete(2), seed=0, **counts)


def assert_close(first, second):
    first, second = tf.nest.flatten(first), tf.nest.flatten(second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


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


@pytest.mark.parametrize(
    "config",
    [
        ppo.PPO(
            minibatch_size=8,
            n_epochs=3,
            learning_rate=1e-2,
            learning_rate_schedule="linear",
            value_clip=0.2,
            entropy_coefficient=0.01,
            target_kl=2e-4,
            normalize_observations=True,
            normalize_rewards=True,
            hidden_units=(8,),
        ),
        # A default test trains it on two replicas in `test_trainer_strategies`.
        pytest.param(
            policy_gradient.PolicyGradient(entropy_coefficient=0.01, hidden_units=(8,)),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["ppo", "policy_gradient"],
)
def test_two_replicas_equal_one(two, config):
    alone, shared, counts = make_agent(config), make_agent(config), []
    function = replicated._function(two, _on_policy._update)
    before = function.experimental_get_tracing_count()
    for seed in range(3):
        trajectory = make_trajectory(seed)
        alone, expected = alone.update(trajectory)
        with two.scope():
            shared, info = shared.update(trajectory)
        assert_close((shared, info), (alone, expected))
        counts.append([float(x.get("gradient_steps", 1)) for x in (info, expected)])
    if isinstance(config, ppo.PPO):
        # The divergence stops both after the same steps, some before the last.
        assert all(one == two for one, two in counts) and min(counts)[0] < 9
    assert function.experimental_get_tracing_count() == before + 1


@pytest.mark.parametrize(
    "agent", ["ppo", pytest.param("policy_gradient", marks=pytest.mark.slow)]
)
def test_two_replicas_in_pieces_equal_one(two, monkeypatch, agent):
    config = ppo.PPO(minibatch_size=8, n_epochs=2, hidden_units=(9,))
    if agent == "policy_gradient":
        config = policy_gradient.PolicyGradient(hidden_units=(9,))
    trajectory = make_trajectory(0)
    alone, info = make_agent(config).update(trajectory)
    monkeypatch.setattr(_pieces, "_BRIEF_WORK", 1)
    with two.scope():
        shared = make_agent(config).update(trajectory)
    assert_close(shared, (alone, info))


def test_rows_that_replicas_cannot_share(two):
    replicated.check_rows("f", "rows", 7)
    with two.scope():
        replicated.check_rows("f", "rows", 8)
        with pytest.raises(
            ValueError, match=r"`f`: `rows` expected .* 2 replicas share"
        ):
            replicated.check_rows("f", "rows", 7)
        with pytest.raises(ValueError, match=r"got 1; take one of \[2\]"):
            replicated.check_rows("f", "rows", 1)
        with pytest.raises(ValueError, match=r"got 3; take one of \[2, 6\]"):
            replicated.check_rows("f", "rows", 3, divides=6)
        with pytest.raises(ValueError, match=r"got 3; no number fits"):
            replicated.check_rows("f", "rows", 3, divides=9)
        with pytest.raises(ValueError, match=r"`PPO`: `minibatch_size` .* got 3; take"):
            make_agent(ppo.PPO(minibatch_size=3))
    with pytest.raises(ValueError, match="expected the scope of the strategy"):
        two.run(tf.function(lambda: replicated.n_replicas()))


def test_an_agent_made_before_is_checked_before_any_work(two):
    agent = make_agent(ppo.PPO(minibatch_size=3))
    with two.scope(), pytest.raises(ValueError, match="`PPO.update`: `minibatch_size`"):
        agent.update(make_trajectory(0))
    agent = make_agent(policy_gradient.PolicyGradient())
    odd = tf.nest.map_structure(lambda leaf: leaf[:3, :1], make_trajectory(0))
    with two.scope(), pytest.raises(ValueError, match="`PolicyGradient.update`: `traj"):
        agent.update(odd)


def test_one_device_computes_where_its_strategy_says():
    strategy = tf.distribute.OneDeviceStrategy("CPU:1")
    update = replicated.compile.jit(tf.square)
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
        loss = tf.reduce_mean((state(rows["x"], params=params) - 1.0) ** 2)
        return loss, {"loss": loss, "nest": {"mean": tf.reduce_mean(rows["x"])}}

    params, losses = 0.5, []
    for row in x:
        losses.append(((params * row - 1.0) ** 2).mean())
        params -= 0.1 * (2.0 * (params * row - 1.0) * row).mean()
    return state, loss_fn, {"x": x}, params, np.mean(losses)


@pytest.mark.parametrize("n_steps", [1, 2, 5])
@pytest.mark.parametrize("where", ["alone", "replicas"])
def test_take_steps_is_k_steps_by_hand(two, where, n_steps):
    state, loss_fn, batches, params, loss = quadratic(n_steps)
    scope = two.scope() if where == "replicas" else contextlib.nullcontext()
    update = replicated.compiled_update(
        lambda state, batches: replicated.take_steps(state, loss_fn, batches)
    )
    with scope:
        found, info = replicated.run_update(update, state, batches)
    np.testing.assert_allclose(found.params, params, rtol=1e-10)
    np.testing.assert_allclose(info["loss"], loss, rtol=1e-10)
    np.testing.assert_allclose(info["nest"]["mean"], batches["x"].mean(), rtol=1e-10)
    assert int(found.step) == n_steps + 1 and int(state.step) == 1


def test_take_steps_needs_rows_for_each_replica(two):
    state, loss_fn, batches, *_ = quadratic(n_rows=7)
    update = replicated.compiled_update(
        lambda state, batches: replicated.take_steps(state, loss_fn, batches)
    )
    with two.scope(), pytest.raises(ValueError, match="7"):
        replicated.run_update(update, state, batches)


@pytest.mark.parametrize(
    "info", [None, {"loss": None}, object()], ids=["none", "in it", "other"]
)
def test_an_info_is_of_numbers(info):
    state, _, batches, *_ = quadratic()

    def loss_fn(state, params, rows):
        return tf.reduce_mean(state(rows["x"], params=params)), info

    with pytest.raises(ValueError, match="`loss_fn` expected to return a loss and an"):
        replicated.take_steps(state, loss_fn, batches)


def test_plain_numbers_are_an_info():
    state, _, batches, *_ = quadratic()

    def loss_fn(state, params, rows):
        return tf.reduce_mean(state(rows["x"], params=params)), {"one": 1, "half": 0.5}

    _, info = replicated.take_steps(state, loss_fn, batches)
    assert (float(info["one"]), float(info["half"])) == (1.0, 0.5)


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


@pytest.mark.slow
def test_eight_replicas_equal_one_after_50_updates(tmp_path):
    told = {"algorithm": "ppo", "n_replicas": 8, "n_updates": 50}
    told["folder"] = str(tmp_path / "run")
    with training_workers.start(told) as process:
        _, text = process.communicate(timeout=500)
    assert process.returncode == 0, text
    one, eight = (training_workers.weights(tmp_path / "run", rank) for rank in (0, 1))
    for expected, value in zip(one, eight, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6)
