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
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_golden(case, graph):
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

    if graph:
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
    ("change", "kind", "message"),
    [
        ({"H": 0}, ValueError, "`H` expected an int"),
        ({"W": 2.0}, TypeError, "`W` expected an int"),
        ({"action_upper_left": [0, 0]}, TypeError, "`action_upper_left` expected a fl"),
        ({"action_lower_left": [0.0]}, ValueError, "`action_lower_left` expected the"),
        ({"batch_size": 3}, ValueError, r"`observation` expected batches of 3"),
        ({"observation": ()}, ValueError, "`observation` expected a tensor"),
        ({"net": lambda inputs: tf.zeros([3])}, ValueError, r"`net` expected to ret"),
        ({"net": lambda inputs: tf.zeros([])}, ValueError, r"`net` expected to ret"),
    ],
    ids=["height", "width", "ints", "corner", "batch", "empty", "rows", "scalar"],
)
def test_bad_input_is_named(change, kind, message):
    given = {
        "net": total,
        "observation": tf.zeros([2, 1]),
        "action_upper_left": UL,
        "action_upper_right": UR,
        "action_lower_left": LL,
    }
    with pytest.raises(kind, match=message):
        visualizer.critic_network_visualizer(**{**given, **change})
