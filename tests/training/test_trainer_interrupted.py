"""Signals while a trainer plays, learns or saves."""

import concurrent.futures
import contextlib
import dataclasses
import gc
import os
import signal
import subprocess
import sys
import time

import gymnasium as gym
import keras
import numpy as np
import pytest
from tiny_agents import EVERY, TinyAgent, assert_same, at_epoch, build

from tfrl.agents import replicated
from tfrl.agents.on_policy import ppo
from tfrl.environments import vector
from tfrl.saving import checkpoints
from tfrl.training import _processes, cadence, trainer

AGENT = ppo.PPO(n_epochs=4, minibatch_size=16, hidden_units=(4,))


def signal_before(monkeypatch, owner, name, number):
    """Sends SIGINT before that call of a function."""
    call, count = getattr(owner, name), [0]

    def counted(*args):
        count[0] += 1
        if count[0] == number:
            signal.raise_signal(signal.SIGINT)
        return call(*args)

    monkeypatch.setattr(owner, name, counted)


# Of the first epoch nobody knows how long it takes. An epoch of PPO has 8 steps, here
# one a piece: it is broken off between two of them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "interrupted", "epoch"),
    [
        ({}, (TinyAgent, "update", 1), 0),
        ({}, (TinyAgent, "update", 3), 2),
        ({"agent": AGENT}, (replicated, "run_update", 2 * 8 + 5), 2),
    ],
    ids=["first epoch", "third epoch", "gradient step"],
)
def test_a_long_epoch_is_broken_off_and_repeated_to_the_bit(
    tmp_path, monkeypatch, settings, interrupted, epoch
):
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 1)
    monkeypatch.setattr(replicated, "_PIECE_SECONDS", 0.0)
    monkeypatch.setattr(trainer, "_LONG_SECONDS", 0.0)
    intervals = dataclasses.replace(EVERY, checkpoint_epochs=100)
    settings = {"n_epochs": 3, "intervals": intervals, **settings}
    with build(tmp_path / "whole", **settings) as whole:
        whole.run(quiet=True)
    with monkeypatch.context() as patched, build(tmp_path / "cut", **settings) as first:
        signal_before(patched, *interrupted)
        before = first.agent
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            first.run(quiet=True)
        assert first.epoch == epoch and first.env_steps == 32 * epoch
        assert (first.agent is before) == (epoch == 0)
    assert checkpoints.list_steps(tmp_path / "cut") == [32 * epoch]
    with build(tmp_path / "cut", resume=True, **settings) as second:
        second.run(quiet=True)
    assert second.env_steps == whole.env_steps == 96
    assert_same(second.agent, whole.agent)


RARELY = dataclasses.replace(EVERY, checkpoint_epochs=100)


class Fails(keras.callbacks.Callback):
    def __init__(self, when, epoch, error=KeyError):
        super().__init__()
        setattr(self, f"on_epoch_{when}", self.fail)
        self.epoch, self.error = epoch, error

    def fail(self, epoch, logs=None):
        if epoch == self.epoch:
            raise self.error("mine")


@pytest.mark.parametrize("error", [KeyError, FileNotFoundError])
@pytest.mark.parametrize(("when", "epoch"), [("begin", 4), ("end", 3)])
def test_a_callback_that_raises_costs_no_epoch(tmp_path, when, epoch, error):
    with build(tmp_path / "whole", intervals=RARELY) as whole:
        whole.run(quiet=True)
    calls = {"callbacks": [Fails(when, epoch, error)], "intervals": RARELY}
    with build(tmp_path / "cut", **calls) as first:
        with pytest.raises(error, match="mine"):
            first.run(quiet=True)
    assert checkpoints.latest_step(tmp_path / "cut") == 4 * 32
    with build(tmp_path / "cut", intervals=RARELY, resume=True) as second:
        second.run(quiet=True)
    assert_same(second.agent, whole.agent)


class Falls(gym.Wrapper):
    """An environment that breaks once, in the middle of an epoch."""

    left = 5 * 16 + 3
    error = ArithmeticError("it fell")

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return super().step(action)


def falling(n_envs):
    return gym.vector.SyncVectorEnv(
        [lambda: Falls(gym.make("CartPole-v1"))] * n_envs,
        autoreset_mode=gym.vector.AutoresetMode.DISABLED,
    )


