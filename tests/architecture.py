"""The rules of the house; `test_architecture.py` applies them.

A rule takes the root of a repository and yields what breaks it. Files are read, not
imported, so that a broken module cannot hide. `RULES` lists them all.
"""

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from source_tree import (
    Definition,
    Function,
    assigned_value,
    below,
    imports,
    lazy_imports,
    modules,
    nodes,
    parse,
    public_definitions,
    rooms,
    tree_files,
)

FLOORS = {
    **dict.fromkeys(["core", "entry", "host"], 0),
    # Imports floor 0, and is imported by every room.
    **dict.fromkeys(["_internal"], 1),
    **dict.fromkeys(["ops", "schedules", "replay", "datasets", "distribute"], 2),
    **dict.fromkeys(["bijectors", "stats", "saving"], 3),
    **dict.fromkeys(["distributions", "environments"], 4),
    **dict.fromkeys(["layers", "losses", "exploration", "policies"], 5),
    **dict.fromkeys(["agents", "summaries"], 6),
    **dict.fromkeys(["configuring", "exporting"], 7),
    **dict.fromkeys(["training"], 8),
    **dict.fromkeys(["rl_trainer"], 9),
    **dict.fromkeys(["experiments"], 10),
    **dict.fromkeys(["command"], 11),
    **dict.fromkeys(["__main__"], 12),
}
TOP_LEVEL = {"README.md", "setup.cfg", "pyproject.toml", "CHANGELOG.md", "LICENSE"} | {
    *["tfrl", "tests", "colabs", "configs", "tools"]
}
# Folders with a door of their own, which the door of their room shows as a name.
INNER_DOORS = {"tfrl/environments/compiled"}
DRAWERS = {"utils", "util", "common", "helpers", "helper", "misc"}
GIN_FILES = {
    "tfrl/rl_trainer.py",
    "tfrl/configuring/gin_calls.py",
    "tfrl/configuring/_gin_text.py",
    "tfrl/configuring/configs.py",
}
OPTIONAL = {"PIL", "av", "dm_control", "flax", "jax", "matplotlib", "minari", "scipy"}
# Distributions that bear another name than what is imported.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "absl": "absl-py",
    "gin": "gin-config",
    "google": "protobuf",
}
PRIVATE_OR_DEAD = {
    "tensorflow.python": "not public",
    "keras.src": "not public",
    "tensorflow_probability.python": "not public",
    "tf_keras": "Keras 2",
    "gym": "replaced by gymnasium",
}
# What has no public way, alone in a file that says so; its test tells what broke.
PRIVATE_HOOKS = {
    "tfrl/_internal/autograph.py": {"tensorflow.python.autograph.core.config"}
}
# Bases whose methods are the author's own; any other base may be overridden.
PLAIN_BASES = {"NamedTuple", "Protocol", "Generic", "PyTreeNode", "Module", "Enum"}
FOREIGN_WORDS = re.compile(
    r"\b[T]ODO\b|\b[F]IXME\b|\b[X]XX\b"
    r"|(?<![\w.~}])/(?:home|root|work|Users)/"
    r"|[p]ypi\.org|[p]ythonhosted\.org"
)
MAX_FILE_LINES, MAX_CODE_LINES, MAX_BODY_LINES = 600, 300, 60
# Imports files of a room when they are asked for.
LATE = "tfrl._internal.lazy_doors"


def imports_go_down(root: Path) -> Iterator[str]:
    """A file imports files of its own room and of lower floors, nothing else of us."""
    for name, path in modules(root, "tfrl"):
        room = name.split("/")[1].removesuffix(".py")
        for node, targets in imports(path):
            place = f"{name}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.level:
                yield f"{place}: relative import"
                continue
            for target in targets:
                if below(target, "tfrl"):
                    is_door = path.name == "__init__.py"
                    fault = _fault_of_import(root, room, is_door, node, target)
                    if fault:
                        yield f"{place}: {target}: {fault}"


