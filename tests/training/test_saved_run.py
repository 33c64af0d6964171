"""Saved runs: opened by what they keep, played, filmed, exported."""

import dataclasses
import functools
import json
import pathlib
import re
import shutil
import types
from typing import Any

import full_disks
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_agents
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from PIL import Image
from tiny_agents import MAKE as MAKE_POLE
from tiny_agents import Tiny, assert_same, train

from tfrl.agents.on_policy import policy_gradient, ppo
from tfrl.configuring import configs
from tfrl.environments import vector
from tfrl.exporting import export
from tfrl.policies import policy
from tfrl.saving import typed_json
from tfrl.schedules import schedulers
from tfrl.summaries.filming import panels
from tfrl.training import (
    _kept_arguments,
    cadence,
    doctor,
    experience,
    saved_run,
    trainer,
)


class Slide(gym.Env):
    """Ends when 1 was chosen `goal` times; draws as many white rows."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, goal=3, render_mode=None):
        self.goal, self.render_mode = goal, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.observe(), {}

    def observe(self):
        return np.array([self.place, self.goal], np.float32)

    def step(self, action):
        self.place += int(action)
        return self.observe(), float(action), self.place >= self.goal, False, {}

    def render(self):
        if self.goal == 13:
            raise gym.error.DependencyNotInstalled("a brush is missing")
        picture = np.zeros([16, 16, 3], np.uint8)
        picture[: self.place] = 255
        return picture


class Dark(Slide):
    metadata = {"render_modes": ["ansi"], "render_fps": 30}


gym.register("Slide-v0", Slide, max_episode_steps=9)
gym.register("Dark-v0", Dark)
MAKE = functools.partial(
    vector.make_vec, env_id="Slide-v0", env_kwargs={"goal": 5}, max_episode_steps=7
)


def build(folder, make_envs=MAKE, resume=False):
    return trainer.Trainer(
        folder,
        n_epochs=2,
        resume=resume,
        agent=policy_gradient.PolicyGradient(hidden_units=(4,)),
        make_envs=make_envs,
        n_envs=2,
        experience=experience.Trajectories(4),
        intervals=cadence.Intervals(eval_episodes=3, checkpoint_epochs=1),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with build(folder) as running:
        running.run(quiet=True)
    return folder


def files(folder):
    return {path: path.stat().st_mtime_ns for path in pathlib.Path(folder).rglob("*")}


@pytest.mark.slow
def test_it_plays_as_the_trainer_did(folder):
    before = files(folder)
    with build(folder, resume=True) as resumed:
        expected = resumed.evaluate()
        seed = resumed.seed + 1_000_003 * (resumed.epoch + 1)
        inputs = np.ones([4, 2], np.float32)
        actions = resumed.agent.policy.act(inputs, temperature=0.0).actions
        # Meanwhile the run holds its lock.
        with saved_run.SavedRun(build(folder)) as run:
            played = run.evaluate(3, seed=seed)
            acted = run.policy.act(inputs, temperature=0.0)
            np.testing.assert_array_equal(acted.actions, actions)
            assert run.step == resumed.env_steps
            assert_same(run.agent, resumed.agent)
    np.testing.assert_array_equal(played.returns, expected.returns)
    changed = {path.name for path, time in files(folder).items() if before[path] < time}
    assert changed <= {"run.lock"}


def test_other_steps(folder):
    with saved_run.SavedRun(build(folder), step=8) as run:
        assert run.step == 8
        early = run.agent
    with saved_run.SavedRun.reopen(folder) as run, pytest.raises(AssertionError):
        assert_same(early, run.agent)
    expected = "`SavedRun`: `step` expected .*got 'worst'"
    for step, match in ((3, r"one of \[8, "), ("worst", expected)):
        with pytest.raises(ValueError, match=match):
            saved_run.SavedRun(build(folder), step=step)
    with pytest.raises(ValueError, match="another agent or shape"):
        saved_run.SavedRun(build(folder, MAKE_POLE))


def test_a_policy_of_nan_does_not_play(folder):
    with saved_run.SavedRun(build(folder)) as run:
        saved = run.agent.policy
        params = tf.nest.map_structure(lambda x: x * np.nan, saved.state.params)
        broken = saved.replace(state=saved.state.replace(params=params))
        run.agent = run.agent.replace(policy=broken)
        for play in (run.evaluate, run.record, lambda _: run.policy):
            with pytest.raises(
                ValueError, match="finite weights at step 16; got one w"
            ):
                play("film.gif" if play == run.record else 1)


def test_a_run_opens_by_its_folder_alone(folder, tmp_path, monkeypatch):
    with saved_run.SavedRun(build(folder)) as expected:
        with saved_run.SavedRun.reopen(folder) as run:
            assert run.step == expected.step
            assert_same(run.agent, expected.agent)
            played, again = run.evaluate(3, seed=5), expected.evaluate(3, seed=5)
            np.testing.assert_array_equal(played.returns, again.returns)
        # Closed environments are made anew.
        assert len(run.evaluate(1).returns) == 1
    # None is made unless it plays.
    monkeypatch.setattr("tfrl.environments.make_vec", None)
    with saved_run.SavedRun.reopen(folder) as run:
        run.export(tmp_path / "policy")
        assert run.policy.act(np.zeros([2, 2], np.float32)).actions.shape == (2,)
        with pytest.raises(TypeError):
            run.evaluate(1)


def test_other_environments_are_refused(folder, monkeypatch):
    with saved_run.SavedRun.reopen(folder) as run:
        run._like._record.arguments["make_envs"]["env_kwargs"] = None
        run._like._record.arguments["make_envs"]["env_id"] = "CartPole-v1"
        with pytest.raises(ValueError, match="environments with the spaces of the run"):
            run.evaluate(1)


def test_what_cannot_be_kept_is_told_and_all_else_is_kept(tmp_path, capsys):
    def made():
        return tiny_agents.build(
            tmp_path, 1, make_envs=lambda n_envs: MAKE_POLE(n_envs=n_envs)
        )

    with made() as running:
        running.run()
    what = "make_envs = function test_what_cannot_be_kept_is_told_and_all_else_is_kept."
    assert what in " ".join(capsys.readouterr().out.split())
    with saved_run.SavedRun.reopen(tmp_path) as run:
        acted = run.policy.act(np.zeros([2, 4], np.float32))
        assert acted.actions.shape == (2,)
        with pytest.raises(
            ValueError,
            match=r"whose `make_envs` could be kept; got fu.* by `tfrl.training.eval",
        ):
            run.evaluate(1)
    with saved_run.SavedRun(made()) as run:
        assert len(run.evaluate(1).returns) == 1


@dataclasses.dataclass(frozen=True)
class Scheduled(Tiny):
    """A tiny agent whose weights are those of a network."""

    schedule: Any = None

    def create(self, observation_space, action_space, *, seed=0, network=None):
        agent = super().create(observation_space, action_space, seed=seed)
        weights = tf.constant(network.get_weights()[0])
        return agent.replace(policy=agent.policy.replace(weights=weights))


def test_schedules_and_networks_of_keras_are_kept(tmp_path):
    def settings(rate=1e-3, activation="tanh"):
        decay = keras.optimizers.schedules.ExponentialDecay(rate, 9, 0.5)
        layers = [keras.Input([4]), keras.layers.Dense(2, activation)]
        network = keras.Sequential(layers)
        return {"agent": Scheduled(schedule=decay), "network": network, "n_epochs": 1}

    running, _ = train(tmp_path, **settings())
    with saved_run.SavedRun.reopen(tmp_path) as run:
        assert_same(run.agent, running.agent)
    # Keras has counted on; it is the same network.
    train(tmp_path, resume=True, **settings())
    for other, match in (
        ({"rate": 0.5}, "agent.schedule"),
        ({"activation": "relu"}, r"activation = 'relu' \(was 'tanh'\)"),
    ):
        with pytest.raises(ValueError, match=match):
            train(tmp_path, resume=True, **settings(**other))


def choosing(choose):
    return types.SimpleNamespace(policy=policy.FunctionPolicy(choose))


def test_a_film_shows_the_environment_of_the_run(folder, tmp_path):
    path = tmp_path / "episode.gif"
    with saved_run.SavedRun(build(folder)) as run:
        run.agent = choosing(lambda rows: np.ones(len(rows), np.int64))
        run.record(path, seed=3, resize_to=(32, 32))
        with Image.open(path) as film:
            assert (film.n_frames, film.size) == (1 + 5, (32, 32))
        run.agent = choosing(lambda rows: rows[:, 0].astype(int) % 2)
        run.record(path, frames_per_sec=20)
        with Image.open(path) as film:
            assert film.info["duration"] == 8 * 50
        run.record(tmp_path / "episode.mp4")
        with pytest.raises(ValueError, match=r"expected to end in \.gif or \.mp4; got"):
            run.record(tmp_path / "episode.avi")
    assert {file.name for file in tmp_path.iterdir()} == {"episode.gif", "episode.mp4"}
    assert (tmp_path / "episode.mp4").read_bytes()[4:8] == b"ftyp"


class Wider(gym.ObservationWrapper):
    """Changes the observations, which the spec does not tell."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def observation(self, observation):
        return observation


