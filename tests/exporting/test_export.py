"""Tests of `tfrl.exporting.export`: what is written, and what is refused."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import training
from tfrl.core import modes, random
from tfrl.exporting import endpoints, export
from tfrl.layers import as_keras, distribution, normalization
from tfrl.policies import networks
from tfrl.stats import normalizers

ROWS = tf.TensorSpec([None, 3])
VECTOR = {"x": tf.TensorSpec([None])}
BATCH = np.random.default_rng(0).normal(1.0, 2.0, [7, 3]).astype(np.float32)


def written(path, content, *args, **kwargs):
    export.export_model(content, path, *args, **kwargs)
    return export.verify(path)


def served(path, content, *args, **kwargs):
    """Writes a SavedModel and returns its default signature, kept alive."""
    assert list(written(path, content, *args, **kwargs)) == ["serving_default"]
    model = tf.saved_model.load(str(path))
    signature = model.signatures["serving_default"]
    return lambda **given: (
        model
        and signature(**{name: tf.constant(value) for name, value in given.items()})
    )


def normalization_layer():
    layer = normalization.RunningNormalization()
    layer(BATCH, training=True)
    return layer


class Scaled(tf.Module):
    def __init__(self):
        super().__init__()
        self.scales = [tf.Variable(2.0), tf.Variable(3.0)]

    @tf.function
    def __call__(self, x):
        if tf.reduce_sum(x) > 0:  # turned into a graph by tf.function
            return x * self.scales[0]
        return x * self.scales[1]


def sequential():
    head = distribution.DistributionHead(gym.spaces.Box(-1.0, 1.0, (2,)))
    return keras.Sequential([keras.Input([3]), keras.layers.Dense(4), head])


CONTENTS = {
    "layer": (lambda: keras.layers.Dense(2), True),
    "normalization layer": (normalization_layer, True),
    "sequential": (sequential, False),
    "module": (Scaled, True),
    "function": (lambda: tf.abs, True),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_contents(tmp_path, kind):
    make, needs_inputs = CONTENTS[kind]
    content = make()
    content(BATCH)
    serve = served(tmp_path / "model", content, ROWS if needs_inputs else None)
    for rows in (BATCH, BATCH[:1], -np.abs(BATCH)):
        found = serve(inputs=rows)
        assert list(found) == ["output_0"]
        np.testing.assert_allclose(found["output_0"], content(rows), rtol=1e-5)


def test_a_fit_model_is_exported_as_its_network(tmp_path):
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    model = training.FitModel(network, lambda model, rows: model(rows)[:, 0] ** 2)
    assert written(tmp_path / "model", model) == {"serving_default": 0.0}
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(loaded.serve(BATCH), network(BATCH), rtol=1e-5)


def test_normalizers_do_not_learn_when_served(tmp_path):
    content = normalizers.EMNormalizer(tf.TensorSpec([3]), update_rate=0.5)
    content.update(BATCH)
    before = [np.array(variable.numpy()) for variable in content.variables]
    serve = served(tmp_path / "model", content, ROWS)
    with modes.eval_context():
        wanted = content(BATCH)
    for _ in range(2):
        np.testing.assert_allclose(serve(inputs=BATCH)["output_0"], wanted, rtol=1e-5)
    for variable, value in zip(content.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def recurrent(n_actions=4):
    """A masked policy with its state going in and out."""
    observations = keras.Input([3], name="observations")
    state = keras.Input([5], name="state")
    mask = keras.Input([n_actions], name="mask", dtype="bool")
    features, (new,) = keras.layers.GRUCell(5)(observations, [state])
    logits = keras.layers.Dense(n_actions)(features)
    logits = keras.ops.where(mask, logits, -1e9)
    inputs = {"observations": observations, "state": state, "mask": mask}
    return keras.Model(inputs, {"logits": logits, "state": new})


def roll(call, n_rows):
    """Four steps, each from the state of the one before."""
    rng, found = np.random.default_rng(1), []
    state = np.zeros([n_rows, 5], np.float32)
    for _ in range(4):
        given = {
            "observations": rng.normal(size=[n_rows, 3]).astype(np.float32),
            "mask": rng.random([n_rows, 4]) < 0.7,
            "state": state,
        }
        outputs = call(given)
        state = np.array(outputs["state"])
        found.append(np.array(outputs["logits"]))
    return np.stack(found)


def litert_runner(path, name=None):
    with pytest.warns(UserWarning, match="deprecated"):
        interpreter = tf.lite.Interpreter(str(path))
    return interpreter.get_signature_runner(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "model.keras", "model.tflite"])
def test_recurrent_state_and_mask(tmp_path, name):
    """And several endpoints in a file of LiteRT."""
    model, path = recurrent(), tmp_path / name
    if path.suffix == ".tflite":
        inputs = {x.name: tf.TensorSpec(x.shape, x.dtype) for x in model.inputs}
        step = endpoints.Endpoint(lambda **given: model(given), inputs)
        exp = endpoints.Endpoint(tf.exp, VECTOR)
        assert sorted(written(path, {"step": step, "exp": exp})) == ["exp", "step"]
        found = litert_runner(path, "exp")(x=np.float32([0.0, 1.0]))["output_0"]
        np.testing.assert_allclose(found, [1.0, np.e], rtol=1e-6)
        runner = litert_runner(path, "step")
        call = lambda given: runner(**given)  # noqa: E731
    else:
        written(path, model)
    if path.suffix == ".keras":
        call = keras.models.load_model(path)
    elif not path.suffix:
        loaded = tf.saved_model.load(str(path))
        serve = loaded.signatures["serving_default"]
        call = lambda given: serve(**{k: tf.constant(x) for k, x in given.items()})  # noqa: E731
    for n_rows in (1, 7, 256):
        found, wanted = roll(call, n_rows), roll(model, n_rows)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))


def subclassed():
    kinds = networks.SpaceEncoder.describe(
        gym.spaces.Dict(a=gym.spaces.Discrete(3), b=gym.spaces.Box(-1.0, 1.0, (2,)))
    )
    model = networks.ActorCritic(kinds, n_outputs=2)
    model.build({"a": (None,), "b": (None, 2)})
    return model


SUBCLASSED = {"a": tf.TensorSpec([None], tf.int64), "b": tf.TensorSpec([None, 2])}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_subclassed_models_with_specs(tmp_path, name):
    path, model = tmp_path / name, subclassed()
    written(path, model, SUBCLASSED)
    given = {"a": np.array([2, 0]), "b": np.float32([[0.5, 1], [0, -1]])}
    if path.suffix:
        found = keras.models.load_model(path)(given)
    else:
        loaded = tf.saved_model.load(str(path))
        rows = {name: tf.constant(value) for name, value in given.items()}
        outputs = loaded.signatures["serving_default"](**rows)
        found = (outputs["output_0"], outputs["output_1"])
    for one, two in zip(found, model(given), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["model", pytest.param("model.tflite", marks=pytest.mark.slow)]
)
def test_lists_go_by_numbers(tmp_path, name):
    one, two = keras.Input([2]), keras.Input([2])
    model = keras.Model([one, two], (one + two, one - two))
    assert written(tmp_path / name, model)["serving_default"] < 1e-6
    rows = tf.constant([[3.0, 4.0]])
    if name == "model":
        loaded = tf.saved_model.load(str(tmp_path / name))
        call = loaded.signatures["serving_default"]
    else:
        call = litert_runner(tmp_path / name)
    found = call(inputs_0=rows, inputs_1=rows - 1)
    assert {k: np.asarray(x).tolist() for k, x in found.items()} == {
        "output_0": [[5.0, 7.0]],
        "output_1": [[1.0, 1.0]],
    }


@keras.saving.register_keras_serializable("tests")
class Counting(keras.layers.Layer):
    def build(self, input_shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.count.assign_add(1.0)
        return inputs + self.count


def test_layers_that_change_when_called(tmp_path):
    """Writing and verifying leave no trace, in the layer as in the file."""
    model = keras.Sequential([keras.Input([3]), Counting()])
    before = float(model.layers[0].count)
    for name in ("model", "model.keras"):
        written(tmp_path / name, model)
    assert float(model.layers[0].count) == before
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for step in (1, 2):
        found = loaded.signatures["serving_default"](inputs=tf.zeros([1, 3]))
        assert float(found["output_0"][0, 0]) == before + step


class Noise:
    """Keeps its weights outside, counts its calls and draws by its key."""

    def init(self, signature, rng):
        return np.ones(signature.shape[-1:], np.float32), np.float32(0)

    def pure_fn(self, x, weights, state, rng):
        noise = tf.random.stateless_normal(tf.shape(x), random.new_seed(rng))
        return weights * x + state + noise, state + 1


def test_what_draws_goes_on_from_its_state(tmp_path):
    layer = as_keras.AsKeras(Noise(), rng=7)
    layer(BATCH)
    before = [np.array(weight.numpy()) for weight in layer.weights]
    serve = served(tmp_path / "model", layer, ROWS)
    for weight, value in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    generator = tf.random.Generator.from_seed(1)
    draw = endpoints.Endpoint(lambda: {"y": generator.normal([3])}, {})
    assert written(tmp_path / "draw", {"draw": draw}) == {"draw": 0.0}
    model = tf.saved_model.load(str(tmp_path / "draw"))
    for _ in range(2):
        found, wanted = serve(inputs=BATCH)["output_0"], layer(BATCH)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        found = model.signatures["draw"]()["y"]
        np.testing.assert_array_equal(found, generator.normal([3]))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: tf.abs, id="function"),
        pytest.param(lambda: keras.layers.Dense(2), id="layer", marks=pytest.mark.slow),
    ],
)
def test_keras_files_are_for_models_and_those_of_litert_for_all(tmp_path, make):
    content = make()
    content(BATCH)
    with pytest.raises(TypeError, match="`export_model`: `content` expected a Keras m"):
        written(tmp_path / "model.keras", content, ROWS)
    if isinstance(content, keras.layers.Layer):
        found = written(tmp_path / "model.tflite", content, ROWS)
        assert found["serving_default"] < 1e-5
        found = litert_runner(tmp_path / "model.tflite")(inputs=BATCH)["output_0"]
        np.testing.assert_allclose(found, content(BATCH), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["model", "model.keras", "model.tflite"])
@pytest.mark.parametrize("inputs", [ROWS, None], ids=["inputs", "no inputs"])
def test_unbuilt(tmp_path, name, inputs):
    model = keras.Sequential([keras.layers.Dense(2)], name="mine")
    with pytest.raises(ValueError, match="`export_model`: `content` .*built.* 'mine'"):
        written(tmp_path / name, model, inputs)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    "make", [lambda: tf.abs, subclassed], ids=["function", "keras"]
)
def test_unknown_inputs(tmp_path, make):
    with pytest.raises(ValueError, match="`export_model`: `inputs` expected the specs"):
        written(tmp_path / "model", make())


def test_examples_of_a_layer(tmp_path):
    given = {"inputs": np.ones([2, 3], np.float32)}
    for path in ("m", "m.keras"):
        written(tmp_path / path, sequential(), examples=given)


CONTENT_ERRORS = {
    "object": (object(), {}, TypeError, "`content` expected endpoints, a Dist"),
    "function": ({"a": tf.abs}, {}, TypeError, "`content` expected an `Endpoint`"),
    "name": ({1: endpoints.Endpoint(tf.abs, {})}, {}, TypeError, "`content` expected"),
    "inputs": (
        endpoints.Endpoint(tf.abs, {"x": ROWS}),
        {"inputs": ROWS},
        ValueError,
        "`inputs` and `examples` expected None beside endpoints",
    ),
}


@pytest.mark.parametrize("kind", CONTENT_ERRORS)
def test_other_contents_are_errors(tmp_path, kind):
    content, options, error, message = CONTENT_ERRORS[kind]
    with pytest.raises(error, match=f"`export_model`: .*{message}"):
        written(tmp_path / "model", content, **options)


@tf.function
def pick(x):
    return {"picked": tf.gather(x, tf.cast(x, tf.int32) + 99)}


UNREPEATABLE = {
    "unseeded": (lambda x: {"y": x + tf.random.normal([])}, "difference of .* in 'y'"),
    "seed of the program": (
        lambda x: {"y": x + tf.random.normal([], seed=3)},
        "difference of .* in 'y'",
    ),
    "host": (lambda x: {"y": tf.numpy_function(np.sin, [x], tf.float32)}, "PyFunc"),
    "nothing": (lambda x: None, "NoneType"),
    "nan": (lambda x: {"y": x * np.nan}, "'act' expected examples .*NaN alone as 'y'"),
    "no answer": (
        pick,
        r"'act' expected .* can answer; got indices\[0\] = 99 is not in",
    ),
}


@pytest.mark.parametrize("kind", UNREPEATABLE)
def test_what_cannot_be_repeated_never_appears(tmp_path, kind):
    function, message = UNREPEATABLE[kind]
    endpoint = endpoints.Endpoint(function, VECTOR)
    with pytest.raises((ValueError, TypeError), match=f"`export_model`: .*{message}"):
        export.export_model({"act": endpoint}, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def counting():
    count = tf.Variable(0.0)
    return endpoints.Endpoint(lambda x: {"y": x + count.assign_add(1.0)}, VECTOR)


def stateful():
    layer = keras.layers.LSTM(4, stateful=True, unroll=True)
    return keras.Sequential([keras.Input([5, 3], batch_size=2), layer])


def rolled(layer):
    return lambda: keras.Sequential([keras.Input([5, 3]), layer(4)])


def argmax():
    inputs = keras.Input([3])
    return keras.Model(inputs, keras.ops.argmax(inputs, axis=-1))


def drawing():
    function = lambda x: tf.random.stateless_normal([2], [1, 2]) + x[0]  # noqa: E731
    return {"sample": endpoints.Endpoint(function, VECTOR)}


def wide():
    return endpoints.Endpoint(tf.exp, {"x": tf.TensorSpec([None], tf.float64)})


def halved():
    inputs = keras.Input([3])
    layer = keras.layers.Dense(2, use_bias=False, dtype="mixed_bfloat16")
    return keras.Model(inputs, layer(inputs))


slow = pytest.mark.slow
LITERT_LACKS = [
    pytest.param(drawing, "'sample', which draws", id="draws"),
    pytest.param(counting, r"keeps a state, .* \(AssignAddVariableOp\)", id="counts"),
    pytest.param(stateful, "keeps a state, .*Assign", id="stateful"),
    pytest.param(rolled(keras.layers.LSTM), "TensorList.*`unroll=True`", id="lstm"),
    pytest.param(
        rolled(keras.layers.GRU), "TensorList.*`unroll=True`", id="gru", marks=slow
    ),
    pytest.param(argmax, "LiteRT's own ops; .*BitwiseAnd", id="argmax", marks=slow),
    pytest.param(wide, "Exp of float64; compute in", id="float64", marks=slow),
    pytest.param(halved, "MatMul of bfloat16; compute in", id="bfloat16", marks=slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "message"), LITERT_LACKS)
def test_what_litert_lacks_is_told(tmp_path, capfd, make, message):
    content = make()
    before = [np.array(x.numpy()) for x in getattr(content, "variables", ())]
    with pytest.raises(ValueError, match=f"`export_model`: a .tflite file .*{message}"):
        export.export_model(content, tmp_path / "m.tflite")
    assert not list(tmp_path.iterdir())
    for variable, value in zip(getattr(content, "variables", ()), before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


@pytest.mark.parametrize("name", ["m.onnx", "m.h5", "m.pb", "m.TFLITE", "m.keras"])
def test_other_suffixes_are_refused(tmp_path, name):
    message = r"`path` .*with one of \['.tflite'\]; got .*" + name
    with pytest.raises(ValueError, match=f"`export_policy`: {message}"):
        export.export_policy(None, tmp_path / name, None, None)
    if name != "m.keras":
        message = r"`path` .*\['.keras', '.tflite'\]; got .*" + name
        with pytest.raises(ValueError, match=f"`export_model`: {message}"):
            export.export_model(tf.exp, tmp_path / name, ROWS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["policy-1.0", "ppo.3", ".hidden"])
def test_versions_are_no_suffixes(tmp_path, name):
    assert written(tmp_path / name, tf.exp, ROWS) == {"serving_default": 0.0}


def test_what_is_no_path():
    calls = {
        "export_policy": lambda: export.export_policy(None, None, None, None),
        "export_model": lambda: export.export_model(tf.exp, None, ROWS),
        "verify": lambda: export.verify(None),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=f"`{name}`: `path` expected .*; got None"):
            call()


def dense():
    return keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])


def test_not_within_graphs_and_replicas(tmp_path):
    model = dense()
    calls = (
        lambda: export.export_model(model, tmp_path / "m"),
        lambda: export.verify(tmp_path / "m"),
        lambda: export.export_policy(None, tmp_path / "m", None, None),
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for call in calls:
        with pytest.raises(ValueError, match="functions and replicas; got .* a graph"):
            tf.function(call, autograph=False)()
        with pytest.raises(ValueError, match="and replicas; got .* a replica"):
            strategy.run(tf.function(call, autograph=False))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_within_a_strategy(tmp_path, name):
    strategy, plain = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), dense()
    with strategy.scope():
        mirrored = dense()
        written(tmp_path / "inside" / name, mirrored)
        written(tmp_path / "plain" / name, plain)
        with pytest.raises(ValueError, match="`verify`: `path` expected"):
            export.verify(tmp_path / "absent")
    export.export_model(mirrored, tmp_path / "outside" / name)
    for place in ("inside", "outside", "plain"):
        assert max(export.verify(tmp_path / place / name).values()) < 1e-6
    if name == "model":
        model = tf.saved_model.load(str(tmp_path / "inside" / name))
        found = model.signatures["serving_default"](inputs=tf.constant(BATCH))
        np.testing.assert_allclose(found["output_0"], mirrored(BATCH), rtol=1e-5)
