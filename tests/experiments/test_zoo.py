"""Tests of `tfrl.experiments.zoo`: headers of configurations, and `tfrl zoo`."""

import json

import pytest

from tfrl import command, entry
from tfrl._internal import zoo_files
from tfrl.experiments import zoo

HEADER = """\
# Soft actor-critic on Pendulum-v1.
#
# Agent: SAC (REDQ)
# Environment: Pendulum-v1
# Source: Chen et al., 2021, Randomized Ensembled Double Q-Learning, table 2,
#   with a smaller network.
# Command: tfrl train configs/sac_pendulum.gin --seeds 0,3
# Steps: 10,000
# Expected: mean >= -180, worst seed >= -200.5
# Measured: -150.5, -151.5
# CPU time: 3,725 s
# Curve: 10% -1200.1 (-1300.0 to -1100.2), 100% -150.0 (-160.0
#   to -140.0)
#
# A note: it may say anything.

train_rl.light_rl_trainer = @Trainer
"""
NOT_MEASURED = "\n".join(
    line
    for line in HEADER.replace("-150.5, -151.5", "not here, no GPU.").splitlines()
    if line.split(":")[0] not in ("# Expected", "# CPU time", "# Curve")
    and "to -140.0" not in line
)


def written(folder, text=HEADER, name="sac_pendulum.gin"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_header_is_read(tmp_path):
    found = zoo.read_entry(written(tmp_path))
    assert found.title == "Soft actor-critic on Pendulum-v1."
    assert (found.agent, found.environment) == ("SAC (REDQ)", "Pendulum-v1")
    assert found.source.endswith("table 2, with a smaller network.")
    assert (found.seeds, found.steps, found.cpu_seconds) == ((0, 3), 10_000, 3725.0)
    assert found.measured == (-150.5, -151.5) and found.mean == -151.0
    assert found.expected == (-180.0, -200.5)
    assert found.curve[1] == zoo.Point(1.0, -150.0, -160.0, -140.0)
    assert found.not_measured == ""


def test_what_was_not_measured_says_why(tmp_path):
    found = zoo.read_entry(written(tmp_path, NOT_MEASURED))
    assert (found.measured, found.mean, found.curve) == ((), None, ())
    assert found.not_measured == "no GPU."


def test_a_header_may_name_an_extra(tmp_path, capsys):
    assert zoo.read_entry(written(tmp_path)).needs == ""
    needs = "Pendulum-v1\n# Needs: tfrl[mujoco]\n"
    path = written(tmp_path, HEADER.replace("Pendulum-v1\n", needs))
    assert zoo.read_entry(path).needs == "tfrl[mujoco]"
    assert command.main(["zoo", f"--folder={tmp_path}", "mujoco"]) == 0
    assert "Pendulum-v1 needs tfrl[mujoco]" in capsys.readouterr().out
    assert command.main(["zoo", f"--folder={tmp_path}", "mujoco", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["needs"] == "tfrl[mujoco]"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("v1\n# Source", "v1\n# Needs: mujoco\n# Source", "an extra, such as tfrl["),
        ("# Agent", "# Needs: tfrl[mujoco]\n# Agent", "Environment, Needs, Source"),
        ("Pendulum-v1.\n#\n", "Pendulum-v1\n#\n", "a sentence"),
        ("# Steps: 10,000\n", "", "the fields Agent"),
        ("# Steps: 10,000\n", "# Steps: 10,000\n# Steps: 1\n", "each name once"),
        ("# Agent:", "# agent:", "`# Name: value`"),
        ("10,000", "many", "a whole number, such as 100,000; got 'many'"),
        ("sac_pendulum.gin", "sac.gin", "configs/sac_pendulum.gin --seeds"),
        ("-150.5, -151.5", "-150.5", "2 numbers, one a seed"),
        ("-150.5, -151.5", "about -150, 3", "2 numbers, one a seed"),
        ("mean >= -180", "-180", "Expected: mean >= NUMBER"),
        ("10% ", "1000% ", "shares increasing"),
        ("10% -1200.1 (", "10% -1200.1 [", "SHARE% MEAN"),
        ("-150.5, -151.5", "not here", "2 numbers, one a seed"),
        ("-150.5, -151.5", "not here, no GPU.", "the fields"),
    ],
)
def test_another_form_is_refused(tmp_path, old, new, words):
    assert old in HEADER
    path = written(tmp_path, HEADER.replace(old, new))
    with pytest.raises(ValueError, match="`read_entry`: `path` expected a header") as e:
        zoo.read_entry(path)
    assert words in str(e.value) and str(path) in str(e.value)


def test_the_command_lists_them(tmp_path, capsys):
    written(tmp_path)
    unmeasured = NOT_MEASURED.replace("sac_pendulum", "sac_big")
    written(tmp_path, unmeasured, "sac_big.gin")
    written(tmp_path, "shared = 1\n", "shared.gin")
    flag = f"--folder={tmp_path}"
    assert command.main(["zoo", flag]) == 0
    head, big, small, _, place = capsys.readouterr().out.splitlines()
    assert place == f"they are in {tmp_path}"
    assert head.split()[:3] == ["config", "agent", "environment"]
    assert big.startswith("sac_big") and "Not measured: no GPU." in big
    for word in ("-151.0", "-151.5", "1:02:05", "10,000", "table 2"):
        assert word in small
    assert command.main(["zoo", flag, "--json", "PENDULUM", "sac_p"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["mean"] == -151.0 and row["curve"][0]["share"] == 0.1
    for flags in ([], ["--json"]):
        assert command.main(["zoo", flag, "sac", "nothing", *flags]) == 2
        out, err = capsys.readouterr()
        (line,) = err.splitlines()
        assert not out and line.startswith("tfrl zoo: error: `tfrl zoo`: `WORD` expe")
        assert "got 'sac nothing'" in line
    assert command.main(["zoo", f"--folder={tmp_path}/none"]) == 2
    assert "expected gin files; got none" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["prefix", "target"])
def test_it_is_found_where_it_was_installed(kind, tmp_path, monkeypatch):
    root = tmp_path / "lib" / "python3" / "site-packages"
    record = root / "tfrl-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    (record.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: tfrl\n")
    monkeypatch.setattr(zoo_files, "_ROOT", root)
    assert zoo_files.found("sac_pendulum") == "sac_pendulum"
    with pytest.raises(ValueError, match="`zoo_folder`: expected the configurations"):
        zoo.zoo_folder()
    record.write_text("../../../share/tfrl/configs/sac_pendulum.gin,,\n")
    place = {"prefix": tmp_path, "target": root}[kind] / "share" / "tfrl" / "configs"
    place.mkdir(parents=True)
    path = written(place)
    assert [found.path for found in zoo.list_zoo()] == [path]
    monkeypatch.chdir(tmp_path)
    for name in ("sac_pendulum", "sac_pendulum.gin", "configs/sac_pendulum.gin"):
        flags = entry.train_flags([name, f"--config_file={name}"], "tfrl train")
        assert [*flags.config, *flags.config_file] == [str(path)] * 2
    for name in ("sac_absent", "mine/sac_pendulum.gin", f"{tmp_path}/sac_pendulum"):
        assert entry.train_flags([name], "tfrl train").config == [name]
    own = written(tmp_path)
    assert entry.train_flags([own.name], "tfrl train").config == [own.name]


def test_a_narrow_terminal_shows_all_numbers(monkeypatch, capsys):
    (entry,) = [
        x for x in zoo.list_zoo() if x.path.stem == "ppo_lunarlander_continuous"
    ]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(zoo._tables.Tables, "is_terminal", True)
    zoo.show([entry])
    told = capsys.readouterr().out
    assert f"{entry.steps:,}" in told and f"{entry.mean:,.1f}" in told
    assert "source" not in told and "\u2026" not in told
    assert max(map(len, told.splitlines())) <= 80
