"""PPO on images: tfrl, Stable-Baselines3 and SBX in turns, for benchmarks/images.py.

All play the same environment of 84x84x4 pixels and learn by the settings of rl-zoo
for Atari (8 environments, 128 steps each, batch 256, 4 epochs, learning rate 2.5e-4,
clip 0.1, entropy 0.01) with the same network: three convolutions, one dense layer of
512 for actor and critic together (of which SBX keeps two that it copies), a linear
layer each. tfrl does so in mixed precision too, where oneDNN has it. A round is one
epoch, collecting and learning. Prints one line of JSON: CPU seconds of every round by
contender.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

import gymnasium as gym
import keras
import numpy as np
import sbx
import stable_baselines3
import torch
from pictures import Pictures
from stable_baselines3.common import env_util

import tfrl

N_ENVS, N_STEPS, N_EPOCHS, BATCH = 8, 128, 4, 256


def tfrl_round(precision: str = "float32") -> Callable[[], object]:
    keras.config.set_dtype_policy(precision)
    envs = tfrl.environments.make_vec("Pictures-v0", N_ENVS, "sync")
    collector = tfrl.training.Collector(envs, N_STEPS, seed=0)
    agent = tfrl.agents.PPO(
        learning_rate=2.5e-4,
        clip=0.1,
        entropy_coefficient=0.01,
        n_epochs=N_EPOCHS,
        minibatch_size=BATCH,
        hidden_units=(),
    ).create(
        Pictures.observation_space,
        Pictures.action_space,
        n_envs=N_ENVS,
        n_steps=N_STEPS,
        seed=0,
    )
    host, rng = tfrl.policies.HostPolicy(agent.policy), np.random.default_rng(0)

    def run() -> None:
        nonlocal agent
        trajectory = collector.collect(host, rng)
        agent, _ = agent.update(trajectory)
        host.push(agent.policy)

    return run


def peer_round(library) -> Callable[[], object]:
    torch.set_num_threads(1)
    model = library.PPO(
        "CnnPolicy",
        env_util.make_vec_env(Pictures, n_envs=N_ENVS, seed=0),
        n_steps=N_STEPS,
        batch_size=BATCH,
        n_epochs=N_EPOCHS,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
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
    rounds = {
        "tfrl": tfrl_round(),
        **mixed,
        "stable-baselines3": peer_round(stable_baselines3),
        "sbx": peer_round(sbx),
    }
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
