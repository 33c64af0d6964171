"""The rules of the house hold, and each is seen failing on a tree that breaks it."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import architecture
import pytest

ROOT = Path(__file__).resolve().parents[1]

FUNCTION = '''"""One idea."""


def twice(x: float) -> float:
    """Twice `x`.

    Args:
        x: a number.

    Returns:
        Its double.

    Example:
        >>> twice(1.0)
        2.0
    """
    return 2 * x
'''
TESTS = '"""Tests."""\n'
DOOR = '"""The room."""\n\nfrom tfrl.ops.value import twice\n\n__all__ = ["twice"]\n'
LAZY_DOOR = '''"""The room."""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors
from tfrl.ops.eager import now

if TYPE_CHECKING:
    from tfrl.ops.value import twice

__all__ = ["now", "twice"]
_LAZY = ("value",)
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
'''
ROOMS = '_ROOMS = ("core", "losses", "ops", "replay", "rl_trainer")'
SETUP = """[options]
install_requires =
    gin-config>=0.5

[options.extras_require]
plots = matplotlib>=3.8
dev = scipy
"""


def with_import(line: str) -> str:
    return FUNCTION.replace('idea."""', f'idea."""\n\n{line}')


GOOD_TREE = {
    ".gitignore": "*.egg-info/\n",
    "README.md": "tfrl\n",
    "setup.cfg": SETUP,
    "tfrl.egg-info/PKG-INFO": "built\n",
    "tfrl/__init__.py": f'"""The package."""\n\n{ROOMS}\n',
    "tfrl/core/__init__.py": '"""Data."""\n\n__all__ = []\n',
    "tfrl/_internal/__init__.py": '"""Not public."""\n',
    "tfrl/_internal/checks.py": '"""Checks."""\n\n\ndef f(): ...\n',
    "tfrl/core/nest.py": '"""Walks."""\n\nfrom tfrl._internal import checks\n',
    "tfrl/losses/__init__.py": DOOR.replace("ops.value", "losses.policy"),
    "tfrl/losses/policy.py": with_import("from tfrl.ops import value"),
    "tfrl/ops/__init__.py": DOOR,
    "tfrl/ops/_loops.py": '"""Private to the room."""\n\n\ndef f(): ...\n',
    "tfrl/ops/value.py": FUNCTION,
    "tfrl/replay/__init__.py": DOOR.replace("ops.value", "replay.uniform"),
    "tfrl/replay/saving/__init__.py": '"""On disk."""\n',
    "tfrl/replay/saving/_rows.py": '"""Rows."""\n\nfrom tfrl.core import nest\n',
    "tfrl/replay/uniform.py": with_import("from tfrl.replay.saving import _rows"),
    "tfrl/rl_trainer.py": '"""Front door."""\n\nimport gin\n',
    "tests/core/test_nest.py": TESTS,
    "tests/losses/test_policy.py": TESTS,
    "tests/ops/test_loops.py": TESTS,
    "tests/ops/test_value.py": TESTS,
    "tests/replay/test_uniform.py": TESTS,
    "tests/test_rl_trainer.py": TESTS,
}
IN_OPS, IN_LOSSES = "tfrl/ops/value.py", "tfrl/losses/policy.py"
METHODS = '''class Mean{base}:
    """A mean.

    Example:
        >>> Mean()
    """

    def add(self): ...
'''
# Each row: the rule, the file that breaks it, its text, and what the rule then says.
PLANTED = {
    "upwards": ("imports_go_down", IN_OPS, "from tfrl.losses import policy", "lower"),
    "upwards_of_internal": (
        "imports_go_down",
        "tfrl/_internal/checks.py",
        "from tfrl.ops import value",
        "not on a lower floor",
    ),
    "sideways": (
        "imports_go_down",
        "tfrl/exploration/noise.py",
        "from tfrl.losses import policy",
        "not on a lower floor",
    ),
    "name": ("imports_go_down", IN_LOSSES, "from tfrl.ops.value import twice", "file:"),
    "door": ("imports_go_down", IN_LOSSES, "from tfrl import ops", "import a file"),
    "folder_as_a_file": (
        "imports_go_down",
        IN_LOSSES,
        "from tfrl.replay import saving",
        "not a",
    ),
    "name_in_folder": (
        "imports_go_down",
        IN_LOSSES,
        "from tfrl.replay.saving._rows import twice",
        "import a file",
    ),
    "door_of_a_folder": (
        "folders_have_no_doors",
        "tfrl/replay/saving/__init__.py",
        '"""On disk."""\n\nfrom tfrl.replay.saving import _rows\n',
        "more than a docstring",
    ),
    "bare_inner_door": (
        "doors_are_complete",
        "tfrl/environments/compiled/__init__.py",
        "",
        "tfrl/environments/compiled/__init__.py: no docstring",
    ),
    "folder_not_shown": (
        "doors_are_complete",
        "tfrl/replay/saving/rows.py",
        FUNCTION,
        "tfrl.replay.saving.rows: twice is neither in the door nor used elsewhere",
    ),
    "root": ("imports_go_down", IN_LOSSES, "import tfrl", "import a file"),
    "front": ("imports_go_down", IN_OPS, "from tfrl import rl_trainer", "lower"),
    "not_a_file": (
        "imports_go_down",
        IN_LOSSES,
        "from tfrl.ops import x",
        "not a file",
    ),
    "foreign_private": (
        "imports_go_down",
        IN_LOSSES,
        "from tfrl.ops import _loops",
        "private to its room",
    ),
    "relative": ("imports_go_down", IN_LOSSES, "from . import value", "relative"),
    "foreign_door": ("imports_go_down", "tfrl/losses/__init__.py", DOOR, "own files"),
    "inside": (
        "imports_stand_at_the_top",
        IN_OPS,
        "def f():\n    import numpy",
        "import numpy inside",
    ),
    "private": (
        "imports_are_public",
        IN_OPS,
        "from tensorflow import python",
        "public",
    ),
    "old_gym": ("imports_are_public", "tests/t.py", "import gym.spaces", "gymnasium"),
    "gin": ("imports_are_public", IN_OPS, "from gin import config", "gin is"),
    "undeclared": ("imports_are_declared", IN_OPS, "import rich.text", "require rich"),
    "other_name": ("imports_are_declared", IN_OPS, "from PIL import Image", "pillow"),
    "dev_only": ("imports_are_declared", IN_OPS, "from scipy import stats", "scipy"),
    "no_door": ("doors_are_complete", "tfrl/stats/mean.py", "", "no __init__"),
    "bare_door": ("doors_are_complete", "tfrl/ops/__init__.py", "", "no docstring"),
    "not_shown": (
        "doors_are_complete",
        IN_OPS,
        f"{FUNCTION}\n\ndef new(): ...",
        "new is neither in the door nor used elsewhere",
    ),
    "not_marked_private": (
        "doors_are_complete",
        "tfrl/ops/loops.py",
        '"""Used by this room alone."""',
        "tfrl.ops.loops: private to its room",
    ),
    "not_there": ("doors_are_complete", IN_OPS, "", "twice is in the door but"),
    "hidden_file": (
        "doors_are_complete",
        "tfrl/ops/__init__.py",
        DOOR.replace("twice", "value"),
        "value hides the file",
    ),
    "unsorted_door": (
        "doors_are_complete",
        "tfrl/ops/__init__.py",
        DOOR.replace('["twice"]', '["twice", "a"]'),
        "not sorted",
    ),
    "unlisted": (
        "doors_are_complete",
        "tfrl/ops/__init__.py",
        DOOR.replace('["twice"]', "[]"),
        "differ",
    ),
    "lazy_but_not_listed": (
        "doors_are_complete",
        "tfrl/ops/__init__.py",
        LAZY_DOOR.replace('("value",)', "()"),
        "_LAZY and what is shown",
    ),
    "busy_lazy_door": (
        "doors_are_complete",
        "tfrl/ops/__init__.py",
        LAZY_DOOR + "def f(): ...",
        "holds",
    ),
    "lazy_for_no_reason": (
        "doors_are_complete",
        "tfrl/ops/__init__.py",
        DOOR + "def __getattr__(name): ...",
        "holds",
    ),
    "lazy_elsewhere": (
        "imports_stand_at_the_top",
        IN_LOSSES,
        "if TYPE_CHECKING:\n    from tfrl.ops import value",
        "inside a block",
    ),
    "busy_door": ("doors_are_complete", "tfrl/ops/__init__.py", f"{DOOR}f()", "holds"),
    "bare": ("public_names_are_documented", IN_OPS, "def f(): ...", "no docstring"),
    "no_example": (
        "public_names_are_documented",
        IN_OPS,
        FUNCTION.replace(">>>", ""),
        "no Example",
    ),
    "no_args": (
        "public_names_are_documented",
        IN_OPS,
        FUNCTION.replace("Args:", ""),
        "no Args",
    ),
    "no_returns": (
        "public_names_are_documented",
        IN_OPS,
        FUNCTION.replace("Returns:", ""),
        "no Returns",
    ),
    "bare_method": (
        "public_names_are_documented",
        IN_OPS,
        METHODS.format(base="").replace("Mean", "twice"),
        "twice: bare method add",
    ),
    "long_file": ("files_are_small", "tests/t.py", "x = 1\n" * 601, "601 lines"),
    "much_code": ("files_are_small", IN_OPS, "x = 1\n" * 301, "301 lines of code"),
    "long_body": (
        "files_are_small",
        IN_OPS,
        "def f():\n" + "    x = 1\n" * 61,
        "f has 61 lines",
    ),
    "drawer": ("names_say_something", "tfrl/ops/math_utils.py", "", "`utils` says"),
    "drawer_folder": ("names_say_something", "tests/common/t.py", "", "`common` says"),
    "deep": ("names_say_something", "tfrl/ops/value/a/gae.py", "", "no folders"),
    "silent": (
        "files_say_what_they_hold",
        "tests/ops/test_value.py",
        "import math",
        "test_value.py: does not begin",
    ),
    "untested": (
        "tests_mirror_the_package",
        "tfrl/entry.py",
        "",
        "no tests/test_entry.py",
    ),
    "assert": ("package_never_asserts", IN_OPS, "assert True", "value.py:1: assert"),
    "stray": ("top_level_is_as_listed", "notes.md", "", "notes.md: does not belong"),
    "ghost_room": (
        "rooms_are_registered",
        "tfrl/__init__.py",
        '_ROOMS = ("core", "ghost", "losses", "ops", "rl_trainer")',
        "tfrl/ghost: does not exist but is in _ROOMS",
    ),
    "unlisted_room": (
        "rooms_are_registered",
        "tfrl/stats/a.py",
        "",
        "is not in _ROOMS",
    ),
    "unsorted_rooms": (
        "rooms_are_registered",
        "tfrl/__init__.py",
        '_ROOMS = ("ops", "core", "losses", "rl_trainer")',
        "not sorted",
    ),
    "floorless": ("rooms_are_registered", "tfrl/attic/a.py", "", "attic: no floor"),
    "undone": (
        "tree_speaks_of_tfrl_alone",
        "README.md",
        "tfrl\nTO" + "DO: write",
        "README.md:2",
    ),
    "folder": (
        "tree_speaks_of_tfrl_alone",
        "configs/a.gin",
        "path = '/ho" + "me/me/data'",
        "a.gin:1",
    ),
}


def plant(root: Path, tree: dict[str, str]) -> Path:
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def named(rule):
    return rule.__name__


@pytest.mark.parametrize("rule", architecture.RULES, ids=named)
def test_rule_holds(rule):
    violations = list(rule(ROOT))
    if violations:
        pytest.fail("\n".join([rule.__doc__, *violations]), pytrace=False)


@pytest.mark.parametrize("rule", architecture.RULES, ids=named)
def test_rule_accepts_a_good_tree(rule, tmp_path):
    assert list(rule(plant(tmp_path, GOOD_TREE))) == []


@pytest.mark.parametrize("case", PLANTED)
def test_rule_finds_what_is_planted(case, tmp_path):
    rule, file, text, message = PLANTED[case]
    root = plant(tmp_path, {**GOOD_TREE, file: text})
    violations = list(getattr(architecture, rule)(root))
    assert any(message in violation for violation in violations), violations


def test_every_rule_has_been_seen_failing():
    seen = {rule for rule, *_ in PLANTED.values()}
    assert seen == {rule.__name__ for rule in architecture.RULES}


def test_a_door_may_be_lazy(tmp_path):
    lazy = {
        "tfrl/ops/__init__.py": LAZY_DOOR,
        "tfrl/ops/eager.py": FUNCTION.replace("twice", "now"),
        "tests/ops/test_eager.py": TESTS,
    }
    root = plant(tmp_path, {**GOOD_TREE, **lazy})
    assert [fault for rule in architecture.RULES for fault in rule(root)] == []


def test_overriding_methods_may_stay_silent(tmp_path):
    text = f'"""File."""\n\n{METHODS.format(base="(keras.layers.Layer)")}'
    root = plant(tmp_path, {**GOOD_TREE, IN_OPS: text})
    assert list(architecture.public_names_are_documented(root)) == []


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_import_of_the_package_loads_nothing_heavy_until_a_room_is_touched():
    code = (
        "import gc, sys, tfrl\n"
        "heavy = 'gin', 'gymnasium', 'keras', 'tensorflow', 'tensorflow_probability'\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "before = gc.get_stats()[2]['collections']\n"
        "tfrl.ops\n"
        "print('tensorflow' in sys.modules)\n"
        "print(gc.get_stats()[2]['collections'] - before, gc.isenabled())\n"
    )
    result = run_python(code)
    # Nor does Python look through TensorFlow's modules for garbage meanwhile.
    assert result.stdout == "[]\nTrue\n0 True\n", result.stderr


def test_unknown_room_is_an_attribute_error():
    result = run_python("import tfrl; tfrl.attic")
    assert "AttributeError: module 'tfrl' has no attribute 'attic'" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensorflow", "tf_keras"])
def test_missing_tensorflow_is_explained(name):
    code = (
        "from importlib import util\n"
        "find = util.find_spec\n"
        f"util.find_spec = lambda n, *a: None if n == {name!r} else find(n, *a)\n"
        "import tfrl\n"
    )
    result = run_python(code)
    message = result.stderr.splitlines()[-1]
    assert result.returncode == 1
    assert message.startswith("ImportError: tfrl: ")
    minor = ".".join(metadata.version("tf-keras").split(".")[:2])
    extras = ("tfrl[cpu]", "tfrl[gpu]", "tfrl[tpu]")
    words = extras if name == "tensorflow" else [f"--no-deps 'tf-keras=={minor}.*'"]
    assert all(word in message for word in words)


def test_other_keras_backend_is_refused_in_one_sentence():
    result = run_python("import tfrl", KERAS_BACKEND="jax")
    message = result.stderr.splitlines()[-1]
    assert result.returncode == 1
    assert message.startswith("ImportError: tfrl: ")
    assert "KERAS_BACKEND='jax'" in message
