"""A nested space, batches of spaces, and policies over them, for several tests."""

import gymnasium as gym
import numpy as np

from tfrl.agents import gradient_transforms, train_state
from tfrl.policies import actor_critic

S = gym.spaces
NEST = S.Dict(
    position=S.Box(-np.inf, np.inf, (2,)),
    goal=S.Discrete(3),
    bits=S.Tuple((S.MultiBinary(2), S.Box(-5.0, 5.0, (), np.float64))),
)


def new_policy(observation_space, action_space, **kwargs):
    return actor_critic.ActorCriticPolicy.create(
        observation_space,
        action_space,
        learner=lambda network: train_state.TrainState.create(
            network, tx=gradient_transforms.sgd(0.1)
        ),
        hidden_units=(8,),
        **kwargs,
    )


def batch_of(space, *outer, seed=0):
    """A nest of `[*outer, *shape]` of a space, in plain structures."""
    rng = np.random.default_rng(seed)
    if isinstance(space, S.Dict):
        return {key: batch_of(space[key], *outer, seed=seed) for key in space}
    if isinstance(space, S.Tuple):
        return tuple(batch_of(part, *outer, seed=seed) for part in space)
    if isinstance(space, S.Box):
        return rng.normal(3.0, 2.0, (*outer, *space.shape)).astype(space.dtype)
    high = space.n if isinstance(space, S.Discrete) else 2
    return rng.integers(0, high, (*outer, *space.shape)).astype(space.dtype)
