"""What agents learn from: settings, and trainers that read replays and data sets."""

import dataclasses
import functools
from typing import ClassVar

import keras
import numpy as np
import pytest
import refusals
from gymnasium.vector import SyncVectorEnv
from refusals import bad
from tiny_agents import MAKE, Tiny, assert_same, assert_same_rows, build, stop_in
from toy_envs import Strict

from tfrl import agents, rl_trainer, schedules
from tfrl.agents.off_policy import dqn
from tfrl.agents.offline import bc, iql
from tfrl.agents.on_policy import ppo
from tfrl.environments import compiled, vector
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import (
    _plan,
    _settings_checks,
    cadence,
    doctor,
    experience,
    population,
    saved_run,
    trainer,
)
from tfrl.training.collecting import recording

REPLAYED = experience.Replayed(200, 8, n_steps=8, learning_starts=24, n_step_returns=2)
ENV = compiled.AutoReset(compiled.TimeLimit(compiled.CartPole(), 9))
INTERVALS = cadence.Intervals(
    log_epochs=1,
    eval_epochs=5,
    eval_episodes=2,
    checkpoint_epochs=4,
    checkpoints_kept=2,
)


@refusals.table(
    (experience.Trajectories, bad(ValueError, "n_steps", 0)),
    (
        experience.Replayed,
        bad(ValueError, "capacity", 0),
        bad(ValueError, "capacity", 999),
        bad(ValueError, "capacity", 31, 32, learning_starts=0),
        bad(ValueError, "batch_size", batch_size=-1),
        bad(ValueError, "updates_per_step", updates_per_step=0.0),
        bad(ValueError, "learning_starts", learning_starts=-1),
        bad(ValueError, "gamma", gamma=1.5),
        bad(ValueError, "sampler", sampler="heap"),
        bad(ValueError, "beta", beta=np.nan),
        bad(TypeError, "beta", beta=keras.optimizers.schedules.CosineDecay(1.0, 9)),
    ),
    (
        experience.FromDataset,
        bad(ValueError, "n_batches", {}, n_batches=0),
        bad(ValueError, "gamma", {}, gamma=1.5),
        bad(TypeError, "data", None),
        bad(TypeError, "data", [np.zeros(3)]),
    ),
)
def test_settings_out_of_range(row):
    row()


@pytest.mark.parametrize(
    ("updates", "n_steps", "n_envs", "count"),
    [(0.25, 16, 8, 32), (1.0, 1, 1, 1), (0.1, 4, 2, 1), (2.0, 3, 5, 30)],
)
def test_gradient_steps_of_an_epoch(updates, n_steps, n_envs, count):
    replayed = experience.Replayed(updates_per_step=updates, n_steps=n_steps)
    assert replayed.n_gradient_steps(n_envs) == count
    with pytest.raises(ValueError, match="a gradient step per epoch at least; got"):
        dataclasses.replace(replayed, updates_per_step=1e-6).n_gradient_steps(n_envs)


@pytest.mark.parametrize(
    ("settings", "beside"),
    [
        ({"alpha": 0.3}, {"sampler": "prioritized"}),
        ({"beta": 0.5}, {"sampler": "prioritized"}),
        ({"beta": lambda: 0.4}, {"sampler": "prioritized"}),
        ({"relabel_ratio": 0.5}, {"relabel": "future"}),
        ({"prior_share": 0.25}, {"prior_data": dict}),
    ],
)
def test_settings_that_nothing_reads_are_refused(tmp_path, settings, beside):
    (name,) = settings
    learned = dataclasses.replace(REPLAYED, **settings)
    with pytest.raises(ValueError, match=f"`Replayed`: `{name}` expected .*default"):
        build(tmp_path, experience=learned)
    with pytest.raises(ValueError, match=f"`Replayed`: `{name}` expected .*default"):
        population.train_population(agents.DQN(), ENV, seeds=[0], experience=learned)
    _plan.check_read(dataclasses.replace(learned, **beside))


