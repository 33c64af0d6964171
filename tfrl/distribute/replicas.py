"""Values of every replica: the same on all, a share on each, and their mean.

Replicas are those of a `tf.distribute.Strategy`. `strategy.run` takes the nests made
here, `PyTreeNode`s among them, but returns no `PyTreeNode`: let the function return
`tf.nest.flatten(node)` and put it together outside with `tf.nest.pack_sequence_as`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks

# What collective operations do not gather, what holds it exactly, how it gets there.
_TRAVELS_AS = {
    **dict.fromkeys([tf.bool, tf.int8, tf.uint8], (tf.float16, tf.cast)),
    **dict.fromkeys([tf.int16, tf.uint16, tf.bfloat16], (tf.float32, tf.cast)),
    tf.uint32: (tf.int32, tf.bitcast),
    tf.uint64: (tf.int64, tf.bitcast),
    tf.complex64: (tf.float32, tf.bitcast),
    tf.complex128: (tf.float64, tf.bitcast),
}


def replicate(tree: Any, strategy: tf.distribute.Strategy | None = None) -> Any:
    """Gives every replica a copy of the same values.

        value of replica i = tree,    i = 0 .. n_replicas - 1

    The copies lie on the replicas' devices (on TPUs they travel there with the first
    `strategy.run`). On several workers each calls this with equal values and holds the
    copies of its own replicas.

    Args:
        tree: nest of tensors, arrays, variables or numbers, such as a `TrainState`.
        strategy: whose replicas; the one in scope by default.

    Returns:
        The same structure of per-replica values. A strategy of one device has no such
        values: its leaves are plain tensors.

    Raises:
        TypeError: if a leaf is distributed already, or `strategy` is not a strategy.
        ValueError: if called inside `strategy.run`.

    Example:
        >>> strategy = tf.distribute.MirroredStrategy(
        ...     ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
        >>> weights = replicate({"w": 3.0}, strategy)
        >>> local = strategy.experimental_local_results(weights["w"])
        >>> [float(value) for value in local]
        [3.0, 3.0]
        >>> unreplicate(weights)
        {'w': <tf.Tensor: shape=(), dtype=float32, numpy=3.0>}
    """
    strategy = _checked_strategy("replicate", strategy)
    leaves = [
        None if leaf is None else tf.convert_to_tensor(leaf)
        for leaf in _plain_leaves("replicate", "tree", tree)
    ]
    return _distributed(strategy, tree, leaves, lambda leaf, _: leaf)


def unreplicate(tree: Any) -> Any:
    """Takes the first replica's values.

        result = value of replica 0

    Nothing is averaged: of values that differ, the others are ignored. On several
    workers it is the first replica of the worker that asks.

    Args:
        tree: nest of per-replica values, as `replicate` and `strategy.run` return
            them; other leaves stay as they are.

    Returns:
        The same structure of single values.

    Example:
        >>> strategy = tf.distribute.MirroredStrategy(
        ...     ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
        >>> rows = shard_batch(tf.constant([1.0, 2.0, 3.0, 4.0]), strategy)
        >>> unreplicate(rows).numpy().tolist()
        [1.0, 2.0]
    """

    def first(leaf: Any) -> Any:
        if not isinstance(leaf, tf.distribute.DistributedValues):
            return leaf
        value = leaf.values[0]
        return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value

    return tf.nest.map_structure(first, tree)


def shard_batch(batch: Any, strategy: tf.distribute.Strategy | None = None) -> Any:
    """Splits the rows of a batch evenly over the replicas, in order.

        rows of replica i = batch[i * b : (i + 1) * b],    b = B / n_replicas

    On several workers each calls this with the same, global batch and holds the rows
    of its own replicas.

    Args:
        batch: nest of `[B, ...]` tensors or arrays; None leaves stay.
        strategy: whose replicas; the one in scope by default.

    Returns:
        The same structure of per-replica values `[b, ...]`; plain tensors where the
        strategy has one device.

    Raises:
        TypeError: if a leaf is no dense array, or `strategy` is not a strategy.
        ValueError: if B is 0 or no multiple of the number of replicas (where B is
            unknown while tracing, the call of the graph fails instead); if leaves
            differ in B; if called inside `strategy.run`.

    Example:
        >>> strategy = tf.distribute.MirroredStrategy(
        ...     ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
        >>> shares = shard_batch({"x": np.arange(6).reshape(6, 1)}, strategy)
        >>> [rows.shape for rows in strategy.experimental_local_results(shares["x"])]
        [TensorShape([3, 1]), TensorShape([3, 1])]
        >>> shard_batch({"x": np.zeros([7, 1])}, strategy)
        Traceback (most recent call last):
        ...
        ValueError: `shard_batch`: `batch` expected rows that 2 replicas share evenly;
        got 7; pad it with 1 row(s) of weight 0 and divide by the sum of the weights,
        or leave out the last 1
    """
    strategy = _checked_strategy("shard_batch", strategy)
    n_replicas = strategy.num_replicas_in_sync
    leaves = [
        leaf if leaf is None or isinstance(leaf, np.ndarray) else _dense(leaf)
        for leaf in _plain_leaves("shard_batch", "batch", batch)
    ]
    _check_rows([leaf for leaf in leaves if leaf is not None], n_replicas)

    def shares(leaf: Any) -> Any:
        if leaf is None or n_replicas == 1:
            return leaf
        # Of an array the shares are views: each device gets its own rows alone.
        split = np.split if isinstance(leaf, np.ndarray) else tf.split
        return split(leaf, n_replicas)

    return _distributed(
        strategy,
        batch,
        [shares(leaf) for leaf in leaves],
        lambda parts, i: parts if n_replicas == 1 else parts[i],
    )


def mean(tree: Any) -> Any:
    """Averages over the replicas, inside `strategy.run`.

        result = sum_i (value of replica i) / n_replicas

    Every replica gets the same result, and gradients flow through it. It is the mean
    of a global batch where each replica holds a mean over equally many rows. A
    `tf.while_loop` belongs around `strategy.run`: TensorFlow does not reduce over
    mirrored replicas within one of theirs.

    Args:
        tree: nest of tensors of any shape, the same on every replica; None leaves stay.

    Returns:
        The same structure. Floating-point and complex dtypes are kept, booleans and
        integers become float32. Without a strategy there is one replica.

    Raises:
        ValueError: if called where no replica runs: under `strategy.scope()` alone.

    Example:
        >>> strategy = tf.distribute.MirroredStrategy(
        ...     ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
        >>> @tf.function
        ... def averaged(shares):
        ...     return strategy.run(lambda x: mean(tf.reduce_max(x)), (shares,))
        >>> float(unreplicate(averaged(shard_batch(np.array([1.0, 5.0]), strategy))))
        3.0
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            "`mean`: `tree` expected inside `strategy.run`; got a call under "
            "`strategy.scope()`, where no replica runs; use "
            "`strategy.reduce('MEAN', value, axis=None)` there"
        )
    leaves = [
        None if leaf is None else _averaged(leaf) for leaf in tf.nest.flatten(tree)
    ]
    if context.num_replicas_in_sync > 1:
        # Reducers pack what they get in one call, and cannot pack mixed dtypes.
        by_dtype: dict[tf.DType, list[int]] = {}
        for place, leaf in enumerate(leaves):
            if leaf is not None:
                by_dtype.setdefault(leaf.dtype, []).append(place)
        for places in by_dtype.values():
            same = [leaves[place] for place in places]
            means = context.all_reduce(tf.distribute.ReduceOp.MEAN, same)
            for place, value in zip(places, means, strict=True):
                leaves[place] = value
    return tf.nest.pack_sequence_as(tree, leaves)


def gathered(tree: Any, axis: int = 0) -> Any:
    """Puts the parts of all replicas together, in their order.

        result = concat(value of replica 0, value of replica 1, ...)

    It is `strategy.gather` for numbers of every kind: the collective operations, by
    which most strategies gather, know floats, int32 and int64 alone. Others travel as
    one of these that holds their values exactly.

    Args:
        tree: nest of values of replicas, as `shard_batch` and `strategy.run` return
            them: of a worker with one replica they are plain tensors. None leaves stay.
        axis: along which they are put together.

    Returns:
        The same structure of tensors; without a strategy `tree` itself.

    Example:
        >>> strategy = tf.distribute.MirroredStrategy(
        ...     ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
        >>> with strategy.scope():
        ...     gathered(shard_batch(np.array([True, False]))).numpy()
        array([ True, False])
    """
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync == 1:
        return tree

    def leaf(part: Any) -> Any:
        if part is None:
            return None
        parts = strategy.experimental_local_results(part)
        dtype, shapes = parts[0].dtype, [x.shape for x in parts]
        to, change = _TRAVELS_AS.get(dtype, (dtype, tf.cast))
        if to != dtype:
            part = strategy.run(lambda x: change(x, to), (part,))
        whole = strategy.gather(part, axis=axis)
        whole = whole if to == dtype else change(whole, dtype)
        if len(parts) == strategy.num_replicas_in_sync:  # of which some forget shapes
            whole.set_shape(_shape_of_all(shapes, axis))
        return whole

    return tf.nest.map_structure(leaf, tree)


def _shape_of_all(shapes: list[tf.TensorShape], axis: int) -> tf.TensorShape:
    """The shape of parts that are put together along an axis, as far as it is known."""
    if any(shape.rank is None for shape in shapes):
        return tf.TensorShape(None)
    sizes = [shape[axis] for shape in shapes]
    whole = shapes[0].as_list()
    whole[axis] = None if None in sizes else sum(sizes)
    return tf.TensorShape(whole)


def _averaged(leaf: Any) -> tf.Tensor:
    # A worker with one replica reduces at the device of the tensor, which the argument
    # of a function has not.
    tensor = tf.identity(leaf)
    if tensor.dtype.is_floating or tensor.dtype.is_complex:
        return tensor
    return tf.cast(tensor, tf.float32)


def _checked_strategy(where: str, strategy: Any) -> tf.distribute.Strategy:
    if strategy is None:
        strategy = tf.distribute.get_strategy()
    kind = tf.distribute.Strategy
    checks.check_type(where, "strategy", strategy, kind, "a tf.distribute.Strategy")
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        raise ValueError(
            f"`{where}`: `strategy` expected outside `strategy.run`; got a call by a "
            "replica, which sees its own values only"
        )
    return strategy


def _plain_leaves(where: str, name: str, tree: Any) -> list[Any]:
    leaves = tf.nest.flatten(tree)
    distributed = tf.types.experimental.distributed.PerReplica
    if any(isinstance(leaf, distributed) for leaf in leaves):
        raise TypeError(
            f"`{where}`: `{name}` expected values of no replica; got a per-replica "
            "value; it is distributed already, or take `unreplicate` first"
        )
    return leaves


def _dense(leaf: Any) -> tf.Tensor:
    if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices):
        raise TypeError(
            "`shard_batch`: `batch` expected dense arrays; got "
            f"{type(leaf).__name__}; convert it, for instance with `to_tensor()`"
        )
    return tf.convert_to_tensor(leaf)


def _check_rows(leaves: list[Any], n_replicas: int) -> None:
    for leaf in leaves:
        checks.check_rank("shard_batch", "batch", leaf, at_least=1)
    shapes = [tf.TensorShape(leaf.shape) for leaf in leaves]
    known = {shape[0] for shape in shapes if shape.rank} - {None}
    if len(known) > 1:
        raise ValueError(
            "`shard_batch`: `batch` expected leaves with one number of rows; got "
            f"{sorted(known)}"
        )
    for rows in known:
        over = rows % n_replicas
        if rows == 0:
            raise ValueError(
                "`shard_batch`: `batch` expected rows for every replica; got 0"
            )
        if over:
            raise ValueError(
                f"`shard_batch`: `batch` expected rows that {n_replicas} replicas "
                f"share evenly; got {rows}; pad it with {n_replicas - over} row(s) of "
                "weight 0 and divide by the sum of the weights, or leave out the last "
                f"{over}"
            )


def _distributed(
    strategy: tf.distribute.Strategy,
    tree: Any,
    sources: list[Any],
    value_of: Callable[[Any, int], Any],
) -> Any:
    """`tree` with per-replica leaves: `value_of(source, number of the replica)`."""
    several = strategy.num_replicas_in_sync > 1
    devices: tuple[str, ...] = ()
    # TPUs get their inputs from the host, with the program.
    if several and not isinstance(strategy, tf.distribute.TPUStrategy):
        devices = strategy.extended.worker_devices
    places = [place for place, source in enumerate(sources) if source is not None]

    def values(context: tf.distribute.experimental.ValueContext) -> list[tf.Tensor]:
        number = context.replica_id_in_sync_group if several else 0
        # Workers have equally many devices, and count their replicas one after another.
        device = devices[number % len(devices)] if devices else None
        with tf.device(device):
            return [tf.identity(value_of(sources[place], number)) for place in places]

    leaves: list[Any] = [None] * len(sources)
    distributed = strategy.experimental_distribute_values_from_function(values)
    for place, value in zip(places, distributed, strict=True):
        leaves[place] = value
    return tf.nest.pack_sequence_as(tree, leaves)
