"""Tests of `tfrl.policies._keras_policy` by `ActorCriticPolicy.to_keras`."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import gradient_transforms, ppo, train_state
from tfrl.exporting import export
from tfrl.policies import actor_critic

S = gym.spaces
NEST = S.Dict(
    place=S.Box(-np.inf, np.inf, (2,), np.float64),
    goal=S.Discrete(3),
    rest=S.Tuple((S.MultiBinary(2), S.Box(-5.0, 5.0, ()))),
)
SPACES = {
    "box": S.Box(-1.0, 1.0, (3,)),
    "multi discrete": S.MultiDiscrete([3, 2]),
    "image": S.Box(0, 255, (36, 36, 1), np.uint8),
    "nest": NEST,
}


def batch_of(space, n=5):
    space.seed(0)
    samples = [space.sample() for _ in range(n)]
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *samples)


def trained_policy(space, seed=0, normalize=True):
    """A policy of weights and moments that are not the initial ones."""
    policy = actor_critic.ActorCriticPolicy.create(
        space,
        S.Box(-1.0, 1.0, (2,)),
        learner=lambda network: train_state.TrainState.create(
            network, tx=gradient_transforms.sgd(0.1)
        ),
        hidden_units=(8,),
        normalize_observations=normalize,
        seed=seed,
    )
    grads = tf.nest.map_structure(tf.ones_like, policy.state.params)
    policy = policy.replace(state=policy.state.apply_gradients(grads=grads))
    if not normalize:
        return policy
    return policy.update_moments(batch_of(space, 20), tf.ones([20]))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("kind", SPACES)
def test_a_model_is_its_policy_saved_and_exported(tmp_path, kind):
    policy, observations = trained_policy(SPACES[kind]), batch_of(SPACES[kind])
    model = policy.to_keras()
    parameters = policy.parameters(observations)
    _, values = policy.state(policy.normalize(observations))
    path = tmp_path / "model.keras"
    model.save(path)
    for each in (model, keras.models.load_model(path)):
        found = each(observations)
        np.testing.assert_allclose(found[0], parameters, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[1], values, rtol=1e-4, atol=1e-5)
    export.export_model(model, tmp_path / "served")
    assert export.verify(tmp_path / "served") == {"serving_default": 0.0}
    np.testing.assert_allclose(
        model.predict(observations, verbose=0)[0], parameters, rtol=1e-4, atol=1e-5
    )


def test_agents_of_one_architecture_export_their_own_weights(tmp_path):
    space = SPACES["box"]
    config = ppo.PPO(hidden_units=(8,), minibatch_size=2)
    first, second = (
        config.create(space, S.Discrete(2), n_envs=1, n_steps=2, seed=seed).policy
        for seed in range(2)
    )
    x = batch_of(space)
    found = []
    for name, policy in (("first", first), ("second", second)):
        export.export_model(policy.to_keras(), tmp_path / name)
        served = tf.saved_model.load(tmp_path / name)
        outputs = served.signatures["serving_default"](tf.constant(x))
        expected = policy.parameters(x)
        np.testing.assert_allclose(outputs["output_0"], expected, atol=1e-6)
        # What lies behind `model_def` is the policy's own, too: its initial weights.
        np.testing.assert_allclose(policy.state.model_def(x)[0], expected, atol=1e-6)
        found.append(expected)
    assert np.abs(found[0] - found[1]).max() > 1e-4


def test_a_model_is_apart_from_its_policy():
    policy, x = trained_policy(SPACES["box"]), batch_of(SPACES["box"])
    before = policy.parameters(x)
    model, other = policy.to_keras(), policy.to_keras()
    model.compile(keras.optimizers.SGD(0.1), loss=["mse", "mse"])
    model.fit(x, [np.zeros((5, 4)), np.zeros(5)], epochs=2, verbose=0)
    assert np.abs(model(x)[0] - before).max() > 1e-4
    np.testing.assert_array_equal(policy.parameters(x), before)
    np.testing.assert_allclose(other(x)[0], before, rtol=1e-5, atol=1e-6)
    moments = policy.observation_moments[0]
    weights = {weight.name: weight for weight in model.non_trainable_weights}
    np.testing.assert_array_equal(weights["mean"], moments.mean)
    np.testing.assert_array_equal(weights["count"], moments.count)


def test_without_normalizer():
    policy = trained_policy(SPACES["box"], normalize=False)
    model, x = policy.to_keras(), batch_of(SPACES["box"])
    assert not model.non_trainable_weights
    np.testing.assert_allclose(model(x)[0], policy.parameters(x), rtol=1e-5, atol=1e-6)


def test_inputs_are_named_as_observations_are():
    named = {x.name: (x.shape, x.dtype) for x in trained_policy(NEST).to_keras().inputs}
    assert named == {
        "place": ((None, 2), "float32"),
        "goal": ((None,), "int64"),
        "rest_0": ((None, 2), "float32"),
        "rest_1": ((None,), "float32"),
    }
    (image,) = trained_policy(SPACES["image"]).to_keras().inputs
    assert (image.name, image.dtype) == ("observations", "uint8")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_several_policies_in_one_model(tmp_path):
    policies = [trained_policy(SPACES["box"], seed) for seed in range(2)]
    models = [policy.to_keras(f"policy_{i}") for i, policy in enumerate(policies)]
    inputs = keras.Input((3,))
    both = keras.Model(inputs, [model(inputs)[0] for model in models])
    both.save(tmp_path / "both.keras")
    x = batch_of(SPACES["box"])
    for each in (both, keras.models.load_model(tmp_path / "both.keras")):
        for found, policy in zip(each(x), policies, strict=True):
            np.testing.assert_allclose(found, policy.parameters(x), atol=1e-5)
    assert policies[0].to_keras().name == "policy"
    with pytest.raises(TypeError, match="`to_keras`: `name` expected a str"):
        policies[0].to_keras(3)
