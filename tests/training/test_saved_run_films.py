"""Films of runs in wrapped environments, and in those that tell masks."""

import functools

import default_rows
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from PIL import Image

from tfrl.agents.on_policy import policy_gradient
from tfrl.environments import matrix_game, parallel_vector, vector
from tfrl.saving import checkpoints
from tfrl.training import cadence, experience, saved_run, trainer


class Masked(gym.Env):
    """Allows 1 alone, and ends after `goal` of it."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gym.spaces.Box(0.0, 9.0, (1, 2), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, goal=3, render_mode=None):
        self.goal, self.render_mode = goal, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.observed()

    def observed(self):
        seen = np.array([[self.place, self.goal]], np.float32)
        return seen, {"action_mask": np.array([0, 1], np.int8)}

    def step(self, action):
        assert action == 1
        self.place += 1
        seen, info = self.observed()
        return seen, 1.0, self.place >= self.goal, False, info

    def render(self):
        return np.full([16, 16, 3], 20 * self.place, np.uint8)


class MaskedVector(SyncVectorEnv):
    def __init__(self, num_envs, **kwargs):
        make = functools.partial(Masked, **kwargs)
        super().__init__([make] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


gym.register("Masked-v0", Masked, vector_entry_point=MaskedVector)


def build(folder, make_envs, eval_episodes=1):
    return trainer.Trainer(
        folder,
        n_epochs=1,
        agent=policy_gradient.PolicyGradient(hidden_units=(4,)),
        make_envs=make_envs,
        n_envs=2,
        experience=experience.Trajectories(4),
        intervals=cadence.Intervals(eval_episodes=eval_episodes),
    )


def test_it_is_told_that_several_agents_are_not_filmed(tmp_path):
    make = functools.partial(parallel_vector.ParallelEnvVector, matrix_game.MatrixGame)
    like = build(tmp_path, make, eval_episodes=2)
    checkpoints.save_run(tmp_path, 8, like.agent, {})
    with (
        saved_run.SavedRun(like) as run,
        pytest.raises(ValueError, match=r"of one agent; got .*'player_1'.*envs.render"),
    ):
        run.record(tmp_path / "episode.gif")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", *default_rows.slow("vector_entry_point")])
def test_a_film_has_the_wrappers_and_masks_of_make_vec(mode, tmp_path):
    wrappers = [gym.wrappers.FlattenObservation] if mode == "sync" else []
    make = functools.partial(
        vector.make_vec,
        env_id="Masked-v0",
        vectorization=mode,
        wrappers=wrappers,
        env_kwargs={"goal": 5},
        action_masks=True,
    )
    with build(tmp_path, make) as running:
        running.run(quiet=True)
    with saved_run.SavedRun(build(tmp_path, make)) as run:
        run.record(tmp_path / "episode.gif")
        assert run.env_spec.kwargs == {"goal": 5}
    with Image.open(tmp_path / "episode.gif") as film:
        assert film.n_frames == 1 + 5
