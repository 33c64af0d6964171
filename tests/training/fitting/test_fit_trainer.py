"""A run of `fit` is a run: every command opens it, and goes on with it."""

import functools
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import gymnasium as gym
import keras
import numpy as np
import own_agent
import pytest
import tensorflow as tf
import tiny_agents
from fit_examples import assert_same

import tfrl
from tfrl import agents, command, replay, rl_trainer, saving, summaries, training
from tfrl._internal import sealed_folder
from tfrl.configuring import configs
from tfrl.environments import vector, wrappers
from tfrl.saving import typed_json

TESTS = pathlib.Path(__file__).parents[2]
DQN = agents.DQN(hidden_units=(8,))
PPO = agents.PPO(hidden_units=(8,), minibatch_size=8, normalize_rewards=True)


@pytest.fixture(autouse=True)
def _forget_bindings():
    yield
    configs.clear()


def make_envs(n_envs=2, mode="sync"):
    return tfrl.environments.make_vec("CartPole-v1", n_envs, mode)


def run_replayed(
    folder, config, epochs=3, batch_size=8, policy=None, further=(), envs=None,
    network=None, judged="sync", uniform=False, saved_as=None, **saving_options
):  # fmt: skip
    """Learns by a replay, a prioritised one by default; returns the weights."""
    envs = make_envs() if envs is None else envs
    spaces = envs.single_observation_space, envs.single_action_space
    more = {} if network is None else {"network": network}
    model = training.AgentModel.create(config, *spaces, seed=1, **more)
    model.compile(steps_per_execution=2)
    store = replay.EpisodeStore(tf.TensorSpec([4]), tf.TensorSpec([], tf.int64), 500, 2)
    drawn = replay.PrioritizedReplay(store, alpha=0.5, seed=0)
    if uniform:
        drawn = replay.UniformReplay(store, replay.Transitions(2, 0.9), seed=0)
    collect = training.Collect(
        envs, store, policy, warm_up_steps=20, seed=3, every_batches=3
    )
    evaluate = training.Evaluate(
        make_envs(3, judged), n_episodes=4, every_epochs=2, seed=7
    )
    parts = saved_as or {"collect": collect, "drawn": drawn}
    saved = training.RunCheckpoint(folder, parts, **saving_options)
    callbacks = [collect, evaluate, *further, saved]
    options = {"batch_size": batch_size, "steps_per_epoch": 10, "verbose": 0}
    model.fit(drawn, epochs=epochs, callbacks=callbacks, **options)
    return model.get_weights()


def run_rollouts(folder, config, epochs=3, n_steps=8, envs=None):
    """Learns by what was just played; returns the weights."""
    envs = make_envs() if envs is None else envs
    spaces = envs.single_observation_space, envs.single_action_space
    numbers = {"n_envs": 2} if config is PPO else {}
    model = training.AgentModel.create(config, *spaces, seed=1, **numbers)
    model.compile()
    rollouts = training.Rollouts(envs, n_steps, seed=5)
    saved = training.RunCheckpoint(folder, {"rollouts": rollouts}, every_epochs=2)
    options = {"steps_per_epoch": 3, "callbacks": [saved], "verbose": 0}
    model.fit(rollouts, epochs=epochs, **options)
    return model.get_weights()


def resume(folder, *flags):
    return command.main(["--resume", str(folder), *flags])


