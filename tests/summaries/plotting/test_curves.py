"""Tests of plots of learning curves, of one run and of several."""

import io
import sys

import golden_io
import numpy as np
import pytest
from matplotlib import figure
from PIL import Image
from refusals import bad, table

from tfrl._internal import durable
from tfrl.summaries import run_log
from tfrl.summaries.plotting import curves, mean_curve

TRAIN, EVAL = "train/return_mean", "eval/return_mean"


def columns(rows=60):
    evaluation = np.full(rows, np.nan)
    evaluation[9::10] = 400.0
    return {
        "env_steps": 256.0 * np.arange(1, rows + 1),
        TRAIN: np.linspace(20.0, 500.0, rows),
        EVAL: evaluation,
    }


def colours(path):
    """The set of colours of a picture of the size of all of them."""
    with Image.open(path) as picture:
        assert picture.size == (1200, 750)
        found = picture.convert("RGB").getcolors(maxcolors=1 << 24)
    return {"#{:02x}{:02x}{:02x}".format(*rgb) for _, rgb in found}


def test_picture_shows_all_curves(tmp_path):
    path = tmp_path / "curve.png"
    curves.plot_learning_curve(columns(), path, title="PPO", target=475.0)
    assert {curves._TRAIN, curves._EVAL, curves._TARGET} <= colours(path)
    assert list(tmp_path.iterdir()) == [path]
    curves.plot_learning_curve(columns() | {EVAL: np.full(60, np.nan)}, path)
    assert {curves._EVAL, curves._TARGET}.isdisjoint(colours(path))


def test_few_rows_of_a_run_log_are_drawn_without_a_global_figure(tmp_path):
    with run_log.RunLog(tmp_path, [TRAIN, EVAL]) as log:
        log.write(256, {TRAIN: 20.0})
        log.write(512, {TRAIN: float("nan"), EVAL: 25.0})
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before, path = pyplot.get_fignums(), tmp_path / "curve.png"
    curves.plot_learning_curve(log.path, path, title="PPO")
    assert {curves._TRAIN, curves._EVAL} <= colours(path)
    assert pyplot.get_fignums() == before


NAN = np.full(60, np.nan)


