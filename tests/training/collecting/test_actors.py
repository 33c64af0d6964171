"""Actors as processes, and what they send, played here: it comes into every store."""

import functools
import os
import pathlib
import signal
import threading
import time
import traceback

import actor_envs
import counted_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad
from running_processes import children, gone

from tfrl._internal import acting
from tfrl.agents import gradient_transforms, train_state
from tfrl.agents.off_policy import dqn
from tfrl.agents.on_policy import ppo
from tfrl.core import records, spaces
from tfrl.environments import vector
from tfrl.host import networks, shared_rows
from tfrl.policies import actor_critic, host_policy
from tfrl.replay import data_buffer, episodes, ring_buffer
from tfrl.replay.sampling import prioritized, transitions, uniform
from tfrl.training.collecting import _actor_policies, _delivery, actors

TRANSITION = records.Transition(
    tf.TensorSpec([4]),
    tf.TensorSpec([], tf.int64),
    tf.TensorSpec([]),
    tf.TensorSpec([]),
    tf.TensorSpec([4]),
)


def new_network(*units, seed=0, **kwargs):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(n, "tanh") for n in units]
    return keras.Sequential(
        [keras.Input([4]), *layers, keras.layers.Dense(3, **kwargs)]
    )


def new_policy(n_actions=3, seed=0):
    return actor_critic.ActorCriticPolicy.create(
        gym.spaces.Box(-np.inf, np.inf, (4,)),
        gym.spaces.Discrete(n_actions),
        learner=functools.partial(
            train_state.TrainState.create, tx=gradient_transforms.sgd(0.1)
        ),
        hidden_units=(8,),
        seed=seed,
        normalize_observations=n_actions == 3,
    )


class Kept:
    """A store that keeps the rows of every environment."""

    def __init__(self):
        self.pieces = {}

    def __call__(self, trajectory, env_ids):
        for n, env in enumerate(env_ids.tolist()):
            rows = [x[:, n] for x in trajectory if len(x)]
            self.pieces.setdefault(env, []).append(rows)

    def rows(self, env):
        parts = zip(*self.pieces.get(env, []), strict=True)
        return records.Trajectory(*map(np.concatenate, parts))


def processes_of(found):
    return [source.actor.process for source in found._intake._sources]


def check_nothing_left(pids, threads):
    assert gone(*pids)
    assert threading.active_count() == threads


