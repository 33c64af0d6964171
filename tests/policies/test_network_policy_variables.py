"""Variables that the call of a network of one's own writes to, in inference too."""

import foreign_layers
import gymnasium as gym
import keras
import numpy as np
import pytest

from tfrl import layers
from tfrl.agents import train_state
from tfrl.agents.off_policy import sac
from tfrl.policies import action_value

S, L = gym.spaces, keras.layers
BOX = S.Box(-1.0, 1.0, (3,))
SEEN = np.linspace(-1.0, 1.0, 15, dtype=np.float32).reshape(5, 3)


def values_policy(network):
    return action_value.ActionValuePolicy.create(
        BOX, S.Discrete(4), learner=train_state.TrainState.create, network=network
    )


@keras.saving.register_keras_serializable(package="written_variables")
class Counting(L.Dense):
    """Counts its calls, in inference too."""

    def build(self, input_shape):
        super().build(input_shape)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        self.calls.assign_add(1.0)
        return super().call(inputs) + self.calls


WRITES = "^`create`: `network` expected a model whose call writes to no variable"


@pytest.mark.filterwarnings("ignore:.*writes to no variable")
@pytest.mark.parametrize("calls", [0, 2])
def test_variables_that_calls_change_stay_as_they_were(calls):
    network = keras.Sequential([keras.Input([3]), Counting(4)])
    for _ in range(calls):
        network(SEEN)
    policy = values_policy(network)
    made = float(network.layers[0].calls.numpy())
    assert made == calls
    (own,) = policy.state.extra_variables.values()
    assert float(own) == calls
    seen = SEEN
    first, second = (policy.outputs(seen, ())[0].numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    told = policy.to_keras()(seen)
    np.testing.assert_allclose(told, first, rtol=1e-6)
    kept = float(network.layers[0].calls.numpy())
    assert kept == made
    np.testing.assert_allclose(first, network(seen), rtol=1e-6)
    assert float(network.layers[0].calls.numpy()) == made + 1.0


class Noise(L.Layer):
    """Draws at every call, whatever `training` says."""

    def __init__(self, own=True, **kwargs):
        super().__init__(**kwargs)
        self.seed = keras.random.SeedGenerator(3) if own else None

    def call(self, inputs):
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.seed)


def critics_with(layer):
    def network(observation_space, action_space):
        inputs = keras.Input([3]), keras.Input([2])
        hidden = layer()(L.Concatenate()(inputs))
        return L.Dense(4), keras.Model(inputs, L.Dense(1)(hidden))

    return network


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (Noise, "seed_generator_state"),
        (lambda: Noise(own=False), "Keras' random generator"),
        (lambda: Counting(4), "counting"),
    ],
    ids=["noise", "global noise", "counter"],
)
def test_what_agents_would_never_change_is_warned_of(layer, names):
    built = keras.Sequential([keras.Input([3]), layer(), L.Dense(4)])
    unbuilt = keras.Sequential([layer(), L.Dense(4)])
    for network in (built, unbuilt):
        with pytest.warns(UserWarning, match=f"{WRITES}.*{names}"):
            values_policy(network)


def test_critics_that_would_never_change_are_warned_of():
    made = []

    def network(*spaces):
        made.append(critics_with(lambda: Counting(4))(*spaces))
        return made[-1]

    with pytest.warns(UserWarning, match=WRITES):
        sac.SAC().create(BOX, S.Box(-1.0, 1.0, (2,)), network=network)
    for _, critic in made:
        assert [float(x.numpy()) for x in critic.non_trainable_variables] == [0.0]


def test_layers_that_change_in_training_alone_are_fine():
    changing = [
        L.BatchNormalization(),
        L.Dropout(0.5),
        L.GaussianNoise(0.1),
        L.SpectralNormalization(L.Dense(3)),
        layers.AsKeras(foreign_layers.Affine(3)),
    ]
    network = keras.Sequential([keras.Input([3]), *changing, L.Dense(4)])
    before = network.get_weights()
    values_policy(network)
    for now, then in zip(network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
