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
    environ = {"TFRL_TEST": "there", "OPENBLAS_NUM_THREADS": "2"}
    with lone_process.LoneProcess(actor_jobs.surroundings, environ=environ) as process:
        *_, variables = process.receive()
    assert variables == ["2", "there"] and os.environ["TFRL_TEST"] == "here"


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


@pytest.mark.parametrize(
    ("how", "raised"), [("error", True), ("exit", True), ("kill", False)]
)
def test_errors_are_told_from_ends(how, raised):
    with lone_process.LoneProcess(actor_jobs.fail, how) as process:
        assert not process.raised
        with pytest.raises(RuntimeError):
            process.receive()
        assert process.raised == raised


@pytest.mark.parametrize(
    ("how", "end"), [("nothing", "exit status 0"), ("kill", "signal SIGKILL")]
)
def test_how_it_ended(how, end):
    with lone_process.LoneProcess(actor_jobs.hang, False) as process:
        assert process.end is None
    with lone_process.LoneProcess(actor_jobs.fail, how) as process:
        with pytest.raises(RuntimeError):
            process.receive()
        assert process.end == end


def test_stop_kills_what_hangs_and_what_it_started(monkeypatch):
    monkeypatch.setattr(lone_process, "_GRACE_SECONDS", 0.1)
    process = lone_process.LoneProcess(actor_jobs.hang, True)
    child = process.receive()
    assert process.receive(timeout=0.0) is process.receive(timeout=0.01) is None
    assert process.running and alive(child)
    process.stop(patience=0.05)
    assert gone(process.pid, child) and not process.running
    process.stop()


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(TypeError, match="`LoneProcess`: .* expected to be picklable"):
        lone_process.LoneProcess(actor_jobs.echo, threading.Lock())


PARENT = """
    import os, sys, time, actor_jobs
    from tfrl.distribute import lone_process
    process = lone_process.LoneProcess(actor_jobs.hang, True)
    print(process.pid, process.receive(), flush=True)
    {then}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "number"),
    [
        pytest.param("", None, id="end"),
        # A copy of the pipe in a forked process hides that the parent is gone.
        pytest.param("os.fork(); time.sleep(600)", signal.SIGKILL, id="forked"),
        *(
            pytest.param(then, number, id=name, marks=pytest.mark.slow)
            for then, number, name in (
                ("time.sleep(600)", signal.SIGKILL, "kill"),
                ("time.sleep(600)", signal.SIGTERM, "term"),
                ("time.sleep(600)", signal.SIGINT, "interrupt"),
                ("raise OSError", None, "error"),
            )
        ),
    ],
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
