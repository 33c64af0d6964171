"""Collecting, evaluating, updating targets and following schedules inside `fit`."""

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf
import toy_envs

from tfrl import layers, policies, replay, schedules, training


class Actor:
    """Draws actions and writes down what it was asked."""

    def __init__(self):
        self.seen = []

    def __call__(self, outputs, rng):
        self.seen.append(outputs)
        return examples.drawn(outputs, rng)


def fitted(callbacks, source=None, steps=4, epochs=1, model=None, **options):
    model = examples.q_model(**options) if model is None else model
    source = examples.filled_store(model) if source is None else source
    history = model.fit(
        replay.UniformReplay(source, seed=0),
        steps_per_epoch=steps,
        epochs=epochs,
        callbacks=callbacks,
        verbose=0,
    )
    return model, history.history


def test_collect_fills_the_replay_of_any_keras_model():
    store, model = examples.store(), examples.network()
    model.compile("sgd", "mse", run_eagerly=True)
    dataset = replay.as_dataset(
        replay.UniformReplay(store, seed=0),
        4,
        transform=lambda sample: (sample.data.observations, sample.data.observations),
        prefetch=0,
    )
    collect = training.Collect(
        examples.walks(), store, examples.acting(model), warm_up_steps=12
    )
    options = {"shuffle": False, "verbose": 0, "callbacks": [collect]}
    history = model.fit(dataset, steps_per_epoch=2, **options).history
    assert np.isfinite(history["loss"]).all()
    assert collect.env_steps >= 12


