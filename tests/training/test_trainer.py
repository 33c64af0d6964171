"""A trainer: what it leaves, resumes and refuses; see also `test_trainer_*`."""

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
import keras
import numpy as np
import plain_graphs
import pytest
import tensorflow as tf
from default_rows import slow
from tiny_agents import (
    EVERY,
    MAKE,
    Tiny,
    assert_same,
    assert_same_rows,
    at_epoch,
    build,
    stop_in,
    train,
)

from tfrl.agents.on_policy import _on_policy, ppo
from tfrl.core import pytree
from tfrl.environments import vector
from tfrl.policies import host_policy
from tfrl.saving import checkpoints
from tfrl.schedules import progress, schedulers
from tfrl.summaries import run_log
from tfrl.training import _run_record, cadence, experience, trainer

PPO = ppo.PPO(
    n_epochs=2,
    minibatch_size=16,
    hidden_units=(8,),
    normalize_observations=True,
    normalize_rewards=True,
    learning_rate_schedule="linear",
)


def record_of(folder):
    return _run_record.read("test", folder)


def test_a_run_leaves_metrics_events_and_checkpoints(tmp_path):
    running, played = train(tmp_path)
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
    make_envs = functools.partial(vector.make_vec, env_id, vectorization=vectorization)
    settings = {"agent": PPO, "make_envs": make_envs}
    with plain_graphs.own_traces():
        whole, _ = train(tmp_path / "whole", **settings)
        assert _on_policy._compiled_update.trace_count() == 1
    with build(tmp_path / "cut", **settings) as first:
        stop_in(first, 2)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            first.run(quiet=True)
        assert first.epoch == 3
    resumed, played = train(tmp_path / "cut", resume=True, **settings)
    assert resumed.notice is None and played is not None
    assert resumed.env_steps == whole.env_steps
    assert_same(resumed.agent, whole.agent)
    assert_same_rows(tmp_path / "whole", tmp_path / "cut")


def test_a_run_that_has_done_more_than_is_asked_for_is_over(tmp_path, capsys):
    done, _ = train(tmp_path)
    with build(tmp_path, resume=True, n_epochs=2) as again:
        played = again.run()
    assert f"100%  {done.env_steps}/{done.env_steps} steps" in capsys.readouterr().out
    assert played.returns.shape == (2,)
    assert (again.epoch, again.env_steps) == (done.epoch, done.env_steps)
    assert_same(again.agent, done.agent)


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


@pytest.mark.parametrize("replayed", [False, True], ids=["trajectories", "replayed"])
def test_environments_that_cannot_be_captured_start_anew(tmp_path, capfd, replayed):
    settings = {"make_envs": uncapturable}
    if replayed:
        settings["experience"] = experience.Replayed(200, 8, learning_starts=24)
    with build(tmp_path, **settings) as first:
        stop_in(first, 1)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            first.run()
    out = "".join(capfd.readouterr())
    assert out.count("a resumed run will begin new episodes") == 1
    assert out.index("handle is of type") < out.index("%")
    with build(tmp_path, resume=True, **settings) as resumed:
        assert "handle" in resumed.notice
        if replayed:
            size = first._source._replay.size
            assert resumed._source._replay.size >= size > 0
        with pytest.warns(UserWarning, match="Trainer.run`: resumed with new") as told:
            resumed.run(quiet=True)
        assert {x.filename for x in told} == {__file__} and len(told) == 1
    # Rows in which an environment only resets are no experience.
    columns = run_log.read_metrics(tmp_path / "metrics.csv")
    assert resumed.epoch == 6
    assert resumed.env_steps == columns["env_steps"][-1] < 6 * 32


@pytest.mark.slow
def test_a_lost_environment_loses_no_finished_epoch(tmp_path):
    make_envs = functools.partial(vector.make_vec, "CartPole-v1", vectorization="async")
    settings = {"intervals": cadence.Intervals(eval_episodes=1), "n_envs": 2}
    with build(tmp_path, make_envs=make_envs, **settings) as running:
        workers = running._collector.envs.unwrapped.processes
        at_epoch(running, 3, lambda: os.kill(workers[1].pid, signal.SIGKILL))
        with pytest.raises(ConnectionError, match="environment 1 .exit code -9"):
            running.run(quiet=True)
    assert checkpoints.latest_step(tmp_path) == 3 * 32
    with pytest.warns(UserWarning, match="resumed with new episodes"):
        assert train(tmp_path, resume=True, **settings)[0].epoch == 6


