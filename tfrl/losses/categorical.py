"""Value distributions over fixed atoms, and the loss that draws them to targets.

A network gives logits over N atoms, the values of `support`. C51 makes its targets by
`categorical_q_target` and gives them to `categorical_td_loss` beside the logits of the
action taken, `q_taken(logits, actions)`. Losses of quantiles are in
`tfrl.losses.regression`.
"""

from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile, records
from tfrl.losses import _extras, temporal_difference
from tfrl.ops import value_transforms

TensorLike: TypeAlias = operands.TensorLike


def categorical_mean(
    support: TensorLike,
    probs: TensorLike,
    transform: value_transforms.InvertibleTransform | None = None,
) -> tf.Tensor:
    """Computes the mean of a distribution over atoms.

        mean = sum_i support[i] * probs[i]
        mean = inverse_transform(sum_i support[i] * probs[i])     with a transform

    The latter is the inverse of `two_hot`.

    Args:
        support: `[N]` or `[..., N]`, the atoms.
        probs: `[..., N]`, their probabilities, floating.
        transform: in whose image the atoms are; None for plain values.

    Returns:
        `[...]`, dtype of `probs`.

    Raises:
        ValueError: if the numbers of atoms differ.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> categorical_mean([-1.0, 0.0, 1.0], [[0.0, 0.5, 0.5]]).numpy()
        array([0.5], dtype=float32)

    References:
        Bellemare et al., 2017, A Distributional Perspective on Reinforcement Learning,
        section 4.
    """
    where = "categorical_mean"
    probs = operands.leading(where, "probs", probs, axes=1)
    support = operands.along_last(where, "support", support, "probs", probs)
    mean = tf.reduce_sum(precision.widened(support) * precision.widened(probs), axis=-1)
    value_transforms.check_transform(where, transform)
    if transform is not None:
        mean = transform.inverse_transform(mean)
    return tf.cast(mean, probs.dtype)


def two_hot(
    values: TensorLike,
    support: TensorLike,
    transform: value_transforms.InvertibleTransform | None = None,
) -> tf.Tensor:
    """Spreads numbers over atoms: the two beside each share its probability.

        y = clip(transform(values), support[0], support[N-1])
        result[i] = (support[i+1] - y) / (support[i+1] - support[i])
        result[i+1] = 1 - result[i]      where support[i] <= y <= support[i+1]

    and 0 elsewhere: the distribution over the atoms of mean y that spreads least.
    `categorical_mean` of the same `support` and `transform` is the inverse within the
    range. It is a target of `categorical_td_loss`; with `SqrtLinearTransform` that of
    MuZero, with `Log1pTransform(1.0)` that of DreamerV3.

    Args:
        values: `[...]`, floating.
        support: `[N]`, at least 2 atoms, increasing.
        transform: of the values; None for plain ones.

    Returns:
        Probabilities `[..., N]`, dtype of `values`; the gradient flows to `values`.

    Raises:
        ValueError: if `support` is of another rank or known not to increase.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> two_hot([0.25, 5.0], [-1.0, 0.0, 1.0]).numpy()
        array([[0.  , 0.75, 0.25],
               [0.  , 0.  , 1.  ]], dtype=float32)

    References:
        Schrittwieser et al., 2020, Mastering Atari, Go, chess and shogi by planning
        with a learned model, appendix F.
    """
    where = "two_hot"
    values = operands.leading(where, "values", values)
    support = operands.alike(where, "support", support, "values", values)
    checks.check_rank(where, "support", support, exact=1)
    value_transforms.check_transform(where, transform)
    _check_targets(where, "support", support, values[..., tf.newaxis])
    wide = precision.widened(values)
    wide = wide if transform is None else transform.transform(wide)
    wide = wide[..., tf.newaxis]
    atoms = _projection(wide, tf.ones_like(wide), precision.widened(support))
    return tf.cast(atoms, values.dtype)


def categorical_projection(
    support: TensorLike, probs: TensorLike, target_support: TensorLike
) -> tf.Tensor:
    """Moves probabilities from some atoms to others.

    Each atom is first brought into the range of `target_support`; its probability is
    then shared by the two target atoms beside it, the nearer getting more:

        z[j] = clip(support[j], target_support[0], target_support[M-1])
        result[i] = sum_j max(0, 1 - |z[j] - target_support[i]| / gap) * probs[j]

    where gap is the distance of target atom i to its neighbour on the side of z[j]. The
    total is kept, and so is the mean of what was inside the range. Probability at an
    atom that both have stays there exactly.

    Args:
        support: `[N]` or `[..., N]`, atoms in any order.
        probs: `[..., N]`, their probabilities, floating.
        target_support: `[M]` or `[..., M]`, at least 2 atoms, increasing.

    Returns:
        Probabilities of the target atoms, `[..., M]`, dtype of `probs`.

    Raises:
        ValueError: if shapes do not fit, or `target_support` has less than 2 atoms or
            is known not to increase.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> categorical_projection([0.25, 5.0], [[0.5, 0.5]], [0.0, 1.0]).numpy()
        array([[0.375, 0.625]], dtype=float32)

    References:
        Bellemare et al., 2017, A Distributional Perspective on Reinforcement Learning,
        eq. 7.
    """
    where = "categorical_projection"
    probs = operands.leading(where, "probs", probs, axes=1)
    support = operands.along_last(where, "support", support, "probs", probs)
    targets = operands.alike(where, "target_support", target_support, "probs", probs)
    _check_targets(where, "target_support", targets, probs)
    return _projection(support, probs, targets)


