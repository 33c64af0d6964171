"""Reading the tree of a repository; `architecture.py` says what it must look like."""

import ast
import fnmatch
import functools
import os
from collections.abc import Iterator
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


def tree_files(root: Path) -> Iterator[Path]:
    """Yields every file that .gitignore does not leave out."""
    ignore = root / ".gitignore"
    lines = ignore.read_text().split() if ignore.exists() else []
    patterns = [".git", *(line.rstrip("/") for line in lines)]
    for folder, folders, files in os.walk(root):
        for names in (folders, files):
            names[:] = sorted(
                name
                for name in names
                if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
            )
        yield from (Path(folder, name) for name in files)


def modules(root: Path, *folders: str) -> Iterator[tuple[str, Path]]:
    """Yields the Python files below some top folders with their names from the root."""
    for path in tree_files(root):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".py" and name.split("/")[0] in folders:
            yield name, path


def rooms(root: Path) -> dict[str, list[Path]]:
    """Returns the files of every room, doors left out; `_internal` is none."""
    found: dict[str, list[Path]] = {}
    for name, path in modules(root, "tfrl"):
        if len(name.split("/")) > 2 and not name.split("/")[1].startswith("_"):
            files = found.setdefault(name.split("/")[1], [])
            if path.name != "__init__.py":
                files.append(path)
    return found


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Returns all that a file is made of, in the order of `ast.walk`."""
    return tuple(ast.walk(parse(path)))


@functools.cache
def imports(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, list[str]]]:
    """Returns each import with the dotted names it may load."""
    found: list[tuple[ast.Import | ast.ImportFrom, list[str]]] = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found.append((node, [alias.name for alias in node.names]))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found.append((node, [f"{base}.{alias.name}" for alias in node.names]))
    return found


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def public_definitions(path: Path) -> list[Definition]:
    return [
        node
        for node in parse(path).body
        if isinstance(node, Definition) and not node.name.startswith("_")
    ]


def assigned_value(path: Path, name: str) -> ast.expr | None:
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    return None


def lazy_imports(path: Path) -> list[ast.ImportFrom]:
    """Returns what a door shows to type checkers and loads when first touched."""
    return [
        node
        for block in parse(path).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and path.name == "__init__.py"
    ]