def _fault_of_import(
    root: Path, room: str, is_door: bool, node: ast.AST, target: str
) -> str:
    *folders, file = target.removeprefix("tfrl").removeprefix(".").split(".")
    is_file = root.joinpath("tfrl", *folders, f"{file}.py").is_file()
    if is_door:
        own = len(folders) > 1 and folders[0] == room
        own = own or target.replace(".", "/") in INNER_DOORS
        return (
            ""
            if own or target == LATE
            else "a door imports names of its own files only"
        )
    module = root.joinpath("tfrl", *folders).with_suffix(".py")
    if isinstance(node, ast.Import) or not (folders or is_file) or module.is_file():
        return "import a file: `from tfrl.room import file`"
    if not is_file:
        return "not a file of that room"
    other = folders[0] if folders else file
    if other in (room, "_internal"):
        return ""
    if file.startswith("_"):
        return "a file private to its room"
    if other not in FLOORS or room not in FLOORS:
        return "a room without a floor"
    return "" if FLOORS[other] < FLOORS[room] else "not on a lower floor"


def imports_stand_at_the_top(root: Path) -> Iterator[str]:
    """Only optional libraries are imported where they are used."""
    for name, path in modules(root, "tfrl"):
        top = [*parse(path).body, *lazy_imports(path)]
        for node, targets in imports(path):
            if node not in top and not {t.split(".")[0] for t in targets} <= OPTIONAL:
                yield f"{name}:{node.lineno}: {ast.unparse(node)} inside a block"


def imports_are_public(root: Path) -> Iterator[str]:
    """Nothing private or dead is imported; gin only where configs are read."""
    for name, path in modules(root, "tfrl", "tests", "tools"):
        for node, targets in imports(path):
            for banned, reason in PRIVATE_OR_DEAD.items():
                private = [target for target in targets if below(target, banned)]
                if set(private) - PRIVATE_HOOKS.get(name, set()):
                    yield f"{name}:{node.lineno}: {banned} is {reason}"
            in_package = name.startswith("tfrl/") and name not in GIN_FILES
            if in_package and any(below(target, "gin") for target in targets):
                yield f"{name}:{node.lineno}: gin is imported in {sorted(GIN_FILES)}"


def imports_are_declared(root: Path) -> Iterator[str]:
    """What the package imports is required by setup.cfg, optional libraries by extras.

    So is TensorFlow, which every extra that brings it names otherwise.
    """
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg", encoding="utf-8")
    extras = dict(config["options.extras_require"])
    own = (text for name, text in extras.items() if name not in ("bench", "dev"))
    optional = _distributions("\n".join(own))
    required = _distributions(config["options"]["install_requires"])
    for name, path in modules(root, "tfrl"):
        for node, targets in imports(path):
            for top in {target.split(".")[0] for target in targets}:
                by_extra = top in OPTIONAL or top == "tensorflow"
                wanted = DISTRIBUTIONS.get(top, top.replace("_", "-"))
                known = top in sys.stdlib_module_names or top in ("", "tfrl")
                if not known and wanted not in (optional if by_extra else required):
                    yield f"{name}:{node.lineno}: setup.cfg does not require {wanted}"


def _distributions(requirements: str) -> set[str]:
    return set(re.findall(r"^[\w.-]+", requirements, re.MULTILINE))


