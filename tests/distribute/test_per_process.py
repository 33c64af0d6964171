"""Tests of PerProcessContext."""

import json
import multiprocessing

import golden_io
import pytest

from tfrl.distribute import per_process

CASES = golden_io.load("alf/misc", symbol="PerProcessContext")


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


def tf_config(kind, index):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("task", "rank", "size"),
    [(("chief", 0), 0, 3), (("worker", 1), 2, 3), (("evaluator", 0), -1, 1)],
)
def test_rank_and_size_come_from_tf_config(monkeypatch, task, rank, size):
    monkeypatch.setenv("TF_CONFIG", tf_config(*task))
    context = per_process.PerProcessContext()
    assert (context.ddp_rank, context.num_processes) == (rank, size)
    assert context.is_distributed == (rank >= 0)


def test_what_is_set_wins_over_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config("worker", 0))
    context = per_process.PerProcessContext()
    context.set_distributed(num_processes=8, rank=7)
    again = per_process.PerProcessContext()
    assert (again.ddp_rank, again.num_processes) == (7, 8)
    context.set_distributed(-1, 1)
    assert not context.is_distributed


def test_malformed_tf_config_is_an_error_each_time(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config("worker", 2))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"`PerProcessContext`: .*`task.index`"):
            per_process.PerProcessContext()


@pytest.mark.parametrize(
    ("rank", "size", "error", "message"),
    [
        (4, 4, ValueError, r"`rank` expected an int in \[-1, 3\]; got 4"),
        (-2, 4, ValueError, r"`rank` expected an int in \[-1, 3\]; got -2"),
        (0, 0, ValueError, "`num_processes` expected an int of at least 1; got 0"),
        (0.0, 1, TypeError, "`rank` expected an int"),
    ],
)
def test_bad_ranks_change_nothing(rank, size, error, message):
    context = per_process.PerProcessContext()
    with pytest.raises(error, match=message):
        context.set_distributed(rank, size)
    assert (context.ddp_rank, context.num_processes) == (-1, 1)


def test_what_is_locked_says_so():
    context = per_process.PerProcessContext()
    context.finalize()
    context.finalize()
    with pytest.raises(AttributeError, match=r"set_distributed`: .*before `finalize`"):
        context.set_distributed(0, 2)
    with pytest.raises(AttributeError, match="paras_queue` expected to be set"):
        _ = context.paras_queue
    with pytest.raises(AttributeError):
        context.ddp_rank = 3


def test_a_queue_of_processes_is_kept():
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    context = per_process.PerProcessContext()
    context.set_paras_queue(queue)
    assert per_process.PerProcessContext().paras_queue is queue
    queue.close()
