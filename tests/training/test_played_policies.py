"""Agents of every kind of policy: trained, opened, played, filmed and rehearsed."""

import dataclasses
import functools
from typing import Any, ClassVar

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrl
from tfrl.agents import ppo, train_state
from tfrl.core import pytree
from tfrl.environments import vector
from tfrl.policies import deterministic, policy, recurrent
from tfrl.training import cadence, experience, saved_run, trainer
from tfrl.training.rehearsing import rehearsal

S = gym.spaces


class Switches(gym.Env):
    """Pays for actions; shows how many steps there were."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = S.Box(0.0, 99.0, (2,))
    render_mode = "rgb_array"

    def __init__(self, kind="choice", render_mode=None):
        self.action_space = {
            "choice": S.Discrete(3),
            "floats": S.Box(-1.0, 1.0, (2,)),
            "parts": S.Dict(a=S.Discrete(3), b=S.Tuple([S.Box(-1.0, 1.0, (2,))])),
        }[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        seen = np.full(2, self.steps, np.float32)
        return seen, float(self.steps), self.steps == 5, False, {}

    def render(self):
        return np.full([16, 16, 3], 40 * self.steps, np.uint8)


gym.register("Switches-v0", Switches)


@dataclasses.dataclass(frozen=True)
class Untaught:
    """Makes an agent that only plays."""

    learns_from: ClassVar[str] = "trajectories"
    kind: str = "recurrent"

    def create(self, observation_space, action_space, *, seed=0):
        spaces = observation_space, action_space
        learner = train_state.TrainState.create
        if self.kind == "recurrent":
            acting = recurrent.RecurrentPolicy.create(
                *spaces, learner=learner, units=4, seed=seed
            )
        elif self.kind == "deterministic":
            # Layers without names, whose numbers differ from agent to agent.
            dense = keras.layers.Dense(
                2, kernel_initializer=keras.initializers.GlorotUniform(seed)
            )
            network = keras.Sequential([keras.Input([2]), dense])
            acting = deterministic.DeterministicPolicy.create(
                *spaces, learner=learner, network=network
            )
        else:
            acting = Foreign(step=tf.constant(0))
        return Player(policy=acting)


class Foreign(pytree.PyTreeNode):
    """A policy of no kind that tfrl knows, which counts its steps."""

    step: tf.Tensor

    def initial_state(self, batch_size):
        return {"count": np.zeros([batch_size], np.int64)}

    def act(self, observations, state=(), *, seed=None, temperature=1.0, mask=None):
        # What it remembers is what the environment shows, in every episode anew.
        np.testing.assert_array_equal(state["count"], observations[:, 0])
        actions = np.asarray(state["count"]) % 3
        return policy.Acted(actions, actions, None, {"count": state["count"] + 1})


class Player(pytree.PyTreeNode):
    policy: Any

    def update(self, trajectory):
        return self, {"paid": tf.reduce_mean(trajectory.rewards)}


def build(folder, agent, kind, **settings):
    return trainer.Trainer(
        folder,
        agent=agent,
        make_envs=functools.partial(
            vector.make_vec,
            "Switches-v0",
            vectorization="sync",
            env_kwargs={"kind": kind},
        ),
        n_envs=2,
        experience=experience.Trajectories(8),
        intervals=cadence.Intervals(eval_episodes=3, checkpoint_epochs=1),
        **settings,
    )


AGENTS = {
    "recurrent": (Untaught(), "choice"),
    "deterministic": (Untaught("deterministic"), "floats"),
    "parts": (ppo.PPO(minibatch_size=16, hidden_units=(4,)), "parts"),
    "foreign": (Untaught("foreign"), "choice"),
}


@pytest.mark.parametrize(
    "name",
    [
        "recurrent",
        "parts",
        "foreign",
        pytest.param("deterministic", marks=pytest.mark.slow),
    ],
)
def test_a_run_with_it(tmp_path, name):
    agent, kind = AGENTS[name]
    with build(tmp_path / "whole", agent, kind, n_epochs=2) as running:
        played = running.run(quiet=True)
    np.testing.assert_array_equal(played.returns, [15.0] * 3)
    # A memory within an episode is saved, too.
    with build(tmp_path / "cut", agent, kind, n_epochs=1) as first:
        first.run(quiet=True)
    with build(tmp_path / "cut", agent, kind, n_epochs=2, resume=True) as resumed:
        resumed.run(quiet=True)
        pairs = zip(*map(tf.nest.flatten, (resumed.agent, running.agent)), strict=True)
        for one, other in pairs:
            np.testing.assert_array_equal(one, other)
        one, other = (x._collector.state() for x in (resumed, running))
        for x, y in zip(*map(tf.nest.flatten, (one, other)), strict=True):
            np.testing.assert_array_equal(x, y)
    with saved_run.SavedRun.reopen(tmp_path / "whole") as run:
        np.testing.assert_array_equal(run.evaluate(2).returns, [15.0] * 2)
        run.record(tmp_path / "film.gif", resize_to=(16, 16))
        assert (tmp_path / "film.gif").read_bytes()[:6] == b"GIF89a"
        if name == "foreign":
            with pytest.raises(TypeError, match="of `tfrl.policies`.*`export_model`"):
                run.export(tmp_path / "policy")
            return
        rows, state = np.zeros([4, 2], np.float32), run.policy.initial_state(4)
        acted = run.policy.act(rows, state, temperature=0.0).actions
        assert all(len(leaf) == 4 for leaf in tf.nest.flatten(acted))
        run.export(tmp_path / "policy")
    assert max(tfrl.exporting.verify(tmp_path / "policy").values()) <= 1e-5


@pytest.mark.parametrize(
    "name", ["recurrent", pytest.param("parts", marks=pytest.mark.slow)]
)
def test_it_is_rehearsed(tmp_path, name):
    agent, kind = AGENTS[name]
    strategy = tfrl.distribute.strategy("rehearsal:2")
    with build(tmp_path, agent, kind, n_epochs=2) as running:
        report = rehearsal.rehearse(
            running.agent, running.gather(), running.observations, strategy=strategy
        )
    assert report.passed, report.checks
    assert {"act", "act, greedy"} <= {check.step for check in report.checks}
