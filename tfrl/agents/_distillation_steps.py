"""How a predictor learns to do what a random network does, in steps of one update."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl._internal import draws
from tfrl.agents import replicated, train_state
from tfrl.core import random

# The greatest bonus there is.
_MOST = 10.0
# Bound of whitened observations.
_WHITENED = 5.0
EPSILON = 1e-8


class Plan(NamedTuple):
    """What is known before the gradient steps.

    Attributes:
        rows: observations, their features by the target and weights, `[T * N, ...]`.
        order: rows of each step, `[steps, size]`.
        info: of the update, but for what the steps say.
    """

    rows: Any
    order: tf.Tensor
    info: dict[str, tf.Tensor]


class Progress(NamedTuple):
    """Where the gradient steps are: how many were taken, and the sum of their losses.

    Attributes:
        step: how many were taken.
        state: of the predictor after them.
        total: sum of their losses.
        stop: never.
    """

    step: tf.Tensor
    state: train_state.TrainState
    total: tf.Tensor
    stop: tf.Tensor


def folded(nest: Any, n_axes: int) -> Any:
    """Rows of a nest `[..., *shape]`."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[n_axes:]]), nest)


def whitened(node: Any, observations: Any) -> Any:
    """Observations `[..., *shape]` by the moments of a distillation; choices stay."""
    leaves = [
        tf.cast(kept.normalize(leaf, _WHITENED, EPSILON), tf.float32) if kept else leaf
        for kept, leaf in zip(
            node.observation_moments, tf.nest.flatten(observations), strict=True
        )
    ]
    return tf.nest.pack_sequence_as(observations, leaves)


def _features(
    node: Any, state: train_state.TrainState, rows: Any, params: Any = None
) -> Any:
    """What a network of a distillation makes of whitened rows, `[R, n]`."""
    scales = node.settings.scales
    leaves = zip(tf.nest.flatten(rows), scales, strict=True)
    inputs = [leaf if scale == 1.0 else leaf * scale for leaf, scale in leaves]
    inputs = tf.nest.pack_sequence_as(rows, inputs)
    return tf.cast(state(inputs, params=params, training=False), tf.float32)


def _known(observations: Any, valid: tf.Tensor) -> tuple[Any, tf.Tensor]:
    """Observations with zeros in rows not to be learned from, and where others are.

    Rows that are invalid, or have a NaN or an infinite number in any part. What they
    hold must not become NaN, whatever it is multiplied by.
    """
    outer = valid.shape.rank
    leaves = tf.nest.flatten(observations)
    for leaf in leaves:
        if leaf.dtype.is_floating:
            axes = [*range(outer, leaf.shape.rank)]
            valid &= tf.reduce_all(tf.math.is_finite(leaf), axes)

    def cleared(leaf: tf.Tensor) -> tf.Tensor:
        if not leaf.dtype.is_floating:
            return leaf
        shape = [*valid.shape, *[1] * (leaf.shape.rank - outer)]
        return tf.where(tf.reshape(valid, shape), leaf, tf.zeros_like(leaf))

    return tf.nest.map_structure(cleared, observations), valid


