"""Logging: messages in colour, messages logged once, log files."""

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import arguments, checks
from tfrl.summaries import _recording

_LOGGER = logging.getLogger("tfrl")
_BLUE, _RED, _PLAIN = "\033[1;34m", "\033[1;31m", "\033[1;0m"
_OURS = "tfrl"  # handlers of `enable_logging`
_SAID: set[tuple[str, int]] = set()


def info(msg: str, *args: Any) -> None:
    """Logs a message in blue, at the level INFO of the logger `tfrl`.

    Args:
        msg: what to say, with `%` places for `args`.
        *args: what comes into these places.

    Example:
        >>> info("%d steps", 3)
    """
    _say(logging.INFO, msg, args)


def info_once(msg: str, *args: Any) -> None:
    """Logs a message as `info`, once for each line of the program that calls this.

    Args:
        msg: what to say, with `%` places for `args`.
        *args: what comes into these places, the first time.

    Example:
        >>> for step in range(3):
        ...     info_once("first at step %d", step)
    """
    if _is_first():
        _say(logging.INFO, msg, args)


def warning(msg: str, *args: Any) -> None:
    """Logs a message in red, at the level WARNING of the logger `tfrl`.

    Args:
        msg: what to say, with `%` places for `args`.
        *args: what comes into these places.

    Example:
        >>> warning("%d episodes had no end", 3)
    """
    _say(logging.WARNING, msg, args)


def warning_once(msg: str, *args: Any) -> None:
    """Logs a message as `warning`, once for each line of the program that calls this.

    Args:
        msg: what to say, with `%` places for `args`.
        *args: what comes into these places, the first time.

    Example:
        >>> for step in range(3):
        ...     warning_once("first at step %d", step)
    """
    if _is_first():
        _say(logging.WARNING, msg, args)


def log_metrics(metrics: Iterable[Any], prefix: str = "") -> None:
    """Logs the results of metrics, one below the other, at the level INFO.

    Args:
        metrics: objects with `name` and `result()`, such as Keras' metrics.
        prefix: first line.

    Example:
        >>> mean = keras.metrics.Mean(name="return")
        >>> mean.update_state([1.0, 2.0])
        >>> log_metrics([mean], "evaluation")
    """
    where, expected = "log_metrics", "a list of metrics with `name` and `result()`"
    checks.check_type(where, "metrics", metrics, Iterable, expected)
    lines = []
    for metric in metrics:
        if not (hasattr(metric, "name") and callable(getattr(metric, "result", None))):
            raise checks.wrong_type(where, "metrics", metric, expected)
        lines.append(f"{metric.name} = {_shown(metric.result())}")
    _LOGGER.info("%s \n\t\t %s", prefix, "\n\t\t ".join(lines), stacklevel=2)


def enable_logging(
    name: str | None = None,
    level: int = logging.INFO,
    output_filepath: str | os.PathLike[str] | None = None,
    output_level: int | None = None,
) -> None:
    """Shows the messages of all loggers, and writes them to a file if asked for.

    A line is `[name|logger|LEVEL] message`. Where there already is something that
    shows messages, as in some notebooks, nothing more is added to it. A second call
    replaces what the first one did.

    Args:
        name: of this process, in front of every line; None for none.
        level: the least level shown.
        output_filepath: a file that lines are added to; folders are made.
        output_level: the least level written to it, None for `level`.

    Raises:
        TypeError: if a level is no int.
        ValueError: if it is negative.

    Example:
        >>> enable_logging("learner", level=logging.WARNING)
    """
    where = "enable_logging"
    checks.check_type(where, "name", name, str | None, "a text or None")
    checks.check_whole_number(where, "level", level, low=0)
    file_level = level
    if output_level is not None:
        file_level = checks.check_whole_number(where, "output_level", output_level, 0)
    shown = "" if name is None else name.replace("%", "%%") + "|"
    formatter = logging.Formatter(f"[{shown}%(name)s|%(levelname)s] %(message)s")
    handlers: list[tuple[int, logging.Handler]] = []
    if output_filepath is not None:
        path = arguments.as_path(where, "output_filepath", output_filepath)
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers = [(file_level, logging.FileHandler(path, encoding="utf-8"))]
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if handler.name == _OURS]:
        root.removeHandler(old)
        old.close()
    if not root.handlers:
        handlers.append((level, logging.StreamHandler()))
    for least, handler in handlers:
        handler.set_name(_OURS)
        handler.setLevel(least)
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(level if output_filepath is None else min(level, file_level))


def _say(level: int, msg: str, args: tuple[Any, ...]) -> None:
    colour = _BLUE if level == logging.INFO else _RED
    _LOGGER.log(level, f"{colour}{msg}{_PLAIN}", *args, stacklevel=3)


def _is_first() -> bool:
    """Whether the line two calls above says something for the first time."""
    site = _recording.call_site(2)
    is_first = site not in _SAID
    _SAID.add(site)
    return is_first


def _shown(result: Any) -> str:
    if isinstance(result, Mapping):
        parts = (f"{name}: {_shown(part)}" for name, part in result.items())
        return "{" + ", ".join(parts) + "}"
    return str(np.asarray(result)) if tf.is_tensor(result) else str(result)