def check_old_goes_on(folder, monkeypatch, learned, module, check):
    """A run that was begun without a check is opened, and resumed, with it."""
    with monkeypatch.context() as old:
        old.setattr(module, check, lambda _: None)
        with build(folder, 1, experience=learned) as training:
            training.run(quiet=True)
    with saved_run.SavedRun.reopen(folder) as run:
        assert len(run.evaluate(2).returns) == 2
    with build(folder, 2, experience=learned, resume=True) as training:
        training.run(quiet=True)
    assert training.epoch == 2


def test_a_run_of_old_with_settings_that_nothing_reads_goes_on(tmp_path, monkeypatch):
    learned = dataclasses.replace(REPLAYED, alpha=0.3, prior_share=0.25)
    check_old_goes_on(tmp_path, monkeypatch, learned, _plan, "check_read")


WIDE = schedules.CosineScheduler("percent", 1.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        ("LinearScheduler", ([(0, 1.0), (50, 0.05)],), "schedule"),
        ("StepScheduler", ([(0.5, 1.0), (1.5, 0.05)],), "schedule"),
        ("CyclicalScheduler", (0.0, 1.0, 10), "half_cycle_size"),
        ("CosineScheduler", (1.0, 100), "duration"),
        ("PolynomialScheduler", (1.0, 0.0, 2.0, 50), "duration"),
        ("PolynomialScheduler", (1.0, 0.0, 2.0, 0.5, 5), "start"),
        ("OneCycleScheduler", (1.0, 100), "duration"),
        ("JoinedScheduler", ([(0, 1.0), (50, WIDE)],), "schedules"),
        ("WarmUpScheduler", (5, WIDE), "period"),
    ],
)
def test_a_progress_in_percent_is_a_share_of_the_run(kind, given, name):
    rate = getattr(schedules, kind)("percent", *given)
    joined = schedules.JoinedScheduler("percent", [(0, WIDE), (0.5, rate)])
    message = f"`{kind}`: `{name}` expected shares of the run, in .0, 1., .*; got "
    for each in (rate, joined, schedules.WarmUpScheduler("percent", 0.1, rate)):
        with pytest.raises(ValueError, match=message):
            _settings_checks.check_shares(agents.RND(agents.PPO(learning_rate=each)))


def test_schedules_beyond_the_run_are_refused_in_new_runs_alone(tmp_path, monkeypatch):
    beta = schedules.LinearScheduler("percent", [(0, 0.4), (100, 1.0)])
    learned = dataclasses.replace(REPLAYED, sampler="prioritized", beta=beta)
    with pytest.raises(ValueError, match="`LinearScheduler`: `schedule` .*; got 100;"):
        build(tmp_path, experience=learned)
    with pytest.raises(ValueError, match="`LinearScheduler`: `schedule` .*; got 100;"):
        population.train_population(agents.DQN(), ENV, seeds=[0], experience=learned)
    check_old_goes_on(tmp_path, monkeypatch, learned, _settings_checks, "check_shares")
    # Others name no share; the time of a decay is a unit, which none need reach.
    for kind, rest in (("iterations", 50), ("percent", 1)):
        rate = schedules.LinearScheduler(kind, [(0, 1.0), (rest, 0.1)])
        _settings_checks.check_shares(agents.PPO(learning_rate=rate))
    rate = schedules.ExponentialScheduler("percent", 4.0, 0.25, 2)
    _settings_checks.check_shares(agents.PPO(learning_rate=rate))


