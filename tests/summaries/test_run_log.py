"""Tests of the log of a run: what is written, resumed, widened and refused."""

import errno
import json
import os
import tempfile

import event_files
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tfrl._internal import durable
from tfrl.summaries import run_log

COLUMNS = ["train/loss", "eval/return_mean"]


def points(directory, tag):
    """What TensorBoard would show: (step, value) of one tag over all event files."""
    found = event_files.points(directory).get(tag, [])
    return [(step, value.item()) for step, value in found]


def test_csv_is_written_as_stated(tmp_path):
    with run_log.RunLog(tmp_path / "new" / "run", COLUMNS) as log:
        log.write(256, {"eval/return_mean": 21, "train/loss": 0.1})
        log.write(512, {"train/loss": float("nan")})
        log.write(512, {})
        assert log.path.read_text() == (
            "env_steps,train/loss,eval/return_mean\n256,0.1,21\n512,nan,\n512,,\n"
        )


def test_floats_come_back_bit_for_bit(tmp_path):
    half = tf.constant(1.5, tf.bfloat16)
    values = [0.1, 1e-300, 1e300, 1 / 3, np.float32(0.1), np.float64(np.pi), np.inf]
    values += [tf.constant(0.7), half]
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        for value in values:
            log.write(1, {"train/loss": value})
    found = run_log.read_metrics(log.path)["train/loss"]
    assert found.tolist() == [float(value) for value in values]
    # What TensorBoard's float32 does not hold is infinite there.
    assert points(tmp_path, "train/loss")[2] == (1, np.inf)
    assert points(tmp_path, "train/loss")[-1] == (1, 1.5)


def test_read_metrics(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("env_steps,a,b\n1,,2.5\n2,nan,-1e3\n3,4")
    metrics = run_log.read_metrics(path)
    assert list(metrics) == ["env_steps", "a", "b"]
    np.testing.assert_array_equal(metrics["env_steps"], [1.0, 2.0])
    np.testing.assert_array_equal(metrics["a"], [np.nan, np.nan])
    np.testing.assert_array_equal(metrics["b"], [2.5, -1000.0])
    assert all(column.dtype == np.float64 for column in metrics.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "header line"),
        ("env_steps,a", "header line"),
        ("env_steps,a\n1\n", "expected 2 numbers in each row; got '1' in line 2"),
        ("env_steps,a\n1,2\n1,2,3\n", "got '1,2,3' in line 3"),
        ("env_steps,a\n1,x\n", "got '1,x' in line 2"),
        (b"\x89PNG\xff\xfe\n", "expected a text file; got .*metrics.csv"),
    ],
    ids=["empty", "half_header", "short_row", "long_row", "word", "picture"],
)
def test_read_metrics_refuses(tmp_path, text, message):
    path = tmp_path / "metrics.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=f"`read_metrics`: `path` .*{message}"):
        run_log.read_metrics(path)


def test_rows_and_points_are_there_before_close(tmp_path):
    log = run_log.RunLog(tmp_path, COLUMNS)
    log.write(256, {"train/loss": 0.5})
    log.write(512, {"train/loss": 0.25, "eval/return_mean": 30})
    assert len(run_log.read_metrics(log.path)["env_steps"]) == 2
    assert points(tmp_path, "train/loss") == [(256, 0.5), (512, 0.25)]
    assert points(tmp_path, "eval/return_mean") == [(512, 30.0)]
    log.close()
    log.close()
    assert len(list(tmp_path.glob("*tfevents*"))) == 1


def test_tensorboard_knows_scalars_and_text(tmp_path):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.text("config", "    ppo.clip = 0.2")
        log.write(256, {"train/loss": float("nan")})
    plugins = event_files.plugins(tmp_path)
    assert plugins == {"config": "text", "train/loss": "scalars"}
    assert points(tmp_path, "config") == [(0, b"    ppo.clip = 0.2")]
    assert np.isnan(points(tmp_path, "train/loss")[0][1])


