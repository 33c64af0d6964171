"""Every kind of policy is exported, verified, and does what it does here."""

import types

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrl
from tfrl.agents import train_state
from tfrl.exporting import export, policies
from tfrl.policies import (
    action_value,
    actor_critic,
    deterministic,
    policy,
    recurrent,
)

S = gym.spaces
BOX = S.Box(-2.0, 2.0, (3,))
LEARNER = train_state.TrainState.create
ROWS = np.random.default_rng(0).normal(size=[7, 3]).astype(np.float32)


def exported(folder, acting, actions, **options):
    agent = types.SimpleNamespace(policy=acting)
    export.export_policy(agent, folder / "policy", BOX, actions, **options)
    assert max(export.verify(folder / "policy").values()) <= 1e-5
    return tf.saved_model.load(folder / "policy")


def disturbed(acting):
    """The policy with weights that tell actions apart."""
    rng = np.random.default_rng(1)
    params = tf.nest.map_structure(
        lambda x: tf.constant(rng.normal(size=x.shape), x.dtype), acting.state.params
    )
    return acting.replace(state=acting.state.replace(params=params))


def action_values(**options):
    acting = action_value.ActionValuePolicy.create(
        BOX, S.Discrete(4, start=2), learner=LEARNER, hidden_units=(8,), **options
    )
    return disturbed(acting)


@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_action_values(tmp_path, epsilon):
    acting = action_values(epsilon=epsilon)
    model = exported(tmp_path, acting, S.Discrete(4, start=2))
    assert sorted(model.signatures) == ["log_prob", "sample", "serving_default"]
    rows = tf.constant(np.repeat(ROWS, 300, axis=0))
    best = 2 + acting.parameters(rows).numpy().argmax(-1)
    assert len(set(best)) > 1
    greedy = model.signatures["serving_default"](observations=rows)["actions"]
    np.testing.assert_array_equal(greedy, best)
    # Here it is greedy too, of whatever epsilon.
    for given in (rows, rows.numpy()):
        np.testing.assert_array_equal(acting.act(given, temperature=0.0).actions, best)
    drawn = model.signatures["sample"](observations=rows, seed=tf.constant([1, 2]))
    actions = drawn["actions"].numpy()
    assert abs((actions == best).mean() - (1 - 0.75 * epsilon)) < 0.05
    share = np.where(actions == best, 1 - 0.75 * epsilon, epsilon / 4)
    np.testing.assert_allclose(drawn["log_probs"], np.log(share), atol=1e-5)
    told = model.signatures["log_prob"](observations=rows, actions=actions)
    np.testing.assert_allclose(told["log_probs"], np.log(share), atol=1e-5)


def test_action_values_with_a_mask(tmp_path):
    acting = action_values()
    model = exported(tmp_path, acting, S.Discrete(4, start=2), with_mask=True)
    mask = np.array([[True, False, True, False]] * len(ROWS))
    rows = {"observations": tf.constant(ROWS), "action_mask": tf.constant(mask)}
    values = np.where(mask, acting.parameters(tf.constant(ROWS)), -np.inf)
    found = model.signatures["serving_default"](**rows)["actions"]
    np.testing.assert_array_equal(found, 2 + values.argmax(-1))


def test_a_deterministic_policy_has_no_log_probs(tmp_path):
    space = S.Box(-1.0, 1.0, (2,))
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    acting = deterministic.DeterministicPolicy.create(
        BOX, space, learner=LEARNER, network=network, noise=0.1
    )
    model = exported(tmp_path, acting, space)
    assert sorted(model.signatures) == ["sample", "serving_default"]
    given = {"observations": tf.constant(ROWS)}
    greedy = model.signatures["serving_default"](**given)["actions"]
    expected = np.clip(network(ROWS), -1.0, 1.0)
    np.testing.assert_allclose(greedy, expected, atol=1e-6)
    drawn = model.signatures["sample"](**given, seed=tf.constant([0, 1]))
    assert list(drawn) == ["actions"]
    assert 0 < np.abs(drawn["actions"] - greedy).max() < 0.6


def memory_policy():
    acting = recurrent.RecurrentPolicy.create(
        BOX, S.Discrete(4), learner=LEARNER, units=5, hidden_units=(4,)
    )
    return disturbed(acting)


def test_a_recurrent_policy_takes_and_gives_its_state(tmp_path):
    acting = memory_policy()
    model = exported(tmp_path, acting, S.Discrete(4))
    names = ["initial_state", "log_prob", "sample", "serving_default"]
    assert sorted(model.signatures) == names
    begin, greedy, log_prob = (
        model.signatures[name] for name in (names[0], names[3], names[1])
    )
    state = begin(batch_size=tf.constant(7))["state"]
    np.testing.assert_array_equal(state, np.zeros([7, 5]))
    here = acting.initial_state(7)
    for step in range(4):
        rows = tf.constant(ROWS + np.float32(step))
        found = greedy(observations=rows, state=state)
        acted = acting.act(rows, here, temperature=0.0)
        told = log_prob(observations=rows, state=state, actions=found["actions"])
        state, here = found["state"], acted.state
        np.testing.assert_array_equal(found["actions"], acted.actions)
        np.testing.assert_allclose(state, here, atol=1e-5)
        np.testing.assert_allclose(told["state"], here, atol=1e-5)
        np.testing.assert_allclose(told["log_probs"], acted.log_probs, atol=1e-5)
    assert np.abs(state).max() > 0.1


