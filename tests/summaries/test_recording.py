import typing

import attr
import event_files
import pytest
import tensorflow as tf

from tfrl.core import pytree
from tfrl.summaries import _recording


class Pair(typing.NamedTuple):
    b: typing.Any
    a: typing.Any


class Node(pytree.PyTreeNode):
    y: typing.Any
    x: typing.Any
    size: int = pytree.nonpytree_field(default=3)


@attr.s
class Attributes:
    y = attr.ib()
    x = attr.ib()


@pytest.mark.parametrize(
    ("nest", "tags"),
    [
        (1, {"n": 1}),
        ({"b": 1, "a": {"c": 2}}, {"n/a.c": 2, "n/b": 1}),
        (Pair(1, [2, (3,)]), {"n/b": 1, "n/a.0": 2, "n/a.1.0": 3}),
        (Node(1, 1), {"n/y": 1, "n/x": 1}),
        (Attributes(1, [2]), {"n/y": 1, "n/x.0": 2}),
        ({}, {}),
    ],
    ids=["leaf", "dict", "tuple", "node", "attributes", "empty"],
)
def test_named_leaves(nest, tags):
    found = list(_recording.named_leaves("n", nest))
    assert dict(found) == tags
    assert [leaf for _, leaf in found] == tf.nest.flatten(nest)


def test_call_site():
    def inner(depth):
        return _recording.call_site(depth)

    line = test_call_site.__code__.co_firstlineno
    assert inner(1) == (__file__, line + 5)
    assert inner(0) == (__file__, line + 2)
    assert _recording.call_site(10_000) == ("", 0)


def test_whether_something_is_recorded(tmp_path):
    asked = tf.constant(True)
    assert (_recording.is_recording(), _recording.has_writer()) == (False, False)
    with event_files.writing(tmp_path):
        assert (_recording.is_recording(), _recording.has_writer()) == (True, True)
        with tf.summary.record_if(False):
            assert (_recording.is_recording(), _recording.has_writer()) == (False, True)
        found = []

        @tf.function(autograph=False)
        def traced(condition):
            with tf.summary.record_if(condition):
                found.append(_recording.is_recording())
            return condition

        traced(asked)
        assert found == [None]


def test_record_is_called_once_and_ungated(tmp_path):
    asked, calls = [], []

    def condition():
        asked.append(1)
        return True

    def record():
        calls.append(1)
        tf.summary.scalar("a", 1.0)
        tf.summary.scalar("b", 2.0)

    with event_files.writing(tmp_path), tf.summary.record_if(condition):
        _recording.when_recording(record)
    assert (len(asked), len(calls)) == (1, 1)
    assert event_files.last(tmp_path) == {"a": 1.0, "b": 2.0}


def test_scopes_are_entered_again():
    with tf.Graph().as_default():
        with tf.name_scope("a"), tf.name_scope("b"):
            scope = tf.get_current_name_scope()
        with tf.name_scope("c"):
            with _recording.in_scope(scope):
                assert tf.get_current_name_scope() == "a/b"
            with _recording.in_scope(""):
                assert tf.get_current_name_scope() == ""


def test_histograms_share_a_trace(tmp_path):
    before = _recording._buckets.experimental_get_tracing_count()
    with event_files.writing(tmp_path):
        for size in (3, 4):
            _recording.write_histogram("x", tf.ones([size]), count=size)
            tf.function(_recording.write_histogram)("y", tf.ones([size, 2]))
    assert _recording._buckets.experimental_get_tracing_count() - before <= 1
