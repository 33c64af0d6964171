"""Tests of `tfrl.datasets._batches`."""

import numpy as np
import pytest

from tfrl.datasets import _batches


def test_shuffled_shows_every_row_once_in_every_epoch():
    data = _batches.shuffled(np.arange(10), 4, seed=1)
    epochs = [[batch.numpy().tolist() for batch in data] for _ in range(2)]
    assert [len(batch) for batch in epochs[0]] == [4, 4, 2]
    flat = [sum(epoch, []) for epoch in epochs]
    assert [sorted(rows) for rows in flat] == [list(range(10))] * 2
    assert flat[0] != flat[1]


def test_ahead_of_nothing_is_the_dataset_itself():
    data = _batches.shuffled(np.arange(3), 2, seed=None)
    assert _batches.ahead(data, 0) is data
    assert len(_batches.ahead(data, 3)) == 2


def test_fetched_passes_on_what_there_is():
    assert _batches.fetched("load", "it", lambda: 7) == 7


@pytest.mark.parametrize("error", [OSError("no route"), Exception("URL fetch failure")])
def test_failed_fetches(error):
    def fetch():
        raise error

    with pytest.raises(ConnectionError, match=f"`load`: `path` .*it .*{error}") as info:
        _batches.fetched("load", "it", fetch)
    assert info.value.__cause__ is error


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0, 1), "train_bs"), ((1, 0), "test_bs"), ((1, 1, -1), "num_workers")],
    ids=["train", "test", "workers"],
)
def test_check(arguments, name):
    _batches.check("load", 1, 1)
    with pytest.raises(ValueError, match=f"`load`: `{name}` expected an int"):
        _batches.check("load", *arguments)
