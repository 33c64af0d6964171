"""Rollouts in torch, for tools/benchmarks/collecting.py to measure."""

import math

import gymnasium as gym
import torch
from torch import nn


def mlp(inputs, width, outputs):
    sizes, layers = (inputs, width, width, outputs), []
    for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def loop(envs, n_steps, width, with_values):
    """A function that plays `n_steps` and keeps them in tensors `[T, N, ...]`."""
    torch.manual_seed(0)
    space, seen = envs.single_action_space, envs.single_observation_space
    choices = isinstance(space, gym.spaces.Discrete)
    n_outputs = int(space.n) if choices else math.prod(space.shape)
    policy = mlp(seen.shape[0], width, n_outputs)
    value = mlp(seen.shape[0], width, 1)
    log_std = torch.zeros(n_outputs)
    n_envs = envs.num_envs
    observations = torch.empty(n_steps, n_envs, *seen.shape)
    kept = torch.long if choices else torch.float32
    actions = torch.empty(n_steps, n_envs, *space.shape, dtype=kept)
    rewards, ends, values, log_probs = torch.empty(4, n_steps, n_envs)
    now = torch.as_tensor(envs.reset(seed=0)[0])

    def drawn(outputs):
        if choices:
            return torch.multinomial(torch.softmax(outputs, -1), 1).squeeze(-1)
        return torch.normal(outputs, log_std.exp().expand_as(outputs))

    def log_prob(outputs, taken):
        if choices:
            found = torch.log_softmax(outputs, -1).gather(-1, taken[:, None])
            return found.squeeze(-1)
        normal = torch.distributions.Normal(outputs, log_std.exp())
        return normal.log_prob(taken).sum(-1)

    @torch.inference_mode()
    def run():
        nonlocal now
        for t in range(n_steps):
            observations[t] = now
            outputs = policy(now)
            taken = drawn(outputs)
            actions[t] = taken
            if with_values:
                log_probs[t] = log_prob(outputs, taken)
                values[t] = value(now).squeeze(-1)
            given = taken if choices else taken.clamp(-2.0, 2.0)
            after, reward, terminated, truncated, _ = envs.step(given.numpy())
            rewards[t] = torch.as_tensor(reward)
            ends[t] = torch.as_tensor(terminated | truncated)
            now = torch.as_tensor(after)

    return run
