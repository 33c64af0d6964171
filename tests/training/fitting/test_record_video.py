import gymnasium as gym
import keras
import numpy as np
import pytest
from PIL import Image

from tfrl import training


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


def fitted(record, epochs, bias):
    """Fits a network that prefers action 1 in the epochs after the first."""
    dense = keras.layers.Dense(2, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input([4]), dense])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    dense.bias.assign([1.0, 0.0])
    prefer = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: dense.bias.assign(bias)
    )
    data = np.ones([2, 4], np.float32), np.ones([2, 2], np.float32)
    model.fit(*data, epochs=epochs, verbose=0, callbacks=[record, prefer])


def greedy(outputs, rng):
    return outputs.argmax(-1)


def test_films_show_the_network_of_their_time(tmp_path):
    folder = tmp_path / "films"
    record = training.RecordVideo(Row(), greedy, folder, every_epochs=2)
    fitted(record, epochs=5, bias=[0.0, 1.0])
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
        drawn.append(float(raw))
        return 1

    record = training.RecordVideo(
        Row(), act, tmp_path, to_env=to_env, resize_to=(8, 8), max_episode_steps=2
    )
    fitted(record, epochs=2, bias=[1.0, 0.0])
    assert len(drawn) == 4
    assert drawn[:2] == drawn[2:]
    assert places(tmp_path / "epoch_0002.gif")[-1] // 2 == 2


def test_bad_arguments():
    with pytest.raises(TypeError, match="`RecordVideo`: `act` expected a function"):
        training.RecordVideo(Row(), 5, "films")
    with pytest.raises(ValueError, match="`every_epochs` expected an int of at least"):
        training.RecordVideo(Row(), greedy, "films", every_epochs=0)
    with pytest.raises(ValueError, match="`env` expected render_mode 'rgb_array'; got"):
        training.RecordVideo(Row("human"), greedy, "films")
    with pytest.raises(ValueError, match="`ending` expected one of"):
        training.RecordVideo(Row(), greedy, "films", ending=".avi")


def test_films_as_videos(tmp_path):
    fitted(training.RecordVideo(Row(), greedy, tmp_path, ending=".mp4"), 1, [0.0, 1.0])
    [path] = tmp_path.iterdir()
    assert path.name == "epoch_0001.mp4"
    assert path.read_bytes()[4:8] == b"ftyp"
