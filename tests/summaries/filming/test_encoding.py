import pathlib
import sys
import types

import av
import numpy as np
import pytest
from PIL import Image

from tfrl.summaries.filming import _encoding


def grey(*levels, size=(8, 6)):
    return iter([Image.new("RGB", size, (level,) * 3) for level in levels])


def decoded(path):
    with av.open(str(path)) as film:
        [stream] = film.streams.video
        rate, frames = stream.average_rate, film.decode(video=0)
        return rate, [frame.to_ndarray(format="rgb24") for frame in frames]


@pytest.mark.parametrize("speed", [20.0, 100 / 3, 29.97])
def test_a_video_shows_every_picture(speed, tmp_path):
    path, levels = tmp_path / "a.mp4", [0, 60, 120, 120, 240]
    _encoding.write(str(path), grey(*levels), speed)
    rate, frames = decoded(path)
    assert float(rate) == pytest.approx(speed, rel=1e-3)
    assert [frame.shape for frame in frames] == [(6, 8, 3)] * 5
    np.testing.assert_allclose([frame.mean() for frame in frames], levels, atol=3)
    assert list(tmp_path.iterdir()) == [path]


def test_pictures_of_an_odd_size_get_a_black_margin(tmp_path):
    _encoding.write(str(tmp_path / "a.MP4"), grey(200, size=(33, 17)), 10)
    _, [frame] = decoded(tmp_path / "a.MP4")
    assert frame.shape == (18, 34, 3)
    np.testing.assert_allclose(frame[:16, :32], 200, atol=3)
    assert frame[-1].mean() < 60 > frame[:, -1].mean()


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_a_failure_leaves_the_old_file(ending, tmp_path):
    def failing():
        yield from grey(1, 2)
        raise KeyError

    path = tmp_path / f"a{ending}"
    path.write_bytes(b"old")
    with pytest.raises(KeyError):
        _encoding.write(str(path), failing(), 10)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("module", "found"), [("PIL", "pillow"), ("av", "av")])
def test_what_is_missing_is_asked_for(module, found, monkeypatch):
    assert callable(_encoding.imported_pillow("film").fromarray)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ImportError, match=rf"`film`: expected the library {found}; found none; run"
    ):
        _encoding.imported_pillow("film")
        _encoding.checked_path("film", "path", "a.mp4")
    assert _encoding.checked_path("film", "path", "a.gif") == "a.gif"


def test_paths(tmp_path):
    for path in (tmp_path / "a.gif", pathlib.Path("B.GIF"), "c.mp4"):
        assert _encoding.checked_path("film", "path", path) == str(path)
    with pytest.raises(
        ValueError, match=r"`path` expected to end in .gif or .mp4; got"
    ):
        _encoding.checked_path("film", "path", "a.png")
    with pytest.raises(ValueError, match=r"`path` expected to end in .gif; got a.mp4"):
        _encoding.checked_path("film", "path", "a.mp4", [".gif"])
    with pytest.raises(ValueError, match="`path` expected a file in a folder that exi"):
        _encoding.checked_path("film", "path", tmp_path / "absent" / "a.gif")


@pytest.mark.parametrize(
    ("of_env", "given", "speed"),
    [(10, None, 10), (125, None, 100), (0, None, 30), (9, 4, 4)],
)
def test_speed(of_env, given, speed):
    env = types.SimpleNamespace(metadata={"render_fps": of_env})
    assert _encoding.checked_speed("film", env, given) == speed


@pytest.mark.parametrize("wrong", [0, -1, 101, np.nan])
def test_wrong_speeds(wrong):
    env = types.SimpleNamespace(metadata={})
    with pytest.raises(ValueError, match="`film`: `frames_per_sec` expected"):
        _encoding.checked_speed("film", env, wrong)


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((6, 4, 3)),
        np.zeros((6, 4), np.uint8),
        np.zeros((6, 4, 4), np.uint8),
        None,
    ],
    ids=["floats", "grey", "alpha", "none"],
)
def test_other_arrays_are_no_frames(frame):
    with pytest.raises(
        ValueError, match=r"`film`: `env` expected a frame \[height, wid"
    ):
        _encoding.checked_frame("film", "env", frame)
