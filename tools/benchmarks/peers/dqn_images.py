"""DQN on images: tfrl and Stable-Baselines3 in turns, for benchmarks/images.py.

Both play the same environment of 84x84x4 pixels, 8 at a time, and learn by the settings
of rl-zoo for Atari (a gradient step for 4 steps, batch 32, learning rate 1e-4) with the
same network: three convolutions, a dense layer of 512 and a linear one. tfrl does so
in mixed precision too, where oneDNN has it. A round is 128 steps and 32 gradient steps.
Prints one line of JSON: CPU seconds of every round by contender.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

import gymnasium as gym
import keras
import numpy as np
import stable_baselines3
import tensorflow as tf
import torch
from pictures import Pictures
from stable_baselines3.common import env_util

import tfrl
from tfrl.training import _minibatches
from tfrl.training.collecting import _delivery

N_ENVS, N_STEPS, BATCH, CAPACITY = 8, 16, 32, 4_096
N_UPDATES = N_ENVS * N_STEPS // 4


def tfrl_round(precision: str = "float32") -> Callable[[], object]:
    keras.config.set_dtype_policy(precision)
    envs = tfrl.environments.make_vec("Pictures-v0", N_ENVS, "sync")
    collector = tfrl.training.Collector(envs, N_STEPS, seed=0)
    agent = tfrl.agents.DQN(
        learning_rate=1e-4, epsilon=0.1, double=False, hidden_units=()
    ).create(Pictures.observation_space, Pictures.action_space, seed=0)
    host, rng = tfrl.policies.HostPolicy(agent.policy), np.random.default_rng(0)
    store = tfrl.replay.EpisodeStore(
        tf.TensorSpec((84, 84, 4), tf.uint8),
        tf.TensorSpec((), tf.int32),
        CAPACITY,
        N_ENVS,
    )
    replay = tfrl.replay.UniformReplay(store, tfrl.replay.Transitions(), seed=0)
    minibatches = _minibatches.Minibatches("`dqn_images`", replay, BATCH)

    def run() -> None:
        nonlocal agent
        _delivery.add_trajectory(store, collector.collect(host, rng))
        agent, _ = agent.update(minibatches.drawn(N_UPDATES))
        host.push(agent.policy)

    return run


def peer_round() -> Callable[[], object]:
    torch.set_num_threads(1)
    model = stable_baselines3.DQN(
        "CnnPolicy",
        env_util.make_vec_env(Pictures, n_envs=N_ENVS, seed=0),
        learning_rate=1e-4,
        buffer_size=CAPACITY,
        learning_starts=0,
        batch_size=BATCH,
        train_freq=N_STEPS,
        gradient_steps=N_UPDATES,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        seed=0,
        device="cpu",
    )
    return lambda: model.learn(N_STEPS * N_ENVS, reset_num_timesteps=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    gym.register("Pictures-v0", Pictures)
    mixed = {}
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "1":
        mixed = {"tfrl, mixed_bfloat16": tfrl_round("mixed_bfloat16")}
    rounds = {"tfrl": tfrl_round(), **mixed, "stable-baselines3": peer_round()}
    seconds: dict[str, list[float]] = {name: [] for name in rounds}
    for index in range(arguments.rounds + 1):
        for name, run in rounds.items():
            start = time.process_time()
            run()
            if index:  # the first compiles
                seconds[name].append(time.process_time() - start)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
