"""A policy with a memory of its episode."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import pytree
from tfrl.distributions import action_heads
from tfrl.policies import network_policy, networks


class RecurrentPolicy(network_policy.NetworkPolicy):
    """A network that takes and gives a memory, with an action head.

        parameters, memory = network((normalize(observations), memory))

    Attributes:
        state: the network with its weights, such as a `tfrl.agents.TrainState` of a
            `RecurrentNetwork`.
        observation_moments: as of `NetworkPolicy`.
        head: from the parameters to actions.
        units: size of the memory, float32 `[B, units]`, zeros at first.

    Example:
        >>> policy = RecurrentPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), units=8,
        ...     learner=tfrl.agents.TrainState.create)
        >>> acted = policy.act(
        ...     np.zeros((5, 3), np.float32), policy.initial_state(5), seed=0)
        >>> acted.state.shape
        (5, 8)
    """

    units: int = pytree.nonpytree_field()

    @classmethod
    def create(
        cls,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        learner: Callable[[Any], Any],
        units: int = 64,
        hidden_units: Sequence[int] = (64,),
        activation: str = "tanh",
        squash: bool = False,
        normalize_observations: bool = False,
        seed: int = 0,
    ) -> Self:
        """Builds the network for the spaces of one environment.

        Args:
            observation_space: see `SpaceEncoder` for the kinds.
            action_space: see `action_head` for the kinds.
            learner: as of `ActorCriticPolicy.create`.
            units: size of the memory.
            hidden_units: of the layers behind the memory.
            activation: of these layers.
            squash: see `action_head`.
            normalize_observations: keep moments of the float observations.
            seed: of the initial weights.

        Returns:
            A policy that learned nothing yet.

        Raises:
            TypeError: if a space is of an unsupported kind.
            ValueError: if `squash` does not fit the action space.
        """
        checks.check_whole_number("RecurrentPolicy", "units", units, low=1)
        head = action_heads.action_head(action_space, squash=squash)
        return cls._made(
            learner,
            lambda space: networks.RecurrentNetwork.for_space(
                space, head.n_outputs, units, hidden_units, activation, seed
            ),
            None,
            (observation_space, action_space),
            head,
            normalize_observations,
            given={},
            units=units,
        )

    def initial_state(self, batch_size: int) -> tf.Tensor:
        """Returns zeros, float32 `[B, units]`."""
        if not tf.is_tensor(batch_size):
            where = "initial_state"
            checks.check_whole_number(where, "batch_size", batch_size, low=0)
        return tf.zeros([batch_size, self.units])

    def check_state(self, observations: Any, state: Any) -> None:
        """Raises a ValueError unless `state` is `[B, units]` for `[B, *shape]`."""
        shape = tf.TensorShape(getattr(state, "shape", None))
        rows = tf.nest.flatten(observations)[0].shape[0]
        if shape.rank is None or not shape.is_compatible_with([rows, self.units]):
            got = shape if shape.rank is not None else f"{state!r:.80}"
            raise ValueError(
                f"`act`: `state` expected [{rows}, {self.units}], what `initial_state` "
                f"or the call before returned; got {got}"
            )

    def _outputs(self, observations: Any, state: Any) -> tuple[Any, Any]:
        return self.state((self.normalize(observations), state))
