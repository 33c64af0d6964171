"""Agents of one's own, and of every kind of policy: trained, opened, handed on."""

import dataclasses
import functools
import pathlib
import re
import subprocess
import sys
from typing import Any, ClassVar

import default_rows
import gymnasium as gym
import keras
import numpy as np
import own_agent
import pytest
import tensorflow as tf
from tiny_agents import assert_same, build, stop_in, train

import tfrl
from tfrl.agents import train_state
from tfrl.agents.off_policy import dqn
from tfrl.core import pytree
from tfrl.environments import compiled, vector
from tfrl.policies import actor_critic, deterministic, policy, recurrent
from tfrl.replay.sampling import prioritized
from tfrl.summaries import run_log
from tfrl.training import _kept_arguments, cadence, experience, saved_run
from tfrl.training.rehearsing import rehearsal

FILE = pathlib.Path(own_agent.__file__)
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
        given = {"learner": train_state.TrainState.create}
        if self.kind == "recurrent":
            made = recurrent.RecurrentPolicy.create(
                *spaces, units=4, seed=seed, **given
            )
        elif self.kind == "parts":
            made = actor_critic.ActorCriticPolicy.create(
                *spaces, hidden_units=(4,), seed=seed, **given
            )
        elif self.kind == "deterministic":
            # Layers without names, whose numbers differ from agent to agent.
            initializer = keras.initializers.GlorotUniform(seed)
            dense = keras.layers.Dense(2, kernel_initializer=initializer)
            made = deterministic.DeterministicPolicy.create(
                *spaces, network=keras.Sequential([keras.Input([2]), dense]), **given
            )
        else:
            made = Foreign(step=tf.constant(0))
        return Player(policy=made)


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


SPACE_OF = {"deterministic": "floats", "parts": "parts"}


def settings_of(kind):
    switches = {"kind": SPACE_OF.get(kind, "choice")}
    return {
        "agent": Untaught(kind),
        "make_envs": functools.partial(
            *(vector.make_vec, "Switches-v0"), vectorization="sync", env_kwargs=switches
        ),
        "experience": experience.Trajectories(8),
        "intervals": cadence.Intervals(eval_episodes=3, checkpoint_epochs=1),
    }


@pytest.mark.parametrize(
    "kind",
    [
        "foreign",
        *default_rows.slow("recurrent", "parts", "deterministic"),
    ],
)
def test_a_run_with_a_policy(tmp_path, kind):
    settings = settings_of(kind)
    running, played = train(tmp_path / "whole", n_epochs=2, **settings)
    np.testing.assert_array_equal(played.returns, [15.0] * 3)
    # A memory within an episode is saved, too.
    train(tmp_path / "cut", n_epochs=1, **settings)
    resumed, _ = train(tmp_path / "cut", n_epochs=2, resume=True, **settings)
    assert_same(resumed.agent, running.agent)
    assert_same(*(x._collector.state() for x in (resumed, running)))
    with saved_run.SavedRun.reopen(tmp_path / "whole") as run:
        np.testing.assert_array_equal(run.evaluate(2).returns, [15.0] * 2)
        run.record(tmp_path / "film.gif", resize_to=(16, 16))
        assert (tmp_path / "film.gif").read_bytes()[:6] == b"GIF89a"
        if kind == "foreign":
            with pytest.raises(TypeError, match="of `tfrl.policies`.*`export_model`"):
                run.export(tmp_path / "policy")
            return
        rows, state = np.zeros([4, 2], np.float32), run.policy.initial_state(4)
        acted = run.policy.act(rows, state, temperature=0.0).actions
        assert all(len(leaf) == 4 for leaf in tf.nest.flatten(acted))
        run.export(tmp_path / "policy")
    assert max(tfrl.exporting.verify(tmp_path / "policy").values()) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["recurrent", pytest.param("parts", marks=pytest.mark.slow)]
)
def test_a_policy_is_rehearsed(tmp_path, kind):
    strategy = tfrl.distribute.strategy("rehearsal:2")
    with build(tmp_path, **settings_of(kind)) as running:
        report = rehearsal.rehearse(
            running.agent, running.gather(), running.observations, strategy=strategy
        )
    assert report.passed, report.checks
    assert {"act", "act, greedy"} <= {check.step for check in report.checks}


SLOW_Q = {
    "agent": own_agent.SlowQ(),
    "experience": experience.Replayed(
        500, 16, n_steps=8, updates_per_step=0.25, learning_starts=32
    ),
}


def test_the_example_is_short_and_imports_what_is_public():
    text = FILE.read_text()
    program = text[text.index("@dataclasses") : text.index("def rehearse")]
    assert len(program.strip().splitlines()) <= 60
    assert not re.search(r"tfrl[.\w]*\._|import.* _", text)


