"""Summaries of the sizes of weights and gradients, also of intermediate gradients."""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.distributions import spec
from tfrl.summaries import _recording


def summarize_variables(
    name_and_params: Iterable[tuple[str, Any]], with_histogram: bool = True
) -> None:
    """Records histogram and Euclidean norm of each variable.

    The tags are `summarize_vars/<name>_value` and `summarize_vars/<name>_value_norm`.
    The histogram is left out where a number is not finite; the norm is not. Nothing is
    computed where nothing is recorded. Not to be compiled by XLA.

    Args:
        name_and_params: pairs of name and variable, Keras' or TensorFlow's, or tensor:
            what `tfrl.core.get_all_parameters` returns.
        with_histogram: whether to record histograms.

    Raises:
        TypeError: if something else than a pair is among them.

    Example:
        >>> import tempfile
        >>> layer = keras.layers.Dense(2)
        >>> layer.build([None, 3])
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         summarize_variables([(v.path, v) for v in layer.variables])
    """
    _summarize("summarize_variables", "vars", "value", name_and_params, with_histogram)


def summarize_gradients(
    name_and_params: Iterable[tuple[str, Any]], with_histogram: bool = True
) -> None:
    """Records histogram and Euclidean norm of each gradient.

    The tags are `summarize_grads/<name>_gradient` and
    `summarize_grads/<name>_gradient_norm`; as `summarize_variables` otherwise.

    Args:
        name_and_params: pairs of the name of a variable and its gradient, as
            `tape.gradient` returns it: variables of TensorFlow and Keras hold no
            gradients of their own. None, of a variable without gradient, is left out.
        with_histogram: whether to record histograms.

    Raises:
        TypeError: if something else than a pair is among them, or a variable in the
            place of its gradient.

    Example:
        >>> import tempfile
        >>> gradients = [tf.constant([3.0, 4.0]), None]
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         summarize_gradients(zip(["kernel", "bias"], gradients))
    """
    _summarize(
        "summarize_gradients", "grads", "gradient", name_and_params, with_histogram
    )


def summarize_tensor_gradients(
    name: str,
    tensor: Any,
    batch_dims: int = 1,
    clone: bool = False,  # noqa: ARG001
) -> Any:
    """Returns a nest whose gradient is recorded on its way back.

    Of the gradient g that arrives at a tensor,

        norms = sqrt(sum of g^2 over all axes after the first batch_dims)

    `<name>/max_norm` is the greatest and `<name>/avg_norm` the mean; of a nest with
    paths, `<name>/<path>/max_norm` and so on. The values and the gradients themselves
    do not change. Gradients are recorded where they are taken: writer, step and
    `tf.summary.record_if` of `tape.gradient` count, and the name scope of this call.
    Where nothing is recorded at this call either, the nest is returned as it is.

    TensorFlow knows what flows back through an operation, not what flows to a tensor
    from everywhere: only uses of the *returned* tensors are seen. Use them everywhere
    downstream to see the whole gradient. Not to be compiled by XLA while a writer is
    in force.

    Args:
        name: first part of the tags.
        tensor: nest of tensors; what is not floating passes through.
        batch_dims: how many leading axes are a batch's.
        clone: of no effect: what is returned is always another tensor.

    Returns:
        The same nest, to be used instead of `tensor`.

    Raises:
        TypeError: if `batch_dims` is no int, or a tensor ragged or sparse.
        ValueError: if it is negative, or exceeds the axes of a tensor.

    Example:
        >>> import tempfile
        >>> x = tf.constant([[3.0, 4.0]])
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         with tf.GradientTape() as tape:
        ...             tape.watch(x)
        ...             y = summarize_tensor_gradients("features", x)
        ...             loss = tf.reduce_sum(y**2)
        ...         tape.gradient(loss, x).numpy().tolist()
        [[6.0, 8.0]]
    """
    where = "summarize_tensor_gradients"
    checks.check_whole_number(where, "batch_dims", batch_dims, low=0)
    if _recording.is_recording() is False:
        return tensor
    leaves = [
        _watched(where, tag, leaf, batch_dims)
        for tag, leaf in _recording.named_leaves(name, tensor)
    ]
    return tf.nest.pack_sequence_as(tensor, leaves)


