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
        self._lock, self.count, self.seen = lock, 0, []

    @replay.atomic
    def add(self, number: int, twice: bool = False) -> int:
        """Adds."""
        self.count += number
        return self.add(number) if twice else self.count

    @replay.atomic
    def fail(self):
        raise KeyError("inside")

    @replay.atomic
    def wait(self):
        self.seen.append("in")
        threading.Event().wait(0.01)
        self.seen.append("out")


def test_a_method_holds_the_lock_while_it_runs():
    lock = Lock()
    counter = Counter(lock)
    assert counter.add(2, twice=True) == 4
    assert (lock.depth, lock.deepest) == (0, 2)
    try:
        counter.fail()
    except KeyError:
        assert lock.depth == 0
    assert Counter(None).add(3) == 3, "without a lock it runs as it is"


def test_threads_take_turns():
    counter = Counter(threading.RLock())
    threads = [threading.Thread(target=counter.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.seen == ["in", "out"] * 3


def test_the_method_keeps_what_describes_it():
    assert Counter.add.__name__ == "add"
    assert Counter.add.__doc__ == "Adds."
    assert Counter.add.__annotations__["return"] is int
