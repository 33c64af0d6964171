"""Directives of the pages on algorithms: what was measured, and what can be set.

    ```{measured} ppo_cartpole ppo_pendulum      ```{settings} PPO
    ```                                          ```

`measured` reads the headers of the configurations by `tfrl.experiments.zoo`, as `tfrl
zoo` does: a table, a drawing of each learning curve, the commands, and the gin files.
Without names it is the table of the whole zoo. `settings` is a table of the fields of a
dataclass of `tfrl.agents` or `tfrl.training`, with defaults and descriptions, which are
those of its docstring and of the docstrings of its bases.
"""

import dataclasses
import html
import inspect
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import matplotlib.figure
import matplotlib.ticker
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import tfrl
from tfrl.experiments import zoo

_FIELD = re.compile(r"^    (\w+): ", re.MULTILINE)
_INK = "#123456"  # a colour that nothing else has; becomes that of the page's text
_SHORT = 12  # so many letters are not broken into lines
_LINE, _POINTS = "#2f6fb3", "#d9602b"
_ROW_OF_FIGURES = '<div style="display: flex; flex-wrap: wrap; column-gap: 1rem">'
_LEGEND = (
    "Lines are means over the seeds, regions lie between the worst and the best seed; "
    "a cross is the mean return of a seed's final evaluation, which acts greedily."
)


class Measured(SphinxDirective):
    """A table of configurations, and, of named ones, curves, commands and files."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Returns the nodes."""
        names = self.arguments[0].split() if self.arguments else None
        entries = find_entries(names)
        for entry in entries:
            self.env.note_dependency(str(entry.path))
        result: list[nodes.Node] = [_table(entries)]
        if names is None:
            return result
        figures = [_figure(entry) for entry in entries if entry.measured]
        if figures:
            result.append(nodes.raw("", _ROW_OF_FIGURES, format="html"))
            result += figures
            result.append(nodes.raw("", "</div>", format="html"))
            result.append(nodes.paragraph(text=_LEGEND))
        commands = "\n".join(entry.command for entry in entries)
        result.append(nodes.literal_block(commands, commands, language="bash"))
        for entry in entries:
            text = entry.path.read_text("utf-8")
            summary = f"<details><summary>configs/{entry.path.name}</summary>"
            result.append(nodes.raw("", summary, format="html"))
            result.append(nodes.literal_block(text, text, language="python"))
            result.append(nodes.raw("", "</details>", format="html"))
        return result


class Settings(SphinxDirective):
    """A table of the settings of an agent."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the nodes."""
        name = self.arguments[0]
        room = tfrl.agents if hasattr(tfrl.agents, name) else tfrl.training
        kind = getattr(room, name)
        self.env.note_dependency(inspect.getfile(kind))
        rows: list[list[list[nodes.Node]]] = [
            [[nodes.literal(text=name)], [nodes.literal(text=default)], _marked(text)]
            for name, default, text in settings_of(kind)
        ]
        return [_rows_as_table(["setting", "default", "meaning"], rows)]


def find_entries(names: Sequence[str] | None) -> list[zoo.Entry]:
    """Returns entries of the zoo, in the order of their names; all of them for None.

    Raises:
        ValueError: if there is none of a name.
    """
    known = {entry.path.stem: entry for entry in zoo.list_zoo()}
    names = [*known] if names is None else names
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"`measured`: expected names of configs/; got {missing}")
    return [known[name] for name in names]


def settings_of(kind: Any) -> list[tuple[str, str, str]]:
    """Returns name, default and description of each field, those of its own first.

    Raises:
        ValueError: if no docstring describes a field.
    """
    described: dict[str, str] = {}
    for base in kind.__mro__:
        for name, text in _attributes(base):
            described.setdefault(name, text)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    missing = [*(fields.keys() - described.keys())]
    if missing:
        raise ValueError(f"`settings`: {kind.__name__} does not describe {missing}")
    return [
        (name, repr(fields[name].default), text)
        for name, text in described.items()
        if name in fields
    ]


def _attributes(kind: Any) -> list[tuple[str, str]]:
    """Names and descriptions of the section `Attributes` of a docstring."""
    text = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    parts = re.split(r"^Attributes:\n", text, flags=re.MULTILINE)
    if len(parts) == 1:
        return []
    section = re.split(r"^\S", parts[1], flags=re.MULTILINE)[0]
    pieces = _FIELD.split(section)[1:]
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    return [(name, " ".join(text.split())) for name, text in pairs]


