"""Runs whose actors play, interrupted and killed: nothing is left, and they go on."""

import os
import random
import signal
import time

import actor_victims
import pytest
from running_processes import gone, marked

from tfrl.saving import checkpoints
from tfrl.summaries import run_log

pytestmark = pytest.mark.slow

KILLS = 20


@pytest.fixture(name="start")
def _start(tmp_path):
    with actor_victims.served(tmp_path) as start:
        yield start


def is_left(mark, seconds=5.0):
    end = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def playing(mark, count=4, seconds=30.0):
    """Waits until the actors of a learner run; returns whether they do."""
    end = time.monotonic() + seconds
    while len(marked(mark)) < count and time.monotonic() < end:
        time.sleep(0.05)
    return len(marked(mark)) >= count


def test_a_killed_learner_leaves_nothing_and_goes_on(tmp_path, start):
    delays, with_actors, killed = random.Random(0), 0, 0
    shared = set(os.listdir("/dev/shm"))
    for repetition in range(1000):
        mark = f"TFRL_TRAINER_{os.getpid()}_{repetition}"
        learner, output = start("trainer", mark)
        if killed == KILLS:
            assert gone(learner, seconds=120), output.read_text()
            break
        playing(mark)
        time.sleep(delays.uniform(0.0, 2.0))
        # Some of its actors first, now and then.
        for pid in marked(mark)[: delays.randrange(2)]:
            os.kill(pid, signal.SIGKILL)
        actors = [pid for pid in marked(mark) if pid != learner]
        try:
            os.kill(learner, signal.SIGKILL)
        except ProcessLookupError:  # it has come to its end
            break
        killed, with_actors = killed + 1, with_actors + bool(actors)
        assert gone(learner, *actors) and not is_left(mark)
        assert "Error" not in output.read_text()
    assert output.read_text().splitlines()[-1] == f"ended {actor_victims.EPOCHS}"
    assert with_actors > 3 and not is_left(mark)
    assert set(os.listdir("/dev/shm")) <= shared
    found = run_log.read_metrics(tmp_path / "run" / "metrics.csv")
    assert found["epoch"].tolist() == [*range(1, actor_victims.EPOCHS + 1)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_an_interrupted_learner_saves_and_ends_quietly(tmp_path, start, number):
    mark = f"TFRL_INTERRUPTED_{os.getpid()}_{int(number)}"
    learner, output = start("trainer", mark)
    assert playing(mark)
    time.sleep(1.0)
    actors = [pid for pid in marked(mark) if pid != learner]
    os.killpg(learner, number)
    assert gone(learner, *actors, seconds=20) and not is_left(mark)
    told = output.read_text()
    assert "Traceback" not in told, told
    epoch = int(told.split("interrupted ")[1])
    assert 0 < epoch < actor_victims.EPOCHS
    steps = [epoch * 8 * 16]
    assert checkpoints.list_steps(tmp_path / "run")[-1:] == steps
    # The same folder goes on.
    learner, output = start("trainer", mark + "_AGAIN")
    assert gone(learner, seconds=120)
    assert f"ended {actor_victims.EPOCHS}" in output.read_text()
