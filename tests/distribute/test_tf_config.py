"""Tests of what is read from TF_CONFIG."""

import json

import pytest

from tfrl.distribute import _tf_config

WORKERS = ["a:1", "b:2", "c:3"]


def read(monkeypatch, config):
    text = config if isinstance(config, str) else json.dumps(config)
    monkeypatch.setenv("TF_CONFIG", text)
    return _tf_config.read_tf_config("f")


def config(kind="worker", index=0, **cluster):
    return {
        "cluster": cluster or {"worker": WORKERS},
        "task": {"type": kind, "index": index},
    }


@pytest.mark.parametrize("text", ["", "  ", "{}", '{"cluster": {}}'], ids=repr)
def test_nothing_there_is_none(monkeypatch, text):
    assert read(monkeypatch, text) is None


def test_unset_is_none(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert _tf_config.read_tf_config("f") is None


@pytest.mark.parametrize("index", [0, 1, 2, "2"])
def test_workers_count_from_0(monkeypatch, index):
    found = read(monkeypatch, config(index=index))
    assert found == (tuple(WORKERS), int(index))


def test_a_chief_comes_first(monkeypatch):
    both = {"chief": ["z:9"], "worker": WORKERS, "ps": ["p:1", "q:1"]}
    assert read(monkeypatch, config("chief", **both)) == (("z:9", *WORKERS), 0)
    assert read(monkeypatch, config("worker", 2, **both)).rank == 3
    assert read(monkeypatch, config("ps", 1, **both)).rank == -1


def test_an_evaluator_may_be_outside(monkeypatch):
    assert read(monkeypatch, config("evaluator")) == (tuple(WORKERS), -1)


def test_tensorflow_reads_the_same(monkeypatch):
    import tensorflow as tf

    found = read(monkeypatch, config("worker", 1, chief=["z:9"], worker=WORKERS))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    jobs = resolver.cluster_spec().as_dict()
    assert found.workers == (*jobs["chief"], *jobs["worker"])
    assert (resolver.task_type, resolver.task_id) == ("worker", found.rank - 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"`TF_CONFIG` expected JSON \(Expecting property name"),
        ("[]", r"`TF_CONFIG` expected an object; got \[\]"),
        ({"cluster": [1]}, "`cluster` of `TF_CONFIG` expected an object of lists"),
        ({"cluster": {"worker": "a:1"}}, r"`cluster.worker` .* expected a list"),
        (config(worker=["a"]), r"`cluster.worker\[0\]` .* host:port text; got 'a'"),
        (config(worker=["a:1", ":2"]), r"`cluster.worker\[1\]` .* got ':2'"),
        (config(worker=["a:70000"]), r"got 'a:70000'"),
        (config(worker=[7]), r"host:port text; got 7"),
        ({"cluster": {"worker": WORKERS}}, "`task` .* expected an object with `type`"),
        (config("boss"), r"`task.type` .* expected one of .*worker.*; got 'boss'"),
        (config(index=3), r"`task.index` .* an int in \[0, 2\]; got 3"),
        (config(index=-1), r"`task.index` .* got -1"),
        (config(index=True), r"`task.index` .* got True"),
        (config(index=None), r"`task.index` .* got None"),
    ],
)
def test_what_is_wrong_is_named(monkeypatch, text, message):
    with pytest.raises(ValueError, match=f"`f`: .*{message}.*correct it"):
        read(monkeypatch, text)
