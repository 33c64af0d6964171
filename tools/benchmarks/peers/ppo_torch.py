"""PPO in one plain PyTorch file, for tools/benchmarks/ppo.py to measure.

Trains on a task of ppo_tasks.py, plays 20 greedy episodes and prints one line of JSON:
`marks`, environment steps and CPU seconds of the process after every update, and the
return_mean of the episodes. --compile has torch.compile make what is differentiated and
the optimizer; --envpool plays EnvPool's environments, in C++; --stop-at ends the
training when 20 episodes, played every 10,240 steps, have such a mean.
"""

import argparse
import importlib
import json
import math
import time

import gymnasium as gym
import numpy as np
import ppo_tasks
import torch
from torch import nn

VALUE_WEIGHT, MAX_GRAD_NORM, EPSILON = 0.5, 0.5, 1e-5
EPISODES, EPISODES_EVERY = 20, 10_240


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
    """Acts by logits in a Discrete space, by a normal distribution in a Box."""

    def __init__(self, shape: tuple[int, ...], space: gym.Space) -> None:
        super().__init__()
        self.is_discrete = isinstance(space, gym.spaces.Discrete)
        size = math.prod(shape)
        n_outputs = int(space.n) if self.is_discrete else math.prod(space.shape)
        self.policy = mlp(size, n_outputs, 0.01)
        self.value = mlp(size, 1, 1.0)
        if not self.is_discrete:
            self.log_std = nn.Parameter(torch.zeros(n_outputs))
            self.low, self.high = map(torch.as_tensor, (space.low, space.high))

    def sample(self, observations: torch.Tensor) -> torch.Tensor:
        outputs = self.policy(observations)
        if self.is_discrete:
            return torch.multinomial(outputs.softmax(-1), 1).squeeze(-1)
        return outputs + self.log_std.exp() * torch.randn_like(outputs)

    def best(self, observations: torch.Tensor) -> torch.Tensor:
        outputs = self.policy(observations)
        return outputs.argmax(-1) if self.is_discrete else outputs

    def played(self, actions: torch.Tensor) -> np.ndarray:
        if self.is_discrete:
            return actions.numpy()
        return actions.clamp(self.low, self.high).numpy()

    def log_probs(
        self, observations: torch.Tensor, actions: torch.Tensor
    ) -> torch.Tensor:
        outputs = self.policy(observations)
        if self.is_discrete:
            every = torch.log_softmax(outputs, -1)
            return every.gather(-1, actions[:, None]).squeeze(-1)
        errors = (actions - outputs) * torch.exp(-self.log_std)
        constant = 0.5 * math.log(2.0 * math.pi)
        return (-0.5 * errors.square() - self.log_std - constant).sum(-1)

    def values(self, observations: torch.Tensor) -> torch.Tensor:
        return self.value(observations).squeeze(-1)


@torch.no_grad()
def collect(agent: Agent, envs: gym.vector.VectorEnv, start: tuple, task):
    """One rollout, and where the next one goes on.

    The step after an end only resets, and is no experience; what the step of the end
    showed is the next one's observation, so that values are computed once for all.
    """
    now, resets = start
    shape = task.n_steps, task.n_envs
    observations = np.empty((task.n_steps + 1, *now.shape), np.float32)
    rewards, terminated = np.empty(shape, np.float32), np.empty(shape, bool)
    ended, valid = np.empty(shape, bool), np.empty(shape, bool)
    actions = []
    for t in range(task.n_steps):
        observations[t], valid[t] = now, ~resets
        actions.append(agent.sample(torch.as_tensor(observations[t])))
        played = agent.played(actions[-1])
        now, rewards[t], terminated[t], truncated, _ = envs.step(played)
        resets = ended[t] = terminated[t] | truncated
    observations[-1] = now
    seen = torch.as_tensor(observations)
    values = agent.values(seen).numpy()
    gains = rewards + task.gamma * ~terminated * values[1:] - values[:-1]
    passed = task.gamma * task.lambda_ * ~ended.astype(bool)
    advantages, advantage = np.empty(shape, np.float32), np.zeros(shape[1], np.float32)
    for t in reversed(range(task.n_steps)):
        advantages[t] = advantage = gains[t] + passed[t] * advantage
    rows = torch.as_tensor(valid.ravel())
    flat = seen[:-1].flatten(0, 1)[rows], torch.cat(actions)[rows]
    targets = (advantages, advantages + values[:-1])
    targets = tuple(
        torch.as_tensor(x.astype(np.float32).ravel())[rows] for x in targets
    )
    return (*flat, agent.log_probs(*flat), *targets), (now, resets)


