"""Scalars out of the event files of TensorBoard, many files in one sweep.

TensorFlow's own C++ checks and takes apart the records, many at a time but never many
bytes; Python only sees the numbers asked for.
"""

import mmap
import os
import pathlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import tensor_pb2, types_pb2

_BATCH_RECORDS, _BATCH_BYTES = 1 << 16, 1 << 25  # the former a power of 2
_SHOWN_TAGS = 20
_LENGTH_BYTES, _FRAME_BYTES = 12, 16  # length and its checksum; all around a record
_READ_BYTES = 1 << 20
_VERSION = b"brain.Event:"

Path = str | os.PathLike[str]


def read_scalars(
    where: str, runs: Sequence[Path], tag: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns steps (int64, increasing) and values (float64) of one tag in each run.

    A run is an event file or a folder of some, taken in the order of their names. What
    a run wrote before it went back to an earlier step is dropped, as is a record at
    the end of a file that is not all there (the run is still writing, or was killed).
    """
    files = [_files(where, run) for run in runs]
    owners = [run for run, found in enumerate(files) for _ in found]
    parts: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in runs]
    paths = [path for found in files for path in found]
    for file, steps, tags, values in _sweep(where, paths):
        kept = tags == tag
        if tf.reduce_any(kept):
            numbers = _numbers(where, tag, tf.boolean_mask(values, kept))
            parts[owners[file]].append((steps[kept.numpy()], numbers))
    for run, found, part in zip(runs, files, parts, strict=True):
        if not part:
            raise _without_tag(where, run, found, tag)
    return [
        _last_written(*map(np.concatenate, zip(*part, strict=True))) for part in parts
    ]


def _files(where: str, run: Path) -> list[pathlib.Path]:
    path = pathlib.Path(run)
    if path.is_file():
        return [path]
    files = sorted(p for p in path.glob("*tfevents*") if p.is_file())
    if files:
        return files
    found = "which has none" if path.is_dir() else "which does not exist"
    # Not further down: the path may be wrong, and all of a disk below it.
    near = (path.glob(f"{folders}*tfevents*") for folders in ("*/", "*/*/"))
    below = sorted({os.fspath(p.parent) for found in near for p in found})
    if below:
        found += f", but there are some in {', '.join(below[:8])}"
    raise ValueError(
        f"`{where}`: `event_file` expected folders with event files (*tfevents*); got "
        f"{path}, {found}; give the folder that TensorBoard shows as a run"
    )


def _sweep(
    where: str, paths: list[pathlib.Path]
) -> Iterator[tuple[int, np.ndarray, tf.Tensor, tf.Tensor]]:
    """Yields file numbers with steps, tags and summary values, in order."""
    counts, at_once = zip(*(_whole_records(where, p) for p in paths), strict=True)
    names = [os.fspath(path) for path in paths]

    def records(
        number: tf.Tensor, name: tf.Tensor, count: tf.Tensor, size: tf.Tensor
    ) -> Any:
        data = tf.data.TFRecordDataset(name, buffer_size=_READ_BYTES).take(count)
        return data.batch(size).map(lambda batch: (number, batch))

    numbers = tf.range(len(paths), dtype=tf.int64)
    counted, sizes = tf.constant([counts, at_once], tf.int64)
    data = tf.data.Dataset.from_tensor_slices((numbers, names, counted, sizes))
    seen = -1
    try:
        for number, record in data.flat_map(records):
            file = int(number)
            version, steps, events, tags, values = _decoded(record)
            if file > seen and not version.startswith(_VERSION):
                raise _foreign(where, paths[file])
            seen = file
            yield file, steps[events], tags, values
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        if len(paths) > 1:
            for path in paths:
                for _ in _sweep(where, [path]):
                    pass
        raise _foreign(where, paths[0]) from error


def _decoded(
    records: tf.Tensor,
) -> tuple[bytes, np.ndarray, np.ndarray, tf.Tensor, tf.Tensor]:
    """The first event's version, all steps; each value's event number, tag and bytes.

    Fields that an event does not have are empty or 0.
    """
    _, (steps, versions, summaries) = tf.io.decode_proto(
        records,
        "tensorflow.Event",
        ["step", "file_version", "summary"],
        [tf.int64, tf.string, tf.string],
    )
    count = tf.shape(records)[0]
    steps, versions, summaries = (
        column[:, 0] if column.shape[1] else tf.zeros([count], column.dtype)
        for column in (steps, versions, summaries)
    )
    sizes, (values,) = tf.io.decode_proto(
        summaries, "tensorflow.Summary", ["value"], [tf.string]
    )
    is_value = tf.sequence_mask(sizes[:, 0], tf.shape(values)[1])
    values = tf.boolean_mask(values, is_value)
    tags = values
    if len(values):
        _, (tags,) = tf.io.decode_proto(
            values, "tensorflow.Summary.Value", ["tag"], [tf.string]
        )
        tags = tags[:, 0] if tags.shape[1] else tf.fill([len(values)], "")
    index = tf.where(is_value)[:, 0]
    return versions[0].numpy(), steps.numpy(), index.numpy(), tags, values


def _numbers(where: str, tag: str, values: Any) -> np.ndarray:
    sizes, (plain, tensors) = tf.io.decode_proto(
        values,
        "tensorflow.Summary.Value",
        ["simple_value", "tensor"],
        [tf.float32, tf.string],
    )
    numbers = np.full(len(values), np.nan)
    is_plain, is_tensor = (sizes.numpy() > 0).T
    if not np.all(is_plain | is_tensor):
        raise _no_scalar(where, tag)
    if is_plain.any():
        numbers[is_plain] = plain.numpy()[is_plain, 0]
    if is_tensor.any():
        found = tf.boolean_mask(tensors[:, 0], is_tensor)
        numbers[is_tensor] = _singles(where, tag, found)
    return numbers


def _singles(where: str, tag: str, tensors: tf.Tensor) -> np.ndarray:
    """The one number that each serialized tensor holds."""
    sizes, (dtypes, contents, floats, shapes) = tf.io.decode_proto(
        tensors,
        "tensorflow.TensorProto",
        ["dtype", "tensor_content", "float_val", "tensor_shape"],
        [tf.int32, tf.string, tf.float32, tf.string],
    )
    is_float = dtypes.numpy().ravel() == types_pb2.DT_FLOAT
    if (
        is_float.size == len(tensors)
        and is_float.all()
        and not any(shapes.numpy().flat)
    ):
        count = sizes.numpy()
        if (count[:, 2] == 1).all():
            return floats.numpy()[:, 0]
        content = contents.numpy()
        if content.shape[1] and set(map(len, content[:, 0])) == {4}:
            return np.frombuffer(b"".join(content[:, 0]), "<f4")
    return np.array([_single(where, tag, data) for data in tensors.numpy()])


def _single(where: str, tag: str, data: bytes) -> float:
    tensor = tensor_pb2.TensorProto.FromString(data)
    try:
        kind = tf.as_dtype(tensor.dtype)
        is_real = kind.is_floating or kind.is_integer or kind.is_bool
        # A few bytes may declare any shape: look before it is filled.
        if is_real and not tensor.tensor_shape.dim:
            return float(tf.make_ndarray(tensor))
    except (TypeError, ValueError) as error:
        raise _no_scalar(where, tag) from error
    raise _no_scalar(where, tag)


def _no_scalar(where: str, tag: str) -> ValueError:
    return ValueError(
        f"`{where}`: `tag` expected that of real scalars; got {tag!r}, under which "
        "lies something else (a histogram, a text, an image); give another"
    )


def _last_written(
    steps: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Drops what was written before the run went back to its step or an earlier one."""
    lowest_later = np.minimum.accumulate(steps[::-1])[::-1]
    kept = np.append(steps[:-1] < lowest_later[1:], True)
    return steps[kept], values[kept]


def _whole_records(where: str, path: pathlib.Path) -> tuple[int, int]:
    """Counts the records of a file that are all there, and how many to read at once."""
    size = path.stat().st_size
    if not size:
        return 0, 1
    length_at = struct.Struct("<Q").unpack_from
    position, ends = 0, [0]
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with data:
            while position + _LENGTH_BYTES <= size:
                end = position + length_at(data, position)[0] + _FRAME_BYTES
                if end > size:
                    # Cut off, or a changed bit in the length?
                    head = data[position : position + _LENGTH_BYTES]
                    if _checksum(head[:8]) != struct.unpack_from("<I", head, 8)[0]:
                        raise _foreign(where, path)
                    break
                ends.append(position := end)
    count = _BATCH_RECORDS
    while count > 1 and np.diff(ends[::count], append=ends[-1]).max() > _BATCH_BYTES:
        count //= 2
    return len(ends) - 1, count


def _checksum(data: bytes) -> int:
    """CRC-32C, rotated and shifted as TFRecord does."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _foreign(where: str, path: pathlib.Path) -> ValueError:
    return ValueError(
        f"`{where}`: `event_file` expected event files of TensorBoard; got {path}, "
        "which is damaged or something else; take it out of the folder"
    )


def _without_tag(
    where: str, run: Path, files: list[pathlib.Path], tag: str
) -> ValueError:
    sweep = (tf.unique(tags).y.numpy() for _, _, tags, _ in _sweep(where, files))
    tags = sorted({name.decode(errors="replace") for names in sweep for name in names})
    shown = str(tags[:_SHOWN_TAGS]) if tags else "nothing in it"
    if len(tags) > _SHOWN_TAGS:
        shown += f" and {len(tags) - _SHOWN_TAGS} more"
    return ValueError(
        f"`{where}`: `event_file` expected runs with scalars {tag!r}; got {run} with "
        f"{shown}; give one of its tags as `tag`, or leave the run out"
    )