def test_what_is_left_open_is_what_is_usual_for_the_agent():
    given = experience.Replayed(updates_per_step=0.5)
    for config, sizes in (
        (agents.SAC(), (256, 0.5)),
        (agents.DDPG(), (256, 0.5)),
        (agents.CQL(), (256, 0.5)),
        (agents.DQN(), (64, 0.5)),
    ):
        found = _plan.checked_experience(config, given)
        assert (found.batch_size, found.updates_per_step) == sizes
        assert found.capacity == given.capacity
    assert _plan.checked_experience(agents.TD3(), None).updates_per_step == 1.0
    assert _plan.checked_experience(agents.DQN(), None).updates_per_step == 0.25
    asked = experience.Replayed(batch_size=8, updates_per_step=2.0)
    assert asked.for_agent(agents.SAC()) == asked
    small = experience.Replayed(capacity=200, learning_starts=0)
    with pytest.raises(ValueError, match="`capacity` expected at least .* 256; got"):
        small.for_agent(agents.SAC())
    with pytest.raises(TypeError, match="`updates_per_step` expected numbers"):
        experience.Replayed().n_gradient_steps(1)


def replaying(folder, sampler="uniform", **settings):
    learned = dataclasses.replace(REPLAYED, sampler=sampler)
    given = {"n_epochs": 20, "experience": learned, "intervals": INTERVALS}
    return build(folder, **{**given, **settings})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "agent"),
    [
        ("uniform", Tiny()),
        ("prioritized", dqn.DQN(hidden_units=(8,), target_period=3)),
    ],
)
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, sampler, agent):
    with replaying(tmp_path / "whole", sampler, agent=agent) as whole:
        whole.run(quiet=True)
    with replaying(tmp_path / "cut", sampler, agent=agent) as cut:
        stop_in(cut, 13)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            cut.run(quiet=True)
    # The epoch is finished; what it added and drew is saved.
    assert cut.epoch == 14 and checkpoints.latest_step(tmp_path / "cut") == 14 * 16
    with replaying(tmp_path / "cut", sampler, agent=agent, resume=True) as resumed:
        assert resumed.notice is None
        resumed.run(quiet=True)
    assert resumed.env_steps == whole.env_steps == 20 * 16
    assert_same(resumed.agent, whole.agent)
    assert_same_rows(tmp_path / "whole", tmp_path / "cut")
    columns = run_log.read_metrics(tmp_path / "whole" / "metrics.csv")
    # Of 16 and of 32 steps; learning starts at 24.
    assert np.isnan(columns["train/loss"][0])
    assert np.isfinite(columns["train/loss"][1:]).all()


@pytest.mark.slow
@pytest.mark.parametrize("collector", ["host", "compiled"])
def test_beta_follows_the_run(collector, tmp_path):
    make = vector.make_vec if collector == "host" else compiled.make_compiled
    agent, learned = dqn.DQN(hidden_units=(8,)), []
    falling = [
        schedules.LinearScheduler("percent", [(0.0, 0.4), (1.0, x)]) for x in (0.4, 1.0)
    ]
    for i, beta in enumerate([0.4, *falling]):
        settings = dataclasses.replace(REPLAYED, sampler="prioritized", beta=beta)
        given = {"agent": agent, "experience": settings, "collector": collector}
        given["make_envs"] = functools.partial(make, "CartPole-v1")
        with replaying(tmp_path / str(i), **given) as running:
            running.run(quiet=True)
            learned.append(running.agent.policy.state.params)
    number, same, other = learned
    for name, value in number.items():
        np.testing.assert_allclose(same[name], value, rtol=1e-5, atol=1e-6)
    assert max(np.abs(other[name] - number[name]).max() for name in number) > 1e-4


def test_the_folder_of_a_run(tmp_path):
    with replaying(tmp_path, "prioritized") as running:
        running.run(quiet=True)
    kept = [f"step-{step}" for step in checkpoints.list_steps(tmp_path)]
    assert kept == ["step-256", "step-320"]
    folders = sorted(path.name for path in (tmp_path / "replay").glob("step-*"))
    assert folders == kept
    assert doctor.find_nonfinite(tmp_path) == []
    # The best of four evaluations, the first of equals.
    columns = run_log.read_metrics(tmp_path / "metrics.csv")
    returns = np.nan_to_num(columns["eval/return_mean"], nan=-np.inf)
    step = int(columns["env_steps"][returns.argmax()])
    with saved_run.SavedRun.reopen(tmp_path, "best") as run:
        assert run.step == step
    # What is damaged is told.
    segment = next((tmp_path / "replay" / "step-320").glob("*.segment"))
    data = bytearray(segment.read_bytes())
    data[0] ^= 1
    segment.write_bytes(data)
    with pytest.raises(ValueError, match=r"expected files as they were written"):
        doctor.find_nonfinite(tmp_path)


