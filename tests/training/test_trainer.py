import contextlib
import dataclasses
import functools
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
import tensorflow as tf

from tfrl.agents import _on_policy, ppo
from tfrl.core import compile, pytree
from tfrl.environments import vector
from tfrl.saving import checkpoints
from tfrl.schedules import progress, schedulers
from tfrl.summaries import run_log
from tfrl.training import cadence, experience, trainer

SMALL = ppo.PPO(
    n_epochs=2,
    minibatch_size=16,
    normalize_observations=True,
    normalize_rewards=True,
    learning_rate_schedule="linear",
)


def make_trainer(folder, env_id="CartPole-v1", vectorization="sync", **settings):
    settings = {
        "n_epochs": 6,
        "agent": SMALL,
        "make_envs": functools.partial(
            vector.make_vec, env_id, vectorization=vectorization
        ),
        "n_envs": 2,
        "experience": experience.Trajectories(16),
        "intervals": cadence.Intervals(
            log_epochs=1, eval_episodes=2, checkpoint_epochs=2
        ),
        **settings,
    }
    return trainer.Trainer(folder, **settings)


def train(folder, **settings):
    with make_trainer(folder, **settings) as running:
        return running, running.run(quiet=True)


def stop_after(running, epochs):
    """Asks the trainer to stop, as Ctrl-C would, during the epoch after `epochs`."""
    act = running._collector.collect

    def collect(*args):
        if running.epoch == epochs:
            signal.raise_signal(signal.SIGINT)
        return act(*args)

    running._collector.collect = collect


def assert_same(first, second):
    first, second = tf.nest.flatten(first), tf.nest.flatten(second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_run_leaves_metrics_events_and_checkpoints(tmp_path):
    before = compile.trace_count(_on_policy._compiled_update)
    agent = dataclasses.replace(SMALL, gamma=0.123)
    running, played = train(tmp_path, agent=agent)
    assert compile.trace_count(_on_policy._compiled_update) - before == 1
    assert played.returns.shape == (2,)
    assert running.epoch == 6 and running.env_steps == 6 * 2 * 16
    metrics = run_log.read_metrics(tmp_path / "metrics.csv")
    np.testing.assert_array_equal(metrics["epoch"], np.arange(1, 7))
    np.testing.assert_array_equal(metrics["env_steps"], 32 * np.arange(1, 7))
    assert np.isnan(metrics["eval/return_mean"][:-1]).all()
    assert metrics["eval/return_mean"][-1] == played.returns.mean()
    assert (metrics["env_steps_per_second"] > 0).all()
    assert checkpoints.list_steps(tmp_path) == [64, 128, 192]
    assert any("tfevents" in name for name in os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("env_id", "vectorization"),
    [
        ("CartPole-v1", "sync"),
        pytest.param("CartPole-v1", "vector_entry_point", marks=pytest.mark.slow),
        pytest.param("Pendulum-v1", "sync", marks=pytest.mark.slow),
    ],
)
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, env_id, vectorization):
    settings = {"env_id": env_id, "vectorization": vectorization}
    whole, _ = train(tmp_path / "whole", **settings)
    with make_trainer(tmp_path / "cut", **settings) as first:
        stop_after(first, 2)
        assert first.run(quiet=True) is None
        assert first.epoch == 3
    resumed, played = train(tmp_path / "cut", resume=True, **settings)
    assert resumed.notice is None and played is not None
    assert resumed.env_steps == whole.env_steps
    assert_same(resumed.agent, whole.agent)
    columns = [
        run_log.read_metrics(tmp_path / name / "metrics.csv")
        for name in ("whole", "cut")
    ]
    for name, values in columns[0].items():
        if "second" not in name:
            np.testing.assert_array_equal(values, columns[1][name], err_msg=name)


class Uncapturable(gym.Wrapper):
    """An environment with state that only the operating system knows."""

    def __init__(self, env):
        super().__init__(env)
        self.handle = open(os.devnull)  # noqa: SIM115

    def close(self):
        self.handle.close()
        super().close()


