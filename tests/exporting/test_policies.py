"""Every kind of policy is exported and does what it does here; others are refused."""

import functools
import re
import types

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from export_examples import BOX, NAMED, batch_of, named, trained

import tfrl
from tfrl._internal import dtype_policies
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
LEARNER = train_state.TrainState.create
ROWS = np.random.default_rng(0).normal(size=[7, 3]).astype(np.float32)
UNIT = S.Box(-1.0, 1.0, (3,))
PARTS = S.Dict(a=UNIT, b=S.Discrete(4))
SIGNATURES = ["log_prob", "sample", "serving_default"]
TWO = S.Discrete(2)
ACTIONS = {
    "discrete": (S.Discrete(3, start=-1), {}),
    "multi discrete": (S.MultiDiscrete([3, 2]), {}),
    "clipped": (S.Box(-0.3, 0.3, (2,)), {}),
    "squashed": (S.Box(-2.0, 1.0, (2,)), {"squash": True}),
    "float64": (S.Box(-2.0, 1.0, (1, 2), np.float64), {"squash": True}),
}
KINDS = {
    **{kind: (BOX, kind) for kind in ACTIONS},
    **{f"dict to {kind}": (NAMED, kind) for kind in ("discrete", "float64")},
}


def exported(folder, acting, observations, actions, **options):
    agent = types.SimpleNamespace(policy=acting)
    export.export_policy(agent, folder / "policy", observations, actions, **options)
    assert max(export.verify(folder / "policy").values()) <= 1e-5
    return tf.saved_model.load(folder / "policy")


def disturbed(acting):
    """The policy with weights that tell actions apart."""
    rng = np.random.default_rng(1)
    params = tf.nest.map_structure(
        lambda x: tf.constant(rng.normal(size=x.shape), x.dtype), acting.state.params
    )
    return acting.replace(state=acting.state.replace(params=params))


@pytest.mark.parametrize(
    ("space", "kind"), default_rows.params(KINDS, ["dict to float64"])
)
def test_signatures_do_what_the_agent_does(tmp_path, space, kind):
    actions, kwargs = ACTIONS[kind]
    acting = trained(space, actions, **kwargs).policy
    model = exported(tmp_path, acting, space, actions)
    assert sorted(model.signatures) == SIGNATURES
    log_prob, sample, greedy = (model.signatures[name] for name in SIGNATURES)
    for n_rows in (1, 7):
        observations = batch_of(space, n_rows, seed=n_rows)
        given = named(observations)
        found = greedy(**given)
        assert list(found) == ["actions"] and found["actions"].dtype == actions.dtype
        expected = acting.act(observations, temperature=0.0).actions
        np.testing.assert_allclose(found["actions"], expected, rtol=1e-5, atol=1e-6)
        seed = tf.constant([4, n_rows])
        drawn = sample(**given, seed=seed)
        assert sorted(drawn) == ["actions", "log_probs"]
        # Of tensors: NumPy draws other numbers by one seed.
        rows = tf.nest.map_structure(tf.constant, observations)
        expected = acting.act(rows, seed=seed).actions
        np.testing.assert_allclose(drawn["actions"], expected, rtol=1e-5, atol=1e-5)
        assert drawn["actions"].shape == (n_rows, *actions.shape)
        assert all(actions.contains(x) for x in drawn["actions"].numpy())
        found = log_prob(**given, actions=drawn["actions"])["log_probs"]
        assert found.shape == (n_rows,)
        np.testing.assert_allclose(found, drawn["log_probs"], atol=1e-4)
        raw = acting.head.from_env(drawn["actions"])
        expected = acting.head.log_prob(acting.parameters(observations), raw)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    for seed in ([0, 7], [4, 8]):
        other = sample(**given, seed=tf.constant(seed))["actions"]
        assert np.any(other != drawn["actions"])


