"""Tests of the choice of a strategy; devices that are not there are stand-ins."""

import json
import logging
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tfrl.distribute import _peers, ports, replicas, strategies, tpu

VARIABLES = ("TF_CONFIG", *tpu._NAMING, *tpu._ANNOUNCING)
WORKERS = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}}


@pytest.fixture(autouse=True)
def bare_host(monkeypatch):
    """Neither TPU nor GPU nor other hosts, whatever this one has."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tpu, "_DEVICE_FILES", "no-such-file")
    gpus(monkeypatch, 0)


def gpus(monkeypatch, count):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["gpu"] * count)


def stand_in(monkeypatch, name):
    """Replaces a strategy that needs devices; the arguments it gets."""
    made = []

    class Strategy:
        num_replicas_in_sync = 4

        def __init__(self, *args, **kwargs):
            made.append((args, kwargs))

    Strategy.__name__ = name
    monkeypatch.setattr(tf.distribute, name, Strategy)
    return made


def said(caplog):
    (record,) = [r for r in caplog.records if r.name == strategies.__name__]
    assert record.levelno == logging.WARNING and "\n" not in record.getMessage()
    return record.getMessage()


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_a_bare_host_has_its_cpu(name, caplog):
    strategy = strategies.strategy(name)
    assert type(strategy) is tf.distribute.OneDeviceStrategy
    with strategy.scope():
        assert "CPU:0" in tf.Variable(1.0).device
    why = "asked for" if name == "cpu" else "no TPU, no other worker and no GPU"
    assert said(caplog).startswith("tfrl: strategy 'cpu', 1 replica: ")
    assert why in said(caplog)


def test_rehearsal_takes_logical_cpus_that_are_there(caplog):
    strategy = strategies.strategy("rehearsal:2")
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert strategy.num_replicas_in_sync == 2
    assert said(caplog) == "tfrl: strategy 'rehearsal', 2 replicas: asked for"
    step = tf.function(lambda x: strategy.run(replicas.mean, (x,)), autograph=False)
    shares = replicas.shard_batch(np.array([1.0, 4.0]), strategy)
    assert replicas.unreplicate(step(shares)).numpy().tolist() == [2.5]
    assert strategies.strategy("rehearsal:1").num_replicas_in_sync == 1


def refused(name, match, error=ValueError):
    with pytest.raises(error, match=f"^`strategy`: .*{match}"):
        strategies.strategy(name)


def test_rehearsal_of_more_is_too_late_now():
    tf.zeros([])  # TensorFlow has its devices by now
    refused("rehearsal:8", "got 'rehearsal:8' too late .the CPU is 2 log")


def test_one_gpu_is_taken_and_several_are_mirrored(monkeypatch, caplog):
    gpus(monkeypatch, 1)
    one = stand_in(monkeypatch, "OneDeviceStrategy")
    strategies.strategy("auto")
    assert one == [(("/gpu:0",), {})]
    assert "strategy 'gpu', 4 replicas: there is a GPU, no TPU and" in said(caplog)
    caplog.clear()
    gpus(monkeypatch, 2)
    several = stand_in(monkeypatch, "MirroredStrategy")
    strategies.strategy("auto")
    assert "strategy 'mirrored', 4 replicas: there are 2 GPUs" in said(caplog)
    strategies.strategy("mirrored")
    assert several == [((), {})] * 2


@pytest.mark.parametrize(
    ("name", "worker"),
    [("tpu", ""), ("tpu:grpc://10.0.0.1:8470", "grpc://10.0.0.1:8470")],
    ids=["host", "address"],
)
def test_a_tpu_is_connected_to_first(name, worker, monkeypatch):
    monkeypatch.setattr(tpu, "connect", lambda *args: (args, not worker))
    made = stand_in(monkeypatch, "TPUStrategy")
    strategies.strategy(name)
    assert made == [((("strategy", worker),), {})]


def test_auto_takes_a_tpu_before_all_else_or_fails(monkeypatch, caplog):
    monkeypatch.setenv("COLAB_TPU_1VM", "1")
    monkeypatch.setenv("TF_CONFIG", json.dumps(WORKERS))
    gpus(monkeypatch, 2)
    monkeypatch.setattr(tpu, "connect", lambda *_: ("resolver", True))
    stand_in(monkeypatch, "TPUStrategy")
    strategies.strategy()
    assert "'tpu', 4 replicas: COLAB_TPU_1VM=1 is set, so there" in said(caplog)
    monkeypatch.undo()
    monkeypatch.setenv("TPU_NAME", "grpc://127.0.0.1:1")
    refused("auto", "from TPU_NAME.*tensorflow-tpu")


def test_workers_come_from_tf_config(monkeypatch, caplog):
    made, met = stand_in(monkeypatch, "MultiWorkerMirroredStrategy"), []
    monkeypatch.setattr(strategies, "_has_begun", lambda: False)
    monkeypatch.setattr(_peers, "meet", lambda *args: met.append(args[:2]))
    task = {"task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps({**WORKERS, **task}))
    strategies.strategy("auto")
    assert "'multi_worker', 4 replicas: TF_CONFIG makes this worker 1 of" in said(
        caplog
    )
    strategies.strategy("multi_worker")
    assert made == [((), {})] * 2
    assert met == [(("127.0.0.1:1", "127.0.0.1:2"), 1)] * 2
    evaluator = {"task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps({**WORKERS, **evaluator}))
    refused("multi_worker", "TF_CONFIG says that this process does not train")
    assert isinstance(strategies.strategy(), tf.distribute.OneDeviceStrategy)


def test_malformed_tf_config_never_reaches_tensorflow(monkeypatch):
    made = stand_in(monkeypatch, "MultiWorkerMirroredStrategy")
    refused("multi_worker", "and TF_CONFIG is not set; set it on")
    for name in ("multi_worker", "auto"):
        for text in ("{", json.dumps(WORKERS)):
            monkeypatch.setenv("TF_CONFIG", text)
            refused(name, "TF_CONFIG.* expected")
    assert not made


def test_workers_are_asked_for_first(monkeypatch):
    tf.zeros([])
    task = {"task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps({**WORKERS, **task}))
    refused("multi_worker", "got 'multi_worker' too late")


@pytest.mark.parametrize("name", ["gpu", "mirrored"])
def test_what_needs_a_gpu_says_so(name):
    refused(name, f"got '{name}', and TensorFlow sees no GPU")


def test_other_words():
    rehearsals = ["", ":", ":0", ":-1", ":2.0", ":\u00b2"]
    for name in [*map("rehearsal{}".format, rehearsals), "", "gpus", "TPU", "tpu:"]:
        refused(name, "`name` expected 'auto', 'tpu'.*check the spelling")
    for name in ("cpu:1", " cpu", "auto:2"):
        refused(name, "`name` expected 'auto', 'tpu'.*check the spelling")
    refused(tf.distribute.get_strategy(), "`name` expected one of", TypeError)


def test_strategies_do_not_mix():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        for name in ("cpu", "rehearsal:2"):
            refused(name, "under OneDeviceStrategy")


FRESH = """
import tensorflow as tf
from tfrl.distribute import replicas, strategies
try:
    strategies.strategy("tpu")
