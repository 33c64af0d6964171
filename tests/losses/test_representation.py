"""Tests of `tfrl.losses.representation`."""

import math

import golden_io
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad, zeros

from tfrl import losses

SYMBOL = "AsymmetricSimSiamLoss"
CASES = golden_io.load("alf/losses", symbol=SYMBOL)
GENERATOR = np.random.default_rng(0)
SMALL = {
    "input_size": 6,
    "proj_hidden_size": 5,
    "pred_hidden_size": 4,
    "output_size": 3,
}


def batch(*shape, dtype="float32"):
    return tf.constant(GENERATOR.normal(size=shape), dtype)


def identity_loss(**kwargs):
    """The loss without networks: the cosine of what is given."""
    nets = [keras.layers.Identity(dtype=kwargs.get("dtype")) for _ in range(2)]
    return losses.AsymmetricSimSiamLoss(*nets, **kwargs)


def cosine_loss_slowly(pred, target, eps):
    """Row by row, in Python."""
    losses = np.zeros(pred.shape[:2])
    for at in np.ndindex(losses.shape):
        x, y = pred[at].tolist(), target[at].tolist()
        lengths = [max(math.sqrt(sum(v * v for v in w)), eps) for w in (x, y)]
        dot = sum(a * b for a, b in zip(x, y, strict=True))
        losses[at] = 1 - dot / (lengths[0] * lengths[1])
    return losses


# Golden data.


def variables_by_name(loss_fn):
    """The layer's variables under the recorded names, with "T" where transposed."""
    names = {}
    for net, first in (("proj_net", 1), ("pred_net", 0)):
        for layer in getattr(loss_fn, net).layers:
            kind, _, index = layer.name.partition("_")
            place = f"_{net}._nets.{first + int(index)}" if index else ""
            if kind == "dense":
                names[f"{place}._weight"] = layer.kernel
                if layer.use_bias:
                    names[f"{place}._bias"] = layer.bias
            elif kind == "norm":
                names[f"{place}._bn.weight"] = layer.gamma
                names[f"{place}._bn.bias"] = layer.beta
                names[f"{place}._bn.running_mean"] = layer.moving_mean
                names[f"{place}._bn.running_var"] = layer.moving_variance
    return names


def recorded(state):
    """Kernels were recorded transposed, and batches counted."""
    return {
        name: np.transpose(value) if np.ndim(value) == 2 else value
        for name, value in state.items()
        if not name.endswith("num_batches_tracked")
    }


def loaded(case):
    loss_fn = losses.AsymmetricSimSiamLoss(**case["in"]["ctor"])
    state = recorded(case["in"]["state_before"])
    variables = variables_by_name(loss_fn)
    assert variables.keys() == state.keys()
    for name, variable in variables.items():
        variable.assign(state[name])
    return loss_fn, variables


@pytest.mark.parametrize("kind", ["eager", *slow("graph", "xla")])
@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden(case, kind):
    if case["kind"] == "raises":
        with pytest.raises(ValueError, match="`input_size` expected where"):
            losses.AsymmetricSimSiamLoss(
                *case["ctor"]["args"], **case["ctor"]["kwargs"]
            )
        return
    given, out, tol = case["in"], case["out"], case["tol"]
    loss_fn, variables = loaded(case)
    training = given["mode"] == "train"

    def run(pred, target):
        with tf.GradientTape() as tape:
            tape.watch([pred, target])
            loss = loss_fn(pred, target, training=training)
        weights = {n: v.value for n, v in variables.items() if v.trainable}
        sources = {"pred": pred, "target": target, "weights": weights}
        gradients = tape.gradient(loss, sources, tf.constant(given["ct"]))
        of_target = gradients.pop("target")
        return loss, gradients, of_target is None

    if kind != "eager":
        run = tf.function(run, jit_compile=kind == "xla")
    loss, gradients, is_target_left_alone = run(
        tf.constant(given["pred"]), tf.constant(given["target"])
    )
    np.testing.assert_allclose(loss, out["loss"], **tol)
    np.testing.assert_allclose(gradients["pred"], out["dpred"], **tol)
    assert is_target_left_alone
    expected = recorded(out["dparams"])
    assert expected.keys() == gradients["weights"].keys()
    for name, gradient in gradients["weights"].items():
        np.testing.assert_allclose(gradient, expected[name], **tol, err_msg=name)
    for name, value in recorded(out["state_after"]).items():
        np.testing.assert_allclose(variables[name], value, **tol, err_msg=name)


