"""A policy with a memory of its episode, and its network."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import pytree
from tfrl.distributions import heads_of_spaces
from tfrl.policies import (
    _epsilon_greedy,
    _keras_models,
    feedforward,
    network_policy,
    networks,
)

CELLS = ("gru", "lstm")


@keras.saving.register_keras_serializable(package="tfrl")
class RecurrentNetwork(networks._SpaceNetwork):
    """Parameters from an observation and the memory of earlier ones.

        memory = cell(encoder(observations), memory)
        parameters = dense layers(memory)

    An LSTM remembers its outputs and its state, side by side; the dense layers see only
    the outputs. Values come from a separate cell and dense layers, whose memory follows
    in the same vector; encoders of images are shared.

    Args:
        kinds: of the observation space, see `SpaceEncoder.describe`.
        n_outputs: number of parameters.
        units: of each cell.
        hidden_units: of the dense layers.
        activation: of the dense layers.
        seed: of the initial weights.
        cell: "gru" or "lstm".
        has_values: whether there are values too.
        log_std: initial log standard deviation, or None where there is none to learn
            beside the parameters.
        n_log_stds: length of that vector; None for `n_outputs`.
        dueling: learn values of states and advantages of choices apart, as in
            `ActionValues`, by dense layers each behind the one memory.
        **kwargs: of `keras.Model`.

    Example:
        >>> kinds = [*networks.SpaceEncoder.describe(gym.spaces.Box(-1.0, 1.0, (4,)))]
        >>> model = RecurrentNetwork(kinds, n_outputs=2, units=8)
        >>> parameters, memory = model((np.zeros((3, 4), "f"), np.zeros((3, 8), "f")))
        >>> parameters.shape, memory.shape
        (TensorShape([3, 2]), TensorShape([3, 8]))

    References:
        Cho et al., 2014, Learning Phrase Representations using RNN Encoder-Decoder for
        Statistical Machine Translation, eq. 5-8. Hochreiter and Schmidhuber, 1997, Long
        Short-Term Memory.
    """

    def __init__(
        self,
        kinds: Any,
        n_outputs: int,
        units: int = 64,
        hidden_units: Sequence[int] = (64,),
        activation: str = "tanh",
        seed: int = 0,
        cell: str = "gru",
        has_values: bool = False,
        log_std: float | None = None,
        n_log_stds: int | None = None,
        dueling: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "recurrent")
        arguments = {"kinds": kinds, "n_outputs": n_outputs, "units": units}
        arguments |= {"activation": activation, "seed": seed}
        if cell != "gru":
            arguments["cell"] = cell
        if has_values:
            arguments["has_values"] = has_values
        if log_std is not None:
            arguments |= {"log_std": log_std, "n_log_stds": n_log_stds}
        if dueling:
            arguments["dueling"] = dueling
        super().__init__(arguments, hidden_units, **kwargs)
        self.cell = cell
        self.memory, self.critic_memory = self._cell(300, "memory"), None
        self.output_network = self._mlp(n_outputs, 0.01, 100, "outputs")
        self.state_network = self._mlp(1, 1.0, 500, "state") if dueling else None
        self.critic_network = None
        if has_values:
            self.critic_memory = self._cell(400, "critic_memory")
            self.critic_network = self._mlp(1, 1.0, 200, "critic")
        self.log_std = log_std  # a weight from `build` on
        self._n_log_stds = n_outputs if n_log_stds is None else n_log_stds

    @property
    def memory_size(self) -> int:
        """How many numbers are remembered of each episode."""
        each = self.arguments["units"] * (1 if self.cell == "gru" else 2)
        return each * len(self._cells)

    @property
    def _cells(self) -> list[Any]:
        return [x for x in (self.memory, self.critic_memory) if x is not None]

    def build(self, input_shape: Any) -> None:
        """Creates the weights for the shapes of observations and memory."""
        self._build_parts(input_shape[0], *self._cells)
        parts = self.output_network, self.state_network, self.critic_network
        for part in filter(None, parts):
            part.build((None, self.arguments["units"]))
        initial = self.arguments.get("log_std")
        if initial is not None:
            self.log_std = feedforward.log_std_of(self, self._n_log_stds, initial)
        super().build(input_shape)

    def call(self, inputs: Any) -> tuple[Any, ...]:
        """Returns parameters, values if any, and memory, of observations and memory."""
        observations, memory = inputs
        memory = self._later(self.encoder(observations), memory)
        return (*self._outputs(memory), memory)

    def sequences(self, inputs: Any) -> tuple[Any, ...]:
        """Returns the network's outputs for sequences, one step after the other.

        Args:
            inputs: nest of observations `[B, T, *shape]`; the memory before the first
                step, `[B, n]`; and bools `[B, T]`, where an episode begins and nothing
                is remembered.

        Returns:
            Parameters `[B, T, n]`, values `[B, T]` if any, and the memory after each
            step, `[B, T, n]`.
        """
        observations, memory, begins = inputs
        outer = begins.shape
        # All steps at once but for what depends on the step before.
        features = self.encoder(tf.nest.map_structure(_folded, observations))
        features = tf.reshape(features, [*outer, features.shape[-1]])
        _, memories = _keras_models.unrolled(
            lambda now, memory: ((), self._later(now, memory)),
            *((), features, memory, begins),
        )
        outputs = self._outputs(_folded(memories))
        return (*(tf.reshape(x, [*outer, *x.shape[1:]]) for x in outputs), memories)

    def _cell(self, seed: int, name: str) -> Any:
        made = keras.layers.GRUCell if self.cell == "gru" else keras.layers.LSTMCell
        first = self.arguments["seed"] + seed
        return made(
            self.arguments["units"],
            kernel_initializer=keras.initializers.GlorotUniform(first),
            recurrent_initializer=keras.initializers.Orthogonal(seed=first + 1),
            seed=first + 2,
            name=name,
            dtype="float32",
        )

    def _later(self, features: Any, memory: Any) -> Any:
        if features.shape[0] == 0:  # of which Keras' LSTMCell makes nothing
            return memory
        parts = iter(self._parts(memory))
        later: list[Any] = []
        for cell in self._cells:
            known = [next(parts) for _ in range(1 if self.cell == "gru" else 2)]
            later += cell(features, known)[1]
        return keras.ops.concatenate(later, axis=-1)

    def _outputs(self, memory: Any) -> tuple[Any, ...]:
        parts = self._parts(memory)
        parameters = self.output_network(parts[0])
        if self.state_network is not None:
            parameters -= keras.ops.mean(parameters, axis=-1, keepdims=True)
            parameters += self.state_network(parts[0])
        parameters = feedforward.with_log_std(parameters, self.log_std)
        if self.critic_network is None:
            return (parameters,)
        values = self.critic_network(parts[len(parts) // 2])
        return parameters, keras.ops.squeeze(values, -1)

    def _parts(self, memory: Any) -> list[Any]:
        """What each cell has put out, and after that what an LSTM knows besides."""
        n_parts = self.memory_size // self.arguments["units"]
        return keras.ops.split(memory, n_parts, axis=-1)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        """Returns the shapes of parameters, values if any, and memory."""
        rows, _ = self.encoder.compute_output_shape(input_shape[0])
        is_beside = self.arguments.get("log_std") is not None
        width = self.arguments["n_outputs"] + (self._n_log_stds if is_beside else 0)
        values = () if self.critic_network is None else ((rows,),)
        return ((rows, width), *values, (rows, self.memory_size))


def _folded(leaf: tf.Tensor) -> tf.Tensor:
    return tf.reshape(leaf, [-1, *leaf.shape[2:]])


class RecurrentPolicy(network_policy.NetworkPolicy):
    """A network that takes and returns a memory, with an action head.

        parameters, memory = network((normalize(observations), memory))
        parameters, values, memory = network((normalize(observations), memory))

    Attributes:
        state: the network with its weights, such as a `tfrl.agents.TrainState` of a
            `RecurrentNetwork`.
        observation_moments: as in `NetworkPolicy`.
        head: from the parameters to actions.
        units: size of the memory, float32 `[B, units]`, zeros at first.
        has_values: whether the network returns values too.

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
    has_values: bool = pytree.nonpytree_field(default=False)

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
        cell: str = "gru",
        has_values: bool = False,
        log_std: float | None = None,
        network: Any = None,
        epsilon: float | None = None,
        dueling: bool = False,
    ) -> "RecurrentPolicy":
        """Builds the network for the spaces of one environment.

        Args:
            observation_space: see `SpaceEncoder` for the kinds.
            action_space: see `action_head` for the kinds.
            learner: as in `ActorCriticPolicy.create`.
            units: of each cell. An LSTM remembers twice as many numbers, and with
                values there are two cells.
            hidden_units: of the layers behind the memory.
            activation: of these layers.
            squash: see `action_head`.
            normalize_observations: keep moments of all observed Boxes except images.
            seed: of the initial weights.
            cell: "gru" or "lstm".
            has_values: whether there are values beside the parameters.
            log_std: initial log standard deviation of continuous raw actions, learned
                beside the network; None if the network returns them.
            network: your own Keras model, or a function of both spaces that returns
                one, as in `ActorCriticPolicy.create`, except that it maps a pair,
                observations and its memory, float32 `[B, units]`, to the parameters,
                the values if required, and the new memory. With it `cell`,
                `hidden_units`, `activation` and `dueling` are ignored.
            epsilon: share of random actions of a `RecurrentValuePolicy`, to which the
                parameters are values of the choices of a Discrete space; None for a
                policy of which they are those of the head.
            dueling: see `RecurrentNetwork`.

        Returns:
            An untrained policy.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if `squash` does not fit the action space, `cell` is unknown,
                `epsilon` is not in [0, 1], or the outputs of `network` do not fit.
        """
        where = "RecurrentPolicy"
        checks.check_whole_number(where, "units", units, low=1)
        checks.check_one_of(where, "cell", cell, CELLS)
        kind: Any = cls
        fields: dict[str, Any] = {"has_values": has_values}
        if epsilon is not None:
            checks.check_within(where, "epsilon", epsilon, 0.0, 1.0)
            _epsilon_greedy.check_choices(where, action_space)
            kind = RecurrentValuePolicy
            fields["epsilon"] = tf.constant(epsilon, tf.float32)
        head = heads_of_spaces.action_head(action_space, squash=squash)
        initial = log_std if head.has_log_std else None
        n_beside = 0 if initial is None else head.n_log_stds
        size = units
        if network is None:
            size *= (1 if cell == "gru" else 2) * (2 if has_values else 1)
        made: RecurrentPolicy = kind._made(
            learner,
            lambda space: RecurrentNetwork.for_space(
                *(space, head.n_outputs - n_beside, units, hidden_units, activation),
                *(seed, cell, has_values, initial, n_beside or None, dueling),
            ),
            network,
            (observation_space, action_space),
            head,
            normalize_observations,
            given={
                **{"log_std": initial, "has_values": has_values, "seed": seed},
                "memory_size": size,
            },
            units=size,
            **fields,
        )
        return made

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

    def values(self, observations: Any, state: Any) -> tf.Tensor:
        """Returns the values of observations given what came before, `[B]`.

        Args:
            observations: nest of `[B, *shape]`.
            state: as in `act`.

        Raises:
            ValueError: if the network returns no values.
        """
        if not self.has_values:
            raise ValueError(
                "`RecurrentPolicy.values`: expected a policy whose network gives "
                "values; got one without; create it with `has_values=True`"
            )
        return self.state((self.normalize(observations), state))[1]

    def _outputs(self, observations: Any, state: Any) -> tuple[Any, Any]:
        found = self.state((self.normalize(observations), state))
        return found[0], found[-1]


class RecurrentValuePolicy(_epsilon_greedy.EpsilonGreedy, RecurrentPolicy):
    """Action values of a network with a memory, played epsilon-greedily.

        Q, memory = network((normalize(observations), memory))

    It remembers as a `RecurrentPolicy`, and acts by the values as an
    `ActionValuePolicy` does. Make one with `RecurrentPolicy.create(epsilon=...)`.

    Attributes:
        state: the network with its weights.
        observation_moments: as in `NetworkPolicy`.
        head: a `CategoricalHead`.
        units: size of the memory, float32 `[B, units]`, zeros at first.
        epsilon: float32 `[]`.

    Example:
        >>> policy = RecurrentPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), units=8,
        ...     learner=tfrl.agents.TrainState.create, epsilon=0.1)
        >>> seen, memory = np.zeros((5, 3), np.float32), policy.initial_state(5)
        >>> acted = policy.act(seen, memory, temperature=0.0)
        >>> acted.actions.shape, acted.state.shape
        ((5,), (5, 8))

    References:
        Hausknecht and Stone, 2015, Deep Recurrent Q-Learning for Partially Observable
        MDPs.
    """

    epsilon: tf.Tensor = dataclasses.field(kw_only=True)
