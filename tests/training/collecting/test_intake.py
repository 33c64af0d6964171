"""Tests of `tfrl.training.collecting._intake`, its actors played in this process."""

import time

import actor_envs
import counted_rows
import numpy as np
import pytest
import tensorflow as tf

from tfrl._internal import acting
from tfrl.core import records
from tfrl.host import networks, shared_rows
from tfrl.replay import data_buffer, episodes, ring_buffer
from tfrl.training.collecting import _intake


class StillProcess:
    """Stands for the process of an actor that plays here."""

    def __init__(self):
        self.failure, self.stops = None, 0

    def receive(self, timeout):
        if self.failure:
            raise RuntimeError(self.failure)

    def stop(self, patience):
        self.stops += 1


def new_actors(count=2, n_envs=3, mode="next", make_env=None):
    """Actors that play counting environments, and sources for an intake."""
    network = networks.NumpyNetwork(
        [np.zeros((4, 3), "f")], [np.zeros(3, "f")], ["linear"]
    )
    weights = shared_rows.SharedArrays([*network.arrays(), np.zeros(0)])
    actors, sources = [], []
    for number, seed in enumerate(np.random.SeedSequence(0).spawn(count)):
        job = acting.Job(
            make_env or (lambda: actor_envs.vector(n_envs, mode)),
            network,
            actor_envs.drawn,
            None,
            (),
            weights.fd,
            shared_rows.new_memory(),
            seed,
        )
        actor = acting.Actor(job)
        ids = number * n_envs + np.arange(n_envs)
        sources.append(_intake.Source(StillProcess(), actor.ring(), ids))
        actors.append(actor)
    return actors, sources


def play(actors, sources, n_steps):
    for _ in range(n_steps):
        for actor, source in zip(actors, sources, strict=True):
            assert actor.step(source.ring)


def taken(store, n_steps=200, **kwargs):
    """Plays into a store and returns the intake, stopped."""
    actors, sources = new_actors(**kwargs)
    n_envs = sum(len(source.env_ids) for source in sources)
    intake = _intake.Intake(sources, _intake.deliver_to(store, n_envs, 0.9))
    play(actors, sources, n_steps)
    intake.stop()
    intake.check()
    return intake


STEP = {
    "observations": tf.TensorSpec([4]),
    "actions": tf.TensorSpec([], tf.int64),
    "rewards": tf.TensorSpec([]),
    "terminated": tf.TensorSpec([], tf.bool),
    "truncated": tf.TensorSpec([], tf.bool),
    "next_observations": tf.TensorSpec([4]),
    "valid": tf.TensorSpec([], tf.bool),
}


@pytest.mark.parametrize("mode", ["disabled", "next"])
def test_function_gets_all_rows_of_every_environment(mode):
    pieces = [[] for _ in range(6)]

    def store(trajectory, env_ids):
        for n, env in enumerate(env_ids):
            pieces[env].append([x[:, n] for x in trajectory])

    intake = taken(store, mode=mode)
    total, finished = 0, []
    for env, trajectories in enumerate(pieces):
        rows = records.Trajectory(*map(np.concatenate, zip(*trajectories, strict=True)))
        valid = rows.valid
        assert len(valid) == 200 and valid.all() == (mode == "disabled")
        rows = records.Trajectory(*[x[valid] for x in rows])
        counted_rows.check(env % 3, rows)
        total += valid.sum()
        finished += counted_rows.episodes(env % 3, rows.actions)
    assert intake.env_steps.sum() == total
    found = [*zip(intake.episode_returns, intake.episode_lengths, strict=True)]
    assert len(found) == 100 and set(found) <= set(finished)


def test_data_buffer_of_transitions():
    spec = records.Transition(
        STEP["observations"],
        STEP["actions"],
        STEP["rewards"],
        tf.TensorSpec([]),
        STEP["observations"],
    )
    store = data_buffer.DataBuffer(spec, 2000)
    intake = taken(store)
    rows = store.get_all()
    assert len(rows.rewards) == intake.env_steps.sum() < 1200
    for number in range(3):
        mine = rows.observations[:, 3] == number
        # Of two actors: by the count of steps, twice each.
        order = np.argsort(rows.observations[mine, 0], kind="stable")
        mine = np.flatnonzero(mine)[order]
        counts = rows.observations[mine, 0]
        assert set(np.bincount(counts.astype(int))) <= {1, 2}
        terminated = counted_rows.expected(number, np.zeros(200, int))["terminated"]
        expected = 0.9 * ~terminated[counts.astype(int)]
        np.testing.assert_allclose(rows.discounts[mine], expected, rtol=1e-6)
        np.testing.assert_array_equal(
            rows.rewards[mine], 2 * counts + rows.actions[mine]
        )
        np.testing.assert_array_equal(rows.next_observations[mine, 0], counts + 1)


