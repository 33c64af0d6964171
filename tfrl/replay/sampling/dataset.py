"""Samples of a replay as a `tf.data.Dataset`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.replay.sampling import prioritized, transitions, uniform


def as_dataset(
    replay: uniform.UniformReplay | prioritized.PrioritizedReplay,
    batch_size: int,
    steps: int | None = None,
    transform: Callable[[transitions.Sample], Any] | None = None,
    prefetch: int = 2,
) -> tf.data.Dataset:
    """Returns what `replay.sample(batch_size)` draws, again and again, as a dataset.

    Batches are drawn on the host, in another thread, while earlier ones are learned
    from; their shapes are static, as TPUs need. Each is drawn anew: steps added
    meanwhile are included, and a second pass over the dataset draws other batches. Up
    to `prefetch + 1` batches are older than the newest steps and priorities. The replay
    may be empty until the first batch is drawn, which raises what its `sample` does, as
    an error of TensorFlow.

    `keras.Model.fit` accepts it like any dataset: `transform` makes batches `(x, y)` or
    `(x, y, sample_weight)`, `shuffle=False` avoids a warning. A `tf.distribute`
    strategy splits each batch among its replicas by
    `strategy.experimental_distribute_dataset(dataset)`; the batch size is then the
    global one. Later transformations run as you specify: nothing is tuned unless your
    own options enable that.

    Args:
        replay: `UniformReplay` or `PrioritizedReplay`.
        batch_size: samples in a batch.
        steps: batches in a pass; None for no end (give `fit` its `steps_per_epoch`).
        transform: from a `Sample` of tensors to an element of the dataset, in a graph,
            by `Dataset.map`; None leaves the `Sample`.
        prefetch: batches drawn ahead; 0 draws each on request.

    Returns:
        A `tf.data.Dataset`, which cannot be serialized.

    Raises:
        TypeError: if `replay` is something else, or a number is not an integer.
        ValueError: if a number is out of range.

    Example:
        >>> store = tfrl.replay.EpisodeStore(
        ...     tf.TensorSpec([4]), tf.TensorSpec([], tf.int32), 100, 2)
        >>> zeros = np.zeros(2, bool)
        >>> for t in range(5):
        ...     store.add(np.full([2, 4], t), [t, t], [1., 2.], zeros, zeros,
        ...               np.full([2, 4], t + 1))
        >>> replay = tfrl.replay.UniformReplay(store, seed=0)
        >>> dataset = as_dataset(replay, 32, steps=10, transform=lambda sample: (
        ...     sample.data.observations, sample.data.rewards, sample.weights))
        >>> [x.shape for x in next(iter(dataset))]
        [TensorShape([32, 4]), TensorShape([32]), TensorShape([32])]
    """
    where = "as_dataset"
    if not isinstance(replay, uniform.UniformReplay | prioritized.PrioritizedReplay):
        raise TypeError(
            f"`{where}`: `replay` expected UniformReplay or PrioritizedReplay; got "
            f"{type(replay).__name__}; make one of the store"
        )
    checks.check_whole_number(where, "batch_size", batch_size, low=1)
    if steps is not None:
        checks.check_whole_number(where, "steps", steps, low=1)
    checks.check_within(where, "prefetch", prefetch, 0, np.inf)
    spec = replay.sample_spec(batch_size)
    leaves = tf.nest.flatten(spec)

    def drawn() -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in tf.nest.flatten(replay.sample(batch_size))]

    def tensors(_: tf.Tensor) -> transitions.Sample:
        dtypes = [leaf.dtype for leaf in leaves]
        batch = tf.numpy_function(drawn, [], dtypes, stateful=True)
        for tensor, leaf in zip(batch, leaves, strict=True):
            tensor.set_shape(leaf.shape)
        return tf.nest.pack_sequence_as(spec, batch)

    numbers = (
        tf.data.Dataset.counter() if steps is None else tf.data.Dataset.range(steps)
    )
    dataset = numbers.map(tensors)
    if transform is not None:
        dataset = dataset.map(transform)
    # Batches drawn here are split among replicas, not files among workers.
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = policy
    # To free the thread that tunes may take a minute.
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    return dataset.prefetch(prefetch) if prefetch else dataset
