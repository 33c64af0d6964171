"""Tests of `tfrl.agents.on_policy.rnd`: what the agent within is given, and runs."""

import functools

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, NEST, assert_close, trajectory_of
from compiled_learners import carts, plain_programs

from tfrl import rl_trainer, schedules
from tfrl.agents import random_distillation
from tfrl.agents.multi_agent import independent, self_play
from tfrl.agents.off_policy import dqn
from tfrl.agents.offline import iql
from tfrl.agents.on_policy import a2c, impala, ppo, rnd
from tfrl.configuring import configs
from tfrl.environments import kuhn_poker, parallel_vector, vector
from tfrl.summaries import run_log
from tfrl.training import cadence, experience, trainer
from tfrl.training.collecting import actor_collection

S = gym.spaces
T, N = 6, 4
TWO = S.Discrete(2)
SMALL = {"hidden_units": (8,)}
INNER = {
    "ppo": ppo.PPO(minibatch_size=12, n_epochs=2, normalize_rewards=True, **SMALL),
    "a2c": a2c.A2C(**SMALL),
    "memory": ppo.PPO(minibatch_size=12, memory="gru", memory_units=2, **SMALL),
    "impala": impala.IMPALA(**SMALL),
}
CARTS = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")
EVERY = cadence.Intervals(log_epochs=1, eval_epochs=None, checkpoint_epochs=2)


def created(config, space=BOX, seed=0):
    return config.create(space, TWO, n_envs=N, n_steps=T, seed=seed)


def experienced(seed=0, space=BOX):
    given = trajectory_of(space, TWO, T, N, seed)
    valid = np.random.default_rng(seed).random((T, N)) < 0.8
    given = given._replace(
        log_probs=np.full((T, N), -0.7, np.float32),
        states=np.full((T, N, 4), 0.5, np.float32),
    )
    return given._replace(valid=valid)


@pytest.mark.parametrize(
    "inner", ["ppo", "impala", *default_rows.slow("a2c", "memory")]
)
def test_the_agent_within_learns_from_both_rewards(inner):
    scale = schedules.LinearScheduler("percent", [(0.0, 2.0), (1.0, 0.0)])
    agent = created(rnd.RND(INNER[inner], scale, learning_rate=0.01, **SMALL))
    alone, bonuses = created(INNER[inner]), agent.distillation
    assert agent.needs_log_probs == (inner == "impala")
    for seed, percent in enumerate((0.0, 0.25)):
        given, done = experienced(seed), schedules.Progress(percent=percent)
        before = [np.array(x) for x in tf.nest.flatten(agent)]
        learned, info = agent.update(given, progress=done)
        assert_close(agent, before)
        bonuses, told = bonuses.update(
            given.next_observations, given.terminated | given.truncated, given.valid
        )
        paid = given.rewards + 2.0 * (1.0 - percent) * told["bonuses"].numpy()
        assert (paid[~given.valid] == given.rewards[~given.valid]).all()
        assert (paid[given.valid] > given.rewards[given.valid]).all()
        alone, expected = alone.update(given._replace(rewards=paid))
        assert_close((learned.learner, learned.distillation), (alone, bonuses))
        assert {*info} == {*expected, "bonus_mean", "predictor_loss", "scale"}
        assert float(info["scale"]) == 2.0 * (1.0 - percent)
        assert_close(info["bonus_mean"], told["bonus_mean"])
        with schedules.progress_context(done):
            assert_close(agent.update(given)[0], learned)
        agent = learned


@pytest.mark.slow
def test_a_graph_learns_the_same():
    agent = created(rnd.RND(INNER["ppo"], 0.5))
    given = tf.nest.map_structure(tf.constant, experienced())
    expected, told = agent.update(given)

    @tf.function
    def update(given):
        learned, info = agent.update(given)
        return tf.nest.flatten(learned), info

    leaves, info = update(given)
    assert_close(leaves, tf.nest.flatten(expected), rtol=1e-4, atol=1e-6)
    assert_close(info, told, rtol=1e-4, atol=1e-6)
    assert "scale" not in info  # a number, which the settings tell


def test_nests_and_networks_of_ones_own(monkeypatch):
    made = []
    create = random_distillation.RandomNetworkDistillation.create

    def noted(*args, **options):
        made.append(options)
        return create(*args, **{**options, "network": None})

    monkeypatch.setattr(random_distillation.RandomNetworkDistillation, "create", noted)
    agent = created(rnd.RND(a2c.A2C(**SMALL), network=str, n_features=3), NEST, seed=2)
    (given,) = made
    assert given["network"] is str and given["n_features"] == 3 and given["seed"] == 2
    for seed in range(2):
        agent, info = agent.update(experienced(seed, NEST))
    assert np.isfinite(info["bonus_mean"]) and info["bonus_mean"] > 0


