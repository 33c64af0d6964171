"""Agents learn faster by action masks, and never do what is forbidden."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tfrl.agents.off_policy import dqn
from tfrl.agents.on_policy import ppo
from tfrl.training import cadence, experience, trainer

N_STEPS = 200
PPO = ppo.PPO(
    learning_rate=1e-3,
    entropy_coefficient=0.01,
    n_epochs=4,
    minibatch_size=250,
    normalize_rewards=True,
)


class Taxis(VectorEnv):
    """Taxi-v4 by its own tables, many at once; counts what is done and forbidden."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, n_envs, is_masked):
        taxi = gym.make("Taxi-v4").unwrapped
        rows = [[taxi.P[s][a][0][1:] for a in range(6)] for s in range(500)]
        self.table = np.array(rows, float)
        self.masks = np.array([taxi.action_mask(s) for s in range(500)])
        self.starts, self.num_envs = taxi.initial_state_distrib, n_envs
        self.is_masked, self.n_forbidden, self.n_done = is_masked, 0, 0
        parts = {"observation": gym.spaces.Discrete(500)}
        if is_masked:
            parts["action_mask"] = gym.spaces.MultiBinary(6)
        self.single_observation_space = gym.spaces.Dict(parts)
        self.single_action_space = gym.spaces.Discrete(6)
        self.observation_space = batch_space(self.single_observation_space, n_envs)
        self.action_space = batch_space(self.single_action_space, n_envs)
        self.states, self.t = np.zeros((2, n_envs), int)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        every = np.ones(self.num_envs, bool)
        which = (options or {}).get("reset_mask", every)
        self.states[which] = self.rng.choice(500, which.sum(), p=self.starts)
        self.t[which] = 0
        return self.seen(), {}

    def step(self, actions):
        self.n_forbidden += int((self.masks[self.states, actions] == 0).sum())
        self.n_done += len(actions)
        after, rewards, ended = self.table[self.states, actions].T
        self.states, self.t = after.astype(int), self.t + 1
        terminated = ended.astype(bool)
        truncated = (self.t >= N_STEPS) & ~terminated
        return self.seen(), rewards, terminated, truncated, {}

    def seen(self):
        found = {"observation": self.states.copy()}
        if self.is_masked:
            found["action_mask"] = self.masks[self.states].astype(np.int8)
        return found


def trained(folder, config, learned, n_steps, is_masked):
    made = []

    def make_envs(n_envs):
        made.append(Taxis(n_envs, is_masked))
        return made[-1]

    with trainer.Trainer(
        folder,
        agent=config,
        make_envs=make_envs,
        n_envs=20,
        experience=learned,
        total_env_steps=n_steps,
        intervals=cadence.Intervals(10, 100_000, 20, 100_000),
    ) as running:
        played = running.run(quiet=True)
    assert made[0].n_done >= n_steps
    return played.returns.mean(), sum(envs.n_forbidden for envs in made)


@pytest.mark.slow
def test_ppo_learns_faster_by_masks(tmp_path):
    learned = experience.Trajectories(n_steps=100)
    found, n_forbidden = trained(tmp_path / "a", PPO, learned, 120_000, True)
    assert n_forbidden == 0 and found > 0.0
    without, n_forbidden = trained(tmp_path / "b", PPO, learned, 120_000, False)
    assert n_forbidden > 1_000 and without < -100.0


@pytest.mark.slow
def test_dqn_does_what_is_allowed(tmp_path):
    learned = experience.Replayed(20_000, 64, 10, 0.25, 1_000)
    config = dqn.DQN(hidden_units=(32,))
    assert trained(tmp_path, config, learned, 10_000, True)[1] == 0