@pytest.mark.filterwarnings("ignore:.*is damaged.*trying an older one:UserWarning")
def test_a_run_goes_on_before_a_damaged_replay(tmp_path):
    with replaying(tmp_path / "whole", n_epochs=24) as whole:
        whole.run(quiet=True)
    run = tmp_path / "damaged"
    with replaying(run, n_epochs=24) as cut:
        stop_in(cut, 20)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            cut.run(quiet=True)
    steps = checkpoints.list_steps(run)
    assert steps == [320, 336]
    segment = next((run / "replay" / "step-336").glob("*.segment"))
    segment.unlink()  # it may be that of the other step, too
    segment.write_bytes(b"")
    with replaying(run, n_epochs=24, resume=True) as resumed:
        assert resumed.env_steps == 320
        resumed.run(quiet=True)
    assert_same(resumed.agent, whole.agent)
    assert_same_rows(tmp_path / "whole", run)
    assert doctor.find_nonfinite(run) == []
    kept = [f"step-{step}" for step in checkpoints.list_steps(run)]
    assert sorted(x.name for x in (run / "replay").glob("step-*")) == kept
    for segment in (run / "replay").glob("step-*/*.segment"):
        segment.unlink()
    with pytest.raises(ValueError, match="expected an undamaged checkpoint"):
        with replaying(run, n_epochs=30, resume=True):
            pass


def test_it_ends_at_a_return(tmp_path):
    with replaying(tmp_path, stop_at_return=1.0) as running:
        played = running.run(quiet=True)
    assert running.epoch == 5 and played.returns.mean() >= 1.0
    assert checkpoints.latest_step(tmp_path) == 80
    # Asked once more, it is there already.
    rows = (tmp_path / "metrics.csv").read_bytes()
    with replaying(tmp_path, stop_at_return=1.0, resume=True) as again:
        np.testing.assert_array_equal(again.run(quiet=True).returns, played.returns)
    assert again.epoch == 5 and (tmp_path / "metrics.csv").read_bytes() == rows
    # It may go on beyond.
    with replaying(tmp_path, n_epochs=6, resume=True) as resumed:
        resumed.run(quiet=True)
    assert resumed.epoch == 6


def recorded():
    """A pole is kept upright by pushing where it falls."""
    rows = np.random.default_rng(0).normal(size=[300, 4]).astype(np.float32)
    return {"observations": rows, "actions": (rows[:, 2] + rows[:, 3] > 0).astype(int)}


def reading(folder, data=recorded, **settings):
    learned = experience.FromDataset(data, batch_size=32, n_batches=7)
    return build(folder, **{"experience": learned, **settings})


