"""Rainbow: categorical, double, duelling deep Q-learning that explores by noise."""

import dataclasses
from typing import Any, ClassVar

import tensorflow as tf

from tfrl._internal import checks, draws
from tfrl.agents import agent
from tfrl.agents.off_policy import c51


@dataclasses.dataclass(frozen=True)
class Rainbow(c51.C51):
    """Hyper-parameters of Rainbow.

    The loss is that of `C51`, double and duelling, for a network with noise in the
    weights of its dense layers, see `NoisyDense`. For learning, noise is drawn anew for
    each gradient step: once for the network, once for the network as it chooses the
    next action and once for its copy. For acting it is drawn from the seed of each
    call, once for all rows, and at temperature 0 there is none; epsilon is 0.

    Returns of several steps and a prioritised replay, which belong to Rainbow, are
    settings of the experience: `Replayed(n_step_returns=3, sampler="prioritized")`.

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
        optimizer: as in `PPO`; None for Adam of `adam_epsilon`.
        epsilon: share of random actions, a number or a schedule; 0 by default, as the
            noise explores.
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
        noise: initial noise, sigma_0 in the paper.

    Example:
        >>> agent = Rainbow(n_atoms=5, hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.policy.act(np.zeros((4, 3), np.float32), seed=0).actions.shape
        (4,)

    References:
        Hessel et al., 2018, Rainbow: Combining Improvements in Deep Reinforcement
        Learning, section "The Integrated Agent".
    """

    _is_random: ClassVar[bool] = True
    initial_settings: ClassVar[tuple[str, ...]] = ("noise",)

    epsilon: agent.Scheduled = 0.0
    double: bool = True
    dueling: bool = True
    adam_epsilon: float = 1.5e-4
    noise: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.check_positive("Rainbow", "noise", self.noise)

    def _network_options(self, seed: int) -> dict[str, Any]:
        return {**super()._network_options(seed), "noise": self.noise}

    def _noises(self, state: Any, seed: Any) -> Any:
        shape = [3, state.model_def.n_noise]
        return tf.unstack(draws.normal(shape, seed, tf.float32))
