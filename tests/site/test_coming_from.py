"""Pages for those who know another library: what they name in tfrl is there."""

import csv
import importlib
import inspect
import pathlib
import re
import sys

import gymnasium
import keras
import pytest

import tfrl

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "tools" / "site" / "coming_from"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.stem != "index")
MODULES = {"gymnasium": gymnasium, "keras": keras, "tfrl": tfrl}
SPAN = re.compile(r"(?:\{py:obj\})?`([^`]+)`")
# The name of a module above, or a class or function of a door, and what it has.
NAME = re.compile(r"(?:[A-Z]|make_vec|gymnasium|keras|tfrl)\w*(?:\.\w+)+")


@pytest.fixture(scope="module")
def migrated():
    sys.path.insert(0, str(ROOT / "tools" / "site" / "extensions"))
    try:
        yield importlib.import_module("migrated")
    finally:
        sys.path.pop(0)


def text_of(path):
    """The page without what its programs say, and their cells without escapes."""
    return re.sub(r"^```(?!\{).*?^```", "", path.read_text("utf-8"), flags=re.S | re.M)


def names_in_tables(path):
    """What the columns after the first name: `PPO.gamma`, `tfrl.agents.PPO`."""
    for line in text_of(path).splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            for span in SPAN.findall(line.split(" | ", 1)[1]):
                yield from NAME.findall(span)


def is_there(name):
    """Whether a dotted name is a part of a module, or a setting of a class."""
    first, *rest = name.split(".")
    found = MODULES.get(first)
    if found is None:
        rooms = (getattr(tfrl, room) for room in tfrl._ROOMS)
        (found,) = {getattr(room, first) for room in rooms if hasattr(room, first)}
    for part in rest:
        if not hasattr(found, part):
            fields = getattr(found, "__annotations__", {})
            return part in fields or part in inspect.signature(found).parameters
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_tables_name_is_there(path):
    text = text_of(path)
    names = {*names_in_tables(path), *re.findall(r"\{py:obj\}`~?(tfrl[\w.]+)`", text)}
    assert names or "{migrated}" in text
    assert sorted(name for name in names if not is_there(name)) == []


def test_every_symbol_of_the_map_is_on_a_page_once(migrated):
    shown = []
    for path in PAGES:
        for place in re.findall(
            r"^```\{migrated\} (\S+)$", path.read_text("utf-8"), re.M
        ):
            shown += [row["seed_symbol"] for row in migrated.find_rows(place)]
    with migrated.MAP.open(encoding="utf-8", newline="") as file:
        assert sorted(shown) == sorted(
            row["seed_symbol"] for row in csv.DictReader(file)
        )


def test_rows_say_what_a_symbol_is(migrated):
    head, _, *rows = migrated.as_markdown("alf.utils.math_ops").splitlines()
    assert head == "| `alf.utils.math_ops` | tfrl | what it is |"
    (row,) = (row for row in rows if row.startswith("| `softsign_` "))
    assert "| {py:obj}`tfrl.ops.softsign` | " in row
    assert row.endswith(
        "(in-place variant: no in-place ops in TensorFlow; same function) |"
    )
    mixed = migrated.as_markdown("jaxrl_m")
    assert "| `flax.struct.PyTreeNode` |" in mixed
    assert "| `jaxrl_m.common.TrainState` |" in mixed


def test_a_library_that_is_not_in_the_map_is_refused(migrated):
    with pytest.raises(ValueError, match="acme"):
        migrated.find_rows("acme")