def cut(run, folder, monkeypatch, steps, **options):
    """Runs until an error in an update."""
    done = []
    learn = training.AgentModel.train_step

    def broken(self, data):
        done.append(0)
        if len(done) > steps:
            raise InterruptedError
        return learn(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(training.AgentModel, "train_step", broken)
        with pytest.raises(InterruptedError):
            run(folder, **options)


def assert_same_agent(folder, weights):
    with rl_trainer.open_run(folder) as run:
        leaves = [x for x in tf.nest.flatten(run.agent) if x is not None]
        assert_same(leaves, weights[:-2])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs of three epochs, made once: folder and weights by name."""
    folder = tmp_path_factory.mktemp("whole")
    runs = {"dqn": (run_replayed, DQN), "ppo": (run_rollouts, PPO)}
    runs["tiny"] = run_replayed, tiny_agents.Tiny()

    @functools.cache
    def made(name):
        run, config = runs[name]
        return functools.partial(run, config=config), run(folder / name, config)

    def copied(name, path):
        run, weights = made(name)
        return run, shutil.copytree(folder / name, path), weights

    return copied


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "ppo", "tiny"])
def test_it_goes_on_as_if_it_had_never_stopped(tmp_path, monkeypatch, whole, name):
    run, done, weights = whole(name, tmp_path / "whole")
    folder = tmp_path / "cut"
    cut(run, folder, monkeypatch, 8 if name == "ppo" else 13)  # amid the third epoch
    assert resume(folder) == 0
    assert_same_agent(folder, weights)
    tiny_agents.assert_same_rows(folder, done)
    steps = saving.list_steps(folder)
    assert steps == saving.list_steps(done)
    if name != "ppo":
        kept = {path.name for path in (folder / "replay").iterdir()}
        assert kept == {f"step-{step}" for step in steps}
    if name != "tiny":
        return
    # The program goes on with what the command did.
    assert_same(run(folder, epochs=4), run(done, epochs=4))


def test_a_signal_ends_it_after_the_epoch(tmp_path, monkeypatch, whole, capsys):
    run, done, weights = whole("tiny", tmp_path / "whole")
    folder = tmp_path / "cut"
    cut(run, folder, monkeypatch, 6)
    learn = training.AgentModel.train_step

    def asked(self, data):
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr(training.AgentModel, "train_step", learn)
        return learn(self, data)

    monkeypatch.setattr(training.AgentModel, "train_step", asked)
    assert resume(folder) == 130
    told = f"resume with: tfrl train --output_dir={folder} --resume"
    assert told in capsys.readouterr().out
    assert len(saving.list_steps(folder)) == 2
    assert resume(folder) == 0
    assert_same_agent(folder, weights)
    tiny_agents.assert_same_rows(folder, done)


def test_it_goes_on_where_no_episode_ended(tmp_path):
    run_rollouts(tmp_path, tiny_agents.Tiny(), epochs=1, n_steps=1)
    rows = summaries.read_metrics(tmp_path / "metrics.csv")
    assert not np.isfinite(rows["train/return_mean"]).any()
    assert resume(tmp_path, "--config=train_rl.n_epochs = 2") == 0
    assert not (tmp_path / "learning_curve.png").exists()


def test_environments_are_made_again_with_module_and_wrappers(tmp_path, monkeypatch):
    made = 'gymnasium.register("Far-v0", "gymnasium.envs.classic_control:CartPoleEnv")'
    (tmp_path / "far_pole.py").write_text(f"import gymnasium\n{made}\n")
    monkeypatch.syspath_prepend(tmp_path)
    hidden = functools.partial(wrappers.PartialObservation, indices=[0, 2])
    envs = vector.make_vec("far_pole:Far-v0", 2, "sync", wrappers=[hidden])
    run_rollouts(tmp_path / "run", tiny_agents.Tiny(), epochs=1, envs=envs)
    # As in another process.
    del gym.registry["Far-v0"], sys.modules["far_pole"]
    assert resume(tmp_path / "run", "--config=train_rl.n_epochs = 2") == 0
    with rl_trainer.open_run(tmp_path / "run") as run:
        assert run.spaces[0].shape == (2,)
        run.evaluate(n_episodes=1)
    del gym.registry["Far-v0"]


def test_it_is_recorded_in_the_words_of_a_trainer(tmp_path, whole):
    _, folder, _ = whole("tiny", tmp_path / "run")
    body = sealed_folder.unsealed((folder / "run.json").read_bytes())
    arguments = typed_json.from_json(json.dumps(body["run"]))["arguments"]
    learned = arguments["experience"]
    assert learned.pop("=call").endswith(":Replayed")
    assert learned == {
        **{"capacity": 500, "batch_size": 8, "n_steps": 1, "learning_starts": 20},
        **{"updates_per_step": 1.5, "gamma": 0.99, "n_step_returns": 1},
        **{"sampler": "prioritized", "alpha": 0.5, "beta": 0.4},
        **{"relabel": None, "relabel_ratio": 0.8, "frame_stack": None},
        **{"prior_data": None, "prior_share": 0.5},
        **{"sequence_length": None, "burn_in": 0},
    }
    assert arguments["n_epochs"] == 3 and arguments["intervals"]["eval_episodes"] == 4
    assert arguments["make_envs"]["vectorization"] == "sync"
    assert arguments["fit"]["steps_per_epoch"] == 10


@pytest.mark.slow
def test_other_hyper_parameters(tmp_path, whole, capsys):
    run, folder, _ = whole("dqn", tmp_path / "run")
    done = shutil.copytree(folder, tmp_path / "done")
    flags = ["--config=Replayed.batch_size = 4", "--config=train_rl.n_epochs = 4"]
    assert resume(folder, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "experience.batch_size = 4 (was 8)" in line and "--override" in line
    with pytest.raises(ValueError, match="experience.batch_size from 8 to 4"):
        run(folder, batch_size=4)
    assert resume(folder, *flags, "--override") == 0
    assert saving.latest_step(folder) > saving.latest_step(done)  # of more epochs
    (line,) = training.list_overrides(folder)
    assert "experience.batch_size from 8 to 4" in line
    run(folder, epochs=5, override=True)
    assert len(training.list_overrides(folder)) == 2


@pytest.mark.slow
def test_what_gin_has_no_words_for(tmp_path, monkeypatch):
    """A network of one's own, and environments to be trained and evaluated in."""
    network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])

    def run(folder):
        network.set_weights([np.ones([4, 2]), np.zeros([2])])
        options = {"network": network, "uniform": True, "judged": "auto"}
        return run_replayed(folder, DQN, make_envs=make_envs, **options)

    weights = run(tmp_path / "whole")
    cut(run, tmp_path / "cut", monkeypatch, 13)
    assert resume(tmp_path / "cut", "--config=train_rl.n_epochs = 3") == 0
    assert_same_agent(tmp_path / "cut", weights)
    tiny_agents.assert_same_rows(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "ppo", "tiny"])
