"""Notebooks are shipped clean, and run from top to bottom and back again."""

import importlib.util
import json
import linecache
import re

import nbformat
import pytest
import tensorflow as tf
from IPython.core.inputtransformer2 import TransformerManager
from notebook_files import (
    COLABS,
    NOTEBOOKS,
    pictures,
    printed,
    texts,
    with_parameters,
)

COLAB = "https://colab.research.google.com"
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s"'`(=])(?:~?/[A-Za-z._]|[A-Za-z]:[\\/])""", re.M)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


class Shell:
    """Stands for IPython in this process: prints what magic commands are asked for."""

    def __init__(self):
        self.names = {"get_ipython": lambda: self}

    def run_line_magic(self, name, line):
        print(name, line.format_map(self.names))

    def run(self, *sources):
        for number, source in enumerate(sources):
            file = f"<cell {number} of {id(self)}>"
            lines = TransformerManager().transform_cell(source).splitlines(True)
            linecache.cache[file] = (len(lines), None, lines, file)  # for autograph
            exec(compile("".join(lines), file, "exec"), self.names)


def test_a_page_lists_them_by_their_titles():
    page = (COLABS.parent / "tools" / "site" / "notebooks.md").read_text()
    for path in NOTEBOOKS:
        title = json.loads(path.read_text())["cells"][0]["source"][0].strip("# \n")
        assert f"| [{title}]({COLAB}/" in page and f"/{path.name})" in page
    assert page.count(".ipynb)") == len(NOTEBOOKS)


def test_there_are_notebooks():
    assert COLABS / "quickstart.ipynb" in NOTEBOOKS


