"""Tests of `tfrl.datasets.recorded`, with Minari itself for the other side."""

import zipfile

import gymnasium as gym
import minari
import numpy as np
import pytest

from tfrl.datasets import recorded, recorded_rows

S = gym.spaces
SPACES = (S.Dict(x=S.Box(-9.0, 9.0, (2,)), k=S.Discrete(5)), S.Box(-1.0, 1.0, (1,)))


@pytest.fixture(autouse=True)
def own_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))


def rows_of(lengths, n_open=0):
    """Episodes that count their steps; the last `n_open` rows belong to none."""
    starts = np.cumsum([0, *lengths])
    n = starts[-1] + n_open
    count = np.concatenate([np.arange(x) for x in (*lengths, n_open)])
    ended = np.zeros(n, bool)
    ended[starts[1:] - 1] = True
    terminated = ended & (np.arange(n) % 2 == 0)
    x = np.stack([count, np.arange(n)], axis=-1).astype(np.float32)
    return {
        "observations": {"x": x, "k": count % 5},
        "actions": np.linspace(-1.0, 1.0, n, dtype=np.float32)[:, None],
        "rewards": np.arange(n, dtype=np.float32),
        "terminated": terminated,
        "truncated": ended & ~terminated,
        "next_observations": {"x": x + 1.0, "k": (count + 1) % 5},
    }


def assert_rows(found, expected):
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        pairs = value.items() if isinstance(value, dict) else [(None, value)]
        for key, array in pairs:
            got = found[name] if key is None else found[name][key]
            np.testing.assert_array_equal(got, array, err_msg=f"{name} {key}")


def test_what_is_written_is_read_again():
    rows = rows_of([3, 1, 4])
    folder = recorded.write_minari("try/it-v0", rows, SPACES, algorithm="none")
    assert folder.is_dir()
    found = recorded.MinariDataset("try/it-v0")()
    assert_rows(found, rows)
    assert found["rewards"].dtype == np.float32 and found["terminated"].dtype == bool


def test_minari_reads_what_is_written():
    recorded.write_minari("it-v0", rows_of([3, 1, 4]), SPACES)
    episodes = list(minari.load_dataset("it-v0").iterate_episodes())
    assert [len(x) for x in episodes] == [3, 1, 4]
    first = episodes[0]
    np.testing.assert_array_equal(first.observations["x"][:, 0], [0, 1, 2, 3])
    assert first.terminations.tolist() == [False, False, True]
    assert episodes[2].truncations.tolist() == [False] * 3 + [True]


@pytest.mark.parametrize("is_marked", [True, False])
def test_what_minari_writes_is_read(is_marked):
    """Its own classes, with T + 1 observations of an episode, cut off at its end."""
    buffer = minari.data_collector.EpisodeBuffer(
        observations=np.arange(4, dtype=np.float32)[:, None],
        actions=np.array([2, 0, 1]),
        rewards=[1.0, 2.0, 3.0],
        terminations=[False, False, False],
        truncations=[False, False, is_marked],
    )
    with pytest.warns(UserWarning):
        minari.create_dataset_from_buffers(
            "theirs-v0",
            [buffer, buffer],
            observation_space=S.Box(-9.0, 9.0, (1,)),
            action_space=S.Discrete(3),
            data_format="hdf5",
        )
    found = recorded.MinariDataset("theirs-v0")()
    assert found["observations"][:, 0].tolist() == [0, 1, 2, 0, 1, 2]
    assert found["next_observations"][:, 0].tolist() == [1, 2, 3, 1, 2, 3]
    assert found["truncated"].tolist() == [False, False, True] * 2
    assert not found["terminated"].any() and found["actions"].shape == (6,)


def test_what_goes_on_counts_as_truncated():
    recorded.write_minari("open-v0", rows_of([2], n_open=3), SPACES)
    found = recorded.MinariDataset("open-v0")()
    assert found["truncated"].tolist() == [False, True, False, False, True]


def changed(**columns):
    return {**rows_of([3, 1, 4]), **columns}


UNKNOWN = {"x": np.full((8, 2), np.nan, "f"), "k": np.zeros(8, int)}


def choices_from(first):
    seen = rows_of([3, 1, 4])["observations"]
    return changed(observations={**seen, "k": seen["k"] + first})


