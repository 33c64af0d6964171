"""Tests of `tfrl.exporting._litert`, and of policies as `.tflite` files."""

import subprocess
import sys

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from export_examples import BOX, NAMED, batch_of, named, trained

from tfrl.exporting import endpoints, export, policies

S = gym.spaces
CASES = {
    "discrete": (BOX, S.Discrete(3, start=-1), {}),
    "dict to several": (NAMED, S.MultiDiscrete([3, 2]), {}),
    "squashed": (NAMED, S.Box(-2.0, 1.0, (2,)), {"squash": True}),
    "tuple to bits": (S.Tuple([BOX, S.Discrete(2)]), S.MultiBinary(3), {}),
}
ELSEWHERE = """
import sys
import numpy as np, tensorflow as tf
for kind in sys.argv[1:]:
    path = f"{kind}.tflite"
    runner = tf.lite.Interpreter(path).get_signature_runner("serving_default")
    with np.load(f"{kind}.npz") as given:
        np.save(f"{kind}.npy", runner(**given)["actions"])
assert "tfrl" not in sys.modules
"""


def flat(space, observations):
    names = policies.policy_inputs(space)
    return dict(zip(names, tf.nest.flatten(observations), strict=True))


def test_policies_in_a_process_without_tfrl(tmp_path):
    wanted = {}
    for kind, (space, actions, options) in CASES.items():
        agent = trained(space, actions, **options)
        path = tmp_path / f"{kind}.tflite"
        export.export_policy(agent, path, space, actions)
        assert path.is_file() and list(export.verify(path)) == ["serving_default"]
        observations = batch_of(space, 7)
        np.savez(tmp_path / f"{kind}.npz", **flat(space, observations))
        wanted[kind] = agent.policy.act(observations, temperature=0.0).actions
    command = [sys.executable, "-I", "-c", ELSEWHERE, *CASES]
    subprocess.run(command, check=True, cwd=tmp_path)
    for kind, (_, actions, _) in CASES.items():
        found = np.load(tmp_path / f"{kind}.npy")
        assert found.dtype == actions.dtype and found.shape == (7, *actions.shape), kind
        np.testing.assert_allclose(
            found, wanted[kind], rtol=1e-5, atol=1e-5, err_msg=kind
        )


def test_masked_policies(tmp_path):
    agent = trained(BOX, S.MultiDiscrete([3, 2]))
    path = tmp_path / "policy.tflite"
    export.export_policy(agent, path, BOX, S.MultiDiscrete([3, 2]), with_mask=True)
    with pytest.warns(UserWarning, match="deprecated"):
        interpreter = tf.lite.Interpreter(str(path))
    runner = interpreter.get_signature_runner("serving_default")
    mask = np.array([[0, 1, 0, 0, 1]] * 9, bool)
    given = named(batch_of(BOX, 9))
    found = runner(**given, action_mask=tf.constant(mask))["actions"]
    np.testing.assert_array_equal(found, [[1, 1]] * 9)


def test_damage_is_noticed(tmp_path):
    path = tmp_path / "policy.tflite"
    export.export_policy(trained(BOX, S.Discrete(2)), path, BOX, S.Discrete(2))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="`verify`: `path` expected the 'model' that"):
        export.verify(path)


VECTOR = {"x": tf.TensorSpec([None])}


def test_several_endpoints(tmp_path):
    content = {
        "twice": endpoints.Endpoint(lambda x: {"y": 2.0 * x}, VECTOR),
        "exp": endpoints.Endpoint(tf.exp, VECTOR),
    }
    export.export_model(content, tmp_path / "m.tflite")
    assert sorted(export.verify(tmp_path / "m.tflite")) == ["exp", "twice"]


def test_what_draws_or_keeps_a_state_is_told(tmp_path):
    agent = trained(BOX, S.Discrete(2))
    found = policies.policy_endpoints(agent, BOX, S.Discrete(2))
    with pytest.raises(ValueError, match="got 'sample', which draws .*leave it out"):
        export.export_model(found, tmp_path / "m.tflite")
    count = tf.Variable(0.0)
    counting = endpoints.Endpoint(lambda x: {"y": x + count.assign_add(1.0)}, VECTOR)
    message = r"'serving_default', which keeps a state, .* \(AssignAddVariableOp\)"
    with pytest.raises(ValueError, match=f"`export_model`: a .tflite file .*{message}"):
        export.export_model(counting, tmp_path / "m.tflite")
    assert not list(tmp_path.iterdir())


def test_stateful_recurrent_layers_are_told(tmp_path):
    layer = keras.layers.LSTM(4, stateful=True, unroll=True)
    model = keras.Sequential([keras.Input([5, 3], batch_size=2), layer])
    before = [np.array(x.numpy()) for x in model.variables]
    with pytest.raises(ValueError, match="a state, variables that a call changes .Ass"):
        export.export_model(model, tmp_path / "m.tflite")
    assert not list(tmp_path.iterdir())
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_the_cure_for_recurrent_layers_is_told(tmp_path, capfd):
    for layer in (keras.layers.LSTM, keras.layers.GRU):
        model = keras.Sequential([keras.Input([5, 3]), layer(4)])
        with pytest.raises(ValueError, match="TensorListReserve; .*`unroll=True`, or"):
            export.export_model(model, tmp_path / "m.tflite")
    model = keras.Sequential([keras.Input([5, 3]), keras.layers.LSTM(4, unroll=True)])
    export.export_model(model, tmp_path / "m.tflite")
    assert export.verify(tmp_path / "m.tflite")["serving_default"] < 1e-5


def test_ops_of_float64_are_told(tmp_path, capfd):
    actions = S.Box(-2.0, 1.0, (2,), np.float64)
    agent = trained(BOX, actions)
    message = "`export_policy`: a .tflite file .* with Maximum, Minimum of float64; wri"
    with pytest.raises(ValueError, match=message):
        export.export_policy(agent, tmp_path / "m.tflite", BOX, actions)


SUFFIXES = ["m.onnx", "m.h5", "m.pb", "m.TFLITE", "m.keras"]


@pytest.mark.parametrize("name", SUFFIXES)
def test_other_suffixes_are_refused(tmp_path, name):
    agent, actions = trained(BOX, S.Discrete(2)), S.Discrete(2)
    message = r"with one of \['.tflite'\]; got .*" + name
    with pytest.raises(ValueError, match=f"`export_policy`: `path` .*{message}"):
        export.export_policy(agent, tmp_path / name, BOX, actions)
    if name != "m.keras":
        message = r"with one of \['.keras', '.tflite'\]; got .*" + name
        with pytest.raises(ValueError, match=f"`export_model`: `path` .*{message}"):
            export.export_model(tf.exp, tmp_path / name, tf.TensorSpec([None]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["policy-1.0", "ppo.3", ".hidden"])
def test_versions_are_no_suffixes(tmp_path, name):
    export.export_model(tf.exp, tmp_path / name, tf.TensorSpec([None]))
    assert export.verify(tmp_path / name) == {"serving_default": 0.0}
