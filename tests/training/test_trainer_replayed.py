"""A trainer whose agent learns from a replay: resumed, killed, refused."""

import functools
import os
import random
import signal
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import training_workers

from tfrl.agents import bc, dqn, ppo
from tfrl.environments import vector
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import (
    cadence,
    doctor,
    experience,
    saved_run,
    trainer,
)

REPLAYED = {"capacity": 200, "batch_size": 8, "n_steps": 8, "learning_starts": 24}
SMALL = dqn.DQN(hidden_units=(8,), target_period=3)


def make_trainer(folder, sampler="uniform", **settings):
    settings = {
        "n_epochs": 20,
        "agent": SMALL,
        "make_envs": functools.partial(
            vector.make_vec, "CartPole-v1", vectorization="sync"
        ),
        "n_envs": 2,
        "experience": experience.Replayed(
            **REPLAYED, sampler=sampler, n_step_returns=2
        ),
        "intervals": cadence.Intervals(
            log_epochs=1,
            eval_epochs=5,
            eval_episodes=2,
            checkpoint_epochs=4,
            checkpoints_kept=2,
        ),
        **settings,
    }
    return trainer.Trainer(folder, **settings)


def stop_in_epoch(running, epoch):
    collect = running._collector.collect

    def interrupted(*args):
        if running.epoch == epoch:
            signal.raise_signal(signal.SIGINT)
        return collect(*args)

    running._collector.collect = interrupted


def assert_same(first, second):
    pairs = zip(*map(tf.nest.flatten, (first, second)), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def assert_same_metrics(one, other):
    one, other = (run_log.read_metrics(x / "metrics.csv") for x in (one, other))
    assert list(one) == list(other)
    for name, values in one.items():
        if "second" not in name:
            np.testing.assert_array_equal(values, other[name], err_msg=name)


@pytest.mark.parametrize(
    "sampler", ["prioritized", pytest.param("uniform", marks=pytest.mark.slow)]
)
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, sampler):
    with make_trainer(tmp_path / "whole", sampler) as whole:
        whole.run(quiet=True)
    with make_trainer(tmp_path / "cut", sampler) as cut:
        stop_in_epoch(cut, 13)
        assert cut.run(quiet=True) is None
    # The epoch is finished; what it added and drew is saved.
    assert cut.epoch == 14 and checkpoints.latest_step(tmp_path / "cut") == 14 * 16
    with make_trainer(tmp_path / "cut", sampler, resume=True) as resumed:
        assert resumed.notice is None
        assert resumed.run(quiet=True) is not None
    assert resumed.env_steps == whole.env_steps == 20 * 16
    assert_same(resumed.agent, whole.agent)
    assert_same_metrics(tmp_path / "whole", tmp_path / "cut")


def test_the_folder_of_a_run(tmp_path):
    with make_trainer(tmp_path, "prioritized") as running:
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
    with saved_run.SavedRun.reopen(tmp_path) as run:
        assert run.step == 320
        with pytest.raises(ValueError, match="`SavedRun`: `step` expected .*got 'wo"):
            saved_run.SavedRun(run._like, "worst")
    # What is damaged is told.
    segment = next((tmp_path / "replay" / "step-320").glob("*.segment"))
    data = bytearray(segment.read_bytes())
    data[0] ^= 1
    segment.write_bytes(data)
    with pytest.raises(ValueError, match=r"expected files as they were written"):
        doctor.find_nonfinite(tmp_path)


def test_a_run_without_evaluation_has_no_best(tmp_path):
    intervals = cadence.Intervals(eval_episodes=1, checkpoint_epochs=1)
    with make_trainer(tmp_path, n_epochs=4, intervals=intervals) as running:
        stop_in_epoch(running, 2)
        running.run(quiet=True)
    with pytest.raises(ValueError, match="has kept no best policy.*got 'best'"):
        saved_run.SavedRun.reopen(tmp_path, "best")


def test_an_epoch_without_enough_steps_learns_nothing(tmp_path):
    with make_trainer(tmp_path, n_epochs=2) as running:
        before = running.agent
        running.run(quiet=True)
    columns = run_log.read_metrics(tmp_path / "metrics.csv")
    # Of 16 and of 32 steps; learning starts at 24.
    assert np.isnan(columns["train/loss"][0]) and np.isfinite(columns["train/loss"][1])
    with pytest.raises(AssertionError):
        assert_same(running.agent.policy.state.params, before.policy.state.params)


def test_it_ends_at_a_return(tmp_path):
    with make_trainer(tmp_path, stop_at_return=1.0) as running:
        played = running.run(quiet=True)
    assert running.epoch == 5 and played.returns.mean() >= 1.0
    assert checkpoints.latest_step(tmp_path) == 80
    with saved_run.SavedRun.reopen(tmp_path, "best") as run:
        assert run.step == 80
    # It may go on beyond.
    with make_trainer(tmp_path, n_epochs=6, resume=True) as resumed:
        resumed.run(quiet=True)
    assert resumed.epoch == 6


class Uncapturable(gym.Wrapper):
    """An environment with state that only the operating system knows."""

    def __init__(self, env):
        super().__init__(env)
        self.handle = open(os.devnull)  # noqa: SIM115

    def close(self):
        self.handle.close()
        super().close()


def uncapturable(n_envs):
    return gym.vector.SyncVectorEnv(
        [lambda: Uncapturable(gym.make("CartPole-v1"))] * n_envs,
        autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP,
    )


