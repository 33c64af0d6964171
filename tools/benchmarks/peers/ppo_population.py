"""A population of tfrl's PPO on CartPole, for tools/benchmarks/ppo.py.

The settings are those of configs/ppo_cartpole_compiled.gin; the members differ in their
seeds. Prints one line of JSON: `marks`, environment steps of all and CPU seconds of the
process before and after the training, and the return_mean of the last 100 episodes of
each, which explore, unlike the greedy ones of others.
"""

import argparse
import json
import time

from tfrl import agents, entry, training
from tfrl.environments import compiled

N_ENVS, N_STEPS = 8, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first member")
    parser.add_argument("--steps", type=int, default=100_000, help="of a member")
    parser.add_argument("--members", type=int, default=64)
    arguments = parser.parse_args()
    entry.begin()
    config = agents.PPO(
        gamma=0.98,
        lambda_=0.8,
        learning_rate=1e-3,
        learning_rate_schedule="linear",
        clip=0.2,
        clip_schedule="linear",
        n_epochs=20,
        value_coefficient=1.0,
        minibatch_size=256,
    )
    env = compiled.AutoReset(compiled.TimeLimit(compiled.CartPole(), 500))
    first = arguments.seed
    started = time.process_time()
    grown = training.train_population(
        config,
        env,
        seeds=range(first, first + arguments.members),
        experience=training.Trajectories(N_STEPS),
        n_envs=N_ENVS,
        total_env_steps=arguments.steps,
    )
    steps = int(grown.env_steps[-1]) * arguments.members
    marks = [(0, started), (steps, time.process_time())]
    returns = float(grown.returns[:, -1].mean())
    print(json.dumps({"marks": marks, "return_mean": returns}))


if __name__ == "__main__":
    main()
