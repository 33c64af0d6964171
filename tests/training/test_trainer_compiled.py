"""Collection and learning in one graph: what is played, drawn, resumed and refused."""

from typing import Any

import default_rows
import gymnasium as gym
import numpy as np
import own_agent
import pytest
import tensorflow as tf
from compiled_learners import carts

from tfrl import agents
from tfrl.core import pytree
from tfrl.environments import vector
from tfrl.environments.compiled import cartpole, pendulum, vector_env, wrappers
from tfrl.training import cadence, evaluation, experience, trainer
from tfrl.training.collecting import (
    _compiled_evaluation,
    _compiled_program,
    _rollouts,
)

T, N = 5, 3
UNITS = (8,)
RECORDED = experience.FromDataset({"observations": np.zeros([9, 4], "f")}, 4)
LEARNERS = {
    "ppo": (
        agents.PPO(hidden_units=UNITS, minibatch_size=10, n_epochs=2),
        experience.Trajectories(10),
    ),
    "dqn": (
        agents.DQN(hidden_units=UNITS),
        experience.Replayed(
            capacity=200, batch_size=8, n_steps=4, learning_starts=16, n_step_returns=2
        ),
    ),
    "own": (
        own_agent.SlowQ(),
        experience.Replayed(
            200, 8, n_steps=4, updates_per_step=0.25, learning_starts=16
        ),
    ),
    "goals": (
        agents.DQN(hidden_units=UNITS),
        experience.Replayed(
            capacity=24,
            batch_size=8,
            n_steps=4,
            learning_starts=16,
            sampler="prioritized",
            relabel="future",
        ),
    ),
}


QUIET = cadence.Intervals(eval_epochs=None, checkpoint_epochs=2)


@pytest.fixture(autouse=True)
def without_xla(monkeypatch):
    monkeypatch.setattr(_compiled_program.replicated, "_by_xla", lambda *_: False)
    monkeypatch.setattr(_compiled_program, "_kept", {})


def training(folder, name="ppo", epochs=6, **options):
    agent, learned = LEARNERS[name]
    make_envs = bits if name == "goals" else carts
    intervals = cadence.Intervals(log_epochs=2, eval_episodes=1, checkpoint_epochs=2)
    given = {"agent": agent, "experience": learned, "intervals": intervals}
    given |= {"make_envs": make_envs, "n_envs": 2, "collector": "compiled"}
    return trainer.Trainer(folder, epochs, **{**given, **options})


def bits(n_envs):
    return vector_env.make_compiled("BitFlipping-v0", n_envs, env_kwargs={"n_bits": 3})


def weights(running):
    return [x.numpy() for x in tf.nest.flatten(running.agent) if tf.is_tensor(x)]


def assert_same(one, other):
    for x, y in zip(one, other, strict=True):
        np.testing.assert_array_equal(x, y)


def on_the_host(n_envs):
    return vector.make_vec("CartPole-v1", n_envs)


def played(n_steps=T):
    env = carts(N).compiled
    policy = LEARNERS["ppo"][0].create(env.observation_space, env.action_space).policy
    state, observations = env.reset(0, N)
    begun = _rollouts.Episodes(state, observations, ())
    rolled = tf.function(
        lambda: _rollouts.rollout(policy, env, begun, tf.constant([1, 2]), n_steps)
    )
    return begun, *rolled()


def test_rollout_is_one_history():
    begun, after, rows = played(20)
    seen = rows.observations.numpy()
    np.testing.assert_array_equal(seen[0], begun.observations)
    ended = (rows.terminated | rows.truncated).numpy()
    assert ended.any() and rows.truncated.numpy().any()
    shown = [*seen[1:], after.observations.numpy()]
    for t in range(20):
        same = (shown[t] == rows.next_observations[t].numpy()).all(-1)
        np.testing.assert_array_equal(same, ~ended[t])
        assert (np.abs(shown[t][ended[t]]) <= 0.05).all()
    # What is seen next follows from what was seen and done.
    env = cartpole.CartPole()
    flat = [tf.reshape(x, [20 * N, *x.shape[2:]]) for x in rows[:2]]
    step = env.step(*flat, env.draw(0, [20 * N]))
    expected = tf.reshape(rows.next_observations, [20 * N, 4])
    np.testing.assert_allclose(step.observations, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "n_episodes",
    [
        pytest.param(1, marks=pytest.mark.slow),
        3,
        pytest.param(7, marks=pytest.mark.slow),
    ],
)
def test_evaluation_in_a_graph_is_that_of_evaluate(n_episodes):
    envs = carts(N, limit=60)
    config = agents.PPO(hidden_units=UNITS, memory="gru", memory_units=3)
    spaces = envs.single_observation_space, envs.single_action_space
    policy, asked = config.create(*spaces).policy, []
    expected = evaluation.evaluate(policy, envs, n_episodes, seed=5)
    judging = _compiled_evaluation.CompiledEvaluation(envs.compiled, envs.num_envs)
    found = judging.evaluated(policy, n_episodes, 5, lambda: asked.append(1))
    assert_same(expected, found)
    assert asked


