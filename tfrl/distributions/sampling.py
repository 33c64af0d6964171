"""Actions of nests of distributions, drawn and scored.

A nest of distributions holds one per part of an action. `seed` is an int, an int32
`[2]` tensor or None; from it each part gets a stream of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, draws
from tfrl.core import random
from tfrl.distributions import modes, product, squashed

tfd = tfp.distributions
tfb = tfp.bijectors


def compute_log_probability(distributions: Any, actions: Any) -> tf.Tensor:
    """Returns the log-probability of actions, summed over the parts.

        log p(a) = sum_i log p_i(a_i)

    Args:
        distributions: nest of distributions of one batch shape. Axes of an event that
            a distribution counts as batch axes are not summed: wrap it in
            `tfp.distributions.Independent`.
        actions: nest of actions, one per distribution (a nest where its draws are
            nests).

    Returns:
        `[...]`, the batch shape.

    Raises:
        TypeError: if a leaf is no distribution, or an action no tensor.
        ValueError: if the structures differ, there is no distribution, or the shapes
            of the log-probabilities differ.

    Example:
        >>> policy = (tfd.Bernoulli(probs=[0.5]), tfd.Normal([0.0], 1.0))
        >>> actions = (tf.constant([1]), tf.constant([0.0]))
        >>> compute_log_probability(policy, actions).numpy().round(4)
        array([-1.6121], dtype=float32)
    """
    where = "compute_log_probability"
    pairs = _paired(where, distributions, actions)
    for leaf in tf.nest.flatten(actions):
        if not tf.is_tensor(leaf):
            checks.as_tensor(where, "actions", leaf)
    log_probs = [distribution.log_prob(action) for distribution, action in pairs]
    return total(where, "log_prob", log_probs)


def sample_action_distribution(
    nested_distributions: Any, return_log_prob: bool = False, seed: Any = None
) -> Any:
    """Draws actions through which no gradient flows.

    The log-probability is that of the draw as it was made, not of a rounded copy: of a
    squashed draw it comes from the number before squashing. Its gradient is that of
    `log p(a)` at the fixed action, the score.

    Args:
        nested_distributions: nest of distributions.
        return_log_prob: whether to return the log-probability, too.
        seed: seed of the draws.

    Returns:
        The nest of actions, or with `return_log_prob` actions and their total
        log-probability `[...]`.

    Raises:
        ValueError: if with `return_log_prob` there is no distribution, or the shapes
            of the log-probabilities differ.

    Example:
        >>> policy = tfd.Categorical(logits=[[0.0, -100.0]])
        >>> actions, log_prob = sample_action_distribution(policy, True, seed=0)
        >>> actions.numpy().tolist(), log_prob.shape
        ([0], TensorShape([1]))
    """
    where = "sample_action_distribution"
    if not return_log_prob:
        return _draw(where, nested_distributions, seed, _stopped)
    return _draw_scored(where, nested_distributions, seed, _scored)


def rsample_action_distribution(
    nested_distributions: Any, return_log_prob: bool = False, seed: Any = None
) -> Any:
    """Draws actions through which gradients flow to the parameters.

    Args:
        nested_distributions: nest of distributions that are fully reparameterized.
        return_log_prob: whether to return the log-probability, too, with the gradient
            through the action; of a squashed draw it comes from the number before
            squashing.
        seed: seed of the draws.

    Returns:
        The nest of actions, or with `return_log_prob` actions and their total
        log-probability `[...]`.

    Raises:
        ValueError: if a distribution is not fully reparameterized; with
            `return_log_prob` also if there is no distribution, or the shapes of the
            log-probabilities differ.

    Example:
        >>> loc = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(loc)
        ...     action = rsample_action_distribution(tfd.Normal(loc, 1.0), seed=0)
        >>> tape.gradient(action, loc).numpy().tolist()
        [1.0, 1.0]
    """
    where = "rsample_action_distribution"
    modes.check_distributions(where, "nested_distributions", nested_distributions)
    for distribution in tf.nest.flatten(nested_distributions):
        kinds = tf.nest.flatten(distribution.reparameterization_type)
        if any(kind != tfd.FULLY_REPARAMETERIZED for kind in kinds):
            raise ValueError(
                f"`{where}`: `nested_distributions` expected distributions that are "
                f"fully reparameterized; got {type(distribution).__name__}; use "
                "`sample_action_distribution`"
            )
    if not return_log_prob:
        return _draw(
            where, nested_distributions, seed, lambda d, seed: d.sample(seed=seed)
        )
    return _draw_scored(
        where,
        nested_distributions,
        seed,
        lambda d, seed: d.experimental_sample_and_log_prob(seed=seed),
    )


def epsilon_greedy_sample(
    nested_distributions: Any, eps: Any = 0.1, seed: Any = None
) -> Any:
    """Draws actions with probability `eps`, else takes the mode.

    Each row (index of the first axis) of each part decides for itself; a distribution
    without batch axes is one row. No gradient flows through the actions.

    Args:
        nested_distributions: nest of distributions.
        eps: chance of a draw, in [0, 1], a number or a scalar tensor. As a tensor its
            changes cause no trace. Modes are not needed where it is the number 1, and
            no draws where it is 0.
        seed: seed of the draws.

    Returns:
        The nest of actions.

    Raises:
        ValueError: if `eps` is known not to be in [0, 1].
        NotImplementedError: if a mode is needed and not known.

    Example:
        >>> policy = tfd.Categorical(logits=[[0.0, 1.0], [2.0, 1.0]])
        >>> epsilon_greedy_sample(policy, eps=0.0).numpy().tolist()
        [1, 0]
    """
    where = "epsilon_greedy_sample"
    checks.check_within(where, "eps", eps, 0.0, 1.0)
    modes.check_distributions(where, "nested_distributions", nested_distributions)
    is_number = not tf.is_tensor(eps)
    if is_number and eps == 1:
        return _draw(where, nested_distributions, seed, _stopped)
    if is_number and eps == 0:
        return tf.nest.map_structure(
            lambda d: _without_gradient(modes.get_mode(d)), nested_distributions
        )

    def act(distribution: Any, seed: tf.Tensor) -> Any:
        coin, draw = random.split_seed(seed, 2)
        greedy = modes.get_mode(distribution)
        drawn = distribution.sample(seed=draw)
        batch = _first_batch_axis(distribution)
        is_greedy = draws.uniform(batch, coin, tf.float32) >= tf.cast(eps, tf.float32)
        return tf.nest.map_structure(
            lambda one, two: tf.stop_gradient(
                tf.where(_as_wide_as(is_greedy, one), two, one)
            ),
            drawn,
            greedy,
        )

    return _draw(where, nested_distributions, seed, act)


def total(
    where: str,
    name: str,
    values: Sequence[tf.Tensor],
    argument: str = "distributions",
) -> tf.Tensor:
    """Adds up values, one for each distribution of a nest, that must have one shape."""
    if not values:
        raise ValueError(
            f"`{where}`: `{argument}` expected a nest with a distribution at least; "
            "got none"
        )
    if len(values) == 1:
        return values[0]
    named = {f"{name} of leaf {index}": value for index, value in enumerate(values)}
    checks.check_same_shape(where, **named)
    return tf.add_n(values)


def _paired(where: str, distributions: Any, actions: Any) -> list[tuple[Any, Any]]:
    """Pairs each distribution of a nest with its action, in the order of `tf.nest`."""
    modes.check_distributions(where, "distributions", distributions)
    # The dtype of a distribution has the structure of its draws.
    draws = tf.nest.map_structure(lambda d: getattr(d, "dtype", None), distributions)
    try:
        tf.nest.assert_same_structure(draws, actions)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{where}`: `actions` expected the structure of `distributions`; {error}"
        ) from error
    leaves = iter(tf.nest.flatten(actions))
    return [
        (d, tf.nest.map_structure(lambda _: next(leaves), getattr(d, "dtype", None)))
        for d in tf.nest.flatten(distributions)
    ]


def _draw(
    where: str, nest: Any, seed: Any, act: Callable[[Any, tf.Tensor], Any]
) -> Any:
    """Maps distributions and seeds of their own to actions."""
    modes.check_distributions(where, "nested_distributions", nest)
    leaves = tf.nest.flatten(nest)
    seeds = random.split_seed(seed, len(leaves)) if leaves else []
    actions = [act(*pair) for pair in zip(leaves, seeds, strict=True)]
    return tf.nest.pack_sequence_as(nest, actions)


def _draw_scored(
    where: str, nest: Any, seed: Any, act: Callable[[Any, tf.Tensor], Any]
) -> Any:
    log_probs = []

    def draw(distribution: Any, seed: tf.Tensor) -> Any:
        action, log_prob = act(distribution, seed)
        log_probs.append(log_prob)
        return action

    actions = _draw(where, nest, seed, draw)
    return actions, total(where, "log_prob", log_probs, "nested_distributions")


def _without_gradient(nest: Any) -> Any:
    return tf.nest.map_structure(tf.stop_gradient, nest)


def _stopped(dist: tfp.distributions.Distribution, seed: tf.Tensor) -> Any:
    return _without_gradient(dist.sample(seed=seed))


def _scored(
    dist: tfp.distributions.Distribution, seed: tf.Tensor
) -> tuple[Any, tf.Tensor]:
    """A draw without gradient, and its log-probability with that of the score."""
    if isinstance(dist, tfd.Independent) and dist.batch_shape.rank is not None:
        value, log_prob = _scored(dist.distribution, seed)
        n_inner = dist.distribution.batch_shape.rank - dist.batch_shape.rank
        return value, tf.reduce_sum(log_prob, list(range(-n_inner, 0)))
    if isinstance(dist, product.Product):
        return _draw_scored("Product", dist.distributions, seed, _scored)
    if isinstance(dist, tfd.TransformedDistribution):
        return _scored_transformed(dist, seed)
    if isinstance(dist, squashed.SquashedNormal):
        return dist.sample_and_score(seed)
    value = _stopped(dist, seed)
    return value, dist.log_prob(value)


def _scored_transformed(dist: Any, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    base, bijector = dist.distribution, dist.bijector
    if not _is_elementwise(dist):
        value = _stopped(dist, seed)
        return value, dist.log_prob(value)
    x = _stopped(base, seed)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = bijector.forward(x)
    value, slope = _without_gradient((y, tape.gradient(y, x)))
    # What x must be for the action to stay where it is, to first order in the
    # bijector's parameters; the value is x itself.
    x -= tf.math.divide_no_nan(y - value, slope)
    log_slope = bijector.forward_log_det_jacobian(x, dist.event_shape.rank)
    return value, base.log_prob(x) - log_slope


def _is_elementwise(dist: Any) -> bool:
    """Whether numbers are mapped one by one, the batch axes being the base's alone."""
    bijector, rank = dist.bijector, dist.event_shape.rank
    ndims = (bijector.forward_min_event_ndims, bijector.inverse_min_event_ndims)
    if ndims != (0, 0) or rank is None or isinstance(bijector, tfb.AbsoluteValue):
        return False
    try:
        return bool(bijector.experimental_batch_shape(x_event_ndims=rank).rank == 0)
    except NotImplementedError:
        return False


def _first_batch_axis(dist: Any) -> Any:
    """The shape of one number per row."""
    batch = dist.batch_shape
    if batch.is_fully_defined():
        return batch.as_list()[:1]
    return dist.batch_shape_tensor()[:1]


def _as_wide_as(rows: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    ones = tf.ones([tf.rank(tensor) - tf.rank(rows)], tf.int32)
    return tf.reshape(rows, tf.concat([tf.shape(rows), ones], axis=0))
