"""Tests of `tfrl.configuring.config_files`."""

import os
import pathlib

import pytest
from absl import flags

from tfrl.configuring import config_files, configs


def make_written(size: int = 3, name: str = "net"):
    return size, name


@pytest.fixture(autouse=True)
def made():
    configs.clear()
    yield configs.register({"make_written": make_written}, module="files")[
        "make_written"
    ]
    configs.clear()


@pytest.fixture
def given(monkeypatch):
    """Defines the flags of a program and gives them values."""

    def give(**values):
        known = flags.FlagValues()
        flags.DEFINE_string("conf", None, "", known)
        flags.DEFINE_multi_string("gin_file", None, "", known)
        flags.DEFINE_multi_string("gin_param", None, "", known)
        flags.DEFINE_multi_string("conf_param", None, "", known)
        flags.DEFINE_string("root_dir", None, "", known)
        known.mark_as_parsed()
        for name, value in values.items():
            known[name].value = value
        monkeypatch.setattr(flags, "FLAGS", known)

    return give


def test_paths_are_absolute(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.chdir(tmp_path)
    assert config_files.abs_path("~/a") == "/somewhere/a"
    assert config_files.abs_path("a/../b") == str(tmp_path / "b")
    assert config_files.abs_path(pathlib.Path("/c")) == "/c"


def test_files_are_found_in_the_order_of_the_documentation(tmp_path, given):
    assert config_files.get_conf_file() is None
    assert config_files.get_conf_file(tmp_path) is None
    (tmp_path / "any.gin").touch()
    assert config_files.get_conf_file(tmp_path) == str(tmp_path / "any.gin")
    (tmp_path / "other.gin").touch()
    with pytest.raises(ValueError, match="`root_dir` expected one gin file; got .*any"):
        config_files.get_conf_file(tmp_path)
    for name in ("config.gin", "configured.gin"):
        (tmp_path / name).touch()
        assert config_files.get_conf_file(tmp_path) == str(tmp_path / name)
    given(root_dir=str(tmp_path))
    assert config_files.get_conf_file() == str(tmp_path / "configured.gin")
    given(root_dir=str(tmp_path), gin_file=["/x/a.gin"])
    assert config_files.get_conf_file() == "/x/a.gin"
    given(gin_file=["/x/a.gin"], conf="/x/b.gin")
    assert config_files.get_conf_file() == "/x/b.gin"
    given(gin_file=["/x/a.gin", "/x/b.gin"])
    with pytest.raises(ValueError, match="flag gin_file expected one gin file"):
        config_files.get_conf_file()


def test_gin_files(tmp_path, given):
    assert config_files.get_gin_file() == ""
    given(root_dir=str(tmp_path))
    with pytest.raises(ValueError, match="flag gin_file expected a file"):
        config_files.get_gin_file()
    for name in ("b.gin", "a.gin", "c.txt"):
        (tmp_path / name).touch()
    assert config_files.get_gin_file() == [
        str(tmp_path / "a.gin"),
        str(tmp_path / "b.gin"),
    ]
    given(gin_file=["x.gin", "y.gin"])
    assert config_files.get_gin_file() == ["x.gin", "y.gin"]


def test_flags_that_were_not_parsed_are_not_asked(monkeypatch):
    known = flags.FlagValues()
    flags.DEFINE_string("conf", "a.gin", "", known)
    monkeypatch.setattr(flags, "FLAGS", known)
    assert config_files.get_conf_file() is None


def test_bindings_of_flags_override_the_file(tmp_path, given, made):
    path = tmp_path / "run.gin"
    path.write_text("make_written.size = 5\nmake_written.name = 'file'")
    config_files.parse_conf_file(path)
    assert made() == (5, "file")
    given(
        gin_param=["make_written.size = 6"], conf_param=["make_written.name = 'flag'"]
    )
    config_files.parse_conf_file(str(path))
    assert made() == (6, "flag")
    config_files.write_config(tmp_path / "new")
    configs.parse([tmp_path / "new" / "configured.gin"])
    assert made() == (6, "flag")


def test_python_is_not_executed(tmp_path):
    path = tmp_path / "run_conf.py"
    path.write_text("raise SystemExit")
    with pytest.raises(ValueError, match="`conf_file` expected a gin file; got .*py"):
        config_files.parse_conf_file(path)


def test_texts_are_read(tmp_path):
    assert config_files.read_conf_file(tmp_path) is None
    (tmp_path / "run.gin").write_text("a = 'ä'\n", "utf-8")
    assert config_files.read_conf_file(tmp_path) == "a = 'ä'\n"
    (tmp_path / "run.gin").write_text("a = 'ä'\n", "latin-1")
    with pytest.raises(ValueError, match=r"`root_dir` expected .*run.gin \(no UTF-8"):
        config_files.read_conf_file(tmp_path)


def test_copies(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.gin").write_text(folder)
    (tmp_path / "a" / "base.gin").write_text("base")
    target = tmp_path / "deep" / "target"
    config_files.copy_gin_configs(target, None)
    files = [tmp_path / "a" / "run.gin", str(tmp_path / "a" / "base.gin")]
    config_files.copy_gin_configs(target, files)
    assert sorted(os.listdir(target)) == ["base.gin", "run.gin"]
    assert (target / "run.gin").read_text() == "a"
    other = tmp_path / "other"
    with pytest.raises(ValueError, match="different names; got run.gin twice"):
        config_files.copy_gin_configs(other, [*files, tmp_path / "b" / "run.gin"])
    with pytest.raises(ValueError, match="expected files; got .*missing.gin .No such"):
        config_files.copy_gin_configs(other, [*files, tmp_path / "missing.gin"])
    with pytest.raises(TypeError, match="`gin_files` expected a list"):
        config_files.copy_gin_configs(other, "run.gin")
    assert not other.exists()


def test_everything_is_written_or_what_was_used(tmp_path, made):
    configs.parse(bindings=["make_written.size = 5", "fast = 1"])
    made()
    config_files.write_config(tmp_path)
    text = (tmp_path / "configured.gin").read_text()
    assert "make_written.size = 5" in text and "fast = 1" in text and "name" not in text
    config_files.write_gin_configs(tmp_path, "/elsewhere/used.gin")
    text = (tmp_path / "used.gin").read_text()
    assert (
        "make_written.size = 5" in text
        and "name = 'net'" in text
        and "fast" not in text
    )
    assert config_files.read_conf_file(tmp_path).startswith("# Macros:")


def test_the_mark_that_editors_of_windows_begin_a_file_with_is_no_text(tmp_path):
    path = tmp_path / "run.gin"
    path.write_text("fast = 0.5", "utf-8-sig")
    assert config_files.read_conf_file(tmp_path) == "fast = 0.5"
    config_files.parse_conf_file(path)
    assert configs.inoperative_config_str().strip() == "fast = 0.5"
    configs.clear()