def gap(rows):
    rows["next_observations"]["x"][5] += 0.5
    return rows


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (gap(rows_of([3, 1, 4])), "`next_observations` .* got others in row 5"),
        ({"rewards": np.zeros(2)}, r"'next_observations'\]; got none of \['observ"),
        (
            {k: v[:0] for k, v in rows_of([2]).items() if k[-7:] != "vations"}
            | {x: {} for x in ("observations", "next_observations")},
            "a row at least",
        ),
        (changed(actions=np.zeros((8, 2), "f")), r"actions of .*Box.*shape"),
        (changed(observations={"x": np.zeros((8, 2), "f")}), "observations of .*Dict"),
        (changed(actions=np.full((8, 1), 9.0, "f")), "got 9.0 in row 0; .*np.clip"),
        (choices_from(7), r"observations\['k'\] inside of Discrete.*; got 7 in row 0"),
        (changed(rewards=np.full(8, np.nan)), "finite rewards; got nan in row 0"),
        (changed(next_observations=UNKNOWN), "finite next_obs.*; got nan in row 0"),
        (changed(rewards=np.zeros(7)), "as many rows in each column"),
    ],
    ids=[
        *("gap", "columns", "none", "actions", "part", "bounds", "choices", "rewards"),
        *("unknown", "lengths"),
    ],
)
def test_what_a_set_cannot_hold_is_refused(rows, words):
    with pytest.raises(ValueError, match=f"`write_minari`: `rows` expected .*{words}"):
        recorded.write_minari("off-v0", rows, SPACES)
    assert not minari.list_local_datasets()


def test_a_set_knows_its_environment():
    env = gym.make("CartPole-v1")
    rows = {
        "observations": np.zeros((2, 4), np.float32),
        "actions": np.zeros(2, np.int64),
        "rewards": np.ones(2, np.float32),
        "terminated": np.ones(2, bool),
        "truncated": np.zeros(2, bool),
        "next_observations": np.zeros((2, 4), np.float32),
    }
    spaces = env.observation_space, env.action_space
    recorded.write_minari("cart-v0", rows, spaces, env_spec=env.spec)
    env.close()
    for options in ({}, {"eval_env": True}):
        again = minari.load_dataset("cart-v0").recover_environment(**options)
        assert again.spec.id == "CartPole-v1"
        again.close()


def test_archives(tmp_path):
    rows = rows_of([3, 2])
    recorded.write_npz(tmp_path / "rows.npz", rows)
    assert_rows(recorded.NpzDataset(str(tmp_path / "rows.npz"))(), rows)
    pair = {"actions": (np.arange(3), {"a": np.ones(3)})}
    recorded.write_npz(tmp_path / "rows.npz", pair)
    found = recorded.NpzDataset(str(tmp_path / "rows.npz"))()["actions"]
    assert isinstance(found, tuple)
    assert found[0].tolist() == [0, 1, 2] and found[1]["a"].tolist() == [1, 1, 1]


KEYS = ("cam/rgb", "cam", "#0", "#1", "", "%", "50%", "%2F", "a/b/c", "x y", "ä")


@pytest.mark.parametrize("keys", [KEYS, ("#0", "#1"), ("",), ("a", "a/b")])
def test_keys_are_whatever_they_are(keys, tmp_path):
    rows = {"observations": {key: np.full(2, i) for i, key in enumerate(keys)}}
    recorded.write_npz(tmp_path / "rows.npz", rows)
    found = recorded.NpzDataset(str(tmp_path / "rows.npz"))()["observations"]
    assert {k: x.tolist() for k, x in found.items()} == {
        key: [i, i] for i, key in enumerate(keys)
    }


def test_keys_of_numbers_become_texts(tmp_path):
    rows = {"observations": {0: np.zeros(2), 1: np.ones(2)}}
    recorded.write_npz(tmp_path / "rows.npz", recorded_rows.join_rows([rows]))
    found = recorded.NpzDataset(str(tmp_path / "rows.npz"))()["observations"]
    assert {k: x.tolist() for k, x in found.items()} == {"0": [0, 0], "1": [1, 1]}


def test_archives_of_earlier_versions_are_read(tmp_path):
    old = {"observations/a": np.ones(2), "actions/#0": np.ones(2), "rewards": [0, 1]}
    np.savez(tmp_path / "old.npz", **old)
    found = recorded.NpzDataset(str(tmp_path / "old.npz"))()
    assert [*found["observations"]] == ["a"] and isinstance(found["actions"], tuple)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"x": np.array([None, {}])}, "got Python objects as 'x'"),
        ({"x": {"a": np.float64(3)}}, "got a single value as 'x/a'"),
        ({"x": np.zeros((3, 2)), "y": {"a": np.ones(4)}}, "{'x': 3, 'y/a': 4}"),
    ],
)
def test_what_are_no_rows_is_not_written(rows, words, tmp_path):
    with pytest.raises(ValueError, match=f"`write_npz`: `rows` expected .*{words}"):
        recorded.write_npz(tmp_path / "rows.npz", rows)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(ValueError, match=f"`join_rows`: `parts` expected .*{words}"):
        recorded_rows.join_rows([rows])


