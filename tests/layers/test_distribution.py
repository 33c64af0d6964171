"""Tests of `tfrl.layers.distribution`."""

import copy
import json

import gymnasium as gym
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from refusals import bad

from tfrl import layers
from tfrl.core import specs
from tfrl.distributions import SquashedNormal

S = gym.spaces

BOX = S.Box(-2.0, 1.0, (2,))
SPACES = {
    "discrete": S.Discrete(4),
    "multi discrete": S.MultiDiscrete([3, 2], start=[5, -2]),
    "box": BOX,
    "nested": S.Dict(a=S.Tuple([S.Discrete(2), BOX]), b=S.Box(-np.inf, np.inf, (3,))),
}
EVERY_SPACE = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
SEED = np.array([3, 7], np.int32)


def inputs(*shape, dtype="float32"):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def model_with(head, features=5):
    keras.utils.set_random_seed(0)
    observations = keras.Input([features])
    hidden = keras.layers.Dense(8, "tanh")(observations)
    return keras.Model(observations, head(hidden))


def negative_log_likelihood(head):
    return lambda actions, parameters: -head.distribution(parameters).log_prob(actions)


def test_by_hand():
    head = layers.DistributionHead(S.Discrete(2), kernel_initializer="ones")
    parameters = head(np.float32([[1.0, 2.0]]))
    np.testing.assert_allclose(parameters, [[3.0, 3.0]])
    np.testing.assert_allclose(
        head.distribution(parameters).probs_parameter(), [[0.5, 0.5]]
    )


@EVERY_SPACE
@pytest.mark.parametrize("dependent", [True, False], ids=["dependent", "apart"])
def test_parameters(space, dependent):
    head = layers.DistributionHead(space, state_dependent_scale=dependent)
    n_outputs, n_scales = head.action_head.n_outputs, head.action_head.n_log_stds
    symbolic = head(keras.Input([None, 5]))
    assert symbolic.shape == (None, None, n_outputs)
    assert head.compute_output_shape((None, 5)) == (None, n_outputs)
    parameters = head(inputs(3, 4, 5))
    assert parameters.shape == (3, 4, n_outputs)
    apart = 0 if dependent else n_scales
    shapes = {weight.name: tuple(weight.shape) for weight in head.weights}
    wanted = {"kernel": (5, n_outputs - apart)}
    wanted["bias"] = wanted["kernel"][1:]
    assert shapes == wanted | ({"raw_scale": (apart,)} if apart else {})
    actions = head.distribution(parameters).sample(seed=SEED)
    assert head.distribution(parameters).log_prob(actions).shape == (3, 4)


def test_scales_apart_are_the_same_for_all_inputs():
    head = layers.DistributionHead(BOX, state_dependent_scale=False, init_scale=0.5)
    dist = head.distribution(head(inputs(3, 5)))
    np.testing.assert_allclose(dist.scale, np.full([3, 2], 0.5), rtol=1e-6)
    assert np.ptp(dist.loc, axis=0).min() > 0
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(head.distribution(head(inputs(3, 5))).scale)
    gradients = tape.gradient(loss, head.trainable_weights)
    values = dict(zip((w.name for w in head.trainable_weights), gradients, strict=True))
    assert np.all(values["raw_scale"] > 0)


@pytest.mark.slow
def test_fit_by_likelihood():
    keras.utils.set_random_seed(0)  # of the head's initial weights too
    head = layers.DistributionHead(BOX, state_dependent_scale=False, init_scale=0.3)
    model = model_with(head, features=1)
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, [1024, 1]).astype(np.float32)
    # Draws of the distribution whose mean follows the observation.
    raw = 0.8 * observations * [1.0, -1.0] + 0.2 * rng.normal(size=[1024, 2])
    actions = (-0.5 + 1.5 * np.tanh(raw)).astype(np.float32)
    model.compile(
        keras.optimizers.Adam(0.03),
        loss=negative_log_likelihood(head),
        jit_compile=False,
    )
    history = model.fit(observations, actions, 128, epochs=15, verbose=0)
    expected = (0.8 * observations * [1.0, -1.0]).astype(np.float32)
    known = SquashedNormal(expected, 0.2, BOX.low, BOX.high)
    best = -np.mean(known.log_prob(actions))
    assert abs(history.history["loss"][-1] - best) < 0.05
    dist = head.distribution(model.predict(observations, verbose=0))
    assert np.abs(dist.loc - expected).mean() < 0.05
    np.testing.assert_allclose(dist.scale[0], [0.2, 0.2], atol=0.03)


