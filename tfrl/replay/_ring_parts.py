"""What a ring buffer is made of, on the host or on a device of TensorFlow."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import checks
from tfrl.replay import (
    _indices,
    _positions,
    _row_layout,
    numpy_storage,
    variable_buffer,
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which row holds what, and which indices and batches fit.

    Attributes:
        num_environments: number of environments.
        max_length: how many rows each has.
        ranks: rank of each leaf of one row.
        on_host: whether the parts are in NumPy, or in TensorFlow.
    """

    num_environments: int
    max_length: int
    ranks: tuple[int, ...]
    on_host: bool

    def circular(self, positions: Any) -> Any:
        """Returns where positions lie within their environment."""
        return positions % self.max_length

    def rows(self, ids: Any, positions: Any) -> Any:
        """Returns the rows of positions of environments."""
        return ids * self.max_length + self.circular(positions)

    def next_rows(self, ids: Any, positions: Any, everyone: bool) -> Any:
        """Returns rows as `rows` does, a slice where `everyone` stands alike."""
        if everyone and self.on_host:
            first = int(positions[0])
            if not np.count_nonzero(positions != first):
                return slice(self.circular(first), None, self.max_length)
        return self.rows(ids, positions)

    def integers(self, where: str, name: str, value: Any) -> Any:
        """Returns integers of any shape as an int64 array or tensor."""
        return (_indices.int64_array if self.on_host else _indices.int64_tensor)(
            where, name, value
        )

    def ids(self, where: str, env_ids: Any) -> Any:
        """Returns ids of existing environments, in any shape and number."""
        ids = self.integers(where, "env_ids", env_ids)
        return _indices.ensured(
            _indices.every((ids >= 0) & (ids < self.num_environments)),
            ids,
            f"`{where}`: `env_ids` expected integers in [0, {self.num_environments})",
            "number the environments from 0",
        )

    def distinct_ids(self, where: str, env_ids: Any) -> Any:
        """Returns `[B]` ids of existing environments, each at most once."""
        ids = self.ids(where, env_ids)
        expected = f"`{where}`: `env_ids` expected"
        if len(ids.shape) != 1 or ids.shape[0] == 0:
            raise ValueError(
                f"{expected} shape [B], B > 0; got {list(ids.shape)}; pass a list"
            )
        if tf.is_symbolic_tensor(ids):
            return ids
        ordered = np.sort(ids)
        if (ordered[1:] == ordered[:-1]).any():
            raise ValueError(
                f"{expected} each id once; got {np.asarray(ids).tolist()}; "
                "use one call per step of an environment"
            )
        return ids

    def batch_size(self, where: str, batch: Any) -> int | None:
        """Returns how many rows all leaves of a batch have, None if tracing hides it.

        Raises unless all leaves have one axis before those of the spec, of one size. A
        storage is less strict: it takes one row for all too.
        """
        shapes = [getattr(leaf, "shape", ()) for leaf in tf.nest.flatten(batch)]
        sizes: set[Any] = set()
        fits = len(shapes) == len(self.ranks)
        for shape, rank in zip(shapes, self.ranks, strict=fits):
            if getattr(shape, "rank", rank) is not None:
                fits = fits and len(shape) == rank + 1
                sizes.update(shape[:1])
        sizes.discard(None)
        if not fits or len(sizes) > 1:
            raise ValueError(
                f"`{where}`: `batch` expected the nest of the spec, its arrays "
                f"[B, *shape] of one B; got shapes {[str(shape) for shape in shapes]}; "
                "add the axis, or cut them"
            )
        return sizes.pop() if sizes else None

    def check_batch(self, where: str, batch: Any, ids: Any) -> None:
        """Raises unless a batch has a row for each of `ids`, as far as is known."""
        size, count = self.batch_size(where, batch), ids.shape[0]
        if None not in (size, count) and size != count:
            raise ValueError(
                f"`{where}`: `batch` expected one row for each of {count} "
                f"environments; got {size}; give as many, or `env_ids`"
            )


def parts(
    where: str,
    data_spec: Any,
    num_environments: int,
    max_length: int,
    device: str,
    shared: bool,
) -> tuple[Layout, Any, Any]:
    """Returns layout, positions and storage of a new ring buffer.

    Positions are a storage too: of `(positions, sizes)`, a row per environment.
    """
    checks.check_whole_number(where, "num_environments", num_environments, low=1)
    checks.check_whole_number(where, "max_length", max_length, low=1)
    on_host = device == "cpu"
    if not on_host and (shared or not str(device).startswith("/")):
        raise ValueError(
            f"`{where}`: `device` expected 'cpu', or without allow_multiprocess a "
            f"TensorFlow device, which begins with '/'; got {device!r}; pass for "
            "example '/GPU:0'"
        )
    environments, length = int(num_environments), int(max_length)
    rows = environments * length
    positions: Any
    storage: Any
    if on_host:
        storage = numpy_storage.NumpyStorage(data_spec, rows, shared=shared)
        contents = _row_layout.RowLayout(data_spec, rows).contents
        positions = _positions.Positions(
            f"{environments} environments, {contents}",
            environments,
            _positions.shared(environments) if shared else None,
        )
    else:
        number = tf.TensorSpec([], tf.int64)
        storage = variable_buffer.VariableStorage(data_spec, rows, device)
        positions = variable_buffer.VariableStorage((number,) * 2, environments, device)
    ranks = tuple(len(spec.shape) for spec in tf.nest.flatten(storage.data_spec))
    return Layout(environments, length, ranks, on_host), positions, storage
