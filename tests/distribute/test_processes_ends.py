"""However a script ends, none of its processes is left."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import running_processes

SCRIPT = [sys.executable, "-m", "tests.distribute.process_bodies"]


def left_after(seconds, pids):
    running_processes.gone(*pids, seconds=seconds)
    return [pid for pid in pids if running_processes.alive(pid)]


def start(name, folder):
    """Starts a script in a process group of its own, as a terminal does."""
    return subprocess.Popen(
        [*SCRIPT, name, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def children_of(script):
    return [int(pid) for pid in script.stdout.readline().split()]


def end(script, children):
    """Leaves nothing behind if the test fails."""
    for pid in (script.pid, *children):
        if running_processes.alive(pid):
            os.kill(pid, signal.SIGKILL)
    script.communicate()


def check_end(name, folder, act, seconds=30):
    """Runs a script, acts on it, and returns its exit code and all it printed."""
    folder.mkdir()
    script, children = start(name, folder), []
    try:
        children = children_of(script)
        assert len(children) >= 2
        assert name.startswith("exception") or all(
            map(running_processes.alive, children)
        )
        act(script, children)
        output = script.communicate(timeout=seconds)
        assert left_after(2, children) == []
        return script.returncode, *output
    finally:
        end(script, children)


def interrupt_group(script, children):
    os.killpg(script.pid, signal.SIGINT)


def interrupt_parent(script, children):
    os.kill(script.pid, signal.SIGINT)


def kill_parent(script, children):
    os.kill(script.pid, signal.SIGKILL)
    assert left_after(1.5, children) == []


def check_thread(script, children):
    assert script.stdout.readline() == "True\n", "they outlive the thread"
    kill_parent(script, children)


def nothing(script, children):
    pass


ENDS = {
    "killed": ("loop", kill_parent, -signal.SIGKILL, []),
    "killed, started by a thread": ("thread", check_thread, -signal.SIGKILL, []),
    "Ctrl-C in join": ("join", interrupt_group, -signal.SIGINT, ["KeyboardInterrupt"]),
    "Ctrl-C in a loop": ("loop", interrupt_group, -signal.SIGINT, ["Keyboard"]),
    "SIGINT in join": ("join", interrupt_parent, -signal.SIGINT, ["Keyboard"]),
    "Ctrl-C in a block": ("block", interrupt_group, 1, ["interrupted\n"]),
    "exception of the script": ("exception", nothing, 1, ["RuntimeError: of the"]),
    "exception in a child": (
        "exception in a child",
        nothing,
        1,
        ["LookupError: nothing under lookup", "Raised in Process-1"],
    ),
}
QUICK = ("killed", "Ctrl-C in join")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in ENDS
    ],
)
def test_nothing_is_left(case, tmp_path):
    name, act, code, texts = ENDS[case]
    found, _, errors = check_end(name, tmp_path / "started", act)
    assert found == code, errors
    assert [text for text in texts if text not in errors] == [], errors
    assert errors.count("KeyboardInterrupt\n") == ("Keyboard" in "".join(texts)), errors


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_left_after_random_kills(tmp_path, seed):
    """Ten scripts, each hit at a random moment of its life at a random place."""
    rng = random.Random(seed)
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        script, children = start(rng.choice(["loop", "join", "thread"]), folder), []
        try:
            early = rng.random() < 0.3
            if early:
                time.sleep(rng.uniform(0, 1))
            else:
                children = children_of(script)
                time.sleep(rng.uniform(0, 0.3))
            victim = rng.choice([script.pid, *children])
            os.kill(victim, rng.choice([signal.SIGKILL, signal.SIGTERM]))
            if victim != script.pid:
                time.sleep(rng.uniform(0, 0.3))
                act = rng.choice([interrupt_group, interrupt_parent, kill_parent])
                act(script, children)
            script.wait(timeout=30)
            children += [int(name) for name in os.listdir(folder)]
            assert left_after(2, children) == [], number
        finally:
            end(script, children)
        assert session_members(script.pid) == [], number
        shared = [name for name in os.listdir("/dev/shm") if f"-{script.pid}-" in name]
        assert shared == [], number


def session_members(session):
    """Returns the processes of a script that did not live to announce themselves."""
    deadline = time.monotonic() + 10
    while True:
        members = [int(pid) for pid in os.listdir("/proc") if pid.isdecimal()]
        members = [
            pid
            for pid in members
            if _session(pid) == session and running_processes.alive(pid)
        ]
        if not members or time.monotonic() > deadline:
            return members
        time.sleep(0.05)


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
