import struct
import sys

import numpy as np
import pytest

from tfrl.summaries import run_log
from tfrl.summaries.plotting import curves

TRAIN, EVAL = "train/return_mean", "eval/return_mean"


def columns(rows=60):
    evaluation = np.full(rows, np.nan)
    evaluation[9::10] = 400.0
    return {
        "env_steps": 256.0 * np.arange(1, rows + 1),
        TRAIN: np.linspace(20.0, 500.0, rows),
        EVAL: evaluation,
    }


def size(path):
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


def colours(path):
    import matplotlib.image

    pixels = (matplotlib.image.imread(path)[..., :3] * 255).round().astype(int)
    return {
        f"#{red:02x}{green:02x}{blue:02x}"
        for red, green, blue in np.unique(pixels.reshape(-1, 3), axis=0)
    }


def test_picture_shows_all_curves(tmp_path):
    path = tmp_path / "curve.png"
    curves.plot_learning_curve(columns(), path, title="PPO", target=475.0)
    assert size(path) == (1200, 750)
    assert {curves._TRAIN, curves._EVAL, curves._TARGET} <= colours(path)
    assert list(tmp_path.iterdir()) == [path]
    curves.plot_learning_curve(columns() | {EVAL: np.full(60, np.nan)}, path, title="x")
    assert {curves._EVAL, curves._TARGET}.isdisjoint(colours(path))


def test_reads_a_run_log(tmp_path):
    with run_log.RunLog(tmp_path, [TRAIN, EVAL]) as log:
        log.write(256, {TRAIN: 20.0})
        log.write(512, {TRAIN: float("nan"), EVAL: 25.0})
    curves.plot_learning_curve(log.path, tmp_path / "curve.png", title="PPO")
    assert size(tmp_path / "curve.png") == (1200, 750)


def test_no_global_figure(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    curves.plot_learning_curve(columns(), tmp_path / "curve.png", title="PPO")
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("rows", [1, 31], ids=str)
def test_few_rows_are_drawn(tmp_path, rows):
    path = tmp_path / "curve.png"
    curves.plot_learning_curve(columns(rows), path, title="PPO")
    assert curves._TRAIN in colours(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({TRAIN: np.full(60, np.nan), EVAL: np.full(60, np.inf)}, "none in 60 rows"),
        ({"env_steps": np.full(60, np.nan)}, "none in 60 rows"),
        ({TRAIN: np.ones(59)}, "60 rows in train/return_mean, as in .*; got 59"),
    ],
    ids=["returns", "steps", "unequal"],
)
def test_nothing_finite_is_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        curves.plot_learning_curve(
            columns() | change, tmp_path / "curve.png", title="PPO"
        )
    assert list(tmp_path.iterdir()) == []


def test_missing_column_and_other_suffix_are_refused(tmp_path):
    with pytest.raises(ValueError, match="a column 'env_steps'; got "):
        curves.plot_learning_curve({TRAIN: np.ones(2)}, tmp_path / "a.png", title="x")
    with pytest.raises(ValueError, match="end in .png; got .*a.pdf"):
        curves.plot_learning_curve(columns(), tmp_path / "a.pdf", title="x")


def test_failed_drawing_keeps_the_old_picture(tmp_path, monkeypatch):
    from matplotlib import figure

    path = tmp_path / "curve.png"
    path.write_bytes(b"old")

    def broken(self, file, **kwargs):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure.Figure, "savefig", broken)
    with pytest.raises(OSError, match="disk full"):
        curves.plot_learning_curve(columns(), path, title="x")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"tfrl\[plots\]"):
        curves.plot_learning_curve(columns(), tmp_path / "a.png", title="x")
