"""What `FitModel` cannot use, and how it says so."""

import fit_examples as examples
import keras
import pytest
import tensorflow as tf

from tfrl import replay, training


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
    ids=["network", "unbuilt", "loss", "updater", "reduction"],
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
