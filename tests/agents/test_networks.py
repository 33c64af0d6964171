"""Tests of `tfrl.agents.networks`."""

import json
import subprocess
import sys

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import networks

S = gym.spaces
IMAGE = S.Box(0, 255, (36, 40, 3), np.uint8)
SPACES = {
    "box": (S.Box(-1.0, 1.0, (4,)), 4),
    "scalar box": (S.Box(-1.0, 1.0, ()), 1),
    "two axes": (S.Box(-1.0, 1.0, (2, 3)), 6),
    "float64": (S.Box(-1.0, 1.0, (4,), np.float64), 4),
    "flat uint8": (S.Box(0, 255, (5,), np.uint8), 5),
    "image": (IMAGE, 512),
    "discrete": (S.Discrete(3, start=-1), 3),
    "multi discrete": (S.MultiDiscrete([3, 2], start=[1, 5]), 5),
    "multi discrete int16": (S.MultiDiscrete([3, 2], dtype=np.int16), 5),
    "multi binary": (S.MultiBinary([2, 2]), 4),
    "dict": (S.Dict(b=S.Discrete(2), a=S.Box(-1.0, 1.0, (3,))), 5),
    "tuple": (S.Tuple((S.MultiBinary(2), S.Dict(x=S.Discrete(3)))), 5),
    "nest with images": (S.Dict(i=S.Tuple((IMAGE, IMAGE)), g=S.Discrete(2)), 1026),
}


def batch_of(space, n_rows=3, seed=0):
    """A nest of `[B, *shape]` drawn from a space."""
    space.seed(seed)
    return gym.vector.utils.concatenate(
        space,
        [space.sample() for _ in range(n_rows)],
        gym.vector.utils.create_empty_array(space, n_rows),
    )


def encoded_slowly(space, value):
    """The features of one observation without images, in plain Python."""
    if isinstance(space, S.Dict):
        return [x for key in space for x in encoded_slowly(space[key], value[key])]
    if isinstance(space, S.Tuple):
        pairs = zip(space, value, strict=True)
        return [x for part, each in pairs for x in encoded_slowly(part, each)]
    if isinstance(space, S.Discrete):
        return [float(value == space.start + i) for i in range(space.n)]
    if isinstance(space, S.MultiDiscrete):
        rows = zip(value, space.start, space.nvec, strict=True)
        return [float(v == start + i) for v, start, n in rows for i in range(n)]
    return [float(x) for x in np.ravel(value)]


def rows_of(nest, index):
    return tf.nest.map_structure(lambda leaf: leaf[index], nest)


@pytest.mark.parametrize(("space", "width"), SPACES.values(), ids=SPACES)
def test_space_encoder(space, width):
    encoder = networks.SpaceEncoder(networks.SpaceEncoder.describe(space))
    observations = batch_of(space)
    features = encoder(observations)
    assert features.shape == (3, width)
    assert features.dtype == tf.float32
    assert encoder.compute_output_shape(None) == (None, width)
    if "image" not in str(encoder.kinds):
        expected = [encoded_slowly(space, rows_of(observations, i)) for i in range(3)]
        np.testing.assert_allclose(features, expected, rtol=1e-6)


def test_space_encoder_looks_parts_up_by_name():
    space = SPACES["dict"][0]
    encoder = networks.SpaceEncoder(networks.SpaceEncoder.describe(space))
    observations = batch_of(space)
    turned = dict(reversed(observations.items()))
    assert list(turned) != list(observations)
    np.testing.assert_array_equal(encoder(turned), encoder(observations))


@pytest.mark.parametrize(
    ("space", "error", "match"),
    [
        (S.Text(3), TypeError, "`space` expected Box, Discrete"),
        (S.MultiDiscrete([[2, 2]]), TypeError, "`space` expected Box, Discrete"),
        (S.Dict(a=S.Sequence(S.Discrete(2))), TypeError, "`space` expected Box"),
        (S.Box(0, 255, (7, 7, 3), np.uint8), ValueError, r"36x36 .*\[7, 7, 3\]"),
        (S.Box(0, 255, (4, 84, 84), np.uint8), ValueError, r"channels.*\[4, 84, 84\]"),
    ],
    ids=["text", "matrix", "nested", "small image", "channels first"],
)
def test_describe_rejects(space, error, match):
    with pytest.raises(error, match=f"`SpaceEncoder.describe`: .*{match}"):
        networks.SpaceEncoder.describe(space)


