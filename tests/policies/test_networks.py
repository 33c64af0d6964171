"""Tests of `tfrl.policies.networks`."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.policies import networks

S = gym.spaces
IMAGE = S.Box(0, 255, (36, 40, 3), np.uint8)
SPACES = {
    "box": (S.Box(-1.0, 1.0, (4,)), 4),
    "scalar box": (S.Box(-1.0, 1.0, ()), 1),
    "two axes": (S.Box(-1.0, 1.0, (2, 3)), 6),
    "float64": (S.Box(-1.0, 1.0, (4,), np.float64), 4),
    "flat uint8": (S.Box(0, 255, (5,), np.uint8), 5),
    "image": (IMAGE, 512),
    "stack of frames": (S.Box(0, 255, (4, 36, 40), np.uint8), 512),
    "stack of images": (S.Box(0, 255, (2, 36, 40, 3), np.uint8), 512),
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
    shapes = tf.nest.map_structure(lambda leaf: leaf.shape, observations)
    assert encoder.compute_output_shape(shapes) == (3, width)
    if isinstance(observations, dict):
        turned = dict(reversed(observations.items()))
        np.testing.assert_array_equal(encoder(turned), features)
    if "image" not in str(encoder.kinds):
        expected = [encoded_slowly(space, rows_of(observations, i)) for i in range(3)]
        np.testing.assert_allclose(features, expected, rtol=1e-6)


def test_stacks_of_frames_give_what_stacked_channels_give():
    frames = np.random.default_rng(0).integers(256, size=(2, 3, 36, 40, 2), dtype="u1")
    beside = np.concatenate(np.moveaxis(frames, 1, 0), axis=-1)
    space = S.Box(0, 255, beside.shape[1:], np.uint8)
    one = networks.SpaceEncoder(networks.SpaceEncoder.describe(space), seed=1)
    right = one(beside)
    orders = {
        (3, 36, 40, 2): frames,
        (3, 2, 36, 40): np.moveaxis(frames, -1, 2),
        (6, 36, 40): np.moveaxis(beside, -1, 1),
    }
    for shape, seen in orders.items():
        kinds = networks.SpaceEncoder.describe(S.Box(0, 255, shape, np.uint8))
        other = networks.SpaceEncoder(kinds, seed=1)
        np.testing.assert_allclose(other(seen), right, rtol=1e-5, atol=1e-6)


BAD_INPUTS = {
    "wider": (SPACES["box"][0], np.ones((5, 6), "f")),
    "divisible": (SPACES["box"][0], np.ones((5, 8), "f")),
    "no batch": (SPACES["box"][0], np.ones(4, "f")),
    "another rank": (SPACES["two axes"][0], np.ones((5, 6), "f")),
    "turned": (SPACES["two axes"][0], np.ones((5, 3, 2), "f")),
    "choices": (SPACES["multi discrete"][0], np.ones((2, 4), np.int64)),
    "one choice": (SPACES["discrete"][0], np.ones((2, 2), np.int64)),
    "binary": (SPACES["multi binary"][0], np.ones((2, 2, 4), np.int8)),
    "image": (IMAGE, np.ones((2, 40, 36, 3), np.uint8)),
    "part of a dict": (
        SPACES["dict"][0],
        {"b": np.ones([6], np.int64), "a": np.ones([3, 6], "f")},
    ),
    "a nest": (SPACES["box"][0], {"a": np.ones([2, 4], "f")}),
    "no nest": (SPACES["dict"][0], np.ones([2, 3], "f")),
    "rows": (
        SPACES["dict"][0],
        {"b": np.ones([3], np.int64), "a": np.ones([2, 3], "f")},
    ),
    "missing part": (SPACES["dict"][0], {"a": np.ones([2, 3], "f")}),
    "part of a tuple": (
        SPACES["tuple"][0],
        (np.ones([2, 2], "f"), {"x": np.ones([2, 3], np.int64)}),
    ),
}


@pytest.mark.parametrize(("space", "data"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_rows_are_never_mixed(space, data):
    kinds = networks.SpaceEncoder.describe(space)
    built = networks.SpaceEncoder(kinds)
    built(batch_of(space))
    # Inputs have a batch axis, and one size of it.
    sizes = {len(leaf) for leaf in tf.nest.flatten(data)}
    symbolic = tf.nest.map_structure(
        lambda x: keras.KerasTensor((None, *x.shape[1:]), x.dtype), data
    )
    shapes = tf.nest.map_structure(lambda x: x.shape, data)
    calls = [
        lambda: built(data),
        lambda: tf.function(built, autograph=False)(data),
        lambda: networks.SpaceEncoder(kinds)(data),
        lambda: networks.ActorCritic(kinds, 2)(data),
        lambda: networks.SpaceEncoder(kinds).build(shapes),
        lambda: built.compute_output_shape(shapes),
    ]
    if len(sizes) == 1:
        calls += [lambda: built(symbolic), lambda: networks.ActorCritic(kinds, 2)(data)]
    for call in calls:
        with pytest.raises(ValueError, match="`SpaceEncoder`: .*`inputs"):
            call()


def test_unknown_widths_are_checked_when_they_are_known():
    kinds = networks.SpaceEncoder.describe(SPACES["box"][0])
    model = networks.ActorCritic(kinds, 2)
    model.build((None, 4))
    for shape in ([None, None], None):
        run = tf.function(model, input_signature=[tf.TensorSpec(shape)])
        assert run(tf.ones([3, 4]))[0].shape == (3, 2)
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(tf.ones([2, 6]))


class Wrapped(keras.Model):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs):
        return self.layer(inputs)


@pytest.mark.parametrize(
    ("space", "widths"),
    [
        (S.Box(-1.0, 1.0, (3,)), (4, 1)),
        pytest.param(S.MultiDiscrete([2, 3]), (3, 1), marks=pytest.mark.slow),
        (S.Discrete(3), (2,)),
    ],
    ids=str,
)
def test_predict_refuses_another_width(space, widths):
    encoder = networks.SpaceEncoder(networks.SpaceEncoder.describe(space))
    model = Wrapped(encoder)
    right = np.ones((4, *(space.shape or (1,))), np.float32)
    assert model.predict(right, verbose=0).shape[0] == 4
    for width in widths:
        # Keras has relaxed the shape when it comes here the second time.
        for rows in (4, 2):
            with pytest.raises(Exception, match="SpaceEncoder"):
                model.predict(np.ones((rows, width), np.float32), verbose=0)


def test_a_space_is_described_first():
    space = gym.spaces.Box(-1.0, 1.0, (3,))
    message = r"`kinds` expected .*`SpaceEncoder\.describe\(space\)`"
    with pytest.raises(TypeError, match=message):
        networks.SpaceEncoder(space)
    with pytest.raises(TypeError, match=message):
        networks.ActorCritic(space, 2)
    kinds = networks.SpaceEncoder.describe(space)
    for name, arguments in {
        "n_outputs": {"n_outputs": 0},
        "hidden_units": {"hidden_units": 8},
        "seed": {"seed": None},
    }.items():
        with pytest.raises((TypeError, ValueError), match=f"`{name}` expected"):
            networks.ActorCritic(kinds, **{"n_outputs": 2, **arguments})


@pytest.mark.parametrize("name", ["image", "stack of images", "nest with images"])
def test_no_rows_where_only_the_run_tells_how_many(name):
    space, width = SPACES[name]
    encoder = networks.SpaceEncoder(networks.SpaceEncoder.describe(space))
    rows = tf.nest.map_structure(tf.constant, batch_of(space, 2))
    free = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), rows
    )
    encoder(rows)
    encode = tf.function(encoder, input_signature=[free])
    np.testing.assert_allclose(encode(rows), encoder(rows), rtol=1e-5, atol=1e-5)
    none = tf.nest.map_structure(lambda x: x[:0], rows)
    assert encode(none).shape == encoder(none).shape == (0, width)


def test_static_batch_sizes_are_kept():
    space = SPACES["nest with images"][0]
    kinds = networks.SpaceEncoder.describe(space)
    inputs = {
        "i": tuple(keras.Input(IMAGE.shape, 4, dtype="uint8") for _ in range(2)),
        "g": keras.Input((), 4, dtype="int64"),
    }
    assert networks.SpaceEncoder(kinds)(inputs).shape == (4, 1026)
    parameters, values = networks.ActorCritic(kinds, 2, 0.0)(inputs)
    assert (parameters.shape, values.shape) == ((4, 4), (4,))


@pytest.mark.parametrize("name", ["box", "multi discrete", "tuple", "image"])
def test_actor_critic_shapes(name):
    space, width = SPACES[name]
    kinds, observations = networks.SpaceEncoder.describe(space), batch_of(space)
    for log_std in (None, -0.5):
        model = networks.ActorCritic(kinds, 2, log_std, (8,))
        parameters, values = model(observations)
        assert parameters.shape == (3, 2 if log_std is None else 4)
        assert values.shape == (3,)
        assert parameters.dtype == values.dtype == tf.float32
        np.testing.assert_allclose(model.actor(observations), parameters, rtol=1e-5)
        np.testing.assert_allclose(model.critic(observations), values, rtol=1e-5)
        paths = [variable.path for variable in model.variables]
        assert "actor_critic/actor/hidden_0/kernel" in paths
        assert len(set(paths)) == len(paths)
        assert model.actor_network.dense[0].kernel.shape == (width, 8)
    np.testing.assert_array_equal(parameters[:, 2:], np.full((3, 2), -0.5))


def test_actor_critic_encodes_once():
    kinds = networks.SpaceEncoder.describe(IMAGE)
    model = networks.ActorCritic(kinds, 2, 0.0, (8,))
    call = tf.function(lambda x: model(x), autograph=False)
    graph = call.get_concrete_function(tf.TensorSpec([None, *IMAGE.shape], tf.uint8))
    kinds = [op.type for op in graph.graph.get_operations()]
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
    space = SPACES["nest with images"][0]
    kinds, paths = networks.SpaceEncoder.describe(space), []
    for _ in range(2):
        model = networks.ActorCritic.for_space(space, 2, 0.0, (4,))
        paths.append([variable.path for variable in model.variables])
    assert paths[0] == paths[1] and model.kinds == kinds
    kernels = [v for v in model.variables if "convolution_0/kernel" in v.path]
    assert len(kernels) == 2, "several images start differently"
    assert np.abs(kernels[0].numpy() - kernels[1].numpy()).max() > 0.1


def test_mixed_precision_keeps_float32_outside():
    space = S.Dict(i=IMAGE, x=S.Box(-np.inf, np.inf, (2,)))
    kinds = networks.SpaceEncoder.describe(space)
    observations = {"i": batch_of(IMAGE), "x": np.full((3, 2), 1e5, np.float32)}
    model = networks.ActorCritic(kinds, 2, 0.1, (8,), dtype="mixed_float16")
    parameters, values = model(observations)
    assert parameters.dtype == values.dtype == model.encoder(observations).dtype
    assert parameters.dtype == tf.float32
    # A float16 log_std would read 0.09997559.
    np.testing.assert_array_equal(parameters[:, 2:], np.full((3, 2), np.float32(0.1)))
    np.testing.assert_array_equal(model.encoder(observations)[:, -1], [1e5] * 3)
    assert model.actor_network.dense[0].compute_dtype == "float16"
    assert {variable.dtype for variable in model.variables} == {"float32"}


def pixels(*shape):
    return S.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (S.Discrete(3, start=-1), ["one_hot", [3], [-1]]),
        (S.MultiDiscrete([3, 2]), ["one_hot", [3, 2], [0, 0]]),
        (S.MultiBinary([2, 2]), ["flat", [2, 2]]),
        (S.Box(-1.0, 1.0, (84, 84, 4)), ["flat", [84, 84, 4]]),
        (pixels(84, 84), ["flat", [84, 84]]),
        (S.Dict(b=S.MultiBinary(1)), ["dict", [["b", ["flat", [1]]]]]),
        (S.Tuple([S.MultiBinary(1)]), ["tuple", [[0, ["flat", [1]]]]]),
        (pixels(84, 84, 4), ["image", [84, 84, 4]]),
        (pixels(36, 40, 35), ["image", [36, 40, 35]]),
        (pixels(4, 84, 84), ["image", [4, 84, 84], 1]),
        (pixels(4, 84, 84, 1), ["image", [4, 84, 84, 1], 1]),
        (pixels(4, 210, 160, 3), ["image", [4, 210, 160, 3], 1]),
        (pixels(4, 3, 64, 64), ["image", [4, 3, 64, 64], 2]),
        (pixels(84, 84, 4, 3), ["image", [84, 84, 4, 3], 0]),
    ],
    ids=str,
)
def test_descriptions(space, kind):
    assert networks.SpaceEncoder.describe(space) == kind


@pytest.mark.parametrize(
    ("space", "error", "match"),
    [
        (S.Text(3), TypeError, "`space` expected Box, Discrete"),
        (S.MultiDiscrete([[2, 2]]), TypeError, "`space` expected Box, Discrete"),
        (
            S.Dict(a=S.Tuple([S.Discrete(2), S.Sequence(S.Discrete(2))])),
            *(TypeError, r"`space\['a'\]\[1\]` expected Box.*; got Sequence"),
        ),
        (pixels(7, 7, 3), ValueError, r"36x36 .*\[7, 7, 3\]"),
        (pixels(4, 7, 7, 3), ValueError, r"36x36 .*\[4, 7, 7, 3\]"),
        (pixels(64, 64, 64), ValueError, r"\[64, 64, 64\]; .*StackChannels"),
        (pixels(84, 4, 84), ValueError, r"\[84, 4, 84\]; .*StackChannels"),
        (pixels(84, 84, 84, 3), ValueError, "StackChannels"),
        (S.Dict(), ValueError, "have a part at least"),
        (S.Box(-1.0, 1.0, (0,)), ValueError, "have a number at least"),
        (S.Dict(a=S.Box(0, 1, (2, 0))), ValueError, "have a number at least"),
        (S.Dict(a=S.Discrete(2), b=S.Tuple([])), ValueError, "have a part at least"),
    ],
    ids=["text", "matrix", "nested", "small", "small stack", "cube", "apart", "four"]
    + ["empty", "no number", "no number in a part", "empty part"],
)
def test_what_has_no_description(space, error, match):
    with pytest.raises(error, match=f"`SpaceEncoder.describe`: .*{match}"):
        networks.SpaceEncoder.describe(space)
