"""Populations: members are what they would have been alone; settings, curves."""

import dataclasses
import functools
import threading

import agent_examples
import default_rows
import keras
import numpy as np
import own_agent
import pytest
import tensorflow as tf

from tfrl import agents
from tfrl._internal import cores
from tfrl.agents import carrying
from tfrl.environments.compiled import cartpole, pendulum, vector_env, wrappers
from tfrl.training import cadence, experience, population, trainer
from tfrl.training.collecting import _compiled_program

ENV = wrappers.AutoReset(wrappers.TimeLimit(cartpole.CartPole(), 7))
PPO = agents.PPO(hidden_units=(8,), minibatch_size=10, n_epochs=2)
RATES = [1e-3, 3e-3, 1e-2, 3e-4]
DQN = agents.DQN(hidden_units=(8,))
REPLAYED = experience.Replayed(200, 8, n_steps=4, learning_starts=16)


@pytest.fixture(autouse=True)
def without_xla(monkeypatch):
    monkeypatch.setattr(_compiled_program.replicated, "_by_xla", lambda *_: False)
    monkeypatch.setattr(_compiled_program, "_kept", {})


def grown(agent=PPO, seeds=(0, 5), env=ENV, **options):
    given = {"experience": experience.Trajectories(10), "n_envs": 2}
    given |= {"total_env_steps": 80, "log_epochs": 2}
    return population.train_population(agent, env, seeds=seeds, **{**given, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "learned"), [(PPO, experience.Trajectories(10)), (DQN, REPLAYED)]
)
def test_a_member_is_what_it_would_have_been_alone(agent, learned, tmp_path):
    steps = 4 * 2 * learned.n_steps
    settings = {"learning_rate": [1e-3, 3e-3]}
    found = grown(
        agent, experience=learned, hyperparameters=settings, total_env_steps=steps
    )
    alone = trainer.Trainer(
        tmp_path,
        seed=5,
        agent=dataclasses.replace(agent, learning_rate=3e-3),
        make_envs=lambda n_envs: vector_env.as_vector_env(ENV, n_envs),
        n_envs=2,
        experience=learned,
        total_env_steps=steps,
        intervals=cadence.Intervals(log_epochs=2, eval_episodes=1),
        collector="compiled",
    )
    with alone:
        alone.run(quiet=True)
    member = found.agents[1]
    assert member.config == alone.agent.config
    for one, other in zip(
        tf.nest.flatten(member), tf.nest.flatten(alone.agent), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.returns[1, -1], alone.return_mean)
    assert found.env_steps[-1] == alone.env_steps == steps


def own_network(activation="tanh", units=8):
    """A function of both spaces that makes networks with values beside actions."""

    def made(observation_space, action_space):
        seen = keras.Input(observation_space.shape)
        hidden = keras.layers.Dense(units, activation)(seen)
        hidden = keras.layers.Dropout(0.0)(hidden)
        values = keras.layers.Dense(1)(hidden)
        logits = keras.layers.Dense(int(action_space.n))(hidden)
        return keras.Model(seen, [logits, values])

    return made


@pytest.mark.slow
def test_a_member_learns_with_a_network_of_its_own_as_it_would_alone(tmp_path):
    found = grown(network=own_network())
    firsts = [x.policy.state for x in found.agents]
    assert firsts[0].model_def is firsts[1].model_def
    with trainer.Trainer(
        tmp_path,
        seed=5,
        agent=PPO,
        make_envs=lambda n_envs: vector_env.as_vector_env(ENV, n_envs),
        n_envs=2,
        experience=experience.Trajectories(10),
        total_env_steps=80,
        intervals=cadence.Intervals(eval_episodes=1),
        collector="compiled",
        network=own_network(),
    ) as alone:
        alone.run(quiet=True)
    same = carrying.named_like(alone.agent, found.agents[1])
    one, other = (tf.nest.flatten(x) for x in (found.agents[1], same))
    for mine, its in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-4, atol=1e-6)
    assert found.agents[1].policy.act(np.zeros((1, 4), "f")).actions.shape == (1,)


