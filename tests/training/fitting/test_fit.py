"""`FitModel` computes what its loss says, and is a Keras model in all else."""

import default_rows
import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import core, layers, losses, replay, schedules, training

ROWS = examples.rows(8)


def slow_gradients(model, rows, weights):
    """Gradients of the weighted mean, and that mean."""
    with tf.GradientTape() as tape:
        errors = rows["y"] - model.network(rows["x"])[:, 0]
        loss = tf.reduce_mean(weights * errors**2)
    return tape.gradient(loss, model.trainable_variables), loss


@pytest.mark.parametrize(
    "options",
    [
        {"run_eagerly": False},
        {"run_eagerly": True},
        *default_rows.slow({"jit_compile": True}, {"steps_per_execution": 2}),
    ],
    ids=["graph", "eager", "xla", "two steps"],
)
def test_steps_are_those_of_the_mean_loss(options):
    model, right = examples.fit_model(**options), examples.fit_model()
    history = model.fit(examples.data(8, 4), epochs=2, verbose=0, shuffle=False).history
    means = []
    for _ in range(2):
        epoch = []
        for batch in examples.data(8, 4):
            gradients, loss = slow_gradients(right, batch, tf.ones([4]))
            right.optimizer.apply(gradients, right.trainable_variables)
            epoch.append(loss)
        means.append(np.mean(epoch))
    for got, wanted in zip(model.get_weights(), right.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(history["loss"], means, rtol=1e-5)
    assert set(history) == {"loss", "errors"}


def test_logs_are_means_over_the_epoch_not_of_the_last_batch():
    model = examples.fit_model(optimizer=keras.optimizers.SGD(0.0))
    # Batches of 3, 3 and 2.
    history = model.fit(examples.data(8, 3), verbose=0).history
    errors = ROWS["y"] - model.predict(ROWS["x"], verbose=0)[:, 0]
    np.testing.assert_allclose(history["loss"], [np.mean(errors**2)], rtol=1e-5)
    np.testing.assert_allclose(history["errors"], [np.mean(errors)], rtol=1e-5)
    again = model.fit(examples.data(8, 3), epochs=2, verbose=0).history
    np.testing.assert_allclose(again["errors"], history["errors"] * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "reduction", ["sum_over_batch_size", "mean_with_sample_weight"]
)
def test_sample_weights(reduction):
    weights = np.array([0.0, 2.0, 1.0, 0.0, 0.5, 3.0, 0.0, 1.0], np.float32)

    def loss_fn(model, batch):
        x, y = batch
        errors = y - model(x)[:, 0]
        return errors**2, (errors,)

    model = examples.fit_model(loss_fn, reduction=reduction)
    before = model.get_weights()
    history = model.fit(
        ROWS["x"], ROWS["y"], batch_size=8, sample_weight=weights, verbose=0
    ).history
    right = examples.fit_model()
    right.set_weights(before)
    errors = ROWS["y"] - right.predict(ROWS["x"], verbose=0)[:, 0]
    scale = 1.0 if reduction == "sum_over_batch_size" else 8 / weights.sum()
    gradients, loss = slow_gradients(right, ROWS, weights * scale)
    right.optimizer.apply(gradients, right.trainable_variables)
    for got, wanted in zip(model.get_weights(), right.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(history["loss"], [loss], rtol=1e-5)
    weighted = np.average(errors, weights=weights)
    np.testing.assert_allclose(history["0"], [weighted], rtol=1e-5)


def test_validation_has_reports_of_its_own():
    def loss_fn(model, batch, training):
        losses, extra = examples.squares(model, batch)
        return losses, extra if training else {"held_out": extra["errors"]}

    model = examples.fit_model(loss_fn)
    history = model.fit(
        examples.data(8, 4), epochs=2, verbose=0, validation_data=examples.data(4, 2, 1)
    ).history
    assert set(history) == {"loss", "errors", "val_loss", "val_held_out"}
    held = examples.rows(4, 1)
    errors = held["y"] - model.predict(held["x"], verbose=0)[:, 0]
    np.testing.assert_allclose(history["val_held_out"][-1], errors.mean(), rtol=1e-5)
    assert history["errors"][0] != 0.0
    logs = model.evaluate(examples.data(4, 2, 1), return_dict=True, verbose=0)
    np.testing.assert_allclose(logs["loss"], np.mean(errors**2), rtol=1e-5)


def test_metrics_of_reports():
    def loss_fn(model, batch):
        values = model.network(batch["x"])[:, :1]
        return (values[:, 0] - batch["y"]) ** 2, {
            "value": (batch["y"][:, None], values),
            "size": values,
        }

    model = examples.fit_model(
        loss_fn,
        metrics={
            "value": [keras.metrics.R2Score(), "mae"],
            "size": keras.metrics.Sum("size_sum"),
        },
        optimizer=keras.optimizers.SGD(0.0),
    )
    history = model.fit(examples.data(8, 4), verbose=0).history
    assert set(history) == {"loss", "r2_score", "mean_absolute_error", "size_sum"}
    values = model.predict(ROWS["x"], verbose=0)[:, 0]
    residual = np.sum((ROWS["y"] - values) ** 2)
    spread = np.sum((ROWS["y"] - ROWS["y"].mean()) ** 2)
    np.testing.assert_allclose(history["r2_score"], [1 - residual / spread], rtol=1e-4)
    np.testing.assert_allclose(history["size_sum"], [values.sum()], rtol=1e-4)


@pytest.mark.parametrize("validate_first", [False, True])
def test_asked_metrics_of_training_and_validation_are_apart(validate_first):
    def loss_fn(model, batch):
        loss, _ = examples.squares(model, batch)
        return loss, {"one": loss, "pair": (loss[:, None], loss[:, None] * 0.0)}

    wanted = {"one": keras.metrics.Mean("one"), "pair": "mae"}
    model = examples.fit_model(loss_fn, metrics=wanted)
    data, other = examples.data(8, 4), examples.data(6, 3, 1)
    if validate_first:
        model.evaluate(other, verbose=0)
    logs = model.fit(data, validation_data=other, epochs=2, verbose=0).history
    for front in ("", "val_"):
        for name in ("one", "mean_absolute_error"):
            found = logs[front + name], logs[f"{front}loss"]
            np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.parametrize("metrics", [None, {"errors": keras.metrics.Mean("errors")}])
def test_a_batch_by_itself_tells_what_the_loss_reports(metrics):
    model = examples.fit_model(metrics=metrics)
    batch = examples.rows(4)
    for _ in range(2):
        loss, told = examples.squares(model, batch)
        wanted = {"loss": np.mean(loss), "errors": np.mean(told["errors"])}
        for step in (model.test_on_batch, model.train_on_batch):
            model_logs = step(batch, return_dict=True)
            assert set(model_logs) == set(wanted)
            for name, value in wanted.items():
                np.testing.assert_allclose(model_logs[name], value, rtol=1e-5)
        listed = model.test_on_batch(batch)
        held = model.evaluate(tf.data.Dataset.from_tensors(batch), verbose=0)
        np.testing.assert_allclose(listed, held, rtol=1e-5)
        assert len(listed) == 2
        model.fit(examples.data(8, 4), verbose=0)


def test_a_frozen_network_is_warned_of():
    model = examples.fit_model()
    model.network.trainable = False
    before = model.get_weights()
    message = "^The model does not have any trainable weights.$"
    with pytest.warns(UserWarning, match=message):
        history = model.fit(examples.data(8, 8), verbose=0).history
    examples.assert_same(before, model.get_weights())
    errors = ROWS["y"] - model.predict(ROWS["x"], verbose=0)[:, 0]
    np.testing.assert_allclose(history["loss"], [np.mean(errors**2)], rtol=1e-5)


def test_reports_of_loss_info_and_scalars():
    def loss_fn(model, batch):
        info = losses.td_loss(model.network(batch["x"])[:, 0], batch["y"])
        return core.LossInfo(info.loss, {"td": info.extra, "constant": 3, "none": None})

    history = examples.fit_model(loss_fn).fit(examples.data(8, 3), verbose=0).history
    assert set(history) == {"loss", "td_errors", "td_priorities", "constant"}
    assert history["constant"] == [3.0]


def test_regularization():
    plain = examples.network()
    ridge = examples.network(kernel_regularizer=keras.regularizers.L2(0.5))
    found = {}
    for name, network in (("plain", plain), ("ridge", ridge)):
        model = training.FitModel(network, examples.squares)
        model.compile(keras.optimizers.SGD(0.0))
        found[name] = model.fit(examples.data(8, 4), verbose=0).history["loss"][0]
    penalty = 0.5 * np.sum(ridge.get_weights()[0] ** 2)
    np.testing.assert_allclose(found["ridge"] - found["plain"], penalty, rtol=1e-4)


@pytest.mark.parametrize(
    "jit_compile",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["graph", "xla"],
)
def test_target_is_updated_at_every_step_and_gets_no_gradient(jit_compile):
    model = examples.q_model(steps_per_execution=3, jit_compile=jit_compile)
    assert model.target_network.trainable_variables == []
    store = examples.filled_store(model)
    source = replay.UniformReplay(store, seed=0)
    start = [w.numpy() for w in model.target_network.weights]
    examples.assert_same(start, [w.numpy() for w in model.network.weights])
    model.fit(source, steps_per_epoch=6, verbose=0)
    # By hand, step by step.
    right = examples.q_model()
    source = replay.UniformReplay(store, seed=0)
    for _ in range(6):
        right.train_on_batch(source.sample(32))
    for got, wanted in zip(model.get_weights(), right.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    moved = model.target_network.weights[0].numpy() - start[0]
    assert np.abs(moved).max() > 1e-3


def test_networks_by_name():
    networks = {"actor": examples.network(), "critic": examples.network(seed=3)}

    def loss_fn(model, batch):
        error = model.network["critic"](batch["x"])[:, 0] - batch["y"]
        return error**2 + model.network["actor"](batch["x"])[:, 0] ** 2

    model = training.FitModel(networks, loss_fn)
    model.compile("sgd")
    before = model.get_weights()
    model.fit(examples.data(8, 4), verbose=0)
    assert len(before) == 8
    assert all((a != b).any() for a, b in zip(before, model.get_weights(), strict=True))
    with pytest.raises(
        ValueError, match="`network` expected a single one to be called"
    ):
        model.predict(ROWS["x"], verbose=0)


@pytest.mark.slow
def test_mixed_precision_scales_the_loss():
    model = training.FitModel(
        examples.network(dtype="mixed_float16"), examples.squares, dtype="mixed_float16"
    )
    model.compile(keras.optimizers.SGD(0.05))
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    history = model.fit(examples.data(8, 4), epochs=20, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    # The scale is no part of the logs.
    assert history["loss"][0] < 100


def test_gradients_accumulate():
    model = examples.fit_model(
        optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    )
    right = examples.fit_model()
    model.fit(examples.data(8, 4), verbose=0)
    gradients, _ = slow_gradients(right, ROWS, tf.ones([8]))
    right.optimizer.apply(gradients, right.trainable_variables)
    for got, wanted in zip(model.get_weights(), right.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_schedules_follow_the_steps():
    percent = schedules.LinearScheduler("percent", [(0.0, 0.0), (1.0, 8.0)])
    iterations = schedules.LinearScheduler("iterations", [(0, 0.0), (100, 100.0)])

    def loss_fn(model, batch):
        loss, _ = examples.squares(model, batch)
        return loss, {"percent": percent(), "iterations": iterations()}

    model = examples.fit_model(loss_fn, steps_per_execution=2)
    for epochs in (2, 2):
        history = model.fit(examples.data(8, 2), epochs=epochs, verbose=0).history
        assert history["percent"] == [1.5, 5.5]
    assert history["iterations"] == [9.5, 13.5]
    assert model.progress().iterations == 16
    assert model.progress().percent == 1.0


@pytest.mark.parametrize("scaled", [False, True])
def test_percent_counts_batches_whose_gradients_are_gathered(scaled):
    model = examples.fit_model()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, run_eagerly=True)
    model.fit(examples.data(8, 2), verbose=0)
    assert model.progress().percent == 1.0
    assert model.progress().iterations == 2
    seen = []
    told = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda *_, **__: seen.append(model.progress().percent)
    )
    model.fit(examples.data(8, 2), epochs=2, callbacks=[told], verbose=0)
    assert seen == [0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0]


class Spy(replay.PrioritizedReplay):
    """Writes down whose priorities it is told."""

    def update_priorities(self, indices, priorities):
        self.__dict__.setdefault("told", []).append((indices, priorities))
        super().update_priorities(indices, priorities)


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_prioritized_replay_learns_its_priorities(steps_per_execution):
    options = {"steps_per_execution": steps_per_execution}
    model, again = examples.q_model(**options), examples.q_model()
    store = examples.filled_store(model)
    source, right = Spy(store, seed=0), replay.PrioritizedReplay(store, seed=0)
    model.fit(source, batch_size=8, steps_per_epoch=4, epochs=2, verbose=0)
    told = []
    for _ in range(8 // steps_per_execution):
        samples = [right.sample(8) for _ in range(steps_per_execution)]
        for sample in samples:
            info = examples.q_loss(again, sample)
            told.append((sample.indices, info.extra.priorities.numpy()))
            again.train_on_batch(sample)
        for update in told[-steps_per_execution:]:
            right.update_priorities(*update)
    for got, wanted in zip(
        zip(*source.told, strict=True), zip(*told, strict=True), strict=True
    ):
        np.testing.assert_allclose(
            np.concatenate(got), np.concatenate(wanted), rtol=1e-4
        )
    # The model can go on with data of another kind.
    model.fit(examples.sample_data(store), verbose=0)


def test_layers_keep_what_they_learn_of_batches():
    normalized = keras.Sequential(
        [keras.Input([3]), layers.RunningNormalization(speed=1.0), examples.network()]
    )

    def loss_fn(model, batch, training):
        return (model.network(batch["x"], training=training)[:, 0] - batch["y"]) ** 2

    model = training.FitModel(normalized, loss_fn)
    model.compile("sgd")
    model.fit(examples.data(8, 4), verbose=0, validation_data=examples.data(8, 4))
    mean = normalized.layers[0].weights[2].numpy()
    np.testing.assert_allclose(mean, ROWS["x"].mean(0), rtol=1e-5)


def sources(tensor):
    """What a tensor is made of, as TensorFlow's optimizer sees it."""
    same = tensor.op.type == "IdentityN"
    return [tensor.op.inputs[tensor.value_index].op if same else tensor.op]


def test_no_weight_changes_before_all_gradients_are_there():
    model = training.FitModel(examples.network(), examples.squares)
    model.compile("sgd")
    batch = {"x": tf.ones([6, 3]), "y": tf.ones([6])}
    graph = tf.function(model.train_step).get_concrete_function(batch).graph
    products = [op for op in graph.get_operations() if op.type == "MatMul"]
    updates = [op for op in graph.get_operations() if op.type == "AssignSubVariableOp"]
    # Of two layers: forward both, backward to the input of the second and to kernels.
    assert (len(products), len(updates)) == (5, 4)
    for update in updates:
        before, found = [update], set()
        while before:
            op = before.pop()
            if op.name not in found:
                found.add(op.name)
                before += op.control_inputs
                before += [source for x in op.inputs for source in sources(x)]
        assert {op.name for op in products} <= found


def test_weights_that_keras_would_drop_are_refused():
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    model = training.FitModel(network, lambda model, x: model(x)[:, 0])
    model.compile("sgd")
    x, zeros = np.ones([8, 3], np.float32), np.zeros(8)
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="`sample_weight` expected None without"):
            call(x, sample_weight=zeros, verbose=0)