MASKED = {
    "discrete": (S.Discrete(3, start=-1), [[1, 0, 1], [0, 1, 0]]),
    "multi discrete": (S.MultiDiscrete([3, 2]), [[1, 0, 1, 0, 1], [0, 0, 1, 1, 1]]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actions", "mask"), default_rows.params(MASKED, ["multi discrete"])
)
def test_masked_actions_are_never_taken(tmp_path, actions, mask):
    mask = np.array(mask, bool)
    acting = trained(BOX, actions).policy
    model = exported(tmp_path, acting, BOX, actions, with_mask=True)
    assert sorted(model.signatures) == SIGNATURES
    observations = batch_of(BOX, 200)
    rows = np.arange(200) % 2
    masked = {**named(observations), "action_mask": tf.constant(mask[rows])}
    drawn = model.signatures["sample"](**masked, seed=tf.constant([1, 2]))
    greedy = model.signatures["serving_default"](**masked)["actions"]
    logits = np.where(mask[rows], acting.parameters(observations), -np.inf)
    sizes = (3, 2) if mask.shape[1] == 5 else (3,)
    start, log_probs = 0, np.zeros(200)
    for choice, size in enumerate(sizes):
        part, allowed = logits[:, start : start + size], mask[:, start : start + size]
        start += size
        best, taken = (
            found.numpy().reshape(200, -1)[:, choice] - getattr(actions, "start", 0)
            if len(sizes) == 1
            else found.numpy()[:, choice]
            for found in (greedy, drawn["actions"])
        )
        assert allowed[rows, taken].all()
        np.testing.assert_array_equal(best, part.argmax(-1))
        scores = part - np.log(np.exp(part).sum(-1, keepdims=True))
        log_probs += scores[np.arange(200), taken]
    np.testing.assert_allclose(drawn["log_probs"], log_probs, atol=1e-5)
    told = model.signatures["log_prob"]
    found = told(**masked, actions=drawn["actions"])["log_probs"]
    np.testing.assert_allclose(found, log_probs, atol=1e-5)
    # A mask of all, and one that allows nothing, as if all were alike.
    raw = acting.head.from_env(drawn["actions"])
    wanted = acting.head.log_prob(acting.parameters(observations), raw)
    for allowed, right in ((True, wanted), (False, [-np.log(np.prod(sizes))] * 200)):
        masked["action_mask"] = tf.fill([200, mask.shape[1]], allowed)
        found = told(**masked, actions=drawn["actions"])["log_probs"]
        np.testing.assert_allclose(found, right, atol=1e-5)


def action_values(**options):
    acting = action_value.ActionValuePolicy.create(
        UNIT, S.Discrete(4, start=2), learner=LEARNER, hidden_units=(8,), **options
    )
    return disturbed(acting)


@pytest.mark.parametrize("epsilon", [0.25, pytest.param(1.0, marks=pytest.mark.slow)])
def test_action_values(tmp_path, epsilon):
    acting = action_values(epsilon=epsilon)
    model = exported(tmp_path, acting, UNIT, S.Discrete(4, start=2))
    assert sorted(model.signatures) == SIGNATURES
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


def test_action_values_with_a_mask():
    acting = action_values()
    space = S.Discrete(4, start=2)
    found = policies.policy_endpoints(acting, UNIT, space, with_mask=True)
    mask = np.array([[True, False, True, False]] * len(ROWS))
    values = np.where(mask, acting.parameters(tf.constant(ROWS)), -np.inf)
    greedy = found["serving_default"].function(
        observations=tf.constant(ROWS), action_mask=tf.constant(mask)
    )
    np.testing.assert_array_equal(greedy["actions"], 2 + values.argmax(-1))


def test_a_deterministic_policy_has_no_log_probs(tmp_path):
    space = S.Box(-1.0, 1.0, (2,))
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    acting = deterministic.DeterministicPolicy.create(
        UNIT, space, learner=LEARNER, network=network, noise=0.1
    )
    model = exported(tmp_path, acting, UNIT, space)
    assert sorted(model.signatures) == ["sample", "serving_default"]
    given = {"observations": tf.constant(ROWS)}
    greedy = model.signatures["serving_default"](**given)["actions"]
    np.testing.assert_allclose(greedy, acting.act(ROWS, temperature=0.0).actions, 1e-5)
    drawn = model.signatures["sample"](**given, seed=tf.constant([0, 1]))
    assert list(drawn) == ["actions"]
    assert 0 < np.abs(drawn["actions"] - greedy).max() < 0.6


def memory_policy(space=UNIT):
    acting = recurrent.RecurrentPolicy.create(
        space, S.Discrete(4), learner=LEARNER, units=5, hidden_units=(4,)
    )
    return disturbed(acting)


@pytest.mark.slow
def test_a_recurrent_policy_takes_and_gives_its_state(tmp_path):
    acting = memory_policy()
    model = exported(tmp_path, acting, UNIT, S.Discrete(4))
    names = ["initial_state", "log_prob", "sample", "serving_default"]
    assert sorted(model.signatures) == names
    begin, log_prob, _, greedy = (model.signatures[name] for name in names)
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


@pytest.mark.slow
def test_a_recurrent_policy_as_a_file(tmp_path):
    path = tmp_path / "policy.tflite"
    export.export_policy(memory_policy(), path, UNIT, S.Discrete(4))
    assert export.verify(path)["serving_default"] <= 1e-5


@pytest.mark.parametrize("make", ["PPO", *default_rows.slow("DQN")])
def test_masks_within_observations_as_a_file(tmp_path, make):
    space, path = S.Dict(action_mask=S.MultiBinary(3), x=UNIT), tmp_path / "p.tflite"
    options = {"n_envs": 1, "n_steps": 64} if make == "PPO" else {}
    agent = getattr(tfrl.agents, make)().create(space, S.Discrete(3), seed=0, **options)
    export.export_policy(agent, path, space, S.Discrete(3))
    assert export.verify(path)["serving_default"] <= 1e-5
    masks = np.eye(3, dtype=np.int8)[[0, 1, 2, 2, 1, 0, 0]]
    with pytest.warns(UserWarning, match="deprecated"):
        interpreter = tf.lite.Interpreter(str(path))
    found = interpreter.get_signature_runner("serving_default")
    acted = found(action_mask=masks, x=ROWS)["actions"]
    np.testing.assert_array_equal(acted, masks.argmax(-1))


HALVES = {
    "mixed": ("mixed_bfloat16", tfrl.agents.PPO(hidden_units=(16,), squash=True)),
    "pure": ("bfloat16", tfrl.agents.PPO(hidden_units=(16,), squash=True)),
    "float16": ("mixed_float16", tfrl.agents.SAC(hidden_units=(16,))),
    "memory": ("mixed_bfloat16", tfrl.agents.PPO(memory="gru", memory_units=16)),
}


@pytest.mark.parametrize(("name", "config"), default_rows.params(HALVES, ["mixed"]))
def test_a_network_of_16_bits_as_a_file_is_one_of_float32(tmp_path, name, config):
    path = tmp_path / "policy.tflite"
    with dtype_policies.used(name):
        acting = disturbed(config.create(UNIT, UNIT, seed=0).policy)
    export.export_policy(acting, path, UNIT, UNIT)
    assert export.verify(path)["serving_default"] <= 1e-5
    wide = config.create(UNIT, UNIT, seed=0).policy
    params = {
        key: tf.cast(acting.state.params[key], tf.float32) for key in wide.state.params
    }
    wide = wide.replace(state=wide.state.replace(params=params))
    memory = wide.initial_state(len(ROWS))
    with pytest.warns(UserWarning, match="deprecated"):
        interpreter = tf.lite.Interpreter(str(path))
    serve = interpreter.get_signature_runner("serving_default")
    given = {"state": memory} if tf.nest.flatten(memory) else {}
    found = serve(observations=ROWS, **given)["actions"]
    for other, tolerance in ((wide, 1e-5), (acting, 0.2)):
        expected = other.act(ROWS, memory, temperature=0.0).actions
        np.testing.assert_allclose(found, expected, atol=tolerance)


class Untold(keras.Model):
    """Has layers of the policy in force; tells `units` on request."""

    def __init__(self, units=2, told=True, **kwargs):
        super().__init__(**kwargs)
        self.units, self.told = units, told
        self.last = keras.layers.Dense(units)

    def call(self, x):
        values = self.last(x)
        return (
            (values[:, :2], values[:, 0]) if self.told else (values * 2, values[:, 0])
        )

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@pytest.mark.parametrize("told", [True, False])
def test_networks_of_16_bits_of_the_users(tmp_path, told):
    path, config = tmp_path / "policy.tflite", tfrl.agents.PPO()
    with dtype_policies.used("mixed_bfloat16"):
        acting = config.create(UNIT, TWO, seed=0, network=Untold(told=told))
    if told:
        export.export_policy(acting, path, UNIT, TWO)
        assert export.verify(path) == {"serving_default": 0.0}
        return
    message = "`export_policy`: a .tflite file expected .*'mixed_bfloat16'.* a folder"
    with pytest.raises(ValueError, match=message):
        export.export_policy(acting, path, UNIT, TWO)
    assert not list(tmp_path.iterdir())


COMPOSITE = S.Dict(
    press=S.Discrete(3),
    steer=S.Tuple([S.Box(-1.0, 1.0, (2,)), S.MultiBinary(2)]),
)


@pytest.mark.slow
@pytest.mark.parametrize("squash", [pytest.param(False, marks=pytest.mark.slow), True])
def test_composite_actions(tmp_path, squash):
    acting = disturbed(
        actor_critic.ActorCriticPolicy.create(
            UNIT, COMPOSITE, learner=LEARNER, hidden_units=(4,), squash=squash
        )
    )
    model = exported(tmp_path, acting, UNIT, COMPOSITE)
    rows = tf.constant(ROWS)
    found = model.signatures["serving_default"](observations=rows)
    wanted = acting.act(rows, temperature=0.0).actions
    assert sorted(found) == ["actions_press", "actions_steer_0", "actions_steer_1"]
    np.testing.assert_array_equal(found["actions_press"], wanted["press"])
    for k, part in enumerate(wanted["steer"]):
        np.testing.assert_allclose(found[f"actions_steer_{k}"], part, atol=1e-5)
    seed = tf.constant([3, 4])
    drawn = dict(model.signatures["sample"](observations=rows, seed=seed))
    log_probs = drawn.pop("log_probs")
    told = model.signatures["log_prob"](observations=rows, **drawn)["log_probs"]
    np.testing.assert_allclose(told, log_probs, atol=1e-4)
    for other in (S.Dict(press=S.Discrete(3)), S.Discrete(3)):
        with pytest.raises(ValueError, match="`policy_endpoints`: `action_space`"):
            policies.policy_endpoints(acting, UNIT, other)


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (S.Dict(observations=BOX), ["observations"]),
        (
            S.Tuple((BOX, S.Dict(b=S.Discrete(3), a=BOX))),
            ["observations_0", "observations_1_a", "observations_1_b"],
        ),
    ],
    ids=["dict", "tuple"],
)
def test_nested_parts_have_joined_names(space, names):
    assert list(policies.policy_inputs(space)) == names
    acting = trained(space, TWO).policy
    observations = batch_of(space, 7)
    leaves = map(tf.constant, tf.nest.flatten(observations))
    greedy = policies.policy_endpoints(acting, space, TWO)["serving_default"]
    found = greedy.function(**dict(zip(names, leaves, strict=True)))["actions"]
    expected = acting.act(observations, temperature=0.0).actions
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (S.Dict({"a_b": BOX, "a": S.Dict(b=BOX)}), "a_b"),
        (S.Dict({"seed": BOX}), "seed"),
        (S.Dict(actions=BOX), "actions"),
        (S.Dict({"two words": BOX}), "two words"),
    ],
    ids=["twice", "seed", "actions", "no identifier"],
)
def test_names_that_no_input_can_take(space, name):
    with pytest.raises(ValueError, match=f"`policy_inputs`: `obs.*; got '{name}'"):
        policies.policy_inputs(space)


