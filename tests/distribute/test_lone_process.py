"""Tests of `tfrl.distribute.lone_process`."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import actor_jobs
import pytest
from running_processes import alive, gone

from tfrl.distribute import lone_process


def test_sends_what_it_is_told():
    factor = 3

    def scaled(send, x):  # not to be imported: sent as it is
        send(factor * x)

    with lone_process.LoneProcess(scaled, 14) as process:
        assert process.receive() == 42
    assert gone(process.pid)
    with lone_process.LoneProcess(actor_jobs.echo, 1, "two") as process:
        assert [process.receive(), process.receive()] == [1, "two"]


def test_imports_what_it_needs_and_not_the_main_script():
    with lone_process.LoneProcess(actor_jobs.modules) as process:
        found = process.receive()
    assert not {"tensorflow", "keras", "pytest", "gymnasium"} & set(found)
    assert {"numpy", "tfrl", "actor_jobs"} <= set(found)


def test_surroundings(monkeypatch):
    monkeypatch.setenv("TFRL_TEST", "here")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with lone_process.LoneProcess(actor_jobs.surroundings) as process:
        path, folder, group, variables = process.receive()
    assert (path, folder) == (sys.path, os.getcwd())
    assert group == process.pid != os.getpgrp()
    assert variables == ["1", "here"]


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("error", "(?s)Traceback.*actor_jobs.py.*OSError: the wheel came off"),
        ("exit", "(?s)Traceback.*SystemExit: 3"),
        ("kill", "`LoneProcess`: the actor expected to run .* signal SIGKILL"),
        ("nothing", "`LoneProcess`: the actor expected to run .* exit status 0"),
        ("import", "(?s)Error: .*tensorflow.*this process runs without tensorflow"),
    ],
)
def test_failures_are_told(how, match):
    with lone_process.LoneProcess(
        actor_jobs.fail, how, without=["tensorflow"], name="the actor"
    ) as process:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=match):
                process.receive()
    assert gone(process.pid)


def test_receive_waits_no_longer_than_told():
    with lone_process.LoneProcess(actor_jobs.hang) as process:
        assert process.receive(timeout=0.0) is None
        assert process.receive(timeout=0.01) is None
        assert process.running
    assert not process.running


def test_stop_kills_what_hangs_and_what_it_started():
    process = lone_process.LoneProcess(actor_jobs.hang, True)
    child = process.receive()
    assert alive(child)
    process.stop(patience=0.05)
    assert gone(process.pid, child)
    process.stop()


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(TypeError, match="`LoneProcess`: .* expected to be picklable"):
        lone_process.LoneProcess(actor_jobs.echo, threading.Lock())


PARENT = """
    import sys, time, actor_jobs
    from tfrl.distribute import lone_process
    process = lone_process.LoneProcess(actor_jobs.hang, True)
    print(process.pid, process.receive(), flush=True)
    {then}
"""


@pytest.mark.parametrize(
    ("then", "number"),
    [
        ("time.sleep(600)", signal.SIGKILL),
        ("time.sleep(600)", signal.SIGTERM),
        ("time.sleep(600)", signal.SIGINT),
        ("raise OSError", None),
        ("", None),
        ("import os; os.fork(); time.sleep(600)", signal.SIGKILL),
    ],
    ids=["kill", "term", "interrupt", "error", "end", "forked"],
)
def test_ends_with_the_process_that_made_it(then, number):
    script = textwrap.dedent(PARENT).format(then=then)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    try:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        if number is not None:
            time.sleep(0.1)
            parent.send_signal(number)
        parent.wait(10)
        assert len(pids) == 2
        assert gone(*pids)
    finally:
        try:
            os.killpg(parent.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        parent.stdout.close()
