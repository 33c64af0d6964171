"""What loaders share: their numbers, downloads that failed, batches of `tf.data`."""

import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from tfrl._internal import checks

T = TypeVar("T")


def check(
    where: str, train_bs: Any, test_bs: Any, num_workers: Any = 0, seed: Any = None
) -> None:
    """Raises unless the numbers of a loader are what they should be."""
    checks.check_whole_number(where, "train_bs", train_bs, low=1)
    checks.check_whole_number(where, "test_bs", test_bs, low=1)
    checks.check_whole_number(where, "num_workers", num_workers, low=0)
    if seed is not None:
        checks.check_whole_number(where, "seed", seed, low=-(2**63), high=2**63 - 1)


def existing(where: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path of a regular file or a folder; raises unless it is one."""
    file = pathlib.Path(path)
    if not (file.is_dir() or file.is_file()):
        raise ValueError(
            f"`{where}`: `path` expected a file or folder that exists; got "
            f"{str(file)!r}"
        )
    return file


def shuffled(arrays: Any, batch_size: int, seed: int | None) -> tf.data.Dataset:
    """Batches of rows in another order every epoch."""
    data = tf.data.Dataset.from_tensor_slices(arrays)
    return data.shuffle(int(data.cardinality()), seed=seed).batch(batch_size)


def ahead(data: tf.data.Dataset, num_workers: int) -> tf.data.Dataset:
    """The same batches, some of them made in the background."""
    return data.prefetch(num_workers) if num_workers else data


def fetched(where: str, what: str, fetch: Callable[[], T]) -> T:
    """Returns `fetch()`; any failure of it says how to do without a connection."""
    try:
        return fetch()
    # Keras' downloader raises bare `Exception`s.
    except Exception as error:
        raise ConnectionError(
            f"`{where}`: `path` expected a place to read {what} from, or a connection "
            f"to download it; got None and {type(error).__name__}: {error}; get the "
            "file where there is a connection and pass its `path`"
        ) from error
