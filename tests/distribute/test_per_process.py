"""Tests of PerProcessContext, and of what is read from TF_CONFIG."""

import json
import multiprocessing

import golden_io
import pytest
import tensorflow as tf

from tfrl.distribute import per_process

CASES = golden_io.load("alf/misc", symbol="PerProcessContext")
WORKERS = ["a:1", "b:2", "c:3"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(per_process.PerProcessContext, "_instance", None)


def outcome(call, *args):
    try:
        return call(*args)
    except AttributeError:
        return "AttributeError"


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden_sequence(case):
    context = per_process.PerProcessContext()
    log = [context.ddp_rank, context.num_processes, context.is_distributed]
    log.append(per_process.PerProcessContext() is context)
    context.set_distributed(2, 4)
    log += [context.ddp_rank, context.num_processes, context.is_distributed]
    log.append(outcome(lambda: context.paras_queue))
    context.set_paras_queue("q")
    log.append(context.paras_queue)
    context.finalize()
    log.append(outcome(context.set_distributed, 0, 1))
    log.append(outcome(context.set_paras_queue, "p"))
    assert log == case["out"]["log"]
    assert outcome(setattr, context, "ddp_rank", 3) == "AttributeError"


def config(kind="worker", index=0, **cluster):
    cluster = cluster or {"worker": WORKERS}
    return {"cluster": cluster, "task": {"type": kind, "index": index}}


def read(monkeypatch, config):
    text = config if isinstance(config, str) else json.dumps(config)
    monkeypatch.setenv("TF_CONFIG", text)
    return per_process.read_tf_config("f")


@pytest.mark.parametrize(
    ("task", "rank", "size"),
    [(("chief", 0), 0, 4), (("worker", 1), 2, 4), (("evaluator", 0), -1, 1)],
)
def test_rank_and_size_come_from_tf_config(monkeypatch, task, rank, size):
    text = json.dumps(config(*task, chief=["z:9"], worker=WORKERS))
    monkeypatch.setenv("TF_CONFIG", text)
    context = per_process.PerProcessContext()
    assert (context.ddp_rank, context.num_processes) == (rank, size)
    assert context.is_distributed == (rank >= 0)
    context.set_distributed(num_processes=8, rank=7)
    again = per_process.PerProcessContext()
    assert (again.ddp_rank, again.num_processes) == (7, 8)
    context.set_distributed(-1, 1)
    assert not context.is_distributed


def test_malformed_tf_config_is_an_error_each_time(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config(index=3)))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"`PerProcessContext`: .*`task.index`"):
            per_process.PerProcessContext()


@pytest.mark.parametrize(
    ("rank", "size", "error", "name"),
    [
        *[(4, 4, ValueError, "rank"), (-2, 4, ValueError, "rank")],
        *[(0, 0, ValueError, "num_processes"), (0.0, 1, TypeError, "rank")],
    ],
)
def test_bad_ranks_change_nothing(rank, size, error, name):
    context = per_process.PerProcessContext()
    with pytest.raises(error, match=f"set_distributed`: `{name}` expected an int"):
        context.set_distributed(rank, size)
    assert (context.ddp_rank, context.num_processes) == (-1, 1)


def test_a_queue_of_processes_is_kept():
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    context = per_process.PerProcessContext()
    context.set_paras_queue(queue)
    assert per_process.PerProcessContext().paras_queue is queue
    queue.close()


@pytest.mark.parametrize("text", ["", "  ", "{}", '{"cluster": {}}'], ids=repr)
def test_nothing_in_tf_config_is_none(monkeypatch, text):
    assert per_process.read_tf_config("f") is None
    assert read(monkeypatch, text) is None


def test_who_trains_and_in_which_order(monkeypatch):
    for index in (0, 1, 2, "2"):
        found = read(monkeypatch, config(index=index))
        assert found == (tuple(WORKERS), int(index))
    both = {"chief": ["z:9"], "worker": WORKERS, "ps": ["p:1", "q:1"]}
    assert read(monkeypatch, config("chief", **both)) == (("z:9", *WORKERS), 0)
    assert read(monkeypatch, config("worker", 2, **both)).rank == 3
    assert read(monkeypatch, config("ps", 1, **both)).rank == -1
    assert read(monkeypatch, config("evaluator")) == (tuple(WORKERS), -1)


def test_tensorflow_reads_the_same(monkeypatch):
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
        (config(worker=["a:1", "a:1"]), r"`cluster.worker\[1\]` .* own; got 'a:1'"),
        (config(chief=["b:2"], worker=WORKERS), r"worker\[1\]` .* own; got 'b:2'"),
        ({"cluster": {"worker": WORKERS}}, "`task` .* expected an object with `type`"),
        (config("boss"), r"`task.type` .* expected one of .*worker.*; got 'boss'"),
        (config(["worker"]), r"`task.type` .*; got \['worker'\]"),
        (config(index=3), r"`task.index` .* an int in \[0, 2\]; got 3"),
        (config(index=-1), r"`task.index` .* got -1"),
        (config(index=True), r"`task.index` .* got True"),
        (config(index=None), r"`task.index` .* got None"),
    ],
)
def test_what_is_wrong_in_tf_config_is_named(monkeypatch, text, message):
    with pytest.raises(ValueError, match=f"`f`: .*{message}"):
        read(monkeypatch, text)
