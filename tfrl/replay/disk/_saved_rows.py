"""The array of one leaf of a storage, and what a checkpoint holds of it.

`tf.train.Checkpoint` asks all objects for their bytes before it writes the first one.
So that it does not copy a replay buffer several times over, most rows are shown to it
as variables that share the array's memory; it writes them straight from there. A
checkpoint is read in pieces: the variables of the saved array are attached one after
the other, each is restored as it is attached, copied into the array, and made to share
its memory again.

    leaf   a header, and the first bytes of the array (all of a small one)
    parts  `rows_<token>/part<k>`, the rest; the header names the token. It changes with
           each save and each restore, lest a checkpoint find variables of the same
           names in place, which it would restore all at once.
"""

import json
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from tfrl.replay.disk import _blocks

_INLINE_BYTES = 1 << 18
_PART_BYTES = 1 << 24
_CPU = "CPU:0"
# TensorFlow cannot be used in a process forked from one that has used it.
_HOME = os.getpid()


class Leaves:
    """The arrays of a storage, and the object by which checkpoints know them.

    Attributes:
        each: `SavedRows` per leaf.
        state: to be tracked by the storage.
    """

    def __init__(
        self,
        blocks: list[_blocks.MemoryBlock],
        contents: str,
        restored: Callable[[], None],
    ) -> None:
        self._made = _Made()
        self.each = [
            SavedRows(block, contents, restored, self._made) for block in blocks
        ]
        rows = {f"buffer{k}": leaf for k, leaf in enumerate(self.each)}
        parts = {f"rest{k}": leaf.parts for k, leaf in enumerate(self.each)}
        self.state = tf.train.Checkpoint(**rows, **parts)

    def arrays(self) -> list[np.ndarray]:
        """Returns all arrays, after making those that are missing."""
        arrays = self._made.arrays
        if arrays is None:
            arrays = [
                leaf.made() if leaf.array is None else leaf.array for leaf in self.each
            ]
            self._made.arrays = arrays
        return arrays


class _Made:
    """All arrays of a storage in a list, None where one is missing or was replaced."""

    arrays: list[np.ndarray] | None = None


