"""Digests by which an edit of a configuration is noticed."""

import hashlib

import pytest

from tfrl.configuring import configs
from tfrl.experiments import _digests


@pytest.mark.parametrize(
    "form",
    ["%s'b.gin'", '  %s"b.gin"', '%sr"b.gin"', '%s"""b.gin"""', "%s\\\n 'b.gin'"],
)
def test_what_is_included_counts_however_it_is_written(form, tmp_path):
    config, included = tmp_path / "a.gin", tmp_path / "b.gin"
    config.write_text(f"{form % 'include '}\nspeed = 1\n")
    included.write_text("slowness = 1\n")
    configs.parse([config])
    assert configs.bound("slowness") == "1"
    configs.clear()
    before = _digests.digest(config)
    assert _digests.is_alike(config, before)
    included.write_text("# Slower.\n\nslowness = 1\n")
    assert _digests.is_alike(config, before)
    included.write_text("slowness = 2\n")
    assert not _digests.is_alike(config, before)
    included.unlink()
    assert _digests.digest(config) not in (None, before)


def test_digests_of_before_are_of_the_file_alone(tmp_path):
    config, included = tmp_path / "a.gin", tmp_path / "b.gin"
    config.write_text("# Fast.\ninclude 'b.gin'\nspeed = 1\n")
    included.write_text("include 'a.gin'\n")  # which nobody can parse
    known = hashlib.sha256(config.read_bytes()).hexdigest()
    assert _digests.is_alike(config, known)
    config.write_text("# Fast.\ninclude 'b.gin'\nspeed = 2\n")
    assert not _digests.is_alike(config, known)
    assert _digests.digest(tmp_path / "absent.gin") is None