except ValueError:  # which leaves the devices to be made
    strategy = strategies.strategy("rehearsal:8")
total = tf.function(lambda x: strategy.run(replicas.mean, (x,)))
mean = total(replicas.shard_batch(tf.range(8.0), strategy))
print(strategy.num_replicas_in_sync, replicas.unreplicate(mean).numpy().tolist())
"""
WORKER = """
import tensorflow as tf
from tfrl.distribute import replicas, strategies
strategy = strategies.strategy("auto")
total = tf.function(lambda x: strategy.run(replicas.mean, (x,)))
rows = replicas.shard_batch(tf.constant([[1.0], [2.0], [4.0], [9.0]]), strategy)
mean = replicas.unreplicate(total(rows)).numpy().ravel().tolist()
copy = replicas.unreplicate(replicas.replicate({"w": 3.0}, strategy))
print(replicas.unreplicate(rows).numpy().ravel(), mean, copy, flush=True)
import time
time.sleep(60)
"""
# A shell's background jobs, such as this test may be, ignore SIGINT.
ENDED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tfrl.distribute import strategies
strategies.strategy("multi_worker")
"""


def started(code, **variables):
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_rehearsal_in_a_fresh_process_makes_its_cpus_and_is_seen():
    output, errors = started(FRESH).communicate(timeout=120)
    assert output == "8 [3.5]\n", errors
    assert "tfrl: strategy 'rehearsal', 8 replicas: asked for\n" in errors


@pytest.mark.slow
def test_two_workers_share_the_rows_of_the_global_batch():
    with ports.get_unused_port(23000, n=2) as pair:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in pair]}
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    processes = [
        started(WORKER, TF_CONFIG=json.dumps({"cluster": cluster, "task": task}))
        for task in tasks
    ]
    try:
        lines = [process.stdout.readline() for process in processes]
        for process in processes:
            process.send_signal(signal.SIGTERM)  # which TensorFlow takes and eats
        texts = [process.communicate(timeout=30)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [-signal.SIGTERM] * 2
    for output, errors, rows in zip(lines, texts, ("[1. 2.]", "[4. 9.]"), strict=True):
        assert output.startswith(f"{rows} [2.5, 5.5] "), errors
        assert "numpy=3.0" in output
        assert "2 replicas: TF_CONFIG makes this worker" in errors


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_waits_for_others_says_so_and_can_be_ended(rank, number):
    with ports.get_unused_port(23000, n=2) as pair:
        workers = [f"127.0.0.1:{port}" for port in pair]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    process = started(ENDED, TF_CONFIG=json.dumps(config))
    try:
        told = next(line for line in process.stderr if line.startswith("tfrl: "))
        process.send_signal(number)
        process.communicate(timeout=30)
    finally:
        process.kill()
    other = f"worker {1 - rank} at {workers[1 - rank]}"
    assert told == (
        f"tfrl: strategy 'multi_worker', worker {rank} of 2: waiting for {other}\n"
    )
    assert process.returncode == -number
