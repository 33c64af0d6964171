"""Tests of `tfrl._internal.lazy_doors`."""

import gc
import sys

import pytest

from tfrl._internal import lazy_doors


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_again_after_an_import(collects, tmp_path, monkeypatch):
    (tmp_path / "watched_by_import.py").write_text("import gc; on = gc.isenabled()")
    (tmp_path / "broken_by_import.py").write_text("raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert not lazy_doors.imported("watched_by_import").on
        assert gc.isenabled() == collects
        with pytest.raises(RuntimeError, match="broken"):
            lazy_doors.imported("broken_by_import")
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
        sys.modules.pop("watched_by_import", None)
