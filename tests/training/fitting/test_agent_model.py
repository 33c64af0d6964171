"""Agents as Keras models: what `fit` does with them."""

import default_rows
import fit_examples as examples
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_agents
import toy_envs

import tfrl
from tfrl import agents, core, replay, schedules, training
from tfrl.policies import Acted


def filled(seed=0, rows=60):
    """A store of walks that were played at random."""
    store, rng = examples.store(), np.random.default_rng(seed)
    collector = training.Collector(examples.walks(), rows // 3, seed)
    played = collector.collect(lambda observations: rng.integers(3, size=3))
    for t in range(len(played.valid)):
        step = tf.nest.map_structure(lambda x, t=t: x[t], played)
        store.add(*step[:6])
    return store


def batches(count=24, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=[count, 3]).astype(np.float32)
    return {"observations": x, "actions": x.argmax(-1)}


class Counter(core.PyTreeNode):
    """Learns nothing but how much it was given, in every dtype there is."""

    rows: tf.Tensor
    exact: tf.Tensor
    is_new: tf.Tensor
    step_size: float = core.nonpytree_field(default=1.0)

    @property
    def policy(self):
        return self

    def initial_state(self, batch_size):
        return ()

    def act(self, observations, state=(), *, seed=None, temperature=1.0, mask=None):
        actions = np.zeros(len(observations), np.int64)
        return Acted(actions, actions, None, state)

    def update(self, experience):
        found = tf.nest.flatten(experience)[0].shape
        counted = self.replace(
            rows=self.rows + found[0] * found[1],
            exact=self.exact + self.step_size / 3,
            is_new=tf.constant(False),
        )
        return counted, {"mine": float(found[0])}


class Informing(Counter):
    """Learns nothing, and informs about what it is given."""

    info: tuple = core.nonpytree_field(default=())

    def update(self, experience):
        return self, dict(self.info)


def counter():
    return Counter(
        tf.constant(0, tf.int64), tf.constant(0.0, tf.float64), tf.constant(True)
    )


@pytest.mark.parametrize("k", [*default_rows.slow(1), 4])
def test_fit_is_a_loop_of_updates(k):
    model = examples.model_of(steps_per_execution=k, seed=3)
    agent = examples.DQN.create(*examples.spaces(), seed=3)
    losses, store = [], filled()
    drawn = replay.UniformReplay(store, seed=1)
    history = model.fit(drawn, batch_size=6, steps_per_epoch=8, epochs=2, verbose=0)
    drawn = replay.UniformReplay(store, seed=1)
    for _ in range(16 // k):
        sample = tf.nest.map_structure(
            lambda x: x.reshape(k, 6, *x.shape[1:]), drawn.sample(k * 6)
        )
        agent, info = agent.update(sample)
        losses.append(float(info["loss"]))
    examples.assert_same(tf.nest.flatten(model.agent), tf.nest.flatten(agent))
    half = len(losses) // 2
    expected = [np.mean(losses[:half]), np.mean(losses[half:])]
    np.testing.assert_allclose(history.history["loss"], expected, rtol=1e-6)
    assert int(model.iterations.numpy()) == 16


def test_priorities_reach_the_replay():
    drawn = replay.PrioritizedReplay(filled(), seed=0)
    before = drawn.sample(200).probabilities
    examples.model_of(tiny_agents.Tiny(), 2).fit(
        drawn, batch_size=30, steps_per_epoch=4, verbose=0
    )
    assert np.ptp(before) < 1e-9 < 1e-4 < np.ptp(drawn.sample(200).probabilities)
    model = training.AgentModel(counter())
    model.compile()
    with pytest.raises(ValueError, match="`priorities`.*take a UniformReplay"):
        model.fit(drawn, steps_per_epoch=1, verbose=0)


def test_it_plays_between_the_steps():
    model, store = examples.model_of(tiny_agents.Tiny(), 2), examples.store()
    collect = training.Collect(
        examples.walks(), store, steps_per_batch=2, warm_up_steps=20, every_batches=3
    )
    evaluate = training.Evaluate(examples.walks(), n_episodes=3)
    history = model.fit(
        replay.UniformReplay(store, seed=0),
        batch_size=4,
        steps_per_epoch=6,
        epochs=2,
        callbacks=[collect, evaluate],
        verbose=0,
    ).history
    assert history["env_steps"] == [24.0 + 12, 24.0 + 24]
    assert int(model.env_steps.numpy()) == 48
    assert np.isfinite(history["val_return_mean"]).all()


@pytest.mark.slow
def test_the_newest_agent_acts():
    model = examples.model_of(
        agents.PPO(minibatch_size=6, learning_rate=0.1, n_epochs=2)
    )
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(float(self.model.agent.policy.state.step))

    rollouts = training.Rollouts(examples.walks(), n_steps=4)
    history = model.fit(
        rollouts, steps_per_epoch=3, epochs=2, callbacks=[Watch()], verbose=0
    ).history
    assert history["env_steps"] == [36.0, 72.0]
    assert seen == [1.0 + 4 * (i + 1) for i in range(6)]
    assert history["gradient_steps"] == [4.0, 4.0]
    host = rollouts._host
    x = np.ones([2, 3], np.float32)
    model.agent = agents.PPO(minibatch_size=6).create(*examples.spaces(), seed=9)
    rollouts.trajectory(model)
    np.testing.assert_allclose(host(x), model.agent.policy.parameters(x), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dataset", "arrays", "pairs", "generator"])
def test_data_sets(kind):
    rows = batches()
    model = examples.model_of(agents.BC(), steps_per_execution=2)
    options = {"batch_size": 8, "epochs": 3, "verbose": 0, "shuffle": False}
    if kind == "dataset":
        x = tf.data.Dataset.from_tensor_slices(rows).batch(8)
        del options["batch_size"]
        history = model.fit(x, **options)
    elif kind == "arrays":
        history = model.fit(rows, **options)
    elif kind == "pairs":
        history = model.fit(rows["observations"], rows["actions"], **options)
    else:
        starts = (0, 8, 16) * 3
        parts = [
            tf.nest.map_structure(lambda x, i=i: x[i : i + 8], rows) for i in starts
        ]
        del options["batch_size"]
        history = model.fit(((x,) for x in parts), steps_per_epoch=3, **options)
    agent = agents.BC().create(*examples.spaces())
    for starts in [[0, 8], [16]] * 3:
        stacked = tf.nest.map_structure(
            lambda x, starts=starts: np.stack([x[i : i + 8] for i in starts]), rows
        )
        agent, _ = agent.update(stacked)
    assert set(history.history) == {"loss", "actor_loss", "entropy", "accuracy"}
    assert history.history["loss"] == history.history["actor_loss"]
    both = map(tf.nest.flatten, (model.agent, agent))
    for one, two in zip(*both, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_batches_of_another_size_are_updates_of_their_own():
    model = training.AgentModel(counter())
    model.compile(steps_per_execution=3)
    x = tf.data.Dataset.from_tensor_slices(tf.zeros([10, 2])).batch(4)
    history = model.fit(x, epochs=2, verbose=0).history
    assert int(model.agent.rows) == 20
    # Two batches at once, then the short one.
    np.testing.assert_allclose(history["mine"], [(2 * 2.0 + 1.0) / 3] * 2)


def test_all_dtypes_are_weights(tmp_path):
    model = training.AgentModel(counter())
    model.compile()
    x = tf.data.Dataset.from_tensors(tf.zeros([4, 2]))
    model.fit(x, epochs=3, verbose=0)
    model.save_weights(tmp_path / "a.weights.h5")
    other = training.AgentModel(counter())
    other.load_weights(tmp_path / "a.weights.h5")
    examples.assert_same(tf.nest.flatten(other.agent), [12, 1.0, False])
    kinds = [leaf.dtype for leaf in tf.nest.flatten(other.agent)]
    assert kinds == [tf.int64, tf.float64, tf.bool]
    assert other.agent.step_size == 1.0
    assert int(other.iterations.numpy()) == 3


def test_steps_add_up_over_fits_and_files(tmp_path):
    model, envs = examples.model_of(tiny_agents.Tiny()), examples.walks()
    for total in (6, 12):
        rollouts = training.Rollouts(envs, n_steps=2)
        history = model.fit(rollouts, epochs=1, steps_per_epoch=1, verbose=0).history
        assert history["env_steps"] == [total] and int(model.env_steps.numpy()) == total
    store = examples.store()
    model = examples.model_of(tiny_agents.Tiny())
    before = 0
    for _ in range(2):
        collect = training.Collect(examples.walks(), store, warm_up_steps=12)
        sampler = replay.UniformReplay(store, seed=0)
        options = {"epochs": 1, "steps_per_epoch": 3, "batch_size": 4, "verbose": 0}
        model.fit(sampler, callbacks=[collect], **options)
        assert int(model.env_steps.numpy()) == before + collect.env_steps
        before += collect.env_steps


def test_weights_of_another_agent(tmp_path):
    examples.model_of().save_weights(tmp_path / "a.weights.h5")
    other = examples.model_of(agents.DQN(hidden_units=(9,)))
    before = examples.weights_of(other)
    with pytest.raises(ValueError, match="weights expected of an agent like this one"):
        other.load_weights(tmp_path / "a.weights.h5")
    examples.assert_same(before, examples.weights_of(other))


def test_callbacks_of_keras(tmp_path):
    tiny = tiny_agents.Tiny()
    model, drawn = examples.model_of(tiny), replay.UniformReplay(filled(), seed=0)
    checkpoint = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.weights.h5", "loss", save_weights_only=True
    )
    callbacks = [
        checkpoint,
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.EarlyStopping("loss", mode="min", min_delta=1e9, patience=1),
        keras.callbacks.BackupAndRestore(tmp_path / "backup"),
    ]
    history = model.fit(
        drawn, epochs=9, steps_per_epoch=2, callbacks=callbacks, verbose=0
    )
    assert len(history.epoch) == 2
    assert "loss" in (tmp_path / "log.csv").read_text()
    other = examples.model_of(tiny, seed=9)
    other.load_weights(tmp_path / "best.weights.h5")
    examples.assert_same(examples.weights_of(other), examples.weights_of(model))


def test_a_model_that_is_frozen_is_refused():
    model, drawn = (
        examples.model_of(tiny_agents.Tiny()),
        replay.UniformReplay(filled(), seed=0),
    )
    model.trainable = False
    with pytest.raises(ValueError, match="`trainable` expected True.*; got False"):
        model.fit(drawn, steps_per_epoch=1, verbose=0)


def test_what_update_returns_is_looked_at(monkeypatch):
    model, drawn = (
        examples.model_of(tiny_agents.Tiny()),
        replay.UniformReplay(filled(), seed=0),
    )
    monkeypatch.setattr(type(model.agent), "update", lambda self, _: self)
    with pytest.raises(TypeError, match=r"`AgentModel`: `agent` .*\(agent, info\)"):
        model.fit(drawn, steps_per_epoch=1, verbose=0)


@pytest.mark.slow
def test_schedules_follow_the_training():
    falling = schedules.LinearScheduler("percent", [(0.0, 1.0), (1.0, 0.0)])
    model = examples.model_of(agents.DQN(hidden_units=(8,), epsilon=falling))
    drawn = replay.UniformReplay(filled(), seed=0)
    history = model.fit(drawn, epochs=2, steps_per_epoch=5, verbose=0).history
    np.testing.assert_allclose(history["epsilon"], [0.8, 0.3], rtol=1e-5)
    again = model.fit(drawn, epochs=1, steps_per_epoch=5, verbose=0).history
    np.testing.assert_allclose(again["epsilon"], [0.6], rtol=1e-5)


@pytest.mark.slow
def test_replicas_share_the_steps():
    found = []
    for strategy in (tf.distribute.get_strategy(), examples.strategy_of_two()):
        with strategy.scope():
            model = examples.model_of(steps_per_execution=2, seed=1)
            imitator = examples.model_of(agents.BC(), seed=1)
        drawn = replay.UniformReplay(filled(), seed=1)
        model.fit(drawn, batch_size=6, steps_per_epoch=4, verbose=0)
        data = tf.data.Dataset.from_tensor_slices(batches()).batch(8)
        imitator.fit(data, verbose=0)
        found.append(tf.nest.flatten((model.agent, imitator.agent)))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "policy",
    ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)],
)
def test_mixed_precision_of_the_network(policy):
    model = examples.model_of(network=examples.network(dtype=policy))
    history = model.fit(
        replay.UniformReplay(filled(), seed=0), steps_per_epoch=3, verbose=0
    ).history
    assert np.isfinite(history["loss"]).all()
    assert {w.dtype for w in model.weights if "kernel" in w.name} == {"float32"}


