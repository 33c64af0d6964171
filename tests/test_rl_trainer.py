"""Tests of `tfrl.rl_trainer`: training what a configuration describes."""

import contextlib
import functools
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import types

import default_rows
import keras
import numpy as np
import plain_graphs
import pytest
import tensorflow as tf

from tfrl import rl_trainer
from tfrl._internal import acting
from tfrl.agents.on_policy import ppo
from tfrl.configuring import configs
from tfrl.datasets import recorded
from tfrl.environments import vector
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import cadence, doctor, experience, saved_run, trainer
from tfrl.training.collecting import recording
from tfrl.training.rehearsing import rehearsal

ROOT = pathlib.Path(__file__).parents[1]
# Those that train something.
CONFIGS = [
    path
    for path in sorted(ROOT.glob("configs/*.gin"))
    if "train_rl.light_rl_trainer" in path.read_text()
]
OFFLINE = [path for path in CONFIGS if "@FromDataset" in path.read_text()]
CONFIGS = [path for path in CONFIGS if path not in OFFLINE]
CARTPOLE = ROOT / "configs" / "ppo_cartpole.gin"
SMALL = [
    "--config=Trainer.n_envs = 2",
    "--config=Trajectories.n_steps = 16",
    "--config=Trainer.total_env_steps = 96",
    "--config=Intervals.eval_episodes = 2",
    "--config=Intervals.checkpoint_epochs = 1",
    "--config=Intervals.log_epochs = 1",
]
SMALL_PPO = ["--config=PPO.minibatch_size = 16", "--config=PPO.n_epochs = 2"]


@pytest.fixture(autouse=True)
def _forget_bindings(request):
    slow = request.node.get_closest_marker("slow") is not None
    with contextlib.nullcontext() if slow else plain_graphs.plain_graphs():
        yield
    configs.clear()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that is over, with the words of a gin file."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with plain_graphs.plain_graphs():
        assert run(folder) == 0
    configs.clear()
    return folder


@pytest.fixture
def done(whole, tmp_path):
    """A copy of that."""
    return shutil.copytree(whole, tmp_path / "run")


def run(folder, *flags, config=CARTPOLE, small=(*SMALL, *SMALL_PPO)):
    return rl_trainer.main(
        [f"--config_file={config}", f"--output_dir={folder}", *small, *flags]
    )


def needs_libraries_of_jax(text):
    modules = {"playground": "mujoco_playground"}
    for library in ("gymnax", "brax", "playground"):
        if f'"{library}/' in text:
            pytest.importorskip(modules.get(library, library))