def test_a_run_is_within_a_context(tmp_path):
    running = build(tmp_path / "run")
    with pytest.raises(RuntimeError, match=r"within `with Trainer\(...\) as trainer:`"):
        running.run()
    with running:
        pass
    with pytest.raises(RuntimeError, match="`Trainer.run`"):
        running.run()
    assert not (tmp_path / "run" / "metrics.csv").exists()


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
    """Hyper-parameters of one of both, or of something else."""

    kind: Any
    returned: Any = None

    def create(self, observation_space, action_space, *, seed):
        policy = Tiny().create(observation_space, action_space, seed=seed).policy
        return self.kind(policy, self.returned)


class OfSpaces:
    def create(self, spaces):
        return spaces


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


SAVES = keras.callbacks.ModelCheckpoint("x.keras")
KEEPS_BEST = keras.callbacks.EarlyStopping(restore_best_weights=True)
LOOKS_AT_BATCHES = keras.callbacks.TerminateOnNaN()
SWAPS = keras.callbacks.SwapEMAWeights()
WRITES_ROWS = keras.callbacks.CSVLogger("x.csv")


@pytest.mark.parametrize(
    ("error", "name", "value", "match"),
    [
        (ValueError, "n_envs", 0, ""),
        (ValueError, "total_env_steps", 0, ""),
        (ValueError, "seed", -1, ""),
        (
            ValueError,
            "seed",
            2**63 - 1,
            r"\[0, 9223372032559808512\]; got 922337203685477",
        ),
        (ValueError, "stop_at_return", np.nan, ""),
        (ValueError, "stop_at_return", 1.0, "`intervals` expected `eval_epochs`"),
        (TypeError, "intervals", 3, ""),
        (TypeError, "callbacks", None, ""),
        (TypeError, "callbacks", keras.callbacks.Callback(), ""),
        (TypeError, "callbacks", [print], "callbacks of Keras"),
        (TypeError, "callbacks", [SAVES], ""),
        (TypeError, "callbacks", [KEEPS_BEST], ""),
        (TypeError, "callbacks", [LOOKS_AT_BATCHES], "got TerminateOnNaN; leave it o"),
        (TypeError, "callbacks", [SWAPS], "got SwapEMAWeights; leave it out"),
        (TypeError, "callbacks", [WRITES_ROWS], "got CSVLogger, .*`metrics.csv`"),
        (TypeError, "agent", 3, "expected hyper-param"),
        (TypeError, "agent", ppo.PPO, "expected hyper-param"),
        (TypeError, "agent", vector.make_vec, "expected hyper-param"),
        (TypeError, "agent", OfSpaces(), "takes two spaces and seed; got OfSpaces"),
        (TypeError, "agent", Making(Returning), "that can be saved"),
        (TypeError, "agent", Making(slice), "with `policy`, which has `act`"),
        (TypeError, "network", print, "None, as `create`"),
        (ValueError, "agent", ppo.PPO(squash=True, minibatch_size=16), "`squash`"),
        (ValueError, "agent", ppo.PPO(minibatch_size=7), "`minibatch_size` expected"),
        (
            ValueError,
            "make_envs",
            functools.partial(vector.make_vec, "No-v0"),
            "a registered",
        ),
    ],
)
def test_what_is_off_is_told_before_anything_is_written(
    tmp_path, error, name, value, match
):
    with pytest.raises(error, match=match or f"`Trainer`: `{name}` expected"):
        build(tmp_path / "run", **{name: value})
    assert not (tmp_path / "run").exists()


def test_what_is_no_folder():
    with pytest.raises(TypeError, match="`Trainer`: `output_dir` expected a path"):
        build(None)


