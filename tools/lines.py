"""Counts lines of code by room: docstrings, comments and blank lines left out."""

import ast
import collections
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(path: pathlib.Path) -> int:
    """Returns how many lines of a file are code."""
    source = path.read_text(encoding="utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            documented |= {*range(docstring.lineno, (docstring.end_lineno or 0) + 1)}
    return sum(
        number not in documented and bool(line.strip()) and line.strip()[0] != "#"
        for number, line in enumerate(source.splitlines(), 1)
    )


def main() -> None:
    counts: collections.Counter[str] = collections.Counter()
    for path in (ROOT / "tfrl").rglob("*.py"):
        place = path.relative_to(ROOT / "tfrl").parts
        counts[place[0] if len(place) > 1 else "front doors"] += code_lines(path)
    rooms = ", ".join(f"{room} {count:,}" for room, count in counts.most_common())
    tests = sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "tests").rglob("*.py")
    )
    sys.stdout.write(f"tfrl: {counts.total():,} lines of code ({rooms})\n")
    sys.stdout.write(f"tests: {tests:,} lines in all\n")


if __name__ == "__main__":
    main()