def doors_are_complete(root: Path) -> Iterator[str]:
    """A room's `__init__.py` shows what users import, from files that are not private.

    A file of which nothing is shown is private to its room, by an underscore, or serves
    other rooms. A name that is neither shown nor used by another file, nor a type of
    results, is private.
    """
    texts = {
        path: path.read_text(encoding="utf-8") for _, path in modules(root, "tfrl")
    }
    words = {path: set(re.findall(r"\w+", text)) for path, text in texts.items()}
    names_after_dots = {
        path: set(re.findall(r"\.(\w+)", text)) for path, text in texts.items()
    }
    for room, files in rooms(root).items():
        door = root / "tfrl" / room / "__init__.py"
        yield from _faults_of_doors(root, room)
        if not door.is_file():
            continue
        stems = {part.stem for path in files for part in (path, path.parent)}
        for path in files:
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            private = path.stem.startswith("_")
            names = [] if private else public_definitions(path)
            shown = shown_names(root, path)
            others = [x for x in words if x != path and path.stem in words[x]]
            used = set().union(*(names_after_dots[x] for x in others))
            for name in sorted({node.name for node in names} - shown - results(path)):
                if name not in used:
                    yield f"{module}: {name} is neither in the door nor used elsewhere"
            for name in sorted(shown & stems):
                yield f"{module}: {name} hides the file of that name"
            for name in sorted(shown - {node.name for node in names}):
                if (
                    name.startswith("_")
                    or private
                    or assigned_value(path, name) is None
                ):
                    yield f"{module}: {name} is in the door but not public there"
            if not (private or shown or _serves_other_rooms(root, room, path)):
                yield f"{module}: private to its room, but has no underscore"


def _faults_of_doors(root: Path, room: str) -> Iterator[str]:
    door = root / "tfrl" / room / "__init__.py"
    if not door.is_file():
        yield f"tfrl/{room}: no __init__.py"
    for own in [door, *(root / x / "__init__.py" for x in sorted(INNER_DOORS))]:
        if own.is_relative_to(door.parent) and own.is_file():
            yield from (f"{own.relative_to(root)}: {f}" for f in _faults_of_door(own))


def shown_names(root: Path, path: Path) -> set[str]:
    """Returns the names of a file of a room that a door of the room shows."""
    parts = path.relative_to(root).with_suffix("").parts
    room, inner = root / "tfrl" / parts[1], path.parent / "__init__.py"
    doors = {room / "__init__.py", inner if inner.is_file() else room / "__init__.py"}
    return {
        alias.name
        for door in doors
        for node in [*parse(door).body, *lazy_imports(door)]
        if isinstance(node, ast.ImportFrom) and node.module == ".".join(parts)
        for alias in node.names
    }


def results(path: Path) -> set[str]:
    """Returns the names in annotations of what functions return and records hold."""
    every = nodes(path)
    found = [x.returns for x in every if isinstance(x, Function) and x.returns]
    found += [x.annotation for x in every if isinstance(x, ast.AnnAssign)]
    return {word for x in found for word in re.findall(r"\w+", ast.unparse(x))}


def _serves_other_rooms(root: Path, room: str, path: Path) -> bool:
    module = ".".join(path.relative_to(root).with_suffix("").parts)
    return any(
        module in targets
        for name, other in modules(root, "tfrl")
        if name.split("/")[1] != room
        for _, targets in imports(other)
    )


def folders_have_no_doors(root: Path) -> Iterator[str]:
    """The `__init__.py` of a folder of a room says what is there, and no more.

    Those of `INNER_DOORS` are doors.
    """
    for room, files in rooms(root).items():
        for folder in sorted({path.parent for path in files}):
            inner = folder / "__init__.py"
            is_bare = inner.is_file() and len(parse(inner).body) == 1
            is_door = folder.relative_to(root).as_posix() in INNER_DOORS
            if folder != root / "tfrl" / room and not (is_bare or is_door):
                yield f"{inner.relative_to(root)}: holds more than a docstring"


def _faults_of_door(door: Path) -> Iterator[str]:
    tree = parse(door)
    if not ast.get_docstring(tree):
        yield "no docstring"
    value = assigned_value(door, "__all__")
    listed = ast.literal_eval(value) if value else []
    if listed != sorted(listed):
        yield "__all__ is not sorted"
    lazy = lazy_imports(door)
    machinery = {"typing.TYPE_CHECKING", LATE} if lazy else set()
    imported = [
        name.asname or name.name
        for node, targets in imports(door)
        if not set(targets) <= machinery
        for name in node.names
    ]
    if sorted(listed) != sorted(imported):
        odd = sorted(set(listed) ^ set(imported))
        yield f"__all__ and the imports differ: {odd}"
    files = sorted(x for node in lazy for x in _loaded_late(node))
    value = assigned_value(door, "_LAZY")
    if files != list(ast.literal_eval(value) if value else []):
        yield f"_LAZY and what is shown to type checkers differ: {files}"
    for node in tree.body[1:]:
        if not (isinstance(node, ast.ImportFrom | ast.Assign) or _is_lazy(node, lazy)):
            yield f"line {node.lineno}: a door holds imports and __all__ only"


