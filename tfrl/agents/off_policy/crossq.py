"""CrossQ: soft actor-critic whose normalized critics need no copies."""

import dataclasses
from typing import Any, ClassVar

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import _actor_critics, agent
from tfrl.agents.off_policy import sac
from tfrl.core import pytree
from tfrl.policies import critics as critic_networks


@dataclasses.dataclass(frozen=True)
class CrossQ:
    """Hyper-parameters of CrossQ.

    As in `SAC`, but critics with batch renormalization see (s, a) and (s', a') in one
    batch, so that the moments by which they are normalized are those of both:

        [Q_i(s, a), Q_i(s', a')] = critic_i([s, s'], [a, a'])
        y = r + discount * (min_j Q_j(s', a') - alpha * log pi(a' | s'))

    without gradient through y, and there is no copy Q'. For steps of the actor, critics
    are normalized by running moments. Unlike in the paper, the actor is not normalized,
    so that it acts like every other.

    Attributes:
        learning_rate: of the actor, by Adam: a number, or a schedule of
            `tfrl.schedules` or Keras.
        critic_learning_rate: of the critics, likewise.
        temperature_learning_rate: of log alpha, likewise.
        optimizer: as in `PPO`; None for Adam of `b1=0.5`. The temperature learns by
            Adam.
        temperature: alpha, at the beginning if it is learned.
        learn_temperature: whether alpha is learned; else it is constant.
        target_entropy: as in `SAC`.
        n_critics: number of critics.
        policy_delay: steps of the critics for each of actor and temperature.
        max_gradient_norm: as in `SAC`.
        hidden_units: of the actor.
        critic_units: hidden units of each critic; wide layers work better.
        activation: of the networks.
        noise_steps: as in `SAC`.
        normalize_observations: as in `SAC`.

    Example:
        >>> agent = CrossQ(hidden_units=(8,), critic_units=(16,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Bhatt et al., 2024, CrossQ: Batch Normalization in Deep Reinforcement Learning
        for Greater Sample Efficiency and Simplicity, figure 1.
    """

    learns_from: ClassVar[str] = "transitions"
    usual_replay: ClassVar[dict[str, float]] = _actor_critics.USUAL_REPLAY
    initial_settings: ClassVar[tuple[str, ...]] = ("temperature",)
    tau: ClassVar[float] = 1.0
    actor_value: ClassVar[str] = "min"

    learning_rate: agent.Scheduled = 1e-3
    critic_learning_rate: agent.Scheduled = 1e-3
    temperature_learning_rate: agent.Scheduled = 1e-3
    temperature: float = 1.0
    learn_temperature: bool = True
    target_entropy: float | None = None
    n_critics: int = 2
    policy_delay: int = 3
    max_gradient_norm: float | None = None
    hidden_units: tuple[int, ...] = (256, 256)
    critic_units: tuple[int, ...] = (1024, 1024)
    activation: str = "relu"
    noise_steps: int | None = None
    normalize_observations: bool = False
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        sac.check(self)
        units = checks.check_whole_numbers(
            "CrossQ", "critic_units", self.critic_units, low=1
        )
        object.__setattr__(self, "critic_units", units)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "CrossQAgent":
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, see `action_head` for the kinds; not a
                Discrete one.
            seed: of weights and draws.
            network: your own Keras model for the actor, or a function of both spaces
                that returns one; see `ActorPolicy.create`.

        Returns:
            An untrained `CrossQAgent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit, or it includes critics.
        """
        if isinstance(action_space, gym.spaces.Discrete):
            expected = (
                "a Box, a MultiDiscrete, a MultiBinary, or a Dict or Tuple; Discrete "
                "is for SAC"
            )
            raise checks.wrong_type(
                "CrossQ.create", "action_space", action_space, expected
            )
        policy, critics = _actor_critics.made(
            self,
            observation_space,
            action_space,
            seed=seed,
            network=network,
            adam={"b1": 0.5},
            hidden_units=self.critic_units,
            batch_norm=True,
        )
        if not isinstance(critics.model_def, critic_networks.Critics):
            raise ValueError(
                "`CrossQ`: `network` expected an actor alone, as the critics are to be "
                "normalized; got a pair"
            )
        return sac.made(CrossQAgent, self, policy, critics, seed).replace(
            target_params=()
        )


class CrossQAgent(sac.SACAgent):
    """A policy trained by CrossQ. Make one with `CrossQ.create`.

    Attributes:
        policy: the `ActorPolicy`.
        critics: `TrainState` of the critics.
        target_params: `()`, as there is no copy.
        log_temperature: `TrainState` of log alpha.
        rng: int32 `[2]`, seed of all draws.
        config: the hyper-parameters.

    Example:
        >>> box = gym.spaces.Box(-1.0, 1.0, (1,))
        >>> agent = CrossQ(hidden_units=(8,), critic_units=(16,)).create(box, box)
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, zeros, ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> info["priorities"].shape
        TensorShape([4])
    """

    config: CrossQ = pytree.nonpytree_field()

    def _step_critics(
        self, critics: Any, others: tuple, rows: Any, weights: tf.Tensor, seed: Any
    ) -> tuple[Any, dict]:
        actor, _, alpha = others
        draws = self._draws(critics.values, weights.shape[0], seed)

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            rows, weights, (noise, _) = part
            shaped = self._shaped(actor, actor.params, rows.next_observations)
            later = self._drawn(shaped, noise)
            features = critic_networks.action_features(self.policy.head, rows.actions)
            both = tf.nest.map_structure(
                lambda x, y: tf.concat([x, y], axis=0),
                (rows.observations, features),
                (rows.next_observations, later.features),
            )
            values, extra = state(both, params=params, training=True, mutable=True)
            found, following = tf.split(values, 2, axis=1)
            targets = self._targets(rows, following, later, alpha, None)
            losses, info = self._losses(found, features, targets)
            loss = tf.reduce_mean(weights * losses)
            info |= {"critic_loss": loss, "td_error": tf.reduce_mean(info["rows"])}
            info |= {"entropy": tf.reduce_mean(later.entropies), "temperature": alpha}
            return loss, {**info, "extra_variables": extra}

        return critics.apply_loss_fn(loss_fn, (rows, weights, draws))

    def _followed(self, target: Any, params: Any) -> Any:
        """`()`: there is no copy."""
        del params
        return target
