"""Proximal policy optimization with a clipped surrogate objective."""

import dataclasses
from typing import Any, ClassVar

import gymnasium as gym
import tensorflow as tf

from tfrl.agents import advantages, agent
from tfrl.agents.on_policy import _on_policy, _settings
from tfrl.core import pytree, random, records
from tfrl.losses import policy as policy_losses
from tfrl.stats import moments


@dataclasses.dataclass(frozen=True)
class PPO:
    """Hyper-parameters of proximal policy optimization.

    Attributes:
        gamma: discount factor per step.
        lambda_: of the generalized advantage estimate.
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        learning_rate_schedule: `"linear"` lets the number fall to 0 over the run.
        optimizer: a function of `learning_rate` that makes it, such as
            `tfrl.agents.adamw`, or Adam, AdamW, RMSprop or SGD of `keras.optimizers`,
            any with options by `functools.partial`; None for Adam.
        clip: how far the probability ratio may leave 1: a number or a schedule.
        clip_schedule: `"linear"` lets the number fall to 0 over the run.
        value_clip: how far values may leave the old ones per update; None for no limit.
        value_coefficient: weight of half the squared error of the values: 1.0 here
            equals Stable-Baselines3's default `vf_coef=0.5`.
        entropy_coefficient: weight of the entropy bonus: a number or a schedule.
        n_epochs: passes over each trajectory.
        minibatch_size: rows per gradient step; must divide steps times environments.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        target_kl: an update stops once a minibatch's approximate KL divergence exceeds
            1.5 times this; None never stops.
        normalize_advantages: to mean 0 and standard deviation 1 per minibatch.
        normalize_observations: by running moments that are saved with the agent.
        normalize_rewards: by the running spread of the returns, also saved.
        hidden_units: of the actor and of the critic.
        activation: of both.
        squash: squash continuous actions by tanh instead of clipping them.
        log_std: initial log standard deviation of continuous actions.
        memory: "gru" or "lstm" for an actor and a critic that remember their episode,
            before the `hidden_units`; "own" for the memory of your own `network`, see
            `tfrl.policies.RecurrentPolicy.create`; None for none. Minibatches are then
            whole sequences, each of one environment: `minibatch_size` is `n_steps`
            times a number that divides `n_envs`.
        memory_units: of either memory, or how many numbers your own remembers.
        noise_steps: for how many steps continuous exploration is one function of the
            state (gSDE), see `tfrl.policies.StateNoisePolicy`; `log_std` then applies
            where features are of size 1: their number F is divided out, so that 0 here
            is a `log_std_init` of -log(F) / 2 in Stable-Baselines3, -2.1 for 64. None
            draws anew in each step.
        vtrace: correct for a policy that acted some updates ago: advantages and values
            come from V-trace, as in `IMPALA`, with `lambda_` for its trace. The clipped
            ratio remains the one to the policy before the update.

    Example:
        >>> agent = PPO(minibatch_size=4).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2,)

    References:
        Schulman et al., 2017, Proximal Policy Optimization Algorithms, algorithm 1.
        Espeholt et al., 2018, IMPALA, section 4, for `vtrace`.
    """

    learns_from: ClassVar[str] = "trajectories"
    initial_settings: ClassVar[tuple[str, ...]] = ("log_std",)

    gamma: float = 0.99
    lambda_: float = 0.95
    learning_rate: agent.Scheduled = 3e-4
    learning_rate_schedule: str = "constant"
    clip: agent.Scheduled = 0.2
    clip_schedule: str = "constant"
    value_clip: float | None = None
    value_coefficient: float = 0.5
    entropy_coefficient: agent.Scheduled = 0.0
    n_epochs: int = 10
    minibatch_size: int = 64
    max_gradient_norm: float | None = 0.5
    target_kl: float | None = None
    normalize_advantages: bool = True
    normalize_observations: bool = False
    normalize_rewards: bool = False
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    squash: bool = False
    log_std: float = 0.0
    memory: str | None = None
    memory_units: int = 64
    noise_steps: int | None = None
    vtrace: bool = False
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        agent.check_settings(
            self,
            scheduled=("learning_rate", "clip"),
            positive=("n_epochs", "minibatch_size"),
            nonnegative=("value_coefficient",),
            optional=("max_gradient_norm", "value_clip", "target_kl"),
            shares=("gamma", "lambda_"),
        )

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
            network: your own Keras model, or a function of both spaces that returns
                one: from observations to a pair of the head's parameters and values;
                see `ActorCriticPolicy.create`.
            n_envs: environments per trajectory, N; required where rewards are
                normalized.
            n_steps: steps per environment and trajectory, T; with it and `n_envs`,
                `minibatch_size` is checked now instead of at the first update.

        Returns:
            An untrained `PPOAgent`.

        Raises:
            ValueError: if `minibatch_size` does not divide T * N, is not a number of
                whole sequences where there is a memory, or cannot be shared evenly by
                the replicas in scope; or if a count is not positive.
            TypeError: if a space is of an unsupported kind.
        """
        _settings.check_counts(self, n_envs, n_steps)
        if self.normalize_rewards and n_envs is None:
            raise ValueError(
                "`PPO.create`: `n_envs` expected the number of environments, as "
                "`normalize_rewards` follows each of them; got None"
            )
        scale: Any = ()
        if n_envs is not None and self.normalize_rewards:
            scale = moments.ReturnScale.create(n_envs)
        return PPOAgent(
            policy=agent.actor_critic_of(
                self, observation_space, action_space, network, seed, eps=1e-5
            ),
            return_scale=scale,
            rng=random.checked_seed("PPO.create", seed),
            n_updates_done=tf.constant(0),
            config=self,
        )


class PPOAgent(_on_policy.OnPolicyAgent):
    """A policy trained by proximal policy optimization. Make one with `PPO.create`.

    Attributes:
        policy: the `ActorCriticPolicy`, or `RecurrentPolicy`.
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

    return_scale: Any
    rng: tf.Tensor
    n_updates_done: tf.Tensor
    config: PPO = pytree.nonpytree_field()

    _scheduled = ("learning_rate", "clip", "entropy_coefficient")
    _measured = ("approx_kl", "clip_fraction")

    @property
    def needs_log_probs(self) -> bool:
        """Whether trajectories must have log-probabilities: with `vtrace`."""
        return self.config.vtrace

    def _advantages(
        self,
        trajectory: records.Trajectory,
        rewards: tf.Tensor,
        outputs: advantages.Outputs | None,
    ) -> advantages.Experience:
        if not self.config.vtrace:
            return super()._advantages(trajectory, rewards, outputs)
        return advantages.estimate_corrected_advantages(
            self.policy,
            trajectory,
            rewards,
            gamma=self.config.gamma,
            lambda_=self.config.lambda_,
            outputs=outputs,
        )

    def _policy_losses(
        self, log_probs: tf.Tensor, rows: advantages.Experience, hyper: dict
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        loss, extra = policy_losses.ppo_clip_loss(
            log_probs, rows.log_probs, rows.advantages, hyper["clip"]
        )
        # As others count it, whether or not the gradient is cut; see `extra.clipped`.
        dtype = extra.ratios.dtype
        beyond = tf.abs(extra.ratios - 1) > tf.cast(hyper["clip"], dtype)
        return loss, {
            "approx_kl": extra.approx_kl,
            "clip_fraction": tf.cast(beyond, dtype),
        }