def test_what_is_no_vector_of_environments(tmp_path):
    with pytest.raises(TypeError, match="`Trainer`: `make_envs` expected a vector env"):
        build(tmp_path, make_envs=lambda n_envs: gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="`make_envs` expected to make 2 env.*got 3"):
        build(tmp_path, make_envs=lambda n_envs: MAKE(n_envs=3))
    with contextlib.closing(MAKE(n_envs=2)) as made:
        for other, got in [
            ("CartPole-v1", "got 'CartPole-v1'"),
            (made, "got .*Vector"),
            (gym.make("CartPole-v1"), "got .*CartPoleEnv"),
            (Walkable, "got the environment class Walkable"),
            (lambda n: made, r"got a function of \(n\)"),
            (vector.make_vec, "got 'make_vec', missing a required argument: 'env_id';"),
        ]:
            expected = f"`Trainer`: `make_envs` expected a function that .*{got}.*pass"
            with pytest.raises(TypeError, match=expected):
                build(tmp_path, make_envs=other)
    for other in (functools.partial(MAKE, n_envs=2), lambda **given: MAKE(**given)):
        build(tmp_path, make_envs=other).close()


@pytest.mark.parametrize("returned", [3, ("agent", None)], ids=["number", "no info"])
def test_what_update_returns_is_looked_at(tmp_path, returned):
    with pytest.raises(TypeError, match="whose `update` returns \\(agent, info\\)"):
        train(tmp_path, agent=Making(Told, returned))


class Growing(pytree.PyTreeNode):
    """An agent that `change`s one of its arrays in every update."""

    policy: Any
    change: Any = pytree.nonpytree_field()
    kept: Any = ()

    def update(self, trajectory):
        del trajectory
        return self.replace(kept=self.change(self.kept)), {"loss": 0.0}


@dataclasses.dataclass(frozen=True)
class MakingGrowing:
    change: Any

    def create(self, observation_space, action_space, *, seed):
        policy = Tiny().create(observation_space, action_space, seed=seed).policy
        return Growing(policy, self.change, tf.zeros([2]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: tf.concat([x, x], 0), r"agent/kept is float32 \[4\] after it"),
        (lambda x: (x, x), "agent/kept/0 is float32"),
        (lambda x: tf.cast(x, tf.float64), "float64"),
    ],
    ids=["shape", "structure", "dtype"],
)
def test_an_agent_of_other_arrays_is_never_kept(tmp_path, change, words):
    with pytest.raises(ValueError, match=f"`agent` expected an `update`.*{words}"):
        train(tmp_path, agent=MakingGrowing(change))
    assert checkpoints.latest_step(tmp_path) is None
    assert checkpoints.latest_step(tmp_path / "best") is None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "settings", [{}, *slow({"activation": "elu"}, {"memory": "gru"})]
)
def test_weights_that_are_not_finite_are_never_kept(tmp_path, settings):
    diverging = dataclasses.replace(PPO, learning_rate=1e38, **settings)
    with pytest.raises(ValueError, match="weights that are finite.*lower the learning"):
        train(tmp_path, agent=diverging)
    assert checkpoints.latest_step(tmp_path) is None
    epochs = run_log.read_metrics(tmp_path / "metrics.csv")["epoch"]
    np.testing.assert_array_equal(epochs, np.arange(1, len(epochs) + 1))
    assert len(epochs)  # that is told of the one that broke


