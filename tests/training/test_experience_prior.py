"""Replays beside whose rows recorded ones stand in every minibatch."""

import dataclasses
import functools

import gymnasium as gym
import numpy as np
import pytest
import tiny_agents
from refusals import bad, table

from tfrl import agents, rl_trainer
from tfrl.environments import compiled, vector
from tfrl.replay.sampling import prioritized
from tfrl.training import cadence, experience

N_ROWS = 60


def rows(**columns):
    """Steps whose rewards tell them apart from those of CartPole, which are 1."""
    rng, count = np.random.default_rng(0), np.arange(N_ROWS)
    given = {
        "observations": rng.normal(size=[N_ROWS, 4]),
        "actions": rng.integers(0, 2, N_ROWS),
        "rewards": 100.0 + count,
        "next_observations": rng.normal(size=[N_ROWS, 4]),
        "terminated": count % 20 == 19,
        **columns,
    }
    return {name: x for name, x in given.items() if x is not None}


REPLAYED = experience.Replayed(
    200, 8, n_steps=8, learning_starts=24, gamma=0.5, prior_data=rows, prior_share=0.25
)
INTERVALS = cadence.Intervals(log_epochs=1, eval_episodes=2, checkpoint_epochs=4)


def running(folder, **settings):
    given = {"experience": REPLAYED, "n_epochs": 8, "intervals": INTERVALS}
    return tiny_agents.build(folder, **{**given, **settings})


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_each_minibatch_has_its_share_of_recorded_rows(tmp_path, sampler):
    learned = dataclasses.replace(REPLAYED, sampler=sampler, n_step_returns=2)
    with running(tmp_path, experience=learned) as training:
        samples = []
        while len(samples) < 9:
            given = training.gather()
            samples += [] if given is None else [given]
    data, seen, known = samples[0].data, [], rows()
    assert data.observations.dtype == np.float32 and data.actions.dtype.kind == "i"
    for sample in samples:
        assert sample.weights.shape == sample.data.rewards.shape == (4, 8)
        collected, recorded = np.split(sample.data.rewards, [6], axis=1)
        assert (collected <= 1.5).all() and (recorded >= 100.0).all()
        at = (recorded - 100.0).astype(int)
        found, ends = sample.data, known["terminated"][at]
        for name in ("observations", "next_observations", "actions"):
            np.testing.assert_allclose(
                getattr(found, name)[:, 6:], known[name][at], rtol=1e-6
            )
        np.testing.assert_array_equal(found.discounts[:, 6:], np.where(ends, 0.0, 0.5))
        np.testing.assert_array_equal(sample.weights[:, 6:], 1.0)
        seen += at.ravel().tolist()
    # Each pass over the recorded rows takes every one once.
    assert sorted(seen[:N_ROWS]) == [*range(N_ROWS)]


def test_few_recorded_rows_are_drawn_with_replacement(tmp_path):
    few = {name: x[18:20] for name, x in rows().items()}
    settings = {"prior_data": few, "prior_share": 0.5, "learning_starts": 0}
    learned = dataclasses.replace(REPLAYED, **settings)
    with running(tmp_path, experience=learned) as training:
        samples = [training.gather() for _ in range(4)]
    found = np.concatenate([x.data.rewards[:, 4:] for x in samples]) - 100.0
    assert found.shape == (16, 4) and {*found.ravel()} == {18.0, 19.0}
    assert len(np.unique(found, axis=0)) > 4


def test_priorities_are_those_of_the_replay(tmp_path, monkeypatch):
    learned, told = dataclasses.replace(REPLAYED, sampler="prioritized"), []
    kind = prioritized.PrioritizedReplay
    monkeypatch.setattr(kind, "update_priorities", lambda _, *given: told.append(given))
    with running(tmp_path, experience=learned) as training:
        sample = None
        while sample is None:
            sample = training.gather()
        priorities = np.arange(32.0).reshape(4, 8)
        training._source.learned(priorities)
    ((indices, given),) = told
    np.testing.assert_array_equal(indices, np.ravel(sample.indices[:, :6]))
    np.testing.assert_array_equal(given, np.ravel(priorities[:, :6]))


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, sampler):
    given = {"experience": dataclasses.replace(REPLAYED, sampler=sampler)}
    with running(tmp_path / "whole", **given) as whole:
        whole.run(quiet=True)
    with running(tmp_path / "cut", **given) as cut:
        tiny_agents.stop_in(cut, 5)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            cut.run(quiet=True)
    with running(tmp_path / "cut", resume=True, **given) as resumed:
        resumed.run(quiet=True)
    tiny_agents.assert_same(resumed.agent, whole.agent)
    tiny_agents.assert_same_rows(tmp_path / "whole", tmp_path / "cut")