@pytest.mark.parametrize(("space", "width"), SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("log_std", [None, -0.5], ids=["plain", "log_std"])
def test_actor_critic_shapes(space, width, log_std):
    kinds = networks.SpaceEncoder.describe(space)
    model = networks.ActorCritic(kinds, 2, log_std, (8,))
    observations = batch_of(space)
    parameters, values = model(observations)
    assert parameters.shape == (3, 2 if log_std is None else 4)
    assert values.shape == (3,)
    assert parameters.dtype == values.dtype == tf.float32
    if log_std is not None:
        np.testing.assert_array_equal(parameters[:, 2:], np.full((3, 2), log_std))
    np.testing.assert_allclose(model.actor(observations), parameters, rtol=1e-5)
    np.testing.assert_allclose(model.critic(observations), values, rtol=1e-5)
    assert "actor_critic/actor/hidden_0/kernel" in {v.path for v in model.variables}
    paths = [variable.path for variable in model.variables]
    assert len(set(paths)) == len(paths)
    kernel = model.actor_network.dense[0].kernel
    assert kernel.shape == (width, 8)


@pytest.mark.parametrize("log_std", [None, 0.0], ids=["plain", "log_std"])
def test_actor_critic_encodes_once(log_std):
    kinds = networks.SpaceEncoder.describe(IMAGE)
    model = networks.ActorCritic(kinds, 2, log_std, (8,))
    graph = (
        tf.function(lambda x: model(x))
        .get_concrete_function(tf.TensorSpec([None, *IMAGE.shape], tf.uint8))
        .graph
    )
    kinds = [op.type for op in graph.get_operations()]
    assert kinds.count("Conv2D") == 3


def test_actor_critic_by_hand():
    kinds = networks.SpaceEncoder.describe(S.Box(-1.0, 1.0, (2,)))
    model = networks.ActorCritic(kinds, 1, 0.5, (2,), "relu")
    model.build((None, 2))
    values = {
        "actor/hidden_0/kernel": [[1.0, 0.0], [0.0, -1.0]],
        "actor/hidden_0/bias": [0.5, 0.0],
        "actor/output/kernel": [[2.0], [1.0]],
        "actor/output/bias": [0.25],
        "critic/hidden_0/kernel": [[1.0, 1.0], [1.0, 1.0]],
        "critic/hidden_0/bias": [0.0, 0.0],
        "critic/output/kernel": [[1.0], [1.0]],
        "critic/output/bias": [-1.0],
        "log_std": [0.5],
    }
    assert len(values) == len(model.variables)
    for variable in model.variables:
        variable.assign(values[variable.path.removeprefix("actor_critic/")])
    parameters, value = model(np.array([[1.0, -3.0], [-2.0, 1.0]], np.float32))
    np.testing.assert_allclose(parameters, [[6.25, 0.5], [0.25, 0.5]])
    np.testing.assert_allclose(value, [-1.0, -1.0])


def test_initial_weights_are_orthogonal_and_seeded():
    kinds = networks.SpaceEncoder.describe(S.Box(-1.0, 1.0, (8,)))
    weights = []
    for seed in (0, 0, 1):
        model = networks.ActorCritic(kinds, 4, hidden_units=(8, 8), seed=seed)
        model.build((None, 8))
        weights.append([v.numpy() for v in model.variables])
    for one, same in zip(weights[0], weights[1], strict=True):
        np.testing.assert_array_equal(one, same)
    assert any(
        np.abs(one - other).max() > 0.1
        for one, other in zip(weights[0], weights[2], strict=True)
    )
    named = dict(zip([v.path for v in model.variables], weights[0], strict=True))
    hidden = named["actor_critic/actor/hidden_0/kernel"]
    np.testing.assert_allclose(hidden @ hidden.T, 2 * np.eye(8), atol=1e-5)
    output = named["actor_critic/actor/output/kernel"]
    np.testing.assert_allclose(output.T @ output, 1e-4 * np.eye(4), atol=1e-9)
    value = named["actor_critic/critic/output/kernel"]
    np.testing.assert_allclose(value.T @ value, [[1.0]], atol=1e-5)
    assert np.abs(hidden - named["actor_critic/critic/hidden_0/kernel"]).max() > 0.1


def test_variable_paths_do_not_count_models():
    kinds = networks.SpaceEncoder.describe(SPACES["nest with images"][0])
    paths = []
    for _ in range(2):
        model = networks.ActorCritic(kinds, 2, 0.0, (4,))
        model.build({"i": ((None,), (None,)), "g": (None,)})
        paths.append([variable.path for variable in model.variables])
    assert paths[0] == paths[1]


def test_several_images_start_differently():
    space = SPACES["nest with images"][0]
    encoder = networks.SpaceEncoder(networks.SpaceEncoder.describe(space))
    encoder.build({"i": ((None,), (None,)), "g": (None,)})
    kernels = [v for v in encoder.variables if "convolution_0/kernel" in v.path]
    assert len(kernels) == 2
    assert np.abs(kernels[0].numpy() - kernels[1].numpy()).max() > 0.1


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("how", ["argument", "global"])
def test_mixed_precision_keeps_float32_outside(policy, how):
    space = S.Dict(i=IMAGE, x=S.Box(-np.inf, np.inf, (2,)))
    kinds = networks.SpaceEncoder.describe(space)
    observations = {"i": batch_of(IMAGE), "x": np.full((3, 2), 1e5, np.float32)}
    before = keras.config.dtype_policy()
    try:
        if how == "global":
            keras.config.set_dtype_policy(policy)
            model = networks.ActorCritic(kinds, 2, 0.1, (8,))
        else:
            model = networks.ActorCritic(kinds, 2, 0.1, (8,), dtype=policy)
        parameters, values = model(observations)
    finally:
        keras.config.set_dtype_policy(before)
    assert parameters.dtype == values.dtype == model.encoder(observations).dtype
    assert parameters.dtype == tf.float32
    # A float16 log_std would read 0.09997559.
    np.testing.assert_array_equal(parameters[:, 2:], np.full((3, 2), np.float32(0.1)))
    np.testing.assert_array_equal(model.encoder(observations)[:, -1], [1e5] * 3)
    assert model.actor_network.dense[0].compute_dtype == policy.removeprefix("mixed_")
    assert {variable.dtype for variable in model.variables} == {"float32"}


RELOAD = """
import sys
import keras
import numpy as np
from tfrl.agents import networks
model = keras.saving.load_model(sys.argv[1])
images = np.load(sys.argv[2])
observations = {"i": (images["0"], images["1"]), "g": images["g"]}
parameters, values = model(observations)
np.savez(sys.argv[3], parameters=parameters, values=values)
assert model.log_std is not None
"""


# Keras saves by np.array(variable), at which NumPy 2 warns.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_fresh_process_loads_what_was_saved(tmp_path):
    space = SPACES["nest with images"][0]
    kinds = networks.SpaceEncoder.describe(space)
    model = networks.ActorCritic(kinds, 2, -0.5, (8,), "relu", seed=3)
    observations = batch_of(space)
    parameters, values = model(observations)
    model.log_std.assign([0.25, 0.75])
    model.save(tmp_path / "model.keras")
    np.savez(
        tmp_path / "in.npz",
        g=observations["g"],
        **{str(i): image for i, image in enumerate(observations["i"])},
    )
    files = [tmp_path / name for name in ("model.keras", "in.npz", "out.npz")]
    subprocess.run([sys.executable, "-c", RELOAD, *map(str, files)], check=True)
    with np.load(files[2]) as again:
        np.testing.assert_allclose(again["parameters"][:, :2], parameters[:, :2])
        np.testing.assert_allclose(again["parameters"][0, 2:], [0.25, 0.75])
        np.testing.assert_allclose(again["values"], values)


@pytest.mark.parametrize(
    "layer",
    [
        networks.MLP((np.int64(3), 4), "relu", 2, 0.5, 7, name="net"),
        networks.SpaceEncoder(
            networks.SpaceEncoder.describe(SPACES["dict"][0]), 5, name="encoder"
        ),
        networks.ActorCritic(
            networks.SpaceEncoder.describe(SPACES["tuple"][0]),
            2,
            0.5,
            (np.int64(3),),
            dtype="mixed_bfloat16",
        ),
    ],
    ids=["MLP", "SpaceEncoder", "ActorCritic"],
)
def test_config_survives_json(layer):
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    assert json.dumps(again.get_config()) == json.dumps(layer.get_config())
    assert again.dtype_policy.name == layer.dtype_policy.name


@pytest.mark.parametrize(
    ("arguments", "width"),
    [(((5,),), 5), (((5,), "tanh", 2), 2), (((), "tanh", 2), 2), (((),), 6)],
    ids=["hidden", "output", "linear", "flatten"],
)
def test_mlp(arguments, width):
    layer = networks.MLP(*arguments)
    inputs = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    outputs = layer(inputs)
    assert outputs.shape == (4, width)
    assert layer.compute_output_shape((None, 2, 3)) == (None, width)
    x = inputs.reshape(4, 6)
    for index, dense in enumerate(layer.dense):
        x = x @ dense.kernel.numpy() + dense.bias.numpy()
        if index < len(arguments[0]):
            x = np.tanh(x)
    np.testing.assert_allclose(outputs, x, rtol=1e-4, atol=1e-6)


def test_conv_encoder_divides_pixels():
    encoder = networks.conv_encoder(seed=1)
    images = batch_of(IMAGE)
    features = encoder(images)
    assert features.shape == (3, 512)
    assert np.all(features.numpy() >= 0.0)
    rescaled = images.astype(np.float32) / 255.0
    x = tf.constant(rescaled)
    for layer in encoder.layers[1:]:
        x = layer(x)
    np.testing.assert_allclose(features, x, rtol=1e-4, atol=1e-5)
    assert len(encoder.layers[1:]) == 4