@pytest.mark.slow
@pytest.mark.parametrize("mode", toy_envs.MODES, ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize(
    "steps_per_execution", [1, pytest.param(3, marks=pytest.mark.slow)]
)
def test_collect_plays_after_every_step(mode, steps_per_execution):
    store, act = examples.store(), Actor()
    model = examples.q_model(steps_per_execution=steps_per_execution)
    policy = examples.acting(model, act)
    collect = training.Collect(
        examples.walks(mode), store, policy, steps_per_batch=2, warm_up_steps=30
    )
    _, logs = fitted([collect], store, epochs=2, model=model)
    # Rows in which environments only reset are no steps.
    assert collect.env_steps <= 30 + 2 * 4 * 2 * 3 + 3 * 2
    assert int(model.env_steps) == collect.env_steps == int(logs["env_steps"][-1])
    assert replay.UniformReplay(store).size == collect.env_steps
    acted = len(act.seen) * 3
    resets = acted - collect.env_steps
    assert (resets > 0) == (mode.name == "NEXT_STEP")
    assert logs["return_mean"][-1] == pytest.approx(
        np.mean(collect.collector.episode_returns)
    )


def test_collect_plays_by_the_network_as_it_is():
    store, act, model = examples.store(), Actor(), examples.q_model()
    policy = examples.acting(model, act)
    collect = training.Collect(examples.walks(), store, policy, warm_up_steps=6)
    fitted([collect], store, model=model)
    trained = model.network(collect.collector.observations).numpy()
    after = examples.weights_of(model)
    collect.trajectory(model)
    np.testing.assert_allclose(act.seen[-1], trained, rtol=1e-5)
    assert np.abs(act.seen[0] - trained).max() > 1e-3
    examples.assert_same(after, examples.weights_of(model))


@pytest.mark.slow
def test_collect_follows_schedules_and_hands_out_trajectories():
    model = examples.q_model()
    source = examples.filled_store(model)
    # The steps of the callback that filled the store count too.
    start = int(model.env_steps)
    assert start == 60
    epsilon = schedules.LinearScheduler(
        "env_steps", [(0, 1.0), (start, 1.0), (start + 12, 0.0)]
    )
    seen, taken = [], []

    def act(observations):
        seen.append(epsilon())
        return np.zeros(len(observations), np.float32)

    policy = policies.FunctionPolicy(act, to_env=lambda raw: raw.astype(np.int64))
    collect = training.Collect(examples.walks(), taken.append, policy)
    fitted([collect], source, model=model)
    assert seen == [1.0, 0.75, 0.5, 0.25]
    assert all(type(value) is float for value in seen)
    assert [each.actions.dtype for each in taken] == [np.float32] * 4
    assert taken[0].rewards.shape == (1, 3)


def test_collect_in_a_plain_keras_model():
    network, taken = examples.network(), []
    network.compile("sgd", "mse")
    policy = examples.acting(network)
    collect = training.Collect(examples.walks(), taken.append, policy, warm_up_steps=9)
    x, y = np.ones([8, 3], np.float32), np.ones([8, 3], np.float32)
    network.fit(x, y, batch_size=4, callbacks=[collect], verbose=0)
    assert len(taken) == 3 + 2
    assert collect.env_steps == 15


@pytest.mark.slow
def test_collect_is_reproducible():
    def run():
        store, model = examples.store(), examples.q_model()
        policy = examples.acting(model)
        collect = training.Collect(examples.walks(), store, policy, warm_up_steps=30)
        return fitted([collect], store, steps=6, model=model)

    (one, logs), (two, others) = run(), run()
    assert logs == others
    examples.assert_same(one.get_weights(), two.get_weights())


def test_state_in_the_middle_of_episodes():
    model = examples.q_model()

    def made(seed):
        policy = examples.acting(model)
        return training.Rollouts(examples.walks(), 2, policy, seed=seed)

    one, two = made(0), made(9)
    for _ in range(3):
        one.trajectory(model)
    two.set_state(one.state())
    for _ in range(3):
        first, second = one.trajectory(model), two.trajectory(model)
        examples.assert_same(tf.nest.flatten(first), tf.nest.flatten(second))
    logs, others = {}, {}
    one.on_epoch_end(0, logs)
    two.on_epoch_end(0, others)
    assert logs == others and one.env_steps == two.env_steps == 36
    # Those of one, and three trajectories of the other.
    assert int(model.env_steps) == logs["env_steps"] == 36 + 18


def test_logs_before_the_first_episode():
    logs = {}
    training.Rollouts(examples.walks()).on_epoch_end(0, logs)
    assert np.isnan([logs["return_mean"], logs["length_mean"]]).all()
    assert logs["env_steps"] == 0.0


def test_rollouts_are_for_agents():
    rollouts, model = training.Rollouts(examples.walks(), 4), examples.q_model()
    with pytest.raises(TypeError, match="`FitModel.fit`: `x` .* in `AgentModel.fit`"):
        model.fit(rollouts, steps_per_epoch=1)
    with pytest.raises(ValueError, match="`Rollouts`: `n_steps` expected"):
        training.Rollouts(examples.walks(), 0)


def test_evaluate_logs_stops_and_can_be_monitored():
    model = examples.q_model()
    policy = examples.acting(model, examples.greedy)
    evaluate = training.Evaluate(
        examples.walks(), policy, 6, every_epochs=2, stop_at=1e9
    )
    seen = []
    monitor = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append("val_return_mean" in logs)
    )
    _, logs = fitted([evaluate, monitor], epochs=5, steps=1, model=model)
    # The first, every second and the last.
    assert seen == [True, True, False, True, True]
    assert len(logs["val_return_mean"]) == 4
    assert set(logs) >= {"val_return_std", "val_length_mean"}
    played = training.evaluate(
        lambda observations: model.network(observations).numpy().argmax(-1),
        examples.walks(),
        6,
        seed=5 * 1_000_003,
    )
    assert logs["val_return_mean"][-1] == pytest.approx(played.returns.mean())
    assert logs["val_length_mean"][-1] == pytest.approx(played.lengths.mean())
    assert "val_success_rate" not in logs  # these tell none
    early = training.Evaluate(examples.walks(), policy, 2, stop_at=-1e9)
    _, logs = fitted([early], epochs=5, steps=1, model=model)
    assert len(logs["loss"]) == 1


