"""What is public, read from the doors of the rooms: files, their names, first lines."""

import ast
import dataclasses
import functools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "tfrl"
# Rooms that are one file.
FRONT_DOORS = ("rl_trainer", "command")


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a room: its module, its docstring and the names that the door shows."""

    module: str
    text: str
    names: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def title(self) -> str:
        """The class that the file is called after, or its name in plain words."""
        stem = self.module.rpartition(".")[2]
        for name in self.classes:
            if name.lower() == stem.replace("_", ""):
                return name
        return stem.replace("_", " ").capitalize()


@dataclasses.dataclass(frozen=True)
class Room:
    """A door with the files behind it, by the folder that they lie in."""

    name: str
    text: str
    files: tuple[File, ...]

    def folders(self) -> dict[str, list[File]]:
        """Files by the module of their folder; those of the room itself come first."""
        found: dict[str, list[File]] = {f"tfrl.{self.name}": []}
        for file in self.files:
            found.setdefault(file.module.rpartition(".")[0], []).append(file)
        return found


def docstring(path: pathlib.Path) -> str:
    """The docstring of a file, with the line breaks of its source."""
    return ast.get_docstring(_tree(path)) or ""


def opening(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(text.split("\n\n")[0].split())


@functools.cache
def first_lines(module: str) -> dict[str, str]:
    """What the functions and classes of a file are, by their names."""
    tree = _tree(path_of(module))
    return {
        node.name: opening(ast.get_docstring(node) or "")
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


@functools.cache
def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def path_of(module: str) -> pathlib.Path:
    """Where a module of tfrl lies."""
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@functools.cache
def rooms() -> tuple[Room, ...]:
    """All rooms with a door, in order of their names; then those of one file."""
    doors = [PACKAGE / f"{name}.py" for name in FRONT_DOORS]
    doors += PACKAGE.glob("**/__init__.py")
    found = []
    for door in doors:
        place = door.parent if door.name == "__init__.py" else door.with_suffix("")
        name = ".".join(place.relative_to(PACKAGE).parts)
        files = tuple(_files(f"tfrl.{name}", door)) if name else ()
        if files:
            found.append(Room(name, docstring(door), files))
    return tuple(sorted(found, key=lambda room: (room.name in FRONT_DOORS, room.name)))


@functools.cache
def public_names() -> dict[str, str]:
    """Every public name, as users write it, with the module of its file."""
    return {
        f"tfrl.{room.name}.{name}": file.module
        for room in rooms()
        for file in room.files
        for name in file.names
    }


def page_of(file: File) -> str:
    """The document of a file, without suffix."""
    inner = file.module.removeprefix("tfrl.")
    return f"reference/{inner.replace('.', '/')}"


def _files(module: str, door: pathlib.Path):
    if door.name != "__init__.py":
        names = [name for name, _ in _definitions(door)]
        yield _file(module, names)
        return
    shown: dict[str, list[str]] = {}
    for node in ast.walk(_tree(door)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(module):
            names = [alias.name for alias in node.names]
            inner = [name for name in names if (door.parent / name).is_dir()]
            if names != inner:
                shown.setdefault(node.module or "", []).extend(names)
    for name in sorted(shown):
        yield _file(name, shown[name])


def _file(module: str, names: list[str]) -> File:
    path = path_of(module)
    defined = dict(_definitions(path))
    classes = (name for name in names if defined.get(name) is ast.ClassDef)
    # In the order in which the file has them.
    order = [name for name in defined if name in names]
    order += [name for name in names if name not in defined]
    return File(module, docstring(path), tuple(order), tuple(classes))


def _definitions(path: pathlib.Path):
    for node in _tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if not node.name.startswith("_"):
                yield node.name, type(node)
