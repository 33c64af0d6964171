import io

import golden_io
import numpy as np
import pytest

from tfrl._internal import durable
from tfrl.summaries.plotting import curves, mean_curve

[GOLDEN] = golden_io.load("alf/plot_tb_curves", symbol="CurvesPlotter")
UP = mean_curve.MeanCurve.from_curves(
    np.arange(5), [np.arange(5.0), np.arange(5.0) + 2.0], name="up"
)
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


@pytest.mark.parametrize("ending", ["png", "pdf", "svg", "jpg"])
def test_pictures_of_every_kind(tmp_path, ending):
    path = tmp_path / f"curves.{ending}"
    curves.CurvesPlotter(UP).plot(path, dpi=50)
    heads = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml", "jpg": b"\xff\xd8"}
    assert path.read_bytes().startswith(heads[ending])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("transparent", [False, True])
def test_background(tmp_path, transparent):
    image = pytest.importorskip("PIL.Image")
    plotter = curves.CurvesPlotter(UP, bg_color="#102030")
    plotter.plot(tmp_path / "a.png", dpi=50, transparent=transparent)
    picture = image.open(io.BytesIO((tmp_path / "a.png").read_bytes()))
    assert picture.size == (200, 200)
    corner = picture.convert("RGBA").getpixel((0, 0))
    assert corner[3] == 0 if transparent else corner == (16, 32, 48, 255)


def test_a_closed_picture_is_not_plotted_again(tmp_path):
    plotter = curves.CurvesPlotter(UP)
    plotter.plot(tmp_path / "a.png", dpi=50, close_fig=False)
    plotter.plot(tmp_path / "b.pdf", dpi=50)
    with pytest.raises(ValueError, match="got one that was closed"):
        plotter.plot(tmp_path / "c.png")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "b.pdf"]


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


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([], {}, "`mean_curves` expected a curve at least"),
        (mean_curve.MeanCurve([], []), {}, "equal length"),
        (mean_curve.MeanCurve([0, 1], [1.0]), {}, r"shapes \[\[2\], \[1\]\]"),
        (mean_curve.MeanCurve([0], [1.0], [1.0]), {}, "min_y and max_y"),
        (mean_curve.MeanCurve(name="x"), {}, r"got shapes \[\] in 'x'"),
        (UP, {"linestyle": ["-", ":"]}, "`linestyle` expected 1 of them.*got 2"),
        ([UP, UP], {"colors": ["red"]}, "`colors` expected 2 of them.*got 1"),
        (UP, {"markers": []}, "`markers` expected 1 of them.*got 0"),
        (UP, {"y_clipping": (1, 0)}, r"`y_clipping` expected \(low, high\)"),
        (UP, {"x_range": (1, 1)}, r"`x_range` expected \(low, high\)"),
        (UP, {"y_clipping": (1,)}, r"`y_clipping` expected \(low, high\)"),
        (
            mean_curve.MeanCurve([3], [1.0]),
            {"x_scaled_and_aligned": True},
            "more than one x to scale; got 3 only",
        ),
    ],
    ids=[
        *("none", "empty", "unequal", "half_a_region", "nothing"),
        *("styles", "colours", "markers", "clipping", "range", "one_end", "one_x"),
    ],
)
def test_what_cannot_be_drawn_is_named(given, options, message):
    with pytest.raises(ValueError, match=message):
        curves.CurvesPlotter(given, **options)


@pytest.mark.parametrize("given", [None, [lambda: UP], np.arange(3)], ids=type)
def test_other_things_than_curves_are_named(given):
    with pytest.raises(TypeError, match="`mean_curves` expected MeanCurves; got"):
        curves.CurvesPlotter(given)
