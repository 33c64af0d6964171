"""Exploration by random network distillation, around an agent that learns on-policy."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import agent as agents
from tfrl.agents import random_distillation
from tfrl.agents.multi_agent import _rows, independent, self_play
from tfrl.agents.on_policy import ppo
from tfrl.core import pytree, records
from tfrl.schedules import progress as progresses


@dataclasses.dataclass(frozen=True)
class RND:
    """Hyper-parameters of an agent that is rewarded for what it has seldom seen.

        rewards'[t] = rewards[t] + scale * bonus(next_observations[t])

    The agent within learns from these sums; see `RandomNetworkDistillation` for the
    bonus. The policy and all else are those of the agent within, returns that are
    logged those of the environment.

    One value is learned, of the sum of both rewards, with the discount factor of the
    agent within. The paper learns two, of the rewards and of the bonuses, each with a
    factor of its own, and lets the return of the bonuses go on from one episode into
    the next. Here it ends with the episode: where episodes can be failed, an agent has
    the bonuses still to come to lose, and takes fewer risks than that of the paper.

    Attributes:
        agent: hyper-parameters of an agent that learns from trajectories; None for
            `PPO()`.
        scale: what a bonus is worth, beside rewards as the environment gives them: a
            number, or a schedule of `tfrl.schedules` or Keras.
        learning_rate: of the predictor's Adam.
        gamma: discount factor of the return by whose spread bonuses are scaled.
        share: of the rows of each trajectory that the predictor learns from. The more
            environments there are, the less it needs.
        n_epochs: passes of the predictor over them.
        n_minibatches: its gradient steps of a pass; see
            `RandomNetworkDistillation.create`.
        n_features: numbers that it predicts.
        hidden_units: of the random network; the predictor has two layers more.
        activation: of both.
        network: your own function of the observation space that returns both as Keras
            models, see `RandomNetworkDistillation.create`. The `network` of `create`
            and of a trainer is that of the agent within.

    Example:
        >>> config = RND(tfrl.agents.PPO(minibatch_size=4), scale=0.5)
        >>> agent = config.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), n_envs=4)
        >>> agent.policy.act(np.zeros((4, 3), np.float32), seed=0).actions.shape
        (4,)

    References:
        Burda, Edwards, Storkey, Klimov, 2018, Exploration by Random Network
        Distillation, arXiv 1810.12894.
    """

    learns_from: ClassVar[str] = "trajectories"

    agent: Any = None
    scale: agents.Scheduled = 1.0
    learning_rate: float = 1e-4
    gamma: float = 0.99
    share: float = 1.0
    n_epochs: int = 1
    n_minibatches: int = 4
    n_features: int = 64
    hidden_units: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    network: Callable[[gym.Space], Any] | None = None

    def __post_init__(self) -> None:
        where = "RND"
        if self.agent is None:
            object.__setattr__(self, "agent", ppo.PPO())
        _rows.check_config(where, "agent", self.agent)
        if isinstance(self.agent, self_play.SelfPlay | independent.Independent | RND):
            name = type(self.agent).__name__
            raise TypeError(
                f"`{where}`: `agent` expected hyper-parameters of one agent, such as "
                f"PPO(); got {name}; give RND({name}'s agent) to {name} instead"
            )
        agents.check_settings(
            self,
            scheduled=(),
            positive=("learning_rate", "share", "n_epochs", "n_minibatches"),
            shares=("gamma", "share"),
        )
        checks.check_positive(where, "n_features", self.n_features)
        agents.check_in_range(where, "scale", self.scale)
        if self.network is not None:
            random_distillation.check_network(where, self.network)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
        n_envs: int | None = None,
        n_steps: int | None = None,
    ) -> "RNDAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            seed: of weights and minibatches.
            network: as in the `create` of `agent`.
            n_envs: environments per trajectory, N.
            n_steps: steps per environment and trajectory, T.

        Returns:
            An untrained `RNDAgent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or a network is none.
            ValueError: if `n_envs` is not given, or hyper-parameters do not fit.
        """
        where = "RND.create"
        agents.check_spaces(self, observation_space, action_space)
        if n_envs is None:
            raise ValueError(
                f"`{where}`: `n_envs` expected the number of environments, as the "
                "bonuses of each are followed; got None"
            )
        names = [field.name for field in dataclasses.fields(self)]
        given = {x: getattr(self, x) for x in names if x not in ("agent", "scale")}
        distillation = random_distillation.RandomNetworkDistillation.create(
            observation_space, n_envs=n_envs, seed=seed, **given
        )
        if n_steps is not None:
            distillation.settings.n_rows(where, n_steps, n_envs)
        spaces = observation_space, action_space
        learner = _rows.created(self.agent, spaces, seed, n_envs, 1, n_steps, network)
        return RNDAgent(learner=learner, distillation=distillation, config=self)


class RNDAgent(pytree.PyTreeNode):
    """An agent and its bonuses. Make one with `RND.create`.

    Attributes:
        learner: the agent within, which acts.
        distillation: `RandomNetworkDistillation`.
        config: the hyper-parameters.

    Example:
        >>> agent = RND(tfrl.agents.A2C(), n_minibatches=1).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2), n_envs=2)
        >>> flags = np.zeros((1, 2), bool)
        >>> agent, info = agent.update(tfrl.core.Trajectory(
        ...     np.zeros((1, 2, 1), np.float32), np.zeros((1, 2), np.int32),
        ...     np.ones((1, 2), np.float32), flags, flags,
        ...     np.zeros((1, 2, 1), np.float32), ~flags))
        >>> sorted(info)[:2], agent.policy is agent.learner.policy
        (['bonus_mean', 'entropy'], True)
    """

    learner: Any
    distillation: random_distillation.RandomNetworkDistillation
    config: RND = pytree.nonpytree_field()

    @property
    def policy(self) -> Any:
        """What acts: the policy of the agent within."""
        return self.learner.policy

    @property
    def needs_log_probs(self) -> bool:
        """Whether trajectories must have log-probabilities."""
        return getattr(self.learner, "needs_log_probs", False)

    def update(
        self,
        trajectory: records.Trajectory,
        *,
        progress: progresses.Progress | None = None,
    ) -> tuple[Self, dict]:
        """Learns from a trajectory and its bonuses, and to predict what it has shown.

        Args:
            trajectory: `[T, N]`; keep T and N, since each new size is compiled anew.
            progress: what scheduled hyper-parameters follow; the one in context if
                None.

        Returns:
            The new agent, and the info of the agent within, with `bonus_mean`, over
            valid rows and before it is scaled, `predictor_loss`, and `scale` if that
            follows a schedule.

        Raises:
            TypeError: if `trajectory` is not one.
            ValueError: if it has other columns than the agent was made for, or the
                agent within raises it.
        """
        where = "RND.update"
        _rows.check_trajectory(where, trajectory, 1)
        done = progresses.current_progress() if progress is None else progress
        distillation = self.distillation
        step = distillation.predictor.step
        hyper = agents.settings_at(self.config, done, ("scale",), step)
        ended = tf.logical_or(trajectory.terminated, trajectory.truncated)
        distillation, told = distillation.update(
            trajectory.next_observations, ended, trajectory.valid
        )
        bonuses = hyper["scale"] * told.pop("bonuses")
        rewards = tf.cast(trajectory.rewards, tf.float32) + bonuses
        with progresses.progress_context(done):
            learner, info = self.learner.update(trajectory._replace(rewards=rewards))
        agent = self.replace(learner=learner, distillation=distillation)
        return agent, {**info, **told, **agents.followed(self.config, hyper)}
