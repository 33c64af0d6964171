"""Tests of `tfrl.training.collecting.actor_collection`: what comes, and what happens.

How each policy is played is in `test_actor_collection_policies`.
"""

import functools
import gc
import os
import pathlib
import re
import signal
import threading
import time
import traceback
import types

import actor_envs
import counted_rows
import gymnasium as gym
import numpy as np
import parallel_games
import pytest
from actor_trainers import (
    Idle,
    Killer,
    StoreWatch,
    T,
    Watch,
    build,
    has_all,
    pids_of,
    seats_of,
    until,
)
from running_processes import gone

from tfrl import rl_trainer
from tfrl._internal import acting
from tfrl.agents.on_policy import a2c, impala, ppo
from tfrl.core import records
from tfrl.environments import parallel_vector, vector
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import cadence, experience
from tfrl.training.collecting import (
    _actor_processes,
    _silent_actors,
    actor_collection,
)

CARTS = functools.partial(vector.make_vec, "CartPole-v1", vectorization="sync")
RECORDED = experience.FromDataset({"observations": np.zeros([9, 4], "f")}, 4)
REPLAYED = experience.Replayed(
    capacity=10_000, batch_size=8, n_steps=T, updates_per_step=0.01, n_step_returns=3
)


def metrics_of(folder):
    return run_log.read_metrics(folder / "metrics.csv")


