"""What is exported, in a process that has TensorFlow, later Keras, and last tfrl."""

import os
import pathlib
import pickle
import subprocess
import sys
from typing import NamedTuple

import default_rows
import export_examples
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from export_examples import BOX, NAMED, batch_of, trained

import tfrl
from tfrl import distributions
from tfrl._internal import dtype_policies
from tfrl.distributions import spec
from tfrl.exporting import endpoints, export, of_distributions, policies
from tfrl.layers import distribution, normalization
from tfrl.stats import normalizers

N, BATCHES = 128, (64, 7, 1)
RNG = np.random.default_rng(0)
EDGES = [0.0, -0.0, 1e-38, -1e-38, 1e4, -1e4, 1e30, -1e30, np.inf, -np.inf]
S = gym.spaces
SEED = np.array([4, 5], np.int32)
CLIENT = """
import sys

BLOCKED = ("tfrl", "keras", "tf_keras", "tensorflow_probability")

class Blind:
    # A finder that sees nothing of these packages, as if they were not installed.
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in BLOCKED:
            return self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Blind, sys.meta_path)
for name in BLOCKED:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(name + " can be imported")
import os, pickle
import numpy as np
import tensorflow as tf

root, folder, batches = sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3:]]
results = {}
with open(folder + "/given.pkl", "rb") as file:
    given, nests, rows_of_steered = pickle.load(file)
for name in sorted(os.listdir(folder + "/models")):
    model = tf.saved_model.load(folder + "/models/" + name)
    for endpoint, signature in model.signatures.items():
        prefix = name + "/" + endpoint + "/"
        own = {k[len(prefix):]: x for k, x in given.items() if k.startswith(prefix)}
        seed = {k: tf.constant(own.pop(k)) for k in ["seed"] if k in own}
        for size in batches:
            # What draws is asked in the largest batches alone.
            n = 0 if seed and size != batches[0] else 128
            rows = []
            for i in range(0, n, size):
                inputs = {k: tf.constant(x[i:i + size]) for k, x in own.items()}
                rows.append(signature(**inputs, **seed))
            for k in rows[0] if rows else ():
                parts = np.concatenate([row[k].numpy() for row in rows])
                results[prefix + k + "/" + str(size)] = parts
path = folder + "/layers/steered.tflite"
runner = tf.lite.Interpreter(path).get_signature_runner("serving_default")
results["litert"] = runner(**rows_of_steered)["actions"]
assert not any(name.split(".")[0] in BLOCKED for name in sys.modules)

# With Keras and without tfrl: layers.
sys.meta_path[:] = [x.finder if type(x) is Blind else x for x in sys.meta_path]
import keras
layers = {}
for name, nest in nests.items():
    layer = keras.layers.TFSMLayer(folder + "/layers/" + name, call_endpoint="serve")
    layers[name] = keras.tree.map_structure(np.asarray, layer(nest))
    inputs = keras.tree.map_structure(
        lambda x: keras.Input(x.shape[1:], dtype=x.dtype.name), nest)
    model = keras.Model(inputs, layer(inputs))
    layers[name + " in a model"] = keras.tree.map_structure(np.asarray, model(nest))
# They can be trained on, too.
layer = keras.layers.TFSMLayer(folder + "/layers/lone", call_endpoint="serve")
model = keras.Sequential([keras.Input([3]), layer])
model.compile(keras.optimizers.SGD(0.1), "mse")
model.fit(nests["lone"], np.zeros([7, 2]), batch_size=7, verbose=0)
layers["trained"] = [w.numpy() for w in layer.trainable_weights]
assert not any(name.split(".")[0] == "tfrl" for name in sys.modules)

# With tfrl, after other layers and functions: the same again.
for _ in range(3):
    keras.layers.Flatten(), keras.layers.Dense(1)(np.ones([1, 1]))
sys.path[:0] = [root, root + "/tests"]
import export_examples
export_examples.export_steered(folder + "/again")
with open(folder + "/found.pkl", "wb") as file:
    pickle.dump((results, layers), file)
"""


def floats(*shape):
    found = RNG.normal(1.0, 2.0, [N, *shape]).astype(np.float32)
    for row, edge in enumerate(EDGES):
        found[row] = edge
        found.reshape(N, -1)[len(EDGES) + row, 0] = edge
    return found


def masks(n):
    found = RNG.random([N, n]) < 0.6
    found[np.arange(N), RNG.integers(n, size=N)] = True
    found[:n] = np.eye(n, dtype=bool)
    return found


def in_batches(function, rows):
    """Random outputs belong to the batch that they were drawn in."""
    parts = [
        function(tf.nest.map_structure(lambda x, i=i: x[i : i + BATCHES[0]], rows))
        for i in range(0, N, BATCHES[0])
    ]
    return tf.nest.map_structure(lambda *x: np.concatenate(x), *parts)


