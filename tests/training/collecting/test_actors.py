"""Tests of `tfrl.training.collecting.actors` with real actor processes."""

import functools
import os
import pathlib
import signal
import threading
import time

import actor_envs
import counted_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from running_processes import children, gone

from tfrl.agents import dqn, gradient_transforms, train_state
from tfrl.core import records
from tfrl.environments import vector
from tfrl.policies import actor_critic, host_policy
from tfrl.replay import data_buffer, episodes
from tfrl.replay.sampling import prioritized, transitions
from tfrl.training.collecting import actors

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


def new_policy(seed=0):
    return actor_critic.ActorCriticPolicy.create(
        gym.spaces.Box(-np.inf, np.inf, (4,)),
        gym.spaces.Discrete(3),
        learner=lambda network: train_state.TrainState.create(
            network, tx=gradient_transforms.sgd(0.1)
        ),
        hidden_units=(8,),
        seed=seed,
        normalize_observations=True,
    )


class Kept:
    """A store that keeps the rows of every environment."""

    def __init__(self):
        self.pieces = {}

    def __call__(self, trajectory, env_ids):
        for n, env in enumerate(env_ids.tolist()):
            self.pieces.setdefault(env, []).append([x[:, n] for x in trajectory])

    def rows(self, env):
        parts = zip(*self.pieces.get(env, []), strict=True)
        return records.Trajectory(*map(np.concatenate, parts))


def processes_of(found):
    return [source.process for source in found._intake._sources]


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
        waiting = [source.ring.waiting()[1] for source in found._intake._sources]
        assert max(waiting) > 100, "queues fill"
        assert found.wait_for(10_000, timeout=60)
    for env in range(6):
        counted_rows.check(env % 3, kept.rows(env))


def test_learner_feeds_on_prioritized_replay_and_pushes():
    store = episodes.EpisodeStore(
        tf.TensorSpec([4]), tf.TensorSpec([], tf.int32), 6_000, 6
    )
    replay = prioritized.PrioritizedReplay(store, transitions.Transitions(), seed=0)
    policy = new_policy()
    make_env = functools.partial(vector.make_vec, "CartPole-v1", 3)
    with actors.Actors(make_env, two_choices(), store, 2) as found:
        found.wait_for(200)
        for round_ in range(1, 4):
            sample = replay.sample(32)
            assert sample.data.observations.shape == (32, 4)
            assert found.push(two_choices(seed=round_)) == round_
        steps = found.env_steps
        while found.versions.min() < 3:
            assert found.wait_for(steps := steps + 1, timeout=20)
        assert found.env_steps_by_actor.shape == (2,)
        assert found.episode_returns == [float(n) for n in found.episode_lengths]
        with pytest.raises(ValueError, match="`SharedArrays.write`: `arrays` expected"):
            found.push(policy)
    with pytest.raises(RuntimeError, match="got closed ones; make new ones"):
        found.push(two_choices())
    with pytest.raises(RuntimeError, match="got closed ones"):
        found.wait_for(10**9)


def two_choices(seed=0):
    return actor_critic.ActorCriticPolicy.create(
        gym.spaces.Box(-np.inf, np.inf, (4,)),
        gym.spaces.Discrete(2),
        learner=lambda network: train_state.TrainState.create(
            network, tx=gradient_transforms.sgd(0.1)
        ),
        hidden_units=(8,),
        seed=seed,
    )


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
        with pytest.raises(RuntimeError, match=match):
            found.wait_for(100, timeout=60)
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


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"make_env": 3}, TypeError, "`make_env` expected a Gymnasium id"),
        ({"store": [1]}, TypeError, "`store` expected an EpisodeStore.*got list"),
        ({"act": 3}, TypeError, "`act` expected a function of outputs"),
        ({"act": None}, TypeError, "`act` expected a function, which a network needs"),
        ({"n_actors": 0}, ValueError, "`n_actors` expected an int of at least 1"),
        ({"n_actors": 1.5}, TypeError, "`n_actors` expected an int"),
        ({"seed": -1}, ValueError, "`seed` expected an int of at least 0"),
        ({"gamma": 1.5}, ValueError, r"`gamma` expected numbers in \[0, 1\]"),
        ({"settings": {"epsilon": np.inf}}, ValueError, "`settings` expected finite"),
        ({"policy": "greedy"}, TypeError, "`policy` expected a policy"),
        (
            {"policy": new_network(activation="selu")},
            ValueError,
            "`Actors`: `policy` expected float32 dense layers",
        ),
        ({"make_env": threading.Lock().acquire}, TypeError, "expected to be picklable"),
    ],
    ids=lambda value: "" if isinstance(value, str | type) else "-".join(value),
)
def test_bad_arguments(arguments, error, match):
    given = {
        "make_env": "CartPole-v1",
        "policy": new_network(),
        "store": Kept(),
        "act": actor_envs.first,
    }
    with pytest.raises(error, match=match):
        actors.Actors(**{**given, **arguments})


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