@pytest.mark.slow
def test_fit_of_a_nest_of_actions():
    class Imitator(keras.Model):
        def __init__(self, head):
            super().__init__()
            self.head = head

        def call(self, observations):
            return self.head(observations)

        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return -tf.reduce_mean(self.head.distribution(y_pred).log_prob(y))

    space = S.Dict(move=BOX, press=S.Discrete(3))
    model = Imitator(layers.DistributionHead(space))
    model.compile("adam", jit_compile=False)
    actions = {"move": np.tanh(inputs(64, 2)) / 2, "press": np.arange(64) % 3}
    history = model.fit(inputs(64, 5), actions, epochs=3, verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < losses[0]


def test_config_makes_the_same_layer():
    spec = [specs.BoundedTensorSpec([2], tf.float32, [-1.0, 0.0], 3.0)]
    head = layers.DistributionHead(
        spec, "normal", bias_initializer="ones", name="head", dtype="float64"
    )
    config = head.get_config()
    assert (config["family"], config["name"]) == ("normal", "head")
    again = copy.deepcopy(layers.DistributionHead.from_config(config))
    assert again.get_config() == config
    assert again.action_spec == spec


def test_exports(tmp_path):
    head = layers.DistributionHead(SPACES["nested"])
    model = model_with(head)
    model.export(str(tmp_path / "parameters"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "parameters"))
    np.testing.assert_allclose(
        served.serve(inputs(4, 5)), model(inputs(4, 5)), atol=1e-6
    )
    module = tf.Module()
    module.kept = [weight.value for weight in model.weights]
    module.act = tf.function(
        lambda x: head.distribution(model(x)).mode(),
        input_signature=[tf.TensorSpec([None, 5])],
    )
    tf.saved_model.save(module, str(tmp_path / "policy"))
    loaded = tf.saved_model.load(str(tmp_path / "policy"))
    tf.nest.map_structure(
        lambda got, want: np.testing.assert_allclose(got, want, atol=1e-6),
        loaded.act(inputs(4, 5)),
        head.distribution(model(inputs(4, 5))).mode(),
    )


@pytest.mark.parametrize(
    ("policy", "wide"),
    [
        ("mixed_float16", "float32"),
        ("mixed_bfloat16", "float32"),
        ("float16", "float32"),
        ("float64", "float64"),
    ],
)
def test_parameters_are_wide_under_every_policy(policy, wide):
    head = layers.DistributionHead(BOX, state_dependent_scale=False, dtype=policy)
    narrow = tf.cast(inputs(3, 5), head.compute_dtype)
    parameters = head(narrow)
    assert parameters.dtype.name == wide
    assert {weight.dtype for weight in head.weights} == {wide}
    (kernel,) = (weight for weight in head.weights if weight.name == "kernel")
    by_hand = tf.cast(narrow, wide) @ kernel.value
    np.testing.assert_allclose(parameters[:, :2], by_hand, rtol=1e-6)
    for symbolic in (keras.Input([5]), keras.KerasTensor((4, 7, 5))):
        said = head(symbolic)
        assert (said.shape, said.dtype) == ((*symbolic.shape[:-1], 4), wide)
        assert head.compute_output_spec(symbolic).dtype == wide


def test_keys_of_a_spec_survive_json():
    spec = {0: tf.TensorSpec([2]), 10: {"a": tf.TensorSpec([])}}
    config = json.loads(json.dumps(layers.DistributionHead(spec).get_config()))
    again = layers.DistributionHead.from_config(config)
    assert again.action_spec == spec


def test_masks_of_time_pass_through():
    head = layers.DistributionHead(S.Discrete(2))
    assert head.supports_masking


@refusals.table(
    (lambda: layers.DistributionHead(S.Text(3)), bad(TypeError, "space")),
    (
        lambda: layers.DistributionHead(BOX, init_scale=-1),
        bad(ValueError, "init_scale"),
    ),
    (layers.DistributionHead, bad(ValueError, "family", BOX, "beta")),
    (
        lambda: layers.DistributionHead(S.Box(0.0, np.inf, (2,)), "squashed_normal"),
        bad(ValueError, "squash"),
    ),
)
def test_bad_arguments(row):
    row()


@pytest.mark.parametrize("family", [None, "normal", "squashed_normal"])
def test_the_family_is_of_floats(family):
    head = layers.DistributionHead(S.Discrete(3, start=5), family)
    actions = head.distribution(head(inputs(4, 5))).sample(seed=SEED)
    assert actions.dtype == tf.int64
    assert set(actions.numpy()) <= {5, 6, 7}


@pytest.mark.parametrize(
    "space",
    [
        S.Discrete(3),
        S.Discrete(3, start=5),
        S.Discrete(3, start=-1),
        S.MultiDiscrete([3, 2], start=[5, -2]),
    ],
)
def test_labels_are_scored_as_keras_hands_them(space):
    head = layers.DistributionHead(space)
    dist = head.distribution(head(inputs(4, 5)))
    actions = dist.sample(seed=SEED)
    as_floats = tf.cast(actions, tf.float32)  # which `fit` makes of them
    np.testing.assert_array_equal(dist.log_prob(as_floats), dist.log_prob(actions))
    between = np.where(np.arange(4) == 2, 0.5, 0.0).astype(np.float32)
    between = as_floats + between.reshape(4, *[1] * (as_floats.shape.rank - 1))
    found = dist.log_prob(between).numpy()
    np.testing.assert_array_equal(np.isneginf(found), np.arange(4) == 2)


@pytest.mark.parametrize("start", [0, 1, -1])
def test_a_model_learns_choices_as_the_space_numbers_them(start):
    head = layers.DistributionHead(S.Discrete(2, start=start))
    model = keras.Sequential([keras.Input([1]), head])
    x = np.linspace(-1.0, 1.0, 64, dtype=np.float32)[:, None]
    actions = (x[:, 0] > 0).astype(int) + start
    model.compile(
        keras.optimizers.Adam(0.3), loss=lambda y, z: -head.distribution(z).log_prob(y)
    )
    model.fit(x, actions, epochs=20, verbose=0)
    found = head.distribution(model(x)).mode()
    assert np.mean(found == actions) > 0.9


def test_draws_are_nests_of_the_kind_of_the_spec():
    spec = [tf.TensorSpec([2]), {"a": specs.BoundedTensorSpec([], tf.int32, 0, 2)}]
    head = layers.DistributionHead(spec)
    dist = head.distribution(head(inputs(4, 5)))
    tf.nest.assert_same_structure(dist.sample(seed=SEED), spec)
    assert (
        head.get_config()["action_spec"]
        == layers.DistributionHead.from_config(head.get_config()).get_config()[
            "action_spec"
        ]
    )


def test_configurations_of_earlier_files_give_the_same_layer():
    bounds = {"minimum": [-2.0, -2.0], "maximum": [1.0, 1.0]}
    spec = {"spec": {"shape": [2], "dtype": "float32", **bounds}}
    config = {
        "name": "head",
        "action_spec": {"dict": {"a": {"tuple": [spec]}}},
        "family": None,
        "state_dependent_scale": False,
        "init_scale": 0.3,
        "min_scale": 0.01,
        "kernel_initializer": "ones",
        "bias_initializer": "zeros",
    }
    head = layers.DistributionHead.from_config(config)
    parameters = head(np.float32([[1.0, 2.0]]))
    np.testing.assert_allclose(parameters, [[3.0, 3.0, 0.0, 0.0]])
    (dist,) = head.distribution(parameters).distributions["a"]
    assert isinstance(dist, SquashedNormal)
    np.testing.assert_allclose(dist.loc, [[3.0, 3.0]])
    np.testing.assert_allclose(dist.scale, [[0.3, 0.3]], rtol=1e-6)
    np.testing.assert_array_equal(dist.low, [-2.0, -2.0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("family", ["normal", "squashed_normal"])
def test_actions_of_every_float_dtype_are_scored(family, dtype):
    head = layers.DistributionHead(S.Box(-2.0, 2.0, (2,), dtype), family)
    dist = head.distribution(head(inputs(3, 5)))
    actions = np.array([[0.5, -0.25]] * 3)
    expected = dist.log_prob(actions.astype("f"))
    for given in (actions.astype(dtype), tf.constant(actions, dtype)):
        np.testing.assert_allclose(dist.log_prob(given), expected, rtol=1e-6)