def test_resumed_run_equals_uninterrupted_run(tmp_path):
    def rows(log, start, end):
        for steps in range(start, end):
            log.write(steps, {"train/loss": steps / 7})

    with run_log.RunLog(tmp_path / "whole", COLUMNS) as whole:
        rows(whole, 1, 9)
    with run_log.RunLog(tmp_path / "parts", COLUMNS) as log:
        rows(log, 1, 5)
        position = json.loads(json.dumps(log.position()))
        written = tmp_path / "parts" / position["event_file"]
        assert position["event_bytes"] == written.stat().st_size
        rows(log, 5, 8)
    for _ in range(2):  # killed and resumed twice from one checkpoint
        log = run_log.RunLog(tmp_path / "parts", COLUMNS, resume_at=position)
        with log:
            assert log.position()["csv_bytes"] == position["csv_bytes"]
            assert log.position()["env_steps"] == 4
            assert points(tmp_path / "parts", "train/loss")[-1][0] == 4
            rows(log, 5, 9)
    assert log.path.read_bytes() == whole.path.read_bytes()
    expected = points(tmp_path / "whole", "train/loss")
    assert len(expected) == 8
    assert points(tmp_path / "parts", "train/loss") == expected


def test_tensorboard_that_was_open_all_the_time_forgets_dropped_points(tmp_path):
    module = pytest.importorskip(
        "tensorboard.backend.event_processing.plugin_event_accumulator"
    )
    accumulator = module.EventAccumulator(str(tmp_path))

    def shown():
        events = accumulator.Reload().Tensors("train/loss")
        return [(e.step, tf.make_ndarray(e.tensor_proto).item()) for e in events]

    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.text("config", "text")
        log.write(1, {"train/loss": 1})
        position = log.position()
        log.write(2, {"train/loss": 2})
        log.write(4, {"train/loss": 4})
        assert shown() == [(1, 1.0), (2, 2.0), (4, 4.0)]
    with run_log.RunLog(tmp_path, COLUMNS, resume_at=position) as log:
        assert shown() == [(1, 1.0)]
        log.write(3, {"train/loss": 3})
    assert shown() == [(1, 1.0), (3, 3.0)]
    assert len(accumulator.Tensors("config")) == 1


def test_start_position_drops_everything(tmp_path):
    with run_log.RunLog(tmp_path, ["old"]) as log:
        log.write(10, {"old": 1})
    other = tmp_path / "events.out.tfevents.1.other"
    other.write_bytes(b"")
    with run_log.RunLog(tmp_path, COLUMNS, resume_at=run_log.RunLog.START) as log:
        log.write(5, {"train/loss": 2})
    assert log.path.read_text() == "env_steps,train/loss,eval/return_mean\n5,2,\n"
    assert points(tmp_path, "old") == []
    assert other.exists()
    assert points(tmp_path, "train/loss") == [(5, 2.0)]


def files_of(folder):
    return {path: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("columns", "change", "message"),
    [
        (COLUMNS, {"csv_bytes": 10_000}, "resume_at` .*byte 10000, the end of a row"),
        (COLUMNS, {"csv_bytes": 40}, "resume_at` .*end of a row"),
        (["train/loss"], {}, "columns` expected those of"),
        (COLUMNS + ["c"], {}, "columns` expected those of"),
        (COLUMNS, {"more": 1}, r"resume_at` .*what `position\(\)` returned"),
        (COLUMNS, None, "directory` .*without metrics.csv"),
    ],
    ids=["short", "inside_row", "fewer", "more", "keys", "no_position"],
)
def test_refused_resume_changes_nothing(tmp_path, columns, change, message):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.write(1, {"train/loss": 1.5})
        position = log.position()
        log.write(2, {"train/loss": 2.5})
    before = files_of(tmp_path)
    resume_at = None if change is None else {**position, **change}
    with pytest.raises(ValueError, match=message):
        run_log.RunLog(tmp_path, columns, resume_at=resume_at)
    assert files_of(tmp_path) == before


