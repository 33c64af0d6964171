"""`AsKeras` around layers of Trax itself; `tfrl[foreign]` installs it."""

import types

import golden_io
import golden_layers
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import layers

# Trax still looks for this name when it is imported; TensorFlow has it no more.
tf.estimator = types.ModuleType("estimator")
tf.estimator.ModeKeys = types.SimpleNamespace(
    TRAIN="train", EVAL="eval", PREDICT="infer"
)
# Trax and what it imports warn of what has changed since.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def trax():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("trax", exc_type=ImportError)


def _layer(name, trax, mode="train"):
    tl = trax.layers
    shared = tl.Dense(5)
    language_model = {"d_model": 8, "d_ff": 16, "n_layers": 1, "n_heads": 2}
    language_model |= {"max_len": 16, "mode": mode}
    makers = {
        "Dense": lambda: tl.Dense(3),
        "Serial": lambda: tl.Serial(tl.Dense(7), tl.Relu(), tl.Dense(3)),
        "MLP": lambda: trax.models.MLP(layer_widths=(8, 3)),
        "LayerNorm": lambda: tl.Serial(tl.Dense(6), tl.LayerNorm()),
        "BatchNorm": lambda: tl.BatchNorm(axis=(0,), mode=mode),
        "BatchNorm4d": lambda: tl.BatchNorm(mode=mode),
        "Dropout": lambda: tl.Dropout(0.5, mode=mode),
        "SerialBNDropout": lambda: tl.Serial(
            tl.Dense(8),
            tl.BatchNorm(axis=(0,), mode=mode),
            tl.Relu(),
            tl.Dropout(0.3, mode=mode),
            tl.Dense(2),
        ),
        "Embedding": lambda: tl.Serial(tl.Embedding(9, 5), tl.Dense(2)),
        "LSTM": lambda: tl.LSTM(5),
        "GRU": lambda: tl.GRU(5),
        "Conv": lambda: tl.Serial(
            tl.Conv(4, (3, 3), padding="SAME"), tl.Relu(), tl.Flatten(), tl.Dense(2)
        ),
        "Residual": lambda: tl.Residual(tl.Dense(4), tl.Tanh()),
        "SharedDense": lambda: tl.Serial(shared, tl.Relu(), shared, tl.Dense(2)),
        "Branch": lambda: tl.Branch(tl.Dense(3), tl.Serial(tl.Dense(4), tl.Tanh())),
        "ParallelTwoInputs": lambda: tl.Serial(
            tl.Parallel(tl.Dense(3), tl.Dense(3)), tl.Add()
        ),
        "CausalAttention": lambda: tl.CausalAttention(8, n_heads=2, mode=mode),
        "TransformerLM": lambda: tl.Serial(
            tl.Fn("Modulo", lambda x: x % 8),
            trax.models.TransformerLM(8, dropout=0.0, **language_model),
        ),
        "TransformerLM_dropout": lambda: trax.models.TransformerLM(
            8, dropout=0.2, **language_model
        ),
        "NoWeights": lambda: tl.Serial(tl.Relu(), tl.LogSoftmax()),
    }
    return makers[name]()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize(
    "case", golden_layers.CASES, ids=golden_io.ids(golden_layers.CASES)
)
def test_trains_as_recorded(case, compiled, trax):
    layer = layers.AsKeras(
        _layer(case["id"].removesuffix("_train"), trax),
        initializer_rng=case["inputs"]["init_rng"],
        rng=case["inputs"]["rng0"],
        dtype=golden_layers.dtype_of_inputs(case),
    )
    golden_layers.assert_trains_as_recorded(layer, case, compiled)


def data(rows):
    return np.random.default_rng(rows).normal(size=[rows, 4]).astype(np.float32)


def test_a_factory_knows_the_mode_of_each_call(trax, tmp_path):
    layer = layers.AsKeras(
        lambda training: _layer(
            "SerialBNDropout", trax, "train" if training else "eval"
        )
    )
    inputs = keras.Input([4], batch_size=8)
    model = keras.Model(inputs, layer(inputs))
    model.compile("adam", "mse", jit_compile=False)
    x = data(32)
    model.fit(x, x[:, :2], batch_size=8, verbose=0)
    still = model(x[:8])
    np.testing.assert_array_equal(model(x[:8]), still)
    assert np.any(model(x[:8], training=True) != model(x[:8], training=True))
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    model.export(str(tmp_path / "model"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(loaded.serve(x[:8]), model(x[:8]), atol=1e-6)
    values = [v.numpy() for v in model.variables]
    model.fit(x, x[:, :2], batch_size=8, verbose=0)
    tf.train.Checkpoint(model=model).restore(path)
    for variable, value in zip(model.variables[:-1], values[:-1], strict=True):
        np.testing.assert_array_equal(variable, value)


def test_any_batch_or_the_one_that_it_is_told(trax):
    inputs = keras.Input([4])
    assert layers.AsKeras(_layer("LayerNorm", trax))(inputs).shape == (None, 6)
    dropout = layers.AsKeras(_layer("Dropout", trax), batch_size=5)
    assert dropout(inputs).shape == (5, 4)
    with pytest.raises(RuntimeError, match="pass `batch_size` to a layer that must"):
        layers.AsKeras(_layer("Dropout", trax))(inputs)


def test_fit_by_xla(trax):
    layer = layers.AsKeras(_layer("LayerNorm", trax))
    model = keras.Sequential([keras.Input([4]), layer, keras.layers.Dense(3)])
    model.compile("adam", "mse", jit_compile=True)
    x = data(32)
    losses = model.fit(x, x[:, :3], batch_size=8, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_errors_of_the_layer_are_told_in_full(trax):
    layer = layers.AsKeras(_layer("Dense", trax))
    layer(data(2))
    with pytest.raises(
        ValueError, match="(?s)built for.*raised LayerError: .*through layer Dense_"
    ):
        layer(data(2)[:, :3])


def test_layers_that_were_initialized_keep_their_weights(trax):
    made = _layer("Dense", trax)
    with trax.fastmath.use_backend("tensorflow-numpy"):
        made.init(trax.shapes.ShapeDtype((2, 4)), rng=tf.constant(9, tf.int64))
    layer = layers.AsKeras(made)
    layer(data(2))
    np.testing.assert_array_equal(layer.weights_0, made.weights[0])
