"""What `FitModel` cannot use, and how it says so."""

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents, layers, losses, replay, training


@pytest.mark.parametrize(
    ("error", "name", "network", "others"),
    [
        (TypeError, "network", "q", ()),
        (ValueError, "network", keras.layers.Dense(2), ()),
        (TypeError, "loss_fn", None, (3,)),
        (TypeError, "loss_fn", None, (keras.losses.MeanSquaredError(),)),
        (TypeError, "loss_fn", None, (keras.losses.mean_squared_error,)),
        (TypeError, "target_updater", None, (examples.squares, 0.5)),
        (ValueError, "reduction", None, (examples.squares, None, "sum")),
    ],
)
def test_bad_arguments(error, name, network, others):
    network = examples.network() if network is None else network
    with pytest.raises(error, match=f"`FitModel`: `{name}` expected"):
        training.FitModel(network, *(others or [examples.squares]))


@pytest.mark.parametrize("made", [examples.fit_model, examples.model_of])
@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("steps_per_epoch", 0, ValueError),
        ("steps_per_epoch", 1.5, TypeError),
        ("steps_per_epoch", "3", TypeError),
        ("epochs", -1, ValueError),
        ("epochs", True, TypeError),
        ("initial_epoch", 0.5, TypeError),
        ("batch_size", 0, ValueError),
        ("validation_freq", 0, ValueError),
    ],
)
def test_counts_of_fit_are_counts(made, name, value, error):
    model = made()
    match = f"`{type(model).__name__}.fit`: `{name}` expected an int of at least"
    with pytest.raises(error, match=match):
        model.fit(examples.data(8, 4), verbose=0, **{name: value})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras' `quantize`
def test_what_is_quantized_cannot_be_trained():
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(3, name="whole")])
    network.layers[0].quantize("int8")
    with pytest.raises(ValueError, match="`FitModel`: `network` .* layers, .'whole'."):
        training.FitModel(network, examples.squares)
    match = "`TrainState.create`: `model_def` .* can be trained; .*'whole'"
    with pytest.raises(ValueError, match=match):
        agents.TrainState.create(network, tx=agents.sgd(0.1))
    rows = np.ones([1, 3], np.float32)
    assert agents.TrainState.create(network)(rows).shape == (1, 3)


@pytest.mark.parametrize(
    ("error", "told", "match"),
    [
        (TypeError, lambda x: None, "to return a loss per element"),
        (TypeError, lambda x: tf.ones([4], tf.int32), "expected floating"),
        (ValueError, lambda x: (x, {"loss": 1.0}), "reports of other names than"),
        (TypeError, lambda x: (x, {"name": "x"}), "expected to report numbers"),
    ],
    ids=["nothing", "integers", "loss twice", "text"],
)
def test_bad_losses(error, told, match):
    model = examples.fit_model(lambda model, batch: told(model(batch["x"]) ** 2))
    with pytest.raises(error, match=match):
        model.fit(examples.data(8, 4), verbose=0)


@pytest.mark.parametrize(
    ("error", "metrics", "match"),
    [
        (TypeError, ["mae"], "`metrics` expected a dict"),
        (TypeError, {"errors": 3}, "`metrics` expected metrics for 'errors'"),
        (ValueError, {"error": "mae"}, r"among .*\['errors', 'pair'\]; got 'error'"),
        (ValueError, {"pair": keras.metrics.Sum("s")}, "2 operands for .*got 's'"),
        (ValueError, {"errors": "mae"}, "1 operand for the report 'errors'; got 'mean"),
    ],
    ids=["list", "number", "unknown", "two of one", "one of two"],
)
def test_bad_metrics(error, metrics, match):
    def loss_fn(model, batch):
        loss, reports = examples.squares(model, batch)
        errors = reports["errors"]
        return loss, {"errors": errors, "pair": (errors, errors)}

    with pytest.raises(error, match=match):
        examples.fit_model(loss_fn, metrics=metrics).fit(examples.data(8, 4), verbose=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loss", "mse"),
        ("optimizer", None),
        ("optimizer", {"actor": "adam", "critic": "sgd"}),
        ("weighted_metrics", ["mae"]),
        ("loss_weights", [1.0]),
    ],
)
def test_what_compile_does_not_take(name, value):
    model = training.FitModel(examples.network(), examples.squares)
    with pytest.raises(TypeError, match=f"`FitModel.compile`: `{name}` expected"):
        model.compile(**{name: value})


