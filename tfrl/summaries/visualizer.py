"""The values of a critic over a grid of actions."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrl._internal import checks


def critic_network_visualizer(
    net: Callable[[Any], Any],
    observation: Any,
    action_upper_left: Any,
    action_upper_right: Any,
    action_lower_left: Any,
    H: int = 20,  # noqa: N803
    W: int = 20,  # noqa: N803
    batch_size: int | None = None,
) -> tf.Tensor:
    """Asks a critic about a grid of actions, for each observation of a batch.

        action[h, w] = (1 - v)(1 - u) ul + (1 - v) u ur + v (1 - u) ll + v u lr
        u = w / (W - 1),  v = h / (H - 1),  lr = ur + ll - ul

    (u = 0 if W = 1, v = 0 if H = 1): the corners of the image are the corners given.
    The critic is called once, on B H W rows: each observation H W times in a row, with
    the grid from left to right and then down. `render_heatmap` draws the answer.

    Args:
        net: called as `net((observation, action))`; returns `[rows, K]` or `[rows]`,
            K = 1.
        observation: tensor, or nest of tensors, `[B, ...]`.
        action_upper_left: `[action_dim]` floats, ul.
        action_upper_right: `[action_dim]`, ur.
        action_lower_left: `[action_dim]`, ll.
        H: number of actions from ul to ll.
        W: number of actions from ul to ur.
        batch_size: B; None takes it from the observation.

    Returns:
        `[B, K, H, W]` in the dtype of the critic.

    Raises:
        TypeError: if the actions are not floating, or `H` or `W` is not an int.
        ValueError: if `H` or `W` is less than 1, the actions are of different shapes,
            the observation has another batch size than `batch_size`, or the critic
            returns another number of rows, or of axes.

    Example:
        >>> def net(inputs):
        ...     observation, action = inputs
        ...     return tf.reduce_sum(action, axis=1, keepdims=True)
        >>> image = critic_network_visualizer(
        ...     net, tf.zeros([1, 3]), [0.0, 0.0], [2.0, 0.0], [0.0, 4.0], H=2, W=3
        ... )
        >>> image[0, 0].numpy()
        array([[0., 1., 2.],
               [4., 5., 6.]], dtype=float32)
    """
    where = "critic_network_visualizer"
    checks.check_whole_number(where, "H", H, low=1)
    checks.check_whole_number(where, "W", W, low=1)
    upper_left = tf.convert_to_tensor(action_upper_left)
    checks.check_floating(where, "action_upper_left", upper_left)
    checks.check_rank(where, "action_upper_left", upper_left, exact=1)
    upper_right = tf.convert_to_tensor(action_upper_right, upper_left.dtype)
    lower_left = tf.convert_to_tensor(action_lower_left, upper_left.dtype)
    checks.check_same_shape(
        where,
        action_upper_left=upper_left,
        action_upper_right=upper_right,
        action_lower_left=lower_left,
    )
    observation = tf.nest.map_structure(tf.convert_to_tensor, observation)
    size: Any = _batch_size(where, observation, batch_size)
    corners = upper_left, upper_right, lower_left
    grid = tf.reshape(_grid(*corners, H, W), [H * W, tf.shape(upper_left)[0]])
    rows = tf.nest.map_structure(lambda x: tf.repeat(x, H * W, axis=0), observation)
    values = tf.convert_to_tensor(net((rows, tf.tile(grid, [size, 1]))))
    rows_known = [tf.get_static_value(size * H * W)]
    fits = values.shape[:1].is_compatible_with(rows_known)
    if values.shape.rank not in (1, 2) or not fits:
        raise ValueError(
            f"`{where}`: `net` expected to return [rows] or [rows, K], a row for each "
            f"of {H * W} actions an observation; got shape {values.shape.as_list()}"
        )
    image = tf.reshape(values, [size, H, W, -1])
    return tf.transpose(image, [0, 3, 1, 2])


def _batch_size(where: str, observation: Any, given: int | None) -> Any:
    leaves = tf.nest.flatten(observation)
    if not leaves:
        raise ValueError(
            f"`{where}`: `observation` expected a tensor at least; got {observation!r}"
        )
    for leaf in leaves:
        checks.check_rank(where, "observation", leaf, at_least=1)
    sizes = [given, *(leaf.shape[0] for leaf in leaves)]
    known = [size for size in sizes if size is not None]
    if len(set(known)) > 1:
        raise ValueError(
            f"`{where}`: `observation` expected batches of {known[0]}; got some of "
            f"{known[1:]}"
        )
    return known[0] if known else tf.shape(leaves[0])[0]


def _grid(ul: tf.Tensor, ur: tf.Tensor, ll: tf.Tensor, h: int, w: int) -> tf.Tensor:
    """Actions `[h, w, action_dim]`, exact at the corners."""
    across, down = (
        tf.cast(tf.linspace(0.0, 1.0, n) if n > 1 else tf.zeros([1]), ul.dtype)
        for n in (w, h)
    )
    across, down = across[:, None], down[:, None, None]
    top = (1 - across) * ul + across * ur
    bottom = (1 - across) * ll + across * (ur + ll - ul)
    return (1 - down) * top + down * bottom
