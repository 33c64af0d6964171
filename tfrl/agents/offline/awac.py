"""Advantage-weighted actor-critic: offline, then on with a replay."""

import dataclasses
from typing import Any, ClassVar, Self

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import (
    _actor_critics,
    _minibatches,
    agent,
    train_state,
)
from tfrl.core import pytree, random, records
from tfrl.losses import offline, temporal_difference
from tfrl.policies import actor_critic, critics


@dataclasses.dataclass(frozen=True)
class AWAC:
    """Hyper-parameters of the advantage-weighted actor-critic.

    Each gradient step takes, over a minibatch of transitions, one of all critics i by
    the gradient of

        sum_i mean(weights * (y - Q_i(s, a))^2)
        y = r + discount * min_i Q'_i(s', a'),            a' drawn from pi(. | s')

    and then one of the policy by that of

        mean(-weights * min(exp(A / temperature), max_weight) * log pi(a | s))
        A = min_i Q_i(s, a) - min_i Q_i(s, b),            b drawn from pi(. | s)

    after which the copy Q' follows: Q' <- tau * Q + (1 - tau) * Q'. Continuous actions
    are drawn from a normal distribution with a learned deviation, and clipped to the
    bounds. An agent learned from a data set can continue with a replay.

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam.
        temperature: of the weights: a great one clones all actions alike.
        max_weight: the greatest weight of an action.
        n_critics: how many there are.
        tau: share that the copy takes over.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        hidden_units: of policy and critics.
        activation: of policy and critics.
        squash: squash continuous actions by tanh instead of clipping them.
        log_std: initial log standard deviation of continuous actions.
        normalize_observations: keep moments of all observed Boxes except images.

    Example:
        >>> agent = AWAC(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Nair et al., 2020, AWAC: Accelerating Online Reinforcement Learning with Offline
        Datasets, algorithm 1.
    """

    learns_from: ClassVar[str] = "recorded"
    usual_replay: ClassVar[dict[str, float]] = _actor_critics.USUAL_REPLAY
    initial_settings: ClassVar[tuple[str, ...]] = ("log_std",)

    learning_rate: agent.Scheduled = 3e-4
    temperature: float = 1.0
    max_weight: float = 100.0
    n_critics: int = 2
    tau: float = 0.005
    max_gradient_norm: float | None = None
    hidden_units: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    squash: bool = False
    log_std: float = 0.0
    normalize_observations: bool = False
    optimizer: agent.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        agent.check_settings(
            self,
            positive=("tau", "temperature", "max_weight"),
            optional=("max_gradient_norm",),
            shares=("tau",),
        )
        checks.check_whole_number("AWAC", "n_critics", self.n_critics, low=1)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "AWACAgent":
        """Returns an agent for the spaces of one environment.

        Its network values states too, a part that AWAC leaves untrained; see
        `BC.create`.

        Args:
            observation_space: of one environment, see `SpaceEncoder` for the kinds.
            action_space: of one environment, see `action_head` for the kinds.
            seed: of weights and draws.
            network: your own Keras model, or a function of both spaces that returns
                one: from observations to a pair of the head's parameters and values;
                see `ActorCriticPolicy.create`. The critics stay the agent's.

        Returns:
            An untrained `AWACAgent`.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if `squash` does not fit the action space, or the outputs of
                `network` do not fit.
        """
        policy = agent.actor_critic_of(
            self, observation_space, action_space, network, seed
        )
        n_features = critics.n_action_features(policy.head)
        built = _actor_critics.built_critics(
            self, observation_space, n_features, seed=seed
        )
        values = agent.learner(self)(built)
        return AWACAgent(
            policy=policy,
            critics=values,
            target_critics=tf.nest.map_structure(tf.identity, values.params),
            rng=random.checked_seed("AWAC.create", seed),
            config=self,
        )


class AWACAgent(_minibatches.MinibatchAgent):
    """A policy trained by AWAC. Make one with `AWAC.create`.

    Attributes:
        policy: the `ActorCriticPolicy`.
        critics: `TrainState` of the critics Q, which take observations and features of
            actions.
        target_critics: parameters of their copy.
        rng: int32 `[2]`, seed of its draws.
        config: the hyper-parameters.

    Example:
        >>> agent = AWAC(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2))
        >>> zeros, ones = np.zeros([4, 1], np.float32), np.ones(4, np.float32)
        >>> batch = tfrl.core.Transition(zeros, np.zeros(4, int), ones, ones, zeros)
        >>> agent, info = agent.update(tfrl.replay.Sample(batch, None, ones, ones))
        >>> sorted(info)[:4]
        ['advantage', 'critic_loss', 'learning_rate', 'policy_loss']
    """

    policy: actor_critic.ActorCriticPolicy
    critics: train_state.TrainState
    target_critics: Any
    rng: tf.Tensor
    config: AWAC = pytree.nonpytree_field()

    _measured: ClassVar[tuple[str, ...]] = (
        "advantage",
        "critic_loss",
        "policy_loss",
        "q_value",
        "td_error",
    )

    def _begin(self, hyper: dict[str, tf.Tensor]) -> tuple:
        states = [
            _minibatches.begun(state, hyper["learning_rate"])
            for state in (self.policy.state, self.critics)
        ]
        return (*states, self.target_critics)

    def _step(self, carry: Any, rows: records.Transition, weights: tf.Tensor) -> tuple:
        config, head = self.config, self.policy.head
        actors, learning, target = carry
        seed = _minibatches.step_seed(self.rng, learning.state.step)
        first, second = (
            _actor_critics.noise_of(head, weights.shape[0], each)
            for each in random.split_seed(seed, 2)
        )
        acting = actors.state
        parameters = acting(rows.next_observations, method="actor")
        drawn = _actor_critics.drawn(head, parameters, first).features
        later = learning.state((rows.next_observations, drawn), params=target)
        targets = temporal_difference.td_target(
            rows.rewards, rows.discounts, tf.reduce_min(later, axis=0)
        )
        learning, fit, errors = _actor_critics.fitted(
            learning, head, rows, weights, targets
        )
        known = learning.state

        def loss_fn(state: Any, params: Any, part: Any) -> tuple[tf.Tensor, dict]:
            rows, weights, noise = part
            seen = rows.observations
            parameters = state(seen, params=params, method="actor")
            drawn = _actor_critics.drawn(head, parameters, noise).features
            taken = critics.action_features(head, rows.actions)
            advantages = tf.stop_gradient(
                tf.reduce_min(known((seen, taken)), axis=0)
                - tf.reduce_min(known((seen, drawn)), axis=0)
            )
            cloned = offline.advantage_weighted_loss(
                head.log_prob(parameters, rows.actions),
                advantages,
                1.0 / config.temperature,
                config.max_weight,
            )
            loss = tf.reduce_mean(weights * cloned.loss)
            mean = tf.reduce_mean(advantages)
            return loss, {"policy_loss": loss, "advantage": mean}

        actors, info = actors.apply_loss_fn(loss_fn, (rows, weights, second))
        target = _minibatches.moved(target, learning.state.params, config.tau)
        return (actors, learning, target), {**info, **fit}, errors

    def _end(self, carry: Any, hyper: dict[str, tf.Tensor]) -> Self:
        del hyper
        actors, learning, target = carry
        return self.replace(
            policy=self.policy.replace(state=actors.state),
            critics=learning.state,
            target_critics=target,
        )