@pytest.mark.parametrize("place", [0, 1])
def test_keys_that_minari_would_part(place):
    inner = S.Tuple([S.Dict({"cam/rgb": S.Box(-1.0, 1.0, (1,))})])
    rows, spaces = rows_of([2]), [*SPACES]
    column = ({"cam/rgb": np.zeros((2, 1), np.float32)},)
    spaces[place] = inner
    rows |= {("observations", "actions")[place]: column}
    if not place:
        rows["next_observations"] = column
    with pytest.raises(ValueError, match="`spaces` expected keys without '/'.*cam/rgb"):
        recorded.write_minari("parted-v0", rows, spaces)
    assert not minari.list_local_datasets()


class Held(gym.Env):
    observation_space, action_space = SPACES


def test_a_spec_that_cannot_be_written_is_left_out():
    rows = rows_of([2])
    named = gym.envs.registration.EnvSpec("Held-v0", entry_point="held:Held")
    recorded.write_minari("named-v0", rows, SPACES, env_spec=named)
    of_a_class = gym.envs.registration.EnvSpec("Held-v0", entry_point=Held)
    with pytest.warns(UserWarning, match=r"`env_spec` .*Callable.*'module:Class'"):
        recorded.write_minari("class-v0", rows, SPACES, env_spec=of_a_class)
    assert_rows(recorded.MinariDataset("class-v0")(), rows)
    kept = [
        minari.load_dataset(name).storage.metadata.get("eval_env_spec", "none")
        for name in ("named-v0", "class-v0")
    ]
    assert "held:Held" in kept[0] and kept[1] == "none"


@pytest.mark.parametrize("name", ["bad", "q/x-v0", "a b-v0", "", "/x-v0", "x-v"])
def test_no_set_is_begun_under_a_name_that_is_none(name, tmp_path):
    for call, place in (
        (lambda: recorded.check_new(None, name), "`collect`: `--minari`"),
        (
            lambda: recorded.write_minari(name, rows_of([2]), SPACES),
            "`write_minari`: `name`",
        ),
    ):
        words = rf"{place} expected \[NAMESPACE/\]NAME-vN, .*; got {name!r}$"
        with pytest.raises(ValueError, match=words):
            call()
    assert not [*tmp_path.glob("sets/*")]


def test_a_set_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    recorded.write_minari("old/one-v0", rows_of([2]), SPACES)
    before = sorted(tmp_path.rglob("*"))

    def fail(*args, **kwargs):
        raise OSError("disk full")

    storage = type(minari.load_dataset("old/one-v0").storage)
    monkeypatch.setattr(storage, "update_episodes", fail)
    for name in ("old/two-v0", "new/inner/one-v0", "one-v0"):
        recorded.check_new(None, name)
        with pytest.raises(OSError, match="disk full"):
            recorded.write_minari(name, rows_of([2]), SPACES)
        assert sorted(tmp_path.rglob("*")) == before
    assert [*minari.list_local_datasets()] == ["old/one-v0"]


def test_what_is_not_there_is_told(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"`MinariDataset`: `name` .*'absent-v0'"):
        recorded.MinariDataset("absent-v0")()
    with pytest.raises(TypeError, match="`MinariDataset`: `name` expected"):
        recorded.MinariDataset(3)
    recorded.write_minari("once-v0", rows_of([2]), SPACES)
    with pytest.raises(ValueError, match="`write_minari`: `name` expected .*once-v0"):
        recorded.write_minari("once-v0", rows_of([2]), SPACES)
    (tmp_path / "other.npz").write_bytes(b"no archive")
    (tmp_path / "empty.npz").touch()
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", actions=np.array([None]))
    with zipfile.ZipFile(tmp_path / "texts.npz", "w") as file:
        file.writestr("actions.txt", "0 1")
    for name, got in (
        ("absent.npz", "no file"),
        ("other.npz", "another file"),
        ("empty.npz", "another file"),
        ("one.npy", "another file"),
        ("objects.npz", "objects or damaged arrays there"),
        ("texts.npz", "others than arrays there"),
    ):
        message = f"`NpzDataset`: `path` expected .*; got {got}, '/.*{name}'$"
        with pytest.raises(ValueError, match=message):
            recorded.NpzDataset(str(tmp_path / name))()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"got no file, '{tmp_path}/absent.npz'"):
        recorded.NpzDataset("absent.npz")()
    with pytest.raises(ValueError, match="`write_npz`: `path` expected"):
        recorded.write_npz(tmp_path / "rows.csv", rows_of([2]))
