import numpy as np
import pytest

from tfrl.summaries.plotting import _run_scalars, readers


def reader(monkeypatch, x, *runs):
    found = [(np.asarray(x), np.asarray(run, np.float64)) for run in runs]
    monkeypatch.setattr(_run_scalars, "read_scalars", lambda *_: found)
    names = [str(index) for index in range(len(runs))]
    return readers.EnvironmentStepsReturnReader(names, x, "task", None, "minmax")


def test_mean_of_tasks(monkeypatch):
    first = reader(monkeypatch, [0, 1], [0.0, 2.0], [2.0, 6.0])
    second = reader(monkeypatch, [0, 1], [10.0, 10.0])
    group = readers.MeanCurveGroupReader([first, second], name="PPO")
    curve = group()
    np.testing.assert_allclose(curve.x, [0, 1])
    np.testing.assert_allclose(curve.y, [5.5, 7.0])
    np.testing.assert_allclose(curve.min_y, [5.0, 6.0])
    np.testing.assert_allclose(curve.max_y, [6.0, 8.0])
    np.testing.assert_allclose([curve.ay, curve.min_ay, curve.max_ay], [6.25, 5.5, 7.0])
    assert (curve.name, group.name) == ("PPO", "PPO")
    assert group.x_label == "Environment Steps"
    assert group.y_label == "Average Episodic Return"


def test_ranges_normalize_and_keep_the_region_upright(monkeypatch):
    first = reader(monkeypatch, [0, 1], [0.0, 2.0], [2.0, 6.0])
    ranges = [(-2.0, 2.0)]
    group = readers.MeanCurveGroupReader([first], ranges)
    curve = group()
    assert group.y_label == "Normalized Score"
    np.testing.assert_allclose(curve.y, [0.75, 1.5])
    np.testing.assert_allclose(curve.min_y, [0.5, 1.0])
    costs = readers.MeanCurveGroupReader([first], [(2.0, -2.0)])()
    np.testing.assert_allclose(costs.y, 1.0 - curve.y)
    np.testing.assert_allclose(costs.max_y, 1.0 - curve.min_y)
    np.testing.assert_allclose(costs.min_ay, 1.0 - curve.max_ay)


def test_what_cannot_be_averaged_is_named(monkeypatch):
    first = reader(monkeypatch, [0, 1], [0.0, 2.0])
    other = reader(monkeypatch, [0, 2], [0.0, 2.0])
    longer = reader(monkeypatch, [0, 1, 2], [0.0, 2.0, 2.0])
    with pytest.raises(ValueError, match="expected a reader at least"):
        readers.MeanCurveGroupReader([])
    for odd in (first(), "run"):
        with pytest.raises(TypeError, match="expected MeanCurveReaders; got"):
            readers.MeanCurveGroupReader([first, odd])
    for odd in (other, longer):
        with pytest.raises(ValueError, match="2 points from 0 to 1; got .* same x_ste"):
            readers.MeanCurveGroupReader([first, odd])
    for ranges in ([], [(0.0, 1.0)] * 2, [(1.0, 1.0)], [(0.0, np.inf)]):
        with pytest.raises(ValueError, match="`task_performance_ranges` expected 1 pa"):
            readers.MeanCurveGroupReader([first], ranges)