# The others are those of other tests of commands, or differ from them by numbers.
@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    default_rows.params(
        {path.stem: (path,) for path in CONFIGS},
        ["dqn_cartpole", "ppo_pendulum"],
    ),
)
@pytest.mark.filterwarnings("ignore:scatter inputs have:FutureWarning")  # of gymnax
def test_every_config_trains(config, tmp_path, capsys, monkeypatch):
    text = config.read_text()
    if '"dmc/' in text:
        # Beside TensorFlow the end of a library of graphics can end the process badly.
        monkeypatch.setenv("MUJOCO_GL", "disabled")
        pytest.importorskip("dm_control")
    needs_libraries_of_jax(text)
    small = [*SMALL, *(SMALL_PPO if "@PPO" in text else [])]
    if "@Replayed" in text:
        small = [each.replace("Trajectories", "Replayed") for each in small]
        small.append("--config=Replayed.learning_starts = 64")
    assert run(tmp_path, config=config, small=small) == 0
    assert "final evaluation: return" in capsys.readouterr().out
    metrics = run_log.read_metrics(tmp_path / "metrics.csv")
    for name in ("env_steps", "env_steps_per_second", "eval/return_mean"):
        assert np.isfinite(metrics[name][-1]), name
    assert (tmp_path / "learning_curve.png").stat().st_size > 10_000
    model = tf.saved_model.load(tmp_path / "policy")
    assert {"serving_default", "sample"} <= set(model.signatures)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    default_rows.params({path.stem: (path,) for path in OFFLINE}, ["iql_pendulum"]),
)
def test_every_offline_config_trains(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    bound = dict(re.findall(r'^(\S+) = "(.*)"$', config.read_text(), re.MULTILINE))
    envs = vector.make_vec(bound["make_vec.env_id"], 2)
    rows = recording.record_transitions(None, envs, 300)
    spaces = envs.single_observation_space, envs.single_action_space
    recorded.write_minari(bound["MinariDataset.name"], rows, spaces)
    envs.close()
    settings = ["FromDataset.batch_size = 16", "FromDataset.n_batches = 2"]
    settings += ["Trainer.total_env_steps = 64", "Intervals.eval_episodes = 2"]
    small = [f"--config={each}" for each in settings]
    assert run(tmp_path / "run", config=config, small=small) == 0
    assert "final evaluation: return" in capsys.readouterr().out
    assert (tmp_path / "run" / "policy").is_dir()


NO_TFP = """
import sys
from tfrl import command, rl_trainer
status = rl_trainer.main(sys.argv[1:])
folder = next(x for x in sys.argv if x.startswith("--output_dir")).split("=", 1)[1]
for words in (["evaluate", folder], ["plot", folder]):
    status = status or command.main(words)
heavy = ("tensorflow_probability", "tf_keras")
print("loaded:", status, [name for name in heavy if name in sys.modules])
"""


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_neither_training_nor_evaluating_loads_tfp(config, tmp_path):
    needs_libraries_of_jax(config.read_text())
    small = [*SMALL, *(SMALL_PPO if "@PPO" in config.read_text() else [])]
    if "@Replayed" in config.read_text():
        small = [each.replace("Trajectories", "Replayed") for each in small]
        small.append("--config=Replayed.learning_starts = 64")
    flags = [f"--config_file={config}", f"--output_dir={tmp_path / 'run'}", *small]
    done = subprocess.run(
        [sys.executable, "-c", NO_TFP, *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "loaded: 0 []", done.stderr


@pytest.mark.slow
def test_the_written_config_repeats_the_run(tmp_path):
    assert run(tmp_path / "first", "--config=train_rl.seed = 3") == 0
    again = ["--config_file", str(tmp_path / "first" / "config.gin")]
    assert rl_trainer.main([*again, "--output_dir", str(tmp_path / "second")]) == 0
    first, second = (
        run_log.read_metrics(tmp_path / name / "metrics.csv")
        for name in ("first", "second")
    )
    for name, values in first.items():
        if "second" not in name:
            np.testing.assert_array_equal(values, second[name], err_msg=name)
    assert "train_rl.seed = 3" in (tmp_path / "second" / "config.gin").read_text()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--config_file=absent.gin"], ["absent.gin"]),
        (["--config=PPO.gama = 0.9"], ["gama", "gamma"]),
        (["--config=PPA.gamma = 0.9"], ["PPA", "PPO"]),
        (["--config=PolicyGradient.gamma = 0.9"], ["PolicyGradient.gamma"]),
        (["--config=PPO.gamma = '0.9'"], ["PPO.gamma", "0.9"]),
        (["--config=PPO.gamma = 1.9"], ["gamma", "1.9"]),
        (["--config=make_vec.env_id = 'CartPool-v1'"], ["CartPool-v1"]),
        (["--config=Trainer.n_envs = 0"], ["n_envs", "0"]),
        (["--config=Trainer.total_env_steps = -5"], ["total_env_steps", "-5"]),
        (["--config=PPO.minibatch_size = 7"], ["minibatch_size", "7"]),
        (["--config=train_rl.seed = -1"], ["`train_rl`: `seed`", "-1"]),
        (["--config=train_rl.resume = True"], ["bindings:9", "train_rl.resume"]),
        (["--config=Trainer.agent = @Trainer()"], ["macros without a loop"]),
        (["--resume"], ["resume"]),
        (["--config=train_rl.override = True"], ["train_rl.override"]),
    ],
    ids=lambda value: value[0].replace("--config=", "") if "--" in value[0] else "",
)
def test_bad_input_is_one_line_and_leaves_nothing(flags, words, tmp_path, capsys):
    folder = tmp_path / "run"
    assert run(folder, *flags) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("tfrl.rl_trainer: error: ")
    for word in words:
        assert word in line
    assert " at 0x" not in line and "In call to" not in line
    assert not folder.exists()


def test_a_logger_that_cannot_begin_is_one_line(tmp_path, monkeypatch, capsys):
    def init(**options):
        del options
        raise LookupError("No API key configured.")

    flag = "--config=Trainer.callbacks = [@WandbLogger()]"
    for there, told in (
        (None, "expected the library wandb; found none; run: pip install wandb"),
        (types.SimpleNamespace(init=init), "got LookupError: No API key configured."),
    ):
        monkeypatch.setitem(sys.modules, "wandb", there)
        assert run(tmp_path / "run", flag) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("tfrl.rl_trainer: error: `WandbLogger`: ")
        assert told in line
        configs.clear()


@pytest.mark.parametrize("flag", ["--log_level=loud", "--n_epochs=5", "--resume=maybe"])
def test_wrong_flags_are_one_line(flag, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        run(tmp_path / "run", flag)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert flag.partition("=")[0] in line


def test_an_unwritable_folder_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file" / "run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "file") in line


@pytest.mark.slow
def test_a_finished_folder_is_not_overwritten(done, capsys):
    before = (done / "metrics.csv").read_bytes()
    assert run(done) == 2
    assert "--resume" in capsys.readouterr().err
    assert (done / "metrics.csv").read_bytes() == before


@pytest.mark.slow
def test_interrupting_saves_and_tells_how_to_resume(tmp_path):
    flags = [f"--config_file={CARTPOLE}", f"--output_dir={tmp_path}"]
    flags += [*SMALL, *SMALL_PPO, "--config=Trainer.total_env_steps = 3_200"]
    flags += ["--config=make_vec.vectorization = 'sync'"]
    command = [sys.executable, "-m", "tfrl.rl_trainer", *flags]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    )
    while not list(tmp_path.glob("checkpoints/step-*")):
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "resume with: python -m tfrl.rl_trainer" in output and "--resume" in output
    assert subprocess.run([*command, "--resume"], env=environment).returncode == 0
    steps = run_log.read_metrics(tmp_path / "metrics.csv")["env_steps"]
    np.testing.assert_array_equal(steps, 32 * np.arange(1, 101))


