"""Rows in variables: what a ring buffer keeps on an accelerator, inside tf.function."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.replay import _indices


class VariableStorage(tf.Module):
    """Rows of nests in variables `[capacity, *spec.shape]`, one per leaf, at first 0.

    The counterpart of `NumpyStorage` for code that runs inside `tf.function`, with or
    without XLA, and for memory of an accelerator. Reading gathers rows, writing
    scatters them: the whole variable is never copied. It is a `tf.Module`:
    `tf.train.Checkpoint` restores its variables.

    On the host `NumpyStorage` reads and writes many times faster.

    Args:
        data_spec: nest of specs of one row, every dimension known.
        capacity: number of rows.
        device: TensorFlow device that holds the variables, such as "/GPU:0".
        name: name of the module.

    Raises:
        TypeError: if `capacity` is not an integer, or `device` is not a string.
        ValueError: if `capacity` is less than 1, a dimension of the spec is unknown,
            or there is no such device.

    Example:
        >>> storage = VariableStorage({"x": tf.TensorSpec([2])}, 3, "/CPU:0")
        >>> storage.set([2, 0], {"x": np.array([[1, 2], [3, 4]], np.float32)})
        >>> storage.get([0, 1])["x"].numpy()
        array([[3., 4.],
               [0., 0.]], dtype=float32)
    """

    def __init__(
        self,
        data_spec: Any,
        capacity: int,
        device: str = "/CPU:0",
        name: str = "VariableStorage",
    ) -> None:
        super().__init__(name=name)
        checks.check_whole_number("VariableStorage", "capacity", capacity, low=1)
        _check_device(device)
        specs = tf.nest.flatten(data_spec)
        for spec in specs:
            kinds = tf.TensorSpec, "a nest of tf.TensorSpec"
            checks.check_type("VariableStorage", "data_spec", spec, *kinds)
            checks.check_known_shape("VariableStorage", "data_spec", spec)
        self._capacity = int(capacity)
        self._device = device
        # Behind functions: TensorFlow would wrap the containers to track them.
        self._spec = functools.partial(lambda spec: spec, data_spec)
        self._specs = functools.partial(tuple, specs)
        self._pack = functools.partial(tf.nest.pack_sequence_as, data_spec)
        self._check_nest = functools.partial(tf.nest.assert_same_structure, data_spec)
        with tf.device(device):
            self._variables = [
                tf.Variable(
                    tf.zeros([self._capacity, *spec.shape], spec.dtype),
                    trainable=False,
                )
                for spec in specs
            ]

    @property
    def capacity(self) -> int:
        """Number of rows."""
        return self._capacity

    @property
    def data_spec(self) -> Any:
        """Nest of specs of one row."""
        return self._spec()

    @property
    def device(self) -> str:
        """The device that holds the variables, as it was given."""
        return self._device

    def get(self, idx: Any, out: None = None) -> Any:
        """Reads rows.

        Args:
            idx: integers of any shape in `[0, capacity)`. Beyond it the CPU raises in
                a graph too; a GPU reads zeros, XLA the first or the last row.
            out: None; reading into arrays is not supported.

        Returns:
            Nest of tensors `[*idx.shape, *spec.shape]`, copies.

        Raises:
            TypeError: if `idx` does not hold integers.
            ValueError: if an index whose value is known has no row, or `out` is given.
        """
        if out is not None:
            raise ValueError(
                "`VariableStorage.get`: `out` expected None, as rows come in tensors "
                f"of their own; got {type(out).__name__}; take what is returned"
            )
        rows = self._rows("get", idx)
        return self._pack([tf.gather(variable, rows) for variable in self._variables])

    def set(self, idx: Any, value: Any) -> None:
        """Writes rows; nothing is written if something is wrong.

        Args:
            idx: integers of any shape in `[0, capacity)`. Beyond it the CPU raises in a
                graph too; elsewhere nothing is written there. Of equal indices any may
                win.
            value: nest of arrays or tensors `[*idx.shape, *spec.shape]`. Floats of
                another precision are cast, integers only to dtypes that hold them all.

        Raises:
            TypeError: if `idx` does not hold integers, or a dtype does not fit the
                spec.
            ValueError: if the nest or a shape does not fit the spec, or an index whose
                value is known has no row.
        """
        rows = self._rows("set", idx)
        leaves = self._leaves(value, rows.shape)
        for variable, leaf in zip(self._variables, leaves, strict=True):
            if variable.shape.num_elements():
                variable.scatter_nd_update(rows[..., tf.newaxis], leaf)

    def _rows(self, where: str, idx: Any) -> tf.Tensor:
        rows = _indices.int64_tensor(f"VariableStorage.{where}", "idx", idx)
        if not tf.is_symbolic_tensor(rows):
            known = rows.numpy()
            if known.size and not 0 <= known.min() <= known.max() < self._capacity:
                raise ValueError(
                    f"`VariableStorage.{where}`: `idx` expected integers in "
                    f"[0, {self._capacity}); got {known.min()} to {known.max()}; "
                    "take them modulo the capacity"
                )
        return rows

    def _leaves(self, value: Any, outer: tf.TensorShape) -> list[tf.Tensor]:
        try:
            self._check_nest(value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`VariableStorage.set`: `value` expected a nest like {self._spec()}; "
                f"got {type(value).__name__}: {error}; nest it like the spec"
            ) from error
        return [
            _fitted(leaf, spec, outer)
            for leaf, spec in zip(tf.nest.flatten(value), self._specs(), strict=True)
        ]


def _fitted(value: Any, spec: tf.TensorSpec, outer: tf.TensorShape) -> tf.Tensor:
    where = "`VariableStorage.set`: `value` expected"
    leaf, wanted = checks.as_tensor("VariableStorage.set", "value", value), spec.dtype
    shape = outer.concatenate(spec.shape)
    if not leaf.shape.is_compatible_with(shape):
        raise ValueError(
            f"{where} shape {shape}; got {leaf.shape}; give one row for each index"
        )
    both_floating = leaf.dtype.is_floating and wanted.is_floating
    if both_floating or np.can_cast(leaf.dtype.as_numpy_dtype, wanted.as_numpy_dtype):
        return tf.cast(leaf, wanted)
    raise TypeError(
        f"{where} {wanted.name}; got {leaf.dtype.name}; cast it with tf.cast"
    )


def _check_device(device: Any) -> None:
    where = "`VariableStorage`: `device` expected"
    if not isinstance(device, str):
        raise TypeError(f"{where} a string; got {device!r}; pass for example '/GPU:0'")
    try:
        wanted = tf.DeviceSpec.from_string(device)
    except ValueError as error:
        raise ValueError(
            f"{where} a TensorFlow device; got {device!r}; pass for example '/GPU:0'"
        ) from error
    with tf.device(device):
        found = tf.DeviceSpec.from_string(tf.zeros([], tf.int64).device)
    # TensorFlow would put the variables elsewhere and say nothing.
    if found.make_merged_spec(wanted) != found:
        known = [logical.name for logical in tf.config.list_logical_devices()]
        raise ValueError(
            f"{where} one of {known}; got {device!r}; check what TensorFlow sees"
        )