@pytest.mark.slow
def test_an_algorithm_of_ones_own(tmp_path):
    whole, _ = train(tmp_path / "whole", **SLOW_Q)
    columns = run_log.read_metrics(tmp_path / "whole" / "metrics.csv")
    known = [name for name in columns if name.startswith("train/")]
    assert known == ["train/return_mean", "train/length_mean", "train/bellman_error"]
    # Nothing is learned before there are 32 steps.
    assert np.isnan(columns["train/bellman_error"][:1]).all()
    assert np.isfinite(columns["train/bellman_error"][1:]).all()
    with build(tmp_path / "cut", **SLOW_Q) as cut:
        stop_in(cut, 2)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            cut.run(quiet=True)
        assert cut.epoch == 3
    resumed, _ = train(tmp_path / "cut", resume=True, **SLOW_Q)
    assert_same(resumed.agent, whole.agent)
    with saved_run.SavedRun.reopen(tmp_path / "whole") as run:
        assert len(run.evaluate(3).returns) == 3
        run.export(tmp_path / "policy")
        rows = np.random.default_rng(0).normal(size=[9, 4]).astype(np.float32)
        expected = run.policy.act(rows, temperature=0.0).actions
    assert max(tfrl.exporting.verify(tmp_path / "policy").values()) <= 1e-5
    model = tf.saved_model.load(tmp_path / "policy")
    found = model.signatures["serving_default"](observations=tf.constant(rows))
    np.testing.assert_array_equal(found["actions"], expected)


@pytest.mark.slow
def test_eight_replicas_learn_what_one_does():
    done = subprocess.run(
        [sys.executable, "-m", "tests.own_agent", "8"],
        cwd=FILE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 learn what 1 learns" in done.stdout and "0 failed" in done.stdout


@dataclasses.dataclass(frozen=True)
class Misshapen:
    learns_from: ClassVar[str] = "transitions"
    change: Any

    def create(self, observation_space, action_space, *, seed=0, network=None):
        del network
        made = dqn.DQN(hidden_units=(8,)).create(
            observation_space, action_space, seed=seed
        )
        return MisshapenAgent(made, self)


class MisshapenAgent(pytree.PyTreeNode):
    """Learns as another agent, whose priorities it returns in another shape."""

    learner: Any
    config: Misshapen = pytree.nonpytree_field()

    @property
    def policy(self):
        return self.learner.policy

    def update(self, sample):
        learner, info = self.learner.update(sample)
        info["priorities"] = self.config.change(info["priorities"])
        return self.replace(learner=learner), info


@pytest.mark.parametrize("collector", ["host", "compiled"])
@pytest.mark.parametrize(
    ("change", "shape"),
    default_rows.params(
        {
            "transposed": (tf.transpose, r"\[8, 4\]"),
            "flat": (lambda x: tf.reshape(x, [-1]), r"\[32\]"),
            "of the last minibatch": (lambda x: x[-1], r"\[8\]"),
        },
        ["transposed"],
    ),
)
def test_priorities_are_those_of_the_rows(
    tmp_path, monkeypatch, collector, change, shape
):
    make = vector.make_vec if collector == "host" else compiled.make_compiled
    learned = experience.Replayed(
        200, 8, n_steps=8, learning_starts=16, sampler="prioritized"
    )
    given = {"experience": learned, "collector": collector, "n_epochs": 4}
    given["make_envs"] = functools.partial(make, "CartPole-v1")
    told = []
    monkeypatch.setattr(
        prioritized.PrioritizedReplay, "update_priorities", lambda *x: told.append(x)
    )
    expected = rf"`experience` .* `priorities` \[K, B\], \[4, 8\]; got shape {shape}"
    with build(tmp_path, agent=Misshapen(change), **given) as running:
        with pytest.raises(ValueError, match=expected):
            running.run(quiet=True)
    assert not told


def test_what_cannot_be_kept_is_compared_as_far_as_it_is_told():
    @dataclasses.dataclass(frozen=True)
    class Hidden:
        rate: float = 0.1
        inner: Any = None

    old, new = (_kept_arguments.kept(Hidden(x)) for x in (0.1, 0.2))
    assert "Hidden" in _kept_arguments.lost(old, "agent")["agent"]
    assert _kept_arguments.closed(old, "agent") == {}
    assert _kept_arguments.differences(old, old, "agent") == {}
    found = _kept_arguments.differences(old, new, "agent")
    assert found == {"agent.rate": ("0.1", "0.2")}
    # Of earlier versions, and of other objects, nothing is known.
    plain = _kept_arguments.unkept(old["=lost"])
    assert _kept_arguments.differences(plain, new, "agent") == {}
    assert _kept_arguments.closed(plain, "agent") == {"agent": old["=lost"]}
    nested = _kept_arguments.kept(Hidden(inner=object()))
    assert list(_kept_arguments.closed(nested, "agent")) == ["agent.inner"]