def training(folder, scale=1.0, epochs=6, make_envs=carts, n_steps=10, **options):
    inner = ppo.PPO(minibatch_size=10, n_epochs=2, **SMALL)
    agent = inner if scale is None else rnd.RND(inner, scale, **SMALL)
    given = {"agent": agent, "make_envs": make_envs, "n_envs": 2, "intervals": EVERY}
    learned = experience.Trajectories(n_steps)
    return trainer.Trainer(folder, epochs, experience=learned, **{**given, **options})


def leaves(running):
    return [np.array(x) for x in tf.nest.flatten(running.agent)]


@pytest.mark.parametrize(
    "collector", ["host", pytest.param("compiled", marks=pytest.mark.slow)]
)
def test_runs_are_resumed_to_the_bit_and_tell_the_returns_played(collector, tmp_path):
    options = {"collector": collector}
    options |= {"make_envs": CARTS} if collector == "host" else {}
    with plain_programs():
        with training(tmp_path / "whole", **options) as whole:
            whole.run(quiet=True)
        with training(tmp_path / "cut", epochs=4, **options) as cut:
            cut.run(quiet=True)
        with training(tmp_path / "cut", resume=True, **options) as cut:
            cut.run(quiet=True)
        assert_close(leaves(cut), leaves(whole))
        # Without a scale all is as if there were no bonuses.
        for name, scale in (("none", 0.0), ("alone", None)):
            with training(tmp_path / name, scale, **options) as running:
                running.run(quiet=True)
    tables = {
        x: run_log.read_metrics(tmp_path / x / "metrics.csv") for x in ("none", "alone")
    }
    assert_close(*(x["train/return_mean"] for x in tables.values()))
    assert_close(*(x["train/loss"] for x in tables.values()))
    assert (tables["none"]["train/bonus_mean"] > 0.0).all()
    assert (tables["none"]["train/predictor_loss"] > 0.0).all()


RUN = """
train_rl.light_rl_trainer = @Trainer
Trainer.agent = @RND()
Trainer.make_envs = @make_vec
Trainer.n_envs = 2
Trainer.experience = @Trajectories()
Trajectories.n_steps = 10
Trainer.total_env_steps = 40
Trainer.intervals = @Intervals()
Intervals.eval_episodes = 1
Intervals.log_epochs = 1
make_vec.env_id = "CartPole-v1"
make_vec.vectorization = "sync"
RND.agent = @PPO()
RND.scale = @LinearScheduler()
RND.hidden_units = (8,)
LinearScheduler.progress_type = "percent"
LinearScheduler.schedule = [(0.0, 2.0), (1.0, 0.0)]
PPO.minibatch_size = 10
PPO.hidden_units = (8,)
"""


@pytest.mark.slow
def test_bindings_in_its_place_are_taken_by_the_command(tmp_path, capsys):
    path = tmp_path / "run.gin"
    path.write_text(RUN)

    def trained(name, *bindings, flags=()):
        given = [f"--config={x}" for x in bindings]
        return rl_trainer.main([f"--output_dir={tmp_path / name}", *given, *flags])

    def kept(name):
        return (tmp_path / name / "config.gin").read_text()

    config = [f"--config_file={path}"]
    try:
        assert trained("rnd", flags=config) == 0
        table = run_log.read_metrics(tmp_path / "rnd" / "metrics.csv")
        np.testing.assert_allclose(table["train/scale"][0], 2.0)
        assert trained("ppo", "Trainer.agent = @PPO()", flags=config) == 0
        assert "RND" not in kept("ppo") and "LinearScheduler" not in kept("ppo")
        longer = "Trainer.total_env_steps = 60"
        assert trained("ppo", longer, flags=["--resume"]) == 0
        flags = ["--resume", "--override"]
        half = "RND.scale = 0.5"
        assert trained("rnd", half, longer, flags=flags) == 0
        assert half in kept("rnd") and "LinearScheduler" not in kept("rnd")
        longer = "Trainer.total_env_steps = 80"
        assert trained("rnd", longer, flags=["--resume"]) == 0
        assert half in kept("rnd")
        # Another agent than the one that was saved is still none to go on with.
        capsys.readouterr()
        assert trained("rnd", "Trainer.agent = @PPO()", flags=flags) == 2
        err = capsys.readouterr().err
        assert "agent" in err and "unused" not in err
    finally:
        configs.clear()


