"""A linear regression problem with known noise, to try learners on."""

from typing import Any

import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import random
from tfrl.datasets import _batches


class TestDataSet:
    """Normal features and noisy linear targets.

        targets = features @ weight + noise,   features, noise ~ N(0, 1)

    No learner predicts the targets better than to a mean squared error of 1.

    Args:
        input_dim: features of an example.
        output_dim: targets of an example.
        size: number of examples.
        weight: `[input_dim, output_dim]`; None draws it evenly from [5, 6).
        seed: of all draws, int or int32 `[2]`; None for fresh ones.

    Attributes:
        weight: `[input_dim, output_dim]` float32.

    Raises:
        TypeError: if a number is no int.
        ValueError: if a number is not positive or `weight` has another shape.

    Example:
        >>> data = TestDataSet(input_dim=2, size=10, seed=0)
        >>> features, targets = data[0]
        >>> len(data), features.shape, targets.shape
        (10, TensorShape([2]), TensorShape([1]))
    """

    __test__ = False  # pytest would take the name for a test's

    def __init__(
        self,
        input_dim: int = 3,
        output_dim: int = 1,
        size: int = 1000,
        weight: Any = None,
        *,
        seed: Any = None,
    ) -> None:
        where = "TestDataSet"
        checks.check_whole_number(where, "input_dim", input_dim, low=1)
        checks.check_whole_number(where, "output_dim", output_dim, low=1)
        checks.check_whole_number(where, "size", size, low=1)
        shape = [input_dim, output_dim]
        seeds = random.split_seed(random.checked_seed(where, seed), 3)
        if weight is None:
            weight = tf.random.stateless_uniform(shape, seeds[0], 5.0, 6.0)
        self.weight = tf.cast(tf.convert_to_tensor(weight), tf.float32)
        if self.weight.shape != shape:
            raise ValueError(
                f"`{where}`: `weight` expected the shape {shape}; got "
                f"{self.weight.shape.as_list()}"
            )
        self._features = tf.random.stateless_normal([size, input_dim], seeds[1])
        noise = tf.random.stateless_normal([size, output_dim], seeds[2])
        self._targets = tf.linalg.matmul(self._features, self.weight) + noise

    def __len__(self) -> int:
        return int(self._features.shape[0])

    def __getitem__(self, index: int) -> tuple[tf.Tensor, tf.Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"`TestDataSet`: `index` expected a number in [{-len(self)}, "
                f"{len(self) - 1}]; got {index}"
            )
        return self._features[index], self._targets[index]

    def get_features(self) -> tf.Tensor:
        """Returns all features, `[size, input_dim]` float32."""
        return self._features

    def get_targets(self) -> tf.Tensor:
        """Returns all targets, `[size, output_dim]` float32."""
        return self._targets


def load_test(
    train_bs: int = 50, test_bs: int = 10, num_workers: int = 0, *, seed: Any = None
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Returns 1000 examples of a linear problem to learn from and 500 to judge by.

    Both are `TestDataSet`s of 3 features and 1 target with the same weight, and both
    are shuffled anew in every epoch.

    Args:
        train_bs: batch size of the first.
        test_bs: batch size of the second.
        num_workers: batches made ahead of time in the background, 0 for none.
        seed: of the data and the shuffling, int; None for fresh ones.

    Returns:
        Two `tf.data.Dataset`s of (features `[B, 3]`, targets `[B, 1]`), float32.

    Raises:
        TypeError: if a number is no int.
        ValueError: if a batch size is not positive or `num_workers` negative.

    Example:
        >>> train, test = load_test(train_bs=100, seed=0)
        >>> len(train), len(test), next(iter(train))[0].shape
        (10, 50, TensorShape([100, 3]))
    """
    _batches.check("load_test", train_bs, test_bs, num_workers, seed)
    seeds = random.split_seed(seed, 2)
    train = TestDataSet(size=1000, seed=seeds[0])
    test = TestDataSet(size=500, weight=train.weight, seed=seeds[1])
    first, second = (
        _batches.shuffled((data.get_features(), data.get_targets()), size, seed)
        for data, size in ((train, train_bs), (test, test_bs))
    )
    return _batches.ahead(first, num_workers), _batches.ahead(second, num_workers)
