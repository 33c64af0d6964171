"""Proximal policy optimization with a clipped surrogate objective."""

import dataclasses
import functools
from typing import Any, ClassVar, Self

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import (
    _hyper_parameters,
    _outputs,
    _pieces,
    _ppo_steps,
    advantages,
    gradient_transforms,
    replicated,
    train_state,
)
from tfrl.core import checks, pytree, random, records
from tfrl.policies import actor_critic
from tfrl.schedules import progress as progresses
from tfrl.stats import moments


@dataclasses.dataclass(frozen=True)
class PPO:
    """Hyper-parameters of proximal policy optimization.

    Attributes:
        gamma: discount factor per step.
        lambda_: of the generalized advantage estimate.
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        learning_rate_schedule: `"linear"` lets the number fall to 0 over the run.
        clip: how far the probability ratio may leave 1: a number or a schedule.
        clip_schedule: `"linear"` lets the number fall to 0 over the run.
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
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.sample_actions(np.zeros((2, 3), np.float32), seed=0).shape
        (2,)

    References:
        Schulman et al., 2017, Proximal Policy Optimization Algorithms, algorithm 1.
    """

    learns_from: ClassVar[str] = "trajectories"

    gamma: float = 0.99
    lambda_: float = 0.95
    learning_rate: _hyper_parameters.Scheduled = 3e-4
    learning_rate_schedule: str = "constant"
    clip: _hyper_parameters.Scheduled = 0.2
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
        for name in ("learning_rate", "clip"):
            kind = getattr(self, f"{name}_schedule")
            checks.check_one_of("PPO", f"{name}_schedule", kind, ("constant", "linear"))
            _hyper_parameters.check("PPO", name, getattr(self, name), kind)
        for name in ("n_epochs", "minibatch_size", "max_gradient_norm"):
            checks.check_positive("PPO", name, getattr(self, name))
        for name in ("value_clip", "target_kl"):
            if getattr(self, name) is not None:
                checks.check_positive("PPO", name, getattr(self, name))
        for name in ("gamma", "lambda_"):
            checks.check_within("PPO", name, getattr(self, name), 0.0, 1.0)
        units = checks.check_whole_numbers(
            "PPO", "hidden_units", self.hidden_units, low=1
        )
        object.__setattr__(self, "hidden_units", units)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
        n_envs: int | None = None,
        n_steps: int | None = None,
    ) -> "PPOAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            seed: of weights and minibatches.
            network: a Keras model of your own, or a function of both spaces that
                returns one: from observations to a pair of the head's parameters and
                values; see `ActorCriticPolicy.create`.
            n_envs: environments per trajectory, N; to be given where rewards are
                normalized.
            n_steps: steps per environment and trajectory, T; with it and `n_envs`,
                `minibatch_size` is checked now and not at the first update.

        Returns:
            A `PPOAgent` that learned nothing yet.

        Raises:
            ValueError: if `minibatch_size` does not divide T * N or cannot be shared
                evenly by the replicas in scope, or a count is not positive.
            TypeError: if a space is of an unsupported kind.
        """
        for name, count in (("n_envs", n_envs), ("n_steps", n_steps)):
            if count is not None:
                checks.check_positive("PPO", name, count)
        if n_envs is not None and n_steps is not None:
            self._check_rows("PPO", n_envs * n_steps)
        if self.normalize_rewards and n_envs is None:
            raise ValueError(
                "`PPO.create`: `n_envs` expected the number of environments, as "
                "`normalize_rewards` follows each of them; got None"
            )
        tx = gradient_transforms.chain(
            gradient_transforms.clip_by_global_norm(self.max_gradient_norm),
            gradient_transforms.adam(
                _hyper_parameters.first(self.learning_rate), eps=1e-5
            ),
        )
        policy = actor_critic.ActorCriticPolicy.create(
            observation_space,
            action_space,
            learner=functools.partial(train_state.TrainState.create, tx=tx),
            network=network,
            hidden_units=self.hidden_units,
            activation=self.activation,
            squash=self.squash,
            log_std=self.log_std,
            normalize_observations=self.normalize_observations,
            seed=seed,
        )
        scale: Any = ()
        if n_envs is not None and self.normalize_rewards:
            scale = moments.ReturnScale.create(n_envs)
        return PPOAgent(
            policy=policy,
            return_scale=scale,
            rng=random.new_seed(seed),
            n_updates_done=tf.constant(0),
            config=self,
        )

    def _check_rows(self, where: str, n_rows: int) -> None:
        if n_rows % self.minibatch_size:
            raise ValueError(
                f"`{where}`: `minibatch_size` expected to divide steps * environments "
                f"= {n_rows}; got {self.minibatch_size}; choose a divisor"
            )
        replicated.check_rows(
            where, "minibatch_size", self.minibatch_size, divides=n_rows
        )


class PPOAgent(pytree.PyTreeNode):
    """A policy trained by proximal policy optimization. Make one with `PPO.create`.

    Attributes:
        policy: the `ActorCriticPolicy`.
        return_scale: `ReturnScale`, or `()` without reward normalization.
        rng: int32 `[2]`, seed of the minibatches to come.
        n_updates_done: int32 `[]`.
        config: the hyper-parameters.

    Example:
        >>> agent = PPO(minibatch_size=2, n_epochs=1).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), seed=0)
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
    config: PPO = pytree.nonpytree_field()

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
        """Learns from a trajectory, over several epochs of minibatches.

        A brief update is one compiled call. A longer one, on images or by a large
        network, is made of calls of a fraction of a second, between which Python takes
        notice of signals; nothing is learned by an update that is interrupted, and the
        agent stays what it was.

        Args:
            trajectory: `[T, N]`; keep T and N, since others are compiled anew.
            progress: what hyper-parameters that are schedules follow; that in context
                if None.

        Returns:
            The new agent, and an info: float32 scalars averaged over the gradient steps
            taken.

        Raises:
            TypeError: if `trajectory` is none.
            ValueError: if `minibatch_size` does not divide T * N, or the replicas
                cannot share its rows evenly.
        """
        advantages.check_trajectory("PPO.update", trajectory)
        n_rows = trajectory.rewards.shape[0] * trajectory.rewards.shape[1]
        config = self.config
        config._check_rows("PPO.update", n_rows)
        hyper = _hyper_parameters.at(
            progress,
            learning_rate=(config.learning_rate, config.learning_rate_schedule),
            clip=(config.clip, config.clip_schedule),
        )
        learner = self.replace(policy=self.policy.lent())
        n_gradient_steps = _ppo_steps.n_gradient_steps(config, n_rows)
        work = _pieces.Work(
            learner.policy.state, n_gradient_steps, config.minibatch_size
        )
        if work.is_brief or not tf.executing_eagerly():
            agent, info = replicated.run_update(
                _compiled_update, learner, trajectory, hyper
            )
        else:
            agent, info = _update_in_pieces(work, learner, trajectory, hyper)
        return agent.replace(policy=agent.policy.returned(self.policy)), info