@pytest.mark.slow
def test_environments_that_cannot_be_captured_start_anew(tmp_path):
    def make_envs(n_envs):
        return gym.vector.SyncVectorEnv(
            [lambda: Uncapturable(gym.make("CartPole-v1"))] * n_envs,
            autoreset_mode=gym.vector.AutoresetMode.DISABLED,
        )

    with make_trainer(tmp_path, make_envs=make_envs) as first:
        stop_after(first, 1)
        assert first.run(quiet=True) is None
    resumed, _ = train(tmp_path, make_envs=make_envs, resume=True)
    assert "handle" in resumed.notice and resumed.epoch == 6


def test_what_cannot_be_captured_is_told_once_at_the_start(tmp_path, capfd):
    def make_envs(n_envs):
        return gym.vector.SyncVectorEnv(
            [lambda: Uncapturable(gym.make("CartPole-v1"))] * n_envs,
            autoreset_mode=gym.vector.AutoresetMode.DISABLED,
        )

    with make_trainer(tmp_path, make_envs=make_envs, n_epochs=2) as running:
        running.run()
    out = "".join(capfd.readouterr())
    assert out.count("a resumed run will begin new episodes") == 1
    assert out.index("handle is of type") < out.index("100%")
    assert checkpoints.latest_step(tmp_path) == 64


def test_a_lost_environment_loses_no_finished_epoch(tmp_path):
    settings = {
        "vectorization": "async",
        "intervals": cadence.Intervals(eval_episodes=2, checkpoint_epochs=100),
    }
    with make_trainer(tmp_path, **settings) as running:
        collect = running._collector.collect

        def kill_and_collect(*args):
            if running.epoch == 3:
                worker = running._collector.envs.unwrapped.processes[1]
                os.kill(worker.pid, signal.SIGKILL)
            return collect(*args)

        running._collector.collect = kill_and_collect
        with pytest.raises(ConnectionError, match="environment 1 .exit code -9"):
            running.run(quiet=True)
    assert checkpoints.latest_step(tmp_path) == 3 * 32
    resumed, _ = train(tmp_path, resume=True)
    assert resumed.epoch == 6


def test_what_is_no_vector_of_environments(tmp_path):
    with pytest.raises(TypeError, match="`Trainer`: `make_envs` expected a vector env"):
        make_trainer(tmp_path, make_envs=lambda n_envs: gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="`make_envs` expected 2 environments.*got 3"):
        make = functools.partial(vector.make_vec, "CartPole-v1")
        make_trainer(tmp_path, make_envs=lambda n_envs: make(3))
    with contextlib.closing(vector.make_vec("CartPole-v1", 2)) as made:
        for other, got in [
            ("CartPole-v1", "got 'CartPole-v1'"),
            (made, "got .*Vector"),
            (gym.make("CartPole-v1"), "got .*CartPoleEnv"),
            (Walkable, "got the environment class Walkable"),
            (lambda n: made, r"got a function of \(n\)"),
            (functools.partial(make, n_envs=2), None),
            (lambda **given: make(**given), None),
        ]:
            if got is None:
                make_trainer(tmp_path, make_envs=other).close()
                continue
            expected = f"`Trainer`: `make_envs` expected a function that .*{got}.*pass"
            with pytest.raises(TypeError, match=expected):
                make_trainer(tmp_path, make_envs=other)


def test_a_run_is_within_a_context(tmp_path):
    running = make_trainer(tmp_path / "run")
    with pytest.raises(RuntimeError, match=r"within `with Trainer\(...\) as trainer:`"):
        running.run()
    with running:
        pass
    with pytest.raises(RuntimeError, match="`Trainer.run`"):
        running.run()
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_a_finished_run_can_be_extended(tmp_path):
    train(tmp_path, n_epochs=2)
    longer, _ = train(tmp_path, n_epochs=4, resume=True)
    assert longer.epoch == 4


