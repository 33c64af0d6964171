"""The folder of a run of `AgentModel.fit` is that of a run."""

import json

import keras
import numpy as np
import own_agent
import pytest
import tensorflow as tf
from fit_examples import BreakOffError, assert_same, break_off_in, weights_of

import tfrl
from tfrl import agents, command, replay, rl_trainer, saving, summaries, training

DQN = agents.DQN(hidden_units=(8,))
PPO = agents.PPO(hidden_units=(8,), minibatch_size=8, normalize_rewards=True)


def make_envs(n_envs=2):
    return tfrl.environments.make_vec("CartPole-v1", n_envs, "sync")


def model_of(config, envs, **arguments):
    spaces = envs.single_observation_space, envs.single_action_space
    model = training.AgentModel.create(config, *spaces, seed=1, **arguments)
    model.compile(steps_per_execution=2)
    return model


def run_dqn(
    folder, broken=None, config=DQN, epochs=4, replay_of=replay.PrioritizedReplay
):
    """Learns by prioritised replay, an epoch each ten steps."""
    envs = make_envs()
    model = model_of(config, envs)
    store = replay.EpisodeStore(tf.TensorSpec([4]), tf.TensorSpec([], tf.int64), 500, 2)
    drawn = replay_of(store, seed=0)
    collect = training.Collect(envs, store, warm_up_steps=20, every_batches=3)
    evaluate = training.Evaluate(make_envs(), n_episodes=2, every_epochs=2)
    saved = training.RunCheckpoint(folder, {"collect": collect, "drawn": drawn})
    callbacks = [collect, evaluate, saved, *([] if broken is None else [broken])]
    options = {"batch_size": 8, "steps_per_epoch": 10, "epochs": epochs, "verbose": 0}
    model.fit(drawn, callbacks=callbacks, **options)
    return model


def run_own(folder, broken=None):
    """An algorithm that the library does not know."""
    return run_dqn(folder, broken, own_agent.SlowQ(), replay_of=replay.UniformReplay)


def run_ppo(folder, broken=None):
    envs = make_envs()
    model = model_of(PPO, envs, n_envs=2)
    rollouts = training.Rollouts(envs, n_steps=8)
    saved = training.RunCheckpoint(folder, {"rollouts": rollouts})
    callbacks = [saved, *([] if broken is None else [broken])]
    model.fit(rollouts, steps_per_epoch=4, epochs=4, callbacks=callbacks, verbose=0)
    return model


def rows_of(folder):
    rows = summaries.read_metrics(folder / "metrics.csv")
    return {k: x for k, x in rows.items() if "second" not in k}


@pytest.mark.parametrize(
    "run", [run_dqn, run_ppo, pytest.param(run_own, marks=pytest.mark.slow)]
)
def test_a_broken_run_goes_on_as_if_it_had_not_been(tmp_path, run):
    with pytest.raises(BreakOffError):
        run(tmp_path / "a", break_off_in(2, batch=3))
    resumed, whole = run(tmp_path / "a"), run(tmp_path / "b")
    assert_same(weights_of(resumed), weights_of(whole))
    one, two = rows_of(tmp_path / "a"), rows_of(tmp_path / "b")
    assert list(one) == list(two)
    assert_same(one.values(), two.values())
    assert len(one["epoch"]) == 4
    steps = saving.list_steps(tmp_path / "a")
    assert steps == one["env_steps"][1:].tolist()
    assert int(whole.env_steps.numpy()) == steps[-1]


@pytest.mark.parametrize("run", [run_dqn, run_ppo, run_own])
def test_it_opens_as_a_run(tmp_path, run):
    folder = tmp_path / "run"
    model = run(folder)
    with rl_trainer.open_run(folder) as opened:
        assert_same(tf.nest.flatten(opened.agent), tf.nest.flatten(model.agent))
        assert len(opened.evaluate(n_episodes=3).returns) == 3
        opened.export(tmp_path / "policy")
    assert (tmp_path / "policy").is_dir()
    assert training.find_nonfinite(folder) == []


