"""Tests of networks of one's own, `network=`, of policies that take one."""

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import new_policy
from plain_graphs import plain_graphs

from tfrl.agents import _minibatches, train_state
from tfrl.agents.off_policy import c51, dqn, iqn, qr_dqn, rainbow, sac
from tfrl.core import records
from tfrl.policies import (
    action_value,
    actor_critic,
    critics,
    host_policy,
    recurrent,
)
from tfrl.replay.sampling import transitions

S, L = gym.spaces, keras.layers
BOX = S.Box(-np.inf, np.inf, (3,), np.float64)
IMAGE = S.Box(0, 255, (8, 8, 3), np.uint8)
NEST = S.Dict(x=BOX, k=S.Discrete(3), image=IMAGE)
LEARNER = train_state.TrainState.create


@keras.saving.register_keras_serializable(package="given_networks")
class Own(keras.Model):
    """Subclassed and unbuilt; of a nest it takes all parts."""

    def __init__(self, n_outputs=4, has_values=False, **kwargs):
        super().__init__(**kwargs)
        self.n_outputs, self.has_values = n_outputs, has_values
        self.hidden, self.last = L.Dense(8, "tanh"), L.Dense(n_outputs)
        self.value, self.look = L.Dense(1), L.Conv2D(2, 3)

    def call(self, inputs):
        if isinstance(inputs, dict):
            assert inputs["image"].dtype == "uint8" and inputs["k"].dtype == "int64"
            pixels = self.look(keras.ops.cast(inputs["image"], "float32") / 255.0)
            inputs = keras.ops.concatenate(
                [
                    inputs["x"],
                    keras.ops.one_hot(inputs["k"], 3),
                    keras.ops.mean(pixels, (1, 2)),
                ],
                -1,
            )
        features = self.hidden(inputs)
        outputs = self.last(features)
        return (outputs, self.value(features)) if self.has_values else outputs

    def get_config(self):
        own = {"n_outputs": self.n_outputs, "has_values": self.has_values}
        return {**super().get_config(), **own}


def functional(n_outputs=4, value=None):
    inputs = keras.Input((3,))
    features = L.Dense(8, "relu")(inputs)
    outputs = L.Dense(n_outputs)(features)
    if value is None:
        return keras.Model(inputs, outputs)
    last = L.Dense(1)(features)
    return keras.Model(inputs, (outputs, L.Flatten()(last) if value == 1 else last))


def sequential(n_outputs=4):
    return keras.Sequential([L.Dense(8, "relu"), L.Dense(n_outputs)])


def batch_of(space, n_rows=5):
    space.seed(0)
    rows = [space.sample() for _ in range(n_rows)]
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *rows)


def values_policy(network, space=BOX, n_choices=4, seed=0):
    return action_value.ActionValuePolicy.create(
        space, S.Discrete(n_choices), network=network, learner=LEARNER, seed=seed
    )


def pair_policy(network, action_space=None, **settings):
    space = S.Box(-1.0, 1.0, (2,)) if action_space is None else action_space
    return actor_critic.ActorCriticPolicy.create(
        BOX, space, network=network, learner=LEARNER, **settings
    )


NETWORKS = {
    "functional": functional,
    "sequential": sequential,
    "built sequential": lambda: keras.Sequential([keras.Input((3,)), L.Dense(4)]),
    "subclassed": Own,
    "layer": lambda: L.Dense(4),
    "factory": lambda: lambda seen, acts: sequential(int(acts.n)),
}


