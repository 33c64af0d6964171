"""Tests of `tfrl.agents.off_policy.sac` against the algorithm written out."""

import dataclasses

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import soft_examples
import tensorflow as tf
from agent_examples import assert_close, two_replicas
from soft_examples import BOX, MIXED, STEER

from tfrl.agents import _actor_critics, replicated
from tfrl.agents.off_policy import crossq, sac, tqc

S = gym.spaces
K, B = 3, 4
CLOSE = {"rtol": 2e-4, "atol": 1e-5}
ENSEMBLE = {
    "n_critics": 4,
    "n_critics_in_target": 2,
    "actor_value": "mean",
    "policy_delay": 2,
    "dropout_rate": 0.2,
    "layer_norm": True,
}


def make_agent(space=BOX, actions=STEER, seed=0, network=None, **settings):
    rates = dict.fromkeys(("learning_rate", "critic_learning_rate"), 0.01)
    rates["temperature_learning_rate"] = 0.02
    config = sac.SAC(**{"hidden_units": (8,), **rates, **settings})
    agent = config.create(space, actions, seed=seed, network=network)
    # A copy that is another network tells targets from values.
    if network is None:
        other = config.create(space, actions, seed=seed + 50)
        agent = agent.replace(target_params=other.target_params)
    return agent


def test_an_update_equals_the_algorithm_written_out(monkeypatch):
    noise = np.random.default_rng(3).normal(size=(B, 2))
    drawn = [tf.constant(noise, tf.float32)]
    monkeypatch.setattr(_actor_critics, "noise_of", lambda *_: drawn)
    # No other test has these sizes, of which traces know the noise.
    agent = make_agent(hidden_units=(7,), temperature=0.3, tau=0.2, policy_delay=2)
    sample = soft_examples.sample_of(agent, BOX, K, B)

    def target_of(rewards, discounts, values, cost):
        return rewards + discounts * (tf.reduce_min(values[..., 0], axis=0) - cost)

    def losses_of(values, targets):
        return tf.reduce_sum((values[..., 0] - targets) ** 2, axis=0) / 2

    def raised_of(values):
        return tf.reduce_min(values[..., 0], axis=0)

    rules = target_of, losses_of, raised_of
    soft_examples.assert_written_out(agent, sample, noise, CLOSE, *rules)


def test_choices_are_expected_and_forbidden_ones_do_not_count():
    logits = tf.constant([[0.0, 1.0, -np.inf]])
    probs, log_probs, entropies = _actor_critics.choice_of(logits)
    share = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum()
    np.testing.assert_allclose(probs[0], [*share, 0.0], rtol=1e-6)
    assert log_probs[0, 2] == 0.0
    np.testing.assert_allclose(entropies[0], -(share * np.log(share)).sum(), rtol=1e-6)
    agent = make_agent(actions=S.Discrete(3, start=5))
    state, x = agent.policy.state, np.ones((2, 3), np.float32)
    drawn = agent._drawn(agent._shaped(state, state.params, x), ())
    expected = tf.nn.softmax(agent.policy.parameters(x))
    np.testing.assert_allclose(drawn.features, expected, rtol=1e-5)
    values = tf.constant([[[1.0, 2.0, 6.0]]])
    np.testing.assert_allclose(agent._expected(values, tf.ones([1, 3]) / 3), [[3.0]])
    # The noise of mixed actions is that of each part; choices are one-hot.
    agent = make_agent(actions=MIXED)
    head, parameters = agent.policy.head, tf.ones([5, agent.policy.head.n_outputs])
    noise = _actor_critics.noise_of(head, 5, tf.constant([1, 2]))
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        drawn = _actor_critics.drawn(head, parameters, noise)
        total = tf.reduce_sum(drawn.features**3)
    assert drawn.features.shape == (5, 2 + 2 + 5)
    choices = np.delete(drawn.features, [2, 3], axis=1)
    np.testing.assert_allclose(np.sort(choices)[:, -3:], 1.0, rtol=1e-6)
    assert np.all(np.isfinite(tape.gradient(total, parameters)))
    exact = np.log([2, 2, 3]).sum()
    boxes = drawn.entropies - exact
    alone = _actor_critics.drawn(make_agent().policy.head, tf.ones([5, 4]), [noise[1]])
    np.testing.assert_allclose(boxes, alone.entropies, rtol=1e-4)
    assert _actor_critics.target_entropy(head) == pytest.approx(-2 + 0.98 * exact)