def test_the_best_policy_is_kept(tmp_path):
    for folder, broken in (("whole", None), ("cut", break_off_in(2, batch=3))):
        if broken is not None:
            with pytest.raises(BreakOffError):
                run_dqn(tmp_path / folder, broken)
        run_dqn(tmp_path / folder)
        rows = rows_of(tmp_path / folder)
        best = rows["env_steps"][np.nanargmax(rows["eval/return_mean"])]
        with rl_trainer.open_run(tmp_path / folder, "best") as opened:
            assert opened.step == int(best)


def test_a_network_of_ones_own(tmp_path):
    def run(activation, epochs):
        inputs = keras.Input([4])
        hidden = keras.layers.Dense(8, activation)(inputs)
        value = keras.layers.Reshape([])(keras.layers.Dense(1)(hidden))
        network = keras.Model(inputs, [keras.layers.Dense(2)(hidden), value])
        model = model_of(agents.BC(), make_envs(), network=network)
        rows = {"observations": np.zeros([8, 4], "f"), "actions": np.zeros(8, int)}
        saved = training.RunCheckpoint(tmp_path)
        model.fit(rows, epochs=epochs, callbacks=[saved], verbose=0)
        return model

    run("tanh", 1)
    model = run("tanh", 2)
    with rl_trainer.open_run(tmp_path) as opened:
        assert_same(tf.nest.flatten(opened.agent), tf.nest.flatten(model.agent))
    with pytest.raises(ValueError, match="activation from 'tanh' to 'relu'"):
        run("relu", 3)


def test_the_command_takes_it(tmp_path, capsys):
    folder = tmp_path / "run"
    run_dqn(folder)
    assert command.main(["evaluate", str(folder), "--episodes=2"]) in (0, None)
    assert command.main(["doctor", str(folder)]) in (0, None)
    assert "return" in capsys.readouterr().out


def test_rows_are_those_of_a_trainer(tmp_path):
    run_dqn(tmp_path)
    rows = rows_of(tmp_path)
    names = {"train/return_mean", "eval/return_mean", "train/loss", "train/epsilon"}
    assert names <= set(rows)
    assert rows["epoch"].tolist() == [1.0, 2.0, 3.0, 4.0]
    # In the first epoch, and in every second.
    assert np.isnan(rows["eval/return_mean"]).tolist() == [False, False, True, False]


def test_an_agent_of_ones_own(tmp_path):
    model = run_own(tmp_path / "run")
    assert "train/bellman_error" in rows_of(tmp_path / "run")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_same(weights_of(loaded), weights_of(model))


def test_where_nothing_is_played_minibatches_count(tmp_path):
    rng = np.random.default_rng(0)
    rows = {"observations": rng.normal(size=[24, 4]).astype(np.float32)}
    rows["actions"] = rows["observations"][:, :2].argmax(-1)
    model = model_of(agents.BC(), make_envs())
    for epochs in (1, 3):
        model = model_of(agents.BC(), make_envs())
        saved = training.RunCheckpoint(tmp_path, make_envs=make_envs)
        history = model.fit(
            rows, batch_size=8, epochs=epochs, callbacks=[saved], verbose=0
        )
    assert history.epoch == [1, 2]
    assert saving.list_steps(tmp_path) == [3, 6, 9]
    assert rows_of(tmp_path)["env_steps"].tolist() == [3.0, 6.0, 9.0]
    with rl_trainer.open_run(tmp_path, 6) as opened:
        acted = opened.policy.act(np.zeros([2, 4], np.float32))
        assert acted.actions.shape == (2,)
        assert len(opened.evaluate(n_episodes=2).returns) == 2


def test_environments_that_nobody_named(tmp_path):
    model = model_of(agents.BC(), make_envs())
    rows = {"observations": np.zeros([8, 4], "f"), "actions": np.zeros(8, int)}
    model.fit(rows, callbacks=[training.RunCheckpoint(tmp_path)], verbose=0)
    with rl_trainer.open_run(tmp_path) as opened:
        opened.policy.act(np.zeros([2, 4], np.float32))
        with pytest.raises(ValueError, match="whose `make_envs` could be kept"):
            opened.evaluate()