def test_it_opens_as_a_run(tmp_path, whole, capsys, name):
    _, folder, weights = whole(name, tmp_path / "run")
    assert_same_agent(folder, weights)
    assert command.main(["evaluate", str(folder), "--episodes=2"]) == 0
    assert "2 episodes" in capsys.readouterr().out
    assert command.main(["doctor", str(folder)]) == 0
    if name == "dqn":
        assert command.main(["export", str(folder), str(tmp_path / "policy")]) == 0
        assert (tmp_path / "policy").is_dir()


@pytest.mark.slow
def test_an_agent_of_ones_own_has_it_all(tmp_path):
    run_replayed(tmp_path / "run", own_agent.SlowQ(), uniform=True)
    rows = summaries.read_metrics(tmp_path / "run" / "metrics.csv")
    assert "train/bellman_error" in rows
    command.main(["export", str(tmp_path / "run"), str(tmp_path / "policy")])
    assert (tmp_path / "policy").is_dir()


def test_rows_are_those_of_a_trainer(tmp_path, whole):
    _, folder, _ = whole("dqn", tmp_path / "run")
    rows = summaries.read_metrics(folder / "metrics.csv")
    names = {"train/return_mean", "eval/return_mean", "train/loss", "train/epsilon"}
    assert names <= set(rows)
    assert rows["epoch"].tolist() == [1.0, 2.0, 3.0]
    # In the first epoch, in every second and in the last.
    judged = rows["eval/return_mean"]
    assert not np.isnan(judged).any()
    with rl_trainer.open_run(folder, "best") as run:
        assert run.step == int(rows["env_steps"][np.nanargmax(judged)])


@pytest.mark.slow
def test_the_program_goes_on_by_itself(tmp_path, monkeypatch, whole):
    run, done, weights = whole("tiny", tmp_path / "whole")
    cut(run, tmp_path / "cut", monkeypatch, 13)
    assert_same(run(tmp_path / "cut"), weights)
    tiny_agents.assert_same_rows(tmp_path / "cut", done)
    before = (done / "run.json").read_bytes()
    for rate, words in ((0.2, "agent.rate from 0.1 to 0.2"), (0.1, "agent or shape")):
        other = tiny_agents.Tiny(rate, n_weights=2 if rate == 0.2 else 3)
        with pytest.raises(ValueError, match=words):
            run(done, config=other)
    assert (done / "run.json").read_bytes() == before
    rerun = run(done, config=tiny_agents.Tiny(0.2), override=True)
    assert_same(rerun, weights)