def test_observations_named_as_the_mask_or_the_memory():
    space = S.Dict(action_mask=S.MultiBinary(2), x=BOX)
    acting = trained(space, TWO).policy
    found = policies.policy_endpoints(acting, space, TWO)
    assert list(found["log_prob"].inputs) == ["action_mask", "x", "actions"]
    with pytest.raises(ValueError, match="`with_mask` expected False for obs.* True; "):
        policies.policy_endpoints(acting, space, TWO, with_mask=True)
    space = S.Dict(state=UNIT)
    with pytest.raises(ValueError, match="`observation_space` .*; got 'state'"):
        policies.policy_endpoints(memory_policy(space), space, S.Discrete(4))


def test_policies_agents_and_models_are_exported_alike():
    acting = action_values()
    agent = types.SimpleNamespace(policy=acting)
    for given in (acting, agent, types.SimpleNamespace(agent=agent)):
        assert policies.policy_of("f", given) is acting


@pytest.mark.slow
def test_an_agent_model_exports_its_policy_as_keras_models_are(tmp_path):
    def new_model():
        config = tfrl.agents.PPO(hidden_units=(4,))
        model = tfrl.training.AgentModel.create(config, UNIT, S.Discrete(3))
        model.compile()
        return model

    model, path = new_model(), tmp_path / "policy"
    with pytest.raises(ValueError, match="`AgentModel.export`: `format` expected 'tf_"):
        model.export(path, "onnx")
    model.export(path, "tf_saved_model", verbose=False)
    loaded = tf.saved_model.load(path)
    found = loaded.signatures["serving_default"](observations=tf.constant(ROWS))
    acted = model.agent.policy.act(ROWS, temperature=0.0)
    np.testing.assert_array_equal(found["actions"], acted.actions)
    made_before = tfrl.training.AgentModel(model.agent)
    with pytest.raises(ValueError, match="`AgentModel.export`: `observation_space` ex"):
        made_before.export(path, overwrite=True)
    spaces = {"observation_space": UNIT, "action_space": S.Discrete(3)}
    made_before.export(path, overwrite=True, **spaces)
    assert [each.name for each in tmp_path.iterdir()] == ["policy"]


