import dataclasses

import numpy as np
import pytest

from tfrl.training import experience


@pytest.mark.parametrize(
    ("make", "settings", "match"),
    [
        (experience.Trajectories, {"n_steps": 0}, "`Trajectories`: `n_steps` expected"),
        (experience.Replayed, {"capacity": 0}, "`Replayed`: `capacity` expected"),
        (experience.Replayed, {"batch_size": -1}, "`Replayed`: `batch_size` expected"),
        (experience.Replayed, {"updates_per_step": 0.0}, "`updates_per_step` expected"),
        (experience.Replayed, {"learning_starts": -1}, "`learning_starts` expected"),
        (experience.Replayed, {"gamma": 1.5}, "`Replayed`: `gamma` expected"),
        (experience.Replayed, {"sampler": "heap"}, "`Replayed`: `sampler` expected"),
        (experience.Replayed, {"beta": np.nan}, "`Replayed`: `beta` expected"),
        (experience.Replayed, {"capacity": 999}, "at least .* 1000; got 999"),
        (experience.FromDataset, {"data": {}, "n_batches": 0}, "`n_batches` expected"),
    ],
)
def test_settings_out_of_range(make, settings, match):
    with pytest.raises(ValueError, match=match):
        make(**settings)


def test_data_are_arrays_or_a_function():
    for data in (None, 3, [np.zeros(3)]):
        with pytest.raises(TypeError, match="`FromDataset`: `data` expected a mapping"):
            experience.FromDataset(data)


@pytest.mark.parametrize(
    ("updates", "n_steps", "n_envs", "count"),
    [(0.25, 16, 8, 32), (1.0, 1, 1, 1), (0.1, 4, 2, 1), (2.0, 3, 5, 30)],
)
def test_gradient_steps_of_an_epoch(updates, n_steps, n_envs, count):
    replayed = experience.Replayed(updates_per_step=updates, n_steps=n_steps)
    assert replayed.n_gradient_steps(n_envs) == count
    with pytest.raises(ValueError, match="a gradient step per epoch at least; got"):
        dataclasses.replace(replayed, updates_per_step=1e-6).n_gradient_steps(n_envs)


def test_arrays_are_not_recorded():
    kept = experience.recorded(experience.FromDataset({"a": np.zeros(9)}, 3))
    assert repr(kept.data) == "arrays in memory" and kept.batch_size == 3
    given = experience.FromDataset(dict, 3)
    assert experience.recorded(given) is given
