"""What `FitModel` cannot use, and how it says so."""

import fit_examples as examples
import keras
import pytest
import tensorflow as tf

from tfrl import layers, losses, replay, training


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("q", examples.squares), TypeError, "`network` expected a Keras layer"),
        (
            (keras.layers.Dense(2), examples.squares),
            ValueError,
            "`network` expected a built one",
        ),
        ((examples.network(), 3), TypeError, "`loss_fn` expected a function"),
        (
            (examples.network(), keras.losses.MeanSquaredError()),
            TypeError,
            "`loss_fn` expected a function of the model and a batch .*`y_pred`; define",
        ),
        (
            (examples.network(), keras.losses.mean_squared_error),
            TypeError,
            "`loss_fn` expected a function of the model and a batch .*`y_pred`; define",
        ),
        (
            (examples.network(), examples.squares, 0.5),
            TypeError,
            "`target_updater` expected a TargetUpdater",
        ),
        (
            (examples.network(), examples.squares, None, "sum"),
            ValueError,
            "`reduction` expected one of",
        ),
    ],
    ids=[
        *["network", "unbuilt", "loss", "Keras loss", "Keras loss function"],
        *["updater", "reduction"],
    ],
)
def test_bad_arguments(arguments, error, match):
    with pytest.raises(error, match=f"`FitModel`: {match}"):
        training.FitModel(*arguments)


@pytest.mark.parametrize(
    ("loss_fn", "options", "error", "match"),
    [
        (lambda m, b: None, {}, TypeError, "expected to return a loss per element"),
        (lambda m, b: tf.ones([4], tf.int32), {}, TypeError, "expected floating"),
        (
            lambda m, b: (m(b["x"]) ** 2, {"loss": 1.0}),
            {},
            ValueError,
            "reports of other names than",
        ),
        (
            lambda m, b: (m(b["x"]) ** 2, {"name": "x"}),
            {},
            TypeError,
            "expected to report numbers",
        ),
        (
            examples.squares,
            {"metrics": {"error": "mae"}},
            ValueError,
            r"`metrics` expected names among .*\['errors'\]; got 'error'",
        ),
    ],
    ids=["nothing", "integers", "loss twice", "text", "unknown report"],
)
def test_bad_losses(loss_fn, options, error, match):
    model = training.FitModel(examples.network(), loss_fn)
    model.compile("sgd", **options)
    with pytest.raises(error, match=match):
        model.fit(examples.data(8, 4), verbose=0)


def test_bad_metrics():
    model = training.FitModel(examples.network(), examples.squares)
    with pytest.raises(TypeError, match="`metrics` expected a dict from names"):
        model.compile("sgd", metrics=["mae"])
    with pytest.raises(TypeError, match="`metrics` expected metrics for 'errors'"):
        model.compile("sgd", metrics={"errors": 3})


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


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"loss": "mse"}, "`loss` expected nothing, since `loss_fn` says"),
        ({"optimizer": None}, "`optimizer` expected a Keras optimizer .*; got None"),
        ({"weighted_metrics": ["mae"]}, "`weighted_metrics` expected nothing"),
        ({"loss_weights": [1.0]}, "`loss_weights` expected nothing"),
        (
            {"optimizer": {"actor": "adam", "critic": "sgd"}},
            r"`optimizer` expected one for all networks; got .*\['actor', 'critic'\]",
        ),
    ],
    ids=["loss", "no optimizer", "weighted metrics", "loss weights", "optimizers"],
)
def test_what_compile_does_not_take(options, match):
    model = training.FitModel(examples.network(), examples.squares)
    with pytest.raises(TypeError, match=f"`FitModel.compile`: {match}"):
        model.compile(**options)


@pytest.mark.parametrize(
    ("report", "metric", "match"),
    [
        (lambda x: x, "mae", "1 operand for the report 'x'; got 'mean_absolute_error'"),
        (lambda x: (x, x), keras.metrics.Sum("s"), "2 operands for .*'s', which takes"),
    ],
    ids=["two of one", "one of two"],
)
def test_metrics_of_other_operands(report, metric, match):
    def loss_fn(model, batch):
        errors = model(batch["x"])[:, :1]
        return errors[:, 0] ** 2, {"x": report(errors)}

    model = training.FitModel(examples.network(), loss_fn)
    model.compile("sgd", {"x": metric})
    with pytest.raises(ValueError, match=f"`metrics` expected a metric of {match}"):
        model.fit(examples.data(8, 4), verbose=0)


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


def test_an_empty_store_names_the_warm_up():
    model, store = examples.q_model(), examples.store()
    collect = training.Collect(examples.walks(), store, examples.acting(model))
    for callbacks in ([collect], None):
        with pytest.raises(ValueError, match=r"`FitModel.fit`: .*Collect\(warm_up_ste"):
            model.fit(
                replay.UniformReplay(store),
                steps_per_epoch=1,
                verbose=0,
                callbacks=callbacks,
            )


def test_an_empty_store_cannot_be_evaluated():
    model, store = examples.q_model(), examples.store()
    with pytest.raises(ValueError, match="`FitModel.evaluate`: .*nothing; add steps"):
        model.evaluate(replay.UniformReplay(store), steps=1)


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


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
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
