"""Replays of sequences, with what the policy remembered, for agents with a memory."""

import dataclasses
import functools

import numpy as np
import plain_graphs
import pytest
import tensorflow as tf
from refusals import bad, table
from tiny_agents import MAKE, Tiny, assert_same, assert_same_rows, build, stop_in

from tfrl import agents
from tfrl._internal import sealed_folder
from tfrl.environments import compiled
from tfrl.replay.sampling import prioritized
from tfrl.training import (
    _plan,
    cadence,
    experience,
    population,
    saved_run,
)
from tfrl.training.collecting import actor_collection

L, BURN_IN, B, N = 5, 3, 8, 2
SEQUENCES = experience.Replayed(
    200, B, 8, 0.25, learning_starts=24, sequence_length=L, burn_in=BURN_IN
)
R2D2 = agents.R2D2(hidden_units=(8,), memory_units=3, target_period=3)
DQN = agents.DQN(hidden_units=(8,))
INTERVALS = cadence.Intervals(log_epochs=1, eval_episodes=2, checkpoint_epochs=4)


@pytest.fixture(autouse=True)
def _plain_graphs():
    with plain_graphs.plain_graphs():
        yield


def running(folder, **settings):
    given = {"agent": R2D2, "experience": SEQUENCES, "n_epochs": 8}
    return build(folder, **{**given, "intervals": INTERVALS, **settings})


@table(
    (
        experience.Replayed,
        bad(ValueError, "sequence_length", sequence_length=0),
        bad(TypeError, "sequence_length", sequence_length=2.5),
        bad(ValueError, "burn_in", sequence_length=5, burn_in=-1),
        bad(ValueError, "burn_in", burn_in=2),
        bad(ValueError, "n_step_returns", sequence_length=5, n_step_returns=3),
        bad(ValueError, "gamma", sequence_length=5, gamma=0.9),
        bad(ValueError, "relabel", sequence_length=5, relabel="future"),
        bad(ValueError, "frame_stack", sequence_length=5, frame_stack=4),
        bad(ValueError, "prior_data", sequence_length=5, prior_data=dict),
    )
)
def test_settings_that_make_no_sense(row):
    row()


def samples_of(training, count):
    """Samples and the trajectories that were collected for them."""
    samples, played, collect = [], [], training._collector.collect

    def noted(*args):
        played.append(collect(*args))
        return played[-1]

    training._collector.collect = noted
    while len(samples) < count:
        given = training.gather()
        samples += [] if given is None else [given]
    return samples, played


def check_samples(training, samples, sampler):
    """Sequences of single episodes, whose memories follow from each other."""
    policy, n_ends, n_fronts = training.agent.policy, 0, 0
    for sample in samples:
        data = sample.data
        assert sample.extra == ()
        assert data.rewards.shape == (4, B, BURN_IN + L)
        assert data.states.shape == (4, B, BURN_IN + L, 6)
        assert sample.weights.shape == sample.indices.shape == (4, B)
        if sampler == "uniform":
            np.testing.assert_array_equal(sample.weights, 1.0)
        flat = tf.nest.map_structure(lambda x: x.reshape(-1, *x.shape[2:]), data)
        assert flat.valid[:, BURN_IN].all()
        ends = flat.terminated | flat.truncated
        both = flat.valid[:, :-1] & flat.valid[:, 1:]
        assert not (ends[:, :-1] & both).any()
        n_ends += (ends & flat.valid).sum()
        np.testing.assert_array_equal(
            flat.next_observations[:, :-1][both], flat.observations[:, 1:][both]
        )
        # What is remembered begins as zeros, and goes on as the policy says.
        front = ~flat.valid[:, 0]
        n_fronts += front.sum()
        np.testing.assert_array_equal(flat.states[front][:, 0], 0.0)
        seen, known = flat.observations[:, :-1][both], flat.states[:, :-1][both]
        later = policy.outputs(seen, tf.constant(known))[1]
        np.testing.assert_allclose(flat.states[:, 1:][both], later, atol=1e-5)
        assert np.abs(known).max() > 1e-3
    assert n_ends and n_fronts


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_sequences_come_with_what_was_remembered(tmp_path, sampler):
    learned = dataclasses.replace(SEQUENCES, sampler=sampler)
    with running(tmp_path, experience=learned) as training:
        assert training.agent.burn_in == BURN_IN
        samples, played = samples_of(training, 6)
        check_samples(training, samples, sampler)
    # Each step is that which was played.
    rewards, actions, states = (
        np.concatenate([getattr(x, name) for x in played])
        for name in ("rewards", "actions", "states")
    )
    assert len(rewards) and states.shape[1:] == (N, 6)
    known = {tuple(x.round(6)) for x in states.reshape(-1, 6)}
    valid = samples[-1].data.valid
    drawn = samples[-1].data.states[valid].round(6)
    assert {tuple(x) for x in drawn} <= known
    assert set(np.unique(samples[-1].data.actions)) <= set(np.unique(actions))


@pytest.mark.slow
def test_actors_tell_what_they_remembered(tmp_path):
    pool = actor_collection.ActorPool(n_actors=2)
    with running(tmp_path, collector=pool) as training:
        samples, _ = samples_of(training, 6)
        check_samples(training, samples, "uniform")
        training.run(quiet=True)