def loss_of(
    agent: Agent, rows: tuple[torch.Tensor, ...], clip: torch.Tensor
) -> torch.Tensor:
    observations, actions, old, advantages, returns = rows
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = (agent.log_probs(observations, actions) - old).exp()
    clipped = torch.clamp(ratio, 1.0 - clip, 1.0 + clip)
    policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
    value_loss = (agent.values(observations) - returns).square().mean()
    return policy_loss + VALUE_WEIGHT * value_loss


def update(agent: Agent, parts: tuple, rollout: tuple, clip: torch.Tensor, task):
    optimizer, loss_of, step = parts
    for _ in range(task.n_epochs):
        for picked in torch.randperm(len(rollout[0])).split(task.batch_size):
            loss = loss_of(agent, tuple(part[picked] for part in rollout), clip)
            optimizer.zero_grad()
            loss.backward()
            step()


def made(task, n_envs: int, seed: int, is_envpool: bool = False):
    """Environments and what they show first."""
    if is_envpool:
        envpool = importlib.import_module("envpool")
        numbers = {"num_envs": n_envs, "num_threads": 1, "seed": seed}
        envs = envpool.make(task.env, env_type="gymnasium", **numbers)
        return envs, envs.reset()[0]
    how = "sync" if task.is_python else "vector_entry_point"
    envs = gym.make_vec(task.env, n_envs, vectorization_mode=how)
    return envs, envs.reset(seed=seed)[0]


def train(given: argparse.Namespace, task):
    """Returns the agent and the marks."""
    torch.manual_seed(given.seed)
    envs, first = made(task, task.n_envs, given.seed, given.envpool)
    one = gym.make(task.env)
    agent = Agent(one.observation_space.shape, one.action_space)
    rate = torch.tensor(task.learning_rate)
    # The fastest of each: compiled, the loops over parameters melt into one.
    how = {"foreach": False} if given.compile else {"fused": True}
    optimizer = torch.optim.Adam(agent.parameters(), lr=rate, eps=EPSILON, **how)

    def step() -> None:
        nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
        optimizer.step()

    parts: tuple = (optimizer, loss_of, step)
    if given.compile:
        # How many rows are experience differs from rollout to rollout.
        parts = (optimizer, torch.compile(loss_of, dynamic=True), torch.compile(step))
    at, done, marks = (first, np.zeros(task.n_envs, bool)), 0, []
    while done < given.steps:
        rollout, at = collect(agent, envs, at, task)
        left = max(0.0, 1.0 - done / given.steps) if task.falls else 1.0
        rate.fill_(task.learning_rate * left)
        update(agent, parts, rollout, torch.tensor(task.clip * left), task)
        done += task.n_steps * task.n_envs
        marks.append((done, time.process_time()))
        if given.stop_at is not None and done % EPISODES_EVERY == 0:
            if evaluate(agent, task, 10_000 + given.seed) >= given.stop_at:
                break
    envs.close()
    return agent, marks


@torch.no_grad()
def evaluate(agent: Agent, task, seed: int) -> float:
    """Mean return of the first episode in each of so many environments."""
    envs, now = made(task, EPISODES, seed)
    totals, plays = np.zeros(EPISODES), np.ones(EPISODES, bool)
    while plays.any():
        actions = agent.best(torch.as_tensor(np.asarray(now, np.float32)))
        now, rewards, terminated, truncated, _ = envs.step(agent.played(actions))
        totals += rewards * plays
        plays &= ~(terminated | truncated)
    envs.close()
    return float(totals.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=ppo_tasks.TASKS, default="cartpole")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--envpool", action="store_true")
    parser.add_argument("--stop-at", type=float)
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = ppo_tasks.TASKS[given.task]
    agent, marks = train(given, task)
    return_mean = evaluate(agent, task, 20_000 + given.seed)
    print(json.dumps({"marks": marks, "return_mean": return_mean}))


if __name__ == "__main__":
    main()