@pytest.mark.parametrize("jit_compile", [True, False])
def test_predict(jit_compile):
    model = examples.model_of()
    model.compile(jit_compile=jit_compile)
    x = np.linspace(0.0, 1.0, 15).reshape(5, 3)
    expected = model.agent.policy.parameters(x.astype(np.float32))
    found = model.predict(x, batch_size=2, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    with pytest.raises(TypeError, match="whose policy is a network"):
        training.AgentModel(counter())(np.zeros([1, 3], np.float32))


def test_videos(tmp_path):
    env = toy_envs.Walk()
    env.metadata, env.render_mode = {"render_modes": ["rgb_array"]}, "rgb_array"
    env.render = lambda: np.zeros([8, 8, 3], np.uint8)
    record = training.RecordVideo(env, None, tmp_path)
    examples.model_of(tiny_agents.Tiny()).fit(batches(), callbacks=[record], verbose=0)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch_0001.gif"]


@pytest.mark.parametrize("name", ["optimizer", "loss", "metrics", "run_eagerly"])
def test_agents_bring_their_own_losses(name):
    with pytest.raises(TypeError, match=f"`AgentModel.compile`: `{name}` expected not"):
        examples.model_of().compile(**{name: "sgd"})


@pytest.mark.parametrize("count", [0, -1, True, 2.0])
def test_steps_of_an_execution(count):
    with pytest.raises((TypeError, ValueError), match="`steps_per_execution` expected"):
        examples.model_of().compile(steps_per_execution=count)


def test_experience_of_another_kind():
    drawn, empty = map(replay.UniformReplay, (filled(), examples.store()))
    rollouts = training.Rollouts(examples.walks(), n_steps=2)
    dqn, bc, ppo = (
        examples.model_of(x)
        for x in (examples.DQN, agents.BC(), agents.PPO(minibatch_size=6))
    )
    one, rows = {"steps_per_epoch": 1}, batches()
    cases = [
        (TypeError, ppo, drawn, one, "`PPO.update`: .*got Sample"),
        (TypeError, dqn, rollouts, one, "got Trajectory"),
        (ValueError, dqn, drawn, {}, "`steps_per_epoch` expected a number"),
        (TypeError, dqn, drawn.sample(4), {}, "expected data of several steps"),
        (ValueError, dqn, empty, one, "got nothing"),
        (ValueError, bc, rows, {"sample_weight": np.ones(24)}, "`sample_weight` exp"),
        (ValueError, bc, rows, {"validation_data": rows}, "`validation_data` expect"),
    ]
    for kind, model, x, options, message in cases:
        before = examples.weights_of(model)[:-2]
        with pytest.raises(kind, match=message):
            model.fit(x, verbose=0, **options)
        examples.assert_same(before, examples.weights_of(model)[:-2])
    for call in (ppo.evaluate, ppo.test_on_batch):
        with pytest.raises(ValueError, match="judged by playing"):
            call(batches())
    with pytest.raises(ValueError, match="`AgentModel.train_on_batch`: expected"):
        ppo.train_on_batch(batches())
    with pytest.raises(ValueError, match="`AgentModel.quantize`: expected"):
        ppo.quantize("int8")


@pytest.mark.parametrize("played", ["Rollouts", "Evaluate"])
def test_environments_of_other_spaces_are_refused(played):
    model, envs = examples.model_of(tiny_agents.Tiny()), examples.walks()
    other = gym.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    rollouts = training.Rollouts(other if played == "Rollouts" else envs, n_steps=2)
    judges = [training.Evaluate(other, n_episodes=1)] if played == "Evaluate" else []
    with pytest.raises(ValueError, match=f"`{played}`: `envs` expected environments"):
        model.fit(rollouts, steps_per_epoch=1, callbacks=judges, verbose=0)


def test_who_needs_an_agent():
    with pytest.raises(TypeError, match="hyper-parameters are for `AgentModel.create`"):
        training.AgentModel(examples.DQN)
    with pytest.raises(TypeError, match="`agent` expected .* arrays"):
        training.AgentModel(counter().replace(exact="text"))
    collect = training.Collect(examples.walks(), examples.store(), warm_up_steps=3)
    with pytest.raises(TypeError, match="got None beside a FitModel, which has no age"):
        collect.before_fit(examples.q_model())
    agent = examples.DQN.create(*examples.spaces())
    with pytest.raises(TypeError, match="`AgentModel.create`: `config` expected hyper"):
        training.AgentModel.create(agent, *examples.spaces())


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        keras.callbacks.ReduceLROnPlateau("loss"),
        keras.callbacks.SwapEMAWeights(),
        training.FollowSchedule(0.5, "learning_rate"),
    ],
)
def test_callbacks_that_set_an_optimizer(callback):
    model = examples.model_of(agents.BC())
    with pytest.raises(
        TypeError, match="none that sets the optimizer .* the agent has"
    ):
        model.fit(batches(), callbacks=[callback], verbose=0)
    with pytest.raises(TypeError, match="`AgentModel.fit`: `callbacks` expected callb"):
        model.fit(batches(), callbacks=["plateau"], verbose=0)
    assert int(model.iterations.numpy()) == 0


