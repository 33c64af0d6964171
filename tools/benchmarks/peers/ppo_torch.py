"""PPO in one plain PyTorch file, for tools/benchmarks/ppo.py to measure.

Trains on CartPole-v1 with the settings below, plays 20 greedy episodes and prints one
line of JSON: env_steps_per_second of the training, return_mean of the episodes.
"""

import argparse
import json
import math
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

ENV = "CartPole-v1"
ENVS, HORIZON, EPOCHS, BATCH = 8, 32, 20, 256
GAMMA, LAMBDA = 0.98, 0.8
LEARNING_RATE, CLIP = 1e-3, 0.2  # both decay linearly to 0
VALUE_WEIGHT, MAX_GRAD_NORM = 0.5, 0.5
EVALUATION_EPISODES = 20


def mlp(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    sizes = [inputs, 64, 64, outputs]
    gains = [math.sqrt(2.0), math.sqrt(2.0), last_gain]
    layers: list[nn.Module] = []
    for fan_in, fan_out, gain in zip(sizes[:-1], sizes[1:], gains, strict=True):
        linear = nn.Linear(fan_in, fan_out)
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Agent(nn.Module):
    def __init__(self, observation_size: int, actions: int) -> None:
        super().__init__()
        self.policy = mlp(observation_size, actions, 0.01)
        self.value = mlp(observation_size, 1, 1.0)

    def log_probs(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.policy(observations), -1)

    def values(self, observations: torch.Tensor) -> torch.Tensor:
        return self.value(observations).squeeze(-1)


@torch.no_grad()
def collect(agent: Agent, envs: gym.vector.VectorEnv, start: np.ndarray):
    """One rollout `[HORIZON, ENVS]`, and the observations after it."""
    observations = torch.empty(HORIZON, ENVS, *start.shape[1:])
    actions = torch.empty(HORIZON, ENVS, dtype=torch.long)
    log_probs, values, rewards, ends = torch.empty(4, HORIZON, ENVS)
    now = torch.as_tensor(start)
    for t in range(HORIZON):
        observations[t] = now
        all_log_probs = agent.log_probs(now)
        actions[t] = torch.multinomial(all_log_probs.exp(), 1).squeeze(-1)
        log_probs[t] = all_log_probs.gather(-1, actions[t, :, None]).squeeze(-1)
        values[t] = agent.values(now)
        after, reward, terminated, truncated, info = envs.step(actions[t].numpy())
        for i in np.flatnonzero(truncated & ~terminated):
            final = torch.as_tensor(info["final_obs"][i])
            reward[i] += GAMMA * agent.values(final).item()
        rewards[t] = torch.as_tensor(reward)
        ends[t] = torch.as_tensor(terminated | truncated)
        now = torch.as_tensor(after)
    advantages = torch.empty(HORIZON, ENVS)
    next_values, advantage = agent.values(now), torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        on = GAMMA * (1.0 - ends[t])
        delta = rewards[t] + on * next_values - values[t]
        advantage = delta + LAMBDA * on * advantage
        advantages[t], next_values = advantage, values[t]
    rollout = (observations, actions, log_probs, advantages, advantages + values)
    return [part.flatten(0, 1) for part in rollout], after


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout, clip: float):
    size = len(rollout[0])
    for _ in range(EPOCHS):
        for rows in torch.randperm(size).split(BATCH):
            observations, actions, old, advantages, returns = (p[rows] for p in rollout)
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            log_probs = agent.log_probs(observations).gather(-1, actions[:, None])
            ratio = (log_probs.squeeze(-1) - old).exp()
            clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
            policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
            value_loss = (agent.values(observations) - returns).square().mean()
            optimizer.zero_grad()
            (policy_loss + VALUE_WEIGHT * value_loss).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
            optimizer.step()


def train(seed: int, steps: int) -> tuple[Agent, float]:
    """Returns the agent and its env steps per second."""
    torch.manual_seed(seed)
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make(ENV)] * ENVS,
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
    )
    agent = Agent(4, 2)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    updates = math.ceil(steps / (ENVS * HORIZON))
    start = time.perf_counter()
    observations, _ = envs.reset(seed=seed)
    for index in range(updates):
        rollout, observations = collect(agent, envs, observations)
        left = max(0.0, 1.0 - (index + 1) * ENVS * HORIZON / steps)
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * left
        update(agent, optimizer, rollout, CLIP * left)
    seconds = time.perf_counter() - start
    envs.close()
    return agent, updates * ENVS * HORIZON / seconds


@torch.no_grad()
def evaluate(agent: Agent, seed: int) -> float:
    env = gym.make(ENV)
    total = 0.0
    for episode in range(EVALUATION_EPISODES):
        observation, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            action = agent.policy(torch.as_tensor(observation)).argmax().item()
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
    env.close()
    return total / EVALUATION_EPISODES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    agent, speed = train(arguments.seed, arguments.steps)
    return_mean = evaluate(agent, 10_000 + 100 * arguments.seed)
    print(json.dumps({"env_steps_per_second": speed, "return_mean": return_mean}))


if __name__ == "__main__":
    main()