@pytest.mark.parametrize(
    ("data", "agent"),
    [
        pytest.param(recorded(), Tiny(1.0), id="arrays"),
        pytest.param(
            *(recorded, bc.BC(hidden_units=(16,), learning_rate=1e-2)),
            id="function",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_it_clones_and_resumes_to_the_bit(tmp_path, data, agent):
    with reading(tmp_path / "whole", data, agent=agent) as whole:
        assert len(whole.run(quiet=True).returns) == 2
    # Rows that were learned from count as steps: of passes of 9 batches, 42.
    assert whole.env_steps == 6 * 7 * 32
    rows = recorded()
    acted = whole.agent.policy.act(rows["observations"], temperature=0.0)
    assert np.mean(acted.actions == rows["actions"]) > 0.7
    with reading(tmp_path / "cut", data, agent=agent) as cut:
        stop_in(cut, 2)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            cut.run(quiet=True)
        assert cut.epoch == 3
    with reading(tmp_path / "cut", data, agent=agent, resume=True) as resumed:
        resumed.run(quiet=True)
    assert_same(resumed.agent, whole.agent)
    with saved_run.SavedRun.reopen(tmp_path / "cut") as run:
        assert len(run.evaluate(2).returns) == 2
    told = (tmp_path / "cut" / "run.json").read_text()
    assert ("arrays in memory" in told or "_InMemory" in told) != callable(data)


def test_each_pass_takes_every_row_once(tmp_path):
    rows = {"observations": np.zeros([10, 4], "f"), "number": np.arange(10)}
    learned = experience.FromDataset(rows, batch_size=3, n_batches=2)
    with build(tmp_path, experience=learned) as running:
        seen = np.concatenate([running.gather()["number"] for _ in range(3)])
    # Passes of 3 batches of 3 rows: one row waits.
    passes = seen.reshape(2, 9)
    assert all(len(set(each)) == 9 for each in passes)
    assert passes[0].tolist() != passes[1].tolist()


def test_train_rl_takes_arrays(tmp_path):
    make = functools.partial(
        trainer.Trainer,
        agent=Tiny(),
        make_envs=MAKE,
        experience=experience.FromDataset(recorded(), n_batches=1),
        intervals=cadence.Intervals(eval_episodes=1),
    )
    assert rl_trainer.train_rl(tmp_path, n_epochs=1, light_rl_trainer=make) is not None
    with rl_trainer.open_run(tmp_path, "best") as run:
        assert len(run.evaluate(1).returns) == 1


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (lambda: None, TypeError, "`FromDataset`: `data` expected a mapping of arrays"),
        (
            "play.npz",
            TypeError,
            r"; read the file by tfrl.datasets.NpzDataset\('play.npz'\)$",
        ),
        ({"actions": [0] * 40}, TypeError, "`FromDataset`: `data` .*got a list for"),
        ([{"actions": [0] * 40}], TypeError, "; make rows .* by .*rows_from_episodes"),
        ({"actions": np.zeros(3)}, ValueError, "of 32 rows at least; got"),
        (
            {"observations": np.zeros([40, 4]), "actions": np.zeros(39)},
            ValueError,
            r"arrays of one length, of 32 rows at least; got \[39, 40\]",
        ),
        ({}, ValueError, "arrays of one length"),
    ],
    ids=["none", "path", "list", "episodes", "few", "lengths", "empty"],
)
def test_data_that_do_not_fit(tmp_path, data, error, match):
    with pytest.raises(error, match=match):
        reading(tmp_path / "run", data)
    assert not (tmp_path / "run").exists()


@dataclasses.dataclass(frozen=True)
class Offline(Tiny):
    """Asks for transitions, of a data set first."""

    learns_from: ClassVar = "recorded"


def recorded_steps(n=60, **columns):
    """Episodes of ten steps, of which every other ends truly."""
    rng, count = np.random.default_rng(1), np.arange(n)
    rows = {
        "observations": rng.normal(size=[n, 4]),
        "actions": rng.integers(0, 2, n),
        "rewards": rng.normal(size=n),
        "next_observations": rng.normal(size=[n, 4]).astype("f"),
        "terminated": count % 20 == 9,
        "truncated": count % 20 == 19,
        **columns,
    }
    return {name: x for name, x in rows.items() if x is not None}


def learning_from(folder, data, **settings):
    learned = experience.FromDataset(data, batch_size=8, n_batches=3, gamma=0.5)
    return build(folder, experience=learned, **{"agent": Offline(), **settings})


@pytest.mark.parametrize("learns_from", ["recorded", "transitions"])
def test_transitions_of_a_data_set(tmp_path, learns_from):
    agent, rows = Offline(), recorded_steps()
    object.__setattr__(agent, "learns_from", learns_from)
    with learning_from(tmp_path, rows, agent=agent) as running:
        sample = running.gather()
    assert sample.weights.shape == (3, 8) and np.all(sample.weights == 1.0)
    np.testing.assert_allclose(sample.probabilities, 1 / 60)
    data, at = sample.data, sample.indices
    for name in ("observations", "actions", "rewards", "next_observations"):
        expected = rows[name][at]
        np.testing.assert_allclose(getattr(data, name), expected, rtol=1e-6)
    np.testing.assert_array_equal(data.discounts, np.where(at % 20 == 9, 0.0, 0.5))
    floats = [data.observations, data.rewards, data.discounts, data.next_observations]
    assert {x.dtype for x in floats} == {np.dtype("float32")}


def test_discounts_may_be_given(tmp_path):
    given = np.linspace(0.0, 1.0, 60)
    rows = recorded_steps(discounts=given, terminated=None, truncated=None)
    with learning_from(tmp_path, rows) as running:
        sample = running.gather()
    np.testing.assert_allclose(sample.data.discounts, given[sample.indices], rtol=1e-6)


def test_actions_of_a_data_set_become_raw(tmp_path):
    rng = np.random.default_rng(0)
    rows = recorded_steps(
        observations=rng.normal(size=[60, 3]),
        next_observations=rng.normal(size=[60, 3]),
        actions=rng.uniform(-2.0, 2.0, [60, 1]),
    )
    settings = {"make_envs": functools.partial(vector.make_vec, "Pendulum-v1")}
    settings["agent"] = iql.IQL(hidden_units=(4,), squash=True)
    with learning_from(tmp_path / "run", rows, **settings) as running:
        sample = running.gather()
    expected = np.arctanh(rows["actions"][sample.indices] / 2.0)
    np.testing.assert_allclose(sample.data.actions, expected, rtol=1e-3, atol=1e-5)
    rows["actions"][7] = 2.5
    with pytest.raises(
        ValueError, match=r"actions inside of Box.*got 2.5 in row 7; .*clip"
    ):
        learning_from(tmp_path / "run", rows, **settings)


def nan_at(n, column, shape=()):
    column = np.array(column, float)
    column[n] = np.nan
    return column.reshape(column.shape + shape)


@pytest.mark.parametrize(
    ("columns", "match"),
    {
        "rewards": ({"rewards": None}, r"got none of \['rewards'\]"),
        "ends": ({"terminated": None, "truncated": None}, "`terminated`, or `discou"),
        "endless": (
            {"terminated": np.zeros(60, bool), "truncated": None},
            "an end of an episode, .*; got none in 60 rows",
        ),
        "width": ({"observations": np.zeros([60, 3])}, r"observations of .*shape"),
        "next": ({"next_observations": np.zeros([60])}, "next_observations of"),
        "choices": ({"actions": np.full(60, 2)}, "actions inside of Discrete.* got 2"),
        "floats": ({"actions": np.zeros(60)}, r"actions of .*Discrete"),
        "nan": (
            {"rewards": nan_at(11, np.zeros(60))},
            "finite rewards; got nan in row 11",
        ),
        "nan seen": (
            {"observations": nan_at(5, np.zeros([60, 4]))},
            "finite observations; got nan in row 5",
        ),
        "large": (
            {"rewards": np.where(np.arange(60) == 7, 1e300, 0)},
            "finite rewards; got 1e.300 in row 7, too large for float32",
        ),
        "large seen": (
            {"next_observations": np.full([60, 4], 1e39)},
            r"finite next_observations; got 1e\+39 in row 0, too large",
        ),
        "both ends": (
            {"terminated": np.arange(60) == 9, "discounts": np.full(60, 0.5)},
            "discounts of 0 where `terminated`; got 0.5 in row 9; leave",
        ),
        "both ends, a column": (
            {"terminated": np.arange(60)[:, None] == 9, "discounts": np.full(60, 0.5)},
            "discounts of 0 where `terminated`; got 0.5 in row 9; leave",
        ),
        "flags": ({"terminated": np.full(60, 0.5)}, "a bool a row as ter.*; cast them"),
        "column": ({"rewards": np.zeros([60, 1])}, "a number a row as rewards"),
        "discounts": ({"discounts": np.full(60, 1.5)}, r"discounts in \[0, 1\]"),
        "lengths": ({"rewards": np.zeros(59)}, r"one length, .*\[59, 60\]"),
    }.values(),
)
def test_transitions_that_do_not_fit(tmp_path, columns, match):
    with pytest.raises(ValueError, match=f"`FromDataset`: `data` expected .*{match}"):
        learning_from(tmp_path / "run", recorded_steps(**columns))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"observations": nan_at(5, np.zeros([60, 4], "f"))}, "nan in row 5"),
        ({"observations": np.zeros([60, 3], "f")}, "observations of .*shape"),
        ({"actions": np.full(60, 2)}, "actions inside of Discrete.* got 2"),
        ({"a": np.zeros(60), "actions": None}, r"none of \['actions'\] in \['a', 'ob"),
    ],
)
def test_what_is_cloned_fits_the_environment(tmp_path, columns, match):
    data = {"observations": np.zeros([60, 4], "f"), "actions": np.zeros(60, int)}
    given = {name: x for name, x in {**data, **columns}.items() if x is not None}
    learned = experience.FromDataset(given, 4)
    with pytest.raises(ValueError, match=f"`FromDataset`: `data` expected .*{match}"):
        build(tmp_path / "run", agent=bc.BC(hidden_units=(4,)), experience=learned)


