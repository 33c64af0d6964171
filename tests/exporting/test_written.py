"""Tests of `tfrl.exporting._written` and `_contents`: what is exported."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import modes, random
from tfrl.exporting import endpoints, export
from tfrl.layers import as_keras, distribution, normalization
from tfrl.policies import networks
from tfrl.stats import normalizers

ROWS = tf.TensorSpec([None, 3])
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


def normalizer():
    found = normalizers.EMNormalizer(tf.TensorSpec([3]), update_rate=0.5)
    found.update(BATCH)
    return found


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


def test_normalizers_do_not_learn_when_served(tmp_path):
    content = normalizer()
    before = [np.array(variable.numpy()) for variable in content.variables]
    serve = served(tmp_path / "model", content, ROWS)
    with modes.eval_context():
        wanted = content(BATCH)
    for _ in range(2):
        np.testing.assert_allclose(serve(inputs=BATCH)["output_0"], wanted, rtol=1e-5)
    for variable, value in zip(content.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_normalizers_of_nests(tmp_path):
    specs = {"x": tf.TensorSpec([2]), "y": tf.TensorSpec([])}
    content = normalizers.AdaptiveNormalizer(specs, auto_update=False)
    rows = {"x": BATCH[:, :2], "y": BATCH[:, 2]}
    content.update(rows)
    inputs = {"x": tf.TensorSpec([None, 2]), "y": tf.TensorSpec([None])}
    found = served(tmp_path / "model", content, inputs)(**rows)
    wanted = content.normalize(rows)
    for name in rows:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5)


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


def steps(n_rows, rng):
    return {
        "observations": rng.normal(size=[n_rows, 3]).astype(np.float32),
        "mask": rng.random([n_rows, 4]) < 0.7,
        "state": np.zeros([n_rows, 5], np.float32),
    }


def roll(call, n_rows):
    """Four steps, each from the state of the one before."""
    rng, state, found = np.random.default_rng(1), None, []
    for _ in range(4):
        given = steps(n_rows, rng)
        if state is not None:
            given["state"] = state
        outputs = call(given)
        state = np.array(outputs["state"])
        found.append(np.array(outputs["logits"]))
    return np.stack(found)


def litert_runner(path):
    with pytest.warns(UserWarning, match="deprecated"):
        interpreter = tf.lite.Interpreter(str(path))
    return interpreter.get_signature_runner()


@pytest.mark.parametrize("name", ["model", "model.keras", "model.tflite"])
def test_recurrent_state_and_mask(tmp_path, name):
    model, path = recurrent(), tmp_path / name
    written(path, model)
    if path.suffix == ".keras":
        call = keras.models.load_model(path)
    elif path.suffix == ".tflite":
        runner = litert_runner(path)
        call = lambda given: runner(**given)  # noqa: E731
    else:
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


@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_subclassed_models_with_specs(tmp_path, name):
    path, model = tmp_path / name, subclassed()
    written(path, model, SUBCLASSED)
    given = {"a": np.array([2, 0]), "b": np.float32([[0.5, 1], [0, -1]])}
    wanted = model(given)
    if path.suffix:
        found = keras.models.load_model(path)(given)
    else:
        loaded = tf.saved_model.load(str(path))
        found = loaded.signatures["serving_default"](
            **{name: tf.constant(value) for name, value in given.items()}
        )
        found = (found["output_0"], found["output_1"])
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_lists_go_by_numbers(tmp_path):
    one, two = keras.Input([2]), keras.Input([2])
    model = keras.Model([one, two], (one + two, one - two))
    for name in ("model", "model.tflite"):
        assert written(tmp_path / name, model)["serving_default"] < 1e-6
    runner = litert_runner(tmp_path / "model.tflite")
    assert sorted(runner.get_input_details()) == ["inputs_0", "inputs_1"]
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    rows = tf.constant([[3.0, 4.0]])
    found = loaded.signatures["serving_default"](inputs_0=rows, inputs_1=rows - 1)
    assert {k: x.numpy().tolist() for k, x in found.items()} == {
        "output_0": [[5.0, 7.0]],
        "output_1": [[1.0, 1.0]],
    }


def test_layers_that_change_when_called(tmp_path):
    """Writing and verifying leave no trace, in the layer as in the file."""

    @keras.saving.register_keras_serializable("tests")
    class Counting(keras.layers.Layer):
        def build(self, input_shape):
            self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, inputs):
            self.count.assign_add(1.0)
            return inputs + self.count

    model = keras.Sequential([keras.Input([3]), Counting()])
    before = float(model.layers[0].count)
    for name in ("model", "model.keras"):
        written(tmp_path / name, model)
        assert export.verify(tmp_path / name)
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


def test_layers_of_other_libraries_go_on_from_their_state_and_key(tmp_path):
    layer = as_keras.AsKeras(Noise(), rng=7)
    layer(BATCH)
    before = [np.array(weight.numpy()) for weight in layer.weights]
    serve = served(tmp_path / "model", layer, ROWS)
    for weight, value in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    for _ in range(3):
        found, wanted = serve(inputs=BATCH)["output_0"], layer(BATCH)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_what_litert_cannot_do(tmp_path, capfd):
    inputs = keras.Input([3])
    model = keras.Model(inputs, keras.ops.argmax(inputs, axis=-1))
    with pytest.raises(ValueError, match="LiteRT's own ops; .*BitwiseAnd"):
        written(tmp_path / "model.tflite", model)


@pytest.mark.parametrize(
    "make", [lambda: tf.abs, lambda: keras.layers.Dense(2)], ids=["function", "layer"]
)
def test_keras_files_are_for_models_and_those_of_litert_for_all(tmp_path, make):
    content = make()
    content(BATCH)
    message = "`export_model`: `content` expected a Keras model"
    with pytest.raises(TypeError, match=message):
        written(tmp_path / "model.keras", content, ROWS)
    assert written(tmp_path / "model.tflite", content, ROWS)["serving_default"] < 1e-5
    found = litert_runner(tmp_path / "model.tflite")(inputs=BATCH)["output_0"]
    np.testing.assert_allclose(found, content(BATCH), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["model", "model.keras", "model.tflite"])
@pytest.mark.parametrize("with_inputs", [True, False], ids=["inputs", "no inputs"])
def test_unbuilt(tmp_path, name, with_inputs):
    model = keras.Sequential([keras.layers.Dense(2)], name="mine")
    message = (
        "`export_model`: `content` expected a built layer; got 'mine', which has no"
    )
    with pytest.raises(ValueError, match=message):
        written(tmp_path / name, model, ROWS if with_inputs else None)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    "make", [lambda: tf.abs, normalizer, subclassed], ids=["function", "tfrl", "keras"]
)
def test_unknown_inputs(tmp_path, make):
    content = make()
    with pytest.raises(
        ValueError, match="`export_model`: `inputs` expected the specs of"
    ):
        written(tmp_path / "model", content)


def test_endpoints_and_examples(tmp_path):
    lone = endpoints.Endpoint(lambda x: {"y": 1.0 / x}, {"x": tf.TensorSpec([])})
    with pytest.raises(
        ValueError, match="`export_model`: `examples` expected .*NaN alone as 'y'"
    ):
        written(tmp_path / "model", lone._replace(function=lambda x: {"y": x * np.nan}))
    examples = {"x": np.float32(4.0)}
    found = written(tmp_path / "model", lone._replace(examples=examples))
    assert found == {"serving_default": 0.0}
    found = written(tmp_path / "two", {"a": lone, "b": lone})
    assert sorted(found) == ["a", "b"]
    for path in ("m", "m.keras", "m.tflite"):
        given = {"inputs": np.ones([2, 3], np.float32)}
        written(tmp_path / path, sequential(), examples=given)


CONTENT_ERRORS = {
    "object": (object(), {}, TypeError, "`content` expected endpoints, a Dist"),
    "function": (
        {"a": tf.abs},
        {},
        TypeError,
        "an `Endpoint` for each name; got .*'a'",
    ),
    "name": ({1: endpoints.Endpoint(tf.abs, {})}, {}, TypeError, "`Endpoint` for each"),
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


def test_inputs_that_cannot_be_answered_are_told(tmp_path):
    @tf.function
    def pick(inputs):
        return {"picked": tf.gather(inputs, tf.cast(inputs[:, 0], tf.int32))}

    rows = np.full([4, 3], 99.0, np.float32)
    message = r"endpoint 'serving_default' can answer; got indices\[0\] = 99 is not in"
    with pytest.raises(ValueError, match=message):
        written(tmp_path / "model", pick, ROWS, examples={"inputs": rows})
    assert not list(tmp_path.iterdir())
