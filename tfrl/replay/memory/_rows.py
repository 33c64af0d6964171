"""The arrays of a storage, and what `tf.train.Checkpoint` holds of them.

A checkpoint holds of each array a line of JSON, which says of what storage it is, and
all bytes. Earlier versions kept all but the first bytes of large arrays in variables
`rows_<token>/part<k>` beside it, and named the token in that line.
"""

import json
import threading
import warnings

import numpy as np
import tensorflow as tf

from tfrl.replay.memory import _changes, _homes

_LARGE_BYTES = 1 << 30


class Rows:
    """The arrays of a storage, made when they are first asked for.

    Attributes:
        contents: what checkpoints are compared with.
        home: where the arrays live.
        changes: what was written to them.
        state: the object by which checkpoints know them, to be tracked by the storage.
    """

    def __init__(self, home: _homes.Memory) -> None:
        self.contents, self.home = home.layout.contents, home
        self.changes = _changes.Changes(home)
        self._made: list[np.ndarray] | None = None
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
            if header["contents"] != self.contents:
                raise ValueError(
                    f"`NumpyStorage`: expected a checkpoint of {self.contents}; got "
                    f"one of {header['contents']}; make the storage as it was saved"
                )
            self.changes.touch_all()
            if self._made is None and not header["made"]:
                return []
            arrays = self.arrays()
            if not self.home.lasting:
                arrays[k] = np.zeros(0)  # given up first: two would double the memory
                arrays[k] = self.home.array(k)
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

    def __init__(self, rows: Rows, k: int) -> None:
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


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