def test_an_environment_that_raises_costs_one_epoch_and_its_episodes(tmp_path):
    made = {"make_envs": falling, "intervals": RARELY, "n_epochs": 7}
    with build(tmp_path, **made) as first:
        with pytest.raises(ArithmeticError, match="it fell"):
            first.run(quiet=True)
        learned = first.agent.policy.weights.numpy()
    assert checkpoints.latest_step(tmp_path) == 5 * 32
    with build(tmp_path, resume=True, **made) as second:
        assert second.epoch == 5
        np.testing.assert_array_equal(second.agent.policy.weights, learned)
        with pytest.warns(UserWarning, match="new episodes: .* an environment had fa"):
            second.run(quiet=True)
        assert second.epoch == 7


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_environment_that_exits_costs_no_more(tmp_path, error, monkeypatch):
    monkeypatch.setattr(Falls, "error", error)
    with build(tmp_path, make_envs=falling, intervals=RARELY) as running:
        with pytest.raises(type(error)):
            running.run(quiet=True)
    assert checkpoints.latest_step(tmp_path) == 5 * 32


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_second_signal_saves_nothing(is_asked):
    saved = []
    interruption = _processes.Interruption()
    if is_asked:
        interruption.ask()
    for error in (KeyboardInterrupt, SystemExit, KeyError):
        saving = interruption.saving_if_it_fails(lambda: saved.append(1), lambda: True)
        with pytest.raises(error), saving:
            raise error
    assert len(saved) == (1 if is_asked else 3)


def test_the_first_error_is_told_where_nothing_can_be_saved(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no space")

    monkeypatch.setattr(checkpoints, "save_run", refuse)
    with build(tmp_path, callbacks=[Fails("end", 3)], intervals=RARELY) as running:
        with pytest.raises(KeyError, match="mine") as told:
            running.run(quiet=True)
    assert told.value.__notes__ == ["nor could the epochs before be saved: no space"]


class Odd(TinyAgent):
    """Its updates fail."""

    def update(self, given):
        raise ArithmeticError("it learned wrong")


def test_nothing_is_kept_of_an_update_that_raises(tmp_path, monkeypatch):
    with build(tmp_path, intervals=RARELY) as running:
        at_epoch(
            running, 2, lambda: monkeypatch.setattr(TinyAgent, "update", Odd.update)
        )
        with pytest.raises(ArithmeticError, match="it learned wrong"):
            running.run(quiet=True)
    assert checkpoints.latest_step(tmp_path) is None


def test_a_short_epoch_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "_LONG_SECONDS", np.inf)
    with build(tmp_path, n_epochs=3) as running:
        signal_before(monkeypatch, TinyAgent, "update", 2)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            running.run(quiet=True)
    assert running.epoch == 2 and checkpoints.list_steps(tmp_path) == [64]


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_passes_over_an_interrupt_is_broken_off(fails):
    """As Keras does where a layer is built, which then lacks its variables."""
    interruption = _processes.Interruption()

    def called(fails):
        with contextlib.suppress(BaseException):
            interruption.ask()
        if fails:
            raise ValueError("no variables")

    with pytest.raises(_processes.Interrupted):
        interruption.call(called, fails)
    with pytest.raises(_processes.Interrupted):
        interruption.call(called, fails)


def made_apart(n_envs):
    """One alone in a process."""
    kind = "async" if n_envs == 1 else "sync"
    return vector.make_vec("CartPole-v1", n_envs, kind)


def test_a_run_ends_as_it_would_without_the_environments_to_evaluate_in(tmp_path):
    intervals = cadence.Intervals(eval_episodes=1)
    with build(tmp_path, make_envs=made_apart, intervals=intervals) as running:
        processes = running.eval_envs.unwrapped.processes

        def kill_and_stop():
            os.kill(processes[0].pid, signal.SIGKILL)
            processes[0].join()
            signal.raise_signal(signal.SIGTERM)

        at_epoch(running, 2, kill_and_stop)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            running.run(quiet=True)
    assert checkpoints.latest_step(tmp_path) == 3 * 32


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_the_first_signal_is_noted_and_the_second_acts(number):
    caught = []
    before = signal.signal(number, lambda *_: caught.append(number))
    try:
        with _processes.interruptible() as interrupted:
            assert not interrupted()
            os.kill(os.getpid(), number)
            assert interrupted() and caught == []
            os.kill(os.getpid(), number)
            assert caught == [number]
        os.kill(os.getpid(), number)
        assert caught == [number] * 2
    finally:
        signal.signal(number, before)


