"""Tests of policies with a head of one's own class."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents, distributions, environments, policies, training
from tfrl.host import heads
from tfrl.training.collecting import _actor_policies, actors

S = gym.spaces
SEEN = S.Box(-1.0, 1.0, (3,))


class BetaMethods:
    def distribution(self, parameters):
        a, b = tf.split(1.0 + tf.nn.softplus(parameters), 2, axis=-1)
        return distributions.DiagMultivariateBeta(a, b)

    def sample(self, parameters, seed):
        return self.distribution(parameters).sample(seed=seed)

    def mode(self, parameters):
        return self.distribution(parameters).mode()

    def log_prob(self, parameters, actions):
        return self.distribution(parameters).log_prob(actions)

    def entropy(self, parameters):
        return self.distribution(parameters).entropy()

    def tempered(self, parameters, temperature):
        return parameters - tf.math.log(temperature)

    def to_env(self, actions):
        return 4.0 * actions - 2.0

    def from_env(self, actions):
        return (actions + 2.0) / 4.0


@dataclasses.dataclass(frozen=True)
class BetaHead(BetaMethods, distributions.NormalHead):
    pass


class WideHead(distributions.NormalHead):
    """Changes a part that its methods share, not these."""

    def _deviation(self, free):
        return 100.0 + tf.exp(free)

    def _log_deviation(self, free):
        return tf.math.log(self._deviation(free))


class WiderHead(WideHead):
    """Draws in NumPy by itself."""

    def host_sample(self, parameters, rng):
        return 1000.0 + self.host_mode(parameters) + rng.random()


class ToldHead(distributions.NormalHead):
    """Adds something, and changes nothing."""

    def told(self):
        return "as before"


class LastHead(distributions.CategoricalHead):
    """Of equal options it takes the last."""

    def mode(self, parameters):
        return self.n_outputs - 1 - super().mode(parameters[..., ::-1])


def with_head(kind, action_space=None, agent=None):
    agent = agent or agents.PPO(minibatch_size=64, n_epochs=2)
    made = agent.create(SEEN, action_space or S.Box(-2.0, 2.0, (2,)), seed=0)
    given = {x.name: getattr(made.policy.head, x.name) for x in fields(made)}
    return made.replace(policy=made.policy.replace(head=kind(**given)))


def fields(agent):
    return dataclasses.fields(agent.policy.head)


def observations(n_rows=2000):
    return np.repeat(np.random.default_rng(1).normal(size=(1, 3)), n_rows, 0).astype(
        "f"
    )


def hosts_of(policy):
    return policy, policies.HostPolicy(policy, log_probs=True)


def test_a_beta_head_acts_alike_everywhere():
    policy, seen = with_head(BetaHead).policy, observations()
    parameters = policy.parameters(tf.constant(seen))
    for temperature in (1.0, 0.3):
        shaped = policy.head.tempered(parameters, temperature)
        for host in hosts_of(policy):
            acted = host.act(seen, seed=0, temperature=temperature)
            raw = acted.raw_actions
            assert type(raw) is type(acted.actions) is np.ndarray
            assert 0.0 <= raw.min() and raw.max() <= 1.0
            expected = policy.head.distribution(shaped[:1])
            error = 4.0 * expected.stddev()[0] / np.sqrt(len(raw))
            assert np.all(np.abs(raw.mean(0) - expected.mean()[0]) < error)
            log_probs = policy.head.log_prob(shaped, raw)
            np.testing.assert_allclose(acted.log_probs, log_probs, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(acted.actions, 4.0 * raw - 2.0, atol=1e-6)
    best = policy.act(tf.constant(seen[:3]), temperature=0.0).actions
    for host in hosts_of(policy):
        found = host.act(seen[:3], temperature=0.0).actions
        np.testing.assert_allclose(found, best, atol=1e-5)


def test_what_methods_share_is_of_the_class_too():
    policy = with_head(WideHead).policy
    for host in hosts_of(policy):
        acted = host.act(observations(), seed=0)
        assert 80.0 < acted.raw_actions.std() < 120.0
        parameters = policy.parameters(tf.constant(observations()))
        known = policy.head.log_prob(parameters, acted.raw_actions)
        np.testing.assert_allclose(acted.log_probs, known, rtol=1e-4)
    acted = with_head(WiderHead).policy.act(observations(4), seed=0)
    assert acted.raw_actions.min() > 900.0


def test_choices_parts_and_masks():
    policy = with_head(LastHead, S.Discrete(3)).policy
    flat = policy.replace(
        state=policy.state.replace(
            params=tf.nest.map_structure(tf.zeros_like, policy.state.params)
        )
    )
    for host in hosts_of(flat):
        acted = host.act(observations(4), temperature=0.0)
        assert acted.actions.tolist() == [2] * 4
        mask = np.array([[True, True, False]] * 4)
        acted = host.act(observations(4), temperature=0.0, mask=mask)
        assert acted.actions.tolist() == [1] * 4
    space = S.Dict(press=S.Discrete(2), steer=S.Box(-2.0, 2.0, (2,)))
    policy = agents.PPO().create(SEEN, space, seed=0).policy
    press, steer = policy.head.parts
    steer = BetaHead(steer.low, steer.high, steer.shape, steer.dtype)
    policy = policy.replace(head=dataclasses.replace(policy.head, parts=(press, steer)))
    assert not policy.head.is_mirrored
    for host in hosts_of(policy):
        raw = host.act(observations(), seed=0).raw_actions
        assert {*raw["press"].tolist()} == {0, 1}
        assert 0.0 <= raw["steer"].min() and raw["steer"].max() <= 1.0


def test_what_changes_nothing_keeps_its_copy():
    agent, usual = with_head(ToldHead), with_head(distributions.NormalHead)
    assert agent.policy.head.is_mirrored
    assert type(agent.policy.head.plain()) is type(usual.policy.head.plain())
    np.testing.assert_array_equal(
        agent.policy.act(observations(4), seed=0).actions,
        usual.policy.act(observations(4), seed=0).actions,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*Box.*")
def test_agents_learn_by_a_beta_head():
    envs = environments.make_vec("Pendulum-v1", n_envs=2)
    agent = with_head(BetaHead, S.Box(-2.0, 2.0, (1,)))
    collector = training.Collector(envs, n_steps=32, seed=0)
    played = collector.collect(
        policies.HostPolicy(agent.policy, log_probs=True), np.random.default_rng(0)
    )
    assert 0.0 <= played.actions.min() and played.actions.max() <= 1.0
    agent, info = agent.update(played)
    assert all(np.isfinite(float(value)) for value in info.values())
    found = training.evaluate(agent.policy, envs, n_episodes=2, seed=0)
    assert np.isfinite(found.returns).all()


def test_actors_take_what_they_can():
    made = with_head(BetaHead)
    played, _ = _actor_policies.acting_of(made.policy, lambda: made.policy, True)
    assert isinstance(played, _actor_policies.TensorFlowActing)
    acted = played.begin().act(observations(8), (), np.random.default_rng(0))
    assert 0.0 <= acted.raw_actions.min() and acted.raw_actions.max() <= 1.0
    message = "`host_draw`: `head` expected one of `tfrl.distributions`.*got BetaHead"
    with pytest.raises(TypeError, match=message):
        made.policy.host_draw()
    with pytest.raises(TypeError, match=message):
        actors.Actors("Pendulum-v1", made.policy, lambda *_: None, n_actors=1)


class Duck(BetaMethods):
    n_outputs, n_log_stds, n_options, shape, dtype = 4, 0, 0, (2,), "float32"


@pytest.mark.parametrize("part", [False, True])
def test_a_head_that_is_none_is_refused(part):
    policy, head = with_head(BetaHead).policy, Duck()
    if part:
        head = distributions.CompositeHead((head,))
    policy = policy.replace(head=head)
    message = "`HostPolicy`: `policy` expected a head of `tfrl.distributions`.*got Duck"
    for acting in (policies.HostPolicy, lambda x: x.act(observations(4), seed=0)):
        with pytest.raises(TypeError, match=message):
            acting(policy)


@dataclasses.dataclass(frozen=True)
class SquashedHead(distributions.NormalHead):
    """Changes a field alone."""

    squash: bool = True


def test_another_default_is_drawn_in_numpy():
    given = (-1.0, -1.0), (1.0, 1.0), (2,), "float32"
    head = SquashedHead(*given)
    assert head.is_mirrored and type(head.plain()) is heads.NumpyNormal
    assert head.plain().squash
