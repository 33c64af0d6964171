"""Tests of `python -m tfrl`."""

import runpy
import sys

import pytest


def test_the_package_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tfrl", "doctor", "no/such/run"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("tfrl", run_name="__main__")
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("tfrl doctor: error: ")
