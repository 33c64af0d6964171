"""DQN in one plain PyTorch file, for tools/benchmarks/dqn.py to measure.

Trains on CartPole-v1 with the settings of configs/dqn_cartpole.gin, plays 20 greedy
episodes and prints one line of JSON: `marks`, environment steps and CPU seconds of the
process before every update, and the return_mean of the episodes.
"""

import argparse
import json
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

ENV = "CartPole-v1"
ENVS, HORIZON, UPDATES, BATCH = 8, 16, 64, 128
CAPACITY, LEARNING_STARTS = 50_000, 1_000
GAMMA, RETURN_STEPS, LEARNING_RATE = 0.99, 3, 1e-3
TARGET_PERIOD, MAX_GRAD_NORM = 200, 10.0
EPSILON, EXPLORATION = 0.05, 0.1
EVALUATION_EPISODES = 20


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
        nn.Linear(64, outputs),
    )


class Replay:
    """Steps of all environments in preallocated tensors, the oldest overwritten."""

    def __init__(self, size: int) -> None:
        self.length, self.count = CAPACITY // ENVS, 0
        self.observations, self.following = torch.empty(2, self.length, ENVS, size)
        self.actions = torch.empty(self.length, ENVS, dtype=torch.long)
        self.rewards, self.discounts, self.going, self.valid = torch.empty(
            4, self.length, ENVS
        )

    def add(self, *columns: np.ndarray) -> None:
        row = self.count % self.length
        names = (
            *("observations", "actions", "rewards", "discounts"),
            *("going", "following", "valid"),
        )
        for name, column in zip(names, columns, strict=True):
            target = getattr(self, name)
            target[row] = torch.as_tensor(column).to(target.dtype)
        self.count += 1

    def sample(self) -> tuple[torch.Tensor, ...]:
        """Transitions of several steps, which end where their episode does."""
        newest = self.count - RETURN_STEPS
        oldest = max(0, self.count - self.length)
        first = torch.randint(oldest, newest + 1, (BATCH,))
        env = torch.randint(0, ENVS, (BATCH,))
        rows = first % self.length
        rewards, discounts = torch.zeros(BATCH), torch.ones(BATCH)
        going, last = torch.ones(BATCH), rows
        for k in range(RETURN_STEPS):
            now = (first + k) % self.length
            rewards += going * discounts * self.rewards[now, env]
            scale = self.discounts[now, env]
            discounts = torch.where(going > 0, discounts * scale, discounts)
            last = torch.where(going > 0, now, last)
            going = going * self.going[now, env]
        return (
            self.observations[rows, env],
            self.actions[rows, env],
            rewards,
            discounts,
            self.following[last, env],
            self.valid[rows, env],
        )


def learn(
    online: nn.Module,
    target: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, ...],
) -> None:
    observations, actions, rewards, discounts, following, weights = batch
    with torch.no_grad():
        best = online(following).argmax(-1, keepdim=True)
        later = target(following).gather(1, best).squeeze(1)
        wanted = rewards + discounts * later
    values = online(observations).gather(1, actions[:, None]).squeeze(1)
    losses = nn.functional.smooth_l1_loss(values, wanted, reduction="none")
    loss = (weights * losses).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), MAX_GRAD_NORM)
    optimizer.step()


def train(seed: int, steps: int) -> tuple[nn.Module, list[tuple[int, float]]]:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs = gym.make_vec(ENV, ENVS, vectorization_mode="vector_entry_point")
    size, n_actions = (
        envs.single_observation_space.shape[0],
        int(envs.single_action_space.n),
    )
    online, target = network(size, n_actions), network(size, n_actions)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=LEARNING_RATE)
    replay = Replay(size)
    now, _ = envs.reset(seed=seed)
    now, resets = np.array(now), np.zeros(ENVS, bool)
    done, updates, marks = 0, 0, []
    while done < steps:
        share = done / steps
        epsilon = max(EPSILON, 1.0 - (1.0 - EPSILON) * share / EXPLORATION)
        for _ in range(HORIZON):
            with torch.no_grad():
                actions = online(torch.as_tensor(now)).argmax(-1).numpy()
            explore = rng.random(ENVS) < epsilon
            actions = np.where(explore, rng.integers(0, n_actions, ENVS), actions)
            after, rewards, terminated, truncated, _ = envs.step(actions)
            ended = terminated | truncated
            discounts = GAMMA * (1.0 - terminated)
            # The step after an end only resets, and is no experience.
            replay.add(now, actions, rewards, discounts, 1.0 - ended, after, ~resets)
            now, resets = np.array(after), ended
        done += HORIZON * ENVS
        marks.append((done, time.process_time()))
        if done < LEARNING_STARTS:
            continue
        for _ in range(UPDATES):
            learn(online, target, optimizer, replay.sample())
            updates += 1
            if updates % TARGET_PERIOD == 0:
                target.load_state_dict(online.state_dict())
    return online, [*marks, (done, time.process_time())]


@torch.no_grad()
def evaluate(online: nn.Module, seed: int) -> float:
    env = gym.make(ENV)
    returns = []
    for episode in range(EVALUATION_EPISODES):
        seen, _ = env.reset(seed=seed + episode)
        total, ended = 0.0, False
        while not ended:
            action = int(online(torch.as_tensor(seen)).argmax())
            seen, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    online, marks = train(arguments.seed, arguments.steps)
    return_mean = evaluate(online, 10_000 + 100 * arguments.seed)
    print(json.dumps({"marks": marks, "return_mean": return_mean}))


if __name__ == "__main__":
    main()
