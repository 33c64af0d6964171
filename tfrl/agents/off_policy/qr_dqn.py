"""Deep Q-learning of quantiles of the return, at fixed fractions."""

import dataclasses
from typing import Any

import tensorflow as tf

from tfrl.agents.off_policy import dqn
from tfrl.core import records
from tfrl.losses import quantile, temporal_difference
from tfrl.policies import value_distributions


@dataclasses.dataclass(frozen=True)
class QRDQN(dqn.QLearning):
    """Hyper-parameters of deep Q-learning of quantiles.

    The network gives the quantiles theta[i] of the return at the midpoints
    tau[i] = (i + 1/2) / n_quantiles. Each gradient step minimises over a minibatch of
    transitions

        loss = mean(weights * sum_i mean_j |tau[i] - (d[i, j] < 0)| * huber(d[i, j]))
        d[i, j] = r + discount * theta'(s', b)[j] - theta(s, a)[i]
        b = argmax Q(s', .)                                 with `double`
        b = argmax Q'(s', .)                                without
        Q = mean_i theta[i]

    where huber is divided by `huber_delta`, unlike in `DQN`, so that it tends to |d| as
    that goes to 0, and theta' comes from a copy of the network, as in `DQN`. The errors
    of a prioritised replay are the losses.

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
        n_quantiles: of each action.
        double: choose the next action by the network itself; the paper does not, so
            False is the default here, but not in `DQN`.
        dueling: learn quantiles of states and of advantages apart.
        huber_delta: error from which on the loss grows linearly, with slope 1.

    Example:
        >>> agent = QRDQN(n_quantiles=5, hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> x = np.zeros((4, 3), np.float32)
        >>> agent.policy.state.distributions(x).shape, agent.policy.parameters(x).shape
        (TensorShape([4, 2, 5]), TensorShape([4, 2]))

    References:
        Dabney, Rowland, Bellemare, Munos, 2018, Distributional Reinforcement Learning
        with Quantile Regression, algorithm 1.
    """

    n_quantiles: int = 200
    double: bool = False
    dueling: bool = False
    huber_delta: float = 1.0

    def _network_options(self, seed: int) -> dict[str, Any]:  # noqa: ARG002
        quantiles = value_distributions.Quantiles(self.n_quantiles)
        return {"dueling": self.dueling, "distribution": quantiles}

    def _compared(
        self,
        state: Any,
        params: Any,
        target: Any,
        rows: records.Transition,
        chance: Any,
    ) -> dqn.Compared:
        del chance
        found = state.distributions(rows.observations, params=params)
        found = temporal_difference.q_taken(found, rows.actions)
        later = rows.next_observations
        chooser = state(later, params=params if self.double else target)
        targets = quantile.quantile_q_target(
            rows.rewards,
            rows.discounts,
            state.distributions(later, params=target),
            tf.stop_gradient(chooser),
        )
        losses = quantile.quantile_td_loss(found, targets, huber_delta=self.huber_delta)
        values = tf.reduce_mean(found, axis=-1)
        return dqn.Compared(losses.loss, values, losses.extra.priorities)