def test_a_changed_row_is_refused(tmp_path):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.write(1, {"train/loss": 1.5})
        position = log.position()
        log.write(2, {"train/loss": 2.5})
    text = log.path.read_text()
    # What comes after the position is dropped, whatever it is: half a row of a kill.
    log.path.write_text(text.replace("2.5,\n", "7."))
    with run_log.RunLog(tmp_path, COLUMNS, resume_at=position) as again:
        assert again.position()["csv_sha256"] == position["csv_sha256"]
        again.write(2, {"train/loss": 2.5})
    assert log.path.read_text() == text
    log.path.write_text(text.replace("1.5", "1.6"))
    with pytest.raises(ValueError, match="as it was written up to byte"):
        run_log.RunLog(tmp_path, COLUMNS, resume_at=position)
    assert "1.6" in log.path.read_text()
    # A position of old says nothing about the content.
    position.pop("csv_sha256")
    with run_log.RunLog(tmp_path, COLUMNS, resume_at=position) as old:
        old.write(2, {})
    assert "1.6" in log.path.read_text()


def test_resume_without_the_file_is_refused(tmp_path):
    position = run_log.RunLog.START | {"csv_bytes": 38}
    with pytest.raises(ValueError, match="end of a row .*; got no such file"):
        run_log.RunLog(tmp_path / "gone", COLUMNS, resume_at=position)
    assert not (tmp_path / "gone").exists()


def test_bad_columns_are_refused(tmp_path):
    bad = ["a,b", '"a"', "", "a\nb", "a\x85b", "a\u2028b", 5, "env_steps"]
    for columns in ([name] for name in bad):
        with pytest.raises(
            ValueError, match="`RunLog`: `columns` expected distinct nam"
        ):
            run_log.RunLog(tmp_path, columns)
    with pytest.raises(ValueError, match="`RunLog`: `columns` expected distinct names"):
        run_log.RunLog(tmp_path, ["a", "a"])
    assert os.listdir(tmp_path) == []


def test_bad_rows_are_refused_and_not_written(tmp_path):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        with pytest.raises(ValueError, match="`env_steps` .*0 at first.*got -1"):
            log.write(-1, {})
        log.write(5, {})
        before = log.path.read_bytes()
        with pytest.raises(ValueError, match=r"among \['train/loss'.*got \['loss'\]"):
            log.write(6, {"loss": 1.0})
        with pytest.raises(ValueError, match="at least the 5 of the last row.*got 4"):
            log.write(4, {})
        for value in ("3", [1.0], np.zeros(2), 1j, None):
            with pytest.raises(TypeError, match="one real number for 'train/loss'"):
                log.write(6, {"train/loss": value})
        with pytest.raises(TypeError, match="integer"):
            log.write(6.0, {})
        with pytest.raises(ValueError, match="`env_steps` expected .* got 9223372036"):
            log.write(1 << 63, {"train/loss": 1.0})
        assert log.path.read_bytes() == before
    for method, *given in (["write", 7, {}], ["text", "a", "b"], ["position"]):
        with pytest.raises(
            ValueError, match=f"`RunLog.{method}`: expected an open log"
        ):
            getattr(log, method)(*given)


def test_columns_are_added_at_the_end(tmp_path):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.write(1, {"train/loss": 0.5})
        log.widen(["q", "train/loss", "entropy"])
        assert log.columns == (*COLUMNS, "q", "entropy")
        log.write(2, {"entropy": 3, "train/loss": 0.25})
        assert log.position()["columns"] == 4
        assert run_log.RunLog.fits(log.path.read_bytes(), log.position())
        log.widen(["q"])
        log.widen([])
        assert log.path.read_text() == (
            "env_steps,train/loss,eval/return_mean,q,entropy\n1,0.5,,,\n2,0.25,,,3\n"
        )
    assert len(os.listdir(tmp_path)) == 2
    assert points(tmp_path, "train/loss") == [(1, 0.5), (2, 0.25)]
    assert points(tmp_path, "entropy") == [(2, 3.0)]
    with pytest.raises(ValueError, match="`RunLog.widen`: expected an open log"):
        log.widen(["late"])


