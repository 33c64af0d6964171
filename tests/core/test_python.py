"""Tests of tfrl.core.python."""

import importlib
import sys
import types

import pytest

from tfrl.core import python


def test_as_list_returns_the_same_list():
    items = [1]
    assert python.as_list(items) is items


def test_tuplify2d():
    pair = (1, 2)
    assert python.tuplify2d(pair) is pair
    for wrong in ((), (1,), (1, 2, 3)):
        with pytest.raises(ValueError, match="`x` expected a tuple of length 2"):
            python.tuplify2d(wrong)


def test_add_method():
    class Robot:
        def __init__(self):
            self.name = "R2"

    robot = Robot()

    @python.add_method(Robot)
    def greet(self, word):
        return f"{word} {self.name}"

    assert robot.greet("hi") == "hi R2"
    assert Robot.greet is greet and isinstance(greet, types.FunctionType)


def test_call_stack_ends_with_the_caller():
    def caller():
        return python.call_stack()

    stack = caller()
    assert "in caller" in stack[-1]
    assert "in test_call_stack_ends_with_the_caller" in stack[-2]
    assert all(entry == entry.strip() for entry in stack)


def test_docstring():
    def documented():
        """Some docstring"""

    @python.docstring(documented)
    def other():
        """Another"""
        return 13

    assert other.__doc__ == "Some docstring" and other() == 13

    @python.docstring(documented)
    class Other:
        pass

    assert Other.__doc__ == "Some docstring"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package: `top` uses `top.middle`, that uses `top.deep.base` and an outsider."""
    files = {
        "outsider.py": "import counting\ncounting.log.append(__name__)\nVALUE = 1\n",
        "counting.py": "log = []\n",
        "top/__init__.py": "import counting\nfrom top.middle import double\n"
        "counting.log.append(__name__)\n",
        "top/middle.py": "import counting, outsider\nfrom top.deep import base\n"
        "counting.log.append(__name__)\ndef double():\n    return 2 * base.VALUE\n",
        "top/deep/__init__.py": "import counting\ncounting.log.append(__name__)\n",
        "top/deep/base.py": "import counting\ncounting.log.append(__name__)\n"
        "VALUE = 1\n",
        "topping.py": "import counting\ncounting.log.append(__name__)\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("by_name", [True, False])
def test_reload_recursive_reloads_what_is_beneath(package, by_name):
    top = importlib.import_module("top")
    importlib.import_module("topping")
    counting = sys.modules["counting"]
    assert top.double() == 2
    base = package / "top" / "deep" / "base.py"
    base.write_text(base.read_text().replace("VALUE = 1", "VALUE = 21"))
    counting.log.clear()
    python.reload_recursive("top" if by_name else top)
    assert top.double() == 42
    assert sorted(counting.log) == ["top", "top.deep", "top.deep.base", "top.middle"]
    assert counting.log.index("top.deep.base") < counting.log.index("top.middle")
    assert counting.log[-1] == "top"


def test_reload_recursive_of_external_modules(package):
    importlib.import_module("top")
    outsider = sys.modules["outsider"]
    outsider.VALUE = 5
    python.reload_recursive("top.middle", reload_external_modules=True)
    assert outsider.VALUE == 1


class Unbound:
    """Stands for what does not exist yet, and says nothing until it does."""

    @property
    def __class__(self):
        raise RuntimeError("nothing bound")

    def __getattr__(self, name):
        raise RuntimeError("nothing bound")


def test_reload_recursive_passes_over_odd_things(package, monkeypatch):
    top = importlib.import_module("top")
    # None blocks an import; others put objects of their own there.
    monkeypatch.setitem(sys.modules, "top.blocked", None)
    monkeypatch.setitem(sys.modules, "top.odd", object())
    sys.modules["top.middle"].proxy = Unbound()
    counting = sys.modules["counting"]
    counting.log.clear()
    python.reload_recursive(top)
    assert "top.middle" in counting.log


def test_reload_recursive_takes_what_was_imported():
    for module in (types.ModuleType("made_by_hand"), types.ModuleType("json")):
        with pytest.raises(ValueError, match="`module` expected to be imported; got"):
            python.reload_recursive(module)


def test_reload_recursive_rejects():
    with pytest.raises(TypeError, match="`module` expected a module or its name"):
        python.reload_recursive(3)
