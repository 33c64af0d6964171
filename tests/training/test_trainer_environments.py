"""Environments that a trainer cannot evaluate in as it trains in them."""

import contextlib
import dataclasses
import functools
import warnings

import default_rows
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from tiny_agents import EVERY, build, stop_in, train

from tfrl._internal import gym_checks
from tfrl.agents.on_policy import ppo
from tfrl.core import pytree
from tfrl.environments import matrix_game, parallel_vector, vector
from tfrl.environments.compiled import cartpole, vector_env, wrappers
from tfrl.policies import policy
from tfrl.summaries import run_log
from tfrl.training import _environments, evaluation, experience, trainer

W, V = gym.wrappers, gym.wrappers.vector


class Still(pytree.PyTreeNode):
    """An agent that does the first choice as each player, and its policy."""

    weight: np.ndarray

    @property
    def policy(self):
        return self

    def initial_state(self, batch_size):
        return ()

    def act(self, observations, state=(), **_):
        done = gym_checks.mapped(lambda x: np.zeros(len(x), np.int64), observations)
        return policy.Acted(done, done, None, state)

    def update(self, trajectory):
        return self, {}


class OfOne:
    """Makes one."""

    def create(self, observation_space, action_space, *, seed=0):
        return Still(np.zeros(1))


class OfSeveral(OfOne):
    """Makes one that knows that there are several."""

    def create(self, observation_space, action_space, *, seed=0, n_agents=None):
        return Still(np.zeros(1))


@pytest.mark.parametrize(
    ("agent", "own_spaces"), [(OfOne, True), (OfOne, False), (OfSeveral, True)]
)
def test_it_is_told_that_one_policy_acts_for_all(tmp_path, agent, own_spaces):
    """Though only one part of a row's actions counts."""
    make = functools.partial(
        parallel_vector.ParallelEnvVector,
        matrix_game.MatrixGame,
        own_spaces=own_spaces,
    )
    given = {"agent": agent(), "make_envs": make, "n_envs": 4, "n_epochs": 1}
    with (
        trainer.Trainer(
            tmp_path, experience=experience.Trajectories(2), **given
        ) as own,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        own.run(quiet=True)
    found = [x for x in told if "one policy of OfOne acts for all of" in str(x.message)]
    assert len(found) == (agent is OfOne and own_spaces)


OPEN = contextlib.nullcontext()


def cart(*around):
    """Makes vectors of carts within wrappers, one after another in this process."""
    return functools.partial(
        vector.make_vec, "CartPole-v1", vectorization="sync", wrappers=around
    )


def native(n_envs):
    return gym.make_vec("CartPole-v1", n_envs)


def in_processes(n_envs):
    make = [lambda: W.NormalizeReward(gym.make("CartPole-v1"))] * n_envs
    return gym.vector.AsyncVectorEnv(make)


def in_graph(around, n_envs):
    env = wrappers.TimeLimit(cartpole.CartPole(), 9)
    return vector_env.as_vector_env(around(wrappers.AutoReset(env)), n_envs)


SCALED = functools.partial(wrappers.NormalizeRewards, gamma=0.9)
LEARNING = {
    "observations": (cart(W.NormalizeObservation), "observations"),
    "rewards": (cart(W.NormalizeReward), "rewards"),
    "further in": (cart(W.NormalizeReward, W.RecordEpisodeStatistics), "rewards"),
    "processes": (in_processes, "rewards"),
    "a vector": (lambda n_envs: V.NormalizeObservation(native(n_envs)), "observations"),
    "around that": (
        lambda n_envs: V.ClipReward(V.NormalizeReward(native(n_envs)), 0, 1),
        "rewards",
    ),
    "graph": (functools.partial(in_graph, wrappers.NormalizeObservations), "observ"),
    "rewards in it": (functools.partial(in_graph, SCALED), "rewards"),
    "around a graph": (
        lambda n_envs: V.RecordEpisodeStatistics(in_graph(SCALED, n_envs)),
        "rewards",
    ),
}


@pytest.mark.parametrize("kind", LEARNING)
def test_what_learns_to_normalize_is_for_the_agent(kind, tmp_path):
    make_envs, what = LEARNING[kind]
    message = f"`Trainer`: `make_envs` expected .* moments of {what}.*PPO\\(normalize_"
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "run", make_envs=make_envs)
    assert not (tmp_path / "run").exists()


def frozen(env):
    env = W.NormalizeObservation(env)
    env.update_running_mean = False
    return env


class Own(gym.vector.SyncVectorEnv):
    """Has names that mean something else here."""

    obs_rms = None

    def call(self, name, *args, **kwargs):
        raise NotImplementedError


class Lazy(gym.vector.VectorWrapper):
    """Has names that mean something else, and compares equal to others."""

    envs = 4

    def __eq__(self, other):
        return isinstance(other, Lazy)

    __hash__ = None