def _said(node: Any, rows: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Features by the target, `[R, n]`, and the predictor's errors, `[R]`."""
    shown = whitened(node, rows)
    features = _features(node, node.target, shown)
    differences = _features(node, node.predictor, shown) - features
    return features, tf.reduce_mean(tf.square(differences), axis=-1)


def _bonuses(node: Any, rows: Any) -> tf.Tensor:
    rows, known = _known(rows, tf.ones(tf.nest.flatten(rows)[0].shape[:1], tf.bool))
    spread = tf.sqrt(node.return_scale.moments.variance + EPSILON)
    scaled = tf.cast(_said(node, rows)[1], tf.float64) / spread
    return tf.where(known, tf.cast(tf.minimum(scaled, _MOST), tf.float32), 0.0)


def _seen(node: Any, observations: Any, known: tf.Tensor) -> Any:
    """The node whose moments have seen observations too, `[T, N, *shape]`."""
    weights = tf.cast(known, tf.float64)

    def updated(kept: Any, leaf: tf.Tensor) -> Any:
        if not kept or leaf.shape.rank < 5:
            return kept.update(leaf, weights) if kept else kept
        # In float64, images of many steps at once would take much memory.
        return tf.while_loop(
            lambda t, _: t < leaf.shape[0],
            lambda t, kept: (t + 1, kept.update(leaf[t], weights[t])),
            (tf.constant(0), kept),
        )[1]

    leaves = tf.nest.flatten(observations)
    found = map(updated, node.observation_moments, leaves)
    return node.replace(observation_moments=tuple(found))


def _prepare(
    node: Any, observations: Any, ended: Any, valid: Any, known: Any, said: Any = None
) -> tuple[Any, Plan, Progress]:
    """The node with moments, and all that the gradient steps need."""
    settings = node.settings
    if said is None:
        node = _seen(node, observations, known)
        observations = folded(observations, 2)
        said = _said(node, observations)
    features, errors = said
    # An end counts even where what was observed there does not.
    scale, bonuses = node.return_scale(
        tf.where(known, tf.reshape(errors, known.shape), np.nan),
        *(ended, valid),
        gamma=settings.gamma,
        clip=_MOST,
        epsilon=EPSILON,
    )
    bonuses = tf.where(known, bonuses, 0.0)
    weights = tf.reshape(tf.cast(known, tf.float32), [-1])
    mean = tf.reduce_sum(bonuses) / tf.maximum(tf.reduce_sum(weights), 1.0)
    n_rows, n_epochs = weights.shape[0], settings.n_epochs
    size = settings.n_rows("update", *valid.shape)
    rng, seed = random.split_seed(node.rng, 2)
    keys = draws.uniform([n_epochs, n_rows], seed, tf.float32)
    order = tf.argsort(keys, axis=-1)[:, : settings.n_minibatches * size]
    plan = Plan(
        (observations, features, weights),
        tf.reshape(order, [-1, size]),
        {"bonuses": bonuses, "bonus_mean": mean},
    )
    state = train_state.with_rate(node.predictor, settings.learning_rate)
    progress = Progress(tf.constant(0), state, tf.zeros([]), tf.constant(False))
    return node.replace(return_scale=scale, rng=rng), plan, progress


def _advance(node: Any, plan: Plan, progress: Progress, until: Any) -> Progress:
    """Takes gradient steps until so many were taken."""

    def body(step: tf.Tensor, states: Any, total: tf.Tensor) -> tuple:
        picked = plan.order[step]
        rows = tf.nest.map_structure(lambda x: tf.gather(x, picked), plan.rows)
        weight = tf.maximum(tf.reduce_sum(rows[2]), 1.0) / replicated.n_replicas()

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            observations, features, weights = part
            found = _features(node, state, whitened(node, observations), params)
            errors = tf.reduce_mean(tf.square(found - features), axis=-1)
            loss = tf.reduce_sum(weights * errors) / weight
            return loss, {"loss": loss}

        states, info = states.apply_loss_fn(loss_fn, rows)
        return step + 1, states, total + info["loss"]

    step, states, total = tf.while_loop(
        lambda step, *_: step < until,
        body,
        (
            progress.step,
            replicated.ReplicatedState.create(progress.state),
            progress.total,
        ),
    )
    return Progress(step, states.state, total, progress.stop)


# Beside the steps of replicas it is compiled, so that all draw what one alone does.
_compiled_prepare = replicated.compiled_update(_prepare)
_compiled_advance = replicated.compiled_update(_advance)
_compiled_said = replicated.compiled_update(_said)
_compiled_seen = replicated.compiled_update(_seen)
compiled_bonuses = replicated.compiled_update(_bonuses)


def _finished(node: Any, plan: Plan, progress: Progress) -> tuple[Any, dict]:
    loss = progress.total / tf.cast(plan.order.shape[0], tf.float32)
    info = {**plan.info, "predictor_loss": loss}
    return node.replace(predictor=progress.state), info


def update(
    work: replicated.Work, node: Any, observations: Any, ended: Any, valid: Any
) -> tuple[Any, dict[str, tf.Tensor]]:
    """Lets a `RandomNetworkDistillation` on lent networks learn; see its `update`.

    Args:
        work: what that costs.
        node: the distillation.
        observations: nest of `[T, N, *shape]`.
        ended: `[T, N]` bool.
        valid: `[T, N]` bool.

    Returns:
        The new node, and the info.
    """
    observations, known = _known(observations, valid)
    given = node, observations, ended, valid, known
    if work.is_brief or not tf.executing_eagerly():
        return replicated.run_update(_compiled_update, *given)
    return _update_in_pieces(work, *given)


def _update(node: Any, *given: Any) -> tuple[Any, dict]:
    node, plan, progress = _compiled_prepare(node, *given)
    progress = _advance(node, plan, progress, plan.order.shape[0])
    return _finished(node, plan, progress)


_compiled_update = replicated.compiled_update(_update)


def _update_in_pieces(
    work: replicated.Work,
    node: Any,
    observations: Any,
    ended: Any,
    valid: Any,
    known: Any,
) -> tuple[Any, dict]:
    """The same by calls that take a fraction of a second each."""
    n_steps, n_envs = valid.shape
    n_rows, n_all = work.n_forward_rows, n_steps * n_envs
    size = max(1, n_rows // n_envs)
    for start in range(0, n_steps, size):
        part = tf.nest.map_structure(
            lambda x, start=start: x[start : start + size], (observations, known)
        )
        node = replicated.run_alone(_compiled_seen, node, *part)
    rows = folded(observations, 2)
    # Pieces of one size are compiled once; the last is filled up by its last row.
    size = min(n_rows, n_all)
    picked = np.pad(np.arange(n_all), (0, -n_all % size), "edge")
    pieces = [
        replicated.run_alone(
            _compiled_said,
            node,
            tf.nest.map_structure(
                lambda x, at=at: tf.gather(x, picked[at : at + size]), rows
            ),
        )
        for at in range(0, len(picked), size)
    ]
    said = tuple(tf.concat(x, axis=0)[:n_all] for x in zip(*pieces, strict=True))
    node, plan, progress = replicated.run_alone(
        _compiled_prepare, node, rows, ended, valid, known, said
    )
    progress = replicated.in_pieces(
        work,
        lambda progress, until: replicated.run_update(
            _compiled_advance, node, plan, progress, until
        ),
        progress,
    )
    return _finished(node, plan, progress)
