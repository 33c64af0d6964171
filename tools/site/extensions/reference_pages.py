"""Writes the pages of the reference: one of each room, and one of each of its files."""

import contextlib
import importlib
import inspect
import io
import pathlib
import re

import doors

from tfrl import command

COMMANDS = "train evaluate record plot compare tune zoo collect export verify doctor"


def setup(app):
    app.connect("builder-inited", lambda app: write(pathlib.Path(app.srcdir)))
    app.connect("source-read", _expand_names)
    return {"parallel_read_safe": True}


def write(source: pathlib.Path) -> None:
    """Writes `reference/` of a folder of sources; what does not change stays."""
    pages = {"reference/index": _index()}
    for room in doors.rooms():
        alone = room.name in doors.FRONT_DOORS
        if not alone:
            pages[f"reference/{room.name.replace('.', '/')}/index"] = _room(room)
        for file in room.files:
            pages[doors.page_of(file)] = _file(room, file)
    pages["reference/command"] += _command_line()
    written = {source / f"{name}.md": text for name, text in pages.items()}
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in (source / "reference").rglob("*.md"):
        if path not in written:
            path.unlink()


def expand(entry: str) -> list[str]:
    """The public names that an entry of a block of names stands for: one, or a file's.

    A file is named as `ops.value`, a name as `tfrl.ops.vtrace`.
    """
    public = doors.public_names()
    found = [name for name, file in public.items() if file == f"tfrl.{entry}"]
    found = [entry] if entry in public else found
    if not found:
        raise ValueError(f"block of names: expected a public name or file; got {entry}")
    return found


def blocks_of_names(text: str) -> list[str]:
    """Every public name in the blocks of names of a page."""
    blocks = re.findall(r"^```\{names\}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [name for block in blocks for x in block.split() for name in expand(x)]


def _expand_names(_app, _page, source):
    source[0] = re.sub(
        r"^```\{names\}\n.*?^```$",
        lambda block: _table(blocks_of_names(block[0])),
        source[0],
        flags=re.DOTALL | re.MULTILINE,
    )


def _table(names) -> str:
    """A table of names with the first lines of their docstrings."""
    public, rows = doors.public_names(), []
    shorts = [name.rpartition(".")[2] for name in names]
    for name, short in zip(names, shorts, strict=True):
        told = doors.first_lines(public[name])[short].replace("|", "\\|")
        # Two of one name, such as `main`, are told apart by their rooms.
        longer = f"{name.removeprefix('tfrl.')} <{name}>"
        shown = longer if shorts.count(short) > 1 else f"~{name}"
        rows.append(f"| {{py:obj}}`{shown}` | {told} |")
    return "\n".join(["| name | what it is |", "| --- | --- |", *rows])


def _toctree(entries) -> str:
    return "```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"


def _index() -> str:
    rows = []
    for room in doors.rooms():
        place = room.name.replace(".", "/")
        place += "" if room.name in doors.FRONT_DOORS else "/index"
        count = sum(len(file.names) for file in room.files)
        told = doors.opening(room.text)
        rows.append(f"| [`tfrl.{room.name}`]({place}.md) | {told} | {count} |")
    text = (
        "# Reference\n\nEvery public name, by the room that it lies in. Looking for "
        "something to do rather than for a name? See [names by purpose](../tasks.md). "
        "Names are imported from their room: `tfrl.ops.vtrace`. A nest is whatever "
        "`tf.nest` flattens; `TensorLike` is a tensor, a variable, an array or numbers "
        "of which one is made.\n\n"
        "| room | what is there | names |\n| --- | --- | --- |\n" + "\n".join(rows)
    )
    places = [
        room.name.replace(".", "/")
        + ("" if room.name in doors.FRONT_DOORS else "/index")
        for room in doors.rooms()
        if "." not in room.name
    ]
    return text + "\n\n" + _toctree(["Names by purpose <../tasks>", *places])


def _room(room: doors.Room) -> str:
    parts = [
        f"# tfrl.{room.name}",
        f"```{{py:module}} tfrl.{room.name}\n```",
        room.text,
    ]
    pages = []
    for folder, files in room.folders().items():
        inner = folder.removeprefix(f"tfrl.{room.name}").removeprefix(".")
        if inner and files:
            told = doors.docstring(doors.path_of(folder)).split("\n\n")[0]
            parts.append(f"## {inner.replace('_', ' ').capitalize()}\n\n{told}")
        for file in files:
            page = f"{inner}/" if inner else ""
            page += file.module.rpartition(".")[2]
            pages.append(page)
            parts += [f"{'###' if inner else '##'} [{file.title}]({page}.md)"]
            parts += [doors.opening(file.text), _table(_full(room, file))]
    inner = [r for r in doors.rooms() if r.name.startswith(f"{room.name}.")]
    for other in inner:
        place = other.name.removeprefix(f"{room.name}.")
        parts.append(f"## [tfrl.{other.name}]({place}/index.md)\n\n{other.text}")
        pages.append(f"{place}/index")
    return "\n\n".join(parts) + "\n\n" + _toctree(pages)


def _file(room: doors.Room, file: doors.File) -> str:
    names = _full(room, file)
    alone = room.name in doors.FRONT_DOORS
    parts = [f"# {f'tfrl.{room.name}' if alone else file.title}"]
    parts += [f"```{{py:module}} tfrl.{room.name}\n```"] if alone else []
    parts += [file.text]
    parts += [_table(names)] if len(names) > 1 else []
    for name in names:
        owner, _, short = name.rpartition(".")
        thing = getattr(importlib.import_module(owner), short)
        kind = "class" if inspect.isclass(thing) else "function"
        kind = kind if callable(thing) else "data"
        parts.append(f"## {short}\n\n```{{eval-rst}}\n.. auto{kind}:: {name}\n```")
    return "\n\n".join(parts) + "\n"


def _command_line() -> str:
    """What `--help` of the command and of its commands says."""
    parts = ["\n## The command line"]
    for name in ["", *COMMANDS.split(), "check-env"]:
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
            command.main([*name.split(), "--help"])
        parts.append(f"### tfrl {name}\n\n```text\n{told.getvalue().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _full(room: doors.Room, file: doors.File) -> list[str]:
    return [f"tfrl.{room.name}.{name}" for name in file.names]