def test_what_acts_is_compared_with_its_network_now_and_then(tmp_path, monkeypatch):
    compared, push = [], host_policy.HostPolicy.push

    def pushed(self, policy, probe=None):
        compared.append(probe is not None)
        push(self, policy, probe)

    monkeypatch.setattr(host_policy.HostPolicy, "push", pushed)
    train(tmp_path, agent=PPO)
    epochs = compared[1:]  # the first made it
    assert epochs[0] and sum(epochs) == -(-len(epochs) // 10)


def test_defaults(tmp_path):
    with contextlib.closing(trainer.Trainer(tmp_path, make_envs=MAKE)) as made:
        assert type(made.agent) is type(
            ppo.PPO().create(made.observation_space, made.action_space)
        )
        assert made.intervals == cadence.Intervals()
    # Whole epochs.
    with contextlib.closing(build(tmp_path, total_env_steps=65)) as made:
        assert made.n_epochs == 3


def test_schedules_read_how_far_the_run_is(tmp_path):
    schedule = schedulers.LinearScheduler("percent", [(0.0, 0.0), (1.0, 8.0)])
    with build(tmp_path, n_epochs=4) as running:
        seen = []
        gather = running.gather

        def look():
            now = progress.current_progress()
            seen.append((schedule(), now.iterations, now.env_steps))
            return gather()

        running.gather = look
        running.run(quiet=True)
    assert seen == [(0.0, 0, 0), (2.0, 1, 32), (4.0, 2, 64), (6.0, 3, 96)]
    assert schedule() == 0.0


def test_a_kill_at_any_write_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    intervals = cadence.Intervals(eval_episodes=1, checkpoint_epochs=1)
    rename, left = os.rename, []

    def dying(*paths):
        if not left.pop():
            raise Killed
        return rename(*paths)

    for survived in range(3):
        run = tmp_path / str(survived)
        left[:] = [False, *[True] * survived]
        monkeypatch.setattr(os, "rename", dying)
        with pytest.raises(Killed):
            train(run, n_epochs=2, intervals=intervals)
        monkeypatch.setattr(os, "rename", rename)
        resume = checkpoints.latest_step(run) is not None
        assert resume == (survived > 1)
        train(run, n_epochs=3, resume=resume, intervals=intervals)
        assert record_of(run).overrides == ()


def breakable(n_envs):
    wrap = Walkable if n_envs == 3 else gym.Wrapper
    return gym.vector.SyncVectorEnv(
        [lambda: wrap(gym.make("CartPole-v1"))] * n_envs,
        autoreset_mode=gym.vector.AutoresetMode.DISABLED,
    )


@pytest.mark.parametrize(
    ("asked", "eval_epochs"), [(signal.SIGINT, None), (signal.SIGTERM, 2)]
)
def test_an_evaluation_can_be_interrupted(tmp_path, monkeypatch, asked, eval_epochs):
    intervals = dataclasses.replace(EVERY, eval_epochs=eval_epochs, eval_episodes=3)
    intervals = dataclasses.replace(intervals, checkpoint_epochs=100)
    settings = {"make_envs": breakable, "n_epochs": 3, "intervals": intervals}
    whole, expected = train(tmp_path / "whole", **settings)
    cut = tmp_path / "cut"
    monkeypatch.setattr(Walkable, "ends", False)
    monkeypatch.setattr(Walkable, "steps", 0)
    monkeypatch.setattr(Walkable, "asked", asked)
    with build(cut, **settings) as broken_off:
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            broken_off.run(quiet=True)
    assert Walkable.steps <= 6
    epochs = eval_epochs or 3
    assert broken_off.epoch == epochs
    assert checkpoints.list_steps(cut) == [epochs * 32]
    rows = run_log.read_metrics(cut / "metrics.csv")
    assert rows["epoch"].tolist() == [*range(1, epochs)]
    monkeypatch.setattr(Walkable, "ends", True)
    resumed, played = train(cut, resume=True, **settings)
    np.testing.assert_array_equal(played.returns, expected.returns)
    assert_same(resumed.agent, whole.agent)
    assert_same_rows(tmp_path / "whole", cut)


def test_the_last_checkpoint_is_there_before_the_final_evaluation(tmp_path):
    with build(tmp_path, n_epochs=2) as running:
        evaluated = running._evaluated

        def killed(asked_to_end):
            raise MemoryError

        running._evaluated = killed
        with pytest.raises(MemoryError):
            running.run(quiet=True)
        assert checkpoints.list_steps(tmp_path) == [64]
        running._evaluated = evaluated
        played = running.evaluate()
    _, again = train(tmp_path, n_epochs=2, resume=True)
    np.testing.assert_array_equal(again.returns, played.returns)
    rows = run_log.read_metrics(tmp_path / "metrics.csv")
    assert rows["eval/return_mean"][-1] == again.returns.mean()


_CHILD = """
import sys
from test_trainer import child
child(*sys.argv[1:])
"""


def child(folder, mode, n_epochs, sampler):
    """What a process does that is going to be killed."""
    settings = {"agent": PPO}
    if sampler:
        settings = {
            "experience": experience.Replayed(
                200, 8, learning_starts=24, sampler=sampler
            )
        }
    with build(
        folder,
        int(n_epochs),
        resume=mode == "resume",
        intervals=cadence.Intervals(1, 50, 1, 1),
        **settings,
    ) as running:
        running.run(quiet=True)


def spawn(folder, mode, n_epochs, sampler):
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(folder), mode, str(n_epochs), sampler],
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "n_kills", "n_epochs", "seed"),
    [
        *[("", 5, 150, seed) for seed in range(4)],
        *[(sampler, 4, 200, 0) for sampler in ("uniform", "prioritized")],
    ],
)
def test_killed_and_resumed_equals_uninterrupted(
    tmp_path, sampler, n_kills, n_epochs, seed
):
    whole = tmp_path / "whole"
    assert spawn(whole, "new", n_epochs, sampler).wait() == 0
    chance = random.Random(seed)
    folder, mode, at = tmp_path / "killed", "new", 0
    for _ in range(n_kills):
        victim = spawn(folder, mode, n_epochs, sampler)
        # Let it save a few times, then kill it at any moment of its loop.
        goal = at + n_epochs * 32 // (2 * n_kills + 2)
        while (checkpoints.latest_step(folder) or 0) < goal:
            assert victim.poll() is None, "the run ended before it could be killed"
            time.sleep(0.002)
        time.sleep(chance.random() * 0.1)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        at, mode = checkpoints.latest_step(folder), "resume"
        assert at >= goal
    assert spawn(folder, "resume", n_epochs, sampler).wait() == 0
    with contextlib.closing(build(tmp_path, agent=Tiny() if sampler else PPO)) as like:
        runs = [checkpoints.load_run(x, like.agent) for x in (whole, folder)]
    assert runs[0][2] == runs[1][2]
    assert_same(runs[1][0], runs[0][0])
    assert_same_rows(whole, folder)


