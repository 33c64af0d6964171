"""PPO of Stable-Baselines3 or SBX, for tools/benchmarks/ppo.py to measure.

Trains on a task of ppo_tasks.py, plays 20 greedy episodes and prints one line of JSON:
`marks`, environment steps and CPU seconds of the process at the begin of every rollout,
and the return_mean of the episodes. --stop-at ends the training when 20 episodes,
played every 10,240 steps, have such a mean.
"""

import argparse
import importlib
import json

import clock
import ppo_tasks
import torch
from stable_baselines3.common import callbacks, env_util, evaluation

EPISODES, EPISODES_EVERY = 20, 10_240


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--library", choices=["stable_baselines3", "sbx"], default="stable_baselines3"
    )
    parser.add_argument("--task", choices=ppo_tasks.TASKS, default="cartpole")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--stop-at", type=float)
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = ppo_tasks.TASKS[given.task]
    envs = env_util.make_vec_env(task.env, n_envs=task.n_envs, seed=given.seed)

    def scheduled(value: float):
        return (lambda left: value * max(left, 0.0)) if task.falls else value

    # Networks (two of 64 x 64, tanh), Adam's epsilon and the norm of the gradient are
    # the defaults of both libraries.
    model = importlib.import_module(given.library).PPO(
        "MlpPolicy",
        envs,
        n_steps=task.n_steps,
        batch_size=task.batch_size,
        n_epochs=task.n_epochs,
        gamma=task.gamma,
        gae_lambda=task.lambda_,
        learning_rate=scheduled(task.learning_rate),
        clip_range=scheduled(task.clip),
        ent_coef=0.0,
        seed=given.seed,
        device="cpu",
    )
    test = env_util.make_vec_env(task.env, n_envs=EPISODES, seed=10_000 + given.seed)
    taken = clock.Clock()
    called: list[callbacks.BaseCallback] = [taken]
    if given.stop_at is not None:
        called.append(
            callbacks.EvalCallback(
                test,
                callbacks.StopTrainingOnRewardThreshold(given.stop_at),
                n_eval_episodes=EPISODES,
                eval_freq=EPISODES_EVERY // task.n_envs,
                verbose=0,
            )
        )
    model.learn(given.steps, callback=called)
    return_mean, _ = evaluation.evaluate_policy(model, test, n_eval_episodes=EPISODES)
    print(json.dumps({"marks": taken.marks, "return_mean": float(return_mean)}))


if __name__ == "__main__":
    main()
