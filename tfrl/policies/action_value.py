"""A policy that takes the action with the highest value, and explores now and then."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import gymnasium as gym
import tensorflow as tf

from tfrl._internal import checks
from tfrl.distributions import heads_of_spaces
from tfrl.policies import _epsilon_greedy, _keras_models, network_policy, networks


class ActionValuePolicy(_epsilon_greedy.EpsilonGreedy, network_policy.NetworkPolicy):
    """A network of action values, played epsilon-greedily.

        Q = network(normalize(observations))
        actions = argmax Q                with probability 1 - epsilon
                  uniform                 with probability epsilon

    `act` at temperature t explores with `min(1, t * epsilon)`.

    Attributes:
        state: the network with its weights, such as a `tfrl.agents.TrainState`.
        observation_moments: as in `NetworkPolicy`.
        head: a `CategoricalHead`.
        epsilon: float32 `[]`.

    Example:
        >>> policy = ActionValuePolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2),
        ...     learner=tfrl.agents.TrainState.create)
        >>> policy.act(np.zeros((5, 3), np.float32), temperature=0.0).actions.shape
        (5,)
    """

    epsilon: tf.Tensor

    @classmethod
    def create(
        cls,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        learner: Callable[[Any], Any],
        network: Any = None,
        hidden_units: Sequence[int] = (64, 64),
        activation: str = "relu",
        dueling: bool = False,
        normalize_observations: bool = False,
        epsilon: float = 0.05,
        seed: int = 0,
        distribution: Any = None,
        noise: float | None = None,
    ) -> Self:
        """Builds the network for the spaces of one environment.

        Args:
            observation_space: see `SpaceEncoder` for the kinds.
            action_space: a Discrete space.
            learner: as in `ActorCriticPolicy.create`.
            network: your own Keras model, or a function of both spaces that returns
                one, called as in inference: dropout does nothing, and the statistics of
                batch normalization stay as they are. From observations `[B, *shape]`
                (floats as float32, images as uint8, choices as int64) it returns the
                values of all choices, `[B, n]`.
            hidden_units: of the network; like `activation` and `dueling`, used only
                without `network`.
            activation: of the network.
            dueling: see `ActionValues`.
            normalize_observations: keep moments of all observed Boxes except images.
            epsilon: share of random actions.
            seed: of the initial weights.
            distribution: of `tfrl.policies.value_distributions`, whose means are the
                values; `network` then returns its `n_outputs`. None for values.
            noise: in the weights, see `NoisyDense`; None for none.

        Returns:
            An untrained policy.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if `network` does not return a value for each choice.
        """
        checks.check_within("ActionValuePolicy", "epsilon", epsilon, 0.0, 1.0)
        _epsilon_greedy.check_choices("ActionValuePolicy", action_space)
        head = heads_of_spaces.action_head(action_space)
        n_outputs, n_atoms = head.n_outputs, 1
        if distribution is not None:
            n_outputs = distribution.n_outputs(head.n_outputs)
            n_atoms = distribution.n_atoms

        def own(space: gym.Space) -> Any:
            if network is None:
                built = networks.ActionValues.for_space(
                    space,
                    n_outputs,
                    dueling,
                    hidden_units,
                    activation,
                    seed,
                    n_atoms,
                    noise,
                )
            else:
                wide = heads_of_spaces.action_head(gym.spaces.Discrete(n_outputs))
                built = _keras_models.given(
                    network, space, action_space, wide, seed=seed
                )
            return (
                built
                if distribution is None
                else distribution.around(built, head.n_outputs)
            )

        return cls._made(
            learner,
            own,
            None,
            (observation_space, action_space),
            head,
            normalize_observations,
            given={},
            epsilon=tf.constant(epsilon, tf.float32),
        )

    def _outputs(
        self, observations: Any, state: Any, noise: Any = None
    ) -> tuple[Any, Any]:
        given = {} if noise is None else {"noise": noise}
        return self.state(self.normalize(observations), **given), state
