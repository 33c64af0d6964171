"""Rows of nests in preallocated numpy arrays.

For each array a checkpoint holds a line of JSON, which describes its storage, and all
bytes. Earlier versions kept all but the first bytes of large arrays in variables
`rows_<token>/part<k>` beside it, and named the token in that line.
"""

import json
import math
import threading
import warnings
import weakref
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfrl._internal import durable
from tfrl.replay import _indices
from tfrl.replay.memory import _homes, _row_layout

_LARGE_BYTES = 1 << 30


class NumpyStorage(tf.Module):
    """Keeps a fixed number of rows, each a nest, in one numpy array per leaf.

    All rows are zeros at first; the array of a leaf is made when rows are first read
    or written. Where the arrays live:

    - in the memory of this process;
    - with `path`, in files that outlive it, as a folder of one file per leaf and a
      header. Opening the folder again finds the rows. The operating system decides when
      to write them; `flush` waits for it.
    - with `shared`, in a segment of shared memory, taken at once. Processes that get
      the storage as an argument, or unpickle it, open the same rows. The process that
      made it removes the segment: in `close`, at the end of a `with` block, or when
      the object or the process ends. Others keep what they have open.

    Rows have no locks: when sharing them between threads or processes, make sure that
    none reads a row that another is writing.

    `tf.train.Checkpoint` saves and restores a storage, also into one of another kind.
    It copies all rows in memory, several times over, and warns above 1 GiB; `save` of
    this room does not, and writes only what changed. Restoring gives rows in the memory
    of this process new arrays and leaves what `get` returned before as it is. With
    `CheckpointOptions(enable_async=True)` the rows are those at the time of writing, so
    call `checkpoint.sync()` before changing them.

    Args:
        data_spec: nest of specs of one row: anything with `shape` and `dtype`, such as
            `tf.TensorSpec`. Any dtype of a fixed size: numbers, bools, times; bytes and
            texts by `tfrl.core.ShapeDtype`, such as one of `S10`, to which longer ones
            are cut, as NumPy does.
        capacity: number of rows, at least 1.
        name: name of the module, None for that of the class.
        path: folder for the rows; made if it does not exist.
        shared: whether to keep the rows in shared memory (Linux). Not with `path`.

    Raises:
        OSError: if the folder cannot be used, or disk or shared memory are full.
        TypeError: if `capacity` is no int.
        ValueError: if a spec has unknown dimensions or a dtype without a size, or
            `path` holds something else than a storage of this spec and capacity.

    Example:
        >>> spec = {"x": tf.TensorSpec([2]), "n": tf.TensorSpec([], tf.int64)}
        >>> storage = NumpyStorage(spec, capacity=4)
        >>> storage.set([0, 3], {"x": np.array([[1., 2.], [3., 4.]]), "n": np.array(7)})
        >>> storage.get(-1)
        {'x': array([3., 4.], dtype=float32), 'n': np.int64(7)}
    """

    def __init__(
        self,
        data_spec: Any,
        capacity: int,
        name: str | None = None,
        path: durable.Path | None = None,
        shared: bool = False,
    ) -> None:
        layout = _row_layout.RowLayout(data_spec, capacity)
        if shared and path is not None:
            raise ValueError(
                "`NumpyStorage`: `shared` expected False with a `path`, whose files "
                f"processes share anyway; got path={path!r}; leave one out"
            )
        home = _homes.Memory(layout)
        if shared:
            home = _homes.Segment(layout)
        elif path is not None:
            home = _homes.Folder(layout, path)
        self._furnish(home, name)

    def _furnish(self, home: _homes.Memory, name: str | None) -> None:
        # Before anything can fail: a segment must not be left behind.
        self._removal = weakref.finalize(self, home.release)
        super().__init__(name)
        self._layout, self._rows = home.layout, _Rows(home)
        self._np_state = self._rows.state

    def __reduce__(self) -> tuple:
        return _homes.opened, (type(self), self._rows.home, self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def capacity(self) -> int:
        """Number of rows."""
        return self._layout.capacity

    @property
    def data_spec(self) -> Any:
        """Nest of specs of one row."""
        return self._layout.data_spec

    @property
    def layout(self) -> _row_layout.RowLayout:
        """Which rows there are, and which values they take."""
        return self._layout

    @property
    def arrays(self) -> list[np.ndarray]:
        """All rows, `[capacity, *shape]`, of each leaf in the order of `tf.nest`.

        They show and take what is written; call `touch` after writing to them.
        Restoring a checkpoint may replace them.
        """
        return self._rows.arrays()

    @property
    def whole_rows(self) -> list[np.ndarray]:
        """The memory of `arrays`, `[capacity]`, a row of several numbers as bytes.

        NumPy reads and writes some of these rows up to ten times as fast. Rows without
        a shape, or without a byte, are as in `arrays`.
        """
        return self._rows.whole()

    @property
    def exists(self) -> bool:
        """Whether rows were ever read or written; if not, they are zeros somewhere."""
        return self._rows.exist()

    @property
    def changes(self) -> _homes.Changes:
        """What was written, for `save`."""
        return self._rows.changes

    def touch(self, rows: Any) -> None:
        """Notes that rows are written through `arrays`: `save` saves them again.

        Without this call, such writes may be lost. Nothing is checked.

        Args:
            rows: int, slice, or array of ints or of one bool per row.
        """
        self._rows.changes.touch(rows)

    def get(self, idx: Any, out: Any = None) -> Any:
        """Returns rows.

        An int or a slice gives views of the storage, which show what is written
        later and write through; a list, an array or bools give copies.

        Args:
            idx: int, slice, or a list or array of ints or of one bool per row.
                Negative ints count from the end. Ints may have any shape `[...]`.
            out: nest of arrays `[..., *shape]` of exactly the specs' dtypes that get a
                copy of the rows. This saves making new ones, which takes longer than
                the copy itself if rows are large.

        Returns:
            Nest like `data_spec` of arrays `[..., *shape]`; `out` if given.

        Raises:
            IndexError: if `idx` is none of these or names a row that does not exist.
            TypeError: if a leaf of `out` is not a writeable array.
            ValueError: if `out` has another structure, a dtype or a shape that does
                not match, or the storage is closed.
        """
        rows, outer = self._layout.rows("NumpyStorage.get", idx)
        if isinstance(rows, np.ndarray):
            return self.read(rows, out)
        arrays = self._rows.arrays()
        if out is None:
            self._rows.changes.expose(rows)
            return self._layout.pack([array[rows] for array in arrays])
        targets = self._layout.targets(out, outer)
        for array, target in zip(arrays, targets, strict=True):
            np.copyto(target, array[rows])
        return out

    def read(self, rows: np.ndarray, out: Any = None) -> Any:
        """Returns copies of rows, without checking their numbers as `get` does.

        Args:
            rows: ints of any shape, of rows that exist.
            out: as in `get`.

        Returns:
            As in `get`.

        Raises:
            TypeError: if a leaf of `out` is not a writeable array.
            ValueError: if `out` does not fit, or the storage is closed.
        """
        arrays = self._rows.arrays()
        if out is None:
            found = [array.take(rows, 0, None, "clip") for array in arrays]
            return self._layout.pack(found)
        targets = self._layout.targets(out, rows.shape)
        for array, target in zip(arrays, targets, strict=True):
            # The rows exist; a mode that checks again would make a copy first.
            array.take(rows, 0, target, "clip")
        return out

    def set(self, table_idx: Any, value: Any) -> None:
        """Overwrites rows. If anything does not fit, nothing is written.

        Args:
            table_idx: which rows, as `idx` of `get`. For a row named several times the
                last value stays.
            value: nest like `data_spec` of arrays or tensors `[..., *shape]`, or of one
                row `[*shape]` for all. Bools go into any numbers, integers into
                integers that hold them and into fractions, fractions into fractions
                of any precision that hold them, bytes and texts into shorter ones.

        Raises:
            IndexError: if `table_idx` is no index, or names a row that does not exist.
            OSError: if there is no room on the disk for the first value.
            TypeError: if the kind of a leaf does not fit, like fractions for integers.
            ValueError: if `value` has another structure, a shape that does not match
                or a number out of range, or the storage is closed.
        """
        rows, outer = self._layout.rows("NumpyStorage.set", table_idx)
        self.write(rows, self._layout.values(value, outer))

    def write(self, rows: Any, values: list[np.ndarray]) -> None:
        """Overwrites rows by fitting arrays, without checking them as `set` does.

        Args:
            rows: what `layout` makes of an index.
            values: array of each leaf in the order of `tf.nest`.
        """
        arrays = self._rows.arrays()
        self._rows.changes.touch(rows)
        for array, leaf in zip(arrays, values):  # noqa: B905, as many
            array[rows] = leaf

    def flush(self) -> None:
        """Waits until the rows are on the disk, if they live there.

        Raises:
            OSError: if the disk refuses.
            ValueError: if the storage is closed.
        """
        self._rows.flush()

    def close(self) -> None:
        """Releases the rows; removes the shared memory if it was made here.

        Files are flushed and stay. Views that `get` returned stay valid. A closed
        storage can only be closed again.
        """
        self._rows.close()
        self._removal()


class _Rows:
    """The arrays of a storage, made when they are first asked for.

    Attributes:
        contents: what checkpoints are compared with.
        home: where the arrays live.
        changes: what was written to them.
        state: the object by which checkpoints know them, to be tracked by the storage.
    """

    def __init__(self, home: _homes.Memory) -> None:
        self.contents, self.home = home.layout.contents, home
        self.changes = _homes.Changes(home)
        self._made: list[np.ndarray] | None = None
        self._whole: list[np.ndarray] = []
        self._numbers = range(len(home.layout.leaves))
        self._lock, self._is_closed = threading.RLock(), False
        states = [_SavedArray(self, k) for k in self._numbers]
        arrays = {f"buffer{k}": state for k, state in enumerate(states)}
        parts = {f"rest{k}": state.parts for k, state in enumerate(states)}
        self.state = tf.train.Checkpoint(**arrays, **parts)
        if any(map(home.exists, self._numbers)):
            self.arrays()

    def arrays(self) -> list[np.ndarray]:
        """Returns all arrays, after making them if need be."""
        return self._all() if self._made is None else self._made

    def whole(self) -> list[np.ndarray]:
        """Returns all arrays, of one axis each."""
        if self._made is None:
            self._all()
        return self._whole

    def exist(self) -> bool:
        """Whether there are arrays, made here or by another process."""
        with self._opened():
            return self._made is not None or any(map(self.home.exists, self._numbers))

    def flush(self) -> None:
        """Returns when what was written survives a power cut, as far as it can."""
        with self._opened():
            self.home.flush()

    def close(self) -> None:
        """Lets go of the arrays."""
        with self._lock:
            self.home.flush()
            self._made, self._is_closed = None, True
            self._whole.clear()

    def saved(self, k: int) -> bytes:
        """Returns an array as a checkpoint holds it."""
        with self._opened():
            is_made = self._made is not None
            header = {"contents": self.contents, "made": is_made, "rows": None}
            data = _bytes_of(self.arrays()[k]) if is_made else np.zeros(0, np.uint8)
            if data.nbytes > _LARGE_BYTES:
                warnings.warn(
                    f"`NumpyStorage`: a checkpoint copies {data.nbytes >> 20} MiB of "
                    "rows in memory; `tfrl.replay.save` does not, and writes what "
                    "changed alone",
                    stacklevel=2,
                )
            return b"".join([json.dumps(header).encode(), b"\n", data.data])

    def restore(self, k: int, value: bytes, parts: tf.train.Checkpoint) -> list:
        """Takes an array from a checkpoint that holds an equal layout.

        Returns what has to live as long as somebody may ask the checkpoint whether all
        of it was restored.
        """
        text = value[: value.find(b"\n") + 1]
        try:
            header = json.loads(text)
        except ValueError:
            header = {"contents": "something else"}
        with self._opened():
            _indices.check_contents("NumpyStorage", header["contents"], self.contents)
            self.changes.touch(slice(None))
            if self._made is None and not header["made"]:
                return []
            arrays = self.arrays()
            if not self.home.lasting:
                # Given up first: two would double the memory.
                arrays[k] = self._whole[k] = np.zeros(0)
                arrays[k] = self.home.array(k)
                self._whole[k] = _whole(arrays[k], self.home.layout.leaves[k])
            flat = _bytes_of(arrays[k])
            if not header["made"]:
                flat[:] = 0
                return []
            inline = np.frombuffer(value, np.uint8, offset=len(text))
            flat[: inline.size] = inline
            if not header["rows"]:
                return []
            rest = flat[inline.size :]
            return _read_parts(rest, parts, header["rows"], header["part_bytes"])

    def _all(self) -> list[np.ndarray]:
        with self._opened():
            if self._made is None:
                self._made = [self.home.array(k) for k in self._numbers]
                self._whole[:] = map(_whole, self._made, self.home.layout.leaves)
            return self._made

    def _opened(self) -> threading.RLock:
        """Returns the lock of a storage that is open."""
        if self._is_closed:
            raise ValueError(
                "`NumpyStorage`: expected an open storage; got one after close(); "
                "make it again"
            )
        return self._lock


class _SavedArray(tf.train.experimental.PythonState):
    """One of the arrays as checkpoints know it; `parts` is to be tracked beside it."""

    def __init__(self, rows: _Rows, k: int) -> None:
        self._rows, self._k = rows, k
        self.parts = tf.train.Checkpoint()
        self._restored: list[tf.Variable] = []

    def serialize(self) -> bytes:
        """Returns what a checkpoint keeps."""
        return self._rows.saved(self._k)

    def deserialize(self, string_value: bytes) -> None:
        """Takes back what a checkpoint kept."""
        self._restored = self._rows.restore(self._k, string_value, self.parts)


def _read_parts(
    rest: np.ndarray, parts: tf.train.Checkpoint, token: str, part_bytes: int
) -> list[tf.Variable]:
    """Reads variables of an earlier version, one after the other, and empties them."""
    group, variables = tf.train.Checkpoint(), []
    setattr(parts, token, group)
    for k, start in enumerate(range(0, rest.size, part_bytes)):
        with tf.device("CPU:0"):
            nothing = tf.zeros([0], tf.uint8)
            variable = tf.Variable(nothing, trainable=False, shape=[None])
        setattr(group, f"part{k}", variable)  # is restored thereby
        variables.append(variable)
        piece = rest[start : start + part_bytes]
        found = variable.numpy()
        if found.size != piece.size:
            raise ValueError(
                f"`NumpyStorage`: expected {token}/part{k} in the checkpoint; got "
                "none; restore another one"
            )
        piece[:] = found
        variable.assign(nothing)
    delattr(parts, token)
    return variables


def kind_of_row(leaf: Any) -> np.dtype | None:
    """Returns the dtype of a row as bytes, None for a row that is one number or none.

    Rows of bytes are written ten times faster than those of several numbers.
    """
    size = math.prod(leaf.shape) * leaf.dtype.itemsize
    return np.dtype(f"V{size}") if leaf.shape and size else None


def _whole(array: np.ndarray, leaf: Any) -> np.ndarray:
    kind = kind_of_row(leaf)
    return array if kind is None else np.ndarray(len(array), kind, array)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