def categorical_q_target(
    rewards: TensorLike,
    discounts: TensorLike,
    support: TensorLike,
    next_logits: TensorLike,
    next_q_selector: TensorLike | None = None,
) -> tf.Tensor:
    """Computes the target distribution of categorical Q-learning.

        p = softmax(next_logits[a]),  a = argmax_a next_q_selector[a]
        target = projection of p from rewards + discounts * support onto support

    Args:
        rewards: `[...]`, reward of the transition.
        discounts: `[...]`, gamma * (1 - terminated) of the transition.
        support: `[N]`, the atoms, increasing.
        next_logits: `[..., A, N]`, distribution of the value of every action in the
            next state, by the target network; floating.
        next_q_selector: `[..., A]`, the values that choose the action: those of the
            network being trained for double Q-learning. None takes the means of
            `next_logits`.

    Returns:
        Probabilities `[..., N]`; no gradient flows through them.

    Raises:
        ValueError: if shapes do not fit or `support` is known not to increase.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> next_logits = np.log([[[0.5, 0.5, 1e-9], [1e-9, 0.5, 0.5]]])
        >>> categorical_q_target(
        ...     [1.0], [0.5], [0.0, 1.0, 2.0], next_logits).numpy().round(2)
        array([[0.  , 0.25, 0.75]])

    References:
        Bellemare et al., 2017, A Distributional Perspective on Reinforcement Learning,
        algorithm 1.
    """
    where, leader = "categorical_q_target", "next_logits"
    logits = operands.leading(where, leader, next_logits, axes=2)
    support = operands.along_last(where, "support", support, leader, logits)
    checks.check_rank(where, "support", support, exact=1)
    selector = None
    if next_q_selector is not None:
        selector = operands.equal(
            where,
            "next_q_selector",
            next_q_selector,
            f"{leader}[..., 0]",
            logits[..., 0],
        )
    leader, element = f"{leader}[..., 0, :]", logits[..., 0, :]
    rewards = operands.aligned(where, "rewards", rewards, leader, element)
    discounts = operands.aligned(where, "discounts", discounts, leader, element)
    _check_targets(where, "support", support, element)
    return _q_target(logits, selector, rewards, discounts, support)


def categorical_td_loss(logits: TensorLike, targets: TensorLike) -> records.LossInfo:
    """Computes the cross entropy of a predicted distribution from its target.

        loss = -sum_i targets[i] * log_softmax(logits)[i]

    Gradients flow to `logits` alone.

    Args:
        logits: `[..., N]`, of the action taken: `q_taken(logits, actions)`; floating.
        targets: `[..., N]`, probabilities.

    Returns:
        `LossInfo(loss [...], extra)` with `extra.priorities` `[...]`: the
        Kullback-Leibler divergence of the prediction from the target, how much there
        is to learn, for prioritized replay.

    Raises:
        ValueError: if the shapes differ.
        TypeError: if the dtypes differ or are not floating.

    Example:
        >>> info = categorical_td_loss([[0.0, 0.0]], [[0.5, 0.5]])
        >>> info.loss.numpy(), info.extra.priorities.numpy()
        (array([0.6931472], dtype=float32), array([0.], dtype=float32))

    References:
        Bellemare et al., 2017, A Distributional Perspective on Reinforcement Learning,
        algorithm 1; the priorities are those of Hessel et al., 2018, Rainbow.
    """
    where = "categorical_td_loss"
    logits = operands.leading(where, "logits", logits, axes=1)
    targets = operands.equal(where, "targets", targets, "logits", logits)
    return _cross_entropy(logits, targets)


@compile.compiled(jit_compile=True)
def _q_target(
    logits: tf.Tensor,
    selector: tf.Tensor | None,
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    support: tf.Tensor,
) -> tf.Tensor:
    if selector is None:
        selector = categorical_mean(support, tf.nn.softmax(logits))
    greedy = tf.argmax(selector, axis=-1, output_type=tf.int32)
    taken = temporal_difference.q_taken(logits, greedy)
    # Where nothing follows, all atoms are the reward.
    probs = tf.nn.softmax(tf.where(discounts == 0, tf.zeros_like(taken), taken))
    atoms = rewards + discounts * support
    return tf.stop_gradient(_projection(atoms, probs, support))