def wrapped(n_envs):
    make = functools.partial(gym.make, "Slide-v0")
    return SyncVectorEnv(
        [lambda: Wider(make())] * n_envs, autoreset_mode=AutoresetMode.DISABLED
    )


@pytest.mark.parametrize(
    ("make_envs", "error", "match"),
    [
        (wrapped, ValueError, "made one at a time"),
        (functools.partial(MAKE, env_kwargs={"goal": 13}), ImportError, "a brush is"),
        (
            functools.partial(MAKE, env_id="Dark-v0"),
            ValueError,
            r"render modes \['ansi'\]",
        ),
    ],
    ids=["wrapped", "no_brush", "dark"],
)
def test_what_cannot_be_filmed(make_envs, error, match, folder, tmp_path):
    with (
        saved_run.SavedRun(build(folder, make_envs)) as run,
        pytest.raises(error, match=match),
    ):
        run.record(tmp_path / "episode.gif")
    assert not list(tmp_path.iterdir())


def test_the_critic_on_a_plane(folder, tmp_path, monkeypatch):
    path = tmp_path / "critic.png"
    drawn = []

    def keep(title, data, size):
        drawn.append((title, np.asarray(data), size))
        return Image.new("RGB", size)

    monkeypatch.setattr(panels, "render_heatmap", keep)
    with saved_run.SavedRun(build(folder)) as run:
        run.draw_critic(path, (1, -2.0, 2.0), (0, 3.0, 0.0), cells=4, size=(30, 20))
        rows = np.array([[3, -2], [3, 2], [0, -2]], np.float32)
        corners = run.policy.values(rows).numpy()
        for bad, match in (
            ({"path": "critic.jpg"}, r"expected to end in \.png"),
            ({"across": (2, 0.0, 1.0)}, "`across` expected"),
            ({"down": (-1, 0.0, 1.0)}, "`down` expected"),
            ({"down": (0, 0.0, 1.0)}, "`down` expected another component than `acr"),
            ({"cells": 0}, "`cells` expected"),
        ):
            given = {"path": path, "across": (0, 0.0, 1.0), "down": (1, 0.0, 1.0)}
            with pytest.raises(ValueError, match=match):
                run.draw_critic(**{**given, **bad})
        with (
            full_disks.no_file_above(10),
            pytest.raises(OSError, match="`path` expected a disk that takes the file"),
        ):
            run.draw_critic(path, (1, -2.0, 2.0), (0, 3.0, 0.0), cells=4, size=(40, 20))
    (title, data, size), _ = drawn
    assert title == (
        "value of observations: [1] from -2 to 2 across, [0] from 3 to 0 down"
    )
    assert (data.shape, size) == ((4, 4), (30, 20))
    found = [data[0, 0], data[0, -1], data[-1, 0]]
    np.testing.assert_allclose(found, corners, rtol=1e-5, atol=1e-6)
    with Image.open(path) as picture:
        assert picture.size == (30, 20)


