"""Replays that keep each frame of stacked observations once."""

import dataclasses
import functools

import gymnasium as gym
import numpy as np
import plain_graphs
import pytest
import tensorflow as tf
from tiny_agents import assert_same, assert_same_rows, build, stop_in

from tfrl.agents.off_policy import dqn
from tfrl.environments import vector
from tfrl.policies import host_policy
from tfrl.training import cadence, experience
from tfrl.training.collecting import collection

FRAMES, N = 3, 2
STACK = functools.partial(gym.wrappers.FrameStackObservation, stack_size=FRAMES)
MAKE = functools.partial(vector.make_vec, "CartPole-v1", wrappers=[STACK])
STACKS = experience.Replayed(90, 64, 16, 0.5, 0, n_step_returns=2)
ONCE = dataclasses.replace(STACKS, frame_stack=FRAMES)
DQN = dqn.DQN(hidden_units=(8,), target_period=3)


@pytest.fixture(autouse=True)
def _plain_graphs():
    with plain_graphs.plain_graphs():
        yield


def by_index(sample):
    """Transitions of `[K, B]`, each by the index of its first step."""
    leaves = [np.reshape(x, [-1, *x.shape[2:]]) for x in tf.nest.flatten(sample.data)]
    return dict(
        zip(np.ravel(sample.indices).tolist(), zip(*leaves, strict=True), strict=True)
    )


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_samples_are_those_of_stacks_at_ends_and_at_the_seam(sampler):
    envs = MAKE(N)
    collector = collection.Collector(envs, 16, seed=0)
    spaces = envs.single_observation_space, envs.single_action_space
    acting = host_policy.HostPolicy(DQN.create(*spaces).policy)
    stacks, once = (
        experience.source_of(
            dataclasses.replace(x, sampler=sampler), acting, collector, N, 0
        )
        for x in (STACKS, ONCE)
    )
    missed = 0
    for epoch in range(8):
        played = collector.collect(acting, np.random.default_rng(epoch))
        known, found = (
            by_index(source.gathered(lambda played=played: played, 0)[0])
            for source in (stacks, once)
        )
        assert {*found} <= {*known}
        # Those whose frames were overwritten are the oldest of each environment.
        late = {*known} - {*found}
        assert len(late) <= (FRAMES - 1) * N
        for n in range(N):
            oldest = sorted(index for index in known if index % N == n)[: FRAMES - 1]
            assert {index for index in late if index % N == n} <= {*oldest}
        missed += len(late)
        for index, transition in found.items():
            for one, other in zip(transition, known[index], strict=True):
                np.testing.assert_array_equal(one, other)
    assert missed and len(collector.episode_returns) > 5
    envs.close()


def running(folder, **settings):
    given = {"agent": DQN, "make_envs": MAKE, "experience": ONCE, "n_epochs": 6}
    given["intervals"] = cadence.Intervals(
        log_epochs=1, eval_episodes=2, checkpoint_epochs=2
    )
    return build(folder, **{**given, **settings})


@pytest.mark.slow
def test_it_learns_and_is_resumed_as_with_stacks(tmp_path):
    wide = dataclasses.replace(ONCE, capacity=400)
    with running(tmp_path / "whole", experience=wide) as whole:
        whole.run(quiet=True)
    plain = dataclasses.replace(wide, frame_stack=None)
    with running(tmp_path / "stacks", experience=plain) as stacks:
        stacks.run(quiet=True)
    assert_same(stacks.agent, whole.agent)
    for name, learned in (("seam", ONCE), ("wide", wide)):
        with running(tmp_path / name / "whole", experience=learned) as whole:
            whole.run(quiet=True)
        folder = tmp_path / name / "cut"
        with running(folder, experience=learned) as cut:
            stop_in(cut, 3)
            with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
                cut.run(quiet=True)
        with running(folder, experience=learned, resume=True) as resumed:
            resumed.run(quiet=True)
        assert_same(resumed.agent, whole.agent)
        assert_same_rows(tmp_path / name / "whole", folder)


def test_other_observations_are_refused(tmp_path):
    zeros = functools.partial(STACK, padding_type="zero")
    for wrappers in ([], [zeros], [functools.partial(STACK.func, stack_size=2)]):
        make = functools.partial(vector.make_vec, "CartPole-v1", wrappers=wrappers)
        with pytest.raises(ValueError, match=r"`frame_stack` expected .* \[3, ...\]"):
            running(tmp_path, make_envs=make)
    with pytest.raises(ValueError, match="`Replayed`: `frame_stack` expected an int"):
        dataclasses.replace(ONCE, frame_stack=0)
    assert not list(tmp_path.iterdir())


class Still(gym.ObservationWrapper):
    """Shows three times what there is now."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = STACK(env).observation_space

    def observation(self, observation):
        return np.stack([observation] * FRAMES)


def test_steps_that_add_no_frame_are_refused(tmp_path):
    make = functools.partial(vector.make_vec, "CartPole-v1", wrappers=[Still])
    with running(tmp_path, make_envs=make) as still:
        with pytest.raises(ValueError, match="stacks to which a step adds one frame"):
            still.run(quiet=True)
