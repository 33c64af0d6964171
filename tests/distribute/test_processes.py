"""Tests of Coordinator and Process; how they end is in test_processes_ends.py."""

import multiprocessing
import pathlib
import subprocess
import sys
import threading
import time

import golden_io
import pytest

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


def test_arguments_reach_the_target_by_position():
    """`Process(coord, target, args, kwargs)`; without a target it waits."""
    coord = processes.Coordinator()
    process = processes.Process(coord, process_bodies.fail, (), {"kind": "there"})
    idle = processes.Process(coord)
    idle.start()
    process.start()
    with pytest.raises(LookupError, match="nothing under there"):
        coord.join(None, 120, False)
    assert (process.exitcode, idle.exitcode) == (1, 0)


def test_exception_of_a_child_reaches_join_with_its_traceback(capfd):
    coord = processes.Coordinator()
    child = processes.Process(coord, process_bodies.raise_lookup, ["x"])
    child.start()
    assert coord.wait_for_stop(30)
    with pytest.raises(ArithmeticError, match="no sum") as info:
        coord.join()
    (note,) = info.value.__notes__
    assert note.startswith(f"Raised in {child.name} (process {child.pid}):\nTraceback")
    for text in ("in raise_lookup", "in fail", "LookupError: nothing under x"):
        assert text in note
    assert "no sum" in capfd.readouterr().err, "it is seen without a join as well"
    with pytest.raises(ArithmeticError):
        coord.raise_requested_exception()


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


@pytest.mark.parametrize("ex", [ValueError, "boom", (None, None, None), (1, 2)])
def test_what_is_no_exception_is_refused(ex):
    with pytest.raises(TypeError, match="`ex` expected an exception, or sys.exc_info"):
        processes.Coordinator().request_stop(ex)


def test_bad_arguments():
    coord = processes.Coordinator()
    with pytest.raises(ValueError, match="`stop_grace_period_secs` .*least 0; got -1"):
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