# The loss itself.


def test_by_hand():
    pred = tf.constant([[[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]]])
    target = tf.constant([[[6.0, 8.0], [0.0, 5.0], [0.0, -1.0]]])
    loss = identity_loss()(pred, target)
    np.testing.assert_allclose(loss, [[0.0, 1.0, 2.0]], atol=1e-6)


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_against_loops(eps):
    pred, target = GENERATOR.normal(size=(2, 4, 3, 5)) * [[[[0.1]]], [[[2.0]]]]
    loss = identity_loss(eps=eps, dtype="float64")(pred, target)
    assert loss.dtype == "float64"
    expected = cosine_loss_slowly(pred, target, eps)
    np.testing.assert_allclose(loss, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-20, 1.0, 1e4, 1e19, 1e30])
def test_extreme_vectors(size):
    pred, target = tf.constant([[[size, 0.0]]]), tf.constant([[[size, size]]])
    with tf.GradientTape() as tape:
        tape.watch(pred)
        loss = identity_loss()(pred, target)
    expected = cosine_loss_slowly(np.float64(pred), np.float64(target), 1e-5)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert np.isfinite(tape.gradient(loss, pred)).all()


@pytest.mark.parametrize("kind", ["inside eps", "outside eps"])
def test_gradient_is_that_of_central_differences(kind):
    eps = 10.0 if kind == "inside eps" else 1e-5
    loss_fn = identity_loss(eps=eps, dtype="float64")
    pred, target = GENERATOR.normal(size=(2, 2, 1, 3))
    variable = tf.Variable(pred)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loss_fn(variable, target))
    gradient = tape.gradient(loss, variable)
    for at in np.ndindex(pred.shape):
        step = np.zeros_like(pred)
        step[at] = 1e-6
        ends = [
            cosine_loss_slowly(p, target, eps).sum() for p in (pred + step, pred - step)
        ]
        np.testing.assert_allclose(gradient[at], (ends[0] - ends[1]) / 2e-6, atol=1e-8)


# The networks.


@pytest.mark.parametrize("last_norm", [False, True])
def test_default_networks(last_norm):
    loss_fn = losses.AsymmetricSimSiamLoss(**SMALL, proj_last_use_bn=last_norm)
    shapes = [
        [tuple(weight.shape) for weight in layer.weights]
        for net in (loss_fn.proj_net, loss_fn.pred_net)
        for layer in net.layers
        if layer.weights
    ]
    proj_end = [[(5, 3)], [(3,)] * 4] if last_norm else [[(5, 3), (3,)]]
    hidden = [[(6, 5)], [(5,)] * 4, [(5, 5)], [(5,)] * 4]
    assert shapes == [*hidden, *proj_end, [(3, 4)], [(4,)] * 4, [(4, 3), (3,)]]
    kinds = [type(layer).__name__.lstrip("_") for layer in loss_fn.proj_net.layers]
    end = ["SampleBatchNormalization"] if last_norm else []
    block = ["Dense", "SampleBatchNormalization", "ReLU"]
    assert kinds == [*block, *block, "Dense", *end]


def test_weights_are_there_before_the_first_call():
    loss_fn = losses.AsymmetricSimSiamLoss(**SMALL)
    assert len(loss_fn.trainable_variables) == 13
    assert len(loss_fn.non_trainable_variables) == 6
    before = [id(variable) for variable in loss_fn.variables]
    loss_fn(batch(2, 2, 6), batch(2, 2, 6))
    assert [id(variable) for variable in loss_fn.variables] == before