def steering():
    """A policy of continuous actions, asked through its agent."""
    rows, actions = floats(3), S.Box(-2.0, 1.0, (2,))
    agent = trained(BOX, actions, squash=True)
    head, policy = agent.policy.head, agent.policy

    def sampled(rows):
        drawn = agent.policy.act(tf.constant(rows), seed=SEED).actions
        parameters = policy.parameters(rows)
        log_probs = head.log_prob(parameters, head.from_env(drawn))
        return {"actions": drawn, "log_probs": log_probs}

    given = {"observations": rows}
    taken = RNG.uniform(-2.0, 1.0, [N, 2]).astype(np.float32)
    taken[:2] = [[-2.0, -2.0], [1.0, 1.0]]
    wanted = {
        "serving_default": (
            given,
            {"actions": agent.policy.act(rows, temperature=0.0).actions},
        ),
        "sample": ({**given, "seed": SEED}, in_batches(sampled, rows)),
        "log_prob": (
            {**given, "actions": taken},
            {"log_probs": head.log_prob(policy.parameters(rows), head.from_env(taken))},
        ),
        "value": (
            given,
            {"values": policy.state(policy.normalize(rows), method="critic")},
        ),
    }
    content = policies.policy_endpoints(agent, BOX, actions)
    return {**content, "value": policies.value_endpoint(agent, BOX)}, wanted


def recurrent():
    """A Keras model with its state going in and out."""
    inputs = {
        "mask": keras.Input([4], name="mask", dtype="bool"),
        "observations": keras.Input([3], name="observations"),
        "state": keras.Input([5], name="state"),
    }
    features, (state,) = keras.layers.GRUCell(5)(
        keras.ops.clip(inputs["observations"], -10.0, 10.0), [inputs["state"]]
    )
    logits = keras.layers.Dense(4)(features)
    logits = keras.ops.where(inputs["mask"], logits, -1e9)
    model = keras.Model(inputs, {"logits": logits, "state": state})
    given = {
        "mask": masks(4),
        "observations": floats(3),
        "state": np.tanh(RNG.normal(size=[N, 5])).astype(np.float32),
    }
    return model, {"serving_default": (given, model(given))}


def network():
    """A Keras model with layers of ours at both ends."""
    rows = floats(3)
    first = normalization.RunningNormalization(clip_value=5.0)
    first(rows[30:], training=True)
    head = distribution.DistributionHead(S.Discrete(6))
    model = keras.Sequential([keras.Input([3]), first, keras.layers.Dense(16), head])
    return model, {"serving_default": ({"inputs": rows}, {"output_0": model(rows)})}


def normalizer():
    found = normalizers.AdaptiveNormalizer(
        {"a": tf.TensorSpec([3]), "b": tf.TensorSpec([])}, auto_update=False
    )
    rows = {"a": floats(3), "b": floats()}
    found.update(tf.nest.map_structure(lambda x: x[30:], rows))
    batched = {"a": tf.TensorSpec([None, 3]), "b": tf.TensorSpec([None])}
    content = endpoints.Endpoint(lambda **given: found(given, training=False), batched)
    return content, {"serving_default": (rows, found(rows, training=False))}


def squashed():
    """A distribution, from its parameters."""
    loc, scale = RNG.normal(size=[2, N, 2]).astype(np.float32)
    given = {"loc": np.clip(3.0 * loc, -5.0, 5.0), "scale": np.exp(scale)}
    given["loc"][:4], given["scale"][4:8] = [[1e4, -1e4]], [[0.03, 30.0]]

    def make(rows):
        return distributions.SquashedNormal(
            rows["loc"], rows["scale"], np.float32([-1, 0]), np.float32([1, 4])
        )

    def sampled(rows):
        values, log_probs = make(rows).experimental_sample_and_log_prob(seed=SEED)
        return {"values": values, "log_probs": log_probs}

    drawn = in_batches(sampled, given)
    dist = make(given)
    content = spec.DistributionSpec.from_distribution(dist, from_dim=1)
    values = drawn["values"]
    return of_distributions.distribution_endpoints(
        content, ["sample", "log_prob", "mode"]
    ), {
        "sample": ({**given, "seed": SEED}, drawn),
        "log_prob": (
            {**given, "values": values},
            {"log_probs": make(given).log_prob(values)},
        ),
        "mode": (given, {"values": distributions.get_mode(dist)}),
    }


MODELS = [steering, recurrent, network, normalizer, squashed]


def two_inputs():
    a, b = keras.Input([3], name="a"), keras.Input([2], name="b")
    outputs = keras.layers.Dense(2)(keras.layers.Concatenate()([a, b]))
    return keras.Model({"a": a, "b": b}, {"y": outputs, "more": [outputs, a]})


