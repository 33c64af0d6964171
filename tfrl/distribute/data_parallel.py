"""Data-parallel methods: gradients are averaged over the replicas of a strategy."""

import functools
import numbers
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import nest
from tfrl.distribute import replicas

Method = Callable[..., Any]


def data_distributed(method: Method) -> Method:
    """Makes a method average its gradients over the replicas that call it.

        gradient of a variable = mean over replicas of each replica's gradient

    With the mean of equally many rows on every replica that is the gradient of the mean
    of all rows, as one replica would compute it on the whole batch. It happens inside
    `strategy.run` of a strategy with several replicas. Elsewhere, or if the object has
    a negative `_ddp_activated_rank`, the method is what it was.

    Every replica has to call the method, and to ask for gradients of what it returned,
    in the same order: they wait for each other. Variables that are not trained, such
    as running statistics, first take the values of replica 0; what `tfrl.replay` and
    generators of random numbers keep stays each replica's own.

    Args:
        method: a method that returns a nest of tensors. Gradients flow to its
            variables and to the tensors among its arguments, not to other tensors.

    Returns:
        The method; gradients of what it returns, with respect to variables, are the
        averages on all replicas. Keras optimizers add the replicas' gradients, so give
        them averages divided by their number.

    Raises:
        TypeError: by the method inside `strategy.run`, if it returns anything that is
            no tensor, number or text: gradients through it would not be averaged.

    Example:
        >>> strategy = tf.distribute.MirroredStrategy(
        ...     ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
        >>> class Line(tf.Module):
        ...     def __init__(self):
        ...         self.slope = tf.Variable(2.0)
        ...     @data_distributed
        ...     def loss(self, x):
        ...         return tf.reduce_mean(self.slope * x)
        >>> with strategy.scope():
        ...     line = Line()
        >>> @tf.function
        ... def gradient(x):
        ...     with tf.GradientTape() as tape:
        ...         loss = line.loss(x)
        ...     return tape.gradient(loss, line.slope)
        >>> shards = replicas.shard_batch(np.array([1.0, 3.0], np.float32), strategy)
        >>> float(replicas.unreplicate(strategy.run(gradient, (shards,))))
        2.0

    References:
        Li et al., 2020, PyTorch Distributed: Experiences on Accelerating Data Parallel
        Training, section 3.
    """
    return data_distributed_when()(method)


def data_distributed_when(
    cond: Callable[[Any], bool] | None = None,
) -> Callable[[Method], Method]:
    """Makes a method `data_distributed` where a condition holds.

    Args:
        cond: takes the object of the method and says whether to average; it has to
            say the same on every replica. None averages always.

    Returns:
        The decorator.

    Raises:
        TypeError: if `cond` is no function.

    Example:
        >>> class Sum:
        ...     shared = True
        ...     @data_distributed_when(lambda self: self.shared)
        ...     def of(self, x, y):
        ...         return x + y
        >>> int(Sum().of(tf.constant(1), tf.constant(2)))
        3
    """
    where = "data_distributed_when"
    checks.check_type(where, "cond", cond, (Callable, type(None)), "a function")

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def distributed(module: Any, *args: Any, **kwargs: Any) -> Any:
            rank = getattr(module, "_ddp_activated_rank", 0)
            context = tf.distribute.get_replica_context()
            alone = context is None or context.num_replicas_in_sync == 1
            if alone or rank < 0 or not (cond is None or cond(module)):
                return method(module, *args, **kwargs)
            return make_ddp_performer(module, method, rank)(*args, **kwargs)

        return distributed

    return decorate


def make_ddp_performer(
    module: Any,
    method: Method,
    ddp_rank: int,
    find_unused_parameters: bool = False,
) -> Method:
    """Returns a function that calls a method as `data_distributed` describes.

    Args:
        module: the object of the method.
        method: function of the object and further arguments.
        ddp_rank: number of the replica, from 0. Strategies know it by themselves.
        find_unused_parameters: variables that the method does not use never keep
            replicas waiting here, so both values do the same.

    Returns:
        A function of the further arguments. Under `strategy.scope()` it runs the method
        on every replica and returns per-replica values.

    Raises:
        TypeError: if `method` is no function or `ddp_rank` no int.
        ValueError: if `ddp_rank` is negative.

    Example:
        >>> performer = make_ddp_performer(3.0, lambda self, x: self * x, 0)
        >>> float(performer(tf.constant(2.0)))
        6.0
    """
    del find_unused_parameters
    checks.check_type("make_ddp_performer", "method", method, Callable, "a function")
    checks.check_whole_number("make_ddp_performer", "ddp_rank", ddp_rank, low=0)

    def perform(*args: Any, **kwargs: Any) -> Any:
        context = tf.distribute.get_replica_context()
        if context is None:
            return tf.distribute.get_strategy().run(perform, args, kwargs)
        if context.num_replicas_in_sync == 1:
            return method(module, *args, **kwargs)
        _take_buffers_of_first(context, module)
        return _averaging(functools.partial(method, module), (args, kwargs))

    return perform


