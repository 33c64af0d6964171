"""The site of documentation: programs of its pages run, and its links lead somewhere.

Every page has a test: its blocks of Python run in order, in one namespace and an empty
folder. A page whose front matter says `slow_test: true` is tested with the slow ones. A
block marked "python needs=LIBRARY" is a program of its own, which runs where
that library is. Blocks of bash are not run: their commands and flags are looked up.
"""

import ast
import importlib
import importlib.util
import io
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import gymnasium as gym
import numpy as np
import plain_graphs
import pytest
import source_tree

import tfrl.rl_trainer  # registers train_rl
from tfrl import command
from tfrl.configuring import configs
from tfrl.training import configurables

ROOT = pathlib.Path(__file__).parents[2]
SITE = ROOT / "tools" / "site"
PAGES = sorted(
    path
    for path in SITE.rglob("*.md")
    if "reference" not in path.relative_to(SITE).parts
)
NAMES = [path.relative_to(SITE).with_suffix("").as_posix() for path in PAGES]
FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2$", re.DOTALL | re.MULTILINE)
# What a block may be in. Python is run, shell is parsed, the others are shown.
SHOWN = {"", "text", "gin", "json", "csv", "console"}


@pytest.fixture(scope="module")
def doors():
    sys.path.insert(0, str(SITE / "extensions"))
    try:
        yield importlib.import_module("doors")
    finally:
        sys.path.remove(str(SITE / "extensions"))


def blocks(path):
    """The fenced blocks of a page: kind, line of the first line, text."""
    yield from blocks_of(path.read_text(encoding="utf-8"))


def blocks_of(text):
    for fence in FENCE.finditer(text):
        yield fence[3].strip(), text.count("\n", 0, fence.start(4)) + 1, fence[4]


def is_slow(path):
    front = re.match(r"---\n(.*?)\n---\n", path.read_text(encoding="utf-8"), re.DOTALL)
    return bool(front and re.search(r"^slow_test: true$", front[1], re.MULTILINE))


def with_programs():
    for path, name in zip(PAGES, NAMES, strict=True):
        if any(kind == "python" for kind, _, _ in blocks(path)):
            marks = [pytest.mark.slow] if is_slow(path) else []
            yield pytest.param(path, id=name, marks=marks)


# Keras, as it saves files, converts variables in a way that NumPy 2 warns of.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("path", list(with_programs()))
def test_programs_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    names = {"__name__": "__main__"}
    with plain_graphs.plain_graphs(), redirect_stdout(io.StringIO()):
        for kind, line, text in blocks(path):
            if kind == "python":
                # So that a traceback names the line of the page.
                exec(compile("\n" * (line - 1) + text, str(path), "exec"), names)


WITH_EXTRAS = [
    pytest.param(kind.split("needs=")[1], text, id=f"{name}:{line}")
    for path, name in zip(PAGES, NAMES, strict=True)
    for kind, line, text in blocks(path)
    if "needs=" in kind
]


