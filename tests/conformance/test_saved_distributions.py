"""A `SavedModel` draws and scores without `tfrl` as it does with it."""

import subprocess
import sys

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from conformance import examples

from tfrl.layers import distribution

SEED = np.array([7, 8], np.int32)
SPACE = gym.spaces.Dict(
    jump=gym.spaces.Discrete(3), steer=gym.spaces.Box(-1.0, 2.0, (2,))
)
# Run by a process of its own, isolated from this one's path and folder.
CLIENT = """
import importlib.abc, importlib.util, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tfrl", "tensorflow_probability"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
for name in ("tfrl", "tensorflow_probability"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(name + " can be imported")
import numpy as np
import tensorflow as tf
families, head, given, found = sys.argv[1:]
results = {}
with np.load(given) as arrays:
    model = tf.saved_model.load(families)
    for name, signature in model.signatures.items():
        prefix = name + "/"
        own = {k[len(prefix):]: arrays[k] for k in arrays if k.startswith(prefix)}
        out = signature(**{k: tf.constant(x) for k, x in own.items()})
        results |= {prefix + k: x.numpy() for k, x in out.items()}
    model = tf.saved_model.load(head)
    observations = tf.constant(arrays["observations"])
    results["served"] = model.serve(observations).numpy()
    seed = tf.constant(arrays["seed"])
    for k, x in model.act(observations, seed).items():
        results["acted/" + k] = x.numpy()
assert not any(name.split(".")[0] == "tfrl" for name in sys.modules)
np.savez(found, **results)
"""


def signature(example):
    """Draws of given parameters and a seed, and what they score."""

    def draw_and_score(seed, **parameters):
        dist = example(**parameters)
        draw = dist.sample(3, seed=seed)
        log_prob = dist.log_prob(tf.nest.map_structure(tf.identity, draw))
        leaves = enumerate(tf.nest.flatten(draw))
        return {
            **{f"draw{index}": leaf for index, leaf in leaves},
            "log_prob": log_prob,
        }

    specs = {
        name: tf.TensorSpec([None, *x.shape[1:]], x.dtype, name)
        for name, x in example.parameters.items()
    }
    specs["seed"] = tf.TensorSpec([2], tf.int32, "seed")
    return tf.function(draw_and_score, autograph=False).get_concrete_function(**specs)


def saved_families(folder):
    """Saves a signature for each class; returns its inputs and outputs here."""
    signatures = {e.cls.__name__: signature(e) for e in examples.DISTRIBUTIONS}
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    given, wanted = {}, {}
    for example in examples.DISTRIBUTIONS:
        name = example.cls.__name__
        # Another batch size than that of the examples.
        inputs = {k: x[[2, 0, 1]] for k, x in example.parameters.items()}
        inputs["seed"] = SEED
        given |= {f"{name}/{k}": x for k, x in inputs.items()}
        outputs = signatures[name](**{k: tf.constant(x) for k, x in inputs.items()})
        wanted |= {f"{name}/{k}": x.numpy() for k, x in outputs.items()}
    return given, wanted


def saved_head(folder, observations):
    """Exports a Keras model that ends in a `DistributionHead`, with draws of it."""
    head = distribution.DistributionHead(SPACE, name="policy")
    inputs = keras.Input([4])
    model = keras.Model(inputs, head(keras.layers.Dense(8, "tanh")(inputs)))

    def act(observations, seed):
        policy = head.distribution(model(observations))
        actions, log_probs = policy.experimental_sample_and_log_prob(seed=seed)
        return {**actions, "log_probs": log_probs}

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", model.call, [tf.TensorSpec([None, 4])])
    specs = [tf.TensorSpec([None, 4]), tf.TensorSpec([2], tf.int32)]
    archive.add_endpoint("act", act, specs)
    archive.write_out(str(folder), verbose=False)
    acted = tf.function(act)(tf.constant(observations), tf.constant(SEED))
    wanted = {f"acted/{name}": x.numpy() for name, x in acted.items()}
    return {**wanted, "served": model(observations).numpy()}


@pytest.mark.slow
def test_a_process_without_tfrl(tmp_path):
    observations = np.random.default_rng(0).normal(size=[5, 4]).astype(np.float32)
    given, wanted = saved_families(tmp_path / "families")
    wanted |= saved_head(tmp_path / "head", observations)
    np.savez(tmp_path / "given.npz", observations=observations, seed=SEED, **given)
    (tmp_path / "client.py").write_text(CLIENT)
    names = ("client.py", "families", "head", "given.npz", "found.npz")
    subprocess.run(
        [sys.executable, "-I", *(str(tmp_path / name) for name in names)],
        check=True,
        cwd=tmp_path,
    )
    with np.load(tmp_path / "found.npz") as found:
        assert set(found) == set(wanted)
        for name, right in wanted.items():
            np.testing.assert_allclose(
                found[name], right, rtol=1e-5, atol=1e-6, err_msg=name
            )