def test_arrays_in_memory_are_no_part_of_the_record(tmp_path):
    learned = dataclasses.replace(REPLAYED, prior_data=rows())
    with running(tmp_path, experience=learned, n_epochs=2) as training:
        training.run(quiet=True)
    assert '"prior_data":{"=lost"' in (tmp_path / "run.json").read_text()
    with rl_trainer.open_run(tmp_path) as run:
        assert len(run.evaluate(2).returns) == 2
    with running(tmp_path, experience=learned, n_epochs=4, resume=True) as training:
        training.run(quiet=True)
        assert training.epoch == 4
    without = dataclasses.replace(learned, prior_data=None)
    for experience_, epochs in ((without, 5), (learned, 6)):
        given = {"experience": experience_, "n_epochs": epochs}
        with running(tmp_path, resume=True, override=True, **given) as training:
            training.run(quiet=True)
            assert training.epoch == epochs
    other = dataclasses.replace(learned, prior_share=0.5)
    with pytest.raises(ValueError, match=r"experience.prior_share = 0.5 \(was 0.25\)"):
        running(tmp_path, experience=other, n_epochs=7, resume=True).__enter__()


@table(
    (
        experience.Replayed,
        bad(TypeError, "prior_data", prior_data=[np.zeros(3)]),
        bad(ValueError, "prior_share", prior_share=1.5),
        bad(ValueError, "prior_share", batch_size=8, prior_data={}, prior_share=1.0),
        bad(ValueError, "prior_share", batch_size=8, prior_data={}, prior_share=0.01),
    )
)
def test_settings_out_of_range(row):
    row()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (rows(rewards=None), "got none of .*rewards"),
        (rows(actions=np.full(N_ROWS, 7)), "actions inside of"),
        ({name: x[:0] for name, x in rows().items()}, "of 1 rows at least"),
    ],
    ids=["columns", "choices", "rows"],
)
def test_data_that_do_not_fit_are_told_before_anything(tmp_path, data, match):
    learned = dataclasses.replace(REPLAYED, prior_data=data)
    with pytest.raises(
        ValueError, match=f"`Replayed`: `prior_data` expected .*{match}"
    ):
        running(tmp_path, experience=learned)
    assert not [*tmp_path.iterdir()]


def test_compiled_environments_have_none(tmp_path):
    make = functools.partial(compiled.make_compiled, "CartPole-v1")
    settings = {"agent": agents.DQN(hidden_units=(4,)), "make_envs": make}
    with pytest.raises(ValueError, match="without `prior_data`; got prior_data="):
        running(tmp_path, collector="compiled", **settings)


@pytest.mark.slow
def test_numbers_and_frames_stand_beside_recorded_ones(tmp_path):
    rng = np.random.default_rng(0)
    data = rows(
        observations=rng.normal(size=[N_ROWS, 3, 3]),
        next_observations=rng.normal(size=[N_ROWS, 3, 3]),
        actions=rng.uniform(-2.0, 2.0, [N_ROWS, 1]),
    )
    learned = dataclasses.replace(REPLAYED, prior_data=data, frame_stack=3)
    make = functools.partial(
        vector.make_vec,
        "Pendulum-v1",
        wrappers=[functools.partial(gym.wrappers.FrameStackObservation, stack_size=3)],
    )
    agent = agents.SAC(hidden_units=(8,))
    with running(
        tmp_path, experience=learned, agent=agent, make_envs=make, n_epochs=4
    ) as training:
        training.run(quiet=True)