def play_and_check(n_actors, total, make_env, policy=None):
    """Plays `total` steps and compares all of them with what they must be."""
    kept, threads = Kept(), threading.active_count()
    policy = new_policy() if policy is None else policy
    with actors.Actors(make_env, policy, kept, n_actors, seed=1) as found:
        pids = [process.pid for process in processes_of(found)]
        while found.env_steps_by_actor.min() < total // n_actors:
            assert found.wait_for(found.env_steps + 1, timeout=60)
        maps = pathlib.Path(f"/proc/{pids[0]}/maps").read_text()
        assert "memfd:tfrl" in maps and "/dev/shm" not in maps, "memory without names"
    check_nothing_left(pids, threads)
    # As many as were counted, also those that came while it closed.
    rows = {env: kept.rows(env) for env in kept.pieces}
    assert sum(len(x.rewards) for x in rows.values()) == found.env_steps >= total
    ends = [x.terminated.sum() + x.truncated.sum() for x in rows.values()]
    assert min(ends) > 0
    for env in rows:
        counted_rows.check(env % (len(rows) // n_actors), rows[env])
    return [rows[env].actions for env in sorted(rows)]


def test_every_row_arrives_once_and_whole():
    policy = new_policy()
    runs = [play_and_check(2, 1_000, actor_envs.vector, policy=policy) for _ in "ab"]
    count = min(len(actions) for run in runs for actions in run)
    first, again = ([actions[:count].tolist() for actions in run] for run in runs)
    assert first == again, "streams are reproducible"
    assert len({tuple(actions) for actions in first}) == len(first) == 6
    # They act as a Collector would by the same policy and stream.
    host, head = host_policy.HostPolicy(policy), policy.head
    for actor, seed in enumerate(np.random.SeedSequence(1).spawn(2)):
        rng = np.random.default_rng(seed.spawn(2)[1])
        chosen = np.stack(first[3 * actor : 3 * actor + 3], axis=1)
        columns = [counted_rows.expected(n, chosen[:, n]) for n in range(3)]
        seen = np.stack([column["observations"] for column in columns], axis=1)
        expected = [head.host_sample(host(rows), rng) for rows in seen]
        np.testing.assert_array_equal(chosen, expected)


@pytest.mark.slow
@pytest.mark.parametrize("n_envs", [1, 8])
def test_a_hundred_thousand_rows(n_envs):
    make_env = functools.partial(actor_envs.vector, n_envs)
    play_and_check(4, 100_000, make_env)


@pytest.mark.slow
def test_a_store_that_does_not_keep_up_loses_nothing():
    class Slow(Kept):
        def __call__(self, trajectory, env_ids):
            time.sleep(0.05)
            super().__call__(trajectory, env_ids)

    kept = Slow()
    with actors.Actors(actor_envs.vector, new_policy(), kept, 2) as found:
        time.sleep(3.0)
        waiting = [source.actor.ring.waiting()[1] for source in found._intake._sources]
        assert max(waiting) > 100, "queues fill"
        assert found.wait_for(10_000, timeout=60)
    for env in range(6):
        counted_rows.check(env % 3, kept.rows(env))


@pytest.mark.slow
def test_learner_feeds_on_prioritized_replay_and_pushes():
    store = episodes.EpisodeStore(
        tf.TensorSpec([4]), tf.TensorSpec([], tf.int32), 6_000, 6
    )
    replay = prioritized.PrioritizedReplay(store, transitions.Transitions(), seed=0)
    policy = new_policy()
    make_env = functools.partial(vector.make_vec, "CartPole-v1", 3)
    with actors.Actors(make_env, new_policy(2), store, 2) as found:
        found.wait_for(200)
        for round_ in range(1, 4):
            sample = replay.sample(32)
            assert sample.data.observations.shape == (32, 4)
            assert found.push(new_policy(2, seed=round_)) == round_
        steps = found.env_steps
        while found.versions.min() < 3:
            assert found.wait_for(steps := steps + 1, timeout=20)
        assert found.env_steps_by_actor.shape == (2,)
        assert found.episode_returns == [float(n) for n in found.episode_lengths]
        with pytest.raises(ValueError, match="`SharedArrays.write`: `arrays` expected"):
            found.push(policy)
    with pytest.raises(RuntimeError, match="got closed ones"):
        found.push(new_policy(2))
    with pytest.raises(RuntimeError, match="got closed ones"):
        found.wait_for(10**9)


@pytest.mark.slow
def test_network_acts_by_settings_in_data_buffer():
    store = data_buffer.DataBuffer(TRANSITION, 10_000)
    network = new_network(5)
    with actors.Actors(
        actor_envs.Sleeping,
        network,
        store,
        1,
        actor_envs.constant,
        {"action": 1},
        gamma=0.5,
    ) as found:
        found.wait_for(50)
        with pytest.raises(ValueError, match=r"among \['action'\]; got \['epsilon'\]"):
            found.push(network, epsilon=0.1)
        with pytest.raises(ValueError, match="`settings` expected finite"):
            found.push(network, action=np.nan)
        with pytest.raises(TypeError, match="`policy` expected a policy"):
            found.push(None)
        broken = new_network(5)
        broken.layers[0].bias.assign(np.full(5, np.inf))
        with pytest.raises(ValueError, match="expected finite weights"):
            found.push(broken)
        assert found.push(network, action=2) == 1
        while found.versions[0] < 1:
            found.wait_for(found.env_steps + 1)
        found.wait_for(found.env_steps + 50)
    rows = store.get_all()
    assert set(rows.discounts.tolist()) == {0.0, 0.5}
    assert set(np.diff(rows.actions)) == {0, 1}, "first ones, then twos"


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("error", "(?s)actor 0 expected to play on.*actor_envs.py.*the wheel came off"),
        ("kill", "(?s)actor 0 expected to play on.*signal SIGKILL"),
    ],
)
def test_failures_of_an_actor_are_raised(how, match):
    kept, threads = Kept(), threading.active_count()
    make_env = functools.partial(actor_envs.Failing, how)
    found = actors.Actors(make_env, new_network(), kept, 1, actor_envs.first)
    pids = [process.pid for process in processes_of(found)]
    for _ in range(2):
        with pytest.raises(RuntimeError, match=match) as raised:
            found.wait_for(100, timeout=60)
        told = "".join(traceback.format_exception(raised.value))
        assert told.count("actor 0 expected to play on") == 1
    with pytest.raises(RuntimeError, match=match):
        found.push(new_network())
    with pytest.raises(RuntimeError, match=match):
        found.close()
    counted_rows.check(0, kept.rows(0))
    assert len(kept.rows(0).rewards) == 9, "what was whole arrived"
    del found
    check_nothing_left(pids, threads)


