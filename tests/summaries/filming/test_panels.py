"""Tests of charts beside frames."""

import sys

import numpy as np
import pytest
from matplotlib import figure
from refusals import bad, table

from tfrl.summaries.filming import panels

BAR = np.array([47, 111, 179])


def pixels(image):
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def test_bars_are_as_high_as_their_numbers():
    drawn = pixels(panels.render_bars("pi", [1.0, 0.5, 0.0], list("abc"), 0.0, 1.0))
    assert drawn.shape == (200, 320, 3)
    is_bar = np.all(np.abs(drawn - BAR) < 8, axis=-1)
    heights = is_bar.sum(axis=0)
    columns = np.flatnonzero(heights > 3)
    bars = np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)
    first, second = (heights[bar].max() for bar in bars)
    assert first == pytest.approx(2 * second, abs=3)
    assert first > 100
    # The ends of the axis are given: no number is as high as the panel without.
    low = pixels(panels.render_bars("pi", [0.5], None, 0.0, 1.0))
    assert np.all(np.abs(low - BAR) < 8, axis=-1).sum(axis=0).max() < 100


def test_heat_map_has_its_first_row_on_top():
    drawn = pixels(panels.render_heatmap("q", [[1.0, 1.0], [0.0, 0.0]], size=(100, 90)))
    assert drawn.shape == (90, 100, 3)
    yellow, violet = np.array([253, 231, 37]), np.array([68, 1, 84])
    inside = drawn[:, 25:45]
    rows_of = [
        np.flatnonzero(np.all(np.abs(inside - rgb) < 4, axis=(-1, -2)))
        for rgb in (yellow, violet)
    ]
    assert len(rows_of[0]) > 15
    assert rows_of[0].max() < rows_of[1].min()


def test_ends_of_colours():
    one, two = (
        pixels(panels.render_heatmap("q", [[x, x]], 0.0, 10.0, (90, 60)))
        for x in (1.0, 9.0)
    )
    assert one[:, :40].sum() != two[:, :40].sum()


def test_figure():
    red = figure.Figure(figsize=(3, 2), dpi=10, facecolor="red")
    assert np.all(pixels(panels.render_figure(red)) == (255, 0, 0))


@table(
    (
        panels.render_bars,
        bad(ValueError, "data", "x", [[1.0]]),
        bad(ValueError, "data", "x", []),
        bad(ValueError, "data", "x", [np.nan]),
        bad(ValueError, "labels", "x", [1.0], ["a", "b"]),
        bad(ValueError, "size", "x", [1.0], size=(0, 9)),
    ),
    (panels.render_heatmap, bad(ValueError, "data", "x", [1.0])),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize(
    ("missing", "library"), [("matplotlib", "matplotlib"), ("PIL", "pillow")]
)
def test_missing_libraries(missing, library, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    match = rf"expected the library {library}; found none; run: pip install {library} "
    with pytest.raises(ImportError, match=match):
        panels.render_bars("x", [1.0])
