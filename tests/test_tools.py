"""What `tools/test` and `.ci/run` count on: options of pytest that are our own."""

import argparse
import ast
import importlib
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import slow_shares

TESTS = Path(__file__).parent
NUMBERS = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_slow(number):
    pass

def test_quick():
    pass
"""


def run_share(folder, share, *options):
    """Runs tests with `--share`; returns the numbers of those that ran."""
    (folder / "test_numbers.py").write_text(NUMBERS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes long\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "slow_shares"]
    done = subprocess.run(
        [*command, f"--share={share}", *options],
        cwd=folder,
        # Without the plugins of other packages it starts sooner.
        env={
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("test_quick.*PASSED|PASSED.*test_quick", done.stdout)
    return {int(number) for number in re.findall(r"test_slow\[(\d+)\]", done.stdout)}


@pytest.mark.slow
def test_shares_part_the_slow_tests_and_keep_the_others(tmp_path):
    shares = [run_share(tmp_path, f"{index}/3") for index in range(3)]
    assert sorted(sum(map(list, shares), [])) == list(range(40))
    assert min(map(len, shares)) >= 5
    together = run_share(tmp_path, "1/3", "-p", "xdist.plugin", "-n", "2")
    assert together == shares[1]


@pytest.mark.parametrize("wrong", ["3/3", "-1/3", "1", "a/b", "0/0", "1/"])
def test_what_is_no_share_is_refused(wrong):
    with pytest.raises(argparse.ArgumentTypeError, match=f"got '{wrong}'"):
        slow_shares.share(wrong)


def test_a_benchmark_alone_takes_its_place_in_the_page(monkeypatch):
    monkeypatch.syspath_prepend(TESTS.parent / "tools" / "benchmarks")
    table, records = map(importlib.import_module, ("all", "harness.records"))
    before = table.sections(table.PAGE.read_text(encoding="utf-8"))
    assert [*before] == [x for x in table.COMMANDS if x in before]
    row = records.Row("advantages, 512x1024", "us", 1.0, "rlax in XLA", 2.0, 2.0, 1, 3)
    after = before | {"value_ops": table.section([row])}
    text = "\n".join(table.page(after))
    assert table.sections(text) == after
    told = "| advantages, 512x1024 | 1.0 us | rlax in XLA | 2.0 | **2.00** (1.00 to"
    lines = [x for x in table.head(after) if x.startswith(told)]
    assert len(lines) == 1 and text.count(lines[0]) == 2
    assert len(table.head(before)) == len(table.head(after)) == 2 + len(table.HEAD)


def named_of_tfrl(path):
    """Yields what a file names of tfrl: (line, the names one after the other)."""
    tree, known = ast.parse(path.read_text(encoding="utf-8")), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            own = [x for x in node.names if x.name.split(".")[0] == "tfrl"]
            known |= {x.asname or "tfrl": x.name if x.asname else "tfrl" for x in own}
        is_from = isinstance(node, ast.ImportFrom) and node.module is not None
        if is_from and node.module.split(".")[0] == "tfrl":
            for name in node.names:
                known[name.asname or name.name] = f"{node.module}.{name.name}"
                yield node.lineno, [*node.module.split("."), name.name]
    for node in ast.walk(tree):
        names, inner = [], node
        while isinstance(inner, ast.Attribute):
            names.insert(0, inner.attr)
            inner = inner.value
        if names and isinstance(inner, ast.Name) and inner.id in known:
            yield node.lineno, [*known[inner.id].split("."), *names]


def is_there(names):
    found = importlib.import_module(names[0])
    for depth, name in enumerate(names[1:], 2):
        if not isinstance(found, types.ModuleType):
            return True  # what objects have is another question
        if not hasattr(found, name):
            try:
                importlib.import_module(".".join(names[:depth]))
            except ModuleNotFoundError:
                return False
        found = getattr(found, name)
    return True


def test_what_tools_name_of_tfrl_is_there(tmp_path):
    # Benchmarks run by hand, where their peers are installed.
    count, lost = 0, []
    for path in sorted((TESTS.parent / "tools").rglob("*.py")):
        for line, names in named_of_tfrl(path):
            count += 1
            if not is_there(names):
                lost.append(f"{path.name}:{line}: {'.'.join(names)}")
    assert not lost and count > 200
    (tmp_path / "old.py").write_text(
        "import tfrl\nfrom tfrl.training import experience as e, gone\n"
        "e.add_all(1)\ntfrl.agents.PPO().no\ntfrl.agents.QPO\n"
    )
    found = [".".join(x) for _, x in named_of_tfrl(tmp_path / "old.py")]
    gone = {x for x in found if not is_there(x.split("."))}
    names = ("training.gone", "training.experience.add_all", "agents.QPO")
    assert gone == {f"tfrl.{x}" for x in names}


def pins(name):
    """Versions by package of one of the lists that `tools/setup` installs."""
    text = (TESTS.parent / "tools" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, flags=re.MULTILINE))


def test_peers_pin_nothing_that_is_pinned_already():
    ours, peers = pins("constraints.txt"), pins("constraints-bench.txt")
    assert len(ours) > 50 and len(peers) > 20
    assert not ours.keys() & peers.keys()  # both are installed into one environment