@pytest.mark.slow
def test_an_agent_model_as_a_file(tmp_path):
    config = tfrl.agents.PPO(hidden_units=(4,))
    model = tfrl.training.AgentModel.create(config, UNIT, S.Discrete(3))
    model.compile()
    model.export(str(tmp_path / "policy.tflite"), format="litert")
    assert max(export.verify(tmp_path / "policy.tflite").values()) <= 1e-5


FOREIGN = policy.FunctionPolicy(lambda rows: np.zeros(len(rows), int))
NO_AGENTS = {
    "none": None,
    "text": "agent",
    "config": tfrl.agents.PPO(),
    "foreign": types.SimpleNamespace(policy=FOREIGN),
}


@pytest.mark.parametrize("kind", NO_AGENTS)
def test_agents_without_a_policy(tmp_path, kind):
    agent = NO_AGENTS[kind]
    calls = {
        "export_policy": lambda: export.export_policy(agent, tmp_path / "p", UNIT, TWO),
        "policy_endpoints": lambda: policies.policy_endpoints(agent, UNIT, TWO),
        "value_endpoint": lambda: policies.value_endpoint(agent, UNIT),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=f"`{name}`: `agent` expected a policy of"):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_not_finite(tmp_path, agents, number):
    acting = agents["choice"]
    params = dict(acting.state.params)
    key, before = next((k, x) for k, x in params.items() if "actor" in k)
    params[key] = tf.tensor_scatter_nd_update(before, [[0] * before.ndim], [number])
    broken = acting.replace(state=acting.state.replace(params=params))
    message = "`{}`: `agent` expected weights that are finite; .* in 1 of .*actor.*rate"
    with pytest.raises(ValueError, match=message.format("export_policy")):
        export.export_policy(broken, tmp_path / "policy", UNIT, TWO)
    with pytest.raises(ValueError, match=message.format("value_endpoint")):
        policies.value_endpoint(broken, UNIT)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def agents():
    """Small policies by the names of their spaces."""

    def made(observations, actions, **options):
        return actor_critic.ActorCriticPolicy.create(
            observations, actions, learner=LEARNER, hidden_units=(4,), **options
        )

    return {
        "choice": made(UNIT, TWO),
        "clipped": made(UNIT, UNIT),
        "squashed": made(UNIT, UNIT, squash=True),
        "parts": made(PARTS, TWO),
    }


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("choice", S.Box(-1.0, 1.0, (4,))),
        ("choice", S.Box(-1.0, 1.0, (6,))),
        ("choice", S.Dict(a=UNIT)),
        ("parts", UNIT),
        ("parts", S.Dict(a=UNIT)),
    ],
    ids=["4-for-3", "6-for-3", "dict-for-box", "box-for-dict", "part-missing"],
)
def test_observations_of_another_policy(agents, kind, wrong):
    message = rf"`policy_endpoints`: `observation_space` exp.*{re.escape(str(wrong))}"
    with pytest.raises(ValueError, match=message):
        policies.policy_endpoints(agents[kind], wrong, TWO)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("choice", S.Discrete(3)),
        ("choice", S.Discrete(2, start=1)),
        ("choice", UNIT),
        ("squashed", TWO),
        ("clipped", S.Box(-1.0, 2.0, (3,))),
        ("squashed", S.Box(-1.0, float("inf"), (3,))),
    ],
    ids=["size", "start", "box", "discrete", "bounds", "unbounded"],
)
def test_actions_of_another_policy(agents, kind, wrong):
    right = TWO if kind == "choice" else UNIT
    message = f"`action_space` expected that of the policy, {right}; got {wrong}; give"
    with pytest.raises(ValueError, match=re.escape(f"`policy_endpoints`: {message}")):
        policies.policy_endpoints(agents[kind], UNIT, wrong)