def test_members_may_begin_with_one_model():
    model = own_network()(ENV.observation_space, ENV.action_space)
    before = [x.numpy() for x in model.trainable_variables]
    found = grown(network=model, total_env_steps=20, log_epochs=1)
    for x, y in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(x, y)
    kernels = [tf.nest.flatten(x.policy.state.params)[0] for x in found.agents]
    assert np.abs(kernels[0] - kernels[1]).max() > 0  # what they played differs


def gained(x, gain):
    return gain * x


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ([own_network(), own_network("relu")], "activation 'tanh' .* of 'relu'"),
        ([own_network(), own_network(units=9)], "units 8 .* of 9"),
        (
            [own_network(functools.partial(gained, gain=x)) for x in (1, 2)],
            "with the same weights answers that are other ones",
        ),
    ],
)
def test_networks_that_differ_in_more_than_weights_are_refused(kinds, message):
    rest = iter([kinds[0], *kinds])  # one shows the program
    told = "`network` expected .* weights alone; got of the members 0 and 1 .*"
    with pytest.raises(ValueError, match=told + message):
        grown(network=lambda *spaces: next(rest)(*spaces))


class Unasking(agents.PPO):
    def create(self, observation_space, action_space, *, seed=0):
        return super().create(observation_space, action_space, seed=seed)


def test_an_agent_that_takes_no_network_is_named():
    with pytest.raises(TypeError, match="`train_population`: `network` expected None"):
        grown(Unasking(), network=own_network())


@pytest.mark.slow
def test_members_have_temperatures_of_their_own():
    box = wrappers.AutoReset(wrappers.TimeLimit(pendulum.Pendulum(), 7))
    given = {"env": box, "experience": REPLAYED, "total_env_steps": 40}
    given["hyperparameters"] = {"temperature": [0.5, 0.25]}
    fixed = agents.SAC(hidden_units=(4,), learn_temperature=False)
    found = [float(x.log_temperature.params) for x in grown(fixed, **given).agents]
    np.testing.assert_allclose(np.exp(found), [0.5, 0.25], rtol=1e-6)
    with pytest.raises(ValueError, match="floats that an update reads, .*'temperatu"):
        grown(dataclasses.replace(fixed, learn_temperature=True), **given)


@pytest.mark.slow
@pytest.mark.parametrize("n_cores", [2, 3, 5])
def test_members_are_shared_out_to_all_cores(n_cores, monkeypatch):
    seeds, rates = (0, 5, 7), [1e-3, 3e-3, 1e-2]
    given = {"seeds": seeds, "hyperparameters": {"learning_rate": rates}}
    monkeypatch.setattr(cores, "n_cores", lambda: 1)
    one_by_one = grown(**given)
    monkeypatch.setattr(cores, "n_cores", lambda: n_cores)
    shared = grown(**given)
    np.testing.assert_allclose(shared.returns, one_by_one.returns, rtol=1e-6)
    for one, other in zip(shared.agents, one_by_one.agents, strict=True):
        assert one.config == other.config
        for x, y in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_members_play_side_by_side_once_one_has_compiled(monkeypatch):
    monkeypatch.setattr(cores, "n_cores", lambda: 2)
    compiled = population.replicated.compiled_update
    both, calls = threading.Barrier(2, timeout=60), []

    def met(function):
        update = compiled(function)

        def played(*args):
            calls.append(len(calls))
            if len(calls) > 2:  # which no thread passes alone
                both.wait()
            return update(*args)

        return played

    monkeypatch.setattr(population.replicated, "compiled_update", met)
    grown(total_env_steps=120)
    assert len(calls) == 6


def test_curves_are_of_all_members():
    found = grown(seeds=range(4), hyperparameters={"learning_rate": RATES})
    assert [agent.config.learning_rate for agent in found.agents] == RATES
    assert found.returns.shape == (4, 2) and found.env_steps.tolist() == [40, 80]
    curve = found.curve()
    assert (curve.min_y <= curve.y).all() and (curve.y <= curve.max_y).all()
    np.testing.assert_array_equal(found.sources, np.arange(4)[:, None] * [1, 1])


