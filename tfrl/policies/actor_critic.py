"""A policy and its values: what on-policy agents act and learn with."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import tensorflow as tf

from tfrl.core import pytree
from tfrl.distributions import heads_of_spaces
from tfrl.policies import _state_noise, network_policy, networks


class ActorCriticPolicy(network_policy.NetworkPolicy):
    """A network of policy and values, with observation moments and an action head.

        parameters, values = network(normalize(observations))

    Make one with `create`, which fits tfrl's network, or yours, to the spaces.

    Attributes:
        state: the network with its weights, such as a `tfrl.agents.TrainState` of an
            `ActorCritic`; its methods `actor` and `critic` return only one of them.
        observation_moments: as in `NetworkPolicy`.
        head: from the parameters to actions.

    Example:
        >>> policy = ActorCriticPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2),
        ...     learner=tfrl.agents.TrainState.create)
        >>> policy.act(np.zeros((5, 3), np.float32), seed=0).actions.shape
        (5,)
    """

    @classmethod
    def create(
        cls,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        learner: Callable[[Any], Any],
        network: Any = None,
        hidden_units: Sequence[int] = (64, 64),
        activation: str = "tanh",
        squash: bool = False,
        log_std: float = 0.0,
        normalize_observations: bool = False,
        seed: int = 0,
        noise_steps: int | None = None,
    ) -> "ActorCriticPolicy":
        """Builds the network for the spaces of one environment.

        Args:
            observation_space: see `SpaceEncoder` for the kinds.
            action_space: see `action_head` for the kinds.
            learner: from the built network to what holds its weights, such as
                `functools.partial(tfrl.agents.TrainState.create, tx=...)`.
            network: your own Keras model, or a function of both spaces that returns
                one, called as in inference: dropout does nothing, and the statistics of
                batch normalization stay as they are. From observations `[B, *shape]`
                (floats as float32, images as uint8, choices as int64) it returns a
                pair: the parameters of the head, `[B, n]`, and the values, `[B]` or
                `[B, 1]`. Log standard deviations that it leaves out of the parameters
                are learned beside it.
            hidden_units: of actor and critic; like `activation`, used only without
                `network`.
            activation: of actor and critic.
            squash: see `action_head`.
            log_std: initial log standard deviation of continuous raw actions.
            normalize_observations: keep moments of all observed Boxes except images.
            seed: of the initial weights.
            noise_steps: for how many steps exploration is one function of the state,
                see `StateNoisePolicy`; None draws anew in each step.

        Returns:
            An untrained policy.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if `squash` does not fit the action space, or the outputs of
                `network` do not fit the head; if `noise_steps` comes with actions other
                than a Box of floats, or with a `network`.
        """
        head = heads_of_spaces.action_head(action_space, squash=squash)
        if noise_steps is not None:
            _state_noise.check(cls.__name__, noise_steps, head, network)
            return StateNoisePolicy._made(
                learner,
                lambda space: _state_noise.around(
                    networks.ActorCritic.for_space(
                        *(space, head.n_log_stds, None, hidden_units, activation, seed)
                    ),
                    log_std,
                ),
                None,
                (observation_space, action_space),
                head,
                normalize_observations,
                given={},
                noise_steps=noise_steps,
            )
        initial = log_std if head.has_log_std else None
        return cls._made(
            learner,
            lambda space: networks.ActorCritic.for_space(
                space,
                head.n_outputs - head.n_log_stds,
                initial,
                hidden_units,
                activation,
                seed,
                head.n_log_stds or None,
            ),
            network,
            (observation_space, action_space),
            head,
            normalize_observations,
            given={"log_std": initial, "has_values": True, "seed": seed},
        )

    def values(self, observations: Any) -> tf.Tensor:
        """Returns the critic's values of observations, `[B]`."""
        return self.state(self.normalize(observations), method="critic")

    def _outputs(self, observations: Any, state: Any) -> tuple[Any, Any]:
        return self.state(self.normalize(observations), method="actor"), state


class StateNoisePolicy(_state_noise.StateNoise, ActorCriticPolicy):
    """An actor and critic that explores with state-dependent noise: gSDE.

        raw_actions = means + phi(observations)^T E,  E[f, d] ~ N(0, sigma[f, d]^2)

    where phi are the last hidden features of the actor. E is drawn at the beginning of
    episodes and every `noise_steps` steps: in between, equal observations get equal
    actions, and motions are smooth. Within one step the actions are normal,

        N(means[d], sum_f phi[f]^2 sigma[f, d]^2)

    and log-probabilities and entropies are of this distribution; sigma is learned
    through them. Make one with `ActorCriticPolicy.create`.

    Attributes:
        state: the network with its weights.
        observation_moments: as in `NetworkPolicy`.
        head: a `NormalHead`.
        noise_steps: for how many steps E stays.

    Example:
        >>> policy = ActorCriticPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-1.0, 1.0, (2,)),
        ...     learner=tfrl.agents.TrainState.create, noise_steps=8)
        >>> seen = np.ones((5, 3), np.float32)
        >>> first = policy.act(seen, policy.initial_state(5), seed=0)
        >>> second = policy.act(seen, first.state, seed=1)
        >>> bool((first.raw_actions == second.raw_actions).all())
        True

    References:
        Raffin, Kober, Stulp, 2021, Smooth Exploration for Robotic Reinforcement
        Learning, section 4.
    """

    noise_steps: int = pytree.nonpytree_field()

    def independent(self) -> ActorCriticPolicy:
        """Returns the policy with draws that do not depend on those before."""
        return ActorCriticPolicy(self.state, self.observation_moments, self.head)