# What masks allow of options 2 and 4: 2 and 1 of them, 1 and 3, nothing of the first.
SOME = np.array([[1, 1, 0, 1, 0, 0], [0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 1, 1]])
MASKED = S.Dict(action_mask=S.MultiBinary(6), x=BOX)
TWO = S.MultiDiscrete([2, 4])


def masked_sample(n_steps=1):
    """Minibatches of 6 rows, whose observations have the masks above."""
    outer = n_steps, 6
    sample = soft_examples.sample_of(make_agent(actions=TWO), BOX, *outer)
    data, masks = sample.data, np.tile(SOME[:2].astype(np.int8), (n_steps, 3, 1))
    seen, later = (
        {"action_mask": masks, "x": x}
        for x in (data.observations, data.next_observations)
    )
    data = data._replace(observations=seen, next_observations=later)
    return sample._replace(data=data)


@pytest.mark.parametrize(
    "config",
    [
        sac.SAC(hidden_units=(5,)),
        pytest.param(tqc.TQC(hidden_units=(5,)), marks=pytest.mark.slow),
        pytest.param(
            crossq.CrossQ(hidden_units=(5,), critic_units=(5,), policy_delay=1),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_a_mask_allows_is_what_the_entropy_is_to_be_of(config):
    agent = config.create(MASKED, TWO)
    shaped = tf.where(SOME == 1, 0.0, -np.inf)
    wanted = 0.98 * np.log([[2, 1], [1, 3]]).sum(axis=-1).mean()
    assert float(agent._wanted_entropy(shaped[:2])) == pytest.approx(wanted)
    # A policy that knows nothing has more, so that the temperature falls; 0.98 log 8
    # would be more than all of it.
    learned, info = agent.update(masked_sample())
    most = wanted / 0.98
    assert wanted < float(info["entropy"]) <= most < 0.98 * np.log(8)
    assert float(learned.log_temperature.params) < 0.0
    given = dataclasses.replace(config, target_entropy=1.5).create(MASKED, TWO)
    assert float(given._wanted_entropy(shaped[:2])) == 1.5


def test_entropies_of_masked_nests_are_of_the_parts():
    space = S.Dict(k=TWO, steer=STEER, w=S.Discrete(3))
    head = make_agent(actions=space).policy.head
    logits = np.where(SOME[:2] == 1, 0.5, -np.inf)
    rest = np.zeros([2, 2]), np.array([[0.0, -np.inf, 1.0], [1.0, 2.0, 3.0]])
    parameters = np.concatenate([logits, *rest, np.ones([2, 2])], axis=1)
    found = _actor_critics.allowed_target_entropy(
        head, tf.constant(parameters, "float")
    )
    exact = np.log([[2, 1, 2], [1, 3, 3]]).sum(axis=-1).mean()
    assert float(found) == pytest.approx(0.98 * exact - 2.0)


@pytest.mark.slow
def test_replicas_want_the_entropy_that_one_wants():
    agent = make_agent(MASKED, TWO)
    sample = masked_sample(K)
    alone = agent.update(sample)
    with two_replicas().scope():
        shared = make_agent(MASKED, TWO).update(sample)
    assert_close(shared, alone, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actions", "settings"),
    [
        (MIXED, ENSEMBLE),
        (STEER, ENSEMBLE),
        (MIXED, {}),
        (STEER, {}),
        (S.Discrete(3), ENSEMBLE),
        (S.Box(-np.inf, np.inf, (2,)), {}),
    ],
    ids=["mixed ensemble", "ensemble", "mixed", "box", "choice", "without bounds"],
)
def test_k_minibatches_are_k_updates_of_one(actions, settings):
    agent = make_agent(actions=actions, **settings)
    sample = soft_examples.sample_of(agent, BOX, K, B)
    at_once, info = agent.update(sample)
    one_by_one, priorities = agent, []
    for k in range(K):
        part = tf.nest.map_structure(lambda x: x[k], sample)  # noqa: B023
        one_by_one, found = one_by_one.update(part)
        priorities.append(found["priorities"])
    assert_close(one_by_one, at_once, **CLOSE)
    np.testing.assert_allclose(info["priorities"], priorities, rtol=1e-4, atol=1e-5)
    assert np.isfinite(tf.nest.flatten(info)[0]).all()
    for name, value in at_once.critics.params.items():
        assert np.any(value != agent.critics.params[name]), name


def test_the_target_is_of_some_critics_and_not_always_of_the_same():
    agent = make_agent(n_critics=5, n_critics_in_target=2)
    seen = {tuple(agent._chosen(tf.constant([0, i])).numpy()) for i in range(30)}
    assert {sum(chosen) for chosen in seen} == {2} and len(seen) > 5
    assert make_agent(n_critics_in_target=2)._chosen(tf.constant([0, 0])) is None


@pytest.mark.slow
def test_gradients_of_each_network_are_clipped():
    free, bound = (make_agent(max_gradient_norm=x) for x in (None, 1e-12))
    sample = soft_examples.sample_of(free, BOX, 1, B)
    for name in ("policy", "critics"):
        moved = []
        for agent in (free, bound):
            before, after = (getattr(x, name) for x in (agent, agent.update(sample)[0]))
            before, after = (getattr(x, "state", x).params for x in (before, after))
            moved.append(max(np.abs(after[k] - before[k]).max() for k in before))
        # Adam divides gradients that small by its epsilon, not by themselves.
        assert moved[1] < 1e-3 * moved[0], name


FIXED = {
    "box": (sac.SAC(), STEER),
    "choice": (sac.SAC(), S.Discrete(3)),
    "mixed": (sac.SAC(), MIXED),
    "TQC": (tqc.TQC(), STEER),
    "CrossQ": (crossq.CrossQ(critic_units=(8,)), STEER),
}


@pytest.mark.parametrize(("config", "actions"), default_rows.params(FIXED, ["box"]))
def test_a_fixed_temperature_is_that_of_the_settings(config, actions):
    config = dataclasses.replace(config, hidden_units=(8,), learn_temperature=False)
    config = dataclasses.replace(config, temperature=0.25)
    agent = config.create(BOX, actions)
    sample = soft_examples.sample_of(agent, BOX, 1, B)
    # As of a checkpoint of a run that learned it.
    other = agent.log_temperature.replace(params=tf.constant(3.0))
    learned, info = agent.replace(log_temperature=other).update(sample)
    assert float(info["temperature"]) == pytest.approx(0.25)
    assert_close(learned, agent.update(sample)[0])


@pytest.mark.slow
def test_a_fixed_temperature_stays(monkeypatch):
    agent = make_agent(learn_temperature=False, temperature=0.5)
    sample = soft_examples.sample_of(agent, BOX, K, B)
    learned, info = agent.update(sample)
    assert float(info["temperature"]) == pytest.approx(0.5)
    assert float(learned.log_temperature.params) == pytest.approx(np.log(0.5))
    monkeypatch.setattr(replicated, "_BRIEF_WORK", 1)  # pieces are those of one call
    assert_close(agent.update(sample), (learned, info), **CLOSE)


@pytest.mark.slow
def test_nests_with_images_are_learned_from():
    image = S.Box(0, 255, (36, 36, 1), np.uint8)
    space = S.Dict(x=BOX, k=S.Discrete(3), i=image)
    agent = make_agent(space, **ENSEMBLE)
    learned, info = agent.update(soft_examples.sample_of(agent, space, 2, 2))
    assert all(np.isfinite(x).all() for x in tf.nest.flatten(info))
    for old, new in ((agent.critics, learned.critics),):
        for name, value in new.params.items():
            assert np.any(value != old.params[name]), name


@pytest.mark.slow
def test_networks_of_ones_own():
    def network(observation_space, action_space):
        shape, n = observation_space.shape, action_space.shape[0]
        actor = keras.Sequential([keras.Input(shape), keras.layers.Dense(2 * n)])
        seen = keras.Input(shape), keras.Input((n,))
        joined = keras.layers.Concatenate()(seen)
        return actor, keras.Model(seen, keras.layers.Dense(1)(joined))

    agent = make_agent(network=network, n_critics=3)
    sample = soft_examples.sample_of(agent, BOX, K, B)
    learned, _ = agent.update(sample)
    kernels = [x for x in learned.critics.params.values() if x.shape == (5, 1)]
    assert len(kernels) == 3 and not np.array_equal(kernels[0], kernels[1])
    alone = make_agent(network=lambda *spaces: network(*spaces)[0])
    assert alone.critics.params.keys() == make_agent().critics.params.keys()
    same = network(BOX, STEER)
    for given, error, message in (
        (lambda *_: same, ValueError, "got one twice"),
        (lambda *_: (same[0], 3), TypeError, "got \\("),
        (lambda *_: None, TypeError, "got None"),
        (lambda *_: (network(BOX, STEER)[0],) * 2, ValueError, "a call that fails"),
    ):
        with pytest.raises(error, match=f"`network` expected .*{message}"):
            make_agent(network=given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": 3.0}, r"`SAC`: `tau` .*\[0.0, 1.0\].*3"),
        ({"n_critics": 2, "n_critics_in_target": 3}, "`n_critics_in_target` .*most"),
        ({"actor_value": "max"}, "`actor_value` .*'min'.*'max'"),
        ({"policy_delay": 0}, "`policy_delay` .*0"),
        ({"temperature": 0.0}, "`temperature` .*> 0; got 0"),
        ({"dropout_rate": 1.5}, "`dropout_rate` .*1.5"),
        ({"dropout_rate": 1.0}, "`dropout_rate` expected less than 1"),
        ({"critic_learning_rate": -1.0}, "`critic_learning_rate` .*> 0; got -1"),
        ({"target_entropy": np.nan}, "`target_entropy` .*nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sac.SAC(**settings)


def test_other_experience_is_refused():
    with pytest.raises(TypeError, match="`SAC.update`: `sample` expected a Sample"):
        make_agent().update(None)
    agent = make_agent()
    empty = tf.nest.map_structure(
        lambda x: np.asarray(x)[:, :0], soft_examples.sample_of(agent, BOX, 1, B)
    )
    with pytest.raises(ValueError, match="`sample` expected a row at least"):
        agent.update(empty)
    with pytest.raises(TypeError, match="`action_space` expected"):
        sac.SAC().create(BOX, S.Text(3))


@pytest.mark.slow
@pytest.mark.parametrize("actions", [STEER, MIXED, S.Discrete(3)], ids=str)
def test_learns_which_action_pays(actions):
    settings = {"target_entropy": -3.0, "hidden_units": (32, 32), "temperature": 0.1}
    agent = first = make_agent(actions=actions, **settings)
    for step in range(60):
        sample = soft_examples.sample_of(first, BOX, 10, 32, seed=step)
        played = agent.policy.head.to_env(sample.data.actions)
        data = sample.data._replace(
            rewards=np.asarray(paid(played), np.float32),
            discounts=np.zeros((10, 32), np.float32),
        )
        agent, _ = agent.update(sample._replace(data=data))
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    best = paid(agent.policy.act(x, temperature=0.0).actions)
    assert np.mean(best) > {S.Box: -0.4, S.Dict: 1.5, S.Discrete: 0.99}[type(actions)]


def paid(actions):
    """Rewards: of steering to (1, 0.5), of pressing and of the choice 2."""
    if isinstance(actions, dict):
        turned = np.asarray(actions["turn"])[..., 1] == 2
        return paid(actions["steer"]) + np.asarray(actions["press"]) + turned
    actions = np.asarray(actions)
    if actions.dtype.kind == "i":
        return (actions == 2).astype(np.float32)
    return -np.abs(actions - [1.0, 0.5]).sum(axis=-1)