def test_folders_are_not_mixed_up(tmp_path):
    with pytest.raises(ValueError, match="expected a checkpoint to resume from; got"):
        train(tmp_path, resume=True)
    train(tmp_path, n_epochs=2)
    with pytest.raises(
        ValueError, match=r"with one at 64 environment steps; resume it"
    ):
        train(tmp_path, n_epochs=2)
    other = ppo.PPO(minibatch_size=16, hidden_units=(32,))
    with pytest.raises(ValueError, match="(?s)expected.*got"):
        train(tmp_path, resume=True, agent=other)
    with pytest.raises(ValueError, match="(?s)expected.*got"):
        train(tmp_path, resume=True, env_id="Pendulum-v1")


def test_nothing_is_written_when_an_argument_is_off(tmp_path):
    folder = tmp_path / "run"
    for settings, message in [
        ({"n_envs": 0}, "`Trainer`: `n_envs` expected"),
        ({"total_env_steps": 0}, "`Trainer`: `total_env_steps` expected"),
        ({"seed": -1}, "`Trainer`: `seed` expected"),
        ({"env_id": "NoSuchEnv-v0"}, "`make_vec`: `env_id` expected a registered"),
        ({"agent": ppo.PPO(squash=True, minibatch_size=16)}, "`squash` expected a Box"),
        ({"agent": ppo.PPO(minibatch_size=7)}, "`minibatch_size` expected to divide"),
    ]:
        with pytest.raises(ValueError, match=message):
            train(folder, **settings)
        assert not folder.exists()


@pytest.mark.parametrize("agent", [3, vector.make_vec, ppo.PPO])
def test_what_is_no_agent(agent, tmp_path):
    with pytest.raises(TypeError, match="`Trainer`: `agent` expected hyper-param"):
        trainer.Trainer(tmp_path / "run", agent=agent)
    assert not list(tmp_path.iterdir())


def test_total_env_steps_rounds_up_to_whole_epochs(tmp_path):
    running = make_trainer(tmp_path, total_env_steps=65)
    running.close()
    assert running.n_epochs == 3


def test_schedules_read_how_far_the_run_is(tmp_path):
    schedule = schedulers.LinearScheduler("percent", [(0.0, 0.0), (1.0, 8.0)])
    with make_trainer(tmp_path, n_epochs=4) as running:
        seen = []
        act = running._collector.collect

        def collect(*args):
            now = progress.current_progress()
            seen.append((schedule(), now.iterations, now.env_steps))
            return act(*args)

        running._collector.collect = collect
        running.run(quiet=True)
    assert seen == [(0.0, 0, 0), (2.0, 1, 32), (4.0, 2, 64), (6.0, 3, 96)]
    assert schedule() == 0.0


@pytest.mark.parametrize("bad", ["reward", "observation"])
def test_not_a_number_stops_the_run(tmp_path, bad):
    class Broken(gym.Wrapper):
        def step(self, action):
            observation, reward, *rest = self.env.step(action)
            if bad == "reward":
                return observation, float("nan"), *rest
            return observation * np.float32("nan"), reward, *rest

    def make_envs(n_envs):
        return gym.vector.SyncVectorEnv(
            [lambda: Broken(gym.make("CartPole-v1"))] * n_envs
        )

    with pytest.raises(
        ValueError, match=f"{bad}s` expected finite numbers; got nan at step 1"
    ):
        train(tmp_path, make_envs=make_envs)


_CHILD = """
import functools, sys
from tfrl.agents import ppo
from tfrl.environments import vector
from tfrl.schedules import progress, schedulers
from tfrl.training import cadence, experience, trainer
with trainer.Trainer(
    sys.argv[1], n_epochs={n_epochs}, resume=sys.argv[2] == "resume",
    agent=ppo.PPO(n_epochs=2, minibatch_size=16, normalize_observations=True),
    make_envs=functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync"),
    n_envs=2, experience=experience.Trajectories(16),
    intervals=cadence.Intervals(log_epochs=1, eval_episodes=1, checkpoint_epochs=1),
) as running:
    running.run(quiet=True)
"""


