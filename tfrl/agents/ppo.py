"""Proximal policy optimization with a clipped surrogate objective."""

import dataclasses
from typing import Any, NamedTuple, Self

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import _replicated, actor_critic, gradient_transforms, train_state
from tfrl.core import checks, compile, pytree, random, records
from tfrl.losses import policy as policy_losses
from tfrl.stats import moments


@dataclasses.dataclass(frozen=True)
class PPO:
    """Hyper-parameters of proximal policy optimization.

    Attributes:
        gamma: discount factor per step.
        lambda_: of the generalized advantage estimate.
        learning_rate: of Adam, at the first update.
        learning_rate_schedule: `"constant"`, or `"linear"` to 0 at the last update.
        clip: how far the probability ratio may leave 1, at the first update.
        clip_schedule: `"constant"`, or `"linear"` to 0 at the last update.
        value_clip: how far values may leave the old ones per update; None for free.
        value_coefficient: weight of the value loss.
        entropy_coefficient: weight of the entropy bonus.
        n_epochs: passes over each trajectory.
        minibatch_size: rows per gradient step; must divide steps times environments.
        max_gradient_norm: global norm to which gradients are clipped.
        target_kl: an update stops once a minibatch's approximate KL divergence exceeds
            1.5 times this; None never stops.
        normalize_advantages: to mean 0 and standard deviation 1 per minibatch.
        normalize_observations: by running moments that are saved with the agent.
        normalize_rewards: by the running spread of the returns, saved likewise.
        hidden_units: of the actor and of the critic.
        activation: of both.
        squash: squash continuous actions by tanh instead of clipping them.
        log_std: initial log standard deviation of continuous actions.

    Example:
        >>> agent = PPO(minibatch_size=4).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2),
        ...     n_envs=2, n_steps=8, n_updates=10, seed=0)
        >>> agent.sample_actions(np.zeros((2, 3), np.float32), seed=0).shape
        TensorShape([2])

    References:
        Schulman et al., 2017, Proximal Policy Optimization Algorithms, algorithm 1.
    """

    gamma: float = 0.99
    lambda_: float = 0.95
    learning_rate: float = 3e-4
    learning_rate_schedule: str = "constant"
    clip: float = 0.2
    clip_schedule: str = "constant"
    value_clip: float | None = None
    value_coefficient: float = 0.5
    entropy_coefficient: float = 0.0
    n_epochs: int = 10
    minibatch_size: int = 64
    max_gradient_norm: float = 0.5
    target_kl: float | None = None
    normalize_advantages: bool = True
    normalize_observations: bool = False
    normalize_rewards: bool = False
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    squash: bool = False
    log_std: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "learning_rate",
            "clip",
            "n_epochs",
            "minibatch_size",
            "max_gradient_norm",
        ):
            checks.check_positive("PPO", name, getattr(self, name))
        for name in ("value_clip", "target_kl"):
            if getattr(self, name) is not None:
                checks.check_positive("PPO", name, getattr(self, name))
        for name in ("gamma", "lambda_"):
            checks.check_within("PPO", name, getattr(self, name), 0.0, 1.0)
        for name in ("learning_rate_schedule", "clip_schedule"):
            checks.check_one_of(
                "PPO", name, getattr(self, name), ("constant", "linear")
            )
        object.__setattr__(self, "hidden_units", tuple(self.hidden_units))

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        n_envs: int,
        n_steps: int,
        n_updates: int,
        seed: int,
    ) -> "PPOAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            n_envs: environments per trajectory, N.
            n_steps: steps per environment and trajectory, T.
            n_updates: updates of the whole run, over which linear schedules fall to 0.
            seed: of weights and minibatches.

        Returns:
            A `PPOAgent` that learned nothing yet.

        Raises:
            ValueError: if `minibatch_size` does not divide T * N or cannot be shared
                evenly by the replicas in scope, or a count is not positive.
            TypeError: if a space is of an unsupported kind.
        """
        for name, value in [
            ("n_envs", n_envs),
            ("n_steps", n_steps),
            ("n_updates", n_updates),
        ]:
            checks.check_positive("PPO", name, value)
        if n_steps * n_envs % self.minibatch_size:
            raise ValueError(
                "`PPO`: `minibatch_size` expected to divide steps * environments = "
                f"{n_steps * n_envs}; got {self.minibatch_size}; choose a divisor"
            )
        _replicated.check_rows(
            "PPO", "minibatch_size", self.minibatch_size, divides=n_steps * n_envs
        )
        policy = actor_critic.ActorCriticPolicy.create(
            observation_space,
            action_space,
            tx=gradient_transforms.chain(
                gradient_transforms.clip_by_global_norm(self.max_gradient_norm),
                gradient_transforms.adam(self.learning_rate, eps=1e-5),
            ),
            hidden_units=self.hidden_units,
            activation=self.activation,
            squash=self.squash,
            log_std=self.log_std,
            normalize_observations=self.normalize_observations,
            seed=seed,
        )
        scale = moments.ReturnScale.create(n_envs) if self.normalize_rewards else ()
        return PPOAgent(
            policy=policy,
            return_scale=scale,
            rng=random.new_seed(seed),
            n_updates_done=tf.constant(0),
            n_updates=n_updates,
            config=self,
        )


class PPOAgent(pytree.PyTreeNode):
    """A policy trained by proximal policy optimization. Make one with `PPO.create`.

    Attributes:
        policy: the `ActorCriticPolicy`.
        return_scale: `ReturnScale`, or `()` without reward normalization.
        rng: int32 `[2]`, seed of the minibatches to come.
        n_updates_done: int32 `[]`.
        n_updates: of the whole run.
        config: the hyper-parameters.

    Example:
        >>> agent = PPO(minibatch_size=2, n_epochs=1).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2),
        ...     n_envs=2, n_steps=1, n_updates=1, seed=0)
        >>> flags = np.zeros((1, 2), bool)
        >>> agent, info = agent.update(tfrl.core.Trajectory(
        ...     np.zeros((1, 2, 1), np.float32), np.zeros((1, 2), np.int32),
        ...     np.ones((1, 2), np.float32), flags, flags,
        ...     np.zeros((1, 2, 1), np.float32), ~flags))
        >>> int(agent.n_updates_done), int(info["gradient_steps"])
        (1, 1)
    """

    policy: actor_critic.ActorCriticPolicy
    return_scale: Any
    rng: tf.Tensor
    n_updates_done: tf.Tensor
    n_updates: int = pytree.nonpytree_field()
    config: PPO = pytree.nonpytree_field()

    def sample_actions(
        self,
        observations: Any,
        *,
        seed: int | tf.Tensor | None = None,
        temperature: float = 1.0,
    ) -> tf.Tensor:
        """Draws actions; see `ActorCriticPolicy.sample_actions`."""
        return self.policy.sample_actions(
            observations, seed=seed, temperature=temperature
        )

    def update(self, trajectory: records.Trajectory) -> tuple[Self, dict]:
        """Learns from a trajectory: every epoch and minibatch in one compiled call.

        Args:
            trajectory: `[T, N]`; keep T and N, since XLA compiles anew for others.

        Returns:
            The new agent, and an info: float32 scalars averaged over the gradient steps
            taken, and the `parameters` of which `Agent.update` speaks.

        Raises:
            ValueError: if the replicas cannot share `minibatch_size` rows evenly.
        """
        n_rows = trajectory.rewards.shape[0] * trajectory.rewards.shape[1]
        size = self.config.minibatch_size
        _replicated.check_rows("PPO.update", "minibatch_size", size, divides=n_rows)
        # A run of another length learns by the same compiled code.
        n_updates = tf.constant(self.n_updates, tf.float32)
        agent, info = _replicated.run(
            _compiled_update, self.replace(n_updates=0), trajectory, n_updates
        )
        return agent.replace(n_updates=self.n_updates), info


class _Plan(NamedTuple):
    """What is known before the gradient steps.

    Attributes:
        rows: everything to learn from.
        order: rows of each step `[steps, minibatch_size]`; `()` where all take all.
        left: share of the updates that are yet to come.
        return_scale: of the new agent.
        rng: of the new agent.
    """

    rows: actor_critic.Experience
    order: Any
    left: tf.Tensor
    return_scale: Any
    rng: tf.Tensor


def _prepare(
    agent: PPOAgent, trajectory: records.Trajectory, n_updates: tf.Tensor
) -> _Plan:
    config = agent.config
    ended = trajectory.terminated | trajectory.truncated
    rewards, scale = trajectory.rewards, agent.return_scale
    if config.normalize_rewards:
        scale, rewards = scale(rewards, ended, trajectory.valid, gamma=config.gamma)
    rows = actor_critic.estimate_advantages(
        agent.policy, trajectory, rewards, gamma=config.gamma, lambda_=config.lambda_
    )
    left = 1.0 - tf.cast(agent.n_updates_done, tf.float32) / n_updates
    left = tf.maximum(left, 0.0)
    rng, seed = random.split_seed(agent.rng, 2)
    n_rows, order = rows.weights.shape[0], ()
    if n_rows > config.minibatch_size:
        keys = tf.random.stateless_uniform([config.n_epochs, n_rows], seed)
        order = tf.argsort(keys, axis=-1)
        order = tf.reshape(order, [-1, config.minibatch_size])
    return _Plan(rows, order, left, scale, rng)


def _finish(
    agent: PPOAgent, trajectory: records.Trajectory, plan: _Plan, state: Any, info: dict
) -> tuple[PPOAgent, dict]:
    policy = agent.policy.replace(state=state)
    if agent.config.normalize_observations:
        # Only now: the moments that acted must be those that are learned with.
        policy = policy.update_moments(trajectory.observations, trajectory.valid)
    info["explained_variance"] = plan.rows.explained_variance()
    info["parameters"] = policy.last_parameters(trajectory)
    return (
        agent.replace(
            policy=policy,
            return_scale=plan.return_scale,
            rng=plan.rng,
            n_updates_done=agent.n_updates_done + 1,
        ),
        info,
    )


# Beside the steps of replicas these are compiled, so that all draw what one alone does;
# alone they melt into the one function.
_compiled_prepare = compile.jit(_prepare)
_compiled_finish = compile.jit(_finish)


def _update(
    agent: PPOAgent, trajectory: records.Trajectory, n_updates: tf.Tensor
) -> tuple[PPOAgent, dict]:
    plan = _compiled_prepare(agent, trajectory, n_updates)
    state, info = _gradient_steps(agent, plan)
    return _compiled_finish(agent, trajectory, plan, state, info)


_compiled_update = compile.jit(_update, differentiable=False)


def _gradient_steps(agent: PPOAgent, plan: _Plan) -> tuple[Any, dict]:
    config, rows, left = agent.config, plan.rows, plan.left
    clip = config.clip * (left if config.clip_schedule == "linear" else 1.0)
    rate = config.learning_rate * (
        left if config.learning_rate_schedule == "linear" else 1.0
    )
    start = agent.policy.state
    start = start.replace(
        opt_state=gradient_transforms.with_learning_rate(start.opt_state, rate)
    )
    n_steps = config.n_epochs * (rows.weights.shape[0] // config.minibatch_size)

    def body(step: tf.Tensor, states: Any, sums: dict, _: Any) -> tuple:
        minibatch = rows
        if tf.is_tensor(plan.order):
            picked = plan.order[step]
            minibatch = tf.nest.map_structure(lambda x: tf.gather(x, picked), rows)
        if config.normalize_advantages:
            advantages = minibatch.advantages
            spread = tf.math.rsqrt(minibatch.variance(advantages) + 1e-8)
            advantages = (advantages - minibatch.mean(advantages)) * spread
            minibatch = minibatch._replace(advantages=advantages)
        total = minibatch.total() / _replicated.n_replicas()
        states, info = states.apply_loss_fn(
            lambda state, params, part: _loss(agent, state, params, part, total, clip),
            minibatch,
        )
        sums = tf.nest.map_structure(tf.add, sums, info)
        stop = tf.constant(False)
        if config.target_kl is not None:
            stop = info["approx_kl"] > 1.5 * config.target_kl
        return step + 1, states, sums, stop

    zeros = {name: tf.zeros([]) for name in _INFO}
    steps, states, sums, _ = tf.while_loop(
        lambda step, _states, _sums, stop: (step < n_steps) & ~stop,
        body,
        (
            tf.constant(0),
            _replicated.ReplicatedState.create(start),
            zeros,
            tf.constant(False),
        ),
    )
    count = tf.cast(steps, tf.float32)
    info = {name: total / count for name, total in sums.items()}
    return states.state, {
        **info,
        "gradient_steps": count,
        "learning_rate": tf.cast(rate, tf.float32),
    }


_INFO = ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


def _loss(
    agent: PPOAgent,
    state: train_state.TrainState,
    params: Any,
    rows: actor_critic.Experience,
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
