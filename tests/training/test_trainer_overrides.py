"""What becomes of settings that a resumed run is given instead of its own."""

import dataclasses

import numpy as np
import pytest
from tiny_agents import assert_same, build

from tfrl import agents
from tfrl.environments import compiled, vector
from tfrl.environments.compiled import vector_env
from tfrl.training import _run_record, cadence, experience
from tfrl.training.collecting import _device_priorities

REPLAYED = experience.Replayed(
    100, 8, n_steps=4, learning_starts=8, sampler="prioritized", alpha=0.8
)


def running(folder, n_epochs, alpha=0.8, **settings):
    learned = dataclasses.replace(REPLAYED, alpha=alpha)
    intervals = cadence.Intervals(log_epochs=1, eval_episodes=1)
    given = {"experience": learned, "intervals": intervals, **settings}
    return build(folder, n_epochs=n_epochs, **given)


def run(*given, **settings):
    with running(*given, **settings) as training:
        training.run(quiet=True)
    return training


def replay_of(training):
    return training._source._replay


def test_alpha_is_the_one_asked_for_when_a_run_goes_on(tmp_path):
    old = replay_of(run(tmp_path, 6))
    with running(tmp_path, 7, 0.4, resume=True, override=True) as training:
        replay = replay_of(training)
        assert replay.alpha == 0.4
        masses = np.sqrt(old._masses.tree.values)
        assert masses.any() and not np.array_equal(masses, masses**2)
        np.testing.assert_allclose(replay._masses.tree.values, masses)
        training.run(quiet=True)
    with running(tmp_path, 8, 0.4, resume=True) as training:  # it is saved so
        assert replay_of(training).alpha == 0.4
        assert_same(replay_of(training)._masses.tree.values, replay._masses.tree.values)


def test_alpha_as_it_was_changes_nothing(tmp_path):
    whole = run(tmp_path / "whole", 6)
    run(tmp_path / "cut", 3)
    cut = run(tmp_path / "cut", 6, resume=True)
    assert_same(cut.agent, whole.agent)
    masses = (replay_of(x)._masses.tree.values for x in (cut, whole))
    assert_same(*masses)


def test_a_replay_that_keeps_no_priorities_gets_none(tmp_path):
    run(tmp_path, 3)
    before = {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()}
    training = running(tmp_path, 4, 0.0, resume=True, override=True)
    with pytest.raises(ValueError, match=r"alpha from 0.8 to 0.0: .*; give the old"):
        training.__enter__()
    assert before == {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()}
    run(tmp_path, 4, resume=True)


@pytest.mark.slow
def test_alpha_of_a_compiled_replay_is_the_one_asked_for(tmp_path):
    def make(n_envs):
        env = compiled.AutoReset(compiled.TimeLimit(compiled.CartPole(), 9))
        return vector_env.as_vector_env(env, n_envs)

    given = {"make_envs": make, "agent": agents.DQN(hidden_units=(4,))}
    given["collector"] = "compiled"
    old = run(tmp_path, 6, **given)._collector._episodes.replay.priorities
    again = {"resume": True, "override": True, **given}
    with running(tmp_path, 6, 0.4, **again) as training:
        replay = training._collector._episodes.replay
        np.testing.assert_allclose(
            replay.priorities.masses, np.sqrt(old.masses), rtol=1e-6
        )
    with pytest.raises(ValueError, match="alpha from 0.8 to 0.0"):
        running(tmp_path, 6, 0.0, **again).__enter__()


def test_priorities_on_a_device_stay_when_alpha_changes():
    given = _device_priorities.DevicePriorities.of(2, 3).added(0, 0.5)
    rows, values = np.arange(3, dtype=np.int32), np.float32([0.0, 2.0, 5.0])
    one, two = (given.updated(rows, values, x) for x in (0.5, 0.25))
    changed = one.reweighted(0.5, 0.25)
    np.testing.assert_allclose(changed.masses, two.masses, rtol=1e-6)
    assert changed.highest == two.highest and one.reweighted(0.5, 0.5) is one
    for pair in ((0.0, 0.5), (0.5, 0.0)):
        with pytest.raises(ValueError, match="`alpha` to go from one number"):
            one.reweighted(*pair)


def given_to(config):
    """The record of a run of this agent."""
    envs = vector.make_vec("CartPole-v1", 1)
    arguments = {"agent": config, "make_envs": vector.make_vec}
    arguments |= {"intervals": None, "experience": None}
    return _run_record.of_trainer(arguments, {}, envs)


def go_on(folder, old, new):
    _run_record.write(folder, given_to(old))
    return _run_record.continued(given_to(new), folder, True, new)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *(
            (kind, "temperature", 0.5)
            for kind in (agents.SAC, agents.TQC, agents.CrossQ, agents.CQL)
        ),
        *((kind, "initial_noise", 0.5) for kind in (agents.TD3, agents.DDPG)),
        *(
            (kind, "log_std", -0.5)
            for kind in (agents.PPO, agents.A2C, agents.IMPALA)
            + (agents.AWAC, agents.IQL, agents.BC)
        ),
        (agents.Rainbow, "noise", 0.25),
    ],
)
def test_what_only_the_beginning_reads_stays(tmp_path, kind, name, value):
    with pytest.raises(ValueError, match=f"expected agent.{name} as it was, .*anew"):
        go_on(tmp_path, kind(), kind(**{name: value}))
    assert not go_on(tmp_path, kind(), kind()).overrides
    assert go_on(tmp_path, kind(), kind(hidden_units=(3,))).overrides


def test_what_only_the_beginning_reads_stays_within_agents(tmp_path):
    def nested(log_std):
        return agents.Independent({"one": agents.SelfPlay(agents.PPO(log_std=log_std))})

    with pytest.raises(ValueError, match=r"expected agent.agents.one.agent.log_std as"):
        go_on(tmp_path, nested(0.0), nested(1.0))


@pytest.mark.parametrize("learned", [True, False])
def test_a_temperature_that_is_not_learned_may_change(tmp_path, learned):
    new = agents.SAC(learn_temperature=False, temperature=0.5)
    (override,) = go_on(tmp_path, agents.SAC(learn_temperature=learned), new).overrides
    assert override["changes"]["agent.temperature"] == ["1.0", "0.5"]
    # AWAC's is never learned.
    assert go_on(tmp_path, agents.AWAC(), agents.AWAC(temperature=0.5)).overrides


@pytest.mark.slow
def test_a_fixed_temperature_is_that_of_the_settings(tmp_path):
    def pendulum(n_envs):
        return vector.make_vec("Pendulum-v1", n_envs, vectorization="sync")

    learning = agents.SAC(hidden_units=(4,), temperature_learning_rate=0.1)
    fixed = dataclasses.replace(learning, learn_temperature=False, temperature=0.25)
    learned = run(tmp_path, 4, make_envs=pendulum, agent=learning).agent
    assert abs(float(learned.log_temperature.params)) > 0.1
    again = {"make_envs": pendulum, "resume": True, "override": True}
    agent = run(tmp_path, 5, agent=fixed, **again).agent
    assert float(agent.log_temperature.params) == pytest.approx(np.log(0.25))