def spawn(folder, mode, n_epochs):
    code = _CHILD.format(n_epochs=n_epochs)
    return subprocess.Popen([sys.executable, "-c", code, str(folder), mode])


def kill_and_compare(tmp_path, n_kills, n_epochs, seed=0):
    child = spawn(tmp_path / "whole", "new", n_epochs)
    assert child.wait() == 0
    chance = random.Random(seed)
    folder, mode, at = tmp_path / "killed", "new", 0
    for index in range(n_kills):
        child = spawn(folder, mode, n_epochs)
        # Let it save a few times, then kill it at any moment of its loop.
        goal = at + n_epochs * 32 // (2 * n_kills + 2)
        while (checkpoints.latest_step(folder) or 0) < goal:
            assert child.poll() is None, "the run ended before it could be killed"
            time.sleep(0.002)
        time.sleep(chance.random() * 0.05)
        child.send_signal(signal.SIGKILL)
        child.wait()
        at, mode = checkpoints.latest_step(folder), "resume"
        assert at >= goal, index
    child = spawn(folder, "resume", n_epochs)
    assert child.wait() == 0
    agent = make_agent_for_comparison()
    whole, _, step = checkpoints.load_run(tmp_path / "whole", agent)
    killed, _, killed_step = checkpoints.load_run(folder, agent)
    assert step == killed_step == n_epochs * 32
    assert_same(killed, whole)


def make_agent_for_comparison():
    envs = vector.make_vec("CartPole-v1", 2)
    return ppo.PPO(n_epochs=2, minibatch_size=16, normalize_observations=True).create(
        envs.single_observation_space,
        envs.single_action_space,
        n_envs=2,
        n_steps=8,
        seed=0,
    )


@pytest.mark.slow
def test_killed_and_resumed_equals_uninterrupted(tmp_path):
    kill_and_compare(tmp_path, n_kills=2, n_epochs=30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_twenty_kills_lose_nothing(tmp_path, seed):
    kill_and_compare(tmp_path, n_kills=5, n_epochs=150, seed=seed)


class Walkable(gym.Wrapper):
    """CartPole whose evaluations end only while `ends`; `asked` acts at some step."""

    ends, steps, asked = True, 0, None

    def step(self, action):
        found = super().step(action)
        if Walkable.ends:
            return found
        Walkable.steps += 1
        if Walkable.steps == 5:
            signal.raise_signal(Walkable.asked)
        assert Walkable.steps < 50, "the evaluation went on"
        return self.env.reset()[0], 1.0, False, False, {}


def breakable(n_envs):
    wrap = Walkable if n_envs == 3 else gym.Wrapper
    return gym.vector.SyncVectorEnv(
        [lambda: wrap(gym.make("CartPole-v1"))] * n_envs,
        autoreset_mode=gym.vector.AutoresetMode.DISABLED,
    )


@pytest.mark.parametrize(
    ("asked", "eval_epochs"),
    [
        (signal.SIGINT, None),
        (signal.SIGTERM, 2),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, None, marks=pytest.mark.slow),
    ],
)
def test_an_evaluation_can_be_interrupted(tmp_path, monkeypatch, asked, eval_epochs):
    settings = {
        "make_envs": breakable,
        "n_epochs": 3,
        "intervals": cadence.Intervals(
            log_epochs=1, eval_epochs=eval_epochs, eval_episodes=3
        ),
    }
    whole, expected = train(tmp_path / "whole", **settings)
    cut = tmp_path / "cut"
    monkeypatch.setattr(Walkable, "ends", False)
    monkeypatch.setattr(Walkable, "steps", 0)
    monkeypatch.setattr(Walkable, "asked", asked)
    broken_off, played = train(cut, **settings)
    assert played is None and Walkable.steps <= 6
    epochs = eval_epochs or 3
    assert broken_off.epoch == epochs
    assert checkpoints.list_steps(cut) == [epochs * 32]
    rows = run_log.read_metrics(cut / "metrics.csv")
    assert rows["epoch"].tolist() == [*range(1, epochs)]
    monkeypatch.setattr(Walkable, "ends", True)
    resumed, played = train(cut, resume=True, **settings)
    np.testing.assert_array_equal(played.returns, expected.returns)
    assert_same(resumed.agent, whole.agent)
    one, two = (
        run_log.read_metrics(tmp_path / name / "metrics.csv")
        for name in ("whole", "cut")
    )
    for name in (name for name in one if "second" not in name):
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_the_last_checkpoint_is_there_before_the_final_evaluation(tmp_path):
    with make_trainer(tmp_path, n_epochs=2) as running:
        evaluated = running._evaluated

        def killed(asked_to_end):
            raise MemoryError

        running._evaluated = killed
        with pytest.raises(MemoryError):
            running.run(quiet=True)
        assert checkpoints.list_steps(tmp_path) == [64]
        running._evaluated = evaluated
        played = running.evaluate()
    resumed, again = train(tmp_path, n_epochs=2, resume=True)
    np.testing.assert_array_equal(again.returns, played.returns)
    rows = run_log.read_metrics(tmp_path / "metrics.csv")
    assert rows["eval/return_mean"][-1] == again.returns.mean()


