"""Environments of tensors: thousands of copies step in one compiled program.

Here are the protocol of such environments, games and control problems that follow it,
and wrappers around them. They are pure functions: states go in and come out, and random
numbers are an argument.
"""

from tfrl.environments.compiled.acrobot import Acrobot
from tfrl.environments.compiled.arcade import (
    Bricks,
    BricksState,
    Lanes,
    LanesState,
    Meteors,
    MeteorsState,
)
from tfrl.environments.compiled.bit_flipping import BitFlipping, BitFlippingState
from tfrl.environments.compiled.cartpole import CartPole
from tfrl.environments.compiled.catch import Catch, CatchState
from tfrl.environments.compiled.compiled_check import check_compiled
from tfrl.environments.compiled.grid_world import GridWorld, GridWorldState
from tfrl.environments.compiled.jax_env import JaxEnv, from_jax_env, load_jax_env
from tfrl.environments.compiled.mountain_car import MountainCar, MountainCarContinuous
from tfrl.environments.compiled.pendulum import Pendulum
from tfrl.environments.compiled.protocol import CompiledEnv, CompiledStep
from tfrl.environments.compiled.vector_env import (
    CompiledVectorEnv,
    as_vector_env,
    make_compiled,
)
from tfrl.environments.compiled.wrappers import (
    AutoReset,
    Episodes,
    EpisodeStatistics,
    FrameStack,
    NormalizeObservations,
    NormalizeRewards,
    RewardScale,
    TimeLimit,
    WrappedState,
    Wrapper,
)

__all__ = [
    "Acrobot",
    "AutoReset",
    "BitFlipping",
    "BitFlippingState",
    "Bricks",
    "BricksState",
    "CartPole",
    "Catch",
    "CatchState",
    "CompiledEnv",
    "CompiledStep",
    "CompiledVectorEnv",
    "EpisodeStatistics",
    "Episodes",
    "FrameStack",
    "GridWorld",
    "GridWorldState",
    "JaxEnv",
    "Lanes",
    "LanesState",
    "Meteors",
    "MeteorsState",
    "MountainCar",
    "MountainCarContinuous",
    "NormalizeObservations",
    "NormalizeRewards",
    "Pendulum",
    "RewardScale",
    "TimeLimit",
    "WrappedState",
    "Wrapper",
    "as_vector_env",
    "check_compiled",
    "from_jax_env",
    "load_jax_env",
    "make_compiled",
]