def descriptors():
    """How many files are open, without what nobody needs any more."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def has_learned_of_all(watch, running):
    """Whether something came of each, and was not too old to be learned from."""
    return running.epoch > 9 and len(watch.lives()) == 8


@pytest.mark.slow
def test_every_row_comes_once_and_whole(tmp_path):
    before = descriptors()
    with build(tmp_path, 10**6) as running:
        watch = Watch(running)
        watch.then = until(running, functools.partial(has_learned_of_all, watch))
        running.run(quiet=True)
        pids = pids_of(running)
        maps = [pathlib.Path(f"/proc/{pid}/maps").read_text() for pid in pids]
    assert gone(*pids)
    assert watch.check()[0] == 8
    assert running.env_steps == running.epoch * 8 * T
    # Small networks are played without TensorFlow, in memory without a name.
    assert all("memfd:tfrl" in text for text in maps)
    assert not any("libtensorflow" in text or "/dev/shm" in text for text in maps)
    found = metrics_of(tmp_path)
    assert found["train/actor_lag_max"][0] == 0, "first pieces are by first weights"
    assert 0 < max(found["train/actor_lag_max"]) <= 2
    assert found["train/actor_lag"][-1] <= found["train/actor_lag_max"][-1]
    for name in ("learner_idle", "actors_idle"):
        assert all(0 < share <= 1 for share in found[f"train/{name}"])
    assert set(found["train/actors_replaced"]) == {0}
    del running, watch
    assert descriptors() == before


@pytest.mark.parametrize("max_lag", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_slow_learner_gets_what_is_not_older_than_the_lag(tmp_path, max_lag):
    settings = {"agent": Idle(0.05), "n_actors": 2, "max_lag": max_lag}
    with build(tmp_path, 500, **settings) as running:
        lags = running._collector._facts
        watch = Watch(running, until(running, lambda _: lags[-1][1] == max_lag))
        running.run(quiet=True)
    assert watch.check()[1] == 0
    found = metrics_of(tmp_path)
    assert found["train/trajectories_discarded"][-1] == 0
    # Actors play all that may wait while it learns.
    assert found["train/actor_lag_max"][0] == 0
    assert found["train/actor_lag_max"][-1] == max_lag


@pytest.mark.slow
def test_what_is_older_is_discarded_and_counted(tmp_path):
    # One of the actors takes far longer than the other for a piece.
    make = functools.partial(
        actor_envs.uneven, mark=tmp_path / "slow", learner=os.getpid()
    )
    settings = {"make_envs": make, "n_actors": 2, "max_lag": 1}
    with build(tmp_path / "run", 10**6, **settings) as running:
        played = running._collector
        watch = Watch(running, until(running, lambda _: played._n_discarded > 1))
        running.run(quiet=True)
        facts = running._collector.facts()
    _, missing = watch.check()
    assert missing <= 2 * facts["trajectories_discarded"]
    assert facts["trajectories_discarded"] > 1
    assert facts["actor_lag_max"] <= 1
    counted = metrics_of(tmp_path / "run")["train/trajectories_discarded"]
    assert counted[-1] == facts["trajectories_discarded"]


def killing(running, count):
    """Returns what begins to kill, and ends the run when all have been replaced."""
    killers = []

    def is_done(running):
        if not killers:
            killers.append(Killer(running, count, most=0.3))
        replaced = running._collector._engine.n_replaced
        return killers[0].done and replaced == count and has_all(running)

    return until(running, is_done, limit=10.0 + 4.0 * count)


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 50])
def test_killed_actors_are_replaced_and_leave_whole_pieces(tmp_path, count):
    with build(tmp_path, 10**6, seconds=1e-3) as running:
        watch = Watch(running, killing(running, count))
        running.run(quiet=True)
        pids = pids_of(running)
        facts = running._collector.facts()
    assert gone(*pids)
    assert facts["actors_replaced"] == count
    assert metrics_of(tmp_path)["train/actors_replaced"][-1] == count
    lives, missing = watch.check()
    assert 8 < lives <= 2 * (4 + count)
    assert missing <= 2 * facts["trajectories_discarded"]


@pytest.mark.parametrize("count", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_replay_has_each_row_once_in_its_episode(tmp_path, count):
    with build(tmp_path, 10**6, seconds=1e-3, experience=REPLAYED) as running:
        watch, played = StoreWatch(running), Watch(running, killing(running, count))
        running.run(quiet=True)
    # Nothing is discarded, and what is played is added in the order of each actor.
    assert played.check()[1] == 0
    assert running._collector.facts()["trajectories_discarded"] == 0
    assert watch.check() == len(played.lives()) > 8
    assert watch.check_drawn(3).max() == 3


def test_a_resumed_run_goes_on_by_other_draws(tmp_path, capfd):
    settings = {"experience": REPLAYED, "n_actors": 2}
    steps, epochs, actions = 0, 0, []
    for resume in (False, True):
        running = build(tmp_path, 10**6, resume=resume, **settings)
        added = StoreWatch(running)
        with running:
            watch = Watch(running, until(running, has_all))
            assert (running.epoch, running.env_steps) == (epochs, steps)
            running.run()
        assert watch.check() == (4, 0) and added.check() == 4
        assert added.check_drawn(3).max() == 3
        epochs += len(watch.given)
        steps = epochs * 4 * T
        assert running.env_steps == steps
        rows = watch.lives().values()
        actions.append({tuple(x.actions[:T].tolist()) for x in rows})
    assert not actions[0] & actions[1]
    found = metrics_of(tmp_path)
    assert found["epoch"].tolist() == [*range(1, epochs + 1)]
    assert found["env_steps"].tolist() == [4 * T * x for x in found["epoch"]]
    told = capfd.readouterr()
    told = told.out + told.err
    assert told.count("a resumed run will begin new episodes: actors play on") == 1
    assert told.count("resumed with new episodes: actors play on") == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*resumed with new episodes:UserWarning")
def test_more_actors_may_go_on(tmp_path):
    settings = {"experience": REPLAYED, "n_envs": 4}
    with build(tmp_path, 2, n_actors=1, **settings) as running:
        running.run(quiet=True)
    running = build(tmp_path, 10**6, n_actors=4, resume=True, **settings)
    watch = StoreWatch(running)
    Watch(running, until(running, has_all))
    with running:
        running.run(quiet=True)
    assert watch.check() == 4 and running.record.overrides == ()
    with pytest.raises(ValueError, match="collector.max_lag = 3 \\(was 2\\)"):
        build(tmp_path, 4, n_actors=4, max_lag=3, resume=True, **settings).__enter__()


@pytest.mark.parametrize(
    "first", ["host", pytest.param("actors", marks=pytest.mark.slow)]
)
def test_host_and_actors_take_turns_by_an_override(tmp_path, first):
    order = ["host", "actors"] if first == "host" else ["actors", "host"]
    pool = actor_collection.ActorPool(2)
    pools = [pool if name == "actors" else name for name in order]
    settings = {"n_actors": 2, "make_envs": CARTS}
    with build(tmp_path, 2, collector=pools[0], **settings) as running:
        running.run(quiet=True)
    settings |= {"collector": pools[1], "resume": True}
    with pytest.raises(ValueError, match="`resume` expected .* got collector"):
        build(tmp_path, 4, **settings).__enter__()
    with build(tmp_path, 4, override=True, **settings) as running:
        assert re.match("resumed with new episodes: .*actors", running.notice)
        assert running.epoch == 2
        with pytest.warns(UserWarning, match="resumed with new episodes: .*actors"):
            running.run(quiet=True)
    assert running.env_steps == 4 * 4 * T
    found = metrics_of(tmp_path)
    assert found["epoch"].tolist() == [1, 2, 3, 4]
    assert np.isfinite(found["train/actor_lag"]).tolist() == [
        name == "actors" for name in order for _ in range(2)
    ]


def test_who_is_lost_is_replaced_while_others_play_enough(tmp_path, caplog):
    # Pieces wait whenever this learner asks for some.
    with build(tmp_path, 100, agent=Idle(0.1), n_actors=2, seconds=1e-4) as running:

        def then():
            if running.epoch == 2:
                os.kill(pids_of(running)[0], signal.SIGKILL)
            running.stop_training = any(seat.start for seat in seats_of(running))

        Watch(running, then)
        running.run(quiet=True)
    assert 2 < running.epoch < 10
    [told] = (x.getMessage() for x in caplog.records if x.name.startswith("tfrl"))
    assert told.startswith("`Trainer`: actor 0 expected to play on; got its end by ")
    assert "signal SIGKILL; another begins in its place" in told
    assert told.endswith("not logged, but counted in train/actors_replaced")


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="int"),
        pytest.param(signal.SIGTERM, id="term", marks=pytest.mark.slow),
    ],
)
def test_a_run_whose_actors_hang_says_so_and_can_be_interrupted(
    tmp_path, monkeypatch, caplog, number
):
    monkeypatch.setattr(_actor_processes.stop_all, "__defaults__", (0.2,))
    # After two pieces of each.
    make = functools.partial(
        actor_envs.failing, how="hang", learner=os.getpid(), at=2 * T + 5
    )
    settings = {"make_envs": make, "n_actors": 2}
    settings["intervals"] = cadence.Intervals(eval_episodes=1)

    def told():
        records = (x for x in caplog.records if x.name.startswith("tfrl"))
        return [x.getMessage() for x in records]

    def interrupt():
        end = time.monotonic() + 60
        while not told() and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    with build(tmp_path, 10**6, **settings) as running:

        def then():
            if running.epoch == 1:
                monkeypatch.setattr(_silent_actors, "SECONDS", 0.3)
                threading.Thread(target=interrupt).start()

        Watch(running, then)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            running.run(quiet=True)
        assert (running.epoch, running.env_steps) == (2, 2 * 4 * T)
    # Each once: together, where no busy machine lets them fall silent one by one.
    named = [x for line in told() for x in ("actor 0", "actor 1") if x in line]
    assert named and len(named) == len(set(named)) and "got nothing from" in told()[0]
    assert checkpoints.list_steps(tmp_path) == [running.env_steps]
    monkeypatch.setattr(_silent_actors, "SECONDS", 60.0)
    with (
        build(tmp_path, 4, resume=True, **settings) as again,
        pytest.warns(UserWarning, match="resumed with new episodes: actors play on"),
    ):
        assert again.run(quiet=True) is not None and again.epoch == 4


def test_actors_that_fall_silent_together_are_told_of_together_and_once(
    monkeypatch, caplog
):
    now = [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(_silent_actors, "time", clock)
    silent = _silent_actors.SilentActors(3)
    for now[0], heard in ((10.0, [0, 1, 2]), (30.0, [1]), (60.0, [2]), (69.0, [])):
        for number in heard:
            silent.heard(number)
        silent.tell(range(3))
    assert not caplog.records
    for now[0] in (71.0, 95.0, 121.0, 500.0):
        silent.tell(range(3))
    # Actor 2 was heard within the half of the time that makes it one with others.
    assert [
        x.getMessage().split("from ")[1].split(" for")[0] for x in caplog.records
    ] == [
        "actor 0, actor 1",
        "actor 2",
    ]


@pytest.mark.parametrize("settings", [{}, {"experience": REPLAYED}])
def test_what_came_before_an_interruption_is_learned_from_afterwards(
    tmp_path, monkeypatch, settings
):
    monkeypatch.setattr(actor_collection, "_PATIENCE_SECONDS", 0.0)
    with build(tmp_path, 10**6, 1e-2, n_actors=2, **settings) as running:
        watch = Watch(running, until(running, lambda x: x.epoch > 4))
        place, signals = running._collector._place, [signal.SIGINT]

        def interrupting(*args):
            if running.epoch == 2 and signals:  # the first piece of the third epoch
                signal.raise_signal(signals.pop())
                engine = running._collector._engine
                monkeypatch.setattr(engine, "take", asking_first(engine.take))
            return place(*args)

        def asking_first(take):  # else a piece that is there already ends the epoch
            return lambda place, go_on: (go_on(), take(place, go_on))

        running._collector._place = interrupting
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            running.run(quiet=True)
        assert running.epoch == 2
        assert checkpoints.list_steps(tmp_path) == [2 * 4 * T]
        running.run(quiet=True)
    assert running.epoch > 4 and running.env_steps == running.epoch * 4 * T
    assert watch.check() == (4, 0)


def test_what_an_environment_raises_ends_the_run(tmp_path):
    given = {"how": "error", "learner": os.getpid(), "at": 5 * T}
    make = functools.partial(actor_envs.failing, **given)
    with build(tmp_path, make_envs=make) as running:
        with pytest.raises(RuntimeError) as raised:
            running.run(quiet=True)
        first, *_, last = str(raised.value).split("\n")
        assert re.fullmatch("`Trainer`: actor [0-3] expected .* got:", first)
        assert last == "OSError: the wheel came off"
        # Nothing is told twice.
        told = "".join(traceback.format_exception(raised.value))
        assert told.count(last) == told.count("direct cause") + 1 == 1
        pids = pids_of(running)
        # As of the collector "host", the epochs before are saved.
        assert running.epoch > 0
        assert checkpoints.latest_step(tmp_path) == running.env_steps
    assert gone(*pids)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*resumed with new episodes:UserWarning")
def test_an_actor_that_ends_before_it_plays_is_tried_three_times(tmp_path):
    mark = tmp_path / "enough"
    make = functools.partial(actor_envs.dying, mark=mark, learner=os.getpid())
    with build(tmp_path / "run", 10**6, make_envs=make, n_actors=2) as running:

        def then():
            if running.epoch == 2:
                mark.touch()
                for pid in pids_of(running):
                    os.kill(pid, signal.SIGKILL)

        Watch(running, then)
        with pytest.raises(ConnectionError, match="SIGKILL.*\nit ended 3 times before"):
            running.run(quiet=True)
        # All finished epochs are kept.
        assert checkpoints.list_steps(tmp_path / "run")[-1] == running.env_steps > 0
        assert running._collector.facts()["actors_replaced"] >= 4
    mark.unlink()
    settings = {"make_envs": make, "n_actors": 2, "resume": True}
    with build(tmp_path / "run", running.epoch + 1, **settings) as again:
        again.run(quiet=True)


@pytest.mark.slow
def test_closing_kills_who_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(_actor_processes, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(_actor_processes.stop_all, "__defaults__", (0.2,))
    make = functools.partial(actor_envs.failing, how="hang", learner=os.getpid())
    running = build(tmp_path, make_envs=make, n_actors=2)
    with running:
        running._collector._publish(running.agent.policy)
        pids = pids_of(running)
        time.sleep(1.0)
        start = time.monotonic()
    assert gone(*pids) and time.monotonic() - start < 4
    running.close()


@pytest.mark.parametrize(
    ("error", "match", "settings"),
    [
        (ValueError, "`n_envs` expected equally many .* 4 actors", {"n_envs": 6}),
        (TypeError, "`agent` expected .* got PPOAgent", {"agent": ppo.PPO()}),
        (TypeError, "`agent` expected .* got A2CAgent", {"agent": a2c.A2C()}),
        (TypeError, "`collector` expected .* got {}", {"collector": {}}),
        (ValueError, "`collector` expected .* got 'actor'", {"collector": "actor"}),
        (
            ValueError,
            "`collector` expected 'host' beside a `FromDataset`",
            {"experience": RECORDED},
        ),
    ],
)
def test_bad_input(tmp_path, error, match, settings):
    with pytest.raises(error, match="`Trainer`: " + match):
        build(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_actors_play_whole_environments_of_several_agents(tmp_path):
    settings = {
        "make_envs": functools.partial(
            parallel_vector.ParallelEnvVector, parallel_games.Relay
        ),
        "intervals": cadence.Intervals(eval_episodes=3),
    }
    match = r"`Trainer`: `n_envs` .* n_agents = 12, .* got 16; take 24"
    with pytest.raises(ValueError, match=match):
        build(tmp_path, n_envs=16, **settings)
    build(tmp_path, n_envs=24, **settings).close()


@pytest.mark.parametrize("name", ["n_actors", "max_lag"])
def test_bad_pools(name):
    with pytest.raises(ValueError, match=f"`ActorPool`: `{name}` expected .* got 0"):
        actor_collection.ActorPool(**{name: 0})
    with pytest.raises(TypeError, match=f"`ActorPool`: `{name}` expected .* got 2.0"):
        actor_collection.ActorPool(**{name: 2.0})


@pytest.mark.slow
def test_environments_that_only_the_learner_registers_are_played(tmp_path, monkeypatch):
    spec = gym.envs.registration.EnvSpec(
        "Short-v0", entry_point=lambda: gym.make("CartPole-v1"), max_episode_steps=7
    )
    monkeypatch.setitem(gym.registry, "Short-v0", spec)
    make_envs = functools.partial(vector.make_vec, "Short-v0", vectorization="sync")
    with build(tmp_path, 3, make_envs=make_envs) as running:
        running.run(quiet=True)
        assert max(running._collector.episode_lengths) == 7


@pytest.mark.slow
def test_what_cannot_be_sent_is_refused(tmp_path):
    lock = threading.Lock()

    def make_envs(n_envs):
        with lock:
            return actor_envs.lived(n_envs)

    before = descriptors()
    with build(tmp_path, make_envs=make_envs) as running:
        with pytest.raises(TypeError, match="actor 0 expected to be picklable"):
            running.run(quiet=True)
    del running
    assert descriptors() == before


@pytest.mark.slow
def test_numbers_that_are_none_are_told(tmp_path):
    def make_envs(n_envs):
        return gym.vector.SyncVectorEnv(
            [actor_envs.nan] * n_envs,
            autoreset_mode=gym.vector.AutoresetMode.DISABLED,
        )

    with build(tmp_path, make_envs=make_envs) as running:
        with pytest.raises(ValueError, match="next_observations.* got nan"):
            running.run(quiet=True)
        pids = pids_of(running)
    assert gone(*pids)


@pytest.mark.parametrize("mode", [pytest.param("same", marks=pytest.mark.slow), "next"])
def test_environments_that_reset_themselves(tmp_path, mode):
    # The same numbers in each actor: told apart by nothing, but all are counted.
    make = functools.partial(actor_envs.vector, mode=mode)
    with build(tmp_path, 5, n_actors=1, make_envs=make) as running:
        given = Watch(running).given
        running.run(quiet=True)
    whole = {
        name: np.concatenate([getattr(x, name) for x in given])
        for name in records.Trajectory._fields
        if name != "states"
    }
    assert running.env_steps == whole["valid"].sum() <= 5 * 2 * T
    for number in range(2):
        valid = whole["valid"][:, number]
        assert valid.all() == (mode == "same")
        columns = {name: column[:, number][valid] for name, column in whole.items()}
        counted_rows.check(number, records.Trajectory(**columns))


@pytest.mark.slow
def test_by_name_it_is_a_pool_of_four(tmp_path):
    config = impala.IMPALA(hidden_units=(4,))
    settings = {"collector": "actors", "make_envs": CARTS, "n_envs": 4}
    with build(tmp_path, 3, agent=config, **settings) as running:
        running.run(quiet=True)
        assert len(seats_of(running)) == 4
    with rl_trainer.open_run(tmp_path) as run:
        assert run.policy is not None


def test_each_actor_has_a_place_among_the_environments():
    layout = acting.Layout(np.zeros((2, 1), "f"), np.zeros(2, int), (), (), 3)
    columns = [np.zeros(shape, dtype) for shape, dtype in layout.columns]
    found = actor_collection._Pieces(4, 2)
    for number, actor in enumerate([2, 0, 2, 3]):
        piece = layout.unpacked(columns)
        piece.rewards[:] = number
        found.add(piece, actor, number == 0, lag=0)
    # The second of actor 2 takes the place of actor 1, of whom there is none.
    assert found.is_full and found.trajectory().rewards.shape == (3, 8)
    assert found.trajectory().rewards[0].tolist() == [1, 1, 2, 2, 0, 0, 3, 3]
    assert found.origins == [
        (2, True, 2),
        (0, False, 0),
        (2, False, 1),
        (3, False, 3),
    ]