@pytest.mark.slow
def test_the_worst_take_over_what_the_best_are():
    found = grown(
        seeds=range(4), hyperparameters={"learning_rate": RATES}, exploit_epochs=2
    )
    order = found.returns[:, 0].argsort(kind="stable")
    worst, best = order[0], order[-1]
    expected = np.arange(4)
    expected[worst] = best
    np.testing.assert_array_equal(found.sources[:, 0], expected)
    rates = found.hyperparameters["learning_rate"]
    ratio = rates[worst] / RATES[best]
    assert np.isclose(ratio, 1.25) or np.isclose(ratio, 0.8)
    np.testing.assert_array_equal(np.delete(rates, worst), np.delete(RATES, worst))
    assert found.agents[worst].config.learning_rate == rates[worst]


@pytest.mark.slow
def test_settings_stay_in_their_range():
    ones, zeros = [1.0] * 8, [0.0] * 8
    given = {"lambda_": ones, "gamma": ones, "entropy_coefficient": zeros}
    found = grown(seeds=range(8), hyperparameters=given, exploit_epochs=2)
    moved = found.sources[:, 0] != np.arange(8)
    assert moved.sum() == 2
    for name in ("lambda_", "gamma"):
        values = found.hyperparameters[name]
        assert set(values[moved]) <= {1.0, 0.8} and (values[~moved] == 1.0).all()
    assert 1.0 in [
        found.hyperparameters[x][i] for x in given for i in moved.nonzero()[0]
    ]
    assert (found.hyperparameters["entropy_coefficient"] == 0.0).all()


@pytest.mark.slow
def test_seeds_may_be_an_array():
    found, expected = grown(seeds=np.array([0, 5])), grown()
    np.testing.assert_array_equal(found.returns, expected.returns)


def test_seeds_are_whole_numbers():
    with pytest.raises(TypeError, match="`seeds` expected an int"):
        grown(seeds=np.array([0.0, 1.0]))
    with pytest.raises(TypeError, match="`seeds` expected a sequence of ints"):
        grown(seeds="01")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "settings"),
    [
        ({"gamma": 1, "entropy_coefficient": 0}, {"gamma": [0.5, 0.9]}),
        ({"gamma": 1, "entropy_coefficient": 0}, {"entropy_coefficient": [0, 1]}),
        ({"value_clip": None}, {"value_clip": [0.1, 0.2]}),
    ],
)
def test_settings_are_swept_whatever_they_are_now(base, settings):
    config = dataclasses.replace(PPO, **base)
    found = grown(config, hyperparameters=settings)
    for i, agent in enumerate(found.agents):
        own = {name: float(x[i]) for name, x in settings.items()}
        assert agent.config == dataclasses.replace(config, **own)


@pytest.mark.parametrize(
    "name",
    [
        "max_gradient_norm",
        "rate",
        *default_rows.slow("log_std", "n_epochs", "activation"),
    ],
)
def test_what_no_update_reads_is_refused_before_members_are_made(name, monkeypatch):
    made = []
    make = population._parts.made_agent
    monkeypatch.setattr(
        population._parts, "made_agent", lambda *x: made.append(x) or make(*x)
    )
    able = "'clip', 'entropy_coefficient', 'gamma', 'lambda_', 'learning_rate', "
    able += "'target_kl', 'value_clip', 'value_coefficient'"
    told = rf"`hyperparameters` expected .* of \[{able}\]; got '{name}'"
    with pytest.raises(ValueError, match=told):
        grown(hyperparameters={"clip": [0.1, 0.2], name: [0.5, 1]})
    assert len(made) == 1


def test_settings_of_an_own_agent_are_those_that_its_update_reads():
    told = "floats that an update reads, as `agent.config.NAME`, .*'tau'.; got 'learn.*"
    with pytest.raises(ValueError, match=told + "one that only `create` reads"):
        given = {"learning_rate": [1e-3, 1e-4], "tau": [0.1, 0.2]}
        grown(own_agent.SlowQ(), experience=REPLAYED, hyperparameters=given)


@pytest.mark.slow
def test_atoms_by_which_networks_act_are_no_setting_of_members():
    config = agents.C51(hidden_units=(8,))
    with pytest.raises(ValueError, match="update reads, .*; got 'v_min'"):
        grown(config, experience=REPLAYED, hyperparameters={"v_min": [-5.0, -3.0]})


def test_a_member_that_diverges_is_named_with_its_settings():
    config = dataclasses.replace(PPO, max_gradient_norm=None)
    told = "member 1`: `agent` expected weights that stay finite; got .*, of "
    told += r"\{'learning_rate': 1e\+30\}, within [1-4] epoch.s.; lower"
    with pytest.raises(ValueError, match=told):
        grown(config, hyperparameters={"learning_rate": [1e-3, 1e30]})


