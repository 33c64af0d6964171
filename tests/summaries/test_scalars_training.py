"""Where training happens: the tags and values stay what they are outside."""

import event_files
import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrl
from tfrl.summaries import gradients, histograms, scalars

X = tf.constant([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
SPECS = {
    "c": tfrl.core.BoundedTensorSpec([2], tf.float32, -1.0, 1.0),
    "d": tfrl.core.BoundedTensorSpec([], tf.int32, 0, 3),
}


def record_all(x):
    labels = tf.cast(x[:, 1], tf.int32)
    info = tfrl.core.LossInfo(x[:, 0], {"entropy": x[0, 0], "batch_label": labels})
    policy = tfrl.distributions.DiagMultivariateNormal(x, tf.exp(x))
    scalars.add_mean_summary("mean", x)
    scalars.safe_mean_hist_summary("safe", x, x > 0)
    scalars.summarize_nest("nest", {"a": [x]})
    scalars.summarize_loss(info)
    scalars.summarize_per_category_loss(info, summarize_count=True)
    histograms.summarize_action({"c": x, "d": labels}, SPECS)
    histograms.summarize_distribution("policy", policy)
    gradients.summarize_variables([("w", x)])
    gradients.summarize_gradients([("w", x)])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = gradients.summarize_tensor_gradients("features", x)
        seen = gradients.summarize_distribution_gradient("policy", policy)
        loss = tf.reduce_sum(y**2) + tf.reduce_sum(seen.log_prob(2 * x))
        tape.gradient(loss, x)


class Recorder(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        record_all(x)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss}


def fit(copies=1, **options):
    model = Recorder()
    model.compile("sgd", jit_compile=False, **options)
    x = tf.repeat(X, copies, axis=0)
    model.fit(x, tf.ones([len(x), 1]), batch_size=len(x), verbose=0)


def on_replicas():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    strategy.run(tf.function(record_all), args=(X,))


def fit_on_replicas():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        fit(copies=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "train",
    [
        lambda: tf.function(record_all)(X),
        on_replicas,
        fit,
        lambda: fit(steps_per_execution=2),
        lambda: fit(run_eagerly=True),
        fit_on_replicas,
    ],
    ids=["graph", "replicas", "fit", "fit two steps", "fit eager", "fit replicas"],
)
def test_tags_and_values_are_the_same(train, tmp_path):
    with event_files.writing(tmp_path / "alone"):
        record_all(X)
    with event_files.writing(tmp_path / "trained"):
        train()
    wanted = event_files.last(tmp_path / "alone")
    found = event_files.last(tmp_path / "trained")
    assert set(found) == set(wanted)
    assert len(wanted) == 31
    for tag, value in wanted.items():
        np.testing.assert_allclose(found[tag], value, rtol=1e-5, err_msg=tag)