@pytest.mark.slow
@pytest.mark.parametrize(("library", "text"), WITH_EXTRAS)
def test_programs_with_other_libraries_run(library, text, tmp_path):
    """In processes of their own: some libraries end badly beside TensorFlow."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}")
    told = subprocess.run(
        [sys.executable, "-c", f"{text}\nprint('done')"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert told.stdout.endswith("done\n"), told.stderr


PLAYED_IN_NODE = """
const read = name => JSON.parse(require("fs").readFileSync(name));
const policy = read("policy.json");
console.log(JSON.stringify(read("rows.json").map(row => act(policy, row))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the program")
@pytest.mark.parametrize("normalize", [False, True])
def test_the_program_for_web_pages_acts_as_the_policy(normalize, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = 30.0 * np.random.default_rng(0).standard_normal((200, 4), np.float32)
    settings = tfrl.agents.PPO(hidden_units=(8,), normalize_observations=normalize)
    spaces = gym.spaces.Box(-np.inf, np.inf, (4,)), gym.spaces.Discrete(5, start=-2)
    agent = settings.create(*spaces, seed=1)
    if normalize:
        seen = 5.0 + 7.0 * rows[None], np.ones((1, len(rows)), bool)
        agent = agent.replace(policy=agent.policy.update_moments(*seen))
    page = (SITE / "guide" / "exporting.md").read_text(encoding="utf-8")
    (writes,) = (x for kind, _, x in blocks_of(page) if "numpy_copy" in x)
    (program,) = (x for kind, _, x in blocks_of(page) if kind.endswith("javascript"))
    exec(writes, {"agent": agent, "spaces": spaces, "json": json, "tfrl": tfrl})
    pathlib.Path("rows.json").write_text(json.dumps(rows.tolist()))
    node = ["node", "-e", program + PLAYED_IN_NODE]
    done = subprocess.run(node, capture_output=True, text=True, check=True)
    actions = agent.policy.act(rows, temperature=0.0).actions
    assert json.loads(done.stdout) == actions.tolist()
    assert len(set(actions.tolist())) > 2


def test_web_pages_are_for_stacks_of_dense_layers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (SITE / "guide" / "exporting.md").read_text(encoding="utf-8")
    (writes,) = (x for kind, _, x in blocks_of(page) if "numpy_copy" in x)
    spaces = gym.spaces.Box(-1.0, 1.0, (4,)), gym.spaces.Discrete(2)
    agent = tfrl.agents.DQN(hidden_units=(4,), dueling=True).create(*spaces, seed=0)
    with pytest.raises(ValueError, match="use LiteRT"):
        exec(writes, {"agent": agent, "spaces": spaces, "json": json, "tfrl": tfrl})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_programs_import_what_configurations_name(path):
    for kind, line, text in blocks(path):
        if kind == "python" and "configuring.parse" in text:
            assert "import tfrl.rl_trainer" in text, f"line {line}"


WITH_CONFIGURATIONS = [
    pytest.param(text, id=f"{name}:{line}")
    for path, name in zip(PAGES, NAMES, strict=True)
    for kind, line, text in blocks(path)
    if kind == "gin"
]


@pytest.mark.parametrize("text", WITH_CONFIGURATIONS)
def test_configurations_are_such(text, tmp_path):
    """They name what there is, and make trainers."""
    known = configurables.CONFIGURABLES
    names = {name: known[name] for name in ("make_vec", "Trainer")}
    made = configs.register(names)
    (tmp_path / "whole.gin").write_text(text)
    try:
        configs.parse([tmp_path / "whole.gin"])
        made["Trainer"](tmp_path / "run").eval_envs.close()
    finally:
        configs.clear()


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_blocks_are_of_known_kinds(path):
    for kind, line, _ in blocks(path):
        known = {"python", "bash", *SHOWN}
        bare = re.sub(r"^python needs=\w+$", "python", kind)
        assert bare in known or kind.startswith("{"), f"line {line}: {kind!r}"


def shell_commands(path):
    """Commands of ours in the blocks of bash of a page, as words."""
    for kind, line, text in blocks(path):
        if kind == "bash":
            for row in text.replace("\\\n", " ").splitlines():
                words = shlex.split(row, comments=True)
                if words and (words[0] == "tfrl" or words[0].startswith("tools/")):
                    yield line, words


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_commands_are_such(path):
    for line, (program, *arguments) in shell_commands(path):
        place = f"{path}, block at line {line}: {program} {arguments}"
        if program != "tfrl":
            assert (ROOT / program).is_file(), place
            continue
        told = io.StringIO()
        with redirect_stdout(told), redirect_stderr(told), pytest.raises(SystemExit):
            # Stops at the help, or at the first wrong flag before it.
            assert command.main([*arguments, "--help"]) is None, place
        assert "usage: tfrl" in told.getvalue(), place
        assert "error:" not in told.getvalue(), f"{place}\n{told.getvalue()}"
        for flag in (word.split("=")[0] for word in arguments):
            known = re.escape(flag) + r"(?![\w-])"
            assert flag[:2] != "--" or re.search(known, told.getvalue()), place
        for config in arguments:
            if re.fullmatch(r"configs/\w+\.gin", config):
                assert (ROOT / config).is_file(), place


def test_every_public_name_has_a_task(doors):
    """And what the reference says is public is what the doors show."""
    reference_pages = importlib.import_module("reference_pages")
    public = set(doors.public_names())
    named = reference_pages.blocks_of_names((SITE / "tasks.md").read_text("utf-8"))
    assert sorted(public - set(named)) == []
    rooms = {room.name for room in doors.rooms()}
    assert rooms == {"environments.compiled", *tfrl._ROOMS} - {"entry"}
    for room in rooms - set(doors.FRONT_DOORS):
        shown = source_tree.assigned_value(doors.path_of(f"tfrl.{room}"), "__all__")
        for name in ast.literal_eval(shown):
            assert f"tfrl.{room}.{name}" in public or f"{room}.{name}" in rooms


@pytest.mark.parametrize("wrong", ["ops.no_file", "tfrl.ops.no_name"])
def test_blocks_of_names_refuse_what_is_no_name(doors, wrong):
    reference_pages = importlib.import_module("reference_pages")
    with pytest.raises(ValueError, match=wrong):
        reference_pages.expand(wrong)


def test_links_to_nowhere_are_found(tmp_path):
    """And what pages and styles load from elsewhere."""
    (tmp_path / "other.html").write_text('<h1 id="here">x</h1>')
    (tmp_path / "style.css").write_text("@import url(//far.example/a.css);")
    (tmp_path / "page.html").write_text(
        '<a href="other.html#here">1</a><a href="other.html#there">2</a>'
        '<a href="none.html">3</a><a href="https://far.example/">4</a>'
        '<script src="https://far.example/x.js"></script>'
        '<link rel="canonical" href="https://far.example/">'
    )
    done = subprocess.run(
        [sys.executable, SITE / "check_links.py", tmp_path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    wrong = ["other.html#there", "none.html", "x.js", "a.css"]
    assert len(done.stderr.splitlines()) == len(wrong)
    assert all(any(part in x for x in done.stderr.splitlines()) for part in wrong)


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    """Warnings are errors; nothing is loaded from elsewhere; links lead somewhere."""
    site = tmp_path / "site"
    done = subprocess.run(
        [ROOT / "tools" / "docs", "--output", site], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index", "tasks", "changelog", "reference/ops/value", "search"):
        assert (site / f"{page}.html").stat().st_size > 1_000
    text = (site / "reference" / "ops" / "value.html").read_text(encoding="utf-8")
    assert 'id="tfrl.ops.vtrace"' in text
    assert (site / "searchindex.js").read_text(encoding="utf-8").count("vtrace")