@pytest.mark.parametrize(
    ("columns", "change", "message"),
    [
        (["train/loss"], ("", ""), "`columns` expected those of"),
        ([*COLUMNS, "q"], ("", ""), "`columns` expected those of"),
        ([*COLUMNS, "r", "q"], ("", ""), "`columns` expected those of"),
        (COLUMNS, ("1.5", "1.6"), "as it was written up to byte"),
        (COLUMNS, ("train/loss", "train/lass"), "as it was written up to byte"),
        (COLUMNS, ("1,1.5,,,", "1,1.5,,,9"), "end of a row"),
        (COLUMNS, ("1,1.5,,,", "1,1.5,99"), "end of a row"),
        (COLUMNS, ("1,1.5,,,", "1,1.5,,"), "as it was written up to byte|end of a row"),
        (COLUMNS, ("1,1.5,,,\n", ""), "as it was written up to byte|end of a row"),
        (COLUMNS, (",q,r", ",q"), "as it was written up to byte|end of a row"),
        (COLUMNS, (",q,r", ""), "as it was written up to byte|end of a row"),
    ],
    ids=(
        "fewer between other value name filled other_end short_row lost_row "
        "short_header narrow_header"
    ).split(),
)
def test_what_does_not_fit_a_widened_file_changes_nothing(
    tmp_path, columns, change, message
):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.write(1, {"train/loss": 1.5})
        position = log.position()
        log.widen(["q", "r"])
        log.write(2, {"train/loss": 2.5})
    log.path.write_text(log.path.read_text().replace(*change))
    assert run_log.RunLog.fits(log.path.read_bytes(), position) is (not any(change))
    before = files_of(tmp_path)
    with pytest.raises(ValueError, match=message):
        run_log.RunLog(tmp_path, columns, resume_at=position)
    assert files_of(tmp_path) == before


def test_a_narrower_file_than_the_position_is_refused(tmp_path):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.write(1, {"train/loss": 1.5})
        old = log.path.read_bytes()
        log.widen(["q"])
        position = log.position()
    log.path.write_bytes(old)
    with pytest.raises(ValueError, match="end of a row"):
        run_log.RunLog(tmp_path, COLUMNS, resume_at=position)
    assert log.path.read_bytes() == old


def test_refused_widenings_change_nothing(tmp_path):
    with run_log.RunLog(tmp_path, COLUMNS) as log:
        log.write(1, {"train/loss": 1.5})
        before = log.path.read_bytes()
        for names in (["a,b"], ["a", "a"], ["env_steps"], [""], [5]):
            with pytest.raises(ValueError, match="`RunLog.widen`: `names` expected"):
                log.widen(names)
        assert log.columns == tuple(COLUMNS) and log.path.read_bytes() == before
        # A digest computed anew would hide what was changed.
        changed = before.replace(b"1.5", b"1.6")
        log.path.write_bytes(changed)
        with pytest.raises(ValueError, match="`RunLog.widen`: expected .* as it was"):
            log.widen(["q"])
        assert log.path.read_bytes() == changed
        log.path.write_bytes(before)
        log.widen(["q"])
        log.write(2, {"q": 1})
    assert run_log.read_metrics(log.path)["env_steps"].tolist() == [1, 2]


def test_a_disk_that_takes_no_wider_file(tmp_path, monkeypatch):
    log = run_log.RunLog(tmp_path, COLUMNS)
    log.write(1, {"train/loss": 1.5})
    position, before = log.position(), log.path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "flush_to_disk", full)
        with pytest.raises(OSError, match="`RunLog`: `directory` expected a disk"):
            log.widen(["q"])
    assert log.path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == [position["event_file"], "metrics.csv"]
    with pytest.raises(ValueError, match="expected an open log"):
        log.write(2, {})
    log.close()
    with run_log.RunLog(tmp_path, COLUMNS, resume_at=position) as log:
        log.widen(["q"])


NAMES = st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True)
NUMBERS = st.one_of(st.integers(-9, 99), st.floats())


