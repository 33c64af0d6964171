"""The parts of an update of proximal policy optimization: plan, steps, new agent."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfrl.agents import advantages, gradient_transforms, replicated, train_state
from tfrl.core import random, records
from tfrl.losses import policy as policy_losses


def n_gradient_steps(config: Any, n_rows: int) -> int:
    """Returns how many gradient steps an update takes at most.

    Args:
        config: the `PPO`.
        n_rows: of the trajectory, T * N.

    Returns:
        Their number.

    Example:
        >>> n_gradient_steps(tfrl.agents.PPO(n_epochs=3, minibatch_size=4), n_rows=8)
        6
    """
    return config.n_epochs * (n_rows // config.minibatch_size)


class Plan(NamedTuple):
    """What is known before the gradient steps.

    Attributes:
        rows: everything to learn from.
        order: rows of each step `[steps, minibatch_size]`; `()` where all take all.
        hyper: `learning_rate` and `clip` of this update.
        return_scale: of the new agent.
        rng: of the new agent.
    """

    rows: advantages.Experience
    order: Any
    hyper: dict[str, tf.Tensor]
    return_scale: Any
    rng: tf.Tensor


class Progress(NamedTuple):
    """Where the gradient steps of an update are.

    Attributes:
        step: how many were taken.
        state: `TrainState` after them.
        sums: over the steps, of what the info gives the means of.
        stop: whether the policy has moved far enough.
    """

    step: tf.Tensor
    state: train_state.TrainState
    sums: dict[str, tf.Tensor]
    stop: tf.Tensor


def prepare(
    agent: Any,
    trajectory: records.Trajectory,
    hyper: dict[str, tf.Tensor],
    outputs: Any = None,
) -> tuple[Plan, Progress]:
    config = agent.config
    ended = trajectory.terminated | trajectory.truncated
    rewards, scale = trajectory.rewards, agent.return_scale
    if config.normalize_rewards:
        scale, rewards = scale(rewards, ended, trajectory.valid, gamma=config.gamma)
    rows = advantages.estimate_advantages(
        agent.policy,
        trajectory,
        rewards,
        gamma=config.gamma,
        lambda_=config.lambda_,
        outputs=outputs,
    )
    rng, seed = random.split_seed(agent.rng, 2)
    n_rows, order = rows.weights.shape[0], ()
    if n_rows > config.minibatch_size:
        keys = tf.random.stateless_uniform([config.n_epochs, n_rows], seed)
        order = tf.argsort(keys, axis=-1)
        order = tf.reshape(order, [-1, config.minibatch_size])
    state = agent.policy.state
    state = state.replace(
        opt_state=gradient_transforms.with_learning_rate(
            state.opt_state, hyper["learning_rate"]
        )
    )
    sums = {name: tf.zeros([]) for name in _INFO}
    progress = Progress(tf.constant(0), state, sums, tf.constant(False))
    return Plan(rows, order, hyper, scale, rng), progress


def finish(
    agent: Any, trajectory: records.Trajectory, plan: Plan, progress: Progress
) -> tuple[Any, dict]:
    policy = agent.policy.replace(state=progress.state)
    if agent.config.normalize_observations:
        # Only now: the moments that acted must be those that are learned with.
        policy = policy.update_moments(trajectory.observations, trajectory.valid)
    count = tf.cast(progress.step, tf.float32)
    info = {
        **{name: total / count for name, total in progress.sums.items()},
        "gradient_steps": count,
        "learning_rate": plan.hyper["learning_rate"],
        "explained_variance": plan.rows.explained_variance(),
    }
    return (
        agent.replace(
            policy=policy,
            return_scale=plan.return_scale,
            rng=plan.rng,
            n_updates_done=agent.n_updates_done + 1,
        ),
        info,
    )


def advance(
    agent: Any, plan: Plan, progress: Progress, until: tf.Tensor | int
) -> Progress:
    """Takes gradient steps until so many were taken, or the policy moved too far."""
    config, rows = agent.config, plan.rows
    clip = plan.hyper["clip"]

    def body(step: tf.Tensor, states: Any, sums: dict, _: Any) -> tuple:
        minibatch = rows
        if tf.is_tensor(plan.order):
            picked = plan.order[step]
            minibatch = tf.nest.map_structure(lambda x: tf.gather(x, picked), rows)
        if config.normalize_advantages:
            given = minibatch.advantages
            spread = tf.math.rsqrt(minibatch.variance(given) + 1e-8)
            normalized = (given - minibatch.mean(given)) * spread
            minibatch = minibatch._replace(advantages=normalized)
        total = minibatch.total() / replicated.n_replicas()
        states, info = states.apply_loss_fn(
            lambda state, params, part: _loss(agent, state, params, part, total, clip),
            minibatch,
        )
        sums = tf.nest.map_structure(tf.add, sums, info)
        stop = tf.constant(False)
        if config.target_kl is not None:
            stop = info["approx_kl"] > 1.5 * config.target_kl
        return step + 1, states, sums, stop

    step, state, sums, stop = progress
    states = replicated.ReplicatedState.create(state)
    step, states, sums, stop = tf.while_loop(
        lambda step, _states, _sums, stop: (step < until) & ~stop,
        body,
        (step, states, sums, stop),
    )
    return Progress(step, states.state, sums, stop)


_INFO = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


def _loss(
    agent: Any,
    state: train_state.TrainState,
    params: Any,
    rows: advantages.Experience,
    total: tf.Tensor,
    clip: tf.Tensor | float,
) -> tuple[tf.Tensor, dict]:
    config, head = agent.config, agent.policy.head
    parameters, values = state(rows.observations, params=params)
    surrogate = policy_losses.ppo_clip_loss(
        head.log_prob(parameters, rows.actions), rows.log_probs, rows.advantages, clip
    )
    old_values = None if config.value_clip is None else rows.values
    errors = policy_losses.value_loss(
        values, rows.returns, old_values, config.value_clip
    )
    info = {
        "policy_loss": rows.mean(surrogate.loss, total),
        "value_loss": rows.mean(errors.loss, total),
        "entropy": rows.mean(head.entropy(parameters), total),
        "approx_kl": rows.mean(surrogate.extra.approx_kl, total),
        "clip_fraction": rows.mean(surrogate.extra.clipped, total),
    }
    loss = (
        info["policy_loss"]
        + config.value_coefficient * info["value_loss"]
        - config.entropy_coefficient * info["entropy"]
    )
    return loss, {"loss": loss, **info}