def test_an_evaluation_in_a_graph_can_be_broken_off():
    envs = carts(N)
    config = agents.PPO(hidden_units=UNITS)
    spaces = envs.single_observation_space, envs.single_action_space
    judging = _compiled_evaluation.CompiledEvaluation(envs.compiled, envs.num_envs)

    def ask():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judging.evaluated(config.create(*spaces).policy, 1, 5, ask)


def test_evaluations_of_several_runs_warn_of_no_retracing(monkeypatch):
    warned = []
    monkeypatch.setattr(
        tf.get_logger(), "warning", lambda text, *_: warned.append(text)
    )
    env = carts(1, limit=2).compiled
    judging = _compiled_evaluation.CompiledEvaluation(env, 1)
    for units in range(6):
        config = agents.PPO(hidden_units=(2 + units,))
        policy = config.create(env.observation_space, env.action_space).policy
        judging.evaluated(policy, 1, 5, lambda: None)
    assert warned == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_epochs_of_one_call_are_those_of_several(name, tmp_path):
    found = []
    for parts in ([4], [1, 3]):
        with training(tmp_path / str(len(parts)), name, epochs=10) as running:
            agent, done = running.agent, 0
            for count in parts:
                running._collector._n_at_once = count
                given, agent, info = running._collector.learn(agent, done, 9, 10)
                done += given
            assert done == 4
            running.agent = agent
            assert np.isfinite(info["loss"])
            found.append([*weights(running), running._collector.observations])
            assert running._collector.env_steps == 4 * running._collector.n_steps * 2
    assert_same(*found)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_resumed_run_is_the_same_to_the_bit(name, tmp_path):
    with training(tmp_path / "whole", name) as whole:
        whole.run(quiet=True)
    with training(tmp_path / "cut", name, epochs=4) as first:
        first.run(quiet=True)
    with training(tmp_path / "cut", name, resume=True) as second:
        assert second.notice is None
        second.run(quiet=True)
    rows = [
        (tmp_path / x / "metrics.csv").read_text().splitlines()
        for x in ("whole", "cut")
    ]
    assert len(rows[0]) == 4 and second.env_steps == whole.env_steps
    assert_same(weights(whole), weights(second))
    assert second._collector.episodes() == whole._collector.episodes()


def test_nothing_is_compiled_to_play_on_the_host(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_env.CompiledVectorEnv, "reset", None)
    monkeypatch.setattr(vector_env.CompiledVectorEnv, "step", None)
    with training(tmp_path, epochs=2, intervals=QUIET) as running:
        running.run(quiet=True)
    with training(tmp_path, epochs=4, intervals=QUIET, resume=True) as running:
        running.run(quiet=True)
        assert running.env_steps == 80


class Fading(cartpole.CartPole):
    """Shows NaN once what a place says is beyond a limit."""

    def __init__(self, place, limit):
        super().__init__()
        self._place, self._limit = place, limit

    def initial(self, noise):
        state, seen = super().initial(noise)
        odd = self._place == "reset"
        return state, self._faded(seen, noise[:, 0] > 0.9) if odd else seen

    def step(self, state, actions, noise):
        found = super().step(state, actions, noise)
        if self._place == "reset":
            return found
        seen = self._faded(found.observations, tf.abs(found.observations[:, 1]) > 1.0)
        if self._place == "step":
            return found._replace(observations=seen, final_observations=seen)
        return found._replace(rewards=found.rewards + 0.0 * seen[:, 0])

    def _faded(self, seen, where):
        return tf.where(where[:, None], self._limit, seen)


@pytest.mark.parametrize(
    ("place", "name", "limit"),
    default_rows.params(
        {
            "step": ("step", "next_observations", np.nan),
            "infinite": ("step", "next_observations", -np.inf),
            "reset": ("reset", "observations", np.nan),
            "rewards": ("rewards", "rewards", np.nan),
        },
        ["step"],
    ),
)
def test_what_is_not_finite_ends_a_run_and_nothing_of_it_is_kept(
    place, name, limit, tmp_path
):
    env = wrappers.AutoReset(wrappers.TimeLimit(Fading(place, limit), 40))
    made = {"make_envs": lambda n_envs: vector_env.as_vector_env(env, n_envs)}
    with training(tmp_path, epochs=40, intervals=QUIET, **made) as running:
        message = f"`Trainer`: `{name}` expected finite numbers; got {limit} at step"
        with pytest.raises(ValueError, match=message):
            running.run(quiet=True)
        assert all(np.isfinite(x).all() for x in weights(running))


class Numbered(cartpole.CartPole):
    """Shows where it is as a number, from -1 on."""

    def __init__(self):
        super().__init__()
        self.observation_space = gym.spaces.Discrete(3)

    def initial(self, noise):
        state, seen = super().initial(noise)
        return state, self._number(seen)

    def step(self, *given):
        found = super().step(*given)
        seen = self._number(found.observations)
        return found._replace(observations=seen, final_observations=seen)

    def _number(self, seen):
        return 1 + tf.cast(
            tf.sign(seen[:, 1]) * tf.floor(2 * tf.abs(seen[:, 1])), tf.int64
        )