def summarize_distribution_gradient(
    name: str, distribution: Any, batch_dims: int = 1, clone: bool = False
) -> Any:
    """Returns distributions the gradients of whose parameters are recorded.

    As `summarize_tensor_gradients` of the parameters: the tags of a normal distribution
    are `<name>/loc/max_norm`, `<name>/loc/avg_norm`, `<name>/scale/max_norm` and
    `<name>/scale/avg_norm`.

    Args:
        name: first part of the tags.
        distribution: distribution, or nest of distributions and tensors.
        batch_dims: how many leading axes are a batch's.
        clone: of no effect, see `summarize_tensor_gradients`.

    Returns:
        The same nest, to be used instead of `distribution`.

    Raises:
        ValueError: if a leaf is no distribution or tensor, or has less axes than
            `batch_dims`.

    Example:
        >>> import tempfile
        >>> loc, scale = tf.zeros([4, 2]), tf.ones([4, 2])
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with tf.summary.create_file_writer(directory).as_default(step=0):
        ...         with tf.GradientTape() as tape:
        ...             tape.watch(loc)
        ...             policy = tfrl.distributions.DiagMultivariateNormal(loc, scale)
        ...             policy = summarize_distribution_gradient("policy", policy)
        ...             log_probs = policy.log_prob(tf.ones([4, 2]))
        ...         tape.gradient(log_probs, loc).shape
        TensorShape([4, 2])
    """
    where = "summarize_distribution_gradient"
    checks.check_whole_number(where, "batch_dims", batch_dims, low=0)
    if _recording.is_recording() is False:
        return distribution
    specs = spec.extract_spec(distribution, from_dim=batch_dims)
    params = spec.distributions_to_params(distribution)
    params = summarize_tensor_gradients(name, params, batch_dims, clone)
    return spec.params_to_distributions(params, specs)


def _summarize(
    where: str,
    group: str,
    kind: str,
    named: Iterable[tuple[str, Any]],
    with_histogram: bool,
) -> None:
    expected = "pairs of name and tensor"
    checks.check_type(where, "name_and_params", named, Iterable, expected)

    def record() -> None:
        for pair in named:
            is_pair = isinstance(pair, tuple | list) and len(pair) == 2
            if not (is_pair and isinstance(pair[0], str)):
                raise checks.wrong_type(where, "name_and_params", pair, expected)
            name, value = pair
            if kind == "gradient" and isinstance(value, tf.Variable | keras.Variable):
                raise TypeError(
                    f"`{where}`: `name_and_params` expected gradients, as of "
                    f"`tape.gradient`; got the variable {name!r}"
                )
            if value is not None:
                values = _recording.numbers(where, "name_and_params", value)
                tag = f"summarize_{group}/{name}_{kind}"
                _recording.write_norm(tag, values, with_histogram)

    _recording.when_recording(record)


def _watched(where: str, tag: str, leaf: Any, batch_dims: int) -> Any:
    if not (tf.is_tensor(leaf) and tf.as_dtype(leaf.dtype).is_floating):
        return leaf
    leaf = _recording.numbers(where, "tensor", leaf)
    checks.check_rank(where, "tensor", leaf, at_least=batch_dims)
    scope = tf.get_current_name_scope()

    def record(upstream: tf.Tensor) -> None:
        shape = tf.shape(upstream, tf.int64)
        n_rows = tf.reduce_prod(shape[:batch_dims])
        width = tf.reduce_prod(shape[batch_dims:])
        # Squares of float32 never overflow there.
        rows = tf.reshape(tf.cast(upstream, tf.float64), [n_rows, width])
        norms = tf.norm(rows, axis=1)
        tf.summary.scalar(f"{tag}/max_norm", tf.reduce_max(norms))
        tf.summary.scalar(f"{tag}/avg_norm", tf.reduce_mean(norms))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        with _recording.in_scope(scope):
            _recording.when_recording(
                lambda: _recording.when(tf.size(upstream) > 0, lambda: record(upstream))
            )
        return upstream

    @tf.custom_gradient
    def watched(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tf.identity(x), gradient

    return watched(leaf)
