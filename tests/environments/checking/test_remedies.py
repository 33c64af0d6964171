"""Every fault that is looked for has a remedy, and every remedy is in use."""

import pathlib

from tfrl.environments.checking import _remedies, env_check


def test_names_are_those_in_use():
    folder = pathlib.Path(env_check.__file__).parent
    files = [path for path in folder.glob("*.py") if path.stem != "_remedies"]
    source = "".join(path.read_text() for path in files)
    names = [*_remedies.ERRORS, *_remedies.WARNINGS]
    assert len(names) == len(set(names))
    for name in names:
        assert f'"{name}"' in source
