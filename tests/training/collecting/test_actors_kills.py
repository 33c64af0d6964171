"""Nothing is left of actors, however they or their learner end."""

import os
import random
import signal
import time

import actor_victims
import pytest
from running_processes import gone, marked

pytestmark = pytest.mark.slow

REPETITIONS = 30


@pytest.fixture(scope="module")
def victims(tmp_path_factory):
    """Starts learners: a function of what they do and their mark."""
    with actor_victims.served(tmp_path_factory.mktemp("victims")) as start:
        yield start


@pytest.mark.parametrize(
    ("what", "number", "expected"),
    [
        ("play", signal.SIGINT, "KeyboardInterrupt"),
        ("play", signal.SIGKILL, ""),
        ("asynchronous", signal.SIGKILL, ""),
        ("error-in-actor", None, "OSError: the wheel came off"),
        ("error-in-learner", None, "ZeroDivisionError"),
        ("killed-actor", None, "got its end by signal SIGKILL"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_nothing_is_left(victims, what, number, expected):
    with_actors = 0
    delays = random.Random(0)
    for repetition in range(REPETITIONS):
        mark = f"TFRL_VICTIM_{os.getpid()}_{what}_{number}_{repetition}"
        mark = mark.replace("-", "_")
        learner, output = victims(what, mark)
        actors = []
        if number is not None:
            # Also while the actors start.
            time.sleep(delays.uniform(0.2, 2.0))
            actors = marked(mark)
            if number == signal.SIGINT:
                os.killpg(learner, number)
            else:
                os.kill(learner, number)
        assert gone(learner, seconds=60), output.read_text()
        with_actors += bool(actors)
        assert expected in output.read_text()
        assert gone(*actors)
        end = time.monotonic() + 5
        while (left := marked(mark)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not left
    assert number is None or with_actors > REPETITIONS / 2