def test_two_statistics_updates_target_first():
    loss_fn = losses.AsymmetricSimSiamLoss(**SMALL)
    pred, target = batch(4, 2, 2, 3), batch(4, 2, 2, 3)
    dense, norm = loss_fn.proj_net.layers[:2]
    mean, variance = np.zeros(5), np.ones(5)
    for inputs in (target, pred):
        rows = dense(tf.reshape(inputs, [-1, 6])).numpy()
        mean = 0.9 * mean + 0.1 * rows.mean(axis=0)
        variance = 0.9 * variance + 0.1 * rows.var(axis=0, ddof=1)
    loss_fn(pred, target, training=True)
    np.testing.assert_allclose(norm.moving_mean, mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(norm.moving_variance, variance, rtol=1e-4)
    loss_fn(pred, target)
    np.testing.assert_allclose(norm.moving_mean, mean, rtol=1e-4, atol=1e-6)


def test_frozen_layer_learns_nothing():
    loss_fn = losses.AsymmetricSimSiamLoss(**SMALL)
    loss_fn.trainable = False
    before = [variable.numpy() for variable in loss_fn.variables]
    loss_fn(batch(4, 2, 6), batch(4, 2, 6), training=True)
    for variable, value in zip(loss_fn.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    assert loss_fn.trainable_variables == []


def test_networks_given():
    proj = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    pred_net = keras.layers.Dense(3)
    loss_fn = losses.AsymmetricSimSiamLoss(proj, pred_net)
    pred, target = batch(2, 3, 2, 2), batch(2, 3, 2, 2)
    loss = loss_fn(pred, target)
    rows = [tf.reshape(x, [6, 2, 2]) for x in (pred, target)]
    p, z = pred_net(proj(rows[0])), proj(rows[1])
    expected = cosine_loss_slowly(p.numpy()[None], z.numpy()[None], 1e-5)
    # One less a cosine: rounded as numbers around 1 are, however small it is.
    np.testing.assert_allclose(loss, expected.reshape(2, 3), rtol=1e-5, atol=5e-7)
    assert len(loss_fn.trainable_variables) == 4


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_fixed_weight_norm(optimizer):
    loss_fn = losses.AsymmetricSimSiamLoss(**SMALL, fixed_weight_norm=True)
    kernels = [v for v in loss_fn.trainable_variables if len(v.shape) == 2]
    before = [np.linalg.norm(kernel) for kernel in kernels]
    values = [kernel.numpy() for kernel in kernels]
    optimizer = keras.optimizers.get(
        {"class_name": optimizer, "config": {"learning_rate": 0.1}}
    )
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                loss_fn(batch(4, 2, 6), batch(4, 2, 6), training=True)
            )
        weights = loss_fn.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
    after = [np.linalg.norm(kernel) for kernel in kernels]
    np.testing.assert_allclose(after, before, rtol=1e-5)
    for kernel, value in zip(kernels, values, strict=True):
        assert np.abs(kernel - value).max() > 1e-3


SIMSIAM = losses.AsymmetricSimSiamLoss
FAULTY = losses.AsymmetricSimSiamLoss(keras.layers.Dense(2), keras.layers.Dense(3))


@refusals.table(
    (
        SIMSIAM,
        bad(ValueError, "input_size"),
        bad(TypeError, "proj_net", lambda x: x),
        bad(TypeError, "pred_net", pred_net=np.tanh, input_size=6),
        bad(ValueError, "input_size", input_size=0),
        bad(ValueError, "eps", input_size=6, eps=0.0),
        bad(ValueError, "lr", input_size=6, lr=-1.0),
    ),
    (
        lambda *args, **kwargs: SIMSIAM(input_size=6)(*args, **kwargs),
        bad(ValueError, "pred", zeros(2, 6), zeros(2, 6)),
        bad(ValueError, "pred", zeros(2, 1, 6), zeros(2, 2, 6)),
        bad(ValueError, "input_size", zeros(2, 1, 5), zeros(2, 1, 5)),
        bad(ValueError, "pred", zeros(1, 1, 6), zeros(1, 1, 6), training=True),
    ),
    (
        lambda *args: FAULTY(*args),
        bad(ValueError, "pred_net", zeros(2, 1, 6), zeros(2, 1, 6)),
    ),
)
def test_errors(row):
    row()