def _loaded_late(node: ast.ImportFrom) -> list[str]:
    """The file that has the names of an import, or the folders that are the names."""
    inner = [
        x.name
        for x in node.names
        if f"{node.module}.{x.name}".replace(".", "/") in INNER_DOORS
    ]
    return inner or [(node.module or "").rpartition(".")[2]]


def _is_lazy(node: ast.stmt, lazy: list[ast.ImportFrom]) -> bool:
    """Whether a statement shows type checkers what a door imports late."""
    is_if = isinstance(node, ast.If) and not node.orelse
    return is_if and all(part in lazy for part in node.body)


def public_names_are_documented(root: Path) -> Iterator[str]:
    """What a door shows has docstrings with all sections, its methods a line."""
    for files in rooms(root).values():
        for path in files:
            place, shown = path.relative_to(root), shown_names(root, path)
            for node in public_definitions(path):
                faults = _faults_of_docstring(node) if node.name in shown else ()
                if not (path.stem.startswith("_") or ast.get_docstring(node)):
                    faults = ["no docstring", *faults]
                if not _is_overload(node):
                    for fault in faults:
                        yield f"{place}:{node.lineno}: {node.name}: {fault}"


def _faults_of_docstring(node: Definition) -> Iterator[str]:
    text = ast.get_docstring(node) or ""
    sections = set(re.findall(r"^(\w+):$", text, re.MULTILINE))
    if "Example" not in sections or ">>>" not in text:
        yield "no Example"
    call: ast.AST | None = node
    if isinstance(node, ast.ClassDef):
        if _bases(node) <= PLAIN_BASES:
            yield from (
                f"bare method {x.name}" for x in node.body if _is_bare_method(x)
            )
        inits = [n for n in node.body if getattr(n, "name", "") == "__init__"]
        call = inits[0] if inits else None
    if not isinstance(call, Function):
        return
    if ast.unparse(call.args) not in ("", "self") and "Args" not in sections:
        yield "no Args"
    returned = ast.unparse(call.returns) if call.returns else "None"
    silent = {"None", "NoReturn", "Never", "typing.NoReturn", "typing.Never"}
    if returned not in silent and not {"Returns", "Yields"} & sections:
        yield "no Returns"


def _bases(node: ast.ClassDef) -> set[str]:
    names = (ast.unparse(base).split("[")[0] for base in node.bases)
    return {name.split(".")[-1] for name in names}


def _is_overload(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(d).split(".")[-1] == "overload" for d in decorators)


def _is_bare_method(node: ast.AST) -> bool:
    if not isinstance(node, Function) or node.name.startswith("_"):
        return False
    is_setter = any(ast.unparse(d).endswith(".setter") for d in node.decorator_list)
    return not (ast.get_docstring(node) or is_setter or _is_overload(node))


def files_are_small(root: Path) -> Iterator[str]:
    """No file has over 600 lines, no module over 300 of code, no body over 60."""
    for name, path in modules(root, "tfrl", "tests", "tools"):
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count > MAX_FILE_LINES:
            yield f"{name}: {count} lines, {MAX_FILE_LINES} allowed"
        count = len(_code_lines(path))
        if name.startswith("tfrl/") and count > MAX_CODE_LINES:
            yield f"{name}: {count} lines of code, {MAX_CODE_LINES} allowed"
        for node in nodes(path):
            if isinstance(node, Function):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                first, last = body[:1], node.end_lineno or 0
                count = last - first[0].lineno + 1 if first else 0
                if count > MAX_BODY_LINES:
                    yield f"{name}:{node.lineno}: {node.name} has {count} lines"


