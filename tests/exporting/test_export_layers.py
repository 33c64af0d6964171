"""Exports as layers of Keras, in a process that has no tfrl."""

import subprocess
import sys

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf
from export_examples import BOX, NAMED, batch_of, trained

from tfrl import training
from tfrl.exporting import export, policies

S = gym.spaces
ELSEWHERE = """
import pickle, sys
import keras, numpy as np, tensorflow as tf

folder = sys.argv[1]
with open(folder + "/given.pkl", "rb") as file:
    given = pickle.load(file)
found = {}
for name, nest in given.items():
    layer = keras.layers.TFSMLayer(folder + "/" + name, call_endpoint="serve")
    found[name] = keras.tree.map_structure(np.asarray, layer(nest))
    inputs = keras.tree.map_structure(
        lambda x: keras.Input(x.shape[1:], dtype=x.dtype.name), nest)
    found[name + " in a model"] = keras.Model(inputs, layer(inputs)).predict(
        nest, verbose=0)
# It can be trained on, too.
layer = keras.layers.TFSMLayer(folder + "/lone", call_endpoint="serve")
model = keras.Sequential([keras.Input([3]), layer])
model.compile(keras.optimizers.SGD(0.1), "mse")
model.fit(given["lone"], np.zeros([7, 2]), batch_size=7, verbose=0)
found["trained"] = [w.numpy() for w in layer.trainable_weights]
with open(folder + "/found.pkl", "wb") as file:
    pickle.dump(found, file)
assert not any(name.split(".")[0] == "tfrl" for name in sys.modules)
"""


def two_inputs(kind):
    a, b = keras.Input([3], name="a"), keras.Input([2], name="b")
    outputs = keras.layers.Dense(2)(keras.layers.Concatenate()([a, b]))
    if kind == "list":
        return keras.Model([a, b], outputs)
    return keras.Model({"a": a, "b": b}, {"y": outputs, "more": [outputs, a]})


def test_dict_observations_several_inputs_and_one(tmp_path):
    import pickle

    lone = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    rows = {"a": batch_of(BOX, 7), "b": batch_of(BOX, 7)[:, :2]}
    cases = {
        "lone": (lone, rows["a"]),
        "list": (two_inputs("list"), list(rows.values())),
        "dict": (two_inputs("dict"), rows),
    }
    given, wanted = {}, {}
    for name, (model, nest) in cases.items():
        export.export_model(model, tmp_path / name)
        given[name], wanted[name] = nest, model(nest)
    for name, space in (("policy", NAMED), ("plain", BOX)):
        agent, observations = trained(space, S.Discrete(4)), batch_of(space, 7)
        export.export_policy(agent, tmp_path / name, space, S.Discrete(4))
        given[name] = observations
        actions = agent.policy.act(observations, temperature=0.0).actions
        wanted[name] = {"actions": actions}
        endpoint = policies.value_endpoint(agent, space)
        export.export_model({"value": endpoint}, tmp_path / f"{name} value")
        given[f"{name} value"] = observations
        policy = agent.policy
        values = policy.state(policy.normalize(observations), method="critic")
        wanted[f"{name} value"] = {"values": values}
    (tmp_path / "given.pkl").write_bytes(pickle.dumps(given))
    command = [sys.executable, "-I", "-c", ELSEWHERE, str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path)
    found = pickle.loads((tmp_path / "found.pkl").read_bytes())
    for name, right in wanted.items():
        for key in (name, f"{name} in a model"):
            tf.nest.assert_same_structure(found[key], right)
            for one, two in zip(
                *map(tf.nest.flatten, (found[key], right)), strict=True
            ):
                np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5, err_msg=key)
    lone.compile(keras.optimizers.SGD(0.1), "mse")
    lone.fit(given["lone"], np.zeros([7, 2]), batch_size=7, verbose=0)
    for one, two in zip(found["trained"], lone.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_a_fit_model_is_exported_as_its_network(tmp_path):
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    model = training.FitModel(network, lambda model, rows: model(rows)[:, 0] ** 2)
    export.export_model(model, tmp_path / "model")
    export.export_model(network, tmp_path / "network")
    rows = tf.constant(batch_of(BOX, 7))
    for name in ("model", "network"):
        loaded = tf.saved_model.load(str(tmp_path / name))
        np.testing.assert_allclose(loaded.serve(rows), network(rows), rtol=1e-5)
    assert export.verify(tmp_path / "model") == {"serving_default": 0.0}