def test_callbacks_act_with_the_network_of_their_policy():
    networks = {"a": examples.network(), "b": examples.network(seed=5)}
    model = training.FitModel(
        networks,
        lambda model, batch: networks["a"](batch["x"]) * networks["b"](batch["x"]),
    )
    model.compile("sgd")
    act = Actor()
    named = training.Evaluate(examples.walks(), examples.acting(networks["b"], act), 1)
    model.fit(examples.data(8, 4), callbacks=[named], verbose=0)
    assert act.seen
    unnamed = training.Evaluate(examples.walks(), None, 1)
    with pytest.raises(TypeError, match="`Evaluate`: `policy` .* has no agent that co"):
        model.fit(examples.data(8, 4), callbacks=[unnamed], verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_update_target_counts_steps(steps_per_execution):
    calls = []
    update = training.UpdateTarget(lambda: calls.append(0))
    fitted([update], steps=5, epochs=2, steps_per_execution=steps_per_execution)
    assert len(calls) == 10


def test_update_target_in_a_plain_keras_model():
    network, copy = examples.network(), examples.network(seed=3)
    updater = layers.TargetUpdater(network, copy, tau=0.5, period=2)
    network.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = np.ones([6, 3], np.float32), np.ones([6, 3], np.float32)
    start = network.get_weights()[0]
    network.fit(
        x, y, batch_size=2, callbacks=[training.UpdateTarget(updater)], verbose=0
    )
    moved = copy.get_weights()[0] - start
    # Updated at the second of three steps, half-way.
    assert 0 < np.abs(moved).max() < np.abs(network.get_weights()[0] - start).max()


def test_follow_schedule():
    rate = schedules.StepScheduler("iterations", [(2, 0.5), (10, 0.25)])
    kept, given = tf.Variable(0.0), []
    _, logs = fitted(
        [
            training.FollowSchedule(rate, "learning_rate", name="rate"),
            training.FollowSchedule(rate, kept),
            training.FollowSchedule(lambda: 3, given.append),
        ],
        steps=2,
        epochs=2,
    )
    assert logs["rate"] == [0.5, 0.25]
    assert (float(kept), given) == (0.25, [3] * 4)


@pytest.mark.parametrize(
    ("error", "kind", "name", "arguments"),
    [
        (TypeError, "Collect", "store", {"store": 3}),
        (TypeError, "Collect", "policy", {"policy": "drawn"}),
        (TypeError, "Collect", "envs", {"envs": None}),
        (TypeError, "Collect", "seed", {"seed": "a"}),
        (ValueError, "Collect", "steps_per_batch", {"steps_per_batch": 0}),
        (ValueError, "Collect", "warm_up_steps", {"warm_up_steps": -1}),
        (TypeError, "Evaluate", "envs", {"envs": None}),
        (TypeError, "Evaluate", "seed", {"seed": None}),
        (TypeError, "Evaluate", "policy", {"policy": 5}),
        (ValueError, "Evaluate", "n_episodes", {"n_episodes": 0}),
        (ValueError, "Evaluate", "every_epochs", {"every_epochs": 0}),
        (TypeError, "UpdateTarget", "updater", {"updater": 0.5}),
        (TypeError, "FollowSchedule", "variable", {"variable": "momentum"}),
        (TypeError, "FollowSchedule", "", {"schedule": "slow"}),
    ],
)
def test_bad_arguments(error, kind, name, arguments):
    good = {
        "Collect": {"envs": examples.walks(), "store": print, "policy": print},
        "Evaluate": {"envs": examples.walks(), "policy": print},
        "UpdateTarget": {},
        "FollowSchedule": {"schedule": 0.5, "variable": "learning_rate"},
    }
    match = f"`{kind}`: `{name}` expected" if name else "expected a number"
    with pytest.raises(error, match=match):
        getattr(training, kind)(**{**good[kind], **arguments})


def test_seeds_may_be_those_of_numpy():
    rollouts = training.Rollouts(examples.walks(), 2, seed=np.int64(3))
    assert type(rollouts.settings["seed"]) is int
