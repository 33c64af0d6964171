"""Tests of Coordinator and Process; however a script ends, no process is left."""

import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import golden_io
import pytest
import running_processes

import tfrl
from tests.distribute import process_bodies
from tfrl.distribute import processes

CASES = golden_io.load("alf/misc", symbol="Coordinator")


def fail(coord, exception):
    with coord.stop_on_exception():
        raise exception


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_golden_sequence(case):
    """The log has errors of a request outside `except`, too, which is none here."""
    log = case["out"]["log"]
    coord = processes.Coordinator()
    assert [str(coord.should_stop()), str(coord.joined)] == log[:2]
    coord.request_stop()
    assert [str(coord.should_stop()), str(coord.wait_for_stop(1.0))] == log[2:4]
    coord.clear_stop()
    assert str(coord.should_stop()) == log[6]
    fail(coord, ValueError("boom"))
    assert str(coord.should_stop()) == log[8]
    raised = []
    for call in (coord.raise_requested_exception, coord.join):
        with pytest.raises(ValueError, match="boom") as info:
            call()
        raised.append(f"{info.type.__name__} {info.value}")
    assert raised == log[9:11]
    with pytest.raises(ValueError, match="late") as info:
        coord.request_stop(ValueError("late"))
    assert info.type.__name__ == log[14]


def test_loop_runs_between_its_start_and_stop(tmp_path):
    coord = processes.Coordinator()
    paths = [str(tmp_path / name) for name in ("a", "b")]
    children = [process_bodies.Note(coord, paths[0], stop_after=3)]
    context = multiprocessing.get_context("spawn")
    children.append(context.Process(target=process_bodies.wait, args=[coord, paths[1]]))
    coord.register_process(children[1])
    for child in children:
        child.start()
    coord.join()
    assert coord.joined
    assert coord.should_stop()
    assert pathlib.Path(paths[0]).read_text().split() == ["start", *["run"] * 3, "stop"]
    assert pathlib.Path(paths[1]).read_text() == "stopped"
    assert [child.exitcode for child in children] == [0, 0]


def test_exception_of_a_child_reaches_join_with_its_traceback(capfd):
    """`Process(coord, target, args, kwargs)`; without a target it waits."""
    coord = processes.Coordinator()
    child = processes.Process(coord, process_bodies.raise_lookup, (), {"kind": "x"})
    idle = processes.Process(coord)
    idle.start()
    child.start()
    assert coord.wait_for_stop(30)
    with pytest.raises(ArithmeticError, match="no sum") as info:
        coord.join(None, 120, False)
    assert (child.exitcode, idle.exitcode) == (1, 0)
    (note,) = info.value.__notes__
    assert note.startswith(f"Raised in {child.name} (process {child.pid}):\nTraceback")
    for text in ("in raise_lookup", "in fail", "LookupError: nothing under x"):
        assert text in note
    assert "no sum" in capfd.readouterr().err, "it is seen without a join as well"
    with pytest.raises(ArithmeticError):
        coord.raise_requested_exception()
    assert len(info.value.__notes__) == 1, "it is not added twice"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("here only", "HereOnly: held a lock"),
        pytest.param("needs two", "NeedsTwo: one and two", marks=pytest.mark.slow),
        pytest.param("long", "xxxx", marks=pytest.mark.slow),
    ],
)
def test_exception_that_cannot_travel_arrives_as_text(kind, text, capfd):
    coord = processes.Coordinator()
    processes.Process(coord, process_bodies.fail, [kind]).start()
    with pytest.raises(RuntimeError, match="only the text could be sent") as info:
        coord.join()
    assert text in str(info.value)
    assert len(str(info.value)) < 10**4
    capfd.readouterr()


def test_exception_while_stopping_is_raised(capfd):
    coord = processes.Coordinator()
    process_bodies.FailsAtTheEnd(coord).start()
    coord.request_stop()
    with pytest.raises(OSError, match="cannot close"):
        coord.join()
    capfd.readouterr()


def test_plain_processes_may_take_part():
    coord = processes.Coordinator()
    context = multiprocessing.get_context("spawn")
    plain = context.Process(target=process_bodies.stop, args=[coord])
    plain.start()
    with pytest.raises(KeyError, match="from a plain process") as info:
        coord.join([plain])
    assert "in stop" in info.value.__notes__[0]
    assert plain.exitcode == 0


@pytest.mark.parametrize(
    ("target", "arg", "how"),
    [
        (process_bodies.leave_by, 9, "was killed by SIGKILL"),
        pytest.param(
            process_bodies.leave, 3, "exited with code 3", marks=pytest.mark.slow
        ),
    ],
    ids=["killed", "left"],
)
def test_death_of_a_child_stops_the_others(target, arg, how):
    coord = processes.Coordinator()
    other = processes.Process(coord)
    child = processes.Process(coord, target, [arg])
    other.start()
    child.start()
    assert coord.wait_for_stop(30), "seen without join"
    with pytest.raises(
        RuntimeError, match=rf"{child.name} \(process \d+\), which {how}"
    ):
        coord.join()
    assert other.exitcode == 0
    coord.clear_stop()
    assert not coord.should_stop(), "what was raised is not raised again"