@pytest.mark.parametrize("kind", ["dict", "trajectory"])
def test_ring_buffer_keeps_environments_apart(kind):
    names = ("rewards", "observations", "actions")
    spec = {name: STEP[name] for name in names}
    if kind == "trajectory":
        spec = records.Trajectory(**STEP)
    store = ring_buffer.RingBuffer(spec, 6, max_length=200)
    taken(store)
    for env in range(6):
        rows = store.dequeue([env], n=int(store.current_size[env]))
        rows = rows if kind == "dict" else rows._asdict()
        found = {name: rows[name][0] for name in names}
        expected = counted_rows.expected(env % 3, found["actions"])
        for name in names:
            np.testing.assert_array_equal(found[name], expected[name])


def test_episode_store_keeps_episodes():
    store = episodes.EpisodeStore(STEP["observations"], STEP["actions"], 6000, 6)
    store.add(
        *[
            np.zeros((6, *s), t)
            for s, t in [
                ((4,), "f"),
                ((), "i8"),
                ((), "f"),
                ((), bool),
                ((), bool),
                ((4,), "f"),
            ]
        ]
    )  # an episode of others
    intake = taken(store)
    count = int(intake.env_steps[0]) // 3
    for env in (0, 4):
        indices = np.arange(1, 500) * 6 + env
        found = []
        for index in indices:
            try:
                found.append(store.get(index))
            except ValueError:  # the last observation of an episode
                continue
        rewards = [float(step.rewards) for step in found]
        actions = np.array([int(step.actions) for step in found])
        expected = counted_rows.expected(env % 3, actions)
        assert abs(len(found) - count) < 60
        np.testing.assert_array_equal(rewards, expected["rewards"])
        for name in ("observations", "terminated", "truncated"):
            column = np.stack([getattr(step, name) for step in found])
            np.testing.assert_array_equal(column, expected[name])


@pytest.mark.parametrize(
    ("store", "match"),
    [
        (
            data_buffer.DataBuffer(tf.TensorSpec([4]), 10),
            "`Actors`: `store` expected rows with names",
        ),
        (
            data_buffer.DataBuffer({"pixels": tf.TensorSpec([4])}, 10),
            "`Actors`: `store` expected rows with names .*pixels",
        ),
        (
            ring_buffer.RingBuffer(STEP, 4, 10),
            "`store` expected 6 environments.* got 4; .*num_environments=6",
        ),
        (
            episodes.EpisodeStore(STEP["observations"], STEP["actions"], 100, 7),
            "`store` expected 6 environments.* got 7",
        ),
    ],
    ids=["nameless", "unknown", "ring", "episodes"],
)
def test_stores_that_do_not_fit(store, match):
    with pytest.raises(ValueError, match=match):
        _intake.deliver_to(store, 6, 0.9)


def ended(intake):
    with intake.changed:
        return intake.changed.wait_for(lambda: intake._failure is not None, timeout=20)


def test_failure_of_an_actor_comes_after_its_rows():
    seen = []
    actors, sources = new_actors()
    intake = _intake.Intake(sources, lambda rows, ids: seen.append(len(rows.valid)))
    sources[1].process.failure = "Traceback: the wheel came off"
    play(actors, sources, 7)
    assert ended(intake)
    with pytest.raises(RuntimeError, match="actor 1 expected to play on; got:\nTrac"):
        intake.check()
    assert sources[0].process.stops == sources[1].process.stops == 1
    assert all(source.ring.closed for source in sources)
    intake.stop()
    assert sum(seen) <= 14


def test_failure_of_the_store_is_raised():
    def store(trajectory, env_ids):
        raise ValueError("no space left")

    actors, sources = new_actors()
    intake = _intake.Intake(sources, _intake.deliver_to(store, 6, 0.9))
    play(actors, sources, 1)
    assert ended(intake)
    with pytest.raises(RuntimeError, match="no space left") as caught:
        intake.check()
    assert isinstance(caught.value.__cause__, ValueError)
    intake.stop()


def test_numbers_that_are_none_are_told():
    actors, sources = new_actors(make_env=actor_envs.nan, n_envs=1)
    intake = _intake.Intake(sources, lambda rows, ids: None)
    end = time.monotonic() + 20
    while not any(source.ring.closed for source in sources):
        assert time.monotonic() < end
        for actor, source in zip(actors, sources, strict=True):
            actor.step(source.ring)
    assert ended(intake)
    with pytest.raises(RuntimeError, match="actor [01].*next_observations.* got nan"):
        intake.check()
    intake.stop()


def test_what_actors_need_is_said():
    text = _intake.failure_text(2, RuntimeError("this process runs without tensorflow"))
    assert text.startswith("`Actors`: actor 2 expected to play on; got:")
    assert "in a file that does not import it" in text
