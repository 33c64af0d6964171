"""What is exported, in a process that has TensorFlow and nothing else of ours."""

import os
import subprocess
import sys
import types

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl import distributions
from tfrl.agents import gradient_transforms, train_state
from tfrl.distributions import spec
from tfrl.exporting import endpoints, export, policies
from tfrl.layers import as_keras, distribution, normalization
from tfrl.policies import actor_critic
from tfrl.stats import normalizers

N, BATCHES = 1000, (256, 7, 1)
RNG = np.random.default_rng(0)
EDGES = [0.0, -0.0, 1e-38, -1e-38, 1e4, -1e4, 1e30, -1e30, np.inf, -np.inf]
S = gym.spaces
NAMED = S.Dict(
    x=S.Box(-np.inf, np.inf, (2,)), kind=S.Discrete(3), bits=S.MultiBinary(2)
)
BOX = S.Box(-np.inf, np.inf, (3,))
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
import os
import numpy as np
import tensorflow as tf

folder, batches = sys.argv[1], [int(size) for size in sys.argv[2:]]
results = {}
with np.load(folder + "/given.npz") as arrays:
    given = dict(arrays)
for name in sorted(os.listdir(folder + "/models")):
    model = tf.saved_model.load(folder + "/models/" + name)
    for endpoint, signature in model.signatures.items():
        prefix = name + "/" + endpoint + "/"
        own = {k[len(prefix):]: x for k, x in given.items() if k.startswith(prefix)}
        seed = {k: tf.constant(own.pop(k)) for k in ["seed"] if k in own}
        for size in batches:
            # What draws is asked in the largest batches alone.
            n = 0 if seed and size != batches[0] else 1000
            rows = []
            for i in range(0, n, size):
                inputs = {k: tf.constant(x[i:i + size]) for k, x in own.items()}
                rows.append(signature(**inputs, **seed))
            for k in rows[0] if rows else ():
                parts = np.concatenate([row[k].numpy() for row in rows])
                results[prefix + k + "/" + str(size)] = parts
assert not any(name.split(".")[0] in BLOCKED for name in sys.modules)
np.savez(folder + "/found.npz", **results)
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


def trained(observation_space, observations, action_space, **kwargs):
    policy = actor_critic.ActorCriticPolicy.create(
        observation_space,
        action_space,
        learner=lambda network: train_state.TrainState.create(
            network, tx=gradient_transforms.sgd(1.0)
        ),
        hidden_units=(16,),
        normalize_observations=True,
        **kwargs,
    )
    rows = tf.nest.map_structure(lambda x: x[100:], observations)
    policy = policy.update_moments(rows, tf.ones([N - 100]))
    grads = tf.nest.map_structure(
        lambda x: tf.constant(0.3 * RNG.standard_normal(x.shape), x.dtype),
        policy.state.params,
    )
    policy = policy.replace(state=policy.state.apply_gradients(grads=grads))

    def sample_actions(observations, **options):
        return policy.act(observations, **options).actions

    return types.SimpleNamespace(policy=policy, sample_actions=sample_actions)


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
    agent = trained(BOX, rows, actions, squash=True)
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


def choosing():
    """A masked policy of choices, of observations that are a dictionary."""
    rows = {
        "bits": RNG.integers(0, 2, [N, 2]).astype(np.int8),
        "kind": RNG.integers(0, 3, [N]),
        "x": floats(2),
    }
    agent = trained(NAMED, rows, S.Discrete(5, start=-1))
    mask = masks(5)
    logits = np.where(mask, agent.policy.parameters(rows), -np.inf)
    greedy = {"actions": logits.argmax(-1).astype(np.int64) - 1}
    found = policies.policy_endpoints(
        agent, NAMED, S.Discrete(5, start=-1), with_mask=True
    )
    given = {**rows, "action_mask": mask}
    return {"serving_default": found["serving_default"]}, {
        "serving_default": (given, greedy)
    }


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
    first(rows[100:], training=True)
    head = distribution.DistributionHead(S.Discrete(6))
    model = keras.Sequential([keras.Input([3]), first, keras.layers.Dense(16), head])
    return model, {"serving_default": ({"inputs": rows}, {"output_0": model(rows)})}


def normalizer():
    found = normalizers.AdaptiveNormalizer(
        {"a": tf.TensorSpec([3]), "b": tf.TensorSpec([])}, auto_update=False
    )
    rows = {"a": floats(3), "b": floats()}
    found.update(tf.nest.map_structure(lambda x: x[100:], rows))
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
    return endpoints.distribution_endpoints(content, ["sample", "log_prob", "mode"]), {
        "sample": ({**given, "seed": SEED}, drawn),
        "log_prob": (
            {**given, "values": values},
            {"log_probs": make(given).log_prob(values)},
        ),
        "mode": (given, {"values": distributions.get_mode(dist)}),
    }


def module():
    """Layers in a dictionary of a module, two functions of its own."""
    found = tf.Module()
    found.layers = {name: keras.layers.Dense(4, "tanh") for name in "ab"}
    found.scale = tf.Variable([1.0, 2.0, 3.0, 4.0])

    def q_values(observations):
        features = found.layers["a"](tf.clip_by_value(observations, -9.0, 9.0))
        return found.layers["b"](features) * found.scale

    def act(observations):
        return {"actions": tf.argmax(q_values(observations), axis=-1)}

    rows = floats(3)
    given = {"observations": rows}
    wanted = {"q": (given, {"output_0": q_values(rows)}), "act": (given, act(rows))}
    inputs = {"observations": tf.TensorSpec([None, 3])}
    functions = {"q": q_values, "act": act}
    return {k: endpoints.Endpoint(f, inputs) for k, f in functions.items()}, wanted


class Projection:
    """A layer that keeps its weights outside and counts its calls."""

    def init(self, signature, rng):
        weights = np.random.default_rng(0).normal(size=[3, 4])
        return weights.astype(np.float32), np.int64(0)

    def pure_fn(self, x, weights, state, rng):
        return tf.tanh(tf.clip_by_value(x, -9.0, 9.0) @ weights), state + 1


def foreign():
    """A layer of another library, as one of Keras."""
    rows = floats(3)
    layer = as_keras.AsKeras(Projection())
    model = keras.Sequential([keras.Input([3]), layer])
    return model, {"serving_default": ({"inputs": rows}, {"output_0": model(rows)})}


MODELS = [foreign, steering, choosing, recurrent, network, normalizer, squashed, module]


def served(folder):
    """What the models say there, and what their makers say here."""
    given, wanted = {}, {}
    for make in MODELS:
        content, calls = make()
        export.export_model(content, folder / "models" / make.__name__)
        for endpoint, (inputs, outputs) in calls.items():
            prefix = f"{make.__name__}/{endpoint}/"
            given |= {prefix + name: value for name, value in inputs.items()}
            wanted |= {prefix + k: np.asarray(x) for k, x in outputs.items()}
    np.savez(folder / "given.npz", **given)
    subprocess.run(
        [sys.executable, "-I", "-c", CLIENT, str(folder), *map(str, BATCHES)],
        check=True,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    with np.load(folder / "found.npz") as found:
        return dict(found), wanted


def test_a_process_without_tfrl_keras_and_tfp(tmp_path):
    found, wanted = served(tmp_path)
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
