"""The clock of the trainings of Stable-Baselines3 and SBX."""

import time

from stable_baselines3.common import callbacks


class Clock(callbacks.BaseCallback):
    """Keeps environment steps and CPU seconds at the begin of every rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[int, float]] = []

    def _on_rollout_start(self) -> None:
        self.marks.append((self.num_timesteps, time.process_time()))

    def _on_training_end(self) -> None:
        self._on_rollout_start()

    def _on_step(self) -> bool:
        return True