def imitated(folder, epochs=1, network=None, config=None, **options):
    """Learns from rows that somebody has; returns model and history."""
    config = tiny_agents.Tiny() if config is None else config
    rng = np.random.default_rng(0)
    rows = {"observations": rng.normal(size=[24, 4]).astype(np.float32)}
    rows["actions"] = rows["observations"][:, :2].argmax(-1)
    envs = make_envs()
    spaces = envs.single_observation_space, envs.single_action_space
    given = {} if network is None else {"network": network}
    model = training.AgentModel.create(config, *spaces, seed=1, **given)
    model.compile()
    callbacks = [training.RunCheckpoint(folder, **options)]
    fitting = {"epochs": epochs, "batch_size": 8, "verbose": 0}
    return model, model.fit(rows, callbacks=callbacks, **fitting)


def test_where_nothing_is_played_minibatches_count(tmp_path, capsys):
    for epochs in (1, 3):
        _, history = imitated(tmp_path, epochs, make_envs=make_envs)
    assert history.epoch == [1, 2]
    assert saving.list_steps(tmp_path) == [3, 6, 9]
    rows = summaries.read_metrics(tmp_path / "metrics.csv")
    assert rows["env_steps"].tolist() == [3.0, 6.0, 9.0]
    with rl_trainer.open_run(tmp_path, 6) as opened:
        assert len(opened.evaluate(n_episodes=2).returns) == 2
    assert resume(tmp_path) == 2
    assert "data of builtins.dict" in capsys.readouterr().err


@pytest.mark.slow
def test_a_network_of_ones_own_is_compared(tmp_path):
    def run(activation, epochs):
        inputs = keras.Input([4])
        # Named: `tf.nest` orders dense_9 after dense_10.
        hidden = keras.layers.Dense(8, activation, name="hidden")(inputs)
        value = keras.layers.Dense(1, name="value")(hidden)
        choices = keras.layers.Dense(2, name="choices")(hidden)
        network = keras.Model(inputs, [choices, keras.layers.Reshape([])(value)])
        return imitated(tmp_path, epochs, network, agents.BC())[0]

    run("tanh", 1)
    model = run("tanh", 2)
    with rl_trainer.open_run(tmp_path) as opened:
        assert_same(tf.nest.flatten(opened.agent), tf.nest.flatten(model.agent))
        opened.policy.act(np.zeros([2, 4], np.float32))
        words = "whose `make_envs` could be kept.*by `tfrl.training.evaluate`"
        with pytest.raises(ValueError, match=words):
            opened.evaluate()
    with pytest.raises(ValueError, match="activation from 'tanh' to 'relu'"):
        run("relu", 3)


def test_an_agent_that_nobody_can_import_is_loaded_as_the_error_says(tmp_path):
    class Local(tiny_agents.Tiny):
        pass

    weights = run_rollouts(tmp_path, Local(), epochs=1)
    with pytest.raises(ValueError, match=r"`tfrl.saving.Checkpointer\(directory, "):
        rl_trainer.open_run(tmp_path)
    envs = make_envs()
    spaces = envs.single_observation_space, envs.single_action_space
    kept = saving.Checkpointer(tmp_path, agent=Local().create(*spaces))
    kept.load()
    assert_same(tf.nest.flatten(kept["agent"]), weights[:-2])


def test_a_model_of_an_agent_that_was_made_before(tmp_path):
    envs = make_envs()
    spaces = envs.single_observation_space, envs.single_action_space
    model = training.AgentModel(tiny_agents.Tiny().create(*spaces))
    model.compile()
    rows = {"observations": np.zeros([8, 4], "f"), "actions": np.zeros(8, int)}
    model.fit(rows, callbacks=[training.RunCheckpoint(tmp_path)], verbose=0)
    assert not (tmp_path / "run.json").exists()
    assert saving.list_steps(tmp_path) == [1]


def test_runs_of_trainers_are_others(tmp_path, whole):
    trainer, _ = tiny_agents.train(tmp_path / "trainer", n_epochs=1, seed=1)
    run, folder, weights = whole("tiny", tmp_path / "fitted")
    with pytest.raises(ValueError, match="`RunCheckpoint`: `directory` expected a run"):
        run(tmp_path / "trainer")
    for override in (False, True):
        other = tiny_agents.build(folder, seed=1, resume=True, override=override)
        with pytest.raises(ValueError, match="one of `AgentModel.fit`; go on with"):
            other.__enter__()
    for place, leaves in (
        (trainer.directory, tf.nest.flatten(trainer.agent)),
        (folder, weights[:-2]),
    ):
        kept = saving.Checkpointer(place, learner=trainer.agent)
        assert kept.has_checkpoint() and kept.has_checkpoint("best")
        assert kept.load() == kept.load(saving.latest_step(place))
        assert_same(tf.nest.flatten(kept["learner"]), leaves)
    assert not kept.has_checkpoint(7)
    with pytest.raises(ValueError, match="of another agent or shape"):
        saving.Checkpointer(folder, learner=trainer.agent.policy).load()
    with pytest.raises(ValueError, match="`kwargs` expected the agent alone"):
        saving.Checkpointer(folder, a=trainer.agent, b=tf.Variable(0.0)).load()
    with pytest.raises(ValueError, match="a run; load all of it"):
        kept.load(including_optimizer=False)