def test_what_is_no_space_no_choice_or_values_nothing(agents):
    with pytest.raises(TypeError, match="`observation_space` expected a Gymnasium sp"):
        policies.policy_endpoints(agents["choice"], None, None)
    with pytest.raises(TypeError, match="`action_space` expected a Gymnasium space"):
        policies.policy_endpoints(agents["choice"], UNIT, None)
    with pytest.raises(ValueError, match="`policy_endpoints`: `with_mask` expected"):
        policies.policy_endpoints(agents["clipped"], UNIT, UNIT, with_mask=True)
    with pytest.raises(TypeError, match="`value_endpoint`: `agent` expected .*values"):
        policies.value_endpoint(action_values(), UNIT)


@pytest.mark.parametrize("name", ["größe", "Seed", "_x", "class", "self"])
def test_names_that_tensorflow_does_not_take(name):
    with pytest.raises(ValueError, match=f"`policy_inputs`: `obs.*; got '{name}'"):
        policies.policy_inputs(S.Dict({name: BOX}))
    assert list(policies.policy_inputs(S.Dict(Eye=BOX, x_=BOX))) == ["Eye", "x_"]


def test_names_that_actions_and_memory_have():
    space = S.Dict(Actions_0=S.Box(-1.0, 1.0, (3,)))
    acting = tfrl.agents.PPO(hidden_units=(2,)).create(
        space, S.Tuple((TWO, TWO)), n_envs=1, n_steps=64, seed=0
    )
    with pytest.raises(ValueError, match="also from .*'actions_0'.*got 'Actions_0'"):
        policies.policy_endpoints(acting, space, S.Tuple((TWO, TWO)))
    taken = policies.taken(memory_policy(UNIT), TWO)
    with pytest.raises(ValueError, match="also from .*'state'.*; got 'State'"):
        policies.policy_inputs(S.Dict(State=UNIT), taken)