# By default `tests/saving` does so, without a second TensorFlow.
@pytest.mark.slow
def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path):
    child = spawn(tmp_path, "new", 100_000)
    try:
        while not (checkpoints.latest_step(tmp_path) or 0):
            assert child.poll() is None
            time.sleep(0.01)
        with pytest.raises(ValueError, match=str(child.pid)):
            train(tmp_path, resume=True)
    finally:
        child.kill()
        child.wait()


@pytest.mark.slow
def test_memory_stays_flat_over_200_000_steps(tmp_path):
    config = ppo.PPO(n_epochs=2, minibatch_size=256, gamma=0.123)
    with make_trainer(
        tmp_path,
        agent=config,
        n_epochs=800,
        n_envs=8,
        experience=experience.Trajectories(32),
        intervals=cadence.Intervals(
            log_epochs=10, eval_epochs=50, eval_episodes=5, checkpoint_epochs=50
        ),
    ) as running:
        sizes, process = [], psutil.Process()
        save = running._save

        def measure(log):
            save(log)
            sizes.append(process.memory_info().rss)

        running._save = measure
        before = compile.trace_count(_on_policy._compiled_update)
        running.run(quiet=True)
        assert compile.trace_count(_on_policy._compiled_update) - before == 1
        assert running.env_steps >= 200_000
    steps = np.arange(len(sizes)) * 50 * 8 * 32
    settled = slice(len(sizes) // 4, None)
    slope = np.polyfit(steps[settled], np.array(sizes)[settled], 1)[0]
    assert slope * 10_000 < 2**20, "more than 1 MiB per 10,000 steps"


class Returning:
    """An agent of one's own that returns what it is told to."""

    def __init__(self, policy, returned):
        self.policy, self.returned = policy, returned

    def update(self, experience):
        return self.returned


class Told(pytree.PyTreeNode):
    """Like `Returning`, but one that can be saved."""

    policy: Any
    returned: Any = pytree.nonpytree_field()

    update = Returning.update


@dataclasses.dataclass(frozen=True)
class Making:
    """Hyper-parameters of one of both."""

    kind: type
    returned: Any = None

    def create(self, observation_space, action_space, *, seed):
        policy = ppo.PPO().create(observation_space, action_space, seed=seed).policy
        return self.kind(policy, self.returned)


def test_agents_that_cannot_be_saved_are_refused_at_once(tmp_path):
    with pytest.raises(TypeError, match="`Trainer`: `agent` .* that can be saved"):
        make_trainer(tmp_path, agent=Making(Returning))


@pytest.mark.parametrize("returned", [3, ("agent", None)], ids=["number", "no info"])
def test_what_update_returns_is_looked_at(tmp_path, returned):
    with pytest.raises(TypeError, match="whose `update` returns \\(agent, info\\)"):
        train(tmp_path, agent=Making(Told, returned))
