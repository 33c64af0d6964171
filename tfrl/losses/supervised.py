"""Losses of supervised learning, for one predictor or several side by side.

Unlike the other losses of the room these sum over the whole batch.
"""

import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import compile, records


def classification_loss(output: tf.Tensor, target: tf.Tensor) -> records.LossInfo:
    """Computes the cross entropy of predicted classes, summed, and their accuracy.

        loss     = sum_{b,n} -log softmax(output[b, n])[target[b, n]]
        accuracy = mean_{b,n} 1[argmax output[b, n] = target[b, n]]

    B is the batch, N the number of predictors (1 where there is no such axis), D the
    number of classes.

    Args:
        output: `[B, D]` or `[B, N, D]` floating, the logits. `[B, N * D]`, one
            predictor after the other, is taken as well.
        target: `[B]`, `[B, 1]`, `[B, N]` or `[B, N, 1]`, integer class in [0, D).

    Returns:
        `LossInfo(loss [], accuracy [])`, both in the dtype of `output`.

    Raises:
        ValueError: if the shapes do not fit together.
        TypeError: if `output` is not floating or `target` not integer.

    Example:
        >>> info = classification_loss(tf.zeros([3, 2]), tf.constant([0, 0, 1]))
        >>> info.loss.numpy().round(4), info.extra.numpy().round(4)
        (np.float32(2.0794), np.float32(0.6667))

    References:
        Bishop, 2006, Pattern Recognition and Machine Learning, eq. 4.108.
    """
    where = "classification_loss"
    output = checks.as_tensor(where, "output", output)
    target = checks.as_tensor(where, "target", target)
    checks.check_floating(where, "output", output)
    if not target.dtype.is_integer:
        raise TypeError(
            f"`{where}`: `target` expected integer classes; got {target.dtype.name}"
        )
    _check_classes(output.shape, target.shape)
    if target.dtype not in (tf.int32, tf.int64):
        target = tf.cast(target, tf.int64)
    return records.LossInfo(*_cross_entropy(output, target))


def regression_loss(output: tf.Tensor, target: tf.Tensor) -> records.LossInfo:
    """Computes half the squared error, summed over everything.

        loss = 1/2 sum (output - target)^2

    Args:
        output: `[B, D]` or `[B, N, D]` floating, predictions; D is 1 for scalars.
        target: of the same shape; cast to the dtype of `output`.

    Returns:
        `LossInfo(loss [], ())`, the loss in the dtype of `output`.

    Raises:
        ValueError: if the shapes differ; nothing is broadcast.
        TypeError: if `output` is not floating.

    Example:
        >>> regression_loss(tf.constant([[1.0], [2.0]]), tf.zeros([2, 1])).loss.numpy()
        np.float32(2.5)

    References:
        Bishop, 2006, Pattern Recognition and Machine Learning, eq. 3.12.
    """
    where = "regression_loss"
    output = checks.as_tensor(where, "output", output)
    target = checks.as_tensor(where, "target", target, dtype_hint=output.dtype)
    checks.check_floating(where, "output", output)
    checks.check_same_shape(where, output=output, target=target)
    loss = tf.nn.l2_loss(output - tf.cast(target, output.dtype))
    return records.LossInfo(loss, ())


def _check_classes(output: tf.TensorShape, target: tf.TensorShape) -> None:
    """Raises where known dimensions contradict each other."""
    if output.rank is None or target.rank is None:
        return
    fits = output.rank in (2, 3) and target.rank in (1, 2, 3)
    if fits:
        predictors = target[1] if target.rank > 1 else 1
        fits = output[:1].is_compatible_with(target[:1])
        if target.rank == 3:
            fits = fits and target[2] in (1, None)
        if output.rank == 3:
            fits = fits and (None in (output[1], predictors) or output[1] == predictors)
        elif None not in (output[1], predictors):
            fits = fits and predictors > 0 and output[1] % predictors == 0
    if not fits:
        raise ValueError(
            "`classification_loss`: `target` expected [B], [B, 1], [B, N] or "
            "[B, N, 1] for `output` of [B, D], [B, N, D] or [B, N * D]; "
            f"got {target} for {output}"
        )


@compile.compiled
def _cross_entropy(output: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    shape = tf.shape(target)
    predictors = 1 if target.shape.rank == 1 else shape[1]
    labels = tf.reshape(target, [shape[0], predictors])
    if output.shape.rank != 3:
        output = tf.reshape(output, [tf.shape(output)[0], predictors, -1])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, output)
    hits = tf.argmax(output, axis=-1, output_type=labels.dtype) == labels
    # float16 cannot count beyond 2048.
    accuracy = tf.reduce_mean(tf.cast(hits, tf.float32))
    return tf.reduce_sum(losses), tf.cast(accuracy, output.dtype)