def test_agents_of_another_structure():
    model = examples.model_of()
    before = examples.weights_of(model)
    for config in (agents.DQN(hidden_units=(9,)), agents.DQN(hidden_units=())):
        with pytest.raises(ValueError, match="arrays of the shapes of the model's wei"):
            model.agent = config.create(*examples.spaces())
    examples.assert_same(before, examples.weights_of(model))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_dqn_solves_cart_pole(seed):
    make, rate = tfrl.environments.make_vec, {"steps_per_epoch": 64 * 38, "epochs": 10}
    envs, config = make("CartPole-v1", 8), agents.DQN(target_period=200)
    model = training.AgentModel.create(
        config, envs.single_observation_space, envs.single_action_space, seed=seed
    )
    model.compile(steps_per_execution=64)
    store = replay.EpisodeStore(
        tf.TensorSpec([4]), tf.TensorSpec([], tf.int64), 50_000, 8
    )
    drawn = replay.UniformReplay(store, replay.Transitions(3, 0.99), seed=seed)
    collect = training.Collect(
        envs,
        store,
        steps_per_batch=16,
        every_batches=64,
        warm_up_steps=1024,
        seed=seed,
    )
    evaluate = training.Evaluate(make("CartPole-v1", 20))
    history = model.fit(
        drawn, batch_size=64, callbacks=[collect, evaluate], verbose=0, **rate
    ).history
    assert history["env_steps"][-1] <= 50_000
    assert history["val_return_mean"][-1] >= 475.0


def test_nan_ends_fit():
    model = examples.model_of(agents.BC(hidden_units=(4,), learning_rate=1e30))
    ends = keras.callbacks.TerminateOnNaN()
    history = model.fit(batches(), epochs=5, callbacks=[ends], verbose=0)
    assert len(history.epoch) < 5
    assert np.isnan(history.history["loss"][-1])


@pytest.mark.parametrize(
    ("info", "loss"),
    [
        ({"critic_loss": 2.0, "policy_loss": 0.5, "q_value": 7.0}, 2.5),
        ({"actor_loss": 2.0, "mse_loss": 9.0}, 2.0),
        ({"loss": 3.0, "policy_loss": 0.5}, 3.0),
        ({"q_value": 7.0}, None),
    ],
)
def test_logs_have_a_loss(info, loss):
    counted = tf.nest.flatten(counter())
    model = training.AgentModel(Informing(*counted, info=tuple(info.items())))
    model.compile()
    x = tf.data.Dataset.from_tensors(tf.zeros([4, 2])).repeat(2)
    logs = model.fit(x, verbose=0).history
    assert logs.pop("loss", [None]) == [loss]
    assert logs == {name: [x] for name, x in info.items() if name != "loss"}
