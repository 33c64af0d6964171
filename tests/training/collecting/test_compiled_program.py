"""Programs of runs in a graph are made once for all runs that are alike."""

import dataclasses
import functools

import compiled_learners
import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents, schedules
from tfrl.agents.on_policy import ppo
from tfrl.environments.compiled import cartpole, protocol, vector_env, wrappers
from tfrl.policies import feedforward
from tfrl.training import cadence, experience, population, trainer
from tfrl.training.collecting import _compiled_collection, _compiled_program


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    monkeypatch.setattr(_compiled_program.replicated, "_by_xla", lambda *_: False)
    monkeypatch.setattr(_compiled_program, "_kept", {})


PPO = agents.PPO(hidden_units=(8,), minibatch_size=10, n_epochs=2)
EVAL = cadence.Intervals(eval_episodes=2)


def trained(folder, seed=0, agent=PPO, **options):
    given = {"agent": agent, "experience": experience.Trajectories(10)}
    given |= {"make_envs": compiled_learners.carts, "n_envs": 2, "intervals": EVAL}
    with trainer.Trainer(
        folder, 2, seed, collector="compiled", **{**given, **options}
    ) as running:
        played = running.run(quiet=True)
    return running, played


def n_traces(running):
    return len(running._collector.program.play._cache.traces)


def test_later_runs_are_of_the_first_ones_program(tmp_path, monkeypatch):
    first, _ = trained(tmp_path / "first", seed=1)
    second, played = trained(tmp_path / "second", seed=2)
    assert second._collector.program is first._collector.program
    assert n_traces(first) == 1
    assert len(_compiled_program._kept) == 2  # the other one evaluates
    networks = [x.agent.policy.state.model_def for x in (first, second)]
    assert networks[0] is not networks[1]
    # As they would be of a program of their own.
    monkeypatch.setattr(_compiled_program, "_kept", {})
    alone, its_played = trained(tmp_path / "alone", seed=2)
    assert alone._collector.program is not first._collector.program
    np.testing.assert_array_equal(played.returns, its_played.returns)
    leaves = [tf.nest.flatten(x.agent) for x in (second, alone)]
    for mine, its in zip(*leaves, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_of_one_program_each_agent_informs_by_its_own_names(tmp_path):
    said = {}

    class Noted(cadence.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            said[len(said)] = {*(logs or {})}

    runs = [
        trained(tmp_path / str(i), agent=agent, callbacks=[Noted()])[0]
        for i, agent in enumerate((PPO, agents.A2C(hidden_units=(8,)), PPO))
    ]
    assert n_traces(runs[0]) == 2
    assert runs[1]._collector.program is runs[0]._collector.program
    last = [said[i] for i in (1, 3, 5)]
    assert last[0] == last[2] and "train/clip_fraction" in last[0]
    assert "train/clip_fraction" not in last[1] and "train/loss" in last[1]


def test_populations_are_of_one_program_too():
    env = compiled_learners.carts(2).compiled
    given = {"experience": experience.Trajectories(10), "n_envs": 2}
    given |= {"total_env_steps": 40, "log_epochs": 1}
    found = [
        population.train_population(PPO, each, seeds=[0, 1], **given)
        for each in (env, env, compiled_learners.carts(3).compiled)
    ]
    (program,) = _compiled_program._kept.values()
    assert len(program.play_members._cache.traces) == 1
    for other in found[1:]:
        np.testing.assert_array_equal(other.returns, found[0].returns)


def list_of(*given):
    return [given]


class Own(cartpole.CartPole):
    pass


class Unhashable(list):
    pass


class Told(wrappers.TimeLimit):
    """As if it were of tfrl, with a function that it may have been given."""

    __module__ = "tfrl.tests"

    def __init__(self, env, function):
        super().__init__(env, 7)
        self.function = function


def told(function):
    return wrappers.AutoReset(Told(cartpole.CartPole(), function))


def limited(n_steps=7, env=cartpole.CartPole, **options):
    return wrappers.AutoReset(wrappers.TimeLimit(env(**options), n_steps))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((limited(), 2), (limited(), 2), True),
        ((limited(), 2), (limited(8), 2), False),
        ((limited(), 2), (limited(sutton_barto_reward=True), 2), False),
        ((limited(), 2), (cartpole.CartPole(), 2), False),
        ((limited(), 2), (limited(), 3), False),
        ((limited(env=Own), 2), (limited(env=Own), 2), False),
        ((told(None), 2), (told(None), 2), True),
        ((told(1), 2), (told(1.0), 2), False),
        ((told([np.ones(2)]), 2), (told([np.ones(2)]), 2), True),
        ((told([np.ones(2)]), 2), (told([np.zeros(2)]), 2), False),
        ((told(list_of), 2), (told(list_of), 2), False),
        ((limited(), Unhashable()), (limited(), Unhashable()), False),
    ],
)
def test_what_is_alike(first, second, same):
    one, other = (_compiled_program.kept(list_of, PPO, *x) for x in (first, second))
    assert (one is other) is same


def test_spaces_that_have_been_drawn_from_change_nothing():
    env, other = limited(), limited()
    other.action_space.seed(3)
    other.action_space.sample()
    assert isinstance(other, protocol.CompiledEnv)
    assert isinstance(other.action_space, gym.spaces.Discrete)
    assert _compiled_program.kept(list_of, None, env) is _compiled_program.kept(
        list_of, None, other
    )