def test_who_is_at_work_in_a_folder_is_told_before_what_is_there(tmp_path):
    with build(tmp_path / "run", n_epochs=1) as first:
        first.run(quiet=True)
        for resume in (False, True):
            message = f"`RunLock`: .*held by pid {os.getpid()} "
            with (
                pytest.raises(ValueError, match=message),
                build(tmp_path / "run", resume=resume),
            ):
                pass
    with (
        pytest.raises(ValueError, match="with one at .*resume it"),
        build(tmp_path / "run"),
    ):
        pass
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ValueError, match="without one"), build(other, resume=True):
        pass
    assert not [*other.iterdir()]


def test_rows_that_are_gone_are_done_without_by_override(tmp_path, capsys):
    intervals = cadence.Intervals(eval_episodes=2, checkpoint_epochs=1)
    settings = {"intervals": intervals, "resume": True}
    with build(tmp_path, n_epochs=2) as first:
        first.run(quiet=True)
    (tmp_path / "metrics.csv").unlink()
    with build(tmp_path, n_epochs=3, **settings) as refused:
        with pytest.raises(
            ValueError, match="got no such file; .*or .* \\(--override\\)"
        ):
            refused.run(quiet=True)
    with build(tmp_path, n_epochs=3, override=True, **settings) as again:
        again.run()
    told = "metrics.csv is gone: a new one begins, without the rows up to 32 environ"
    assert told in capsys.readouterr().out
    rows = run_log.read_metrics(tmp_path / "metrics.csv")["env_steps"].tolist()
    assert rows == [64, 96] and first.env_steps == 64
    with build(tmp_path, n_epochs=4, **settings) as more:
        more.run(quiet=True)
    again = run_log.read_metrics(tmp_path / "metrics.csv")["env_steps"].tolist()
    assert again == [64, 96, 128]