def test_the_exported_policy_acts_alike(folder, tmp_path):
    with saved_run.SavedRun(build(folder)) as run:
        run.export(tmp_path / "policy")
        with pytest.raises(ValueError, match="overwrite"):
            run.export(tmp_path / "policy")
        rows = np.random.default_rng(0).normal(size=[50, 2]).astype(np.float32)
        expected = run.policy.act(rows, temperature=0.0).actions
    record = (tmp_path / "policy" / "assets.extra" / "tfrl_golden.json").read_text()
    told = json.loads(record)["about"]
    assert told["metadata"] == {"run": folder.name, "step": 16}
    assert told["observation_space"].startswith("Box(")
    model = tf.saved_model.load(tmp_path / "policy")
    served = model.signatures["serving_default"](observations=tf.constant(rows))
    np.testing.assert_array_equal(served["actions"], expected)


def test_a_folder_may_have_a_name_that_tensorflow_takes_for_a_pattern(folder, tmp_path):
    odd = tmp_path / "lr[1e-3] \\ *"
    shutil.copytree(folder, odd)
    with saved_run.SavedRun(build(odd)) as run:
        run.export(odd / "policy")
        assert run.step == 16
    assert export.verify(odd / "policy")["serving_default"] < 1e-5
    assert doctor.find_nonfinite(odd) == []
    with build(odd, resume=True) as resumed:
        assert resumed.env_steps == 16


