"""Small policies, what agents learn from, and two replicas, for several tests."""

import functools

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl.agents import gradient_transforms, train_state
from tfrl.core import records
from tfrl.policies import actor_critic

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,))
NEST = S.Dict(
    position=S.Box(-np.inf, np.inf, (2,)),
    goal=S.Discrete(3),
    bits=S.Tuple((S.MultiBinary(2), S.Box(-5.0, 5.0, (), np.float64))),
)


def new_policy(observation_space, action_space, **settings):
    return actor_critic.ActorCriticPolicy.create(
        observation_space,
        action_space,
        learner=functools.partial(
            train_state.TrainState.create, tx=gradient_transforms.sgd(0.1)
        ),
        **{"hidden_units": (8,), **settings},
    )


def batch_of(space, *outer, seed=0, center=3.0):
    """A nest of `[*outer, *shape]` of a space, in plain structures."""
    rng = np.random.default_rng(seed)
    if isinstance(space, S.Dict):
        return {key: batch_of(space[key], *outer, seed=seed) for key in space}
    if isinstance(space, S.Tuple):
        return tuple(batch_of(part, *outer, seed=seed) for part in space)
    if isinstance(space, S.Box) and space.dtype == np.uint8:
        return rng.integers(0, 256, (*outer, *space.shape), np.uint8)
    if isinstance(space, S.Box):
        return rng.normal(center, 2.0, (*outer, *space.shape)).astype(space.dtype)
    high = {S.Discrete: "n", S.MultiDiscrete: "nvec"}.get(type(space))
    high = 2 if high is None else getattr(space, high)
    return rng.integers(0, high, (*outer, *space.shape)).astype(space.dtype)


def trajectory_of(observation_space, action_space, n_steps, n_envs, seed=0):
    """Steps of episodes that end now and then; their successors are others then."""
    rng = np.random.default_rng(seed)
    outer = n_steps, n_envs
    terminated = rng.random(outer) < 0.2
    truncated = ~terminated & (rng.random(outer) < 0.2)
    shown = batch_of(observation_space, n_steps + 1, n_envs, seed=seed, center=0.0)
    other = batch_of(observation_space, *outer, seed=seed + 1000, center=0.0)

    def successor(following, last):
        ended = (terminated | truncated).reshape(*outer, *[1] * (last.ndim - 2))
        return np.where(ended, last, following[1:])

    return records.Trajectory(
        observations=tf.nest.map_structure(lambda x: x[:-1], shown),
        actions=batch_of(action_space, *outer, seed=seed, center=0.0),
        rewards=rng.normal(size=outer).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        next_observations=tf.nest.map_structure(successor, shown, other),
        valid=np.ones(outer, bool),
    )


@functools.cache
def two_replicas():
    # The default way of reducing leaves a thread pool to the garbage collector.
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def assert_close(found, expected, **tolerance):
    """Compares two nests; exactly without a tolerance."""
    found, expected = tf.nest.flatten(found), tf.nest.flatten(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **{"rtol": 0.0, **tolerance})


def params_of(agent):
    """Copies of the parameters that an agent learns, by name."""
    state = agent.model if hasattr(agent, "model") else agent.policy.state
    return {name: np.array(value) for name, value in state.params.items()}


def on_policy_gradients(agent, trajectory, targets):
    """The loss of an actor and critic over all rows, and its gradients by a tape.

    `targets` makes returns and advantages `[T, N]` of log-probabilities of the actions,
    values and values of the successors. Actions are choices.
    """
    config, model = agent.config, agent.policy.state.model_def
    for variable in model.variables:
        variable.assign(agent.policy.state.params[variable.path])
    outer = trajectory.rewards.shape
    flat = trajectory.observations.reshape(-1, trajectory.observations.shape[-1])
    then = model.critic(trajectory.next_observations.reshape(flat.shape))
    with tf.GradientTape() as tape:
        known = tf.math.log_softmax(model.actor(flat))
        taken = tf.gather(known, trajectory.actions.reshape(-1), batch_dims=1)
        values = model.critic(flat)
        arrays = (x.numpy().astype(np.float64) for x in (taken, values, then))
        found = targets(*(x.reshape(outer) for x in arrays))
        returns, gains = (x.reshape(-1).astype(np.float32) for x in found)
        loss = tf.reduce_mean(
            -taken * gains
            + config.value_coefficient * 0.5 * (values - returns) ** 2
            + config.entropy_coefficient * tf.reduce_sum(tf.exp(known) * known, -1)
        )
    variables = model.trainable_variables
    grads = tape.gradient(loss, variables)
    return float(loss), {
        variable.path: grad.numpy().astype(np.float64)
        for variable, grad in zip(variables, grads, strict=True)
    }