@each_notebook
def test_the_format_is_valid_and_nothing_ran(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        assert cell.source.strip(), cell.id
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None, cell.id


@each_notebook
def test_every_line_is_a_line_of_its_own(path):
    for cell in json.loads(path.read_text())["cells"]:
        *lines, last = cell["source"]
        assert all(line.endswith("\n") for line in lines), cell["id"]
        assert not last.endswith("\n"), cell["id"]
        assert all("\n" not in line.removesuffix("\n") for line in lines), cell["id"]
        assert all(line.rstrip("\n") == line.rstrip() for line in lines), cell["id"]


@each_notebook
def test_it_opens_with_a_title_and_a_badge(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    badge = re.findall(r"\[!\[[^]]+\]\((\S+)\)\]\((\S+)\)", first.source)
    page = f"{COLAB}/github/tfrl/tfrl/blob/main/colabs/{path.name}"
    assert badge == [(f"{COLAB}/assets/colab-badge.svg", page)]


@each_notebook
def test_it_installs_once_and_only_what_is_missing(path):
    codes = texts(nbformat.read(path, as_version=4), "code")
    installs = [
        code for code in codes if re.search(r"\b(pip|apt|apt-get|conda)\b", code)
    ]
    assert installs == codes[:1]
    lines = re.findall(r"^( *)%pip install -q ", installs[0], re.M)
    assert lines and all(len(line) >= 4 for line in lines)
    assert 'if importlib.util.find_spec("tfrl") is None:\n' in installs[0]


@each_notebook
def test_it_names_no_absolute_path(path):
    for cell in nbformat.read(path, as_version=4).cells:
        assert not ABSOLUTE_PATH.findall(cell.source), cell.id


def test_absolute_paths_are_found():
    for text in ('open("/tmp/x")', "cd ~/runs", "/content/drive", 'p = "C:\\x"'):
        assert ABSOLUTE_PATH.search(text), text
    for text in ("[x](https://a.b/c)", "configs/ppo.gin", "a / b", 'f / "b"'):
        assert not ABSOLUTE_PATH.search(text), text


def test_what_is_missing_is_installed(monkeypatch, capsys):
    monkeypatch.delenv("COLAB_TPU_1VM", raising=False)
    found = []
    for present, tpu in (
        *[([], ""), (["tensorflow"], ""), (["tensorflow", "tfrl"], "local")],
        *[(["tensorflow"], "local"), ([], "local")],
    ):
        monkeypatch.setenv("TPU_NAME", tpu)
        with monkeypatch.context() as patch:
            known = dict.fromkeys(present, True)
            patch.setattr(importlib.util, "find_spec", known.get)
            for name in ("quickstart", "tpu"):
                notebook = nbformat.read(COLABS / f"{name}.ipynb", as_version=4)
                Shell().run(texts(notebook, "code")[0])
        found += capsys.readouterr().out.splitlines()
    *lines, on_tpu, tf_keras = found
    assert lines == [
        f'pip install -q "{requirement} @ git+https://github.com/tfrl/tfrl"'
        for requirement in (
            *("tfrl[cpu,plots]", "tfrl[cpu]"),
            *("tfrl[plots]", "tfrl"),
            *("tfrl[plots]", "tfrl"),
            "tfrl[cpu,plots]",
        )
    ]
    address = "tfrl[tpu] @ git+https://github.com/tfrl/tfrl"
    assert on_tpu == f'pip install -q "{address}" "tensorflow-tpu==2.20.*"'
    assert tf_keras == 'pip install -q --no-deps "tf-keras==2.20.*"'


@pytest.mark.slow
def test_quickstart_runs_forwards_and_backwards(execute, tmp_path):
    runs = tmp_path / "runs"
    notebook = with_parameters(
        nbformat.read(COLABS / "quickstart.ipynb", as_version=4),
        env_steps=2_048,
        output_folder=str(runs),
    )
    forwards = [cell for cell in notebook.cells if cell.cell_type == "code"]
    backwards = [nbformat.v4.new_code_cell(cell.source) for cell in forwards[::-1]]
    notebook.cells += backwards
    execute(notebook)
    for cells in (forwards, backwards):
        text = printed(cells)
        slope, offset = re.findall(r"y = (\S+) x (\S+)$", text, re.M)[0]
        assert abs(float(slope) - 3.0) < 0.01 and abs(float(offset) + 1.0) < 0.01
        assert "[2.24 1.6  1.  ]" in text
        (episode_return,) = re.findall(r"return of one episode: (\d+) of 500", text)
        assert 8 <= int(episode_return) <= 500
        (picture,) = pictures(cells)
        assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
    assert len(list(runs.glob("*/ppo-cartpole/metrics.csv"))) == 2


@pytest.mark.slow
def test_compiled_runs_forwards_and_backwards(execute):
    notebook = with_parameters(
        nbformat.read(COLABS / "compiled.ipynb", as_version=4),
        env_steps=2_048,
        n_seeds=2,
        population_steps=512,
        breakout_steps=16_384,
    )
    forwards = [cell for cell in notebook.cells if cell.cell_type == "code"]
    backwards = [nbformat.v4.new_code_cell(cell.source) for cell in forwards[::-1]]
    notebook.cells += backwards
    execute(notebook)
    has_gymnax = importlib.util.find_spec("gymnax") is not None
    for cells in (forwards, backwards):
        text = printed(cells)
        (mean,) = re.findall(r"CartPole-v1: greedy episodes return ([\d.]+)", text)
        assert 8 <= float(mean) <= 500
        assert "6 agents in" in text and "learning rate 0.01: return" in text
        assert ("left out: gymnax is missing" in text) != has_gymnax
        drawn = pictures(cells)
        assert len(drawn) == 2 + has_gymnax
        assert all(len(each) > 10_000 for each in drawn)


def check_tpu(text, updates):
    assert "500 of 500" in text or updates < 100
    accuracies = re.findall(r"accuracy ([\d.]+)", text)
    assert len(accuracies) == 3 and float(accuracies[-1]) > 0.75
    assert "first and last copy differ by 0.0e+00" in text
    assert re.search(r"the clone's first episode: \d+ of 500", text)


def check_rehearsal(text):
    assert "2 replicas of MirroredStrategy" in text
    check_tpu(text, updates=60)
    (difference,) = re.findall(r"one device differ by (\S+)", text)
    assert float(difference) < 1e-5


SMALL = {"rehearsed_replicas": 2, "expert_steps": 512, "updates": 60, "batch_size": 64}


@pytest.mark.slow
def test_tpu_rehearses_in_this_process(monkeypatch, capsys, caplog):
    for name in ("TPU_ACCELERATOR_TYPE", "TPU_NAME", "COLAB_TPU_1VM", "COLAB_TPU_ADDR"):
        monkeypatch.delenv(name, raising=False)
    notebook = nbformat.read(COLABS / "tpu.ipynb", as_version=4)
    level = tf.get_logger().level
    try:
        Shell().run(*texts(with_parameters(notebook, **SMALL), "code"))
    finally:
        tf.get_logger().setLevel(level)
    assert "strategy 'rehearsal', 2 replicas: asked for" in caplog.text
    check_rehearsal(capsys.readouterr().out)


@pytest.mark.slow
def test_tpu_rehearses_forwards_and_backwards(execute):
    notebook = nbformat.read(COLABS / "tpu.ipynb", as_version=4)
    forwards = with_parameters(notebook, **SMALL).cells
    forwards = [cell for cell in forwards if cell.cell_type == "code"]
    backwards = [nbformat.v4.new_code_cell(cell.source) for cell in forwards[::-1]]
    notebook.cells += backwards
    execute(notebook)
    for cells in (forwards, backwards):
        assert "strategy 'rehearsal', 2 replicas: asked for" in printed(cells)
        check_rehearsal(printed(cells))


STAND_IN = """
import os

os.environ["COLAB_TPU_1VM"] = "1"
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
pair = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, pair)


class TPUStrategy(tf.distribute.MirroredStrategy):
    def __init__(self, resolver):
        super().__init__(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())


tf.distribute.cluster_resolver.TPUClusterResolver = lambda tpu: tpu
tf.tpu.experimental.initialize_tpu_system = lambda resolver: None
tf.distribute.TPUStrategy = TPUStrategy
"""


@pytest.mark.slow
def test_tpu_runs_on_stand_ins_for_a_tpu(execute):
    notebook = nbformat.read(COLABS / "tpu.ipynb", as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(STAND_IN))
    execute(notebook)
    text = printed(notebook.cells)
    assert "the CPU beside the TPU is ''" in text
    assert "strategy 'tpu', 2 replicas: asked for" in text
    assert "2 replicas of TPUStrategy" in text
    assert "one device differ" not in text
    check_tpu(text, updates=300)


@pytest.mark.slow
def test_tpu_rehearses_in_full(execute):
    notebook = nbformat.read(COLABS / "tpu.ipynb", as_version=4)
    execute(notebook)
    check_tpu(printed(notebook.cells), updates=300)