# Beside the steps of replicas these are compiled, so that all draw what one alone does;
# alone they melt into the one function of a brief update.
_compiled_prepare = replicated.compiled_update(_ppo_steps.prepare)
_compiled_advance = replicated.compiled_update(_ppo_steps.advance)
_compiled_finish = replicated.compiled_update(_ppo_steps.finish)


def _update(
    agent: PPOAgent, trajectory: records.Trajectory, hyper: dict[str, tf.Tensor]
) -> tuple[PPOAgent, dict]:
    plan, progress = _compiled_prepare(agent, trajectory, hyper)
    n_rows = plan.rows.weights.shape[0]
    n_gradient_steps = _ppo_steps.n_gradient_steps(agent.config, n_rows)
    progress = _ppo_steps.advance(agent, plan, progress, n_gradient_steps)
    return _compiled_finish(agent, trajectory, plan, progress)


_compiled_update = replicated.compiled_update(_update)


def _update_in_pieces(
    work: _pieces.Work,
    agent: PPOAgent,
    trajectory: records.Trajectory,
    hyper: dict[str, tf.Tensor],
) -> tuple[PPOAgent, dict]:
    outputs = _outputs.in_pieces(agent.policy, trajectory, work.n_forward_rows)
    # The successors, half of the data, have said what they had to.
    trajectory = tf.nest.map_structure(
        tf.convert_to_tensor, trajectory._replace(next_observations=())
    )
    plan, progress = replicated.run_alone(
        _compiled_prepare, agent, trajectory, hyper, outputs
    )
    progress = _pieces.in_pieces(
        work,
        lambda progress, until: replicated.run_update(
            _compiled_advance, agent, plan, progress, until
        ),
        progress,
    )
    return replicated.run_alone(_compiled_finish, agent, trajectory, plan, progress)