def test_priorities_are_those_of_sequences(tmp_path, monkeypatch):
    learned, told = dataclasses.replace(SEQUENCES, sampler="prioritized"), []
    kind = prioritized.PrioritizedReplay
    monkeypatch.setattr(kind, "update_priorities", lambda _, *given: told.append(given))
    with running(tmp_path, experience=learned) as training:
        (sample,), _ = samples_of(training, 1)
        agent, info = training.agent.update(sample)
        training._source.learned(info["priorities"])
    ((indices, given),) = told
    np.testing.assert_array_equal(indices, np.ravel(sample.indices))
    np.testing.assert_array_equal(given, np.ravel(info["priorities"]))
    assert given.shape == (4 * B,) and int(agent.policy.state.step) == 5


@pytest.mark.parametrize(
    "sampler", ["uniform", pytest.param("prioritized", marks=pytest.mark.slow)]
)
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, sampler):
    given = {"experience": dataclasses.replace(SEQUENCES, sampler=sampler)}
    with running(tmp_path / "whole", **given) as whole:
        whole.run(quiet=True)
    with running(tmp_path / "cut", **given) as cut:
        stop_in(cut, 5)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            cut.run(quiet=True)
    with running(tmp_path / "cut", resume=True, **given) as resumed:
        assert resumed.notice is None
        stores = [x._source._replay.store for x in (cut, resumed)]
        kept = [store.steps.columns().extra[0] for store in stores]
        np.testing.assert_array_equal(*kept)
        assert np.abs(kept[0]).max() > 1e-3
        resumed.run(quiet=True)
    assert_same(resumed.agent, whole.agent)
    assert_same_rows(tmp_path / "whole", tmp_path / "cut")
    with saved_run.SavedRun.reopen(tmp_path / "cut") as run:
        assert run.agent.burn_in == BURN_IN
        assert len(run.evaluate(2).returns) == 2
    other = dataclasses.replace(given["experience"], burn_in=1)
    with pytest.raises(ValueError, match=r"experience.burn_in = 1 \(was 3\)"):
        with running(tmp_path / "cut", experience=other, resume=True):
            pass


def test_agents_and_experience_that_do_not_fit_are_told(tmp_path):
    one = dataclasses.replace(SEQUENCES, sequence_length=None, burn_in=0)
    for agent, learned, match in (
        (DQN, SEQUENCES, "`sequence_length` expected None beside DQN, which does"),
        (agents.IQL(), SEQUENCES, "`sequence_length` expected None beside IQL, "),
        (R2D2, one, "`sequence_length` expected a number of steps beside R2D2"),
    ):
        with pytest.raises(ValueError, match=f"`Replayed`: {match}"):
            running(tmp_path, agent=agent, experience=learned)
    for learned in (experience.Trajectories(), experience.FromDataset(dict)):
        match = "`experience` expected Replayed, which R2D2 learns from"
        with pytest.raises(TypeError, match=match):
            running(tmp_path, experience=learned)
    make = functools.partial(compiled.make_compiled, "CartPole-v1")
    match = "expected `experience` without `sequence_length`; got .*'host'"
    with pytest.raises(ValueError, match=match):
        running(tmp_path, make_envs=make, collector="compiled")
    env = compiled.AutoReset(compiled.TimeLimit(compiled.CartPole(), 9))
    with pytest.raises(ValueError, match=match):
        population.train_population(R2D2, env, seeds=[0], experience=SEQUENCES)
    assert not [*tmp_path.iterdir()]


def test_what_an_agent_takes_where_nothing_is_said():
    found = _plan.checked_experience(R2D2, None)
    assert found.sequence_length and found.burn_in
    assert found.batch_size == R2D2.usual_replay["batch_size"]

    class Both(Tiny):
        learns_from = ("transitions", "sequences")

    for length in (None, 4):
        asked = experience.Replayed(sequence_length=length)
        assert _plan.checked_experience(Both(), asked).sequence_length == length
        assert experience.Replayed().sequence_length is None


def test_sequences_longer_than_the_replay_are_told(tmp_path):
    long = dataclasses.replace(SEQUENCES, sequence_length=98)
    with pytest.raises(ValueError, match="`Sequences`: `length` expected"):
        running(tmp_path, experience=long)
    assert not [*tmp_path.iterdir()]


def test_runs_of_old_lack_the_settings(tmp_path):
    learned = experience.Replayed(200, B, n_steps=8, learning_starts=24)
    given = {"agent": DQN, "experience": learned, "make_envs": MAKE}
    with running(tmp_path, n_epochs=4, **given) as first:
        first.run(quiet=True)
    path = tmp_path / "run.json"
    body = sealed_folder.unsealed(path.read_bytes())
    for name in ("sequence_length", "burn_in"):
        del body["run"]["arguments"]["experience"][name]
    path.write_bytes(sealed_folder.sealed(body))
    with saved_run.SavedRun.reopen(tmp_path) as run:
        assert len(run.evaluate(2).returns) == 2
    with running(tmp_path, n_epochs=6, resume=True, **given) as resumed:
        resumed.run(quiet=True)
    assert resumed.epoch == 6