@compile.compiled
def _cross_entropy(logits: tf.Tensor, targets: tf.Tensor) -> records.LossInfo:
    probs = tf.stop_gradient(precision.widened(targets))
    log_probs = tf.nn.log_softmax(precision.widened(logits))
    # An atom that neither has costs nothing, even if its logit is -inf.
    loss = -tf.reduce_sum(tf.math.multiply_no_nan(log_probs, probs), axis=-1)
    entropy = -tf.reduce_sum(tf.math.xlogy(probs, probs), axis=-1)
    extra = _extras.CategoricalLossExtra(tf.cast(loss - entropy, logits.dtype))
    return records.LossInfo(tf.cast(loss, logits.dtype), extra)


@compile.compiled(jit_compile=True)
def _projection(support: tf.Tensor, probs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    dtype, shape, count = probs.dtype, tf.shape(probs), tf.shape(targets)[-1]
    atoms, probs, targets = map(precision.widened, (support, probs, targets))
    atoms = tf.minimum(tf.maximum(atoms, targets[..., :1]), targets[..., -1:])
    atoms = tf.broadcast_to(atoms, shape)
    below = tf.stop_gradient(_below(atoms, targets))
    batch_dims = targets.shape.rank - 1
    start, end = (
        tf.gather(targets, below + step, batch_dims=batch_dims) for step in (0, 1)
    )
    moved = tf.clip_by_value((atoms - start) / (end - start), 0, 1) * probs
    flat = [tf.reshape(x, [-1, shape[-1]]) for x in (below, probs - moved, moved)]
    projected = _gathered_up(*flat, count)
    return tf.cast(tf.reshape(projected, tf.concat([shape[:-1], [count]], 0)), dtype)


def _below(atoms: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Index of the target below each atom.

    Computed where the targets are even: to search for every atom takes longer than all
    else.
    """
    last = tf.shape(targets)[-1] - 1
    low, high = targets[..., :1], targets[..., -1:]
    gap = (high - low) / tf.cast(last, atoms.dtype)
    eps = np.finfo(atoms.dtype.as_numpy_dtype).eps
    rounding = 8 * eps * tf.maximum(tf.abs(low), tf.abs(high))
    even = low + gap * tf.cast(tf.range(last + 1), atoms.dtype)
    is_even = (tf.abs(targets - even) <= rounding) & (rounding < gap / 64)

    def searched() -> tf.Tensor:
        rows = tf.reduce_prod(tf.shape(targets)[:-1])
        known, wanted = (tf.reshape(x, [rows, -1]) for x in (targets, atoms))
        found = tf.searchsorted(known, wanted, side="right")
        return tf.reshape(found - 1, tf.shape(atoms))

    below = tf.cond(
        tf.reduce_all(is_even), lambda: tf.cast((atoms - low) / gap, tf.int32), searched
    )
    return tf.clip_by_value(below, 0, last - 1)


@tf.custom_gradient
def _gathered_up(
    below: tf.Tensor, kept: tf.Tensor, moved: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, Any]:
    """Sums of what each target gets, from `[B, N]` to `[B, count]`."""
    batch = tf.shape(below)[0]
    # XLA's histogram takes a matrix without rows for a vector.
    padding = [[0, 1 - tf.minimum(batch, 1)], [0, 0]]
    padded = tf.pad(below, padding)

    def summed(weights: tf.Tensor) -> tf.Tensor:
        # The only histogram of rows in TensorFlow; faster than any scatter, and ten
        # times as fast as a sum over all pairs of atoms and targets.
        counts = tf.raw_ops.DenseBincount(
            input=padded,
            size=count,
            weights=tf.pad(weights, padding),
            binary_output=False,
        )
        return counts[:batch]

    def gradients(upstream: tf.Tensor) -> tuple:
        to_kept = tf.gather(upstream, below, batch_dims=1)
        to_moved = tf.gather(upstream, below + 1, batch_dims=1)
        return None, to_kept, to_moved, None

    # Nothing is moved from the last target.
    return summed(kept) + tf.pad(summed(moved)[:, :-1], [[0, 0], [1, 0]]), gradients


def _check_targets(where: str, name: str, targets: tf.Tensor, probs: tf.Tensor) -> None:
    # Shapes of one axis leave nothing to compare, which takes as long as the rest.
    rank = targets.shape.rank
    fits = rank == 1 or (
        rank == probs.shape.rank
        and targets.shape[:-1].is_compatible_with(probs.shape[:-1])
    )
    atoms = targets.shape[-1] if fits else None
    if not fits or (atoms is not None and atoms < 2):
        raise ValueError(
            f"`{where}`: `{name}` expected shape [M] or "
            f"{[*probs.shape[:-1].as_list(), 'M']} with M >= 2; got "
            f"{targets.shape.as_list()}"
        )
    if not tf.is_symbolic_tensor(targets):
        known = np.asarray(targets)
        if not (known[..., 1:] > known[..., :-1]).all():
            raise ValueError(f"`{where}`: `{name}` expected to increase; got {known}")