def test_failure_while_it_starts():
    threads = threading.active_count()
    with pytest.raises(
        RuntimeError, match="(?s)actor 0 .*without tensorflow.*does not import it"
    ):
        actors.Actors(
            actor_envs.with_tensorflow, new_network(), Kept(), 2, actor_envs.first
        )
    assert threading.active_count() == threads


def test_error_of_the_learner_ends_the_actors():
    threads = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        with actors.Actors(
            actor_envs.asynchronous, new_network(), Kept(), 1, actor_envs.drawn
        ) as found:
            found.wait_for(1)
            pids = [process.pid for process in processes_of(found)]
            pids += children(pids[0])
            assert len(pids) > 2, "environments have processes"
            raise ZeroDivisionError
    check_nothing_left(pids, threads)


@pytest.mark.slow
def test_forgotten_actors_end_also_if_they_hang():
    threads = threading.active_count()
    make_env = functools.partial(actor_envs.Failing, "hang")
    found = actors.Actors(make_env, new_network(), Kept(), 1, actor_envs.first)
    found.wait_for(9)
    assert not found.wait_for(10, timeout=0.1)
    pids = [process.pid for process in processes_of(found)]
    os.kill(pids[0], signal.SIGINT)  # as of no consequence
    del found
    check_nothing_left(pids, threads)


GIVEN = {
    "make_env": "CartPole-v1",
    "policy": new_network(),
    "store": Kept(),
    "act": actor_envs.first,
}


@refusals.table(
    (
        actors.Actors,
        *(
            bad(error, name, **{**GIVEN, name: value})
            for error, name, value in (
                (TypeError, "make_env", 3),
                (TypeError, "store", [1]),
                (TypeError, "act", 3),
                (TypeError, "act", None),
                (ValueError, "n_actors", 0),
                (TypeError, "n_actors", 1.5),
                (ValueError, "seed", -1),
                (ValueError, "gamma", 1.5),
                (ValueError, "settings", {"epsilon": np.inf}),
                (ValueError, "policy", new_network(activation="selu")),
            )
        ),
    ),
    (host_policy.numpy_copy, bad(TypeError, "policy", "greedy")),
)
def test_bad_arguments(row):
    row()


def test_functions_that_cannot_be_sent():
    with pytest.raises(TypeError, match="expected to be picklable"):
        actors.Actors(**{**GIVEN, "make_env": threading.Lock().acquire})


