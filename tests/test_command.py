"""Tests of `tfrl.command`: what can be asked of runs from a shell."""

import configparser
import functools
import json
import pathlib
import re
import shutil

import gymnasium as gym
import numpy as np
import parallel_games
import plain_graphs
import pytest
import tensorflow as tf
import tiny_agents

import tfrl
from tfrl import command, rl_trainer
from tfrl.agents.on_policy import ppo
from tfrl.configuring import configs
from tfrl.datasets import recorded
from tfrl.environments import parallel_vector, vector
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import cadence, experience, trainer

ROOT = pathlib.Path(__file__).parents[1]
CARTPOLE = str(ROOT / "configs" / "policy_gradient_cartpole.gin")
SMALL = [
    *[
        "Trainer.n_envs = 2",
        "Trajectories.n_steps = 16",
        "Trainer.total_env_steps = 64",
    ],
    *["PolicyGradient.hidden_units = (4,)", "train_rl.seed = 5"],
    *["Intervals.eval_episodes = 2", "Intervals.checkpoint_epochs = 1"],
    *["Intervals.log_epochs = 1", "make_vec.max_episode_steps = 30"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    flags = [f"--config={binding}" for binding in SMALL]
    with plain_graphs.plain_graphs():
        done = command.main(["train", CARTPOLE, f"--output_dir={folder}", *flags])
    configs.clear()
    assert done == 0
    return folder


def call(*argv):
    return command.main([str(each) for each in argv])


def test_the_entry_point_is_there():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    scripts = setup["options.entry_points"]["console_scripts"]
    assert scripts.strip() == "tfrl = tfrl.command:main"
    assert callable(command.main)


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        call("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"tfrl {tfrl.__version__}\n"


def test_evaluate(folder, capsys):
    assert call("evaluate", folder, "--episodes=3", "--seed=4") == 0
    out = capsys.readouterr().out
    step = checkpoints.latest_step(folder)
    with rl_trainer.open_run(folder) as run:
        expected = run.evaluate(3, seed=4).returns.mean()
    assert f"after {step} environment steps: return {expected:.1f} " in out
    assert "3 episodes" in out
    # The time limit of the run holds.
    assert expected <= 30.0
    (best,) = checkpoints.list_steps(folder / "best")
    assert call("evaluate", folder, "--step=best", "--episodes=2") == 0
    assert f"after {best} environment steps" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        call("evaluate", folder, "--step=worst")
    assert (
        "expected environment steps or 'best'; got 'worst'" in capsys.readouterr().err
    )
    first = checkpoints.list_steps(folder)[0]
    assert call("evaluate", folder, f"--step={first}", "--episodes=2") == 0
    assert f"after {first} environment steps" in capsys.readouterr().out


def test_evaluate_tells_of_each_of_several_agents(tmp_path, capsys):
    make_envs = functools.partial(
        parallel_vector.ParallelEnvVector, parallel_games.Relay
    )
    intervals = cadence.Intervals(log_epochs=1, eval_episodes=3)
    settings = {"n_epochs": 1, "n_envs": 6, "intervals": intervals}
    _, played = tiny_agents.train(tmp_path, make_envs=make_envs, **settings)
    rows = run_log.read_metrics(tmp_path / "metrics.csv")
    for name, mean in zip("abc", played.returns, strict=True):
        assert rows[f"eval/return_mean/{name}"].tolist() == [mean]
    assert call("evaluate", tmp_path) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert "21 episodes" in first  # 20, or the next multiple of 3
    with rl_trainer.open_run(tmp_path) as run:
        found = run.evaluate(21).returns_by_agent()
    assert others == [
        f"{name}: return {found[name].mean():.1f} (7 episodes)" for name in "abc"
    ]
    assert call("evaluate", tmp_path, "--episodes=4") == 2
    assert "`n_episodes` expected a multiple of 3" in capsys.readouterr().err


def test_a_run_is_opened_as_it_was_trained(folder):
    configs.parse(bindings=["train_rl.seed = 99"])
    with rl_trainer.open_run(folder) as run:
        assert run._like.seed == 5
    assert "99" not in configs.operative()
    configs.clear()


def test_record(folder, tmp_path, capsys):
    pytest.importorskip("pygame")
    path = tmp_path / "film.gif"
    flags = ["--max_episode_steps=3", "--size", 30, 20]
    assert call("record", folder, f"--output={path}", *flags) == 0
    assert str(path) in capsys.readouterr().out
    assert path.read_bytes()[:6] == b"GIF89a"
    assert np.frombuffer(path.read_bytes(), "<u2", 2, 6).tolist() == [30, 20]


def test_plot(folder, tmp_path, capsys):
    path = tmp_path / "curve.png"
    assert call("plot", folder, f"--output={path}", "--title=PPO", "--target=475") == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in capsys.readouterr().out


def test_plots_of_several_runs(folder, tmp_path, capsys):
    path = tmp_path / "curves.png"
    flags = [f"--output={path}", "--tag=train/loss", "--interval=std", "--target=1"]
    assert call("plot", folder, folder, *flags) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "drawn to step" not in capsys.readouterr().out
    events = tmp_path / "shorter", tmp_path / "longer"
    for run, n_steps in zip(events, (3, 9), strict=True):
        with tf.summary.create_file_writer(str(run)).as_default():
            for step in range(n_steps):
                tf.summary.scalar("train/loss", 1.0, 1_000 * step)
    assert call("plot", *events, *flags) == 0
    told = f"drawn to step 2,000, where {events[0]} ends; the longest has 8,000"
    assert told in capsys.readouterr().out
    path.unlink()
    assert call("plot", folder, folder, f"--output={path}", "--tag=loss") == 2
    assert "train/loss" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.slow
def test_a_run_made_in_python_gets_what_train_leaves(tmp_path):
    folder = tmp_path / "run"
    with trainer.Trainer(
        folder,
        n_epochs=2,
        agent=ppo.PPO(minibatch_size=8, hidden_units=(4,)),
        make_envs=functools.partial(vector.make_vec, "CartPole-v1"),
        n_envs=2,
        experience=experience.Trajectories(n_steps=32),
        intervals=cadence.Intervals(eval_episodes=1),
    ) as running:
        running.run(quiet=True)
    assert not (folder / "learning_curve.png").exists()
    assert call("plot", folder) == 0
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert call("export", folder, folder / "policy") == 0
    assert (folder / "policy" / "saved_model.pb").is_file()


def test_several_runs_leave_the_curve_of_the_first(folder, capsys):
    before = (folder / "learning_curve.png").read_bytes()
    assert call("plot", folder, folder) == 0
    assert (folder / "learning_curve.png").read_bytes() == before
    assert (folder / "mean_curve.png").read_bytes().startswith(b"\x89PNG")


def test_one_run_by_its_tag(folder, tmp_path, capsys):
    path = tmp_path / "loss.png"
    assert call("plot", folder, "--tag=train/loss", f"--output={path}") == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert call("plot", folder, "--tag=loss") == 2
    err = capsys.readouterr().err
    assert "`plot`: RUN expected runs with scalars 'loss'" in err
    assert "train/loss" in err and "as `--tag`" in err


def test_runs_of_two_environments_are_not_averaged(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "run")
    flags = [f"--output={tmp_path}/curves.png"]
    for name in ("run.json", "config.gin"):  # which older runs have alone
        path = tmp_path / "run" / name
        path.write_text(path.read_text().replace("CartPole-v1", "Acrobot-v1"))
        assert call("plot", folder, tmp_path / "run", *flags) == 2
        err = capsys.readouterr().err
        assert f"one environment; got 'CartPole-v1' of {folder}, 'Acrobot-v1' of" in err
        path.unlink()
    assert call("plot", folder, tmp_path / "run", *flags) == 0


def test_a_plot_of_the_critic(folder, tmp_path, capsys):
    path = tmp_path / "critic.png"
    flags = ["--critic", 2, -0.2, 0.2, 3, -2, 2, f"--output={path}"]
    assert call("plot", folder, *flags) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert call("plot", folder, folder, *flags) == 2
    assert "expected one run" in capsys.readouterr().err
    for part in (2, 0.5):
        wrong = ["--critic", 2, -0.2, 0.2, part, -2, 2, f"--output={path}"]
        assert call("plot", folder, *wrong) == 2
        assert f"got 2 and {part}" in capsys.readouterr().err


def test_the_step_that_was_taken_is_told(folder, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    *_, before, newest = checkpoints.list_steps(run)
    (data,) = (run / f"checkpoints/step-{newest}").glob("arrays.data-*")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=f"step-{newest}"):
        assert call("export", run, tmp_path / "policy") == 0
    out = capsys.readouterr().out
    assert out == f"the policy of step {before} is in {tmp_path / 'policy'}\n"
    with pytest.warns(UserWarning, match=f"step-{newest}"):
        assert call("evaluate", run, "--episodes=1") == 0
    assert f"after {before} environment steps: " in capsys.readouterr().out


@pytest.mark.slow
def test_export_and_verify(folder, tmp_path, capsys):
    path = tmp_path / "policy"
    assert call("export", folder, path) == 0
    assert call("verify", path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"serving_default: as exported, within \S+", lines[1])
    one, other = (tf.saved_model.load(each) for each in (path, folder / "policy"))
    rows = tf.random.stateless_normal([9, 4], seed=[0, 1])
    actions = [
        model.signatures["serving_default"](observations=rows)["actions"]
        for model in (one, other)
    ]
    np.testing.assert_array_equal(*actions)
    assert call("export", folder, path) == 2
    assert "overwrite" in capsys.readouterr().err
    assert call("export", folder, path, "--overwrite") == 0
    before = sorted(folder.rglob("*"))
    assert call("export", folder, folder, "--overwrite") == 2
    assert "with 'best' in it" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_doctor(folder, tmp_path, capsys):
    assert call("doctor", folder) == 0
    assert capsys.readouterr().out == (
        f"every number in {folder} is finite, of events, 2 rows of metrics.csv, "
        "2 checkpoints\n"
    )
    weights = {f"w{i}": np.array([0.0, np.nan]) for i in range(7)}
    checkpoints.save_run(tmp_path, 32, weights, {})
    with run_log.RunLog(tmp_path, ["train/loss"]) as log:
        log.write(16, {"train/loss": np.inf})
    assert call("doctor", tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "first step 16: train/loss is inf in metrics.csv"
    assert lines[1].startswith("then  step 32: state.w0[1] is nan (1 of 2 ")
    assert (len(lines), lines[-1]) == (6, "and in 3 more tensors")


def test_doctor_tells_what_is_missing(folder, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    (events,) = run.glob("events.out.tfevents.*")
    events.write_bytes(b"")
    assert call("doctor", run) == 1
    assert capsys.readouterr().out == (
        f"{events.name} is missing: TensorBoard shows less than was written\n"
        f"every number in {run} is finite, of 2 rows of metrics.csv, 2 checkpoints\n"
    )
    (run / "metrics.csv").unlink()
    assert call("doctor", run) == 1
    rows, _, finite = capsys.readouterr().out.splitlines()
    step = checkpoints.latest_step(run)
    assert rows.startswith(f"metrics.csv is missing, which has rows up to step {step}:")
    assert finite == f"every number in {run} is finite, of 2 checkpoints"


@pytest.mark.slow
def test_doctor_tells_overrides(folder, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    flags = [f"--config={binding}" for binding in SMALL if "total" not in binding]
    flags += [
        "--config=Trainer.total_env_steps = 96",
        "--config=make_vec.env_kwargs={}",
    ]
    again = ["train", CARTPOLE, f"--output_dir={run}", *flags, "--resume"]
    assert call(*again) == 2
    assert "make_envs.env_kwargs = {} (was None)" in capsys.readouterr().err
    with plain_graphs.plain_graphs():
        assert call(*again, "--override") == 0
    configs.clear()
    capsys.readouterr()
    assert call("doctor", run) == 0
    first, _ = capsys.readouterr().out.splitlines()
    step = checkpoints.latest_step(folder)
    words = f"overridden after {step} environment steps: make_envs.env_kwargs from None"
    assert first == f"{words} to {{}}"


@pytest.mark.slow
def test_a_run_is_exported_without_its_environment(folder, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise ModuleNotFoundError("no simulator here")

    monkeypatch.setattr(gym, "make", refuse)
    monkeypatch.setattr(gym, "make_vec", refuse)
    assert call("export", folder, tmp_path / "policy") == 0
    assert call("verify", tmp_path / "policy") == 0
    flags = ["--critic", 2, -0.2, 0.2, 3, -2, 2, f"--output={tmp_path}/critic.png"]
    assert call("plot", folder, *flags) == 0
    assert call("doctor", folder) == 0
    assert call("evaluate", folder) == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["evaluate", "absent"], "config.gin; got 'absent'"),
        (["record", "absent"], "config.gin"),
        (["export", "absent", "policy"], "config.gin"),
        (["verify", "absent"], "absent"),
        (["doctor", "absent"], "absent"),
        (["plot", "absent"], "`plot`: RUN expected the folder of a run"),
        (["plot", ".", "absent"], "`plot`: RUN expected the folder of a run"),
        (["--resume", "absent"], "`output_dir` expected the folder of a run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_leaves_nothing(
    argv, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert command.main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    name = "train" if argv[0] == "--resume" else argv[0]
    assert line.startswith(f"tfrl {name}: error: ") and words in line
    assert not list(tmp_path.iterdir())


def test_a_folder_of_runs_names_one(tmp_path, capsys):
    for name in ("seed-1", "seed-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    for argv in (["evaluate", str(tmp_path)], ["--resume", str(tmp_path)]):
        assert command.main(argv) == 2
        line = capsys.readouterr().err
        assert f"; give one of the runs in it, such as {tmp_path / 'seed-0'}\n" in line


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "COMMAND"),
        (["trian"], "trian"),
        (["evaluate"], "RUN"),
        (["train", "--resume"], "add --output_dir, its folder"),
        (["--resume"], "--resume: expected one argument"),
        (["--resume", "--override"], "--resume: expected one argument"),
        (["evaluate", "run", "--episodes=many"], "--episodes"),
        (["doctor", "run", "--loud"], "--loud"),
        (["evaluate", "run", "--seed=-1"], "expected a whole number >= 0; got '-1'"),
        (["plot", "run", "--target=nan"], "expected a finite number; got 'nan'"),
        (["plot", "run", "--critic", *["inf"] * 6], "finite number; got 'inf'"),
        (["train"], "tfrl train: error: CONFIG expected a gin file; got none"),
        (["train", "a.gin", "--output_dir="], "--output_dir expected a folder; got ''"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_wrong_flags_are_one_line(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(argv)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_foreign_run_is_refused(folder, tmp_path, capsys):
    other = tmp_path / "run"
    other.mkdir()
    # As a run of old: no run.json, and no digest in the first line.
    _, _, text = (folder / "config.gin").read_text().partition("\n")
    (other / "config.gin").write_text(text)
    assert call("evaluate", other) == 2
    assert "expected a folder with a saved step; got none" in capsys.readouterr().err
    (other / "checkpoints").symlink_to(folder / "checkpoints")
    assert call("evaluate", other) == 0
    (other / "config.gin").write_text(text.replace("CartPole-v1", "Acrobot-v1"))
    assert call("evaluate", other) == 2
    assert "another agent or shape" in capsys.readouterr().err
    (other / "config.gin").write_text("PolicyGradient.gama = 0.9\n")
    assert call("evaluate", other) == 2
    assert "did you mean `gamma`?" in capsys.readouterr().err


def test_an_interruption_is_one_line(folder, monkeypatch, capsys):
    def interrupt(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(rl_trainer, "open_run", interrupt)
    assert call("evaluate", folder) == 130
    assert capsys.readouterr().err == "tfrl evaluate: interrupted\n"


def test_errors_do_not_list_the_calls_of_gin(folder, tmp_path, capsys):
    config = (folder / "config.gin").read_text().replace("CartPole-v1", "NoSuch-v1")
    (tmp_path / "config.gin").write_text(config)
    assert call("evaluate", tmp_path) == 2
    assert "config.gin', which is not; restore it; or" in capsys.readouterr().err
    (tmp_path / "config.gin").write_text(config.partition("\n")[2])
    assert call("evaluate", tmp_path) == 2
    err = capsys.readouterr().err
    assert "'NoSuch-v1'" in err and "configurable" not in err and " at 0x" not in err


def test_training_takes_the_flags_of_the_front_door(tmp_path, capsys):
    flag = f"--output_dir={tmp_path}/run"
    for argv in (["absent.gin", flag], [flag, "absent.gin"]):
        assert call("train", *argv) == 2
        err = capsys.readouterr().err
        assert err.startswith("tfrl train: error: ") and "absent.gin" in err
    with pytest.raises(SystemExit) as stop:
        call("train", "--help")
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: tfrl train ") and "[CONFIG ...]" in out


FAULTY = """
import gymnasium as gym
class Faulty(gym.Env):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 5, {}
    def step(self, action):
        return 0, 0.0, True, False, {}
gym.register("Faulty-v0", entry_point=Faulty)
"""


def test_check_env(tmp_path, monkeypatch, capsys):
    (tmp_path / "faulty_module.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    assert call("check-env", "CartPole-v1", "--steps=50", "--seed=3") == 0
    assert capsys.readouterr().out.startswith("CartPole-v1: 0 errors, 0 warnings")
    assert call("check-env", "faulty_module:Faulty-v0", "--steps=50") == 1
    assert (
        "error observation_choice: the observation of `reset`"
        in capsys.readouterr().out
    )
    assert call("check-env", "Nothing-v0") == 2
    assert "expected an environment that can be made" in capsys.readouterr().err
    assert call("check-env", "CartPole-v1", "--steps=0") == 2
    assert "`n_steps` expected an int" in capsys.readouterr().err


def test_what_interrupts_the_loading_is_one_line(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.entry, "load", interrupted)
    assert call("train", CARTPOLE) == 130
    assert capsys.readouterr().err == "tfrl train: interrupted\n"


def test_the_doctor_says_if_there_is_nothing(tmp_path, capsys):
    (tmp_path / "metrics.csv").write_text("epoch,env_steps\n")
    assert call("doctor", tmp_path) == 0
    assert "there is nothing to look at in " in capsys.readouterr().out


def test_collect(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    mixed = ["--mix", "random:1", "best:3", "best:2", "--steps=41", "--epsilon=0.5"]
    assert call("collect", folder, "--minari=try/it-v0", *mixed) == 0
    told = capsys.readouterr().out
    assert "41 steps of " in told and str(tmp_path / "try" / "it-v0") in told
    found = recorded.MinariDataset("try/it-v0")()
    assert found["observations"].shape == (41, 4)
    flags = ["--npz", tmp_path / "rows.npz", "--steps=20", "--temperature=0"]
    assert call("collect", folder, *flags) == 0
    rows = recorded.NpzDataset(str(tmp_path / "rows.npz"))()
    with rl_trainer.open_run(folder) as run:
        acted = run.policy.act(rows["observations"], temperature=0.0)
    np.testing.assert_array_equal(rows["actions"], acted.actions)
    capsys.readouterr()
    assert call("collect", folder, *flags, "--overwrite") == 0
    # It plays 30 steps at most: of few steps there is one episode.
    told = capsys.readouterr().out
    lengths = np.diff(np.flatnonzero([True, *(rows["terminated"] | rows["truncated"])]))
    whole = lengths[:-1] if rows["truncated"][-1] else lengths
    if len(whole):
        assert re.search(f"mean return (of the others )?{whole.mean():.1f}, are", told)
    else:
        assert "20 steps of 1 episode, none of them whole" in told
    longer = ["--npz", tmp_path / "longer.npz", "--steps=100"]
    assert call("collect", folder, *longer, "--mix", "random:1") == 0
    told = capsys.readouterr().out
    with rl_trainer.open_run(folder) as run:
        rows, cut = run.collect(100, policy=None, tell_cut=True)
    # Two environments play, in which the run is evaluated.
    assert 1 <= cut.sum() <= 2 and rows["truncated"][cut].all()
    ends = np.flatnonzero(rows["terminated"] | rows["truncated"])
    whole = np.diff([-1, *ends])[~cut[ends]]
    words = f", {cut.sum()} cut off at the end, mean return of the others"
    assert f"{words} {whole.mean():.1f}, are in" in told
    monkeypatch.setattr(rl_trainer, "open_run", None)  # what is refused plays nothing
    for given, words in (
        (
            ["--minari=try/it-v0"],
            "`--minari` expected the name of a new set; got 'try/",
        ),
        (["--minari=bad"], "`--minari` expected [NAMESPACE/]NAME-vN, "),
        (flags, "`--npz` expected a new file; got "),
        (["--npz=rows.csv"], "`--npz` expected to end in .npz"),
        (["--minari=try/new-v0", "--overwrite"], "`--overwrite` expected `--npz`"),
        (["--npz=rows.npz", "--steps=0"], "`--steps` expected"),
    ):
        assert call("collect", folder, *given) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["collect", "run"], "one of the arguments --minari --npz"),
        (["collect", "run", "--npz=a.npz", "--mix", "best"], "--mix"),
        (["collect", "run", "--npz=a.npz", "--mix", "best:0"], "share > 0"),
        (["collect", "run", "--npz=a.npz", "--mix", "rnd:0.5"], "'best' or 'random'"),
    ],
)
def test_wrong_mixtures_are_one_line(argv, words, capsys):
    with pytest.raises(SystemExit) as ended:
        call(*argv)
    assert ended.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["evaluate", "~/run"],
        ["record", "~/run", "--output=~/run"],
        ["plot", "~/run", "~/run", "--output=~/run"],
        ["compare", "~/run", "~/run"],
        ["tune", "a.gin", "--output_dir=~/run"],
        ["zoo", "--folder=~/run", "--measured", "~/run"],
        ["export", "~/run", "~/run"],
        ["verify", "~/run"],
        ["doctor", "~/run"],
        ["collect", "~/run", "--npz=~/run"],
    ],
    ids=lambda argv: argv[0],
)
def test_folders_may_lie_at_home(argv, monkeypatch):
    monkeypatch.setenv("HOME", "/at/home")
    flags = command.entry.at_home(command._parser().parse_args(argv))
    given = [y for x in vars(flags).values() for y in (x if type(x) is list else [x])]
    assert given.count("/at/home/run") == " ".join(argv).count("~/run")


def test_a_run_may_lie_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/at/home")
    flags = command.entry.train_flags(["a.gin", "--output_dir=~/run"], "tfrl train")
    assert command.entry.output_dir(flags) == "/at/home/run"


def test_an_export_may_differ_by_a_tolerance(folder, tmp_path, capsys):
    assert call("export", folder, tmp_path / "policy", "--tolerance", "2") == 2
    assert "`tolerance` expected" in capsys.readouterr().err
    assert call("export", folder, tmp_path / "policy", "--tolerance", "0.001") == 0
    record = (tmp_path / "policy" / "assets.extra" / "tfrl_golden.json").read_text()
    assert json.loads(record)["tolerance"] == 0.001