def _code_lines(path: Path) -> set[int]:
    """Numbers of the lines that are neither docstring nor comment nor blank."""
    lines = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            lines.add(number)
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            if ast.get_docstring(node) is not None:
                first = node.body[0]
                lines -= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return lines


def names_say_something(root: Path) -> Iterator[str]:
    """No file or folder is a drawer; a room has folders, and those have none."""
    for name, _ in modules(root, "tfrl", "tests", "tools"):
        words = set(re.split(r"[/_.]", name.removesuffix(".py")))
        for word in sorted(words & DRAWERS):
            yield f"{name}: `{word}` says nothing"
        folder = name.rpartition("/")[0]
        if folder.startswith("tfrl") and folder.count("/") > 2:
            yield f"{name}: a folder of a room has no folders"


def files_say_what_they_hold(root: Path) -> Iterator[str]:
    """Every file begins with a docstring."""
    for name, path in modules(root, "tfrl", "tests", "tools"):
        if not ast.get_docstring(parse(path)):
            yield f"{name}: does not begin with a docstring"


def tests_mirror_the_package(root: Path) -> Iterator[str]:
    """`tfrl/room/file.py` is tested by `tests/room/test_file.py`.

    Modules of which no door shows anything are tested through the public ones that
    they serve.
    """
    for name, path in modules(root, "tfrl"):
        folder = path.relative_to(root / "tfrl").parent
        test = root / "tests" / folder / f"test_{path.stem.strip('_')}.py"
        own_door = name.count("/") == 1 or path.name == "__init__.py"
        public = own_door or bool(shown_names(root, path))
        private = any(part.startswith("_") for part in name.split("/"))
        if public and not private and not test.is_file():
            yield f"{name}: no {test.relative_to(root).as_posix()}"


def package_never_asserts(root: Path) -> Iterator[str]:
    """`python -O` drops asserts: the package raises instead."""
    for name, path in modules(root, "tfrl"):
        for node in nodes(path):
            if isinstance(node, ast.Assert):
                yield f"{name}:{node.lineno}: assert"


def top_level_is_as_listed(root: Path) -> Iterator[str]:
    """The root holds the listed names and dot files."""
    found = {path.relative_to(root).parts[0] for path in tree_files(root)}
    for name in sorted(found - TOP_LEVEL):
        if not name.startswith("."):
            yield f"{name}: does not belong into the root"


def rooms_are_registered(root: Path) -> Iterator[str]:
    """`tfrl._ROOMS` lists, in order, what lies in the package."""
    value = assigned_value(root / "tfrl" / "__init__.py", "_ROOMS")
    listed = list(ast.literal_eval(value)) if value else []
    found = {name.split("/")[1] for name, _ in modules(root, "tfrl")}
    found = {name.removesuffix(".py") for name in found if not name.startswith("_")}
    if listed != sorted(listed):
        yield "tfrl/__init__.py: _ROOMS is not sorted"
    for room in sorted(set(listed) ^ found):
        where = "exists but is not" if room in found else "does not exist but is"
        yield f"tfrl/{room}: {where} in _ROOMS"
    for room in sorted(found - set(FLOORS)):
        yield f"tfrl/{room}: no floor"


def tree_speaks_of_tfrl_alone(root: Path) -> Iterator[str]:
    """No file names somebody's folders, a registry, or work left undone."""
    for path in tree_files(root):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, start=1):
            match = FOREIGN_WORDS.search(line)
            if match:
                yield f"{path.relative_to(root)}:{number}: {match[0]}"


RULES = (
    imports_go_down,
    imports_stand_at_the_top,
    imports_are_public,
    imports_are_declared,
    doors_are_complete,
    folders_have_no_doors,
    public_names_are_documented,
    files_are_small,
    names_say_something,
    files_say_what_they_hold,
    tests_mirror_the_package,
    package_never_asserts,
    top_level_is_as_listed,
    rooms_are_registered,
    tree_speaks_of_tfrl_alone,
)
