"""What every test and every docstring example finds: two CPUs and short names.

`setup.cfg` loads this file as a plugin too (`-p conftest`), because the examples in
`tfrl/` lie outside this folder and would not see it otherwise.
"""

import gc
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TFRL_XLA_CACHE", "")
# What is imported, and thousands of traces, live as long as the process: looked through
# ever again, they cost a tenth of its time.
gc.set_threshold(200_000, 50, 1000)

import gymnasium as gym  # noqa: E402
import hypothesis  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

import tfrl  # noqa: E402

_iter = tf.data.Dataset.__iter__


def _untuned(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Iterates without the thread that tunes: freeing it may take up to a minute."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return _iter(dataset.with_options(options))


tf.data.Dataset.__iter__ = _untuned

# Where examples let agents learn.
_LEARNING = frozenset(["agents", "training", "rl_trainer.py"])


def pytest_configure() -> None:
    """Splits the CPU in two for strategies; lets no clock or chance fail a test."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    hypothesis.settings.register_profile("tfrl", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("tfrl")


def pytest_collection_finish() -> None:
    """Lets no run look through all that thousands of tests have left: seconds each."""
    processes: Any = sys.modules.get("tfrl.training._processes")
    if processes is not None:
        spared = types.SimpleNamespace(freeze=gc.freeze, unfreeze=gc.unfreeze)
        spared.collect = lambda: 0
        processes.gc = spared


def pytest_unconfigure() -> None:
    """Lets the process end without a last collection of garbage: seconds in all."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _spares_what_was_there() -> None:
    """Keeps `gc.collect` to objects made in this file.

    Some tests call it, and LiteRT does for every model: among the objects of thousands
    of tests before, each call takes seconds.
    """
    gc.collect(1)
    gc.freeze()


@pytest.fixture(autouse=True)
def _examples(request: pytest.FixtureRequest) -> Iterator[None]:
    """Gives examples of docstrings their names, and agents in them plain graphs."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    request.getfixturevalue("doctest_namespace").update(
        tf=tf, np=np, keras=keras, gym=gym, tfrl=tfrl
    )
    if not _LEARNING.intersection(request.path.parts):
        yield
        return
    import plain_graphs  # noqa: PLC0415

    with plain_graphs.plain_graphs():
        yield


@pytest.fixture(autouse=True)
def _leaves_no_summary_step() -> Iterator[None]:
    """Fails who leaves a default step of summaries, by which others would write."""
    yield
    step = tf.summary.experimental.get_step()
    tf.summary.experimental.set_step(None)
    assert step is None, f"set_step({step!r}) is left"