def test_an_interruption_tells_what_was_saved(tmp_path, monkeypatch, capsys):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(rl_trainer, "train_rl", interrupt)
    flags = ["--config=make_vec.env_kwargs = {'sutton': \"it's\"}", "--strategy=cpu"]
    assert run(tmp_path / "a run", *flags) == 130
    assert capsys.readouterr().out == "interrupted before anything was saved\n"
    checkpoints.save_run(tmp_path / "a run", 32, {"w": np.zeros(2)}, {})
    assert run(tmp_path / "a run", *flags) == 130
    _, _, told = capsys.readouterr().out.partition("python -m tfrl.rl_trainer ")
    given = [str(CARTPOLE), *SMALL, *SMALL_PPO, *flags]
    assert shlex.split(told) == [*given, f"--output_dir={tmp_path}/a run", "--resume"]


@pytest.mark.slow
def test_it_can_be_imported_after_a_configuration_was_parsed():
    program = (
        "from tfrl.configuring import configs\n"
        "configs.parse(bindings=['fast = 0.5'])\n"
        "from tfrl import rl_trainer\n"
        "assert 'fast = 0.5' in configs.configured()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_a_rehearsal_holds_replicas_against_one(capsys):
    small = [*SMALL, *SMALL_PPO, "--config=PPO.hidden_units = (4,)"]
    assert rl_trainer.main([f"--config_file={CARTPOLE}", *small, "--rehearse=2"]) == 0
    out = capsys.readouterr().out
    assert "PPOAgent, update of (16, 2)" in out
    assert "2 learn what 1 learns" in out and "0 failed" in out


@pytest.mark.slow
def test_a_rehearsal_of_one_graph_is_of_its_whole_program(capsys):
    config = ROOT / "configs" / "ppo_cartpole_compiled.gin"
    small = [*SMALL, *SMALL_PPO, "--config=PPO.hidden_units = (4,)"]
    assert rl_trainer.main([f"--config_file={config}", *small, "--rehearse=2"]) == 0
    out = capsys.readouterr().out
    assert "collect and learn" in out and "2 learn what 1 learns" in out
    assert "0 warned, 0 failed" in out


PARTIAL = functools.partial(
    trainer.Trainer,
    agent=ppo.PPO(n_epochs=1, minibatch_size=16, hidden_units=(4,)),
    make_envs=functools.partial(vector.make_vec, "CartPole-v1", max_episode_steps=20),
    n_envs=2,
    experience=experience.Trajectories(16),
    intervals=cadence.Intervals(log_epochs=1, eval_episodes=2),
)


@pytest.mark.slow
def test_a_run_made_from_python_is_opened_and_repeated(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    rl_trainer.train_rl(first, n_epochs=2, seed=3, light_rl_trainer=PARTIAL)
    with rl_trainer.open_run(first) as run:
        assert len(run.evaluate(3).returns) == 3
    again = [str(first / "config.gin"), f"--output_dir={second}"]
    assert rl_trainer.main(again) == 0
    one, other = (
        run_log.read_metrics(each / "metrics.csv") for each in (first, second)
    )
    for name, values in one.items():
        if "second" not in name:
            np.testing.assert_array_equal(values, other[name], err_msg=name)
    # Gin and Python mean the same run: either goes on with it.
    configs.clear()
    rl_trainer.train_rl(
        second, n_epochs=3, seed=3, light_rl_trainer=PARTIAL, resume=True
    )
    # So does what a trainer alone leaves.
    (second / "config.gin").unlink()
    longer = "--config=train_rl.n_epochs = 4"
    assert rl_trainer.main([longer, "--resume", f"--output_dir={second}"]) == 0
    rows = run_log.read_metrics(second / "metrics.csv")
    assert rows["epoch"].tolist() == [1, 2, 3, 4]


def test_the_same_command_begins_and_goes_on(tmp_path):
    for n_steps in (64, 128):
        more = f"--config=Trainer.total_env_steps = {n_steps}"
        assert run(tmp_path, more, "--auto_resume") == 0
        rows = run_log.read_metrics(tmp_path / "metrics.csv")
        assert rows["epoch"].tolist() == [*range(1, n_steps // 32 + 1)]


@pytest.mark.parametrize("name", ["n_epochs", "seed"])
def test_what_train_rl_hands_on_is_bound_there(name, tmp_path, capsys):
    flags = [f"--config=Trainer.{name} = 2", f"--output_dir={tmp_path / 'run'}"]
    assert rl_trainer.main([str(CARTPOLE), *flags]) == 2
    told = capsys.readouterr().err
    assert f"; bind `train_rl.{name}` in the place of `Trainer.{name}`" in told
    assert not (tmp_path / "run").exists()


@pytest.fixture
def mixed(tmp_path, capsys):
    """A run in mixed precision that goes on, with these flags, and what it said."""
    folder = tmp_path / "mixed"
    flags = ["--config=train_rl.dtype_policy = 'mixed_bfloat16'"]

    def go_on(*more):
        code = run(folder, *(more or flags))
        return code, capsys.readouterr().err

    assert go_on()[0] == 0
    return folder, go_on


@pytest.mark.slow
def test_a_configuration_says_the_precision_of_networks(mixed):
    folder, go_on = mixed
    assert keras.config.dtype_policy().name == "float32"
    with rl_trainer.open_run(folder) as opened:
        assert opened.policy.state.model_def.dtype_policy.name == "mixed_bfloat16"
    longer = "--config=Trainer.total_env_steps = 160"
    # Without a word about it, it is that of the run.
    assert go_on(longer, "--resume")[0] == 0
    with rl_trainer.open_run(folder) as opened:
        assert opened.policy.state.model_def.dtype_policy.name == "mixed_bfloat16"
    single = ["--config=train_rl.dtype_policy = 'float32'", longer, "--resume"]
    code, told = go_on(*single)
    assert code == 2 and "dtype_policy = float32 (was mixed_bfloat16)" in told
    assert go_on(*single, "--override")[0] == 0
    with rl_trainer.open_run(folder) as opened:
        assert opened.policy.state.model_def.dtype_policy.name == "float32"


@pytest.mark.parametrize(
    "given, kind", [("nonsense", ValueError), ("int32", ValueError), (16, TypeError)]
)
def test_an_unknown_precision_is_refused(given, kind, tmp_path):
    with pytest.raises(kind, match="`train_rl`: `dtype_policy` expected a name"):
        rl_trainer.train_rl(tmp_path / "run", dtype_policy=given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("precision", ["float32", *default_rows.slow("mixed_bfloat16")])
def test_a_run_made_from_python_takes_more_steps(precision, tmp_path):
    make = functools.partial(PARTIAL, total_env_steps=16)
    try:
        keras.config.set_dtype_policy(precision)
        rl_trainer.train_rl(tmp_path, light_rl_trainer=make)
    finally:
        keras.config.set_dtype_policy("float32")
    is_told = precision in (tmp_path / "config.gin").read_text()
    assert is_told == (precision != "float32")
    for n_steps in (40, 70):
        more = f"--config=Trainer.total_env_steps = {n_steps}"
        assert rl_trainer.main([more, "--resume", f"--output_dir={tmp_path}"]) == 0
        rows = run_log.read_metrics(tmp_path / "metrics.csv")
        assert rows["env_steps"][-1] >= n_steps
        # Of a run of a trainer alone there is none.
        (tmp_path / "config.gin").unlink()
    with rl_trainer.open_run(tmp_path) as run:
        made = run.policy.state.model_def.dtype_policy.name
    assert made == precision


def make_elsewhere(n_envs):
    return vector.make_vec("CartPole-v1", n_envs, max_episode_steps=20)


@pytest.mark.slow
def test_what_gin_has_no_words_for_is_opened_and_resumed(tmp_path):
    make_trainer = functools.partial(PARTIAL, make_envs=make_elsewhere)
    rl_trainer.train_rl(tmp_path, n_epochs=1, light_rl_trainer=make_trainer)
    assert "See run.json" in (tmp_path / "config.gin").read_text()
    with rl_trainer.open_run(tmp_path) as run:
        assert run.evaluate(2).returns.max() <= 20
    resume = ["--resume", f"--output_dir={tmp_path}"]
    assert rl_trainer.main(["--config=train_rl.n_epochs = 2", *resume]) == 0
    # Bindings of the trainer take the place of what the folder says.
    longer = ["--config=train_rl.n_epochs = None", "--config=Trainer.n_envs = 2"]
    longer += ["--config=Trainer.total_env_steps = 96"]
    assert rl_trainer.main([*longer, *resume]) == 0
    rows = run_log.read_metrics(tmp_path / "metrics.csv")
    assert rows["epoch"].tolist() == [1, 2, 3]
    assert saved_run.record_of(tmp_path).arguments["total_env_steps"] == 96
    assert "See run.json" in (tmp_path / "config.gin").read_text()
    # Others, which nothing takes up, are refused, and a step that is none is.
    for flag in ("PPO.gamma = 0.5", "Trainer.total_env_steps = -1"):
        assert rl_trainer.main([f"--config={flag}", *resume]) == 2
    with rl_trainer.open_run(tmp_path) as run:
        assert run.evaluate(2).returns.max() <= 20


def test_what_no_other_process_can_make_is_refused(tmp_path):
    make_trainer = functools.partial(
        PARTIAL, make_envs=lambda n_envs: make_elsewhere(n_envs)
    )
    with pytest.raises(
        ValueError, match=r"`train_rl`: .* got make_envs = function test"
    ):
        rl_trainer.train_rl(tmp_path / "run", light_rl_trainer=make_trainer)
    assert not list(tmp_path.iterdir())


LONGER = "--config=Trainer.total_env_steps = 128"


@pytest.mark.slow
def test_other_hyper_parameters_are_refused_or_recorded(done, capsys):
    path = done / "config.gin"
    before = {each: each.read_bytes() for each in done.rglob("*") if each.is_file()}
    other = ["--config=PPO.gamma = 0.1", "--resume"]
    assert run(done, *other) == 2
    err = capsys.readouterr().err
    assert "agent.gamma = 0.1 (was 0.98)" in err and "--override" in err
    for each, data in before.items():
        assert each.name == "run.lock" or each.read_bytes() == data, each
    assert run(done, *other, LONGER, "--override") == 0
    (line,) = doctor.list_overrides(done)
    assert "agent.gamma from 0.98 to 0.1" in line
    assert "PPO.gamma = 0.1" in path.read_text()
    again = ["--config=PPO.gamma = 0.2", "--config=Trainer.total_env_steps = 160"]
    again += ["--resume", "--override", f"--output_dir={done}"]
    assert rl_trainer.main(again) == 0
    assert "agent.gamma from 0.1 to 0.2" in doctor.list_overrides(done)[-1]
    assert not any(
        line.startswith("Trainer.override = True")
        for line in path.read_text().splitlines()
    )


def test_a_config_that_changed_is_not_resumed(done, capsys):
    path = done / "config.gin"
    text = path.read_text()
    path.write_text(text.replace("CartPole", "Acrobot"))
    for config in ([], [str(CARTPOLE), *SMALL, *SMALL_PPO]):
        flags = [*config, LONGER, "--resume", f"--output_dir={done}"]
        assert rl_trainer.main(flags) == 2
        assert "config.gin', which is not; restore it" in capsys.readouterr().err
    path.write_text(text)
    # What the folder says is enough.
    assert rl_trainer.main([LONGER, "--resume", f"--output_dir={done}"]) == 0
    assert run_log.read_metrics(done / "metrics.csv")["env_steps"][-1] > 96


def test_a_run_that_had_ended_says_so(done, capsys):
    told = "the run had already ended its training; it was evaluated again\n"
    assert rl_trainer.main(["--auto_resume", f"--output_dir={done}"]) == 0
    assert told in capsys.readouterr().out
    assert rl_trainer.main([LONGER, "--auto_resume", f"--output_dir={done}"]) == 0
    assert told not in capsys.readouterr().out


def test_a_rehearsal_that_fails_ends_with_1(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check = rehearsal.RehearsalCheck("update", "static shapes", "failed", ("Where",))
    report = rehearsal.Rehearsal("an agent", (check,))
    monkeypatch.setattr(rehearsal, "rehearse", lambda *_, **__: report)
    flags = [f"--config_file={CARTPOLE}", *SMALL, *SMALL_PPO, "--rehearse=1"]
    assert rl_trainer.main(flags) == 1
    assert "1 failed" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--resume", "--output_dir=runs/x", "--strategy=cpu"])
def test_a_rehearsal_is_no_run(flag, capsys):
    with pytest.raises(SystemExit) as stop:
        rl_trainer.main([f"--config_file={CARTPOLE}", "--rehearse", flag])
    assert stop.value.code == 2
    assert "--rehearse trains nothing" in capsys.readouterr().err


def test_a_strategy_that_is_not_there(tmp_path, capsys):
    for name, reason in [("pods", "`name` expected"), ("mirrored", "sees no GPU")]:
        assert run(tmp_path / "run", f"--strategy={name}") == 2
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_lost_worker_has_a_code_of_its_own(tmp_path, monkeypatch, capsys):
    def lose(*_args, **_kwargs):
        raise ConnectionError("a worker is gone")

    monkeypatch.setattr(rl_trainer, "train_rl", lose)
    assert run(tmp_path / "run") == 75
    assert capsys.readouterr().err.endswith("error: a worker is gone\n")


def test_what_an_actor_raises_is_told_alone(tmp_path, monkeypatch, capsys):
    told = "`Trainer`: actor 0 expected to play on; got:\nTraceback\nOSError: no wheel"

    def fail(*_args, **_kwargs):
        raise acting.ActorFailed(told)

    monkeypatch.setattr(rl_trainer, "train_rl", fail)
    assert run(tmp_path / "run") == 2
    assert capsys.readouterr().err.endswith(f"error: {told}\n")


@pytest.mark.slow
def test_replicas_train_from_the_command_line(tmp_path):
    assert run(tmp_path / "run", "--strategy=rehearsal:2") == 0
    assert (tmp_path / "run" / "policy").is_dir()