class SavedRows(tf.train.experimental.PythonState):
    """One array of a storage, made when it is first asked for.

    Attributes:
        array: the array, None before it is made.
        parts: what else a checkpoint must hold, to be tracked beside this object.

    `restored` is called before the rows are restored.
    """

    def __init__(
        self,
        block: _blocks.MemoryBlock,
        contents: str,
        restored: Callable[[], None],
        made: _Made,
    ) -> None:
        self.array: np.ndarray | None = None
        self._made = made
        self.parts = tf.train.Checkpoint()
        self._block, self._contents, self._restored = block, contents, restored
        self._token: str | None = None
        self._closed = False
        self._lock = threading.Lock()
        if block.exists():
            self.made()

    @property
    def exists(self) -> bool:
        """Whether there is an array, made here or by another process."""
        self._check_open()
        return self.array is not None or self._block.exists()

    def made(self) -> np.ndarray:
        """Returns the array, after making it if need be."""
        with self._lock:
            self._check_open()
            array = self.array
            if array is None:
                array = self._block.array()
                rest = _bytes_of(array)[_INLINE_BYTES:]
                if rest.size and os.getpid() == _HOME:
                    self._attach(*_variables(rest, _PART_BYTES))
                self._replace(array)
            return array

    def flush(self) -> None:
        """Returns when what was written survives a power cut, as far as it can."""
        with self._lock:
            self._check_open()
            self._block.flush()

    def close(self) -> None:
        """Lets go of the array."""
        with self._lock:
            self._block.flush()
            self._detach()
            self._replace(None)
            self._closed = True

    def serialize(self) -> bytes:
        """Returns the header and the bytes that no variable shows."""
        with self._lock:
            self._check_open()
            header = {
                "contents": self._contents,
                "made": self.array is not None,
                "rows": self._token,
                "part_bytes": _PART_BYTES,
            }
            inline = b""
            if self.array is not None:
                end = _INLINE_BYTES if self._token else None
                inline = _bytes_of(self.array)[:end].tobytes()
            self._keep(self._detach())  # the names are taken down by now
        return json.dumps(header).encode() + b"\n" + inline

    def deserialize(self, string_value: bytes) -> None:
        """Restores the array from a checkpoint that holds an equal layout."""
        text, _, inline = string_value.partition(b"\n")
        try:
            header = json.loads(text)
        except ValueError:
            header = {"contents": "something else"}
        with self._lock:
            self._check_open()
            if header["contents"] != self._contents:
                raise ValueError(
                    f"`NumpyStorage`: expected a checkpoint of {self._contents}; got "
                    f"one of {header['contents']}; make the storage as it was saved"
                )
            self._restored()
            array = self.array if self._block.lasting else None
            self._detach()
            self._replace(None)  # given up first: two would double the memory
            if not header["made"]:
                if array is not None:
                    _bytes_of(array)[:] = 0
                return
            array = self._block.array() if array is None else array
            flat = _bytes_of(array)
            flat[: len(inline)] = np.frombuffer(inline, np.uint8)
            if header["rows"]:
                rest = flat[len(inline) :]
                self._read(rest, header["rows"], header["part_bytes"])
            self._replace(array)

    def _replace(self, array: np.ndarray | None) -> None:
        self.array, self._made.arrays = array, None

    def _read(self, rest: np.ndarray, token: str, part_bytes: int) -> None:
        variables, pieces = _variables(rest, part_bytes)
        group = tf.train.Checkpoint()
        setattr(self.parts, token, group)  # whose parts now wait to be restored
        try:
            for k, (variable, piece) in enumerate(zip(variables, pieces, strict=True)):
                setattr(group, f"part{k}", variable)
                seen = _memory_of(variable)
                if seen.ctypes.data == piece.ctypes.data:
                    raise ValueError(
                        f"`NumpyStorage`: expected {token}/part{k} in the checkpoint; "
                        "got none; restore another one"
                    )
                piece[:] = seen
                with tf.device(_CPU):
                    variable.assign(_tensor(piece))
        finally:
            delattr(self.parts, token)
        self._attach(variables, pieces)

    def _attach(self, variables: list[tf.Variable], pieces: list[np.ndarray]) -> None:
        # A TensorFlow that copies would save what the array was when it was made; all
        # of it is then saved inline, which is right and costs memory.
        for variable, piece in zip(variables, pieces, strict=True):
            if _memory_of(variable).ctypes.data != piece.ctypes.data:
                return
        parts = {f"part{k}": variable for k, variable in enumerate(variables)}
        self._keep(tf.train.Checkpoint(**parts))

    def _keep(self, group: tf.train.Checkpoint | None) -> None:
        if group is not None:
            self._token = f"rows_{secrets.token_hex(8)}"
            setattr(self.parts, self._token, group)

    def _detach(self) -> tf.train.Checkpoint | None:
        token, self._token = self._token, None
        if token is None:
            return None
        group = getattr(self.parts, token)
        delattr(self.parts, token)
        return group

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(
                "`NumpyStorage`: expected an open storage; got one after close(); "
                "make it again"
            )


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _variables(
    flat: np.ndarray, part_bytes: int
) -> tuple[list[tf.Variable], list[np.ndarray]]:
    """Returns variables that share pieces of memory, and the pieces."""
    pieces = [flat[k : k + part_bytes] for k in range(0, flat.size, part_bytes)]

    def make() -> list[tf.Variable]:
        with tf.device(_CPU):
            return [tf.Variable(_tensor(piece), trainable=False) for piece in pieces]

    # A new thread has no strategy around it that would mirror the variables.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result(), pieces


def _tensor(piece: np.ndarray) -> tf.Tensor:
    return tf.experimental.dlpack.from_dlpack(piece.__dlpack__())


def _memory_of(variable: tf.Variable) -> np.ndarray:
    with tf.device(_CPU):
        return np.asarray(memoryview(variable.read_value()))
