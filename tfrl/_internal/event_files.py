"""Reading event files of TensorBoard: one event after the other."""

import os
from collections.abc import Iterator

import tensorflow as tf
from google.protobuf import message
from tensorboard.compat.proto import event_pb2

_BATCH_RECORDS = 64  # one is slow, and images are large
_READ_BYTES = 1 << 20
_VERSION = "brain.Event:"


def read_events(path: str | os.PathLike[str]) -> Iterator[event_pb2.Event]:
    """Yields the events of a file in their order.

    A last record that is not all there is left out: the run is still writing, or was
    killed.

    Args:
        path: the event file.

    Yields:
        The events, the one with the file's version first.

    Raises:
        ValueError: if a record is damaged, or the file is none of TensorBoard.
    """
    data = tf.data.TFRecordDataset(os.fspath(path), buffer_size=_READ_BYTES)
    batches = data.ignore_errors().batch(_BATCH_RECORDS)
    count = 0
    try:
        for records in batches.as_numpy_iterator():
            for record in records:
                event = event_pb2.Event.FromString(record)
                if not count and not event.file_version.startswith(_VERSION):
                    raise ValueError(f"no version of events first: {record!r:.80}")
                count += 1
                yield event
        # What comes next is the end of the file, or what is wrong with it.
        for _ in data.skip(count):
            pass
    except message.DecodeError as error:
        raise ValueError(f"a record that is no event ({error})") from error
    except tf.errors.OpError as error:
        if "truncated record" not in error.message:
            raise ValueError(error.message) from error