def test_actions_of_16_bits_are_not_for_litert(tmp_path):
    actions = S.Box(-1.0, 1.0, (2,), np.float16)
    agent = tfrl.agents.TD3(hidden_units=(2,)).create(UNIT, actions, seed=0)
    with pytest.raises(ValueError, match="an `action_space` of float32; got float16"):
        tfrl.exporting.export_policy(agent, tmp_path / "m.tflite", UNIT, actions)
    assert not list(tmp_path.iterdir())


def seeded(env):
    return gym.wrappers.TransformObservation(
        env, lambda x: {"Seed": x}, gym.spaces.Dict(Seed=env.observation_space)
    )


def test_names_that_no_policy_is_exported_with_are_refused_at_once(tmp_path):
    make = functools.partial(
        tfrl.training.Trainer,
        agent=tfrl.agents.PPO(minibatch_size=16, hidden_units=(4,)),
        make_envs=functools.partial(
            tfrl.environments.make_vec, "CartPole-v1", wrappers=(seeded,)
        ),
        n_envs=1,
        experience=tfrl.training.Trajectories(16),
    )
    run = functools.partial(tfrl.rl_trainer.train_rl, tmp_path / "run", 1, True, make)
    with pytest.raises(ValueError, match="`observation_space` .*; got 'Seed'"):
        run()
    # One that began when they were taken may go on.
    with pytest.raises(ValueError, match="expected a checkpoint to resume from"):
        run(resume=True)
    assert not list(tmp_path.iterdir())
