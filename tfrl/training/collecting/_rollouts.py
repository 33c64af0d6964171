"""Episodes of compiled environments, played in a graph by one replica or several."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import draws, gym_checks
from tfrl.agents import replicated
from tfrl.core import pytree, random, records
from tfrl.distribute import replicas
from tfrl.environments.compiled import protocol, wrappers
from tfrl.policies import network_policy

# In the order in which they are checked: rewards are often the consequence.
NUMBERS = "next_observations", "observations", "rewards"
# Whose elements are numbers of options.
_CHOICES = gym.spaces.Discrete | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary


class Episodes(pytree.PyTreeNode):
    """Running episodes of N copies, and what was collected of them.

    Attributes:
        state: of the environments.
        observations: nest of `[N, *shape]`, what they show.
        memory: of the policy.
        replay: a `DeviceReplay`; `()` where trajectories are learned from.
    """

    state: Any
    observations: Any
    memory: Any
    replay: Any = ()


def rollout(
    policy: Any,
    env: protocol.CompiledEnv,
    begun: Episodes,
    seed: tf.Tensor,
    n_steps: int,
    index: Any = 0,
    count: int = 1,
) -> tuple[Episodes, records.Trajectory]:
    """Plays `n_steps` steps of N copies of an environment, in a graph.

    The copies may be a part of more that are played elsewhere by the same seed. Their
    chance is that of their rows among all, so that the parts are together what one
    rollout of all copies is. Each part draws for all and takes its own. Of policies
    outside of `tfrl.policies`, which may draw otherwise, each part has seeds of its
    own instead.

    Args:
        policy: a `tfrl.policies.Policy` that acts on tensors.
        env: which begins new episodes by itself.
        begun: the episodes that go on.
        seed: int32 `[2]`.
        n_steps: T.
        index: number of the part.
        count: of parts.

    Returns:
        The episodes after them, and a `Trajectory` `[T, N]`.
    """
    n_envs = tf.nest.flatten(begun.observations)[0].shape[0]
    acting, chance = random.split_seed(seed, 2)
    noise = env.draw(chance, [n_steps, count * n_envs])
    own = [n_steps, n_envs, noise.shape[-1]]
    noise = tf.slice(noise, [0, index * n_envs, 0], own)
    stream = 0 if isinstance(policy, network_policy.NetworkPolicy) else index
    initial = tf.nest.map_structure(tf.convert_to_tensor, policy.initial_state(n_envs))

    def played(t: Any, state: Any, observations: Any, memory: Any) -> tuple:
        # The number of a step makes its seed: Philox knows no neighbours among keys.
        with draws.part(index, count):
            seed = acting + tf.stack([t, stream])
            acted = policy.act(observations, memory, seed=seed)
        step = env.step(state, acted.actions, noise[t])
        ended = step.terminated | step.truncated
        later = wrappers.chosen(ended, initial, acted.state)
        row = records.Trajectory(
            observations=observations,
            actions=acted.raw_actions,
            rewards=step.rewards,
            terminated=step.terminated,
            truncated=step.truncated,
            next_observations=step.final_observations,
            valid=tf.ones_like(ended),
            log_probs=() if acted.log_probs is None else acted.log_probs,
            states=memory,
        )
        return step.state, step.observations, later, row

    def body(t: tf.Tensor, *carried: Any) -> tuple:
        *before, columns = carried
        *after, row = played(t, *before)
        columns = tf.nest.map_structure(
            lambda column, x: column.write(t, x), columns, tf.nest.flatten(row)
        )
        return t + 1, *after, columns

    carried = begun.state, begun.observations, begun.memory
    row = played(tf.constant(0), *carried)[-1]  # for the sake of its shapes alone
    columns = [
        tf.TensorArray(x.dtype, n_steps, element_shape=x.shape)
        for x in tf.nest.flatten(row)
    ]
    _, *after, columns = tf.while_loop(
        lambda t, *_: t < n_steps, body, (tf.constant(0), *carried, columns)
    )
    stacked = [column.stack() for column in columns]
    state, observations, memory = after
    begun = begun.replace(state=state, observations=observations, memory=memory)
    return begun, tf.nest.pack_sequence_as(row, stacked)


def shapes_of(function: Callable[[], Any]) -> Any:
    """Returns zeros like what a function returns, without computing it."""
    graph = tf.function(function, autograph=False).get_concrete_function()
    return tf.nest.map_structure(
        lambda x: tf.zeros(x.shape, x.dtype), graph.structured_outputs
    )


def kinds_of(env: protocol.CompiledEnv) -> tuple[str, ...]:
    """Returns what `numbers_of` says of an environment, row by row."""
    parts = gym_checks.parts_of(env.observation_space)
    has_choices = any(isinstance(part, _CHOICES) for _, part in parts)
    has_choices |= bool(_masked(env))
    return ("choices", *NUMBERS) if has_choices else NUMBERS


def _masked(env: protocol.CompiledEnv) -> list[int]:
    return gym_checks.masked_choices(env.observation_space, env.action_space)


def numbers_of(trajectory: records.Trajectory, env: protocol.CompiledEnv) -> tf.Tensor:
    """Returns what is to be checked, and counted, of a trajectory, see `kinds_of`.

    Of observations that are the sums of what is not finite, 0 where everything is. Of
    choices it is the number of the first leaf, from 1 on, of next observations and then
    of observations, that holds none of its space; -1 where nothing of that but the mask
    is odd, which allows no option; 0 where there is none.

    Args:
        trajectory: `[T, N]`.
        env: where it was collected.

    Returns:
        `[3 or 4, T, N]` float32.
    """
    shape = trajectory.rewards.shape
    found = []
    if len(kinds_of(env)) > len(NUMBERS):
        found.append(_odd_leaf(trajectory, env))
    for name in NUMBERS[:2]:
        total = tf.zeros(shape)
        for x in tf.nest.flatten(getattr(trajectory, name)):
            if x.dtype.is_floating:
                odd = tf.where(tf.math.is_finite(x), tf.zeros([], x.dtype), x)
                odd = tf.reduce_sum(tf.reshape(odd, [*shape, -1]), -1)
                total += tf.cast(odd, tf.float32)
        found.append(total)
    return tf.stack([*found, tf.cast(trajectory.rewards, tf.float32)])


def _odd_leaf(trajectory: records.Trajectory, env: protocol.CompiledEnv) -> tf.Tensor:
    shape = trajectory.rewards.shape
    nests = trajectory.next_observations, trajectory.observations
    spaces = [part for _, part in gym_checks.parts_of(env.observation_space)] * 2
    pairs = zip(tf.nest.flatten(nests), spaces, strict=True)
    first = tf.zeros(shape)
    if counts := _masked(env):
        masks = trajectory.observations[gym_checks.MASK]
        allowed = tf.split(tf.cast(masks, tf.bool), counts, -1)
        some = tf.stack([tf.reduce_any(x, -1) for x in allowed], -1)
        first = tf.where(tf.reduce_all(some, -1), first, -1.0)
    for number, (leaf, part) in [*enumerate(pairs, 1)][::-1]:
        if isinstance(part, _CHOICES):
            wrong: Any = gym_checks.outside(part, tf.cast(leaf, tf.int64))
            wrong = tf.reduce_any(tf.reshape(wrong, [*shape, -1]), -1)
            first = tf.where(wrong, float(number), first)
    return first


def check_numbers(
    where: str, env: protocol.CompiledEnv, numbers: Sequence[np.ndarray]
) -> None:
    """Raises a ValueError unless what was collected is finite, and choices are such.

    Args:
        where: whose run it is, for the message.
        env: where it was collected.
        numbers: `[T, N]` each, what `numbers_of` returned.
    """
    for name, rows in zip(kinds_of(env), numbers, strict=True):
        if name != "choices":
            gym_checks.check_numbers(where, name, rows)
            continue
        for place in np.argwhere(rows)[:1]:
            number = int(rows[tuple(place)])
            if number < 0:
                raise gym_checks.no_option(where, place)
            parts = gym_checks.parts_of(env.observation_space)
            of, leaf = divmod(number - 1, len(parts))
            raise gym_checks.no_choice(
                where, NUMBERS[of], parts[leaf], "another", place
            )


def traced_update(
    agent: Any, experience: Any, where: str
) -> tuple[Any, dict[str, tf.Tensor]]:
    """Returns what `agent.update` does, in the graph that is being traced.

    Args:
        agent: what learns.
        experience: from what.
        where: whose run it is, for the message.

    Raises:
        TypeError: if the update makes Python numbers of tensors, which a graph cannot.
    """
    try:
        return agent.update(experience)
    except (TypeError, NotImplementedError) as error:
        # TensorFlow has no type of its own for these, but names what it was given.
        if "symbolic" not in str(error).lower():
            raise
        beside = other = ""
        if where == "Trainer":
            beside, other = " beside `collector` 'compiled'", ", or collector 'host'"
        raise TypeError(
            f"`{where}`: `agent` expected an `update` that can be traced{beside}, "
            f"without `if`, `int()` or NumPy on tensors; got {error!s:.110}; take "
            f"`tf.cond` or `tf.where`{other}"
        ) from error


def shared(begun: Episodes) -> Episodes:
    """Gives each replica of the strategy in scope an equal part of the episodes."""
    if replicated.n_replicas() == 1:
        return begun
    return replicas.shard_batch(begun.replace(replay=())).replace(replay=begun.replay)


def gathered(begun: Episodes) -> Episodes:
    """Puts the parts of the replicas together; the replay is one already."""
    parts: Episodes = replicas.gathered(begun.replace(replay=()))
    return parts.replace(replay=begun.replay)


def check_apart(begun: Episodes, n_envs: int) -> None:
    """Raises a ValueError if copies share a state, which replicas cannot."""
    leaves = tf.nest.flatten(begun.replace(replay=()))
    shapes = [x.shape for x in leaves if x.shape.rank == 0 or x.shape[0] != n_envs]
    if shapes:
        raise ValueError(
            "`Trainer`: `collector` 'compiled' expected environments with a state "
            "`[N, ...]` beside a `strategy` of several replicas, which play them "
            f"apart; got a state {shapes[0]} that all share; let the agent normalize, "
            "not NormalizeObservations or NormalizeRewards"
        )


def shared_rollout(
    policy: Any,
    env: protocol.CompiledEnv,
    begun: Episodes,
    seed: tf.Tensor,
    n_steps: int,
) -> tuple[Episodes, records.Trajectory]:
    """Plays on all replicas of the strategy in scope, on each its own episodes.

    Args:
        policy: as of `rollout`.
        env: as of `rollout`.
        begun: the episodes that go on, as `shared` returned them.
        seed: int32 `[2]`.
        n_steps: T.

    Returns:
        The episodes after them, still shared, and a `Trajectory` `[T, N]` of all.
    """
    count = replicated.n_replicas()
    if count == 1:
        return rollout(policy, env, begun, seed, n_steps)
    strategy, replay = tf.distribute.get_strategy(), begun.replay
    found = []
    if isinstance(policy, network_policy.NetworkPolicy):
        policy = policy.without_optimizer()

    @replicated.compiled_update
    def played(policy: Any, begun: Episodes, seed: tf.Tensor, index: Any) -> Any:
        return rollout(policy, env, begun, seed, n_steps, index, count)

    def replica(*given: Any) -> list[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        found.append(played(*given, context.replica_id_in_sync_group))
        return tf.nest.flatten(found[-1])

    leaves = strategy.run(replica, (policy, begun.replace(replay=()), seed))
    begun, trajectory = tf.nest.pack_sequence_as(found[0], leaves)
    return begun.replace(replay=replay), replicas.gathered(trajectory, axis=1)
