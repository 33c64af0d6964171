"""Videos of how a policy plays while it is trained by `fit`."""

import os
import pathlib
from typing import Any

import gymnasium as gym
import numpy as np

from tfrl._internal import checks, gym_checks
from tfrl.summaries.filming import video
from tfrl.training.collecting import collection
from tfrl.training.fitting import _playing


class RecordVideo(_playing.Acting):
    """Plays an episode at the end of epochs and keeps it as an animated GIF or a video.

    The files are `epoch_0001.gif` and so on: of the first epoch, every
    `every_epochs`-th and the last.

    Args:
        env: one environment, made with `render_mode="rgb_array"`.
        policy: as of `Collect`, of a batch of one; asked for its best actions
            (temperature 0).
        directory: where to; made if it does not exist.
        every_epochs: epochs between episodes.
        seed: of the environment and of draws; each episode begins alike.
        ending: what to write, `.gif` or `.mp4`.
        **options: as of `tfrl.summaries.record_episode`.

    Raises:
        TypeError: if `policy` is none.
        ValueError: if `every_epochs` is less than 1, `env` renders no arrays, or
            `ending` is another.

    Example:
        >>> import tempfile
        >>> class Grey(gym.Wrapper):
        ...     render_mode = "rgb_array"
        ...     def render(self):
        ...         return np.full([8, 8, 3], 99, np.uint8)
        >>> folder = tempfile.mkdtemp()
        >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> greedy = tfrl.policies.FunctionPolicy(
        ...     lambda q_values, rng: q_values.argmax(-1), network=model)
        >>> record = RecordVideo(Grey(gym.make("CartPole-v1")), greedy, folder)
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(
        ...     np.ones([8, 4]), np.ones([8, 2]), callbacks=[record], verbose=0)
        >>> os.listdir(folder)
        ['epoch_0001.gif']
    """

    def __init__(
        self,
        env: gym.Env,
        policy: Any,
        directory: str | os.PathLike[str],
        every_epochs: int = 1,
        seed: int = 0,
        ending: str = ".gif",
        **options: Any,
    ) -> None:
        super().__init__(policy, seed=seed, every_epochs=every_epochs)
        checks.check_one_of("RecordVideo", "ending", ending, [".gif", ".mp4"])
        gym_checks.check_renders("RecordVideo", env)
        self._env, self._ending, self._options = env, ending, options
        self._directory, self._every_epochs = pathlib.Path(directory), every_epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Plays and writes."""
        if not self._is_due(epoch, self._every_epochs):
            return
        rng = np.random.default_rng(self._seed)
        policy, seed = collection.of_one(self._policy(), rng), self._seed
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"epoch_{epoch + 1:04d}{self._ending}"
        video.record_episode(self._env, path, policy, seed=seed, **self._options)
