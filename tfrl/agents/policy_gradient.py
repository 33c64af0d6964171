"""The policy gradient with a learned baseline: REINFORCE."""

import dataclasses
import functools
from typing import Any, ClassVar, Self

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import (
    _hyper_parameters,
    _outputs,
    _pieces,
    advantages,
    gradient_transforms,
    replicated,
    train_state,
)
from tfrl.core import checks, pytree, records
from tfrl.losses import policy as policy_losses
from tfrl.policies import actor_critic
from tfrl.schedules import progress as progresses


@dataclasses.dataclass(frozen=True)
class PolicyGradient:
    """Hyper-parameters of the policy gradient with a learned baseline.

    Each trajectory gives one gradient step of

        loss = mean(-log_prob * A) + value_coefficient * mean((V - G)^2) / 2
               - entropy_coefficient * mean(entropy)

    where G is the lambda-return and A = G - V, normalized over the trajectory.

    Attributes:
        gamma: discount factor per step.
        lambda_: 1 is REINFORCE with a baseline, less leans on the values.
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        value_coefficient: weight of the value loss.
        entropy_coefficient: weight of the entropy bonus.
        max_gradient_norm: global norm to which gradients are clipped.
        hidden_units: of the actor and of the critic.
        activation: of both.

    Example:
        >>> agent = PolicyGradient().create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.sample_actions(np.zeros((2, 3), np.float32), seed=0).shape
        (2,)

    References:
        Williams, 1992, Simple Statistical Gradient-Following Algorithms for
        Connectionist Reinforcement Learning, section 5 (baselines).
    """

    learns_from: ClassVar[str] = "trajectories"

    gamma: float = 0.99
    lambda_: float = 1.0
    learning_rate: _hyper_parameters.Scheduled = 3e-3
    value_coefficient: float = 0.5
    entropy_coefficient: float = 0.0
    max_gradient_norm: float = 0.5
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "tanh"

    def __post_init__(self) -> None:
        _hyper_parameters.check("PolicyGradient", "learning_rate", self.learning_rate)
        checks.check_positive(
            "PolicyGradient", "max_gradient_norm", self.max_gradient_norm
        )
        for name in ("gamma", "lambda_"):
            checks.check_within("PolicyGradient", name, getattr(self, name), 0.0, 1.0)
        units = checks.check_whole_numbers(
            "PolicyGradient", "hidden_units", self.hidden_units, low=1
        )
        object.__setattr__(self, "hidden_units", units)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        n_envs: int | None = None,
        n_steps: int | None = None,
        seed: int = 0,
        network: Any = None,
    ) -> "PolicyGradientAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            n_envs: environments per trajectory, N.
            n_steps: steps per environment and trajectory, T; with it and `n_envs`,
                replicas that cannot share the rows are found before the first update.
            seed: of the weights.
            network: a Keras model of your own, or a function of both spaces that
                returns one: from observations to a pair of the head's parameters and
                values; see `ActorCriticPolicy.create`.

        Returns:
            A `PolicyGradientAgent` that learned nothing yet.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit, or the replicas cannot
                share the rows evenly.
        """
        for name, count in (("n_envs", n_envs), ("n_steps", n_steps)):
            if count is not None:
                checks.check_whole_number("PolicyGradient", name, count, low=1)
        if n_envs is not None and n_steps is not None:
            n_rows = n_steps * n_envs
            replicated.check_rows("PolicyGradient", "n_steps * n_envs", n_rows)
        tx = gradient_transforms.chain(
            gradient_transforms.clip_by_global_norm(self.max_gradient_norm),
            gradient_transforms.adam(_hyper_parameters.first(self.learning_rate)),
        )
        policy = actor_critic.ActorCriticPolicy.create(
            observation_space,
            action_space,
            learner=functools.partial(train_state.TrainState.create, tx=tx),
            network=network,
            hidden_units=self.hidden_units,
            activation=self.activation,
            seed=seed,
        )
        return PolicyGradientAgent(policy=policy, config=self)


class PolicyGradientAgent(pytree.PyTreeNode):
    """A policy trained by its gradient. Make one with `PolicyGradient.create`.

    Attributes:
        policy: the `ActorCriticPolicy`.
        config: the hyper-parameters.

    Example:
        >>> agent = PolicyGradient().create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0)
        >>> flags = np.zeros((1, 2), bool)
        >>> agent, info = agent.update(tfrl.core.Trajectory(
        ...     np.zeros((1, 2, 1), np.float32), np.zeros((1, 2), np.int32),
        ...     np.ones((1, 2), np.float32), flags, flags,
        ...     np.zeros((1, 2, 1), np.float32), ~flags))
        >>> sorted(info)[:3]
        ['entropy', 'explained_variance', 'loss']
    """

    policy: actor_critic.ActorCriticPolicy
    config: PolicyGradient = pytree.nonpytree_field()

    def sample_actions(
        self, observations: Any, *, seed: Any = None, temperature: float = 1.0
    ) -> Any:
        """Draws actions; see `NetworkPolicy.act`."""
        return self.policy.sample_actions(
            observations, seed=seed, temperature=temperature
        )

    def update(
        self,
        trajectory: records.Trajectory,
        *,
        progress: progresses.Progress | None = None,
    ) -> tuple[Self, dict]:
        """Takes one gradient step on a trajectory.

        It is one compiled call, or on images and with a large network several, between
        which Python takes notice of signals; see `PPOAgent.update`.

        Args:
            trajectory: `[T, N]`; every T and N is compiled anew.
            progress: what a schedule follows; that in context if None.

        Returns:
            The new agent, and an info: float32 scalars about the step.

        Raises:
            TypeError: if `trajectory` is none.
            ValueError: if the replicas cannot share T * N rows evenly.
        """
        advantages.check_trajectory("PolicyGradient.update", trajectory)
        n_steps, n_envs = trajectory.rewards.shape
        n_rows = n_steps * n_envs
        replicated.check_rows("PolicyGradient.update", "trajectory", n_rows)
        rate = (self.config.learning_rate, "constant")
        hyper = _hyper_parameters.at(progress, learning_rate=rate)
        learner = self.replace(policy=self.policy.lent())
        work = _pieces.Work(learner.policy.state, 1, n_rows)
        if work.is_brief or not tf.executing_eagerly():
            agent, info = replicated.run_update(
                _compiled_update, learner, trajectory, hyper
            )
        else:
            agent, info = _update_in_pieces(work, learner, trajectory, hyper)
        return agent.replace(policy=agent.policy.returned(self.policy)), info


def _prepare(
    agent: PolicyGradientAgent, trajectory: records.Trajectory, outputs: Any = None
) -> tuple[advantages.Experience, tf.Tensor]:
    """The rows to learn from, advantages normalized, and their explained variance."""
    rows = advantages.estimate_advantages(
        agent.policy,
        trajectory,
        trajectory.rewards,
        gamma=agent.config.gamma,
        lambda_=agent.config.lambda_,
        outputs=outputs,
    )
    explained_variance = rows.explained_variance()
    centred = rows.advantages - rows.mean(rows.advantages)
    normalized = centred * tf.math.rsqrt(rows.variance(rows.advantages) + 1e-8)
    return rows._replace(advantages=normalized), explained_variance


# Beside the step of replicas these are compiled; alone they melt into the one function
# of a brief update.
_compiled_prepare = replicated.compiled_update(_prepare)


def _update(
    agent: PolicyGradientAgent,
    trajectory: records.Trajectory,
    hyper: dict[str, tf.Tensor],
) -> tuple[PolicyGradientAgent, dict]:
    rows, explained_variance = _compiled_prepare(agent, trajectory)
    policy, info = _step(agent, rows, hyper)
    info = {**info, "explained_variance": explained_variance}
    return agent.replace(policy=policy), info


_compiled_update = replicated.compiled_update(_update)


def _update_in_pieces(
    work: _pieces.Work,
    agent: PolicyGradientAgent,
    trajectory: records.Trajectory,
    hyper: dict[str, tf.Tensor],
) -> tuple[PolicyGradientAgent, dict]:
    outputs = _outputs.in_pieces(agent.policy, trajectory, work.n_forward_rows)
    # The successors, half of the data, have said what they had to.
    trajectory = tf.nest.map_structure(
        tf.convert_to_tensor, trajectory._replace(next_observations=())
    )
    rows, explained_variance = replicated.run_alone(
        _compiled_prepare, agent, trajectory, outputs
    )
    policy, info = replicated.run_update(_compiled_step, agent, rows, hyper)
    info = {**info, "explained_variance": explained_variance}
    return agent.replace(policy=policy), info


def _step(
    agent: PolicyGradientAgent,
    rows: advantages.Experience,
    hyper: dict[str, tf.Tensor],
) -> tuple[actor_critic.ActorCriticPolicy, dict]:
    config, policy = agent.config, agent.policy
    total = rows.total() / replicated.n_replicas()

    def loss_fn(
        state: train_state.TrainState, params: Any, part: advantages.Experience
    ) -> tuple[tf.Tensor, dict]:
        parameters, values = state(part.observations, params=params)
        log_probs = policy.head.log_prob(parameters, part.actions)
        losses = policy_losses.policy_gradient_loss(log_probs, part.advantages).loss
        errors = policy_losses.value_loss(values, part.returns).loss
        info = {
            "policy_loss": part.mean(losses, total),
            "value_loss": part.mean(errors, total),
            "entropy": part.mean(policy.head.entropy(parameters), total),
        }
        loss = (
            info["policy_loss"]
            + config.value_coefficient * info["value_loss"]
            - config.entropy_coefficient * info["entropy"]
        )
        return loss, {"loss": loss, **info}

    state = policy.state.replace(
        opt_state=gradient_transforms.with_learning_rate(
            policy.state.opt_state, hyper["learning_rate"]
        )
    )
    states = replicated.ReplicatedState.create(state)
    states, info = states.apply_loss_fn(loss_fn, rows)
    return policy.replace(state=states.state), info


_compiled_step = replicated.compiled_update(_step)
