"""Which versions a run was made with, for the record: nothing compares them."""

import contextlib
import importlib
import pathlib
import platform

from tfrl._internal import sealed_folder

_LIBRARIES = "tfrl", "tensorflow", "keras", "numpy", "gymnasium"


def versions(run_json: pathlib.Path) -> list[dict[str, str]]:
    """Returns the versions that a run began with, and each time it went on with others.

    Args:
        run_json: where the run keeps them; of a run of old an empty entry, of what
            nobody knows, comes first.
    """
    now = {"python": platform.python_version()}
    for name in _LIBRARIES:
        now[name] = str(importlib.import_module(name).__version__)
    before: list[dict[str, str]] = []
    if run_json.exists():
        # What a new run takes the place of need not be a record.
        with contextlib.suppress(ValueError):
            body = sealed_folder.unsealed(run_json.read_bytes())
            before = body.get("made_with", [{}])
    return before if before[-1:] == [now] else [*before, now]
