"""Docstrings as the house writes them, for Sphinx: Markdown to reST, plain signatures.

In prose, one backtick is code, and what is indented is a formula. Sections of Google's
style are left to napoleon. Types and defaults are shown as the source says them.
"""

import ast
import dataclasses
import functools
import inspect
import re
import textwrap

import doors
from docutils import nodes
from sphinx import addnodes

SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields|Example|References):$")
BULLET = re.compile(r"\s*([-*]|\d+\.) ")


def setup(app):
    # Before napoleon.
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-read", _link_names)
    return {"parallel_read_safe": True}


def as_rest(lines: list[str]) -> list[str]:
    """Returns a docstring with code, formulas and lists as reST has them."""
    found: list[str] = []
    section, in_list = "", False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        before = found[-1].strip() if found else ""
        header, bullet = SECTION.match(line), BULLET.match(line)
        if line and not indent:
            section, was_list = header[1] if header else "", in_list
            in_list = bool(bullet)
            if before and in_list != was_list:
                found.append("")
        if header or not line.strip() or section == "Example":
            found.append(line)
        elif section and indent == 4:
            found.append(_entry(line))
        elif section and bullet and before[-1:] not in ".:;":
            # A minus sign.
            found.append(line[:indent] + "\\" + _prose(line[indent:]))
        elif not section and not in_list and indent >= 4:
            found += [] if before else [".. code-block:: text", ""]
            found.append(line)
        elif bullet:
            found.append(bullet[0] + _prose(line[bullet.end() :]))
        else:
            found.append(_prose(line))
    return found


def _entry(line: str) -> str:
    """An entry of a section: napoleon cares for the name, we for the rest."""
    name, colon, rest = line.partition(": ")
    if not colon or "`" in name or " " in name.strip():
        return _prose(line)
    return f"{name}: {_prose(rest)}"


def _prose(line: str) -> str:
    parts = re.split(r"(`+[^`]+`+)", line)
    for place, part in enumerate(parts):
        if place % 2:
            before, after = parts[place - 1], parts[place + 1]
            code = part.strip("`")
            start = "" if not before or before[-1] in " ([{/-'\"" else "\\ "
            end = "" if not after or not (after[0].isalnum()) else "\\ "
            parts[place] = f"{start}``{code}``{end}"
        else:
            part = re.sub(r"(?<!\w)\*(\w[^*]*\w)\*(?!\w)", "\0\\1\0", part)
            part = re.sub(r"([*|\\])", r"\\\1", part)
            parts[place] = re.sub(r"(?<=\w)_(?!\w)", r"\\_", part).replace("\0", "*")
    return "".join(parts)


def _process(_app, _what, _name, _thing, _options, lines):
    lines[:] = as_rest(lines)


def _skip(_app, _what, name, thing, skip, _options):
    """Leaves out what Keras, TensorFlow and Python have of their own, and fields."""
    raw = getattr(thing, "fget", thing)
    raw = getattr(raw, "__func__", raw)
    owner = getattr(inspect.unwrap(raw) if callable(raw) else raw, "__module__", "")
    is_ours = isinstance(owner, str) and owner.startswith("tfrl")
    return skip or name.startswith("_") or not is_ours


def _signature(_app, what, _name, thing, _options, signature, _returned):
    try:
        if what == "class":
            return _of_class(thing), None
        if what in ("function", "method"):
            return _of_function(thing, what == "method")
    except (OSError, TypeError, SyntaxError, IndexError):
        return signature, None
    return signature, _returned


def _tree(thing) -> ast.AST:
    text = textwrap.dedent(inspect.getsource(thing))
    return ast.parse(text).body[0]


def _of_function(thing, is_method: bool) -> tuple[str, str]:
    thing = inspect.unwrap(getattr(thing, "__func__", thing))
    node = _tree(thing)
    static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
    if is_method and not static:
        first = (node.args.posonlyargs or node.args.args)[:1]
        (node.args.posonlyargs or node.args.args)[:1] = []
        missing = len(node.args.defaults) - len(node.args.args + node.args.posonlyargs)
        del node.args.defaults[: max(0, missing if first else 0)]
    returned = ast.unparse(node.returns) if node.returns else None
    return f"({_plain(ast.unparse(node.args))})", returned and _plain(returned)


def _plain(text: str) -> str:
    """Without the quotes around names of types that come later in a file."""
    return re.sub(r": '([\w.\[\], |]+)'", r": \1", re.sub(r"^'(.*)'$", r"\1", text))


def _of_class(thing) -> str:
    if issubclass(thing, tuple) and hasattr(thing, "_fields"):
        return _of_fields([thing], thing._fields)
    init = vars(thing).get("__init__") or thing.__init__
    if dataclasses.is_dataclass(thing) and "__init__" not in _source_names(thing):
        names = [field.name for field in dataclasses.fields(thing) if field.init]
        return _of_fields(inspect.getmro(thing), names)
    owner = getattr(inspect.unwrap(init), "__module__", "") or ""
    if not callable(init) or not owner.startswith("tfrl"):
        return ""
    return _of_function(init, True)[0]


@functools.cache
def _source_names(thing) -> set[str]:
    return {getattr(node, "name", "") for node in _tree(thing).body}


def _of_fields(classes, names) -> str:
    said: dict[str, ast.AnnAssign] = {}
    for each in reversed(classes):
        if each.__module__.startswith("tfrl"):
            for node in _tree(each).body:
                if isinstance(node, ast.AnnAssign):
                    said[ast.unparse(node.target)] = node
    parts = []
    for name in names:
        node = said.get(name)
        part = name if node is None else f"{name}: {ast.unparse(node.annotation)}"
        if node is not None and node.value is not None:
            value = ast.unparse(node.value)
            part += " = ..." if "field(" in value else f" = {value}"
        parts.append(part)
    return f"({_plain(', '.join(parts))})"


def _link_names(app, tree):
    """Links code that is a public name: `tfrl.ops.vtrace`, or `vtrace` on its pages."""
    public = doors.public_names()
    short: dict[str, list[str]] = {}
    for name in public:
        short.setdefault(name.rpartition(".")[2], []).append(name)
    modules = {f"tfrl.{room.name}" for room in doors.rooms()}
    page = app.env.docname
    for node in list(tree.findall(nodes.literal)):
        if isinstance(node.parent, nodes.reference | addnodes.pending_xref):
            continue
        said = re.sub(r"\(.*\)$", "", node.astext(), flags=re.DOTALL)
        target = said if said in public or said in modules else None
        if target is None and page.startswith("reference/"):
            target = _on_pages(said, page, short.get(said, []), node)
        if target is not None:
            link = addnodes.pending_xref(
                "",
                refdomain="py",
                reftype="obj",
                reftarget=target,
                refdoc=page,
                refexplicit=True,
                refwarn=True,
            )
            node.replace_self(link)
            link += node


def _on_pages(said: str, page: str, candidates: list[str], node) -> str | None:
    """The name meant by a short one: of the same room, or the only class called so."""
    room = page.removeprefix("reference/").split("/")[0]
    near = [name for name in candidates if name.startswith(f"tfrl.{room}.")]
    found = near or [name for name in candidates if said[:1].isupper()]
    above = node
    while above is not None and not isinstance(above, addnodes.desc):
        above = above.parent
    own = set()
    if above is not None:
        own = {part.astext() for part in above[0].findall(addnodes.desc_sig_name)}
    return found[0] if len(found) == 1 and said not in own else None