@pytest.mark.slow
def test_action_values_are_played_epsilon_greedily():
    space = gym.spaces.Box(-np.inf, np.inf, (4,))
    agent = dqn.DQN(epsilon=1.0, hidden_units=(8,)).create(
        space, gym.spaces.Discrete(2), seed=0
    )
    seen = []

    def keep(trajectory, _):
        seen.append(trajectory)

    policy = agent.policy
    greedy = policy.replace(epsilon=tf.constant(0.0))
    with actors.Actors("CartPole-v1", policy, keep, 1) as playing:
        assert playing.wait_for(500)
        playing.push(greedy)
        version = playing.push(greedy)
        start = playing.env_steps
        while playing.versions.min() < version:
            start = playing.env_steps
        assert playing.wait_for(start + 3000)
    first = np.concatenate([x.actions.ravel() for x in seen])[:500]
    assert 0.3 < first.mean() < 0.7
    last = seen[-1]
    wanted = greedy.act(last.observations[:, 0], temperature=0.0).raw_actions
    np.testing.assert_array_equal(last.actions[:, 0], wanted)


class StillActor:
    """Stands for an actor in a process, that plays here."""

    def __init__(self, actor):
        self.layout, self.ring = actor.layout, actor.ring()
        self.failure, self.stops = None, 0

    def check(self):
        if self.failure:
            raise RuntimeError(self.failure)

    def close(self):
        self.ring.close()

    def stop(self, patience):
        self.stops += 1


def new_actors(count=2, n_envs=3, mode="next", make_env=None):
    """Actors that play counting environments, and sources for an intake."""
    network = networks.NumpyNetwork(
        [np.zeros((4, 3), "f")], [np.zeros(3, "f")], ["linear"]
    )
    played = acting.NetworkActing(network, actor_envs.drawn)
    weights = shared_rows.SharedArrays(played.begin().arrays())
    playing, sources = [], []
    for number, seed in enumerate(np.random.SeedSequence(0).spawn(count)):
        job = acting.Job(
            make_env or (lambda: actor_envs.vector(n_envs, mode)),
            played,
            seed,
            weights.fd,
            shared_rows.new_memory(),
        )
        actor = acting.Actor(job)
        ids = number * n_envs + np.arange(n_envs)
        sources.append(actors._Source(StillActor(actor), ids))
        playing.append(actor)
    return playing, sources


def play(playing, sources, n_steps):
    for _ in range(n_steps):
        for actor, source in zip(playing, sources, strict=True):
            assert actor.step(source.actor.ring)


def taken(store, n_steps=200, **kwargs):
    """Plays into a store and returns the intake, stopped."""
    playing, sources = new_actors(**kwargs)
    n_envs = sum(len(source.env_ids) for source in sources)
    intake = actors._Intake(sources, _delivery.deliver_to(store, n_envs, 0.9))
    play(playing, sources, n_steps)
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
            pieces[env].append([x[:, n] for x in trajectory if len(x)])

    intake = taken(store, mode=mode)
    total, finished = 0, []
    for env, trajectories in enumerate(pieces):
        rows = records.Trajectory(*map(np.concatenate, zip(*trajectories, strict=True)))
        valid = rows.valid
        assert len(valid) == 200 and valid.all() == (mode == "disabled")
        rows = records.Trajectory(*[x[valid] for x in rows if len(x)])
        counted_rows.check(env % 3, rows)
        total += valid.sum()
        finished += counted_rows.episodes(env % 3, rows.actions)
    assert intake.env_steps.sum() == total
    found = [*zip(intake.episode_returns, intake.episode_lengths, strict=True)]
    assert len(found) == 100 and set(found) <= set(finished)


def test_data_buffer_of_transitions():
    store = data_buffer.DataBuffer(TRANSITION, 2000)
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
    columns = [spec for name, spec in STEP.items() if name != "valid"]
    # An episode of others.
    store.add(*(np.zeros((6, *x.shape), x.dtype.as_numpy_dtype) for x in columns))
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


