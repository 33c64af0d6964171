"""Tests of `tfrl.replay.disk.saving`: the memory that it takes."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("size", [200, 2048])
def test_memory_beside_the_replay(size, tmp_path):
    script = pathlib.Path(__file__).with_name("saving_measures.py")
    root = pathlib.Path(__file__).parents[3]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(root)}
    output = subprocess.run(
        [sys.executable, script, tmp_path / "s", str(size)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    shutil.rmtree(tmp_path / "s")
    print(output)
    figures = json.loads(output)
    assert figures["first"][0] > size - 2
    assert figures["again"][0] < 30  # segments of 8 MiB, and those of marks
    for written, memory, _ in figures.values():
        assert memory < 64, f"{written} MiB"