S = gym.spaces
VALUES = [
    S.Box(0, 255, (210, 160, 3), np.uint8),
    S.Box(np.array([-1.0, -np.inf]), np.array([np.inf, 2.0]), dtype=np.float64),
    S.Box(-np.inf, np.inf, (), np.float32),
    S.Box(0.0, 1.0, (0, 2)),
    S.Box(0, 1, (3,), np.bool_),
    S.Box(np.array([False, True]), np.array([True, True]), dtype=np.bool_),
    S.Discrete(3, start=-1),
    S.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -1]]),
    S.MultiBinary([2, 2]),
    S.Tuple((S.Discrete(2), S.MultiBinary(2))),
    S.Dict({"z": S.Discrete(2), "a": S.Dict({"b": S.Box(-1, 1, (2,))})}),
    *(None, 3, float("inf"), "text", b"bytes", np.float32(0.5)),
    [1, (2, {"a": None})],
    {},
    ppo.PPO(gamma=0.5, hidden_units=(3,)),
    schedulers.StepwiseLinearFunction((0, 1.0), (10, 0.5)),
    Scheduled(0.2, schedule=Scheduled(schedule=(Scheduled(), "x"))),
    Scheduled,
    train,
    pathlib.PurePath.joinpath,
    AutoresetMode.DISABLED,
]


def make(env_id, /, *more, size=1, **options):
    return env_id, more, size, options


def plain(first, second=2, **options):
    return first, second, options


def through_json(value):
    data = _kept_arguments.kept(value)
    return typed_json.from_json(typed_json.to_json(data))


def shown(value):
    return re.sub(" at 0x.*", "", repr(value))


@pytest.mark.parametrize("value", VALUES, ids=shown)
def test_values_come_back(value):
    data = _kept_arguments.kept(value)
    assert _kept_arguments.lost(data, "x") == {}
    assert len(typed_json.to_json(data)) < 800, "pictures take no room"
    again = _kept_arguments.made(through_json(value))
    assert again == value and type(again) is type(value)
    if isinstance(value, gym.Space):
        assert again.dtype == value.dtype
        assert list(again) == list(value) if isinstance(value, S.Dict) else True


def test_partials_come_back_with_their_defaults():
    data = through_json(functools.partial(plain, 1, third=[3]))
    named = data.pop("=partial")
    assert named.endswith("test_saved_run:plain")
    assert data == {"first": 1, "second": 2, "third": [3]}
    again = _kept_arguments.made({"=partial": named, **data})
    assert again() == (1, 2, {"third": [3]})
    # Partials of partials are one.
    nested = functools.partial(functools.partial(plain, 1), second=5)
    assert _kept_arguments.made(through_json(nested))() == (1, 5, {})


def test_what_gin_binds_is_kept_as_if_given():
    wrapped = configs.register({"kept_plain": plain})["kept_plain"]
    assert _kept_arguments.kept(wrapped) == _kept_arguments.kept(plain)
    configs.parse(bindings=["kept_plain.first = 1"])
    partial = functools.partial(plain, first=1)
    assert _kept_arguments.kept(wrapped) == _kept_arguments.kept(partial)
    partial = functools.partial(wrapped, second=3)
    assert _kept_arguments.kept(partial)["first"] == 1
    configs.clear()
    assert _kept_arguments.made(_kept_arguments.kept(partial))(1)[1] == 3


class Own(S.Discrete):
    pass


def local():
    def inner():
        pass

    return inner


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (lambda: 0, "function <lambda> of "),
        (local(), "function local.<locals>.inner of "),
        (functools.partial(local()), "function local.<locals>.inner of "),
        (functools.partial(make, "a"), "with arguments without names"),
        (object(), "an object of builtins.object"),
        (Own(2), ".Own"),
        (S.Text(3), "gymnasium.spaces.text.Text"),
        ({"=call": 1}, "an object of builtins.dict"),
    ],
)
def test_what_cannot_be_kept_is_named(value, what):
    data = through_json({"a": Scheduled(schedule=[0, value])})
    ((place, found),) = _kept_arguments.lost(data, "x").items()
    assert place == "x.a.schedule[1]" and what in found
    assert " at 0x" not in found


