"""Tests of `critic_network_visualizer`."""

import event_files
import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl.summaries import visualizer

CASES = golden_io.load("alf/visualizer", symbol="critic_network_visualizer")
UL, UR, LL = [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]


def total(inputs):
    observation, action = inputs
    return tf.reduce_sum(observation, 1) + tf.reduce_sum(action, 1)


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
@event_files.eagerly_and_slow
def test_golden(case, mode):
    given, wanted = case["in"], case["out"]
    if not given:
        # Only the upper left corner is asked, where this net says 0.
        zeros, ones = np.zeros([3], np.float32), np.ones([3], np.float32)
        given = {"ul": zeros, "ur": ones, "ll": ones, "H": 1, "W": 1}
        given["observation"] = np.zeros([2, 3], np.float32)
        given["w_obs"] = given["w_act"] = ones[:, None]
    seen = {}

    def net(inputs):
        seen["net_obs"], seen["net_action"] = inputs
        observation, action = inputs
        from_observation = tf.tanh(observation) @ given["w_obs"]
        return from_observation + tf.sin(action) @ given["w_act"]

    def image(observation):
        found = visualizer.critic_network_visualizer(
            net,
            observation,
            *(given[corner] for corner in ("ul", "ur", "ll")),
            given["H"],
            given["W"],
        )
        return {"image": found, **seen}

    if mode == "graph":
        signature = [tf.TensorSpec([None, None], tf.float32)]
        image = tf.function(image, input_signature=signature)
    found = image(tf.constant(given["observation"]))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, **case["tol"])


def test_corners_are_exact_and_dtype_is_kept():
    ul, ur, ll = np.random.default_rng(0).normal(size=[3, 2])
    image = visualizer.critic_network_visualizer(
        lambda inputs: inputs[1], tf.zeros([1, 1]), ul, ur, ll, H=7, W=4
    )
    assert image.dtype == tf.float64
    corners = image[0, :, 0, 0], image[0, :, 0, -1], image[0, :, -1, 0]
    np.testing.assert_array_equal(corners, [ul, ur, ll])
    np.testing.assert_allclose(image[0, :, -1, -1], ur + ll - ul, rtol=1e-14)


def test_nested_observation_and_given_batch_size():
    observation = {"a": tf.constant([[1.0], [10.0]]), "b": (tf.zeros([2, 3, 3]),)}
    image = visualizer.critic_network_visualizer(
        lambda inputs: inputs[0]["a"][:, 0] + inputs[1][:, 0],
        observation,
        *(UL, UR, LL),
        H=1,
        W=2,
        batch_size=2,
    )
    np.testing.assert_array_equal(image, [[[[1.0, 2.0]]], [[[10.0, 11.0]]]])


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *[("H", 0, ValueError), ("W", 2.0, TypeError)],
        ("action_upper_left", [0, 0], TypeError),
        ("action_lower_left", [0.0], ValueError),
        ("observation", (), ValueError),
        ("net", lambda inputs: tf.zeros([3]), ValueError),
        ("net", lambda inputs: tf.zeros([]), ValueError),
        ("observation", {"a": tf.zeros([2, 1]), "b": tf.zeros([3, 1])}, ValueError),
    ],
)
def test_refusals(name, value, error):
    corners = {"action_upper_left": UL, "action_upper_right": UR}
    corners["action_lower_left"] = LL
    given = {"net": total, "observation": tf.zeros([2, 1]), **corners, name: value}
    with pytest.raises(error, match=f"`critic_network_visualizer`: `{name}` expected"):
        visualizer.critic_network_visualizer(**given)
