"""Films of how an agent plays while it is trained by `fit`."""

import os
import pathlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl.core import checks
from tfrl.environments import attributes
from tfrl.summaries.filming import video
from tfrl.training.fitting import _playing


class RecordVideo(keras.callbacks.Callback):
    """Plays an episode at the end of epochs and keeps it as an animated GIF or a video.

    The files are `epoch_0001.gif` and so on: of the first epoch, every
    `every_epochs`-th and the last.

    Args:
        env: one environment, made with `render_mode="rgb_array"`.
        act: as of `Collect`, of a batch of one; an agent takes its best actions.
        directory: where to; made if it does not exist.
        every_epochs: epochs between episodes.
        network: what acts; that of the model by default.
        to_env: from an action of `act` to one that the environment takes.
        seed: of the environment and the generator; each episode begins alike.
        ending: what to write, `.gif` or `.mp4`.
        **options: as of `tfrl.summaries.record_episode`.

    Raises:
        TypeError: if `act` cannot be called.
        ValueError: if `every_epochs` is less than 1, `env` renders no arrays, or
            `ending` is another.

    Example:
        >>> import tempfile
        >>> class Grey(gym.Wrapper):
        ...     render_mode = "rgb_array"
        ...     def render(self):
        ...         return np.full([8, 8, 3], 99, np.uint8)
        >>> folder = tempfile.mkdtemp()
        >>> record = RecordVideo(Grey(gym.make("CartPole-v1")),
        ...                      lambda q_values, rng: q_values.argmax(-1), folder)
        >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(
        ...     np.ones([8, 4]), np.ones([8, 2]), callbacks=[record], verbose=0)
        >>> os.listdir(folder)
        ['epoch_0001.gif']
    """

    def __init__(
        self,
        env: gym.Env,
        act: Callable[[Any, np.random.Generator], Any] | None,
        directory: str | os.PathLike[str],
        every_epochs: int = 1,
        network: Any = None,
        to_env: Callable[[Any], Any] | None = None,
        seed: int = 0,
        ending: str = ".gif",
        **options: Any,
    ) -> None:
        super().__init__()
        self._acting = _playing.Acting("RecordVideo", act, network)
        checks.check_whole_number("RecordVideo", "every_epochs", every_epochs, low=1)
        checks.check_one_of("RecordVideo", "ending", ending, [".gif", ".mp4"])
        attributes.check_renders("RecordVideo", env)
        self._env = env
        self._directory, self._every_epochs = pathlib.Path(directory), every_epochs
        self._to_env = (lambda raw: raw) if to_env is None else to_env
        self._seed, self._ending, self._options = seed, ending, options

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Plays and writes."""
        last = epoch + 1 == self.params.get("epochs")
        if epoch and not last and (epoch + 1) % self._every_epochs:
            return
        rng = np.random.default_rng(self._seed)
        by_agent = self._acting.is_by_agent
        agent: Any = self._acting.agent_of(self.model) if by_agent else None
        memory = agent.initial_state(1) if by_agent else ()

        def policy(observation: Any) -> Any:
            nonlocal memory
            batch = tf.nest.map_structure(lambda x: np.asarray(x)[None], observation)
            if not by_agent:
                return self._to_env(self._acting.chosen(self.model, batch, rng)[0])
            acted = agent.act(batch, memory, temperature=0.0)
            memory = acted.state
            return tf.nest.map_structure(lambda x: x[0], acted.actions)

        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"epoch_{epoch + 1:04d}{self._ending}"
        options = self._options
        video.record_episode(self._env, path, policy, seed=self._seed, **options)