def test_a_closed_terminal_asks_as_often_as_it_wants_to():
    caught = []
    before = signal.signal(signal.SIGHUP, lambda *_: caught.append(1))
    try:
        with _processes.interruptible() as interrupted:
            assert not interrupted()
            for _ in range(2):  # the shell says it, and the system
                os.kill(os.getpid(), signal.SIGHUP)
                assert interrupted() and not caught
        os.kill(os.getpid(), signal.SIGHUP)
        assert caught == [1]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under `nohup`
        with _processes.interruptible() as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupted()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_call_is_broken_off_and_the_rest_is_not():
    calls = []

    def called():
        calls.append("begun")
        os.kill(os.getpid(), signal.SIGTERM)
        calls.append("ended")

    with _processes.interruptible() as interrupted:
        assert interrupted.call(max, 1, 2) == 2
        for _ in range(2):  # and then nothing more is begun
            with pytest.raises(_processes.Interrupted):
                interrupted.call(called)
            assert interrupted() and calls == ["begun"]
    with _processes.interruptible() as interrupted:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()


def test_other_threads_are_never_interrupted():
    def run():
        with _processes.interruptible() as interrupted:
            return interrupted()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result() is False


def test_objects_are_settled_inside_and_collected_again_after(monkeypatch):
    collected = []
    monkeypatch.setattr(_processes.gc, "collect", lambda: collected.append(1))
    with pytest.raises(KeyError), _processes.settled():
        assert collected and gc.get_freeze_count() > 0
        raise KeyError
    assert gc.get_freeze_count() == 0


SLOW = """
import functools, sys
import gymnasium as gym
import numpy as np
import tfrl


class Images(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


gym.register("Images-v0", Images, max_episode_steps=5)
PPOAgent = type(tfrl.agents.PPO().create(
    Images.observation_space, Images.action_space, n_envs=1, n_steps=64,
    seed=0))
learn = PPOAgent.update


def update(agent, trajectory):
    print("learns", flush=True)
    return learn(agent, trajectory)


PPOAgent.update = update
with tfrl.training.Trainer(
    sys.argv[1],
    n_epochs=2,
    # Minutes of gradient steps.
    agent=tfrl.agents.PPO(n_epochs=20_000, minibatch_size=32),
    make_envs=functools.partial(
        tfrl.environments.make_vec, "Images-v0", vectorization="sync"),
    n_envs=2,
    experience=tfrl.training.Trajectories(16),
    intervals=tfrl.training.Intervals(eval_episodes=1),
) as running:
    try:
        running.run(quiet=True)
    except KeyboardInterrupt:
        print("ended in", running.epoch, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_process_that_learns_from_images_ends_in_seconds(tmp_path, number):
    (tmp_path / "slow.py").write_text(SLOW)
    child = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py"), str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert child.stdout.readline() == "learns\n"
    time.sleep(8)  # in the midst of gradient steps
    start = time.monotonic()
    child.send_signal(number)
    assert child.stdout.readline() == "ended in 0\n"
    seconds = time.monotonic() - start
    child.communicate(timeout=60)
    assert child.returncode == 0 and seconds < 5
    assert checkpoints.list_steps(tmp_path / "run") == [0]


class Moves(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            self.model.directory.rename(self.model.directory.with_name("moved"))


@pytest.mark.parametrize("intervals", [EVERY, RARELY], ids=["often", "rarely"])
def test_a_folder_that_is_moved_ends_the_run(tmp_path, intervals):
    options = {"callbacks": [Moves()], "intervals": intervals}
    with build(tmp_path / "run", **options) as running:
        with pytest.raises(ValueError, match="got .*run, moved .* --resume NEW"):
            running.run(quiet=True)
    assert [each.name for each in tmp_path.iterdir()] == ["moved"]
    steps = checkpoints.list_steps(tmp_path / "moved")
    assert bool(steps) == (intervals is EVERY) and all(x <= 2 * 32 for x in steps)