@pytest.mark.slow
def test_choices_that_are_none_end_a_run(tmp_path):
    env = wrappers.AutoReset(wrappers.TimeLimit(Numbered(), 40))
    made = {"make_envs": lambda n_envs: vector_env.as_vector_env(env, n_envs)}
    with training(tmp_path, epochs=40, intervals=QUIET, **made) as running:
        message = r"`Trainer`: `next_observations` expected elements of Discrete\(3\)"
        with pytest.raises(ValueError, match=message):
            running.run(quiet=True)


@pytest.mark.slow
def test_nothing_is_learned_before_learning_starts(tmp_path):
    with training(tmp_path, "dqn", epochs=1) as running:
        before = weights(running)
        running.run(quiet=True)
    assert_same(before, weights(running))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"make_envs": on_the_host}, "`make_envs` of compiled environments"),
        (
            {
                "experience": experience.Replayed(relabel="future"),
                "agent": agents.DQN(),
            },
            "achieved_goal",
        ),
        (
            {"experience": experience.Replayed(frame_stack=2), "agent": agents.DQN()},
            "frame_stack=2; leave it out",
        ),
        ({"collector": "gpu"}, "`collector`"),
        ({"agent": agents.BC(), "experience": RECORDED}, "that is collected"),
        ({"agent": agents.Independent()}, "`collector` .* in a graph; got Independent"),
        ({"agent": agents.SelfPlay()}, "got SelfPlay, .*; take the collector 'host'"),
    ],
)
def test_what_cannot_be_collected_in_a_graph_is_refused(changes, message, tmp_path):
    with pytest.raises((TypeError, ValueError), match=message):
        training(tmp_path, **changes)


def test_updates_that_inform_about_too_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_compiled_program, "_N_FACTS", 3)
    with training(tmp_path, epochs=2, intervals=QUIET) as running:
        with pytest.raises(ValueError, match="of 3 numbers at most, .*; got .*loss"):
            running.run(quiet=True)


TRACED = "an `update` that can be traced .*"


@pytest.mark.parametrize(
    ("untraceable", "message"),
    default_rows.params(
        {
            "int": (int, f"{TRACED} 'SymbolicTensor'; take `tf.cond`"),
            "if": (bool, f"{TRACED}; take `tf.cond`"),
            "numpy": (np.asarray, f"{TRACED}; take `tf.cond`"),
            "another error": (lambda number: number + "1", "^(?!.*can be traced)"),
        },
        ["int", "another error"],
    ),
)
def test_an_update_that_cannot_be_traced_is_told(
    untraceable, message, tmp_path, monkeypatch
):
    def update(agent, trajectory):
        untraceable(agent.policy.state.step)

    with training(tmp_path, epochs=2, intervals=QUIET) as running:
        monkeypatch.setattr(type(running.agent), "update", update)
        with pytest.raises((TypeError, ValueError), match=message):
            running.run(quiet=True)


class Telling:
    """Settings of an agent that informs about something more."""

    learns_from = "trajectories"

    def __init__(self, more):
        self.more = more

    def create(self, *spaces, seed=0, network=None):
        del network
        return TellingAgent(LEARNERS["ppo"][0].create(*spaces, seed=seed), self)


class TellingAgent(pytree.PyTreeNode):
    learner: Any
    config: Telling = pytree.nonpytree_field()

    @property
    def policy(self):
        return self.learner.policy

    def update(self, trajectory):
        learner, info = self.learner.update(trajectory)
        return self.replace(learner=learner), {**info, **self.config.more}


@pytest.mark.parametrize(
    ("more", "message"),
    default_rows.params(
        {
            "nested": (
                {"parts": {"a": 1.0}},
                "got .* for 'parts'; flatten the dictionary",
            ),
            "vector": (
                {"row": tf.zeros([3])},
                r"got shape \[3\] for 'row'; reduce it",
            ),
        },
        ["nested"],
    ),
)
def test_updates_inform_about_scalars(tmp_path, more, message):
    given = {"agent": Telling(more), "epochs": 2, "intervals": QUIET}
    with training(tmp_path, **given) as running:
        with pytest.raises(TypeError, match=message):
            running.run(quiet=True)


@pytest.mark.slow
def test_continuous_actions_learn_in_one_graph(tmp_path):
    def make(n_envs):
        env = wrappers.AutoReset(wrappers.TimeLimit(pendulum.Pendulum(), 200))
        return vector_env.as_vector_env(env, n_envs)

    learned = experience.Replayed(
        capacity=20_000, batch_size=64, n_steps=8, updates_per_step=1
    )
    intervals = cadence.Intervals(eval_episodes=20)
    given = {"make_envs": make, "n_envs": 4, "experience": learned}
    given |= {"intervals": intervals, "total_env_steps": 16_000}
    with training(
        tmp_path,
        agent=agents.SAC(hidden_units=(64, 64), learning_rate=1e-3),
        epochs=10_000,
        **given,
    ) as running:
        assert running.run(quiet=True).returns.mean() > -300
