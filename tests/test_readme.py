"""The README's examples run, and what it says of the package is so."""

import ast
import configparser
import importlib.machinery
import importlib.util
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import plain_graphs
import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / "README.md"


def check_install():
    """The program `tools/check-install` as a module."""
    path = str(ROOT / "tools" / "check-install")
    loader = importlib.machinery.SourceFileLoader("check_install", path)
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader)
    )
    loader.exec_module(module)
    return module


def requirements():
    """What setup.cfg requires and what each of its extras does."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = config["options.extras_require"].items()
    required = config["options"]["install_requires"]
    return required.strip().splitlines(), {
        name: text.strip().splitlines() for name, text in extras
    }


def run(code):
    with plain_graphs.plain_graphs():
        exec(compile(code, "README.md", "exec"), {})


@pytest.mark.slow
def test_the_examples_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert 15 <= len(first.splitlines()) <= 30
    run(first)
    steps, reached = re.search(
        r"(\d+) steps, return ([\d.]+)", capsys.readouterr().out
    ).groups()
    assert int(steps) > 4_500
    # An untrained policy reaches about 22.
    assert float(reached) > 40.0

    assert len(second.splitlines()) <= 22
    run(second)
    assert float(re.search(r"return ([\d.]+)", capsys.readouterr().out)[1]) > 8.0
    assert (tmp_path / "runs/dqn/replay").is_dir()


@pytest.mark.slow
def test_the_run_with_a_setting_goes_on_by_the_line_below(tmp_path):
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)
    (block,) = [text for text in blocks if "--output_dir" in text]
    trained, resumed = map(shlex.split, block.splitlines())
    assert trained[0] == "tools/train" and resumed[0] == ".venv/bin/tfrl"
    trained[:2] = ["tfrl.rl_trainer", f"--config_file={ROOT / trained[1]}"]
    trained.append("--config=Trainer.total_env_steps = 2_000")
    for arguments in (trained, ["tfrl", *resumed[1:]]):
        told = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert told.returncode == 0, told.stderr
        assert "final evaluation" in told.stdout


def test_links_work_where_an_index_shows_the_page():
    """They are absolute; those into this repository lead to files and headings."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    home = config["metadata"]["url"]
    raw = home.replace("github.com", "raw.githubusercontent.com")
    text = re.sub(r"```.*?```|`[^`]*`", "", README.read_text(), flags=re.DOTALL)
    links = re.findall(
        r"\]\(([^)\s]+)|^\[[^\]]+\]: (\S+)|(?:src|href)=.([^\"']+)", text, re.M
    )
    links = ["".join(each) for each in links]
    assert len(links) >= 15
    assert [link for link in links if not link.startswith("https://")] == []
    for link in links:
        place = re.fullmatch(
            rf"(?:{home}/(?:blob|tree)|{raw})/main/([^#]*)#?(.*)", link
        )
        if place is None:
            assert not link.startswith((home, raw)), link
            continue
        assert (ROOT / place[1]).exists(), link
        if place[2]:
            lines = (ROOT / place[1]).read_text().splitlines()
            heads = [
                x.lstrip("# ").lower().replace(" ", "-") for x in lines if x[:1] == "#"
            ]
            assert place[2] in heads, link
    names = set(re.findall(r"\]\[([^\]]+)\]", text))
    assert names == set(re.findall(r"^\[([^\]]+)\]: ", text, re.M))


def test_install_lines_name_what_there_is():
    """And bring one TensorFlow: tf-keras alone beside wheels of other names."""
    tool = check_install()
    page = tool.PAGE.read_text(encoding="utf-8")
    lines = tool.lines_of(page)
    _, extras = requirements()
    assert len(lines) >= 4
    for line in lines:
        for names in re.findall(r"(?:\.|tfrl)\[(.*?)\]", line):
            assert set(names.split(",")) <= set(extras), line
        other = re.search(r"'tensorflow-\w+==(\S+)'", line)
        alone = re.search(r"&& pip install --no-deps 'tf-keras==(\S+)'$", line)
        assert (other and other[1]) == (alone and alone[1]), line
    missing = [extra for extra in extras if f"[{extra}]" not in page]
    assert not missing


def test_the_install_table_is_of_these_lines():
    tool = check_install()
    text = tool.PAGE.read_text(encoding="utf-8")
    header = tool.table([], {}).splitlines()[0]
    rows = text.split(header)[1].split("\n\n")[0].strip().splitlines()[1:]
    rows = [row.strip("| ").split(" | ") for row in rows]
    assert [row[0].strip("`") for row in rows] == tool.lines_of(text)
    for _, *cells in rows:
        assert len(cells) == len(tool.PYTHONS)
        outcomes = {part for cell in cells for part in cell.split(", ")}
        known = {*tool.VERSIONS, "no wheel", "not run"}
        assert outcomes <= known | {f"{version} not run" for version in tool.VERSIONS}


def test_the_install_table_says_what_failed():
    tool = check_install()
    pinned, plain = (
        "pip install 'a==2.20.*' && pip install 'b==2.20.*'",
        "pip install a",
    )
    results = {(plain, "3.11"): "2.21", (plain, "3.12"): "smoke fails"}
    for version, variant in tool.variants(pinned).items():
        assert variant.count(f"=={version}.*") == 2
        results[variant, "3.12"] = "no wheel"
        results[variant, "3.13"] = "no wheel" if version == "2.18" else version
    del results[variant, "3.13"]
    rows = tool.table([pinned, plain], results).splitlines()[2:]
    assert rows == [
        f"| `{pinned}` | not run | no wheel | 2.19, 2.20, 2.21 not run |",
        f"| `{plain}` | 2.21 | smoke fails | not run |",
    ]


def test_lines_in_messages_name_what_setup_requires():
    """tfrl is on no index: messages name what its extras bring."""
    required, extras = requirements()
    known = {*required, *(name for names in extras.values() for name in names)}
    known = {re.match(r"[\w.-]+(\[[\w-]+\])?", name)[0] for name in known}
    lines = []
    for path in sorted(ROOT.glob("tfrl/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = getattr(node, "value", None)
            if isinstance(node, ast.Constant) and isinstance(text, str):
                lines += re.findall(r"pip install ([^(),;`\n]+)", text)
                assert set(re.findall(r"tfrl\[([\w]+)", text)) <= set(extras), path
    assert len(lines) >= 4
    for line in lines:
        for word in shlex.split(re.sub(r" '[^']*$", "", line)):
            name = re.match(r"[\w.-]+(\[[\w-]+\])?", word)[0]
            assert name.startswith("--") or name in known, line


def test_type_checkers_find_an_editable_install(tmp_path):
    """They read the folder that it names, and run no finder."""
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("__init__.py", "py.typed", "core/__init__.py"):
        (tmp_path / "tfrl" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tfrl" / name, tmp_path / "tfrl" / name)
    code = "from setuptools import build_meta; build_meta.build_editable('wheel')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    (wheel,) = tmp_path.glob("wheel/*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.endswith(".pth")]
    assert not [name for name in names if name.endswith(".py")]
