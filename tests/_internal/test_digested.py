"""Tests of `tfrl._internal.digested`."""

import pytest

from tfrl._internal import digested
from tfrl.configuring import configs

TEXT = "a = 'ä'\n\n# b\nc = 1"


def test_only_what_was_written_is_intact():
    data = digested.digested(TEXT)
    assert data.endswith(TEXT.encode()) and digested.has_digest(data)
    assert digested.is_intact(data)
    for place in range(0, len(data), 3):
        changed = bytearray(data)
        changed[place] ^= 1
        assert not digested.is_intact(bytes(changed)), place
        assert not digested.is_intact(data[:place]), place
    assert not digested.is_intact(data + b"\n")
    assert not digested.is_intact(TEXT.encode())
    assert not digested.has_digest(TEXT.encode())


@pytest.mark.parametrize("text", ["", "fast = 0.5\n"])
def test_gin_reads_past_it(text, tmp_path):
    configs.parse([configs.write(tmp_path, text=text)])
    assert ("fast = 0.5" in configs.configured()) == bool(text)
    configs.clear()