def test_a_model_of_an_agent_that_was_made_before(tmp_path):
    envs = make_envs()
    agent = DQN.create(envs.single_observation_space, envs.single_action_space)
    data = {"observations": np.zeros([8, 4], "f"), "actions": np.zeros(8, int)}
    agent = agents.BC().create(envs.single_observation_space, envs.single_action_space)
    model = training.AgentModel(agent)
    model.compile()
    model.fit(data, callbacks=[training.RunCheckpoint(tmp_path)], verbose=0)
    assert not (tmp_path / "run.json").exists()
    assert saving.list_steps(tmp_path) == [1]


def test_other_hyper_parameters(tmp_path):
    run_dqn(tmp_path, epochs=1)
    before = json.loads((tmp_path / "run.json").read_text())
    with pytest.raises(ValueError, match="of another: .* agent.tau from 1.0 to 0.5"):
        run_dqn(tmp_path, config=agents.DQN(hidden_units=(8,), tau=0.5))
    with pytest.raises(ValueError, match="of another agent or shape"):
        run_dqn(tmp_path, config=agents.DQN(hidden_units=(9,)))
    assert json.loads((tmp_path / "run.json").read_text()) == before
    run_dqn(tmp_path)


def test_runs_of_others(tmp_path):
    folder = tmp_path / "trainer"
    config = agents.PPO(minibatch_size=8)
    with training.Trainer(
        folder,
        n_epochs=1,
        agent=config,
        make_envs=make_envs,
        n_envs=2,
        experience=training.Trajectories(4),
        intervals=training.Intervals(eval_episodes=1),
    ) as trainer:
        trainer.run(quiet=True)
    envs = make_envs()
    model = model_of(config, envs)
    kept = saving.Checkpointer(folder, learner=model.agent)
    assert kept.has_checkpoint() and kept.has_checkpoint("best")
    assert [kept.load(), kept.load("best"), kept.load(8)] == [8, 8, 8]
    assert_same(tf.nest.flatten(kept["learner"]), tf.nest.flatten(trainer.agent))
    assert not kept.has_checkpoint(7)
    with pytest.raises(ValueError, match="of another agent or shape"):
        saving.Checkpointer(folder, learner=model.agent.policy).load()
    with pytest.raises(ValueError, match="`kwargs` expected the agent alone"):
        saving.Checkpointer(folder, a=model.agent, b=tf.Variable(0.0)).load()
    with pytest.raises(ValueError, match="a run; load all of it"):
        kept.load(including_optimizer=False)
    rollouts = training.Rollouts(envs, n_steps=4)
    saved = training.RunCheckpoint(folder, {"rollouts": rollouts})
    with pytest.raises(ValueError, match="`RunCheckpoint`: `directory` expected a run"):
        model.fit(rollouts, steps_per_epoch=1, callbacks=[saved], verbose=0)


def test_a_trainer_does_not_take_it(tmp_path):
    run_ppo(tmp_path)
    for override in (False, True):
        trainer = training.Trainer(
            tmp_path,
            seed=1,
            resume=True,
            agent=PPO,
            make_envs=make_envs,
            n_envs=2,
            experience=training.Trajectories(8),
            override=override,
        )
        with pytest.raises(ValueError, match="one of `AgentModel.fit`; go on with"):
            trainer.__enter__()


def test_a_checkpointer_reads_it(tmp_path):
    model = run_ppo(tmp_path)
    kept = saving.Checkpointer(
        tmp_path, agent=model_of(PPO, make_envs(), n_envs=2).agent
    )
    assert kept.load() == 4 * 4 * 16
    assert_same(tf.nest.flatten(kept["agent"]), tf.nest.flatten(model.agent))


def test_bad_arguments(tmp_path):
    with pytest.raises(TypeError, match="`make_envs` expected a function of `n_envs`"):
        training.RunCheckpoint(tmp_path, make_envs="CartPole-v1")
    assert isinstance(training.RunCheckpoint(tmp_path), keras.callbacks.Callback)