class Unseen(cartpole.CartPole):
    def step(self, state, actions, noise):
        found = super().step(state, actions, noise)
        return found._replace(final_observations=found.observations / 0.0)


def test_a_member_that_sees_what_is_not_finite_is_named():
    env = wrappers.AutoReset(wrappers.TimeLimit(Unseen(), 9))
    message = "`train_population, member 0`: `next_observations` expected finite"
    with pytest.raises(ValueError, match=message):
        grown(seeds=[0, 1], env=env)


class UnseenEnds(cartpole.CartPole):
    def step(self, state, actions, noise):
        found = super().step(state, actions, noise)
        odd = tf.where(found.terminated, np.nan, 0.0)[:, None]
        return found._replace(final_observations=found.observations + odd)


@pytest.mark.slow
def test_an_environment_that_shows_nan_later_is_not_taken_for_a_divergence():
    env = wrappers.AutoReset(wrappers.TimeLimit(UnseenEnds(), 99))
    learned = experience.Trajectories(4)  # none falls in the first of these
    agent = dataclasses.replace(PPO, minibatch_size=8, learning_rate=1e-5)
    with pytest.raises(ValueError, match=r"member [01]`: `next_observations` expected"):
        grown(agent, env=env, experience=learned, total_env_steps=400, log_epochs=50)


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        ("CartPole-v1", TypeError, "`env` expected a compiled environment"),
        (cartpole.CartPole(), ValueError, "`train_population`: `env` .*in AutoReset"),
        (wrappers.NormalizeObservations(ENV), ValueError, "`env` .* moments of obs"),
    ],
)
def test_other_environments(env, error, message):
    with pytest.raises(error, match=message):
        population.train_population(agents.PPO(), env, seeds=[0])


OFFLINE = agents.AWAC(hidden_units=(8,))


@pytest.mark.parametrize(
    ("agent", "learned", "message"),
    [
        (agents.Independent(), None, "`agent` .* plays in a graph; got Independent"),
        (agents.SelfPlay(), None, "got SelfPlay, .*; train it by `Trainer`, with the"),
        (agents.BC(), None, "`agent` .* from environments; got BC, .* from data alone"),
        (OFFLINE, None, "`experience` expected Replayed, as members .*; got None"),
        (OFFLINE, experience.FromDataset(dict), "expected Replayed, .*; got FromData"),
        (PPO, REPLAYED, "`experience` expected Trajectories, which PPO"),
        (DQN, experience.Replayed(frame_stack=2), "expected .* without `frame_stack`"),
    ],
)
def test_what_no_member_learns_from_is_refused(agent, learned, message):
    with pytest.raises((TypeError, ValueError), match="^`train_population`: .*"):
        grown(agent, experience=learned)
    with pytest.raises((TypeError, ValueError), match=message):
        grown(agent, experience=learned)


def test_an_update_that_cannot_be_traced_is_told_without_other_collectors(monkeypatch):
    def update(agent, trajectory):
        return agent, {"loss": int(trajectory.rewards[0, 0])}

    monkeypatch.setattr(agents.PPOAgent, "update", update)
    with pytest.raises(
        TypeError, match="^`train_population`: `agent` .* traced, wit.*where`$"
    ):
        grown()
    with agent_examples.two_replicas().scope():  # which this leaves possible
        assert tf.distribute.get_strategy().num_replicas_in_sync == 2


def test_no_strategy_of_several_devices():
    with agent_examples.two_replicas().scope():
        with pytest.raises(ValueError, match="no strategy .*; got 2 replicas; call it"):
            grown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": []}, "`seeds` expected one at least"),
        ({"hyperparameters": {"gamma": [0.9]}}, "'gamma'.*expected a number for each"),
        ({"hyperparameters": {"gamma": [0.9, 2.0]}}, "`gamma`"),
        ({"exploit_epochs": 2}, "`exploit_epochs` expected 4 members.*; got 2 seeds"),
        ({"exploit_epochs": 3}, "`exploit_epochs` expected a multiple"),
        ({"n_envs": 0}, "`n_envs`"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        grown(**changes)
