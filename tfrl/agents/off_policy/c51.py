"""Categorical deep Q-learning: distributions of the return over fixed atoms."""

import dataclasses
from typing import Any

import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents.off_policy import dqn
from tfrl.core import records
from tfrl.losses import categorical, temporal_difference
from tfrl.policies import value_distributions


@dataclasses.dataclass(frozen=True)
class C51(dqn.QLearning):
    """Hyper-parameters of categorical deep Q-learning.

    The network gives probabilities p of the returns z[i] that lie evenly from `v_min`
    to `v_max`. Each gradient step minimises over a minibatch of transitions

        loss = mean(weights * sum_i -m[i] log p(s, a)[i])
        m = projection of p'(s', b) from r + discount * z onto z
        b = argmax Q(s', .)                                 with `double`
        b = argmax Q'(s', .)                                without
        Q = sum_i z[i] p[i]

    where p' comes from a copy of the network, as in `DQN`. Returns outside the atoms
    count as the nearest one: choose the atoms so that there are none. The errors of a
    prioritised replay are divergences of m from p.

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
        n_atoms: of each action.
        v_min: the least return there is.
        v_max: the greatest return there is.
        double: choose the next action by the network itself.
        dueling: learn atoms of states and of advantages apart.

    Raises:
        TypeError: if a setting is of another type.
        ValueError: if a setting is out of range, or `v_min` not less than `v_max`.

    Example:
        >>> agent = C51(n_atoms=5, hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> x = np.zeros((4, 3), np.float32)
        >>> agent.policy.state.distributions(x).shape, agent.policy.parameters(x).shape
        (TensorShape([4, 2, 5]), TensorShape([4, 2]))

    References:
        Bellemare, Dabney, Munos, 2017, A Distributional Perspective on Reinforcement
        Learning, algorithm 1.
    """

    n_atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0
    double: bool = False
    dueling: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        where = type(self).__name__
        checks.check_whole_number(where, "n_atoms", self.n_atoms, low=2)
        if not self.v_min < self.v_max:
            raise ValueError(
                f"`{where}`: `v_min` expected less than `v_max`, {self.v_max}; got "
                f"{self.v_min}"
            )

    def _network_options(self, seed: int) -> dict[str, Any]:  # noqa: ARG002
        atoms = value_distributions.Categorical(self.n_atoms, self.v_min, self.v_max)
        return {"dueling": self.dueling, "distribution": atoms}

    def _compared(
        self,
        state: Any,
        params: Any,
        target: Any,
        rows: records.Transition,
        chance: Any,
    ) -> dqn.Compared:
        now, choosing, then = self._noises(state, chance[0])
        logits = state.distributions(rows.observations, now, params=params)
        logits = temporal_difference.q_taken(logits, rows.actions)
        later = rows.next_observations
        chooser = state(later, choosing, params=params if self.double else target)
        atoms = tf.constant(state.model_def.support)  # by which it acts too
        targets = categorical.categorical_q_target(
            rows.rewards,
            rows.discounts,
            atoms,
            state.distributions(later, then, params=target),
            tf.stop_gradient(chooser),
        )
        losses = categorical.categorical_td_loss(logits, targets)
        values = categorical.categorical_mean(atoms, tf.nn.softmax(logits))
        return dqn.Compared(losses.loss, values, losses.extra.priorities)

    def _noises(self, state: Any, seed: Any) -> Any:  # noqa: ARG002
        """Noise in the weights: as it learns, as it chooses, and of its copy."""
        return None, None, None
