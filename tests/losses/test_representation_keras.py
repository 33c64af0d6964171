"""Tests of `tfrl.losses.representation` as a part of Keras models and strategies."""

import event_files
import keras
import numpy as np
import pytest
import tensorflow as tf
from default_rows import slow

from tfrl import losses

GENERATOR = np.random.default_rng(0)
SMALL = {
    "input_size": 6,
    "proj_hidden_size": 5,
    "pred_hidden_size": 4,
    "output_size": 3,
}


def batch(*shape):
    return tf.constant(GENERATOR.normal(size=shape), tf.float32)


class Siamese(keras.Model):
    """Learns to encode two views alike, through `add_loss`."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.layers.Dense(6)
        self.loss_fn = losses.AsymmetricSimSiamLoss(**SMALL)

    def call(self, views, training=None):
        codes = [self.encoder(view) for view in views]
        self.add_loss(tf.reduce_mean(self.loss_fn(*codes, training=training)))
        return codes[0]


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_fit_through_add_loss(jit_compile):
    model = Siamese()
    views = (batch(16, 2, 4), batch(16, 2, 4))
    model.compile(keras.optimizers.SGD(0.1), jit_compile=jit_compile)
    history = model.fit(views, batch_size=8, epochs=12, verbose=0).history["loss"]
    assert history[-1] < history[0] - 0.1
    assert len(model.trainable_variables) == 15
    moving = model.loss_fn.proj_net.layers[1].moving_mean
    assert np.abs(moving).max() > 0


@pytest.mark.parametrize("networks", ["default", "given"])
def test_config_round_trip(networks):
    given = {"proj_net": keras.layers.Dense(3), "pred_net": keras.layers.Dense(3)}
    loss_fn = losses.AsymmetricSimSiamLoss(
        **(given if networks == "given" else {}),
        **SMALL,
        proj_last_use_bn=True,
        eps=1e-3,
        fixed_weight_norm=True,
        lr=0.5,
        debug_summaries=False,
        name="siamese",
        seed=7,
        dtype="float64",
    )
    config = keras.saving.serialize_keras_object(loss_fn)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == loss_fn.get_config()
    assert (again.name, again.eps, again.lr) == ("siamese", 1e-3, 0.5)
    assert (again.dtype, again.debug_summaries) == ("float64", False)
    pairs = batch(2, 2, 6), batch(2, 2, 6)
    assert again(*pairs).shape == loss_fn(*pairs).shape
    shapes = [tuple(variable.shape) for variable in loss_fn.variables]
    assert shapes == [tuple(variable.shape) for variable in again.variables]
    assert len(shapes) == (4 if networks == "given" else 22)


@pytest.mark.slow
def test_in_a_strategy():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        loss_fn = losses.AsymmetricSimSiamLoss(**SMALL)
    pred, target = batch(8, 2, 6), batch(8, 2, 6)

    def replica():
        start = 4 * tf.distribute.get_replica_context().replica_id_in_sync_group
        pair = [x[start : start + 4] for x in (pred, target)]
        with tf.GradientTape() as tape:
            loss = loss_fn(*pair, training=True)
        return loss, tape.gradient(loss, loss_fn.trainable_variables)

    found, gradients = tf.function(lambda: strategy.run(replica))()
    found = strategy.experimental_local_results(found)
    assert [loss.shape for loss in found] == [(4, 2), (4, 2)]
    for gradient in gradients:
        for part in strategy.experimental_local_results(gradient):
            assert np.isfinite(part).all()
    # As with Keras' own layer, each replica has running statistics of its own.
    norms = strategy.experimental_local_results(
        loss_fn.proj_net.layers[1].moving_variance.value
    )
    for start, loss, norm in zip((0, 4), found, norms, strict=True):
        alone = losses.AsymmetricSimSiamLoss(**SMALL)
        pair = pred[start : start + 4], target[start : start + 4]
        np.testing.assert_allclose(
            loss, alone(*pair, training=True), rtol=1e-4, atol=1e-5
        )
        expected = alone.proj_net.layers[1].moving_variance
        np.testing.assert_allclose(norm, expected.numpy(), rtol=1e-4)


def test_unknown_batch_and_time():
    loss_fn = losses.AsymmetricSimSiamLoss(**SMALL)
    spec = tf.TensorSpec([None, None, 2, 3])
    run = tf.function(
        lambda pred, target: loss_fn(pred, target, training=True),
        input_signature=[spec, spec],
    )
    assert run(batch(4, 3, 2, 3), batch(4, 3, 2, 3)).shape == (4, 3)
    assert run(batch(1, 2, 2, 3), batch(1, 2, 2, 3)).shape == (1, 2)


def test_debug_summaries(tmp_path):
    def identity_loss(**kwargs):
        nets = keras.layers.Identity(), keras.layers.Identity()
        return losses.AsymmetricSimSiamLoss(*nets, **kwargs)

    pred = tf.constant([[[1.0, 0.0], [0.0, 1.0]]])
    target = tf.constant([[[1.0, 0.0], [1.0, 0.0]]])
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        identity_loss()(pred, target)  # no step: nothing to write at
    with writer.as_default(step=1):
        identity_loss(debug_summaries=False, name="quiet")(pred, target)
        identity_loss()(pred, target)
    writer.close()
    assert event_files.last(tmp_path) == {
        "SimSiamLoss/loss": 0.5,
        "SimSiamLoss/prediction_std": 0.5,
        "SimSiamLoss/target_std": 0.0,
    }
