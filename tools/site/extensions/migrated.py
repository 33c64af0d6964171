"""The directive `migrated`: a table of what a library's symbols are called in tfrl.

    ```{migrated} alf.utils.value_ops
    ```

The argument is a library of `tests/seed_map.csv`, or a module or class path of its
symbols. The table is read from that file when the site is built, and what the third
column says is the first line of the docstring; so it cannot differ from either.
"""

import csv
import importlib
import inspect
import pathlib

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

MAP = pathlib.Path(__file__).parents[3] / "tests" / "seed_map.csv"


class Migrated(SphinxDirective):
    """A table of symbols, by the library or the module that they come from."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the table."""
        self.env.note_dependency(str(MAP))
        return self.parse_text_to_nodes(as_markdown(self.arguments[0]))


def find_rows(place: str) -> list[dict[str, str]]:
    """Returns the rows of a library, or of one module.

    Raises:
        ValueError: if there is none.
    """
    with MAP.open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["library"] == place or row["seed_symbol"].startswith(f"{place}.")
        ]
    if not rows:
        raise ValueError(f"`migrated`: expected a library or module; got {place!r}")
    return rows


def as_markdown(place: str) -> str:
    """Returns the table: name there, name here, what it is."""
    rows, prefix = find_rows(place), f"{place}."
    if not all(row["seed_symbol"].startswith(prefix) for row in rows):
        prefix = ""
    lines = [f"| `{place}` | tfrl | what it is |", "| --- | --- | --- |"]
    for row in rows:
        theirs = row["seed_symbol"].removeprefix(prefix)
        note = f" ({row['note']})" if row["note"] else ""
        told = summary_of(row["tfrl_symbol"]) + note
        here = f"{{py:obj}}`{row['tfrl_symbol']}`"
        lines.append(f"| `{theirs}` | {here} | {told} |")
    return "\n".join(lines)


def summary_of(symbol: str) -> str:
    """Returns the first sentence of a docstring, fit for a cell of a table."""
    room, _, name = symbol.rpartition(".")
    found = getattr(importlib.import_module(room), name)
    first = (inspect.getdoc(found) or "").split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("migrated", Migrated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
