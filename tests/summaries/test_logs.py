"""Tests of messages in colour, once a line, and of log files."""

import contextlib
import logging

import golden_io
import keras
import pytest
import tensorflow as tf

from tfrl.summaries import logs

[LINES] = golden_io.load("alf/common", symbol="warning_once")
[METRICS] = golden_io.load("alf/common", symbol="log_metrics")


class Named:
    def __init__(self, name, value):
        self.name, self.value = name, value

    def result(self):
        return self.value


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, caplog):
    monkeypatch.setattr(logs, "_SAID", set())
    caplog.set_level(logging.INFO)


@contextlib.contextmanager
def alone():
    """The root logger without handlers, put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield root
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


def test_golden_lines(caplog):
    expected = LINES["out"]["lines"]
    logs.info("a %s b %d", "x", 3)
    logs.warning("a %s b %d", "x", 3)
    assert caplog.messages == [expected["info"], expected["warning"]]
    for name in ("info_once", "warning_once"):
        caplog.clear()
        logs._SAID.clear()
        once = getattr(logs, name)
        for _ in range(2):
            once("m %d", 1)
            once("m %d", 2)
        assert caplog.messages == expected[name]


def test_golden_metrics(caplog):
    given = METRICS["in"]
    metrics = [Named(name, value) for name, value in given["metrics"]]
    logs.log_metrics(metrics, given["prefix"])
    # What is recorded goes on with standard deviations of later versions.
    assert METRICS["out"]["text"].startswith(caplog.messages[0] + "\n")


def test_metrics_of_keras(caplog):
    mean = keras.metrics.Mean(name="return")
    mean.update_state([0.1])
    nested = Named("parts", {"a": tf.constant([1, 2]), "b": 0.5})
    logs.log_metrics(iter([mean, nested]))
    text = " \n\t\t return = 0.1\n\t\t parts = {a: [1 2], b: 0.5}"
    assert caplog.messages == [text]


def test_once_is_once_a_line(caplog):
    for i in range(3):
        logs.info_once("here %d", i)
        logs.warning_once("there %d", i)
    logs.info_once("both"), logs.warning_once("never: the line has spoken")
    plain = [message[7:-6] for message in caplog.messages]
    assert plain == ["here 0", "there 0", "both"]
    assert {record.levelname for record in caplog.records} == {"INFO", "WARNING"}


def test_records_name_the_caller(caplog):
    logs.info("a")
    logs.info_once("b")
    logs.warning("c")
    logs.warning_once("d")
    logs.log_metrics([])
    found = [(record.funcName, record.name) for record in caplog.records]
    assert found == [("test_records_name_the_caller", "tfrl")] * 5
    caplog.clear()
    logs.info("100 %")
    assert caplog.messages == ["\033[1;34m100 %\033[1;0m"]


def test_enable_logging(tmp_path, capsys):
    path, other = tmp_path / "new" / "run.log", logging.getLogger("some.library")
    with alone() as root:
        for _ in range(2):
            logs.enable_logging("100%", logging.WARNING, path, logging.DEBUG)
        other.debug("quiet")
        other.warning("loud")
        assert capsys.readouterr().err == "[100%|some.library|WARNING] loud\n"
        assert path.read_text().splitlines() == [
            "[100%|some.library|DEBUG] quiet",
            "[100%|some.library|WARNING] loud",
        ]
        logs.enable_logging()
        other.debug("quiet")
        other.info("heard")
        assert capsys.readouterr().err == "[some.library|INFO] heard\n"
        assert len(path.read_text().splitlines()) == 2
        assert len(root.handlers) == 1


def test_file_has_the_level_of_the_terminal(tmp_path):
    with alone():
        logs.enable_logging(level=logging.ERROR, output_filepath=tmp_path / "run.log")
        logging.warning("no")
        logging.error("yes")
    assert (tmp_path / "run.log").read_text() == "[root|ERROR] yes\n"


def test_other_handlers_are_left_alone():
    handler = logging.NullHandler()
    with alone() as root:
        root.addHandler(handler)
        logs.enable_logging(level=logging.DEBUG)
        assert root.handlers == [handler]
        assert root.level == logging.DEBUG


def test_levels_are_ints(tmp_path):
    path = tmp_path / "run.log"
    with alone() as root:
        for name, value in (("level", "INFO"), ("output_level", 1.5)):
            with pytest.raises(TypeError, match=f"`enable_logging`: `{name}` expected"):
                logs.enable_logging(output_filepath=path, **{name: value})
        assert not root.handlers
    assert not path.exists()