class WidenedLogs(RuleBasedStateMachine):
    """A log against plain dicts: rows, widenings, positions, kills at any moment."""

    @initialize(columns=NAMES)
    def begin(self, columns):
        self.folder = tempfile.TemporaryDirectory()
        self.log = run_log.RunLog(self.folder.name, columns)
        self.columns, self.rows, self.steps = list(columns), [], 0
        self.places = [(dict(run_log.RunLog.START), 0, columns)]

    @rule(more=st.integers(1, 200), data=st.data())
    def write(self, more, data):
        self.steps += more
        names = data.draw(st.sets(st.sampled_from(self.columns or ["none"])))
        row = {name: data.draw(NUMBERS) for name in names if name in self.columns}
        self.log.write(self.steps, row)
        self.rows.append({"env_steps": self.steps, **row})

    @rule(names=NAMES)
    def widen(self, names):
        self.log.widen(names)
        self.columns += [name for name in names if name not in self.columns]

    @rule()
    def keep_position(self):
        position = json.loads(json.dumps(self.log.position()))
        self.places.append((position, len(self.rows), list(self.columns)))

    @rule(data=st.data(), junk=st.sampled_from([b"", b"7", b"7,,,,,,,,,\n,,\n9,"]))
    def kill(self, data, junk):
        with self.log.path.open("ab") as file:
            file.write(junk)
        self.go_on(data)

    @precondition(lambda self: len(self.columns) < 8)
    @rule(data=st.data(), is_renamed=st.booleans(), names=NAMES.filter(bool))
    def kill_while_widening(self, data, is_renamed, names):
        rename, path = os.rename, self.log.path

        def killed(source, target):
            if is_renamed:
                rename(source, target)
            raise MemoryError

        new = [name for name in names if name not in self.columns]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(durable.os, "rename", killed)
            if new:
                with pytest.raises(MemoryError):
                    self.log.widen(names)
                with pytest.raises(ValueError, match="expected an open log"):
                    self.log.write(self.steps, {})
        if is_renamed:
            self.columns += new
        else:
            path.with_name(".writing-metrics.csv").write_bytes(b"env_steps,half")
        self.check()
        self.go_on(data)

    def go_on(self, data):
        """Opens the log at an earlier position; those after it are gone."""
        self.log.close()  # writes nothing
        index = data.draw(st.integers(0, len(self.places) - 1))
        self.places = self.places[: index + 1]
        position, count, then = self.places[index]
        lacking = data.draw(
            st.sampled_from([(), ("columns",), ("columns", "csv_sha256")])
        )
        position = {name: position[name] for name in position if name not in lacking}
        columns = data.draw(st.sampled_from([then, self.columns]))
        self.log = run_log.RunLog(self.folder.name, columns, position)
        if not position["csv_bytes"]:
            self.columns = list(columns)
        self.rows = self.rows[:count]
        self.steps = self.rows[-1]["env_steps"] if self.rows else 0

    @invariant()
    def check(self):
        names = ["env_steps", *self.columns]
        lines = [names, *([repr(row.get(x, "")) for x in names] for row in self.rows)]
        text = "".join(",".join(line) + "\n" for line in lines).replace("''", "")
        assert self.log.path.read_text() == text
        for position, _, _ in self.places:
            assert run_log.RunLog.fits(text.encode(), position)

    @rule()
    def look_at_the_points(self):
        found = event_files.points(self.folder.name)
        for name in self.columns:
            rows = [(row["env_steps"], row[name]) for row in self.rows if name in row]
            steps, values = zip(*rows, strict=True) if rows else ((), ())
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(
                    [x.item() for _, x in found.get(name, [])], np.float32(values)
                )
            assert [step for step, _ in found.get(name, [])] == list(steps)

    def teardown(self):
        self.log.close()
        self.folder.cleanup()


@pytest.mark.parametrize(
    "examples", [4, pytest.param(60, marks=pytest.mark.slow)], ids=str
)
def test_rows_survive_widenings_and_kills(examples):
    how = settings(max_examples=examples, stateful_step_count=20)
    run_state_machine_as_test(WidenedLogs, settings=how)
