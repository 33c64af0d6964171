"""PPO of Stable-Baselines3, for tools/benchmarks/ppo.py to measure.

Trains on CartPole-v1 with the settings of rl-zoo, plays 20 greedy episodes and prints
one line of JSON: env_steps_per_second of the training, return_mean of the episodes.
"""

import argparse
import json
import time

import stable_baselines3
import torch
from stable_baselines3.common import env_util, evaluation

ENV = "CartPole-v1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    envs = env_util.make_vec_env(ENV, n_envs=8, seed=arguments.seed)
    # Networks (two of 64 x 64, tanh, orthogonal), Adam's epsilon and the norm of the
    # gradient are the defaults of the library.
    model = stable_baselines3.PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=lambda left: 1e-3 * max(left, 0.0),
        clip_range=lambda left: 0.2 * max(left, 0.0),
        ent_coef=0.0,
        seed=arguments.seed,
        device="cpu",
    )
    start = time.perf_counter()
    model.learn(arguments.steps)
    speed = model.num_timesteps / (time.perf_counter() - start)
    test = env_util.make_vec_env(ENV, n_envs=1, seed=10_000 + 100 * arguments.seed)
    return_mean, _ = evaluation.evaluate_policy(
        model, test, n_eval_episodes=20, deterministic=True
    )
    result = {"env_steps_per_second": speed, "return_mean": float(return_mean)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
