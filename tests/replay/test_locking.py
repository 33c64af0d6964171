"""Methods under a lock."""

import threading

from tfrl import replay


class Lock:
    """Counts how deep it is held."""

    def __init__(self):
        self.depth = self.deepest = 0

    def __enter__(self):
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)

    def __exit__(self, *_):
        self.depth -= 1


class Counter:
    def __init__(self, lock):
        self._lock, self.count = lock, 0

    @replay.atomic
    def add(self, number: int, twice: bool = False) -> int:
        """Adds."""
        self.count += number
        return self.add(number) if twice else self.count

    @replay.atomic
    def fail(self):
        raise KeyError("inside")


def test_a_method_holds_the_lock_while_it_runs():
    lock = Lock()
    counter = Counter(lock)
    assert counter.add(2, twice=True) == 4
    assert (lock.depth, lock.deepest) == (0, 2)


def test_the_lock_is_let_go_after_an_error():
    lock = Lock()
    try:
        Counter(lock).fail()
    except KeyError:
        assert (lock.depth, lock.deepest) == (0, 1)


def test_without_a_lock_it_runs_as_it_is():
    assert Counter(None).add(3) == 3


def test_threads_take_turns():
    counter = Counter(threading.RLock())
    seen = []

    class Slow(Counter):
        @replay.atomic
        def step(self):
            seen.append("in")
            inside.wait(0.01)
            seen.append("out")

    inside = threading.Event()
    slow = Slow(counter._lock)
    threads = [threading.Thread(target=slow.step) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["in", "out"] * 3


def test_the_method_keeps_what_describes_it():
    assert Counter.add.__name__ == "add"
    assert Counter.add.__doc__ == "Adds."
    assert Counter.add.__annotations__["return"] is int
