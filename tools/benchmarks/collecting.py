"""Collecting experience: what environment steps cost, policy included.

`tfrl.training.Collector` under the host policy of a PPO agent, beside a loop in torch
and the rollouts of Stable-Baselines3, all with a network of two equal layers, in turns,
on one core and one thread. `vector` environments compute all at once, `sync` ones are
single environments in Python, one after the other. What the environments alone take,
given random actions, is the row "environments"; the others contain it.

Stable-Baselines3 computes values and log-probabilities while it collects, torch does so
in the row that says so; tfrl leaves both to the update. Stable-Baselines3 has vectors
of single environments only: in tables of `vector` it plays `sync` ones.

    tools/bench collecting
    tools/bench collecting --envs CartPole-v1/vector --widths 1024 --sizes 8 1024
"""

import functools

from harness import one_core

one_core.start_again()

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from gymnasium.vector import AutoresetMode  # noqa: E402
from harness import turns  # noqa: E402

import tfrl  # noqa: E402

try:
    import torch
    from peers import collecting_torch
except ImportError:
    torch = collecting_torch = None
try:
    import stable_baselines3
    from stable_baselines3.common import callbacks, env_util
except ImportError:
    stable_baselines3 = None

SIZES = ("8", "64", "1024")
KINDS = {"vector": "vector_entry_point", "sync": "sync"}
ENVS = ("CartPole-v1/vector", "CartPole-v1/sync", "Pendulum-v1/sync")
# Rows of all environments in a trajectory, which is long for a few of them.
ROWS = 2048


def steps_of(n_envs):
    return max(4, ROWS // n_envs)


def environments(env_id, kind, n_envs, width):  # noqa: ARG001
    """Random actions, drawn beforehand."""
    envs = tfrl.environments.make_vec(env_id, n_envs, KINDS[kind])
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(steps_of(n_envs))]
    envs.reset(seed=0)

    def run():
        for each in actions:
            *_, terminated, truncated, _ = envs.step(each)
            ended = terminated | truncated
            if kind == "sync" and ended.any():
                envs.reset(options={"reset_mask": ended})

    return run


def tfrl_collector(env_id, kind, n_envs, width):
    envs = tfrl.environments.make_vec(env_id, n_envs, KINDS[kind])
    agent = tfrl.agents.PPO(hidden_units=(width, width)).create(
        envs.single_observation_space, envs.single_action_space, seed=0
    )
    collector = tfrl.training.Collector(envs, steps_of(n_envs), seed=0)
    host, rng = tfrl.policies.HostPolicy(agent.policy), np.random.default_rng(0)
    return lambda: collector.collect(host, rng)


def torch_loop(env_id, kind, n_envs, width, *, values=True):
    envs = gym.make_vec(
        env_id,
        num_envs=n_envs,
        vectorization_mode=KINDS[kind],
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
        if kind == "sync"
        else {},
    )
    return collecting_torch.loop(envs, steps_of(n_envs), width, values)


def sb3_rollouts(env_id, kind, n_envs, width):  # noqa: ARG001
    model = stable_baselines3.PPO(
        "MlpPolicy",
        env_util.make_vec_env(env_id, n_envs=n_envs, seed=0),
        n_steps=steps_of(n_envs),
        policy_kwargs={"net_arch": [width, width]},
        seed=0,
        device="cpu",
    )
    model._setup_learn(1)
    silent = callbacks.CallbackList([])
    silent.init_callback(model)
    return lambda: model.collect_rollouts(
        model.env, silent, model.rollout_buffer, model.n_steps
    )


def contenders():
    """Name -> function of environments, their kind and number, and a width."""
    found = {"environments": environments, "tfrl": tfrl_collector}
    if torch:
        found["torch"] = functools.partial(torch_loop, values=False)
        found["torch, with values"] = torch_loop
    if stable_baselines3:
        found["stable-baselines3"] = sb3_rollouts
    return found


def measure(env, n_envs, width, rounds):
    """Name -> microseconds of a thousand environment steps, for each round."""
    runs = {}
    for name, make in contenders().items():
        run = make(*env.split("/"), n_envs, width)
        run()
        runs[name] = run, n_envs * steps_of(n_envs) / 1000
    return turns.measure(runs, rounds)


def main():
    parser = turns.parser(__doc__, SIZES, "N")
    parser.add_argument("--widths", nargs="+", type=turns.positive, default=[64])
    parser.add_argument("--envs", nargs="+", default=list(ENVS), metavar="ID/KIND")
    arguments = parser.parse_args()
    if torch:
        torch.set_num_threads(1)
    console = turns.console()
    packages = ("tensorflow-cpu", "gymnasium", "stable-baselines3", "torch")
    console.print(turns.versions(packages), highlight=False)
    for name, module in (("torch", torch), ("stable-baselines3", stable_baselines3)):
        if module is None:
            console.print(f"{name} left out: it is missing; tfrl[bench] has it")
    for env in arguments.envs:
        for width in arguments.widths:
            results = {
                f"{size} environments": measure(env, int(size), width, arguments.rounds)
                for size in arguments.sizes
            }
            title = f"{env}, two layers of {width}, 1,000 steps"
            console.print(turns.table(title, results, "tfrl"))


if __name__ == "__main__":
    main()