def test_processes_that_hang_are_killed_after_the_grace():
    coord = processes.Coordinator()
    child = process_bodies.Bare(coord)
    child.start()
    assert not coord.wait_for_stop(0.05)
    coord.request_stop()
    coord.join(stop_grace_period_secs=0.1, ignore_live_processes=True)
    assert child.is_alive()
    with pytest.raises(RuntimeError, match=rf"within 0.1 s .*\['{child.name}'\] still"):
        coord.join(stop_grace_period_secs=0.1)
    assert child.exitcode == -9
    coord.clear_stop()
    coord.join()


def test_closed_and_never_started_processes_are_no_matter():
    coord = processes.Coordinator()
    later = processes.Process(coord)
    child = processes.Process(coord, time.sleep, [0.01])
    child.start()
    coord.request_stop()
    coord.join()
    coord.clear_stop()
    coord.register_process(child)
    child.close()
    assert not coord.should_stop()
    coord.join()
    coord.clear_stop()
    later.start()
    coord.request_stop()
    coord.join()
    assert later.exitcode == 0, "it was not forgotten"


def test_first_exception_wins_and_clear_forgets_it():
    coord = processes.Coordinator()
    coord.request_stop(OSError("first"))
    fail(coord, KeyError("second"))
    for _ in range(2):
        with pytest.raises(OSError, match="first"):
            coord.join()
    assert coord.joined
    coord.clear_stop()
    assert not (coord.joined or coord.should_stop())
    coord.raise_requested_exception()
    coord.request_stop()
    fail(coord, KeyError("after the first request"))
    coord.join()
    with pytest.raises(KeyError, match="third"):
        fail(coord, KeyError("third"))
    coord.clear_stop()
    fail(coord, KeyError("fourth"))
    with pytest.raises(KeyError, match="fourth"):
        coord.join()


def test_own_exception_keeps_its_traceback():
    coord = processes.Coordinator()
    fail(coord, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as info:
        coord.join()
    assert "fail" in [entry.name for entry in info.traceback]
    assert not hasattr(info.value, "__notes__")


def test_waiting_ends_with_a_request_of_another_thread():
    coord = processes.Coordinator()
    assert not coord.wait_for_stop(0)
    assert not coord.wait_for_stop(timeout=0.01)
    threading.Timer(0.05, coord.request_stop).start()
    assert coord.wait_for_stop()


def test_text_fits_whatever_its_letters():
    coord = processes.Coordinator()
    coord.request_stop(ValueError("\U0001f600" * 10**5))
    with pytest.raises(ValueError, match="\U0001f600"):
        coord.join()
    size = coord._report._size.value
    found = processes._unpacked(coord._report._bytes[:size])
    assert type(found) is RuntimeError and "\U0001f600" in str(found)


def test_bad_arguments():
    coord = processes.Coordinator()
    for ex in (ValueError, "boom", (None, None, None), (1, 2)):
        with pytest.raises(TypeError, match="request_stop`: `ex` expected an exceptio"):
            coord.request_stop(ex)
    with pytest.raises(ValueError, match="join`: `stop_grace_period_secs` expected"):
        coord.join(stop_grace_period_secs=-1)
    with pytest.raises(TypeError, match="`Process`: `coord` expected a Coordinator"):
        processes.Process(None, time.sleep)
    with pytest.raises(TypeError, match="`Process`: `target` expected a function"):
        processes.Process(coord, 3)


def test_no_tensorflow_is_loaded_until_it_is_needed():
    code = (
        "import sys, tfrl, tfrl.distribute as room\n"
        "room.Coordinator(), room.PerProcessContext(), room.get_unused_port\n"
        "print([m for m in ('tensorflow', 'keras', 'gymnasium') if m in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert result.stdout == "[]\n", result.stderr


def test_every_name_of_the_door_is_there():
    assert dir(tfrl.distribute) == sorted(tfrl.distribute.__all__)
    assert all(hasattr(tfrl.distribute, name) for name in tfrl.distribute.__all__)
    with pytest.raises(AttributeError, match=r"'tfrl.distribute' has no .* 'nothing'"):
        _ = tfrl.distribute.nothing


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
        alive = all(map(running_processes.alive, children))
        assert alive or name.startswith("exception")
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
    "exception in a child": ("exception in a child", nothing, 1, ["Raised in Pro"]),
}
QUICK = ("killed", "Ctrl-C in join")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        *QUICK,
        *(pytest.param(x, marks=pytest.mark.slow) for x in ENDS if x not in QUICK),
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
        members = [pid for pid in members if _session(pid) == session]
        members = list(filter(running_processes.alive, members))
        if not members or time.monotonic() > deadline:
            return members
        time.sleep(0.05)


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
