"""TrainState: recorded steps, variables that change, loops, replicas, copies."""

import copy
import dataclasses
import pickle

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import assert_close, two_replicas

from tfrl.agents import gradient_transforms, train_state
from tfrl.core import pytree

GOLDEN = golden_io.load("jaxrl_m/jaxrl_m")
STEPS = [case for case in GOLDEN if case["id"].startswith("trainstate_")]
TRANSFORMS = {
    "sgd": gradient_transforms.sgd(0.1),
    "nesterov": gradient_transforms.sgd(0.1, momentum=0.9, nesterov=True),
    "adamw": gradient_transforms.adamw(1e-2, weight_decay=0.1),
    "clip_adam": gradient_transforms.chain(
        gradient_transforms.clip_by_global_norm(0.5), gradient_transforms.adam(1e-2)
    ),
}


@keras.saving.register_keras_serializable(package="tfrl_tests")
class Autoencoder(keras.Model):
    """Has methods of its own, and a sublayer that can be called alone."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.enc = keras.layers.Dense(3, name="enc")
        self.dec = keras.layers.Dense(4, name="dec")

    def build(self, input_shape):
        self.enc.build((None, 4))
        self.dec.build((None, 3))
        self.built = True

    def encode(self, x, scale=1.0):
        return keras.ops.tanh(self.enc(x)) * scale

    def decode(self, z):
        return self.dec(z)

    def call(self, x):
        return self.decode(self.encode(x))


def autoencoder(tx=None, params=None):
    model = Autoencoder(name="vae")
    model.build((None, 4))
    if params is not None:
        params = as_paths(params)
    return train_state.TrainState.create(model, params=params, tx=tx)


def as_paths(nested):
    return {
        f"vae/{layer}/{name}": value
        for layer, values in nested.items()
        for name, value in values.items()
    }


def regression(state, x, y):
    def loss_fn(params):
        outputs = state(x, params=params)
        loss = tf.reduce_mean((y - outputs) ** 2)
        return loss, {"loss": loss, "mean": tf.reduce_mean(outputs)}

    return state.apply_loss_fn(loss_fn=loss_fn, has_aux=True)


def assert_nests_close(found, expected, **tolerance):
    tf.nest.assert_same_structure(found, expected)
    assert_close(found, expected, **tolerance)


@pytest.mark.parametrize(
    ("case", "compiled"),
    [
        *[pytest.param(case, False, id=f"{case['id']}-eager") for case in STEPS],
        *[
            pytest.param(
                *(case, True),
                id=f"{case['id']}-xla",
                marks=pytest.mark.slow,
            )
            for case in STEPS
        ],
    ],
)
def test_recorded_steps(case, compiled):
    tx = TRANSFORMS[case["id"].removeprefix("trainstate_")]
    x, y = (tf.constant(case["inputs"][name]) for name in "xy")
    state = start = autoencoder(tx, case["inputs"]["params0"])
    update = tf.function(regression, jit_compile=True) if compiled else regression
    for step in case["outputs"]["steps"]:
        old = state
        state, info = update(state, x, y)
        assert int(old.step) == step["old_step"] == int(state.step) - 1
        assert_nests_close(state.params, as_paths(step["params"]), rtol=0, atol=1.1e-6)
        assert_nests_close(info, step["info"], rtol=1e-5, atol=1e-6)
        again = old.apply_gradients(grads=as_paths(step["grads"]))
        assert_nests_close(again.params, as_paths(step["params"]), rtol=0, atol=1.1e-6)
    if compiled:
        assert update.experimental_get_tracing_count() == 1
    outputs = case["outputs"]
    tolerance = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(state(x), outputs["call"], **tolerance)
    for codes in (
        state(x, method="encode"),
        state.encode(x),
        state(x, method=state.model_def.encode),
        state(x, method=Autoencoder.encode),
    ):
        np.testing.assert_allclose(codes, outputs["encode"], **tolerance)
    assert_nests_close(start.params, as_paths(case["inputs"]["params0"]), atol=0)


def test_recorded_target_updates():
    case = next(case for case in GOLDEN if case["id"] == "target_update")
    model = autoencoder(params=case["inputs"]["model"])
    target = autoencoder(params=case["inputs"]["target"]).replace(step=tf.constant(7))
    for name, expected in case["outputs"].items():
        tau = float(name.removeprefix("tau"))
        for value in (tau, tf.constant(tau, tf.float64)):
            moved = train_state.target_update(model, target, value)
            assert_nests_close(moved.params, as_paths(expected), rtol=1e-5, atol=1e-6)
            assert int(moved.step) == 7
            assert moved.model_def is target.model_def


def test_recorded_step_over_replicas():
    case = next(case for case in GOLDEN if case["id"] == "pmap_axis")
    x, y = case["inputs"]["x"], case["inputs"]["y"]
    dense = keras.layers.Dense(2, name="dense")
    dense.build((None, 4))
    params = {f"dense/{k}": v for k, v in case["inputs"]["params"].items()}
    tx = gradient_transforms.sgd(0.1)
    state = train_state.TrainState.create(dense, params=params, tx=tx)
    strategy = two_replicas()

    def replica(state, x, y):
        def loss_fn(params):
            loss = tf.reduce_mean((y - state(x, params=params)) ** 2)
            return loss, {"loss": loss, "rows": tf.shape(x)[0]}

        return tf.nest.flatten(
            state.apply_loss_fn(loss_fn=loss_fn, pmap_axis="pmap", has_aux=True)
        )

    shards = [
        strategy.experimental_distribute_values_from_function(
            lambda context, data=data: tf.constant(
                data[context.replica_id_in_sync_group]
            )
        )
        for data in (x, y)
    ]
    run = tf.function(strategy.run, autograph=False)
    found = run(replica, (state, *shards))
    values = [strategy.experimental_local_results(value) for value in found]
    for index in range(2):
        # What no replica changed comes back as one tensor.
        leaves = [value[min(index, len(value) - 1)] for value in values]
        info = {"loss": 0.0, "rows": 0.0}
        new, info = tf.nest.pack_sequence_as((state, info), leaves)
        expected = {f"dense/{k}": v for k, v in case["outputs"]["params"].items()}
        close = {"rtol": 1e-5, "atol": 1e-6}
        for key, array in expected.items():
            wanted = array[0] if array.ndim > params[key].ndim else array
            np.testing.assert_allclose(new.params[key], wanted, **close)
        wanted = np.ravel(case["outputs"]["info"]["loss"])[0]
        np.testing.assert_allclose(info["loss"], wanted, **close)
        assert float(info["rows"]) == 3.0


def test_methods_and_what_is_no_method():
    state = autoencoder()
    x = np.ones((2, 4), np.float32)
    codes = state.encode(x, scale=2.0)
    np.testing.assert_allclose(codes, 2.0 * state.encode(x), rtol=1e-6)
    np.testing.assert_allclose(state.decode(codes), state(codes, method="decode"))
    np.testing.assert_allclose(state.enc(x), state(x, method=state.model_def.enc))
    twice = state(x, method=lambda model, x: model.decode(model.encode(x)))
    np.testing.assert_allclose(twice, state(x), rtol=1e-6)
    zeros = {key: tf.zeros_like(value) for key, value in state.params.items()}
    np.testing.assert_array_equal(state.encode(x, params=zeros), np.zeros((2, 3)))
    for name in ("fit", "save", "name", "nothing", "_private", "__len__"):
        with pytest.raises(AttributeError, match=name):
            getattr(state, name)
    with pytest.raises(ValueError, match="`method` expected a method of Autoencoder"):
        state(x, method="missing")


def test_parameters_a_loss_leaves_out_stay():
    state = autoencoder(gradient_transforms.sgd(0.1))
    x = np.ones((2, 4), np.float32)
    new = state.apply_loss_fn(
        loss_fn=lambda params: tf.reduce_sum(state.encode(x, params=params))
    )
    same = [k for k in state.params if np.all(state.params[k] == new.params[k])]
    assert sorted(same) == ["vae/dec/bias", "vae/dec/kernel"]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_old_states_stay_and_copies_go_on_alike():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="d")])
    tx = gradient_transforms.adam(0.1)
    state, x = train_state.TrainState.create(model, tx=tx), np.ones((2, 4), np.float32)
    before = [np.copy(leaf) for leaf in tf.nest.flatten(state)]
    new, _ = regression(state, x, x)
    later, _ = regression(new, x, x)
    assert_close(state, before)
    for twin in (copy.copy(new), copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
        assert_close(regression(twin, x, x)[0], later)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.step = 3


class Scaled(train_state.TrainState):
    """A state with a field more."""

    scale: float = pytree.nonpytree_field(default=1.0)


def test_fields_by_keyword():
    model = autoencoder().model_def
    state = Scaled.create(model, tx=gradient_transforms.sgd(0.1), scale=2.0)
    assert (state.scale, int(state.step)) == (2.0, 1)
    grads = tf.nest.map_structure(tf.zeros_like, state.params)
    new = state.apply_gradients(grads=grads, scale=3.0)
    assert (new.scale, int(new.step)) == (3.0, 2)
    assert autoencoder().opt_state == ()


def test_bad_models_and_optimizers():
    layer = keras.layers.Dense(1, kernel_constraint="non_neg", name="d")
    layer.build((None, 1))
    frozen = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    frozen.trainable = False
    nadam, sgd = keras.optimizers.Nadam(), gradient_transforms.sgd(0.1)
    unbuilt = r"`model_def` expected a built layer; .*`build\(input_shape\)`"
    for arguments, error, message in (
        ([keras.layers.Dense(1)], ValueError, unbuilt),
        (["mlp"], TypeError, "`model_def` expected a Keras layer"),
        ([abs, 1.0, "adam"], TypeError, "`tx` expected a `Grad"),
        ([abs, 1.0, nadam], ValueError, "`from_keras`: `optimizer`"),
        ([layer, None, sgd], ValueError, r"without constraints; got .*\['d/kernel'\]"),
        ([frozen, None, sgd], ValueError, "got one of 2 weights, none of which is tra"),
    ):
        with pytest.raises(error, match=message):
            train_state.TrainState.create(*arguments)
    assert not train_state.TrainState.create(frozen).params


@pytest.mark.parametrize(
    ("which", "name"),
    [
        ("kernel_regularizer", "net/d/kernel"),
        ("bias_regularizer", "net/d/bias"),
        ("activity_regularizer", "net/d"),
    ],
)
def test_regularizers_are_refused_and_not_left_out(which, name):
    head = keras.layers.Dense(1, name="d", **{which: "l2"})
    model = keras.Sequential([keras.Input([1]), head], name="net")
    message = rf"`model_def` expected .* without regularizers.*got some on \['{name}'\]"
    with pytest.raises(ValueError, match=message):
        train_state.TrainState.create(model, tx=gradient_transforms.sgd(0.1))
    assert train_state.TrainState.create(model).params  # that only computes


def test_bad_updates():
    state = autoencoder(gradient_transforms.sgd(0.1))
    x = np.ones((2, 4), np.float32)
    with pytest.raises(ValueError, match="`tx` expected a gradient transform; got N"):
        autoencoder().apply_gradients(grads=state.params)
    with pytest.raises(ValueError, match="`grads` expected the nest of `params`"):
        state.apply_gradients(grads={})
    for loss_fn, has_aux, message in (
        (lambda params: state(x, params=params), False, "a scalar loss; got shape"),
        (lambda params: (tf.ones(()), {"loss": 1.0}), False, "pass `has_aux=True`"),
        (lambda params: (None, {}), True, "a scalar loss; got None"),
        (lambda params: tf.reduce_sum(state(x)), False, "to depend on its argument"),
        (lambda params: tf.ones(()), True, "a pair of loss and info"),
        (lambda params: (1.0, 2.0, 3.0), True, "a pair of loss and info"),
        (
            lambda params: (
                tf.reduce_sum(state(x, params=params)),
                {"extra_variables": {"a": 1.0}},
            ),
            True,
            "info's `extra_variables` expected the nest",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            state.apply_loss_fn(loss_fn=loss_fn, has_aux=has_aux)
    with pytest.raises(ValueError, match="`tau` expected a number in"):
        train_state.target_update(state, state, 1.5)
    other = train_state.TrainState.create(tf.multiply, params=tf.ones(()))
    with pytest.raises(ValueError, match="`target` expected the parameter names"):
        train_state.target_update(state, other, 0.5)
    with pytest.raises(TypeError, match="`target_update`: `target` expected"):
        train_state.target_update(state, state.params, 0.5)