@table(
    (
        curves.plot_learning_curve,
        *(
            bad(ValueError, "metrics", columns() | change, "curve.png", title="PPO")
            for change in (
                *({TRAIN: NAN, EVAL: NAN}, {"env_steps": NAN}),
                {TRAIN: np.ones(59)},
            )
        ),
        bad(ValueError, "metrics", {TRAIN: np.ones(2)}, "a.png", title="x"),
        bad(ValueError, "path", columns(), "a.pdf", title="x"),
    ),
)
def test_what_has_no_curve_is_refused(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row()
    assert list(tmp_path.iterdir()) == []


def test_failed_drawing_keeps_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "curve.png"
    path.write_bytes(b"old")

    def broken(self, file, **kwargs):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure.Figure, "savefig", broken)
    with pytest.raises(OSError, match="disk full"):
        curves.plot_learning_curve(columns(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"tfrl\[plots\]"):
        curves.plot_learning_curve(columns(), tmp_path / "a.png", title="x")


[GOLDEN] = golden_io.load("alf/plot_tb_curves", symbol="CurvesPlotter")
UP = mean_curve.MeanCurve.from_curves(
    np.arange(5), [np.arange(5.0), np.arange(5.0) + 2.0], name="up"
)
HEADS = {"pdf": b"%PDF", "jpg": b"\xff\xd8"}
DOWN = mean_curve.MeanCurve(np.array([10.0, 30.0]), np.array([4.0, 0.0]), name="down")


def lines(plotter):
    return plotter.figure.axes[0].lines


def regions(plotter):
    return plotter.figure.axes[0].collections


def test_golden():
    given = [mean_curve.MeanCurve(**fields) for fields in GOLDEN["in"]["curves"]]
    plotter = curves.CurvesPlotter(given, x_scaled_and_aligned=True)
    wanted = GOLDEN["out"]["lines"]
    for line, (x, y) in zip(lines(plotter), wanted, strict=True):
        np.testing.assert_allclose(line.get_xdata(), x, **GOLDEN["tol"])
        np.testing.assert_allclose(line.get_ydata(), y, **GOLDEN["tol"])


def test_curves_are_aligned_to_a_range():
    plotter = curves.CurvesPlotter(
        [UP, DOWN], x_range=(-3, 3), x_scaled_and_aligned=True
    )
    first, second = (line.get_xdata() for line in lines(plotter))
    np.testing.assert_allclose(first, -3 + np.arange(5) / 5)
    np.testing.assert_allclose(second, [-1.0, 3.0])


def test_axes_say_what_was_asked():
    plotter = curves.CurvesPlotter(
        [UP, DOWN],
        y_clipping=(1.0, 3.0),
        y_range=(0.0, 9.0),
        x_ticks=[0, 20],
        x_label="steps",
        y_label="return",
        figsize=(5, 3),
        dpi=50,
        linestyle=["-", ":"],
        colors=["red", "#00ff00"],
        markers=["o", "x"],
        title="two",
    )
    [axes] = plotter.figure.axes
    np.testing.assert_allclose(lines(plotter)[0].get_ydata(), [1, 2, 3, 3, 3])
    [region] = regions(plotter)
    heights = region.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (1.0, 3.0)
    assert axes.get_ylim() == (0.0, 9.0)
    assert list(axes.get_xticks()) == [0, 20]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("steps", "return")
    assert axes.get_title() == "two"
    assert [line.get_color() for line in lines(plotter)] == ["red", "#00ff00"]
    assert [line.get_linestyle() for line in lines(plotter)] == ["-", ":"]
    assert [line.get_marker() for line in lines(plotter)] == ["o", "x"]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["up", "down"]
    assert (*plotter.figure.get_size_inches(), plotter.figure.dpi) == (5, 3, 50)


def test_the_legend_shows_every_name():
    plotter = curves.CurvesPlotter(
        [UP._replace(name="_up"), DOWN, UP._replace(name="")]
    )
    legend = plotter.figure.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["_up", "down"]


def test_mean_only_and_no_legend():
    plotter = curves.CurvesPlotter(UP, plot_mean_only=True, legend_kwargs=None)
    assert (len(lines(plotter)), len(regions(plotter))) == (1, 0)
    assert plotter.figure.axes[0].get_legend() is None


def test_colours_repeat_after_ten():
    plotter = curves.CurvesPlotter([UP] * 11)
    shades = [line.get_color() for line in lines(plotter)]
    assert len(set(shades)) == 10
    assert shades[0] == shades[10]


@pytest.mark.parametrize(
    "ending", ["png", "svg", *(pytest.param(x, marks=pytest.mark.slow) for x in HEADS)]
)
def test_pictures_of_every_kind(tmp_path, ending):
    path = tmp_path / f"curves.{ending}"
    plotter = curves.CurvesPlotter(UP)
    plotter.plot(path, dpi=50, close_fig=False)
    heads = {"png": b"\x89PNG", "svg": b"<?xml", **HEADS}
    assert path.read_bytes().startswith(heads[ending])
    assert list(tmp_path.iterdir()) == [path]
    plotter.plot(path, dpi=50)
    with pytest.raises(ValueError, match="`CurvesPlotter.plot`: .*got one that was cl"):
        plotter.plot(path)


def test_background(tmp_path):
    for transparent in (False, True):
        plotter = curves.CurvesPlotter(UP, bg_color="#102030")
        plotter.plot(tmp_path / "a.png", dpi=50, transparent=transparent)
        picture = Image.open(io.BytesIO((tmp_path / "a.png").read_bytes()))
        assert picture.size == (200, 200)
        corner = picture.convert("RGBA").getpixel((0, 0))
        assert corner[3] == 0 if transparent else corner == (16, 32, 48, 255)


def test_paths_that_cannot_be_written_are_named(tmp_path):
    plotter = curves.CurvesPlotter(UP)
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"end in .png or .*got .*a.gif"):
        plotter.plot(tmp_path / "a.gif")
    for name in ("gone/a.png", "folder.png", "file/a.png"):
        with pytest.raises(ValueError, match=rf"`output_path` .*got .*{name}"):
            plotter.plot(tmp_path / name)
    with pytest.raises(ValueError, match="`dpi` expected numbers > 0"):
        plotter.plot(tmp_path / "a.png", dpi=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.png"]


def test_a_full_disk_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def full(*paths):
        raise OSError("disk full")

    monkeypatch.setattr(durable, "flush_to_disk", full)
    with pytest.raises(OSError, match="disk full"):
        curves.CurvesPlotter(UP).plot(path, dpi=50)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


Curve = mean_curve.MeanCurve


@table(
    (
        curves.CurvesPlotter,
        bad(ValueError, "mean_curves", []),
        bad(ValueError, "mean_curves", Curve([], [])),
        bad(ValueError, "mean_curves", Curve([0, 1], [1.0])),
        bad(ValueError, "mean_curves", Curve([0], [1.0], [1.0])),
        bad(ValueError, "mean_curves", Curve(name="x")),
        bad(ValueError, "mean_curves", Curve([3], [1.0]), x_scaled_and_aligned=True),
        bad(ValueError, "linestyle", UP, linestyle=["-", ":"]),
        bad(ValueError, "colors", [UP, UP], colors=["red"]),
        bad(ValueError, "markers", UP, markers=[]),
        bad(ValueError, "y_clipping", UP, y_clipping=(1, 0)),
        bad(ValueError, "y_clipping", UP, y_clipping=(1,)),
        bad(ValueError, "x_range", UP, x_range=(1, 1)),
        *(bad(TypeError, "mean_curves", x) for x in (None, [abs], np.arange(3))),
    ),
)
def test_what_cannot_be_drawn_is_named(row):
    row()
