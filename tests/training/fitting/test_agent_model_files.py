"""What `.keras` files keep of agents, and what they refuse to name."""

import functools
import zipfile

import default_rows
import fit_examples as examples
import keras
import numpy as np
import pytest
import tiny_agents

from tfrl import agents, layers, policies, training


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [examples.DQN, agents.PPO(minibatch_size=6), agents.BC()]
)
def test_keras_files(tmp_path, config):
    model = examples.model_of(config, steps_per_execution=3, seed=5)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert loaded.steps_per_execution == 3
    assert loaded.recipe.config == config
    examples.assert_same(examples.weights_of(loaded), examples.weights_of(model))
    x = np.ones([2, 3], np.float32)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model(x))


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        (agents.lion, "tfrl.agents:lion"),
        (functools.partial(agents.adamw, weight_decay=0.5), "tfrl.agents:adamw"),
        (keras.optimizers.SGD, "keras.optimizers:SGD"),
    ],
)
def test_a_file_names_optimizers_and_no_other_function(tmp_path, optimizer, name):
    model = examples.model_of(agents.BC(optimizer=optimizer))
    path = tmp_path / "model.keras"
    model.save(path)
    with zipfile.ZipFile(path) as file:
        assert name in file.read("config.json").decode()
    loaded = keras.saving.load_model(path)
    its, mine = loaded.recipe.config.optimizer, optimizer
    if isinstance(mine, functools.partial):
        assert its.keywords["weight_decay"] == 0.5
        its, mine = its.func, mine.func
    assert its is mine
    x = np.ones([2, 3], np.float32)
    np.testing.assert_array_equal(loaded(x), model(x))
    model = examples.model_of(agents.BC(optimizer=own_sgd))
    match = "got .*:own_sgd, and of functions .* optimizers alone; save the weights"
    with pytest.raises(ValueError, match=match):
        model.save(tmp_path / "own.keras")


def own_sgd(learning_rate):
    return agents.sgd(learning_rate)


def network_of(kind):
    if kind == "named":
        return examples.network(seed=4)
    if kind == "sequential":
        return keras.Sequential([keras.Input([3]), keras.layers.Dense(3)])
    inputs = keras.Input([3])
    if kind == "of layers of ours":
        hidden = layers.RunningNormalization()(Twice(4)(Twice(4)(inputs)))
        return keras.Model(inputs, policies.NoisyDense(3)(hidden))
    outputs = keras.layers.Dense(3)(keras.layers.Dense(4)(inputs))
    return keras.Model(inputs, outputs)


@keras.saving.register_keras_serializable(package="tfrl_tests")
class Twice(keras.layers.Layer):
    """Has a layer that was given no name."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units, self.dense = units, keras.layers.Dense(units)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return 2.0 * self.dense(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@pytest.mark.parametrize(
    "kind",
    ["of layers of ours", *default_rows.slow("named", "sequential", "functional")],
)
def test_files_with_a_network_of_ones_own(tmp_path, kind):
    model = examples.model_of(network=network_of(kind))
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "a.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    other = examples.model_of(network=network_of(kind), seed=2)
    other.load_weights(tmp_path / "a.weights.h5")
    x = np.ones([2, 3], np.float32)
    for each in (loaded, other):
        np.testing.assert_array_equal(each(x), model(x))


def test_what_cannot_be_made_again_is_refused_at_the_first_save(tmp_path):
    model = training.AgentModel(examples.DQN.create(*examples.spaces()))
    with pytest.raises(ValueError, match="`AgentModel.create`, or save the weights"):
        model.save(tmp_path / "model.keras")
    model = examples.model_of(network=lambda *_: examples.network())
    with pytest.raises(ValueError, match="`AgentModel`: `network` .* got a lambda"):
        model.save(tmp_path / "model.keras")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".h5", ".hdf5"])
def test_files_that_would_not_hold_all_are_refused(tmp_path, suffix):
    for model in (examples.model_of(), examples.fit_model()):
        message = f"^`{type(model).__name__}.save`: `filepath` expected .* in .keras"
        with pytest.raises(ValueError, match=message):
            model.save(tmp_path / f"model{suffix}")
    assert not list(tmp_path.iterdir())


def test_files_name_records_spaces_and_optimizers_alone():
    config = examples.model_of().get_config()
    text = config["recipe"]["kept"]
    assert "tfrl.agents:DQN" in text
    config["recipe"]["kept"] = text.replace("tfrl.agents:DQN", "os:system")
    with pytest.raises(ValueError, match="optimizers alone; got 'os:system'"):
        training.AgentModel.from_config(config)


def test_files_keep_the_dtype_policy(tmp_path):
    path, x = tmp_path / "model.keras", np.linspace(-1.0, 1.0, 60).reshape(20, 3)
    before = keras.config.dtype_policy()
    for made, other in (("mixed_bfloat16", "float32"), ("float32", "mixed_float16")):
        try:
            keras.config.set_dtype_policy(made)
            model = examples.model_of(seed=1)
            keras.config.set_dtype_policy(other)
            model.save(path)
            loaded = keras.saving.load_model(path)
            assert keras.config.dtype_policy().name == other
        finally:
            keras.config.set_dtype_policy(before)
        expected = model.predict(x, verbose=0)
        np.testing.assert_array_equal(loaded.predict(x, verbose=0), expected)


def test_files_of_old_keep_no_dtype_policy():
    config = examples.model_of(tiny_agents.Tiny()).get_config()
    del config["recipe"]["dtype_policy"]
    loaded = training.AgentModel.from_config(config)
    assert loaded.recipe.dtype_policy == keras.config.dtype_policy()
