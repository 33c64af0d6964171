"""The map of rooms and the guide for contributors say what the rules and tools are."""

import pathlib
import re

import architecture

ROOT = pathlib.Path(__file__).parents[2]
MAP = ROOT / "tools" / "site" / "architecture.md"
GUIDE = ROOT / ".github" / "CONTRIBUTING.md"
# Files without a room: what imports the package and what starts it.
NO_ROOMS = {"__main__", "_internal", "entry"}


def test_the_map_shows_every_room_on_its_floor():
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", MAP.read_text("utf-8"), re.M)
    shown = {room: int(floor) for floor, room in rows}
    assert len(shown) == len(rows)
    assert shown == {
        room: floor
        for room, floor in architecture.FLOORS.items()
        if room in shown or room not in NO_ROOMS
    }


def test_the_guide_names_tools_that_there_are():
    text = GUIDE.read_text("utf-8")
    named = re.findall(r"^((?:tools|\.ci)/[\w-]+)", text, re.M)
    assert len(named) >= 7
    assert [name for name in named if not (ROOT / name).is_file()] == []
    links = re.findall(r"\]\((\.\.[^)#]+)\)", text)
    assert links
    assert [link for link in links if not (GUIDE.parent / link).is_file()] == []