def test_what_learns_nothing_is_taken(tmp_path):
    for make_envs in (
        cart(frozen),
        lambda n_envs: Own([lambda: gym.make("CartPole-v1")] * n_envs),
        lambda n_envs: Lazy(native(n_envs)),
    ):
        build(tmp_path / "run", make_envs=make_envs).close()


def test_old_runs_go_on_as_they_began(tmp_path, monkeypatch):
    whole = cart()(2)
    for name, make_envs in {
        "learning": cart(W.NormalizeObservation),
        "shared": lambda n_envs: whole,
    }.items():
        given = {"make_envs": make_envs}
        with monkeypatch.context() as patched:
            patched.setattr(_environments, "check_learns_nothing", lambda *_: None)
            patched.setattr(_environments, "_check_apart", lambda *_: None)
            train(tmp_path / name, n_epochs=1, **given)
        build(tmp_path / name, **given).close()  # as of who opens it
        with pytest.raises(ValueError, match="Stepper") if name == "shared" else OPEN:
            running, _ = train(tmp_path / name, n_epochs=2, resume=True, **given)
            assert running.epoch == 2


def test_environments_are_made_anew_in_each_place(tmp_path):
    whole, one = cart()(2), gym.make("CartPole-v1")
    copies = [gym.make("CartPole-v1") for _ in range(2)]
    for make_envs in (
        lambda n_envs: whole,
        lambda n_envs: gym.vector.VectorWrapper(whole),
        lambda n_envs: gym.vector.SyncVectorEnv([lambda x=x: x for x in copies]),
        lambda n_envs: gym.vector.SyncVectorEnv([lambda: one] * n_envs),
        lambda n_envs: gym.vector.SyncVectorEnv([lambda: gym.Wrapper(one)] * n_envs),
    ):
        message = (
            "`make_envs` expected to make a new environment .*got the same .* twice"
        )
        with pytest.raises(ValueError, match=message):
            build(tmp_path / "run", make_envs=make_envs)


class Grows(gym.Wrapper):
    """Pays more with each episode that it plays."""

    n_episodes = 0

    def reset(self, **options):
        self.n_episodes += 1
        return self.env.reset(**options)

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, reward + self.n_episodes, *rest


GROWING = functools.partial(
    vector.make_vec, "CartPole-v1", vectorization="sync", wrappers=[Grows]
)


def judged(folder, resume=False, **settings):
    """Trains with evaluations in every second epoch; returns what they found."""
    intervals = dataclasses.replace(EVERY, eval_epochs=2, checkpoint_epochs=1)
    settings = {"make_envs": GROWING, "intervals": intervals, **settings}
    with build(folder, resume=resume, **settings) as running:
        if not resume and folder.name == "stopped":
            stop_in(running, 4)
            with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
                running.run(quiet=True)
        else:
            running.run(quiet=True)
    return run_log.read_metrics(folder / "metrics.csv")["eval/return_mean"]


def test_evaluations_of_a_resumed_run_are_those_without_a_stop(tmp_path):
    whole = judged(tmp_path / "whole")
    judged(tmp_path / "stopped")
    np.testing.assert_array_equal(judged(tmp_path / "stopped", resume=True), whole)


@pytest.mark.filterwarnings("ignore")
def test_environments_to_evaluate_in_may_be_others_than_were_saved(tmp_path):
    judged(tmp_path / "stopped")
    intervals = dataclasses.replace(EVERY, eval_epochs=2, eval_episodes=3)
    options = {"resume": True, "override": True, "intervals": intervals}
    assert np.isfinite(judged(tmp_path / "stopped", **options)[-1])


class Endless(cartpole.CartPole):
    def step(self, state, actions, noise):
        found = super().step(tf.zeros_like(state), actions, noise)
        return found._replace(terminated=tf.zeros_like(found.terminated))


def test_an_evaluation_that_may_not_end_is_told_before(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(evaluation, "_ENDLESS_STEPS", 50)
    make_envs = functools.partial(vector_env.make_compiled, Endless)
    with build(tmp_path, n_epochs=1, make_envs=make_envs) as endless:
        with pytest.raises(ValueError, match="expected episodes that end; got one of"):
            endless.run()
    told = "in training none has ended in 32 steps; if they have no end, limit them by"
    assert "".join(capfd.readouterr()).count(told) == 1


ENDS = {
    "limited": functools.partial(
        vector_env.make_compiled, Endless, max_episode_steps=40
    ),
    "of Gymnasium": functools.partial(vector.make_vec, "Pendulum-v1"),
    "that ended": functools.partial(
        vector_env.make_compiled, "CartPole-v1", max_episode_steps=9
    ),
}


@pytest.mark.parametrize(
    "make_envs",
    default_rows.params({x: (make,) for x, make in ENDS.items()}, ["of Gymnasium"]),
)
def test_an_evaluation_that_ends_needs_no_telling(make_envs, tmp_path, capfd):
    settings = {"make_envs": make_envs, "agent": ppo.PPO(minibatch_size=32)}
    with build(tmp_path, n_epochs=1, **settings) as running:
        running.run()
    assert "none has ended" not in "".join(capfd.readouterr())