def test_a_replay_has_no_end():
    store = examples.store()
    model = examples.q_model()
    with pytest.raises(ValueError, match="`steps_per_epoch` expected a number"):
        model.fit(replay.UniformReplay(store))
    with pytest.raises(ValueError, match="`steps` expected a number"):
        model.evaluate(replay.UniformReplay(store))


def test_a_prioritized_replay_wants_priorities():
    model = training.FitModel(
        examples.network(), lambda model, s: model(s.data.observations)[:, 0] ** 2
    )
    model.compile("sgd")
    store = examples.filled_store(model)
    with pytest.raises(ValueError, match="`loss_fn` expected to report `priorities`"):
        model.fit(replay.PrioritizedReplay(store), steps_per_epoch=1, verbose=0)
    model.fit(replay.UniformReplay(store), steps_per_epoch=1, verbose=0)


class Subclassed(keras.Model):
    def __init__(self, parts=1):
        super().__init__()
        self.first, self.last = (keras.layers.Dense(3) for _ in range(2))
        if parts == 0:
            self.first.build([None, 3])

    def call(self, inputs):
        return self.last(self.first(inputs))


@pytest.mark.filterwarnings("ignore:`build:UserWarning")
def test_models_that_are_built_without_weights():
    network = Subclassed()
    network.build((None, 3))
    assert network.built and not network.weights
    with pytest.raises(ValueError, match="with weights; .*call it once on a batch"):
        training.FitModel(network, examples.squares)
    with pytest.raises(
        ValueError, match="without its weights; call it once on a batch"
    ):
        layers.TargetUpdater(network, Subclassed())
    network(tf.ones([1, 3]))
    training.FitModel(network, examples.squares)


@pytest.mark.filterwarnings("ignore:`build:UserWarning")
def test_models_that_are_built_in_part():
    network = Subclassed(parts=0)
    network.build((None, 3))
    model = training.FitModel(network, examples.squares)
    model.compile("sgd")
    with pytest.raises(ValueError, match="has all its weights; .*call it once on a ba"):
        model.fit(examples.data(8, 4), verbose=0)


def test_an_empty_store():
    model, store = examples.q_model(), examples.store()
    drawn, collect = replay.UniformReplay(store), examples.acting(model)
    collect = training.Collect(examples.walks(), store, collect)
    for callbacks in ([collect], None):
        with pytest.raises(ValueError, match=r"`FitModel.fit`: .*Collect\(warm_up_ste"):
            model.fit(drawn, steps_per_epoch=1, verbose=0, callbacks=callbacks)
    with pytest.raises(ValueError, match="`FitModel.evaluate`: .*nothing; add steps"):
        model.evaluate(drawn, steps=1)


def test_the_shape_of_actions():
    model, store = examples.q_model(), examples.store()
    collect = training.Collect(examples.walks(), store, model.network, 1, 30)
    message = r"`policy` expected to return actions of shape \[3\] .*\[3, 3\]"
    with pytest.raises(ValueError, match=f"`Collector.collect`: {message}"):
        collect.before_fit(model)
    two = examples.acting(model, lambda q, _: q.argmax(-1)[:2])
    message = r"`evaluate`: `policy` .* of shape \[3\] .*; got \[2\]"
    with pytest.raises(ValueError, match=message):
        model.fit(
            examples.sample_data(examples.filled_store(model)),
            callbacks=[training.Evaluate(examples.walks(), two)],
            verbose=0,
        )


def test_an_updater_of_other_models():
    one, other = examples.network(), examples.network()
    updater = layers.TargetUpdater(other, examples.network())
    with pytest.raises(ValueError, match="`target_updater` expected one of models in"):
        training.FitModel(one, examples.squares, updater)
    training.FitModel({"a": one, "b": other}, examples.squares, updater)
    with pytest.raises(ValueError, match="`steps_per_execution` expected"):
        training.FitModel(one, examples.squares).compile(steps_per_execution=0)


@pytest.mark.parametrize(
    "policy",
    ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)],
)
def test_mixed_precision_wants_a_head_of_float32(policy):
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(3, dtype=policy)])

    def loss_fn(model, batch):
        rewards = batch["y"]
        values = model.network(batch["x"])[:, 0]
        return losses.td_loss(
            values,
            losses.q_learning_target(
                rewards, tf.ones_like(rewards), model.network(batch["x"])
            ),
        )

    model = training.FitModel(network, loss_fn)
    model.compile("sgd")
    message = f"float32 layer, such as Dense.*, under {policy}; got outputs of"
    with pytest.raises(TypeError, match=f"`FitModel`: `network` .*{message}"):
        model.fit(examples.data(8, 4), verbose=0)