def faithless(outputs):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"further": [keras.callbacks.EarlyStopping()]}, "EarlyStopping"),
        ({"policy": faithless}, "the policy of Collect"),
        ({"saved_as": {"rng": np.random.default_rng(0)}}, "the parts ['rng']"),
        (
            {"envs": tfrl.environments.make_vec("CartPole-v1", 2, "sync"),
             "make_envs": lambda n_envs: make_envs(n_envs)},
            "make_envs",
        ),
    ],
    ids=["callback", "policy", "parts", "environments"],
)  # fmt: skip
def test_what_cannot_be_made_again_is_named(tmp_path, capsys, options, words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.Collect, "before_fit", lambda *_: None)
        with pytest.raises(ValueError, match="something to draw"):
            run_replayed(tmp_path, tiny_agents.Tiny(), **options)
    assert resume(tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line and "the program that made it" in line


def test_older_runs(whole, tmp_path, capsys):
    run, folder, _ = whole("tiny", tmp_path / "old")
    body = sealed_folder.unsealed((folder / "run.json").read_bytes())
    arguments = body["run"]["arguments"]
    arguments |= {"fit": True, "experience": None, "n_epochs": None}
    (folder / "run.json").write_bytes(sealed_folder.sealed(body))
    assert resume(folder) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "as of earlier versions" in line and "the program that made it" in line
    # Which goes on with it, and records what there is now.
    run(folder)
    assert training.list_overrides(folder) == []
    assert resume(folder, "--config=train_rl.n_epochs = 4") == 0


def test_without_a_run(tmp_path, capsys):
    assert resume(tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "`output_dir` expected the folder of a run" in line


VICTIM = """
import sys
sys.path[:0] = sys.argv[1:4]
from training.fitting import test_fit_trainer as runs
from tfrl import training
learn = training.AgentModel.train_step
def told(self, data):
    print("update", flush=True)
    return learn(self, data)
training.AgentModel.train_step = told
getattr(runs, sys.argv[4])(sys.argv[5], getattr(runs, sys.argv[6]), epochs=6)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "agent"), [(run_replayed, "DQN"), (run_rollouts, "PPO")]
)
def test_killed_and_resumed_by_the_command(tmp_path, run, agent):
    weights = run(tmp_path / "whole", globals()[agent], epochs=6)
    folder, paths = tmp_path / "cut", [TESTS.parent, TESTS, TESTS / "training/fitting"]
    given = [sys.executable, "-c", VICTIM, *paths, run.__name__, folder, agent]
    victim = subprocess.Popen(given, stdout=subprocess.PIPE, text=True)
    while not saving.list_steps(folder)[1:]:
        victim.stdout.readline()
    time.sleep(0.05 * np.random.default_rng().random())
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    child = [sys.executable, "-m", "tfrl.command", "--resume", str(folder)]
    subprocess.run(child, check=True, cwd=TESTS.parent)
    assert_same_agent(folder, weights)
    tiny_agents.assert_same_rows(folder, tmp_path / "whole")


def test_a_refused_override_changes_nothing(tmp_path):
    def run(n_envs, epochs, **kwargs):
        envs = vector.make_vec("CartPole-v1", n_envs, "sync")
        spaces = envs.single_observation_space, envs.single_action_space
        model = training.AgentModel.create(tiny_agents.Tiny(), *spaces, seed=0)
        model.compile()
        rollouts = training.Rollouts(envs, n_steps=4)
        saved = training.RunCheckpoint(tmp_path, {"rollouts": rollouts}, **kwargs)
        model.fit(
            rollouts, epochs=epochs, steps_per_epoch=1, verbose=0, callbacks=[saved]
        )

    run(4, 1)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(ValueError, match="`RunCheckpoint`: `parts` .* 4 environments"):
        run(2, 2, override=True)
    assert (tmp_path / "run.json").read_bytes() == before
    run(4, 2)
