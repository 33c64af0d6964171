"""Tests of `RecordVideo` of `tfrl.training`."""

import gymnasium as gym
import keras
import numpy as np
import pytest
import tiny_agents
from PIL import Image

from tfrl import policies, training


class Row(gym.Env):
    """Walks right on action 1; a white square on a black row shows where it is."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gym.spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode="rgb_array"):
        self.render_mode, self.place, self.steps = render_mode, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return np.eye(4, dtype=np.float32)[0], {}

    def step(self, action):
        self.place, self.steps = min(self.place + int(action), 3), self.steps + 1
        there = np.eye(4, dtype=np.float32)[self.place]
        return there, 0.0, self.place == 3, self.steps == 5, {}

    def render(self):
        picture = np.zeros((4, 4, 3), np.uint8)
        picture[:, self.place] = 255
        return picture


def places(path):
    """Where the square is in each picture; equal ones in a row are one."""
    with Image.open(path) as film:
        found = []
        for index in range(film.n_frames):
            film.seek(index)
            found.append(int(np.asarray(film.convert("L"))[0].argmax()))
        return found


def model():
    dense = keras.layers.Dense(2, kernel_initializer="zeros")
    made = keras.Sequential([keras.Input([4]), dense])
    made.compile(keras.optimizers.SGD(0.0), "mse")
    dense.bias.assign([1.0, 0.0])
    return made


def fitted(model, record, epochs, bias):
    """Fits a network that prefers action 1 in the epochs after the first."""
    prefer = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: model.layers[-1].bias.assign(bias)
    )
    data = np.ones([2, 4], np.float32), np.ones([2, 2], np.float32)
    model.fit(*data, epochs=epochs, verbose=0, callbacks=[record, prefer])


def greedy(network):
    return policies.FunctionPolicy(lambda q, rng: q.argmax(-1), network=network)


@pytest.mark.slow
def test_films_show_the_network_of_their_time(tmp_path):
    folder, made = tmp_path / "films", model()
    record = training.RecordVideo(Row(), greedy(made), folder, every_epochs=2)
    fitted(made, record, epochs=5, bias=[0.0, 1.0])
    names = [f"epoch_{epoch:04d}.gif" for epoch in (1, 2, 4, 5)]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert set(places(folder / names[0])) == {0}
    for name in names[1:]:
        assert places(folder / name) == [0, 1, 2, 3]


def test_actions_are_translated_and_draws_repeat(tmp_path):
    def act(outputs, rng):
        return rng.random(len(outputs)) + outputs[:, 0]

    drawn = []

    def to_env(raw):
        drawn.append(float(raw[0]))
        return np.array([1])

    made = model()
    policy = policies.FunctionPolicy(act, to_env, made)
    record = training.RecordVideo(
        Row(), policy, tmp_path, resize_to=(8, 8), max_episode_steps=2
    )
    fitted(made, record, epochs=2, bias=[1.0, 0.0])
    assert len(drawn) == 4
    assert drawn[:2] == drawn[2:]
    assert places(tmp_path / "epoch_0002.gif")[-1] // 2 == 2


def test_bad_arguments():
    with pytest.raises(
        TypeError, match="`RecordVideo`: `policy` expected a policy, or a f"
    ):
        training.RecordVideo(Row(), 5, "films")
    with pytest.raises(ValueError, match="`every_epochs` expected an int of at least"):
        training.RecordVideo(Row(), print, "films", every_epochs=0)
    with pytest.raises(ValueError, match="`env` expected render_mode 'rgb_array'; got"):
        training.RecordVideo(Row("human"), print, "films")
    with pytest.raises(ValueError, match="`ending` expected one of"):
        training.RecordVideo(Row(), print, "films", ending=".avi")


def test_the_agent_plays_in_its_spaces_alone(tmp_path):
    config, space = tiny_agents.Tiny(), gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    made = training.AgentModel.create(config, space, Row.action_space)
    made.compile()
    data = {"observations": np.ones((4, 3), np.float32), "actions": np.ones(4, int)}
    record, seen = training.RecordVideo(Row(), None, tmp_path), []
    learned = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(batch)
    )
    with pytest.raises(ValueError, match="`RecordVideo`: `env` expected an environ"):
        made.fit(data, callbacks=[record, learned], verbose=0)
    assert not seen


def test_films_as_videos(tmp_path):
    made = model()
    record = training.RecordVideo(Row(), greedy(made), tmp_path, ending=".mp4")
    fitted(made, record, 1, [0.0, 1.0])
    [path] = tmp_path.iterdir()
    assert path.name == "epoch_0001.mp4"
    assert path.read_bytes()[4:8] == b"ftyp"
