"""Implicit quantile networks: deep Q-learning of quantiles at drawn fractions."""

import dataclasses
from typing import Any, ClassVar

import tensorflow as tf

from tfrl._internal import draws
from tfrl.agents.off_policy import dqn
from tfrl.core import records
from tfrl.losses import quantile, temporal_difference
from tfrl.policies import value_distributions


@dataclasses.dataclass(frozen=True)
class IQN(dqn.QLearning):
    """Hyper-parameters of implicit quantile networks.

    The network gives the quantile Z(tau) of the return at any fraction tau. Each
    gradient step draws fractions, uniformly and for each transition of a minibatch
    anew, and minimises

        loss = mean(weights * sum_i mean_j |tau[i] - (d[i, j] < 0)| * huber(d[i, j]))
        d[i, j] = r + discount * Z'(s', b)(tau'[j]) - Z(s, a)(tau[i])
        b = argmax Q(s', .)                                 with `double`
        b = argmax Q'(s', .)                                without
        Q = mean_k Z((k + 1/2) / n_acting_fractions)

    where huber is divided by `huber_delta`, unlike in `DQN`, and Z' comes from a copy
    of the network, as there. The paper draws the fractions of Q too; here they are
    fixed, so that the agent always acts alike on the same observation. The errors of a
    prioritised replay are the losses.

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam of `adam_epsilon`.
        epsilon: share of random actions, a number or a schedule; by default it falls
            from 1 to 0.05 over the first tenth of the run, whose progress a trainer
            reports, and your own loop by `tfrl.schedules.progress_context`.
        target_period: gradient steps between two updates of the copy.
        tau: share that the copy takes over; 1 copies all.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        hidden_units: of the network.
        activation: of the network.
        adam_epsilon: the least that Adam divides by.
        normalize_observations: by running moments that are saved with the agent.
        n_fractions: number of tau that a step draws for each transition.
        n_target_fractions: number of tau' that a step draws for each transition.
        n_acting_fractions: number of quantiles whose mean is a value.
        n_cosines: number of cosines that encode a fraction for the network.
        double: choose the next action by the network itself; the paper does not, so
            False is the default here, but not in `DQN`.
        huber_delta: error from which on the loss grows linearly, with slope 1.

    The last of `hidden_units` is the number of features that fractions multiply; your
    own `network` returns these, `[B, hidden_units[-1]]`.

    Raises:
        TypeError: if a setting is of another type.
        ValueError: if a setting is out of range, or there are no `hidden_units`.

    Example:
        >>> agent = IQN(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> x, fractions = np.zeros((4, 3), np.float32), np.full((4, 7), 0.5, "f")
        >>> agent.policy.state.distributions(x, fractions).shape
        TensorShape([4, 2, 7])

    References:
        Dabney, Ostrovski, Silver, Munos, 2018, Implicit Quantile Networks for
        Distributional Reinforcement Learning, eq. 2-4.
    """

    _is_random: ClassVar[bool] = True

    n_fractions: int = 64
    n_target_fractions: int = 64
    n_acting_fractions: int = 32
    n_cosines: int = 64
    double: bool = False
    huber_delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden_units:
            raise ValueError(
                "`IQN`: `hidden_units` expected one width at least, that of the "
                "features which fractions multiply; got ()"
            )

    def _network_options(self, seed: int) -> dict[str, Any]:
        *first, n_features = self.hidden_units
        implicit = value_distributions.Implicit(
            n_features, self.n_acting_fractions, self.n_cosines, self.activation, seed
        )
        return {"hidden_units": tuple(first), "distribution": implicit}

    def _drawn(self, seed: Any, n_rows: int) -> tf.Tensor:
        n = self.n_fractions + self.n_target_fractions
        return draws.uniform([n_rows, n], seed, tf.float32)

    def _compared(
        self,
        state: Any,
        params: Any,
        target: Any,
        rows: records.Transition,
        chance: Any,
    ) -> dqn.Compared:
        draws = chance[1]
        now, then = draws[:, : self.n_fractions], draws[:, self.n_fractions :]
        found = state.distributions(rows.observations, now, params=params)
        found = temporal_difference.q_taken(found, rows.actions)
        later = rows.next_observations
        chooser = state(later, params=params if self.double else target)
        targets = quantile.quantile_q_target(
            rows.rewards,
            rows.discounts,
            state.distributions(later, then, params=target),
            tf.stop_gradient(chooser),
        )
        losses = quantile.quantile_td_loss(found, targets, now, self.huber_delta)
        values = tf.reduce_mean(found, axis=-1)
        return dqn.Compared(losses.loss, values, losses.extra.priorities)