def test_as_many_are_kept_as_were_used_last(monkeypatch):
    monkeypatch.setattr(_compiled_program, "_N_KEPT", 2)
    envs = [limited(n) for n in (5, 6, 7)]
    first, second = (_compiled_program.kept(list_of, None, env) for env in envs[:2])
    assert _compiled_program.kept(list_of, None, envs[0]) is first
    third = _compiled_program.kept(list_of, None, envs[2])
    assert _compiled_program.kept(list_of, None, envs[0]) is first
    assert _compiled_program.kept(list_of, None, envs[2]) is third
    assert _compiled_program.kept(list_of, None, envs[1]) is not second


def test_own_environments_are_traced_anew(tmp_path):
    def own(n_envs):
        return vector_env.as_vector_env(limited(env=Own), n_envs)

    first, second = (
        trained(tmp_path / str(i), make_envs=own)[0]._collector.program
        for i in range(2)
    )
    assert first is not second and not _compiled_program._kept


SCALE = {"scale": 1.0}


class ScaledAgent(ppo.PPOAgent):
    """Reads what changes between two runs."""

    def update(self, trajectory):
        rewards = trajectory.rewards * SCALE["scale"]
        return super().update(trajectory._replace(rewards=rewards))


@dataclasses.dataclass(frozen=True)
class Scaled(agents.PPO):
    def create(self, *spaces, **options):
        made = super().create(*spaces, **options)
        return ScaledAgent(**made.__dict__)


def scaled_tanh(x):
    return SCALE["scale"] * tf.tanh(x)


def network(observation_space, action_space):
    seen = keras.Input(observation_space.shape)
    hidden = keras.layers.Dense(8, scaled_tanh)(seen)
    logits = keras.layers.Dense(int(action_space.n))(hidden)
    return keras.Model(seen, [logits, keras.layers.Dense(1)(hidden)])


SMALL = {"hidden_units": (8,), "minibatch_size": 10, "n_epochs": 2}


@pytest.mark.parametrize(
    "options",
    [
        {"agent": Scaled(**SMALL)},
        *default_rows.slow(
            {"network": network}, {"agent": agents.PPO(**SMALL, activation=scaled_tanh)}
        ),
    ],
)
def test_what_is_the_users_own_is_read_anew_by_each_run(options, tmp_path, monkeypatch):
    found = []
    for i, scale in enumerate((1.0, 0.25, 0.25)):
        if i == 2:  # as in a process of its own
            monkeypatch.setattr(_compiled_program, "_kept", {})
        monkeypatch.setitem(SCALE, "scale", scale)
        running, _ = trained(tmp_path / str(i), **options)
        params = running.agent.policy.state.params.values()
        found.append([x.numpy() for x in params])
    for second, alone in zip(*found[1:], strict=True):
        np.testing.assert_array_equal(second, alone)
    assert any((x != y).any() for x, y in zip(*found[:2], strict=True))
    kinds = [key[0] for key in _compiled_program._kept]
    assert _compiled_program.Program not in kinds


@pytest.mark.parametrize(
    ("own", "is_shared"),
    [
        (agents.DQN(), True),
        (agents.DQN(activation="tanh"), True),
        (agents.DQN(activation=keras.activations.tanh), True),
        (agents.DQN(activation=scaled_tanh), False),
        (agents.DQN(optimizer=agents.adamw), True),
        (agents.DQN(optimizer=functools.partial(agents.adamw, weight_decay=0.1)), True),
        (agents.DQN(optimizer=lambda learning_rate: agents.sgd(learning_rate)), False),
        (
            agents.DQN(epsilon=schedules.LinearScheduler("percent", [(0, 1), (1, 0)])),
            True,
        ),
        (experience.Replayed(beta=lambda: SCALE["scale"]), False),
        (experience.Replayed(beta=0.5), True),
    ],
)
def test_what_is_the_users_own_is_not_shared(own, is_shared):
    made = [own, gym.spaces.Discrete(2)]
    if hasattr(own, "create"):
        spaces = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
        made.append(own.create(*spaces))
    one, other = (_compiled_program.kept(list_of, made, limited(), 2) for _ in range(2))
    assert (one is other) is is_shared


class Named(keras.layers.Layer):
    architecture = "somebody else's"


def test_an_attribute_of_that_name_is_no_architecture():
    assert feedforward.architecture_of(Named()) is None


def test_a_run_evaluates_in_own_environments_by_one_program(tmp_path, monkeypatch):
    made = []
    kind = _compiled_collection._compiled_evaluation.CompiledEvaluation

    class Counted(kind):
        def __init__(self, *args):
            made.append(args)
            super().__init__(*args)

    monkeypatch.setattr(
        _compiled_collection._compiled_evaluation, "CompiledEvaluation", Counted
    )

    def own(n_envs):
        return vector_env.as_vector_env(limited(env=Own), n_envs)

    often = cadence.Intervals(eval_epochs=1, eval_episodes=2)
    running, _ = trained(tmp_path, make_envs=own, intervals=often)
    assert len(made) == 1 and running.epoch == 2
