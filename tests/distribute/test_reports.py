"""Tests of how one exception gets from a process to another."""

import multiprocessing
import pickle

import pytest

from tfrl.distribute import _reports


class HereOnly(Exception):
    def __reduce__(self):
        raise TypeError("stays here")


def offer_all(report, exceptions):
    for exception in exceptions:
        report.offer(exception)


def child_offers(report, *exceptions):
    context = multiprocessing.get_context("fork")
    child = context.Process(target=offer_all, args=[report, exceptions])
    child.start()
    child.join()
    assert child.exitcode == 0
    return child


def test_first_exception_stays_until_cleared():
    report = _reports.Report()
    assert report.read() is None
    first = ValueError("first")
    offer_all(report, [first, ValueError("second")])
    assert report.read() is first
    for _ in range(2):
        report.clear()
        assert report.read() is None
    report.offer(KeyError("third"))
    assert report.read().args == ("third",)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_it_arrives_from_another_process():
    report = _reports.Report()
    child = child_offers(report, OSError(5, "first"), OSError(6, "second"))
    found = report.read()
    assert (type(found), found.args) == (OSError, (5, "first"))
    expected = (
        f"Raised in {child.name} (process {child.pid}):\nOSError: [Errno 5] first\n"
    )
    assert found.__notes__ == [expected]
    assert report.read() is found, "the note is not added twice"
    report.offer(ValueError("late"))
    assert report.read() is found


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "exception", [HereOnly("no way"), ValueError(b"0" * 10**6)], ids=["type", "size"]
)
def test_text_arrives_of_what_cannot(exception):
    report = _reports.Report()
    child_offers(report, exception)
    found = report.read()
    assert type(found) is RuntimeError
    assert str(exception)[-6:] in str(found)


def test_text_fits_whatever_its_letters():
    data = _reports._packed(ValueError("\U0001f600" * 10**5))
    assert len(data) <= _reports._MAX_BYTES
    assert pickle.loads(data)[0] == b""


def test_a_death_says_how():
    text = str(_reports.death("actor-1", 7, -9))
    assert "got actor-1 (process 7), which was killed by SIGKILL;" in text
    assert "which exited with code 3;" in str(_reports.death("actor-1", 7, 3))