@pytest.mark.filterwarnings("ignore:`build..` was called on layer")
@pytest.mark.parametrize("kind", NETWORKS)
def test_any_keras_model_is_a_network(kind):
    network, x = NETWORKS[kind](), batch_of(BOX)
    policy = values_policy(network)
    floats = tf.constant(x, tf.float32)
    if kind != "factory":
        expected = network(floats)
        np.testing.assert_allclose(policy.parameters(x), expected, rtol=1e-5)
    expected = policy.parameters(x)
    assert expected.dtype == tf.float32 and expected.shape == (5, 4)
    for given in (x, tf.constant(x)):
        found = policy.act(given, temperature=0.0).actions
        np.testing.assert_array_equal(found, np.argmax(expected, -1))
    np.testing.assert_allclose(policy.to_keras()(floats), expected, rtol=1e-5)
    if "sequential" in kind or kind == "functional":
        host = host_policy.HostPolicy(policy)
        assert host.mirrored
        host.push(policy, probe=x)


@pytest.mark.filterwarnings("ignore:`build..` was called on layer")
def test_nests_and_images_come_in_their_own_dtypes():
    policy, x = values_policy(Own(), NEST), batch_of(NEST)
    parameters = policy.parameters(x)
    assert np.ptp(parameters, axis=0).max() > 0.0
    acted = policy.act(x, temperature=0.0)
    np.testing.assert_array_equal(acted.actions, np.argmax(parameters, -1))
    first = tf.nest.map_structure(lambda leaf: leaf[:1], x)
    np.testing.assert_allclose(
        policy.parameters(first), parameters[:1], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("value", [1, 2], ids=["[B]", "[B, 1]"])
def test_deviations_are_given_or_learned_beside(value):
    x = batch_of(BOX)
    beside = pair_policy(functional(2, value), log_std=-1.5)
    np.testing.assert_array_equal(beside.log_std(), [-1.5, -1.5])
    np.testing.assert_array_equal(beside.parameters(x)[:, 2:], np.full((5, 2), -1.5))
    network = functional(4, value)
    given = pair_policy(network, log_std=-1.5)
    assert given.log_std() is None
    outputs, values = network(tf.constant(x, tf.float32))
    np.testing.assert_allclose(given.parameters(x), outputs, rtol=1e-5)
    for policy in (beside, given):
        assert policy.values(x).shape == (5,)
        model = policy.to_keras()
        found = model(tf.constant(x, tf.float32))
        np.testing.assert_allclose(found[0], policy.parameters(x), rtol=1e-5)
        np.testing.assert_allclose(found[1], policy.values(x), rtol=1e-5)
        loc, log_std = np.split(policy.parameters(x).numpy(), 2, -1)
        acted = policy.act(x, seed=0)
        z = (acted.raw_actions - loc) / np.exp(log_std)
        wanted = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
        np.testing.assert_allclose(acted.log_probs, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(given.values(x), np.reshape(values, 5), rtol=1e-5)


def test_mixed_precision_gives_float32():
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        network = functional(2, 2)
    finally:
        keras.config.set_dtype_policy(before)
    policy, x = pair_policy(network), batch_of(BOX)
    assert policy.parameters(x).dtype == policy.values(x).dtype == tf.float32
    assert not host_policy.HostPolicy(policy).mirrored
    assert policy.act(x, seed=0).actions.dtype == np.float32


WANTED = r"`network` expected .*to map observations to \[B, 4\]"
REFUSED = {
    "width": (lambda: sequential(3), WANTED + r"; got shapes \[2, 3\]"),
    "pair": (lambda: functional(4, 2), WANTED + "; got shapes"),
    "rank": (
        lambda: keras.Sequential([L.Dense(4), L.Reshape((2, 2))]),
        WANTED + r"; got shapes \[2, 2, 2\]",
    ),
    "inputs": (
        lambda: keras.Sequential([keras.Input((5,)), L.Dense(4)]),
        WANTED + r", of Box.*; got a call that fails .*value 5, but .*",
    ),
    "regularizers": (
        lambda: keras.Sequential([L.Dense(4, kernel_regularizer="l2")]),
        "`network` expected a model without regular",
    ),
    "number": (lambda: 3, r"`network` expected a Keras model, or .*; got 3"),
    "text": (lambda: "relu", r"`network` expected a Keras model.*'relu'"),
    "class": (lambda: Own, r"`network` expected a Keras model.*Own"),
    "nothing": (lambda: lambda *_: None, r"`network` expected .*; got None"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_networks_that_do_not_fit_are_refused_in_a_line(kind):
    make, message = REFUSED[kind]
    error = TypeError if kind in ("number", "text", "class", "nothing") else ValueError
    with pytest.raises(error, match=message) as caught:
        values_policy(make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [dqn.DQN, sac.SAC])
def test_a_function_that_does_not_take_both_spaces_is_told(kind):
    def my_net(width=3):
        return sequential(width)

    space = S.Discrete(4) if kind is dqn.DQN else S.Box(-1.0, 1.0, (2,))
    told = (
        r"^`create`: `network` expected a Keras model, or a function of both spaces "
        r"\(observation_space, action_space\) that returns one; got my_net\(width=3\)$"
    )
    with pytest.raises(TypeError, match=told):
        kind().create(BOX, space, network=my_net)

    def fails(*spaces):
        raise TypeError(f"inside, of {len(spaces)}")

    with pytest.raises(TypeError, match="^inside, of 2$"):
        kind().create(BOX, space, network=fails)


def test_pairs_that_do_not_fit_are_refused():
    message = r"\(parameters \[B, 2\] or \[B, 4\], values \[B\]\); got shapes"
    for network in (functional(3, 2), sequential(2)):
        with pytest.raises(ValueError, match=message):
            pair_policy(network)


@pytest.mark.filterwarnings("ignore:`build..` was called on layer")
def test_agents_learn_by_a_network_of_ones_own(monkeypatch):
    monkeypatch.setattr(_minibatches._compiled_update, "xla", False)
    network = functional(4)
    agent = dqn.DQN(target_period=1).create(BOX, S.Discrete(4), network=network)
    before = [np.array(x) for x in network.get_weights()]
    ones = np.ones((2, 4), np.float32)
    seen = np.random.default_rng(0).normal(size=(2, 2, 4, 3)).astype(np.float32)
    data = records.Transition(seen[0], np.zeros((2, 4), int), ones, ones, seen[1])
    learned, info = agent.update(transitions.Sample(data, None, ones, ones))
    assert np.isfinite(info["loss"])
    for name, value in learned.policy.state.params.items():
        assert np.any(value != agent.policy.state.params[name]), name
    for now, then in zip(network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_transforms_see_the_deviations_learned_beside():
    policy = new_policy(BOX, S.Box(-1.0, 1.0, (2,)), network=functional(2, 2))
    grads = tf.nest.map_structure(tf.ones_like, policy.state.params)
    moved = policy.replace(state=policy.state.apply_gradients(grads=grads))
    np.testing.assert_allclose(moved.log_std(), [-0.1, -0.1])
    x = batch_of(BOX)
    np.testing.assert_allclose(moved.parameters(x)[:, 2:], np.full((5, 2), -0.1))


class Negative(keras.Sequential):
    def call(self, inputs, **options):
        return -super().call(inputs, **options)


def relu(x):
    return -tf.nn.relu(x)


class NegativeFunctional(type(functional())):
    def call(self, *args, **options):
        return -super().call(*args, **options)


def joined(between):
    """A functional model of two dense layers with something between them."""
    inputs = keras.Input([4])
    return keras.Model(inputs, L.Dense(2)(between(L.Dense(4, "tanh")(inputs), inputs)))


def twice(x, _):
    layer = L.Dense(4, "relu")
    return layer(layer(x))


def negative_functional():
    inputs = keras.Input([4])
    return NegativeFunctional(inputs, L.Dense(2)(L.Dense(8, "relu")(inputs)))


LOOKALIKES = {
    "chain": lambda: joined(lambda x, _: L.Dense(5, "relu")(x)),
    "residual": lambda: joined(lambda x, inputs: L.Add()([x, inputs])),
    "no layer": lambda: joined(lambda x, _: 3.0 * x),
    "twice": lambda: joined(twice),
    "model within": lambda: joined(
        lambda x, _: keras.Sequential([keras.Input([4]), L.Dense(3, "tanh")])(x)
    ),
    "subclass of a functional model": negative_functional,
    "subclass": lambda: Negative([keras.Input([4]), L.Dense(8, "relu"), L.Dense(2)]),
    "activation of that name": lambda: keras.Sequential(
        [keras.Input([4]), L.Dense(8, relu), L.Dense(2)]
    ),
    "activation without a name": lambda: keras.Sequential(
        [keras.Input([4]), L.Dense(8, L.LeakyReLU(0.3)), L.Dense(2)]
    ),
    "frozen": lambda: keras.Sequential(
        [keras.Input([4]), L.Dense(8, trainable=False), L.Dense(2)]
    ),
}


@pytest.mark.parametrize("kind", LOOKALIKES)
def test_numpy_answers_as_the_network_does(kind):
    network = LOOKALIKES[kind]()
    policy = values_policy(network, S.Box(-9.0, 9.0, (4,)), n_choices=2)
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    wanted = np.asarray(network(x)).argmax(-1)
    for given in (x, tf.constant(x)):
        found = policy.act(given, temperature=0.0).actions
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shared", [False, True])
def test_what_leads_to_the_parameters_alone_acts_in_numpy(shared):
    inputs = keras.Input((3,))
    features = L.Dense(8, "tanh")(inputs)
    one, other = L.Dense(2)(features), L.Dense(1)(features if shared else inputs + 1.0)
    policy = pair_policy(keras.Model(inputs, (one, other)))
    host, x = host_policy.HostPolicy(policy), batch_of(BOX)
    assert host.mirrored
    params = tf.nest.map_structure(lambda leaf: leaf + 0.5, policy.state.params)
    policy = policy.replace(state=policy.state.replace(params=params))
    host.push(policy, probe=x)
    found = host.act(x, (), seed=np.random.default_rng(0), temperature=0.0)
    expected = policy.act(tf.constant(x), (), temperature=0.0)
    np.testing.assert_allclose(found.actions, expected.actions, rtol=1e-5, atol=1e-6)


def test_the_seed_is_that_of_networks_made_by_a_function():
    found = [
        tf.nest.flatten(values_policy(lambda *_: sequential(4), seed=seed))
        for seed in (3, 3, 4)
    ]
    same, other = (
        all(np.array_equal(x, y) for x, y in zip(found[0], each, strict=True))
        for each in found[1:]
    )
    assert same and not other


def test_small_images_need_no_moments():
    inputs = keras.Input(IMAGE.shape, dtype="uint8")
    outputs = L.Dense(2)(L.Flatten()(L.Rescaling(1 / 255)(inputs)))
    given = {"learner": LEARNER, "network": keras.Model(inputs, outputs)}
    policy = action_value.ActionValuePolicy.create(
        IMAGE, S.Discrete(2), normalize_observations=True, **given
    )
    assert policy.observation_moments == ((),)


def test_a_network_that_normalizes_is_not_normalized_for():
    space = S.Box(-1.0, 1.0, (3,))
    policy = new_policy(space, S.Discrete(2), normalize_observations=True)
    seen = np.random.default_rng(0).normal(5.0, 2.0, (9, 3)).astype(np.float32)
    policy = policy.update_moments(seen, tf.ones([9]))
    network = policy.to_keras()
    given = {"learner": LEARNER, "network": network}
    create = actor_critic.ActorCriticPolicy.create
    with pytest.raises(ValueError, match="`normalize_observations` expected False"):
        create(space, S.Discrete(2), normalize_observations=True, **given)
    taken = create(space, S.Discrete(2), **given)
    np.testing.assert_allclose(
        taken.parameters(seen), policy.parameters(seen), rtol=1e-5, atol=1e-6
    )


@keras.saving.register_keras_serializable(package="given_networks")
class TrainsByDefault(keras.Model):
    """In training unless told otherwise, with layers that show it."""

    def __init__(self, widths=(4,), **kwargs):
        super().__init__(**kwargs)
        self.widths = tuple(widths)
        self.drop, self.norm = L.Dropout(0.5), L.BatchNormalization()
        self.outs = [L.Dense(n) for n in self.widths]

    def call(self, inputs, training=True):
        x = inputs
        if isinstance(inputs, tuple | list):
            x = keras.ops.concatenate(inputs, -1)
        x = self.drop(self.norm(x, training=training), training=training)
        outputs = [layer(x) for layer in self.outs]
        return outputs if len(outputs) > 1 else outputs[0]

    def get_config(self):
        return {**super().get_config(), "widths": self.widths}


def wrapped():
    """Without an argument `training` itself, around one that has it."""
    return keras.Sequential([keras.Input((3,)), TrainsByDefault()])


@pytest.mark.parametrize("make", [TrainsByDefault, wrapped])
def test_models_that_train_by_default_are_called_as_in_inference(make):
    network, x = make(), batch_of(BOX, 64).astype(np.float32)
    policy = values_policy(network)
    wanted = network(x, training=False)
    np.testing.assert_allclose(policy.parameters(x), wanted, rtol=1e-5, atol=1e-6)
    for given in (x, tf.constant(x)):
        found = policy.act(given, temperature=0.0).actions
        np.testing.assert_array_equal(found, np.argmax(wanted, -1))
    told = policy.to_keras()
    np.testing.assert_allclose(told(x), wanted, rtol=1e-5, atol=1e-6)
    assert np.abs(told(x, training=True) - wanted).max() > 0.1
    # Nor did `create` move the statistics of the batches.
    norm = next(y for y in network._flatten_layers() if hasattr(y, "moving_mean"))
    np.testing.assert_array_equal(norm.moving_mean, np.zeros(3))


def test_actors_critics_and_memories_are_called_as_in_inference():
    x = batch_of(BOX, 64).astype(np.float32)
    network = TrainsByDefault((4, 1))
    policy = pair_policy(network)
    wanted = network(x, training=False)
    np.testing.assert_allclose(policy.parameters(x), wanted[0], rtol=1e-5, atol=1e-6)
    found = policy.values(x)[:, np.newaxis]
    np.testing.assert_allclose(found, wanted[1], rtol=1e-5, atol=1e-6)

    memory = np.ones((64, 5), np.float32)
    network = TrainsByDefault((4, 5))
    policy = recurrent.RecurrentPolicy.create(
        BOX, S.Discrete(4), network=network, units=5, learner=LEARNER
    )
    wanted = network((x, memory), training=False)
    begins = np.zeros((64, 1), bool)
    sequences = tf.nest.map_structure(tf.constant, (x[:, None], memory, begins))
    told = [y[:, 0] for y in policy.state.sequences(sequences)]
    for found in (policy.outputs(x, tf.constant(memory)), told):
        for y, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)

    network = TrainsByDefault((1,))
    both = (x, np.ones((64, 2), np.float32))
    critic = critics.given_critics([network], BOX, 2)
    wanted = network(both, training=False)[:, 0]
    np.testing.assert_allclose(critic(both)[0], wanted, rtol=1e-5, atol=1e-6)


class Unregistered(L.Layer):
    """Of a class that Keras does not know by name."""

    def __init__(self, units=8, **kwargs):
        super().__init__(**kwargs)
        self.units, self.dense = units, L.Dense(units)

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, inputs):
        return self.dense(inputs)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@pytest.mark.filterwarnings("ignore:`build..` was called on layer")
@pytest.mark.parametrize("make", [Own, *default_rows.slow(Unregistered)])
@pytest.mark.parametrize(
    ("config", "width"),
    default_rows.params(
        {
            "C51": (c51.C51(n_atoms=5), 20),
            "Rainbow": (rainbow.Rainbow(n_atoms=5), 20),
            "QRDQN": (qr_dqn.QRDQN(n_quantiles=5), 20),
            "IQN": (iqn.IQN(hidden_units=(8,)), 8),
        },
        ["C51"],
    ),
)
def test_values_of_distributions_are_learned_and_exported(config, width, make):
    agent = config.create(BOX, S.Discrete(4), network=make(width), seed=0)
    rng, ones = np.random.default_rng(0), np.ones(4, np.float32)
    seen = rng.normal(size=(2, 4, 3)).astype(np.float32)
    data = records.Transition(seen[0], np.arange(4), ones, 0.9 * ones, seen[1])
    with plain_graphs():
        learned, info = agent.update(transitions.Sample(data, None, ones, ones))
    assert np.isfinite(info["loss"])
    for name, value in learned.policy.state.params.items():
        assert np.any(value != agent.policy.state.params[name]), name
    model = learned.policy.to_keras()
    assert model.output_shape == (None, 4)
    wanted = learned.policy.parameters(seen[0])
    np.testing.assert_allclose(model(seen[0]), wanted, rtol=1e-5, atol=1e-6)


SHIFTED = S.Dict(k=S.Discrete(4, start=50), m=S.MultiDiscrete([2, 3], start=[-7, 9]))


def embedded(n_rows, first=0, memory=None):
    """A model that looks choices up in a table of so many rows."""
    inputs = {
        name: keras.Input(shape, dtype="int64", name=name)
        for name, shape in (("k", []), ("m", [2]))
    }
    found = L.Embedding(n_rows, 4)(inputs["k"] - first)
    outputs = L.Dense(4)(found)
    if memory is None:
        return keras.Model(inputs, outputs)
    known = keras.Input([memory])
    return keras.Model((inputs, known), (outputs, known + 1.0))


def test_choices_come_as_the_space_has_them():
    x, network = batch_of(SHIFTED, 20), embedded(4, first=50)
    policy = values_policy(network, SHIFTED)
    wanted = network(tf.nest.map_structure(tf.constant, x))
    np.testing.assert_allclose(policy.parameters(x), wanted, rtol=1e-5, atol=1e-6)
    told = policy.to_keras()(tf.nest.map_structure(tf.constant, x))
    np.testing.assert_allclose(told, wanted, rtol=1e-5, atol=1e-6)


def test_models_are_tried_on_the_lowest_and_the_highest_choices():
    shown = []
    watch = L.Lambda(lambda x: (shown.append(x), L.Dense(4)(x["m"]))[1])
    with pytest.raises(ValueError, match="`network` expected"):
        values_policy(keras.Sequential([watch, L.Reshape((2, 2))]), SHIFTED)
    np.testing.assert_array_equal(shown[-1]["k"], [50, 53])
    np.testing.assert_array_equal(shown[-1]["m"], [[-7, 9], [-6, 11]])
    tried = r"of Dict.*a call that fails on .* lowest and the highest choices: .*53 is"
    with pytest.raises(ValueError, match=tried):
        values_policy(embedded(53), SHIFTED)
    assert values_policy(embedded(54), SHIFTED).head.n_outputs == 4


def test_memories_are_exported_where_choices_are_looked_up():
    for space in (SHIFTED, S.Dict({"action_mask": S.MultiBinary(4), **SHIFTED})):
        policy = recurrent.RecurrentPolicy.create(
            *(space, S.Discrete(4)),
            units=3,
            learner=LEARNER,
            network=embedded(4, 50, 3),
        )
        x, memory = batch_of(space), tf.zeros([5, 3])
        x = tf.nest.map_structure(tf.constant, x)
        wanted, found = policy.outputs(x, memory), policy.to_keras()((x, memory))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