@pytest.mark.slow
def test_actors_play_for_it(tmp_path):
    pool = actor_collection.ActorPool(n_actors=1)
    config = rnd.RND(impala.IMPALA(**SMALL), n_minibatches=2, **SMALL)
    options = {"collector": pool, "make_envs": CARTS, "agent": config}
    with training(tmp_path / "run", **options) as running:
        running.run(quiet=True)
    table = run_log.read_metrics(tmp_path / "run" / "metrics.csv")
    assert np.isfinite(table["train/bonus_mean"]).all()


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (TypeError, r"`agent` .* trajectories, such as PPO\(\); got DQN", dqn.DQN()),
        (TypeError, r"`agent` .* trajectories, such as PPO\(\); got IQL", iql.IQL()),
        (TypeError, r"`agent` .* such as PPO\(\); got <class", ppo.PPO),
        (
            TypeError,
            r"`agent` .* give RND\(SelfPlay's agent\) to SelfPlay",
            self_play.SelfPlay(),
        ),
        (TypeError, r"`agent` .* to Independent instead", independent.Independent()),
        (TypeError, r"`agent` expected .* one agent", rnd.RND()),
        (ValueError, "`scale` expected .*0.0.*; got -1.0", {"scale": -1.0}),
        (TypeError, "`scale` expected a number, or a schedule", {"scale": "much"}),
        (ValueError, "`learning_rate` expected", {"learning_rate": 0.0}),
        (ValueError, "`gamma` expected", {"gamma": -0.1}),
        (ValueError, "`share` expected", {"share": 0.0}),
        (ValueError, "`share` expected", {"share": 1.1}),
        (ValueError, "`n_epochs` expected", {"n_epochs": 0}),
        (TypeError, "`n_minibatches` expected", {"n_minibatches": 1.5}),
        (ValueError, "`n_features` expected", {"n_features": 0}),
        (ValueError, "`hidden_units` expected", {"hidden_units": (0,)}),
        (ValueError, "`activation` expected", {"activation": "quick"}),
        (TypeError, "`network` expected a function of the obs", {"network": 3}),
        (
            TypeError,
            "`network` expected a function of the obs.* got <Dense",
            {"network": keras.layers.Dense(64)},
        ),
        (TypeError, "`network` expected a fun", {"network": lambda space, more: space}),
    ],
)
def test_settings_that_make_no_agent_are_refused(error, words, options):
    options = options if isinstance(options, dict) else {"agent": options}
    with pytest.raises(error, match="`RND`: " + words):
        rnd.RND(**options)


def test_what_does_not_fit_is_refused_before_any_work():
    with pytest.raises(
        ValueError, match=r"`RND.create`: `n_envs` expected .* got None"
    ):
        rnd.RND().create(BOX, TWO)
    match = r"`RND.create`: `n_minibatches` expected at most .* = 24; got 25"
    with pytest.raises(ValueError, match=match):
        created(rnd.RND(a2c.A2C(), n_minibatches=25))
    with pytest.raises(ValueError, match=r"`PPO`: `minibatch_size` expected to divide"):
        created(rnd.RND(ppo.PPO(minibatch_size=5)))
    agent = created(rnd.RND(a2c.A2C(**SMALL)))
    with pytest.raises(TypeError, match=r"`RND.update`: `trajectory` expected a Traj"):
        agent.update(3)
    narrow = tf.nest.map_structure(lambda x: x[:, :2], experienced())
    with pytest.raises(ValueError, match=r"expected \[T, 4\] outer axes"):
        agent.update(narrow)


@pytest.mark.slow
@pytest.mark.parametrize("own_spaces", [False, True])
def test_it_plays_among_others(own_spaces, tmp_path):
    inner = rnd.RND(a2c.A2C(**SMALL), n_minibatches=2, **SMALL)
    config = self_play.SelfPlay(inner)
    if own_spaces:
        config = independent.Independent({"player_0": inner, "player_1": INNER["a2c"]})
    make = functools.partial(
        parallel_vector.ParallelEnvVector,
        kuhn_poker.KuhnPoker,
        own_spaces=own_spaces,
    )
    options = {"agent": config, "make_envs": make, "n_envs": 4}
    with training(tmp_path / "run", **options) as running:
        running.run(quiet=True)
    table = run_log.read_metrics(tmp_path / "run" / "metrics.csv")
    name = "player_0/bonus_mean" if own_spaces else "bonus_mean"
    assert (table[f"train/{name}"] > 0.0).all()
    assert "train/player_1/bonus_mean" not in table
