"""Tests of the site's pages on algorithms, and of the directives that fill them."""

import dataclasses
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

import pytest

import tfrl
from tfrl.experiments import zoo

SITE = pathlib.Path(__file__).parents[2] / "tools" / "site"
sys.path.insert(0, str(SITE / "extensions"))
import measured  # noqa: E402

PAGES = sorted((SITE / "algorithms").glob("*.md"))
AGENTS = [
    getattr(tfrl.agents, name)
    for name in tfrl.agents.__all__
    if hasattr(getattr(tfrl.agents, name), "learns_from")
]


def asked(directive):
    """What blocks of a directive in all pages name."""
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    blocks = re.findall(rf"^```{{{directive}}} (.+)$", text, re.MULTILINE)
    return [name for block in blocks for name in block.split()]


def test_each_agent_has_a_page_with_settings_and_measurements():
    names = asked("settings")
    assert {kind.__name__ for kind in AGENTS} <= {*names}
    assert len(names) == len({*names})
    shown = asked("measured")
    assert len(shown) == len({*shown})
    agents = {entry.agent for entry in zoo.list_zoo()}
    assert agents == {entry.agent for entry in measured.find_entries(shown)}


def test_each_page_is_in_the_index():
    index = (SITE / "algorithms" / "index.md").read_text("utf-8")
    named = re.findall(r"^(\w+)$", index, re.MULTILINE)
    assert {*named} == {page.stem for page in PAGES} - {"index"}


@pytest.mark.parametrize("kind", AGENTS, ids=lambda kind: kind.__name__)
def test_every_setting_is_described_once(kind):
    rows = measured.settings_of(kind)
    fields = {field.name: repr(field.default) for field in dataclasses.fields(kind)}
    assert {name: default for name, default, _ in rows} == fields
    assert len(rows) == len(fields) and all(text for *_, text in rows)


def test_a_description_is_that_of_the_nearest_class():
    rows = {name: text for name, _, text in measured.settings_of(tfrl.agents.TD3BC)}
    assert rows["alpha"] == "how much values count beside the actions of the data."
    assert rows["tau"] == "share that the copies take over."
    assert "References" not in rows["normalize_observations"]


def test_a_setting_that_nobody_describes_is_refused():
    @dataclasses.dataclass
    class Bare:
        """Nothing."""

        rate: float = 0.1

    with pytest.raises(ValueError, match="Bare does not describe.*rate"):
        measured.settings_of(Bare)


def test_a_name_that_is_no_configuration_is_refused():
    with pytest.raises(ValueError, match="configs.*nothing_such"):
        measured.find_entries(["nothing_such"])


def test_a_curve_is_drawn_with_all_that_was_measured():
    (entry,) = measured.find_entries(["sac_pendulum"])
    drawing = measured.curve_svg(entry)
    assert drawing == measured.curve_svg(entry)
    root = xml.fromstring(drawing)
    words = {"".join(node.itertext()).strip() for node in root.iter() if node.text}
    assert {"sac_pendulum", "mean return", "final evaluation"} <= words
    marks = [node for node in root.iter() if node.tag.endswith("}use")]
    assert len(marks) >= len(entry.curve) + len(entry.measured)