def curve_svg(entry: zoo.Entry) -> str:
    """Returns a drawing of the learning curve in a header, in the page's colours."""
    agent = getattr(tfrl.agents, entry.agent.split()[0])
    is_offline = agent.learns_from in ("recorded", "batches")
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": entry.path.stem,
        "font.family": "sans-serif",
        "font.size": 8,
        "axes.titlesize": 9,
        **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor"], _INK),
        **dict.fromkeys(["xtick.color", "ytick.color"], _INK),
    }
    with matplotlib.rc_context(style):
        figure = matplotlib.figure.Figure(figsize=(3.6, 2.5))
        # The page's font may be wider.
        figure.set_layout_engine("constrained", w_pad=0.2)
        axes = figure.add_subplot()
        steps = [point.share * entry.steps for point in entry.curve]
        means = [point.mean for point in entry.curve]
        lows, highs = zip(*((x.low, x.high) for x in entry.curve), strict=True)
        label = "evaluations" if is_offline else "while training"
        axes.plot(steps, means, "o-", color=_LINE, label=label, markersize=4)
        axes.fill_between(steps, lows, highs, color=_LINE, alpha=0.25, linewidth=0)
        ends = [entry.steps] * len(entry.measured)
        look = {"color": _POINTS, "clip_on": False, "label": "final evaluation"}
        axes.plot(ends, entry.measured, "x", **look)
        axes.set(xlim=(0, entry.steps), ylabel="mean return", title=entry.path.stem)
        axes.set_xlabel("rows learned from" if is_offline else "environment steps")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4))
        axes.grid(alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="best", framealpha=0)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    # Names such as figure_1 would be there once a drawing.
    text = re.sub(r' id="[a-z][a-zA-Z0-9]*_\d+"', "", text)
    told = f"Learning curve of {entry.path.stem}, up to {entry.mean:,.1f}"
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    return text.replace("<svg", f'<svg role="img" aria-label="{told}"', 1)


def _table(entries: Sequence[zoo.Entry]) -> nodes.table:
    head = ["configuration", "environment", "return", "worst", "seeds", "steps"]
    head += ["CPU time"]
    rows: list[list[list[nodes.Node]]] = []
    for entry in entries:
        numbers = ["-", "-", "-"]
        if entry.cpu_seconds is not None:
            worst = min(entry.measured)
            numbers = [f"{entry.mean:,.1f}", f"{worst:,.1f}"]
            numbers.append(f"{entry.cpu_seconds:,.0f} s")
        words = [entry.environment.rpartition(":")[2]]
        words += [*numbers[:2], str(len(entry.seeds))]
        words += [f"{entry.steps:,}", numbers[2]]
        name = nodes.literal(text=entry.path.stem)
        rows.append([[name], *([nodes.Text(word)] for word in words)])
    return _rows_as_table(head, rows)


def _figure(entry: zoo.Entry) -> nodes.raw:
    style = "flex: 1 1 18rem; max-width: 26rem; margin: 0 0 1rem; font-size: 80%"
    drawing = f'<figure style="{style}">{curve_svg(entry)}<figcaption>'
    told = html.escape(f"{entry.title} Settings: {entry.source}")
    return nodes.raw("", f"{drawing}{told}</figcaption></figure>", format="html")


def _rows_as_table(
    head: Sequence[str], rows: Sequence[Sequence[Sequence[nodes.Node]]]
) -> nodes.table:
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row([[nodes.Text(word)] for word in head]))
    group += nodes.tbody("", *map(_row, rows))
    for entry in group.findall(nodes.entry):
        if len(entry.astext()) < _SHORT:
            entry["classes"].append("text-nowrap")
    return nodes.table("", group, classes=["table-sm"])


def _row(cells: Sequence[Sequence[nodes.Node]]) -> nodes.row:
    entries = (nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells)
    return nodes.row("", *entries)


def _marked(text: str) -> list[nodes.Node]:
    """Text whose parts in backticks are code."""
    parts = text.split("`")
    return [
        nodes.literal(text=part) if index % 2 else nodes.Text(part)
        for index, part in enumerate(parts)
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    """Adds the directives; Sphinx calls it."""
    app.add_directive("measured", Measured)
    app.add_directive("settings", Settings)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
