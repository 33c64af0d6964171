"""Vectors of environments: what a thousand steps of random actions cost.

Atari as the field prepares it (4 frames an action, 84x84 grey pixels, the last four)
and MuJoCo: `make_vec` and `make_atari` by EnvPool and by Gymnasium's `sync` and `async`
vectors, beside the vectors of Stable-Baselines3 (`DummyVecEnv`, `SubprocVecEnv`) and of
TorchRL (`SerialEnv`, `ParallelEnv`), in turns, on all cores. Episodes begin anew where
they end, in all of them.

    tools/bench environments
    tools/bench environments --envs Pong --sizes 16 --rounds 9
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import functools  # noqa: E402
import importlib  # noqa: E402
import warnings  # noqa: E402

import ale_py  # noqa: E402
import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from harness import turns  # noqa: E402

from tfrl import environments, host  # noqa: E402

GAMES = ("Pong", "Breakout")
ENVS = ("Pong", "HalfCheetah-v5")
N_STEPS = 128


def single(env):
    """An environment as `make_atari` makes it, or as it is registered."""
    if env not in GAMES:
        return gym.make(env)
    gym.register_envs(ale_py)
    game = gym.make(f"ALE/{env}-v5", frameskip=1, repeat_action_probability=0.0)
    game = gym.wrappers.AtariPreprocessing(game, noop_max=30)
    return gym.wrappers.FrameStackObservation(game, 4)


def drawn(space, n_envs):
    """Actions of all steps."""
    space.seed(0)
    return [np.stack([space.sample() for _ in range(n_envs)]) for _ in range(N_STEPS)]


def of_tfrl(env, n_envs, vectorization):
    make = environments.make_atari if env in GAMES else environments.make_vec
    envs = make(env, n_envs, vectorization)
    stepper = host.Stepper(envs, seed=0)
    actions = drawn(envs.single_action_space, n_envs)

    def run():
        for each in actions:
            stepper.step(each)

    return run, envs.close


def of_sb3(env, n_envs, kind):
    envs = kind([functools.partial(single, env)] * n_envs)
    envs.reset()
    actions = drawn(envs.action_space, n_envs)

    def run():
        for each in actions:
            envs.step(each)

    return run, envs.close


def wrapped(env):
    envs = importlib.import_module("torchrl.envs")
    return envs.GymWrapper(single(env))


def of_torchrl(env, n_envs, kind):
    envs = kind(n_envs, functools.partial(wrapped, env))
    envs.set_seed(0)

    def run():
        envs.rollout(N_STEPS, break_when_any_done=False)

    return run, envs.close


def contenders():
    """Name -> function of an environment and their number.

    Processes of environments import this file, and should not wait for peers.
    """
    vec_env = importlib.import_module("stable_baselines3.common.vec_env")
    envs = importlib.import_module("torchrl.envs")
    found = {"tfrl, envpool": functools.partial(of_tfrl, vectorization="envpool")}
    for name in ("sync", "async"):
        found[f"gymnasium, {name}"] = functools.partial(of_tfrl, vectorization=name)
    for kind in (vec_env.DummyVecEnv, vec_env.SubprocVecEnv):
        name = f"stable-baselines3, {kind.__name__}"
        found[name] = functools.partial(of_sb3, kind=kind)
    for kind in (envs.SerialEnv, envs.ParallelEnv):
        found[f"torchrl, {kind.__name__}"] = functools.partial(of_torchrl, kind=kind)
    return found


def measure(env, n_envs, rounds):
    """Name -> microseconds of a thousand environment steps, for each round."""
    runs, ends = {}, []
    for name, make in contenders().items():
        run, end = make(env, n_envs)
        run()
        runs[name] = run, n_envs * N_STEPS / 1000
        ends.append(end)
    try:
        return turns.measure(runs, rounds)
    finally:
        for end in ends:
            end()


def main():
    parser = turns.parser(__doc__, ("8",), "N")
    parser.add_argument("--envs", nargs="+", default=list(ENVS), metavar="ID")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    console = turns.console()
    packages = ("gymnasium", "envpool", "ale-py", "stable-baselines3", "torchrl")
    console.print(turns.versions(packages), highlight=False)
    for env in arguments.envs:
        results = {
            f"{size} environments": measure(env, int(size), arguments.rounds)
            for size in arguments.sizes
        }
        title = f"{env}, 1,000 steps"
        console.print(turns.table(title, results, "tfrl, envpool"))


if __name__ == "__main__":
    main()
