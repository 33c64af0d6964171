"""A `FitModel` comes back whole from where Keras saves it."""

import json

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import layers, schedules, training

ROWS = examples.rows(8)


def as_text(model):
    return json.dumps(model.get_config(), sort_keys=True)


def trained(model):
    store = examples.filled_store(model)
    model.fit(examples.sample_data(store), epochs=3, verbose=0)
    return store


def assert_same_future(one, two, store):
    """The same weights now, and after more steps of training."""
    for _ in range(2):
        examples.assert_same(one.get_weights(), two.get_weights())
        for model in (one, two):
            model.fit(examples.sample_data(store), epochs=3, verbose=0)
    examples.assert_same(one.get_weights(), two.get_weights())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_whole_model_with_its_target(tmp_path):
    model = examples.q_model(steps_per_execution=2)
    store = trained(model)
    model.env_steps.assign(123)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert as_text(loaded) == as_text(model)
    assert (int(loaded.env_steps), loaded.steps_per_execution) == (123, 2)
    assert loaded.target_updater.period == 2
    assert int(loaded.optimizer.iterations) == 3
    # After three steps with a period of two: the count goes on, too.
    assert_same_future(model, loaded, store)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_weights_alone(tmp_path):
    model, other = examples.q_model(), examples.q_model()
    store = trained(model)
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same_future(model, other, store)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_compilation_with_metrics(tmp_path):
    model = examples.fit_model(
        metrics={"errors": [keras.metrics.Sum("total"), keras.metrics.Mean("mean")]}
    )
    model.fit(examples.data(8, 4), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    history = loaded.fit(examples.data(8, 4), verbose=0).history
    assert set(history) == {"loss", "total", "mean"}
    np.testing.assert_allclose(history["total"][0], 8 * history["mean"][0], rtol=1e-5)


def test_predict_and_export_are_those_of_the_network(tmp_path):
    model = examples.fit_model()
    right = model.network(ROWS["x"])
    np.testing.assert_allclose(model.predict(ROWS["x"], verbose=0), right, rtol=1e-5)
    model.export(str(tmp_path), verbose=False)
    served = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(served.serve(ROWS["x"]), right, rtol=1e-5)


def test_config_of_networks_by_name():
    networks = {"actor": examples.network(), "critic": examples.network()}
    model = training.FitModel(
        networks, examples.squares, reduction="mean_with_sample_weight"
    )
    again = training.FitModel.from_config(model.get_config())
    assert as_text(again) == as_text(model)
    assert sorted(again.network) == ["actor", "critic"]


def test_a_schedule_of_tau_comes_back():
    tau = schedules.LinearScheduler("iterations", [(0, 1.0), (10, 0.1)])
    network = examples.network()
    updater = layers.TargetUpdater(network, examples.network(), tau)
    model = training.FitModel(network, examples.q_loss, updater)
    again = training.FitModel.from_config(model.get_config())
    assert again.target_updater.tau == tau


def test_an_updater_of_a_part_has_no_config():
    networks = {"a": examples.network(), "b": examples.network()}
    part = layers.TargetUpdater({"a": networks["a"]}, {"a": examples.network()})
    model = training.FitModel(networks, examples.q_loss, part)
    with pytest.raises(ValueError, match="`target_updater` expected to be of the netw"):
        model.get_config()


def unregistered(model, batch):
    return examples.squares(model, batch)


def closure():
    def loss_fn(model, batch):
        return examples.squares(model, batch)

    return loss_fn


class Unregistered(keras.layers.Dense):
    pass


def around(layer):
    return keras.Sequential([keras.Input([3]), layer, keras.layers.Dense(3)])


class Slower(keras.optimizers.SGD):
    pass


class Average(keras.metrics.Mean):
    pass


CANNOT = {
    "function": ({"loss_fn": unregistered}, "`loss_fn` .*the function 'unregistered'"),
    "closure": ({"loss_fn": closure()}, "`loss_fn` .*the function 'loss_fn'"),
    "lambda": (
        {"loss_fn": lambda m, b: examples.squares(m, b)},
        "`loss_fn` .*a lambda",
    ),
    "layer": ({"network": around(Unregistered(3))}, "`network` .*'Unregistered' of"),
    "optimizer": ({"optimizer": Slower(0.1)}, "`optimizer` .*'Slower' of"),
    "metric": ({"metrics": {"errors": Average("x")}}, "`metrics` .*'Average' of"),
}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("kind", CANNOT)
def test_what_could_not_be_loaded_is_refused_at_the_first_save(tmp_path, kind):
    options, message = CANNOT[kind]
    given = {"network": examples.network(), "loss_fn": examples.squares, **options}
    model = training.FitModel(given["network"], given["loss_fn"])
    model.compile(options.get("optimizer", "sgd"), options.get("metrics"))
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras")
    with pytest.raises(ValueError, match=f"`FitModel`: {message}.* decorate it"):
        model.fit(examples.data(8, 4), epochs=3, verbose=0, callbacks=[checkpoint])
    assert int(model.optimizer.iterations) == 2
    model.save_weights(tmp_path / "model.weights.h5")


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_scope_of_custom_objects_is_as_good(tmp_path):
    model = examples.fit_model(unregistered)
    with keras.saving.custom_object_scope({"unregistered": unregistered}):
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss_fn is unregistered