def test_stores_that_do_not_fit():
    for store in (
        data_buffer.DataBuffer(tf.TensorSpec([4]), 10),
        data_buffer.DataBuffer({"pixels": tf.TensorSpec([4])}, 10),
        ring_buffer.RingBuffer(STEP, 4, 10),
        episodes.EpisodeStore(STEP["observations"], STEP["actions"], 100, 7),
    ):
        with pytest.raises(ValueError, match="`Actors`: `store` expected"):
            _delivery.deliver_to(store, 6, 0.9)


def ended(intake):
    with intake.changed:
        return intake.changed.wait_for(lambda: intake._failure is not None, timeout=20)


def test_failure_of_the_store_is_raised():
    def store(trajectory, env_ids):
        raise ValueError("no space left")

    playing, sources = new_actors()
    intake = actors._Intake(sources, _delivery.deliver_to(store, 6, 0.9))
    play(playing, sources, 1)
    assert ended(intake)
    with pytest.raises(RuntimeError, match="no space left") as caught:
        intake.check()
    assert isinstance(caught.value.__cause__, ValueError)
    intake.stop()


def test_numbers_that_are_none_are_told():
    playing, sources = new_actors(make_env=actor_envs.nan, n_envs=1)
    intake = actors._Intake(sources, lambda rows, ids: None)
    end = time.monotonic() + 20
    while not any(source.actor.ring.closed for source in sources):
        assert time.monotonic() < end
        for actor, source in zip(playing, sources, strict=True):
            actor.step(source.actor.ring)
    assert ended(intake)
    with pytest.raises(RuntimeError, match="actor [01].*next_observations.* got nan"):
        intake.check()
    intake.stop()


def masked_agent(config):
    space, actions = actor_envs.Masked.observation_space, gym.spaces.Discrete(3)
    return config.create(space, actions, seed=0)


@pytest.mark.parametrize("config", [ppo.PPO(), dqn.DQN(epsilon=0.7)])
def test_actors_do_what_is_allowed(config):
    agent = masked_agent(config)
    network = host_policy.unmasked_copy(agent.policy)
    played = _actor_policies.numpy_acting(agent.policy, network)
    expected = {"epsilon": pytest.approx(0.7)} if isinstance(config, dqn.DQN) else {}
    assert played.settings == expected
    player = acting.Player(actor_envs.Masked, played, np.random.SeedSequence(0), 40)
    found = player.played()
    mask, chosen = found.observations["action_mask"], found.actions[..., None]
    assert np.take_along_axis(mask, chosen, -1).all()
    steps = found.observations["observation"][:, 0, 0]
    np.testing.assert_array_equal(steps, np.arange(40))
    after = found.next_observations["observation"][:, 0, 0]
    np.testing.assert_array_equal(after, steps + 1)
    assert len({*found.actions.ravel().tolist()}) == 3


@pytest.mark.slow
def test_what_masked_actors_play_is_learned_from():
    agent = masked_agent(dqn.DQN(epsilon=1.0, hidden_units=(8,)))
    space = spaces.spec_from_space(actor_envs.Masked.observation_space)
    store = episodes.EpisodeStore(space, tf.TensorSpec([], tf.int32), 1000, 1)
    flat = records.Transition(
        space, *(tf.TensorSpec([], x) for x in (tf.int32, "float32", "float32")), space
    )
    buffer = data_buffer.DataBuffer(flat, capacity=1000, seed=0)
    for kept in (store, buffer):
        with actors.Actors(actor_envs.Masked, agent.policy, kept, n_actors=1) as played:
            assert played.wait_for(200)
    replay = uniform.UniformReplay(store, transitions.Transitions(1, 0.9), seed=0)
    for batch in (replay.sample(64).data, buffer.get_batch(64)):
        masks = np.asarray(batch.observations["action_mask"])
        assert masks[np.arange(64), np.asarray(batch.actions)].all()