def test_what_is_not_there_is_named():
    for named, word in [("no_such_module:f", "no_such"), ("json:no_such", "no_such")]:
        with pytest.raises(ValueError, match=rf"`open_run`: .*{word}.*PYTHONPATH"):
            _kept_arguments.made({"x": {"=name": named}})
    named = _kept_arguments.kept(Tiny())["=call"]
    with pytest.raises(ValueError, match="use the versions that made it"):
        _kept_arguments.made({"=call": named, "gone": 1})


def test_differences_are_named_by_their_place():
    old = _kept_arguments.kept(ppo.PPO())
    new = _kept_arguments.kept(ppo.PPO(gamma=0.1, hidden_units=(3,)))
    assert _kept_arguments.differences(old, new, "agent") == {
        "agent.gamma": ("0.99", "0.1"),
        "agent.hidden_units": ("(64, 64)", "(3,)"),
    }
    found = _kept_arguments.differences(old, _kept_arguments.kept(Tiny()), "agent")
    assert "PPO" in found["agent"][0] and "Tiny" in found["agent"][1]
    assert found["agent.rate"] == ("(nothing)", "0.1")


@pytest.mark.parametrize(
    ("one", "two", "count"),
    [
        (1, 1.0, 0),
        (np.int64(2), 2, 0),
        ((3, 3), [3, 3], 0),
        (float("nan"), float("nan"), 0),
        (np.zeros(2), np.zeros(2), 0),
        (1, 2, 1),
        (1, "1", 1),
        (None, 0, 1),
        ((3, 3), (3,), 1),
        (np.zeros(2), np.zeros(3), 1),
        ([np.zeros(2)], [np.ones(2)], 1),
        (((1, 2), 3), ((1, 3), 3), 1),
    ],
    ids=shown,
)
def test_what_differs(one, two, count):
    assert len(_kept_arguments.differences({"a": one}, {"a": two})) == count


def test_arguments_that_came_later_have_their_defaults():
    data = _kept_arguments.kept(ppo.PPO(gamma=0.5))
    whole = json.dumps(data)
    data.pop("clip")
    assert json.dumps(_kept_arguments.completed(data)) == whole
    lost = _kept_arguments.kept(lambda: 0)
    assert _kept_arguments.completed(lost) == lost


def functional(units=2):
    inputs = {"a": keras.Input([3], name="a"), "b": keras.Input([1], name="b")}
    hidden = keras.layers.Concatenate()([*inputs.values()])
    hidden = keras.layers.Softmax()(keras.layers.Dense(4, "softmax")(hidden))
    return keras.Model(inputs, keras.layers.Dense(units)(hidden))


class Silent(keras.Model):
    def __init__(self, scale):
        super().__init__()
        self.layer = keras.layers.Dense(scale)

    def call(self, inputs):
        return self.layer(inputs)


def test_names_that_keras_counted_are_counted_anew():
    one, two = functional(), functional()
    assert one.layers[-1].name != two.layers[-1].name
    config = _kept_arguments.kept(one)
    assert config == _kept_arguments.kept(two)
    made = _kept_arguments.made(config)
    assert _kept_arguments.kept(made) == config
    assert {x.name for x in made.inputs} >= {"a"}
    shapes = [[w.shape for w in x.weights] for x in (made, one)]
    assert shapes[0] == shapes[1]


def test_differences_tell_the_place():
    kept = [_kept_arguments.kept(functional(units)) for units in (2, 3)]
    found = _kept_arguments.differences(*kept, "network")
    assert [*found.values()] == [("2", "3")]
    (place,) = found
    assert place.startswith("network.config.layers[") and place.endswith(".units")


def test_a_network_of_classes_that_are_not_known_says_what_to_import():
    network = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    data = _kept_arguments.kept(network)
    (mark,) = data
    data[mark] = {**data[mark], "module": None, "class_name": "Own"}
    data[mark]["registered_name"] = "mine>Own"
    match = "classes that Keras can load here; got one of 'Own' .*; import first what"
    with pytest.raises(ValueError, match=match):
        _kept_arguments.made(data)


def test_what_no_other_process_could_make_has_a_digest():
    texts = []
    for count in (2, 2, 3):
        network = keras.Sequential([keras.Input([3]), Silent(count)])
        network.build([None, 3])
        (text,) = _kept_arguments.lost(_kept_arguments.kept(network), "").values()
        texts.append(text)
    assert texts[0] == texts[1] != texts[2]
    assert "Sequential, digest" in texts[0]