def test_an_observation_named_as_the_memory():
    space = S.Dict(state=BOX)
    acting = recurrent.RecurrentPolicy.create(
        space, S.Discrete(2), learner=LEARNER, units=3
    )
    agent = types.SimpleNamespace(policy=acting)
    with pytest.raises(ValueError, match="no part 'state' beside the input of that"):
        policies.policy_endpoints(agent, space, S.Discrete(2))


COMPOSITE = S.Dict(
    press=S.Discrete(3),
    steer=S.Tuple([S.Box(-1.0, 1.0, (2,)), S.MultiBinary(2)]),
)


@pytest.mark.parametrize("squash", [False, True])
def test_composite_actions(tmp_path, squash):
    acting = disturbed(
        actor_critic.ActorCriticPolicy.create(
            BOX, COMPOSITE, learner=LEARNER, hidden_units=(4,), squash=squash
        )
    )
    model = exported(tmp_path, acting, COMPOSITE)
    rows = tf.constant(ROWS)
    found = model.signatures["serving_default"](observations=rows)
    wanted = acting.act(rows, temperature=0.0).actions
    assert sorted(found) == ["actions_press", "actions_steer_0", "actions_steer_1"]
    np.testing.assert_array_equal(found["actions_press"], wanted["press"])
    for k, part in enumerate(wanted["steer"]):
        np.testing.assert_allclose(found[f"actions_steer_{k}"], part, atol=1e-5)
    drawn = dict(
        model.signatures["sample"](observations=rows, seed=tf.constant([3, 4]))
    )
    log_probs = drawn.pop("log_probs")
    told = model.signatures["log_prob"](observations=rows, **drawn)["log_probs"]
    np.testing.assert_allclose(told, log_probs, atol=1e-4)
    agent = types.SimpleNamespace(policy=acting)
    with pytest.raises(ValueError, match="`action_space` expected that of the policy"):
        policies.policy_endpoints(agent, BOX, S.Dict(press=S.Discrete(3)))
    with pytest.raises(ValueError, match="`action_space` expected that of the policy"):
        policies.policy_endpoints(agent, BOX, S.Discrete(3))


def test_a_recurrent_policy_as_a_file(tmp_path):
    acting = memory_policy()
    agent = types.SimpleNamespace(policy=acting)
    path = tmp_path / "policy.tflite"
    export.export_policy(agent, path, BOX, S.Discrete(4))
    assert export.verify(path)["serving_default"] <= 1e-5


def test_policies_of_others_are_no_matter_of_export_policy(tmp_path):
    foreign = policy.FunctionPolicy(lambda rows: np.zeros(len(rows), int))
    agent = types.SimpleNamespace(policy=foreign)
    match = r"of `tfrl.policies`.*got a SimpleNamespace with a FunctionPolicy; .*`expor"
    with pytest.raises(TypeError, match=match):
        export.export_policy(agent, tmp_path / "policy", BOX, S.Discrete(2))
    with pytest.raises(TypeError, match=match):
        policies.policy_endpoints(agent, BOX, S.Discrete(2))
    agent = types.SimpleNamespace(policy=action_values())
    with pytest.raises(TypeError, match="whose policy values states.*ActionValuePol"):
        policies.value_endpoint(agent, BOX)
    assert not (tmp_path / "policy").exists()


def test_policies_agents_and_models_are_exported_alike(tmp_path):
    acting, space = action_values(), S.Discrete(4, start=2)
    models = types.SimpleNamespace(agent=types.SimpleNamespace(policy=acting))
    for name, given in (("policy", acting), ("model", models), ("agent", models.agent)):
        export.export_policy(given, tmp_path / name, BOX, space)
    found = [
        {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in tmp_path.iterdir()
    ]
    assert found[0] == found[1] == found[2]
    assert list(policies.policy_endpoints(acting, BOX, space)) == [
        *("serving_default", "sample", "log_prob")
    ]
    with pytest.raises(
        TypeError, match="`agent` expected a policy.* got None; for oth"
    ):
        export.export_policy(None, tmp_path / "none", BOX, space)


def model_of(**options):
    found = tfrl.training.AgentModel.create(
        tfrl.agents.PPO(hidden_units=(4,)), BOX, S.Discrete(3), **options
    )
    found.compile()
    return found


def test_an_agent_model_exports_its_policy_as_keras_models_are(tmp_path):
    model = model_of()
    model.export(tmp_path / "policy", verbose=False)
    model.export(tmp_path / "policy", "tf_saved_model", overwrite=True)
    model.export(str(tmp_path / "policy.tflite"), format="litert")
    for name in ("policy", "policy.tflite"):
        assert max(export.verify(tmp_path / name).values()) <= 1e-5
    loaded = tf.saved_model.load(tmp_path / "policy")
    found = loaded.signatures["serving_default"](observations=tf.constant(ROWS))
    acted = model.agent.policy.act(ROWS, temperature=0.0)
    np.testing.assert_array_equal(found["actions"], acted.actions)


def test_what_an_agent_model_cannot_export(tmp_path):
    with pytest.raises(
        ValueError, match="`AgentModel.export`: `format` expected 'tf_s"
    ):
        model_of().export(tmp_path / "policy", "onnx")
    made_before = tfrl.training.AgentModel(model_of().agent)
    with pytest.raises(ValueError, match="`AgentModel.export`: `observation_space` ex"):
        made_before.export(tmp_path / "policy")
    spaces = {"observation_space": BOX, "action_space": S.Discrete(3)}
    made_before.export(tmp_path / "policy", **spaces)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