def _averaging(function: Method, arguments: Any) -> Any:
    """Calls a function; the gradients of its variables will be averaged."""
    leaves = tf.nest.flatten(arguments)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, tf.Tensor)]
    outputs: list[Any] = []
    result: Any = None

    @tf.custom_gradient
    def call(*inputs: tf.Tensor) -> tuple[tuple, Callable]:
        nonlocal result
        for place, tensor in zip(places, inputs, strict=True):
            leaves[place] = tensor
        args, kwargs = tf.nest.pack_sequence_as(arguments, leaves)
        # Persistent, as whoever asks for gradients may ask several times.
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([tensor for tensor in inputs if tensor.dtype.is_floating])
            result = function(*args, **kwargs)
            # What is returned as it came would be unconnected otherwise.
            outputs[:] = [
                tf.identity(leaf) if _is_tensor(leaf) else leaf
                for leaf in tf.nest.flatten(result, expand_composites=True)
            ]
        tensors = [leaf for leaf in outputs if isinstance(leaf, tf.Tensor)]

        def gradient(*upstream: Any, variables: Any = ()) -> tuple[list, list]:
            sources = [list(inputs), list(variables)]
            of_inputs, found = tape.gradient(tensors, sources, upstream)
            dense = [None if x is None else tf.convert_to_tensor(x) for x in found]
            return of_inputs, replicas.mean(dense)

        return tuple(tensors), gradient

    tensors = iter(call(*(leaves[place] for place in places)))
    outputs[:] = [
        next(tensors) if isinstance(leaf, tf.Tensor) else leaf for leaf in outputs
    ]
    return tf.nest.pack_sequence_as(result, outputs, expand_composites=True)


def _is_tensor(leaf: Any) -> bool:
    plain = numbers.Number, str, bytes, np.ndarray, np.generic
    if leaf is None or isinstance(leaf, plain):
        return False
    if isinstance(leaf, tf.Tensor | tf.Variable | keras.Variable):
        return True
    raise TypeError(
        "`data_distributed`: the method expected to return nests of tensors; got "
        f"{leaf!r:.80}, through which gradients would not be averaged"
    )


def _take_buffers_of_first(context: tf.distribute.ReplicaContext, module: Any) -> None:
    buffers = list(_buffers(module))
    is_first = tf.equal(context.replica_id_in_sync_group, 0)
    for dtype in sorted({tf.as_dtype(one.dtype).name for one in buffers}):
        same = [one for one in buffers if tf.as_dtype(one.dtype).name == dtype]
        values = [tf.convert_to_tensor(one) for one in same]
        masked = [tf.where(is_first, value, tf.zeros_like(value)) for value in values]
        first = context.all_reduce(tf.distribute.ReduceOp.SUM, masked)
        for one, value in zip(same, first, strict=True):
            one.assign(value)


def _buffers(module: Any) -> Iterator[Any]:
    """Yields the variables that are not trained and that replicas share."""
    stored = {
        id(variable)
        for part in (module, *getattr(module, "submodules", ()))
        for value in getattr(part, "__dict__", {}).values()
        if _is_replay(value)
        for _, variable in nest.get_all_parameters(value)
    }
    for _, variable in nest.get_all_parameters(module):
        dtype = tf.as_dtype(variable.dtype)
        numeric = dtype.is_floating or dtype in (tf.int32, tf.int64)
        if numeric and not variable.trainable and id(variable) not in stored:
            yield variable


def _is_replay(value: Any) -> bool:
    return any(base.__module__.startswith("tfrl.replay.") for base in type(value).mro())