@pytest.mark.parametrize("agent", [bc.BC(), iql.IQL(), agents.DiscreteCQL()])
def test_rows_do_what_their_masks_allow(tmp_path, agent):
    def make(n_envs, space=None):
        return SyncVectorEnv([lambda: Strict(space, "observation")] * n_envs)

    envs = make(2)
    rows = recording.record_transitions(None, envs, 40)
    masks = {
        name: rows[name]["action_mask"]
        for name in ("observations", "next_observations")
    }
    masks["next_observations"][rows["terminated"]] = 0
    learned = experience.FromDataset(rows, 4, n_batches=1)
    given = {"agent": agent, "make_envs": make, "experience": learned}
    with build(tmp_path / "fine", **given) as running:
        running.gather()
    taken = rows["actions"][7]
    masks["observations"][7, taken] = 0
    match = rf"actions that observations\['action_mask'\] of .*; got {taken} in row 7;"
    with pytest.raises(ValueError, match=f"`FromDataset`: `data` expected {match}"):
        build(tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_a_learner_of_data_sets_asks_for_one(tmp_path):
    with pytest.raises(TypeError, match="`FromDataset`: `data` expected"):
        build(tmp_path / "run", agent=Offline(), experience=None)


@pytest.mark.parametrize(
    ("error", "name", "value", "match"),
    [
        (TypeError, "experience", experience.Trajectories(8), "expected Replayed or"),
        (TypeError, "experience", 3, "`experience` expected Trajectories, Replayed"),
        (TypeError, "agent", ppo.PPO(), "expected Trajectories, which PPO learns"),
        (TypeError, "agent", bc.BC(), "expected FromDataset, which BC learns from"),
        (
            *(ValueError, "experience"),
            experience.Replayed(updates_per_step=1e-3, n_steps=4),
            "`updates_per_step` expected a gradient step per epoch",
        ),
        (
            *(TypeError, "make_envs"),
            functools.partial(vector.make_vec, "Pendulum-v1"),
            "expected a Discrete space",
        ),
    ],
)
def test_what_does_not_fit_is_told_before_anything(tmp_path, error, name, value, match):
    with pytest.raises(error, match=match):
        replaying(tmp_path / "run", **{"agent": dqn.DQN(), name: value})
    assert not (tmp_path / "run").exists()
