"""DQN of Stable-Baselines3, for tools/benchmarks/dqn.py to measure.

Trains on CartPole-v1 with the settings of configs/dqn_cartpole.gin, plays 20 greedy
episodes and prints one line of JSON: `marks`, environment steps and CPU seconds of the
process at the begin of every rollout, and the return_mean of the episodes.
"""

import argparse
import json

import clock
import stable_baselines3
import torch
from stable_baselines3.common import env_util, evaluation

ENV = "CartPole-v1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    envs = env_util.make_vec_env(ENV, n_envs=8, seed=arguments.seed)
    model = stable_baselines3.DQN(
        "MlpPolicy",
        envs,
        learning_rate=1e-3,
        buffer_size=50_000,
        learning_starts=1_000,
        batch_size=128,
        gamma=0.99,
        # 16 steps in each of 8 environments, then 64 gradient steps.
        train_freq=16,
        gradient_steps=64,
        # Counted in environment steps: 200 gradient steps.
        target_update_interval=400,
        exploration_fraction=0.1,
        exploration_final_eps=0.05,
        n_steps=3,
        policy_kwargs={"net_arch": [64, 64]},
        seed=arguments.seed,
        device="cpu",
    )
    taken = clock.Clock()
    model.learn(arguments.steps, callback=taken)
    test = env_util.make_vec_env(ENV, n_envs=1, seed=10_000 + 100 * arguments.seed)
    return_mean, _ = evaluation.evaluate_policy(
        model, test, n_eval_episodes=20, deterministic=True
    )
    print(json.dumps({"marks": taken.marks, "return_mean": float(return_mean)}))


if __name__ == "__main__":
    main()