def test_new_episodes_are_no_continuation_of_old_ones(tmp_path):
    with make_trainer(tmp_path, make_envs=uncapturable, n_epochs=8) as first:
        stop_in_epoch(first, 5)
        assert first.run(quiet=True) is None
        size = first._source.replay.size
    with make_trainer(
        tmp_path, make_envs=uncapturable, n_epochs=8, resume=True
    ) as resumed:
        assert "handle" in resumed.notice
        assert resumed._source.replay.size >= size > 0
        assert resumed.run(quiet=True) is not None
    # Rows in which an environment only resets are no experience.
    columns = run_log.read_metrics(tmp_path / "metrics.csv")
    assert resumed.env_steps == columns["env_steps"][-1] < 8 * 16


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"experience": experience.Trajectories(8)}, TypeError, "expected Replayed, w"),
        ({"agent": ppo.PPO()}, TypeError, "expected Trajectories, which PPO learns"),
        ({"agent": bc.BC()}, TypeError, "expected FromDataset, which BC learns from"),
        ({"agent": dqn.DQN}, TypeError, "`agent` expected hyper-parameters with a"),
        ({"agent": dqn.DQNAgent}, TypeError, "`agent` expected hyper-parameters with"),
        ({"experience": 3}, TypeError, "`experience` expected Trajectories, Replayed"),
        ({"callbacks": [print]}, TypeError, "`callbacks` expected callbacks of Keras"),
        ({"network": 3}, TypeError, "`network` expected"),
        ({"stop_at_return": np.nan}, ValueError, "`stop_at_return` expected finite"),
        (
            {"stop_at_return": 1.0, "intervals": None},
            ValueError,
            "`intervals` expected `eval_epochs` beside `stop_at_return`",
        ),
        (
            {"experience": experience.Replayed(updates_per_step=1e-3, n_steps=4)},
            ValueError,
            "`updates_per_step` expected a gradient step per epoch",
        ),
        (
            {"make_envs": functools.partial(vector.make_vec, "Pendulum-v1")},
            TypeError,
            "expected a Discrete space",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else None,
)
def test_what_does_not_fit_is_told_before_anything(tmp_path, settings, error, match):
    with pytest.raises(error, match=match):
        make_trainer(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_replay_too_small():
    with pytest.raises(ValueError, match="`capacity` expected at least.*32; got 31"):
        experience.Replayed(capacity=31, batch_size=32, learning_starts=0)


def test_a_run_of_another_agent(tmp_path):
    with make_trainer(tmp_path, n_epochs=3) as running:
        running.run(quiet=True)
    other = experience.Trajectories(8)
    agent = ppo.PPO(minibatch_size=16, hidden_units=(8,))
    with pytest.raises(ValueError, match="`resume` expected the arguments of the run"):
        make_trainer(tmp_path, agent=agent, experience=other, resume=True).__enter__()


_CHILD = """
import sys
sys.path.insert(0, sys.argv[3])
import test_trainer_replayed as t
from tfrl.training import cadence
with t.make_trainer(
    sys.argv[1], sys.argv[4], n_epochs={n_epochs}, resume=sys.argv[2] == "resume",
    intervals=cadence.Intervals(
        log_epochs=1, eval_epochs=50, eval_episodes=1, checkpoint_epochs=1),
) as running:
    running.run(quiet=True)
"""


def spawn(folder, mode, sampler, n_epochs):
    code = _CHILD.format(n_epochs=n_epochs)
    here = os.path.dirname(__file__)
    path = os.pathsep.join([os.path.dirname(here), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), mode, here, sampler],
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, sampler):
    n_epochs, n_kills = 200, 4
    child = spawn(tmp_path / "whole", "new", sampler, n_epochs)
    assert child.wait() == 0
    chance = random.Random(0)
    folder, mode, at = tmp_path / "killed", "new", 0
    for _ in range(n_kills):
        child = spawn(folder, mode, sampler, n_epochs)
        goal = at + n_epochs * 16 // (2 * n_kills + 2)
        while (checkpoints.latest_step(folder) or 0) < goal:
            assert child.poll() is None, "the run ended before it could be killed"
            time.sleep(0.002)
        time.sleep(chance.random() * 0.1)
        child.send_signal(signal.SIGKILL)
        child.wait()
        at, mode = checkpoints.latest_step(folder), "resume"
        assert at >= goal
    assert spawn(folder, "resume", sampler, n_epochs).wait() == 0
    with make_trainer(tmp_path / "none", sampler) as like:
        whole, _, step = checkpoints.load_run(tmp_path / "whole", like.agent)
        killed, _, killed_step = checkpoints.load_run(folder, like.agent)
    assert step == killed_step == n_epochs * 16
    assert_same(killed, whole)
    assert_same_metrics(tmp_path / "whole", folder)
    assert doctor.find_nonfinite(folder) == []


@pytest.mark.slow
def test_two_workers_share_a_replay(tmp_path):
    settings = {"n_epochs": 6, "replayed": True}
    codes, texts = training_workers.together(
        tmp_path / "whole", resume=False, **settings
    )
    assert codes == [0, 0], texts
    first, second = (training_workers.weights(tmp_path / "whole", x) for x in range(2))
    assert_same(first, second)
    stopped = {"victim": 1, "signal": "SIGINT", "at_epoch": 3}
    folder = tmp_path / "cut"
    codes, texts = training_workers.together(
        folder, resume=False, **settings, **stopped
    )
    assert codes == [0, 0], texts
    codes, texts = training_workers.together(folder, resume=True, **settings)
    assert codes == [0, 0], texts
    assert_same(training_workers.weights(folder, 0), first)