def layers_of(folder):
    """Exports to be called as layers; what they are called with and say here."""
    rows = {"a": batch_of(BOX, 7), "b": batch_of(BOX, 7)[:, :2]}
    lone = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    cases = {
        "lone": (lone, rows["a"]),
        "dict": (two_inputs(), rows),
    }
    given, wanted = {}, {}
    for name, (model, nest) in cases.items():
        export.export_model(model, folder / name)
        given[name], wanted[name] = nest, tf.nest.map_structure(np.array, model(nest))
    space, _, agent = export_examples.steered()
    for name in ("steered", "steered.tflite"):
        export_examples.export_steered(folder / name)
    endpoint = policies.value_endpoint(agent, space)
    export.export_model({"value": endpoint}, folder / "value")
    policy, observations = agent.policy, batch_of(space, 7)
    given |= {"steered": observations, "value": observations}
    wanted["steered"] = {"actions": policy.act(observations, temperature=0.0).actions}
    values = policy.state(policy.normalize(observations), method="critic")
    wanted["value"] = {"values": values}
    lone.compile(keras.optimizers.SGD(0.1), "mse")
    lone.fit(rows["a"], np.zeros([7, 2]), batch_size=7, verbose=0)
    return given, wanted, lone.get_weights()


class Served(NamedTuple):
    """What models say elsewhere, and what their makers say here."""

    folder: pathlib.Path
    found: dict
    wanted: dict
    layers: dict
    wanted_of_layers: dict
    trained: list


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One process that has TensorFlow, then Keras, then tfrl."""
    folder, given, wanted = tmp_path_factory.mktemp("served"), {}, {}
    for make in MODELS:
        content, calls = make()
        export.export_model(content, folder / "models" / make.__name__)
        for endpoint, (inputs, outputs) in calls.items():
            prefix = f"{make.__name__}/{endpoint}/"
            given |= {prefix + name: value for name, value in inputs.items()}
            wanted |= {prefix + k: np.asarray(x) for k, x in outputs.items()}
    nests, wanted_of_layers, weights = layers_of(folder / "layers")
    content = pickle.dumps((given, nests, nests["steered"]))
    (folder / "given.pkl").write_bytes(content)
    root, sizes = str(pathlib.Path(__file__).parents[2]), map(str, BATCHES)
    subprocess.run(
        [sys.executable, "-I", "-c", CLIENT, root, str(folder), *sizes],
        check=True,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    found, layers = pickle.loads((folder / "found.pkl").read_bytes())
    return Served(folder, found, wanted, layers, wanted_of_layers, weights)


@pytest.mark.slow
def test_a_process_without_tfrl_keras_and_tfp(served):
    found, wanted = dict(served.found), served.wanted
    del found["litert"]
    assert {key.split("/")[0] for key in wanted} == {make.__name__ for make in MODELS}
    sizes = {key: [k for k in found if k.startswith(f"{key}/")] for key in wanted}
    assert sorted(sum(sizes.values(), [])) == sorted(found)
    for key, right in wanted.items():
        drawn = "/sample/" in key
        assert len(sizes[key]) == (1 if drawn else len(BATCHES)), key
        for one in sizes[key]:
            value = found[one]
            assert len(value) == N and value.dtype == right.dtype
            if value.dtype.kind == "i":
                np.testing.assert_array_equal(value, right, err_msg=one)
                continue
            with np.errstate(invalid="ignore"):
                gaps = np.abs(value - right) / np.maximum(1.0, np.abs(right))
            same = (value == right) | (np.isnan(value) & np.isnan(right))
            assert (same | (gaps <= 1e-5)).all(), one
            assert np.isfinite(value).mean() > 0.9
            if value.ndim == 2:
                np.testing.assert_array_equal(value.argmax(-1), right.argmax(-1))


@pytest.mark.slow
def test_layers_of_keras(served):
    for name, right in served.wanted_of_layers.items():
        for key in (name, f"{name} in a model"):
            found = served.layers[key]
            tf.nest.assert_same_structure(found, right)
            pairs = zip(*map(tf.nest.flatten, (found, right)), strict=True)
            for one, two in pairs:
                np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5, err_msg=key)
    for one, two in zip(served.layers["trained"], served.trained, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_files_of_litert(served):
    found = served.found["litert"]
    right = served.wanted_of_layers["steered"]["actions"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def bytes_of(path):
    files = (each for each in path.rglob("*") if each.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.slow
def test_equal_weights_are_equal_bytes_in_every_process(served):
    first = bytes_of(served.folder / "layers" / "steered")
    second = bytes_of(served.folder / "again")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.slow
def test_the_first_generation_of_loaders_reads_it(served):
    """As servers do, in C++: by the graph and its signatures."""
    rows = {"bits": np.ones([2, 2], "i1"), "kind": [0, 2], "x": np.ones([2, 2], "f")}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        load = tf.compat.v1.saved_model.load
        model = load(session, ["serve"], str(served.folder / "layers" / "steered"))
        signature = model.signature_def["serving_default"]
        given = {signature.inputs[name].name: rows[name] for name in rows}
        found = session.run(signature.outputs["actions"].name, given)
    rows = {name: np.asarray(value) for name, value in rows.items()}
    wanted = export_examples.steered()[2].policy.act(rows, temperature=0.0).actions
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


LITERT = {
    "discrete": (BOX, S.Discrete(3, start=-1), {}, {}),
    "masked": (
        BOX,
        S.MultiDiscrete([3, 2]),
        {},
        {"action_mask": np.array([[0, 1, 0, 0, 1]] * 7, bool)},
    ),
    "dict to several": (NAMED, S.MultiDiscrete([3, 2]), {}, {}),
    "tuple to bits": (S.Tuple([BOX, S.Discrete(2)]), S.MultiBinary(3), {}, {}),
    "float64": (BOX, S.Box(-0.1, 0.3, (1, 2), np.float64), {}, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LITERT)
def test_other_policies_as_files_of_litert(tmp_path, kind):
    space, actions, options, more = LITERT[kind]
    agent, path = trained(space, actions, **options), tmp_path / "policy.tflite"
    export.export_policy(agent, path, space, actions, with_mask=bool(more))
    assert list(export.verify(path)) == ["serving_default"]
    observations = batch_of(space, 7)
    leaves = tf.nest.flatten(observations)
    given = dict(zip(policies.policy_inputs(space), leaves, strict=True))
    with pytest.warns(UserWarning, match="deprecated"):
        interpreter = tf.lite.Interpreter(str(path))
    found = interpreter.get_signature_runner("serving_default")(**given, **more)
    wanted = agent.policy.act(observations, temperature=0.0).actions
    if more:
        wanted = [[1, 1]] * 7
    assert found["actions"].dtype == actions.dtype
    np.testing.assert_allclose(found["actions"], wanted, rtol=1e-5, atol=1e-5)


def runner(path, name="serving_default"):
    with pytest.warns(UserWarning, match="deprecated"):
        interpreter = tf.lite.Interpreter(str(path))
    return interpreter.get_signature_runner(name)


@pytest.mark.parametrize("normalize", [False, *default_rows.slow(True)])
def test_observations_that_an_agent_refuses_give_nan(tmp_path, normalize):
    rows = np.array([[0.1, 0.2, 0.3]] * 4, np.float32)
    rows[1, 0], rows[2, 2] = np.nan, np.inf
    # Moments clip an infinity.
    lost = [False, True, not normalize, False]
    space, actions = S.Box(-1.0, 1.0, (3,)), S.Box(-2.0, 2.0, (2,))
    config = tfrl.agents.TD3(hidden_units=(4,), normalize_observations=normalize)
    agent = config.create(space, actions, seed=0)
    export.export_policy(agent, tmp_path / "served.tflite", space, actions)
    endpoint = policies.policy_endpoints(agent, space, actions)["serving_default"]
    for serve in (
        runner(tmp_path / "served.tflite"),
        tf.function(endpoint.function, autograph=False),
    ):
        found = serve(observations=tf.constant(rows))["actions"]
        np.testing.assert_array_equal(np.isnan(found), np.transpose([lost] * 2))


def test_values_and_endpoints_of_policies_that_normalize_as_files(tmp_path):
    space, actions = S.Box(-1.0, 1.0, (3,)), S.Discrete(2)
    agent = trained(space, actions)
    found = {
        "act": policies.policy_endpoints(agent, space, actions)["serving_default"],
        "value": policies.value_endpoint(agent, space),
    }
    path, rows = tmp_path / "both.tflite", batch_of(space, 7)
    export.export_model(found, path)
    assert max(export.verify(path).values()) <= 1e-5
    served = runner(path, "value")(observations=rows)["values"]
    np.testing.assert_allclose(served, agent.policy.values(rows), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_values_of_16_bits_as_a_file(tmp_path):
    space, path = S.Box(-1.0, 1.0, (3,)), tmp_path / "value.tflite"
    with dtype_policies.used("mixed_bfloat16"):
        agent = tfrl.agents.PPO(hidden_units=(4,)).create(space, S.Discrete(2), seed=0)
    export.export_model(policies.value_endpoint(agent, space), path)
    rows = batch_of(space, 7)
    served, wanted = (
        runner(path)(observations=rows)["values"],
        agent.policy.values(rows),
    )
    np.testing.assert_allclose(served, wanted, rtol=0.1, atol=0.1)
