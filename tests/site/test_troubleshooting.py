"""The page of troubleshooting quotes what tfrl says, by its fixed parts."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "tools" / "site" / "troubleshooting.md"
# What tfrl says is in blocks of text, what other libraries say in blocks of console.
QUOTED = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
# Stands for what is put into a text where it is said.
GAP = "\0"


def texts_of(node):
    """The text of a string constant or of an f-string, with gaps for what it holds."""
    if isinstance(node, ast.JoinedStr):
        parts = node.values
        return "".join(x.value if isinstance(x, ast.Constant) else GAP for x in parts)
    return node.value if isinstance(getattr(node, "value", None), str) else ""


@pytest.fixture(scope="module")
def said():
    """All texts of the package, without its docstrings, which may quote messages."""
    found = []
    for path in sorted((ROOT / "tfrl").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        alone = {id(x.value) for x in ast.walk(tree) if isinstance(x, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in alone:
                found.append(texts_of(node))
    return "\n".join(found).replace("%d", GAP).replace("%s", GAP).replace("%.0f", GAP)


def parts_of(quoted):
    """The fixed parts of a message, without what differs and the frame of all."""
    parts = re.split(r"\.\.\.|;|\bexpected\b|\bgot\b", quoted)
    parts = [part.strip(" `,;:()\n") for part in parts]
    return [part for part in parts if len(part) > 3]


@pytest.mark.parametrize("quoted", QUOTED, ids=lambda text: text[:40])
def test_messages_are_said(quoted, said):
    parts = parts_of(quoted)
    assert max(map(len, parts)) > 10
    assert [part for part in parts if part not in said] == []


def test_the_page_has_many_entries_with_what_to_do():
    text = PAGE.read_text("utf-8")
    entries = re.split(r"^### ", text, flags=re.M)[1:]
    assert 20 <= len(entries)
    for entry in entries:
        told = re.sub(r"^```.*?^```$", "", entry, flags=re.M | re.S)
        assert len(told.split()) >= 20, entry.splitlines()[0]


def test_another_wording_is_found(said):
    assert parts_of("`...` expected a unicorn (...), got ...\n") == ["a unicorn"]
    assert "a unicorn" not in said
