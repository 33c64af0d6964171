"""What callbacks that step environments have in common."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl.core import checks, records
from tfrl.environments import snapshots
from tfrl.policies import host_policy
from tfrl.policies import policy as policies
from tfrl.schedules import progress
from tfrl.training.collecting import collection


class HostNetwork:
    """A network as a function from NumPy to NumPy, compiled once.

    Args:
        network: a built Keras layer or model.
    """

    def __init__(self, network: Any) -> None:
        self._network = network
        self._function: Any = None

    def __call__(self, observations: Any) -> Any:
        """Returns what the network says to a nest of `[N, *shape]`."""
        flat = [np.asarray(leaf) for leaf in tf.nest.flatten(observations)]
        if self._function is None:
            structure = tf.nest.map_structure(lambda _: 0, observations)

            def call(*leaves: tf.Tensor) -> Any:
                nest = tf.nest.pack_sequence_as(structure, leaves)
                return self._network(nest, training=False)

            specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in flat]
            function = tf.function(call, autograph=False)
            self._function = function.get_concrete_function(*specs)
        outputs = self._function(*map(tf.constant, flat))
        return tf.nest.map_structure(np.asarray, outputs)


def network_of(where: str, model: Any, network: Any) -> Any:
    """Returns the network that acts: the one given, or that of the model."""
    found = getattr(model, "network", model) if network is None else network
    if not isinstance(found, keras.layers.Layer):
        raise ValueError(
            f"`{where}`: `network` expected the one that acts, of several; got None; "
            "name it"
        )
    return found


def check_network(where: str, network: Any) -> None:
    """Raises unless `network` can act, or is None for that of the model."""
    if not isinstance(network, keras.layers.Layer | None):
        raise TypeError(
            f"`{where}`: `network` expected a Keras layer or model, or None for that "
            f"of the model; got {network!r:.80}; pass the one that acts"
        )


def check_envs(where: str, envs: Any) -> None:
    """Raises unless `envs` is a vector environment."""
    if not isinstance(envs, VectorEnv):
        raise TypeError(
            f"`{where}`: `envs` expected a vector environment; got {envs!r:.80}; make "
            "one by `tfrl.environments.make_vec`"
        )


def progress_of(model: Any, env_steps: int) -> progress.Progress:
    """Returns how far the training of a model has come, in numbers."""
    if hasattr(model, "progress"):
        return model.progress()
    iterations = int(model.optimizer.iterations.numpy())
    return progress.Progress(0.0, iterations, env_steps, env_steps)


def check_act(where: str, act: Any) -> None:
    """Raises unless `act` can be called, or is None for a model's agent."""
    if act is not None and not callable(act):
        raise TypeError(
            f"`{where}`: `act` expected a function of the network's outputs and a "
            f"generator, or None for an `AgentModel`; got {act!r}; define one"
        )


def checked_actions(where: str, actions: Any, envs: VectorEnv) -> np.ndarray:
    """Returns actions of `act`, which must be of the space that is played in."""
    found = np.asarray(actions)
    shape = envs.single_action_space.shape
    if shape is not None and found.shape != (envs.num_envs, *shape):
        raise ValueError(
            f"`{where}`: `act` expected to return actions of shape "
            f"{[envs.num_envs, *shape]} for {envs.single_action_space}; got "
            f"{list(found.shape)}; return one for each environment"
        )
    return found


class Acting:
    """How a callback acts: by a function of outputs, or as the agent of the model does.

    Args:
        where: name of the callback, for messages.
        act: as of `Collect`.
        network: as of `Collect`.
    """

    def __init__(self, where: str, act: Any, network: Any) -> None:
        check_act(where, act)
        check_network(where, network)
        if act is None and network is not None:
            raise TypeError(
                f"`{where}`: `network` expected None, as without `act` the agent of "
                f"the model acts; got {network!r:.80}; leave it out"
            )
        self._where, self._act, self._given = where, act, network
        self._host: HostNetwork | None = None
        self._agent: host_policy.HostPolicy | None = None

    @property
    def is_by_agent(self) -> bool:
        """Whether the agent of the model acts."""
        return self._act is None

    def chosen(self, model: Any, observations: Any, rng: np.random.Generator) -> Any:
        """Returns what `act` says to a nest of `[N, *shape]`."""
        if self._host is None:
            self._host = HostNetwork(network_of(self._where, model, self._given))
        return np.asarray(self._act(self._host(observations), rng))

    def agent_of(self, model: Any, probe: Any = None) -> host_policy.HostPolicy:
        """Returns the policy of the model's agent as it is now.

        Args:
            model: made from an agent.
            probe: as of `HostPolicy.push`.

        Raises:
            TypeError: if the model is none of an agent.
        """
        agent = getattr(model, "agent", None)
        if agent is None:
            raise TypeError(
                f"`{self._where}`: `act` expected a function of the network's outputs "
                f"and a generator; got None beside a {type(model).__name__}, which has "
                "no agent that could act"
            )
        if self._agent is None:
            self._agent = host_policy.HostPolicy(agent.policy)
        else:
            self._agent.push(agent.policy, probe)
        return self._agent


class Player:
    """Plays environments by a network, and can be saved in the middle of episodes.

    Args:
        where: name of the callback, for messages.
        envs: vector environment.
        n_steps: steps that are played at once.
        act: as of `Collect`.
        network: as of `Collect`.
        to_env: as of `Collect`.
        seed: of the environments and of what `act` draws.

    Attributes:
        collector: the `Collector`.
    """

    def __init__(
        self,
        where: str,
        envs: VectorEnv,
        n_steps: int,
        act: Callable[[Any, np.random.Generator], Any] | None,
        *,
        network: Any,
        to_env: Callable[[Any], Any] | None,
        seed: int,
    ) -> None:
        check_envs(where, envs)
        self._acting = Acting(where, act, network)
        checks.check_whole_number(where, "seed", seed, low=0)
        self.collector = collection.Collector(envs, n_steps, seed)
        self._where, self._seed = where, seed
        self._to_env = (lambda raw: raw) if to_env is None else to_env
        self._rng = np.random.default_rng(seed)

    @property
    def is_by_agent(self) -> bool:
        """Whether the agent of the model acts."""
        return self._acting.is_by_agent

    def play(self, model: Any) -> records.Trajectory:
        """Plays `n_steps` steps in each environment as the model would now."""
        with progress.progress_context(progress_of(model, self.collector.env_steps)):
            trajectory = self.collector.collect(self._policy(model), self._rng)
        self.tell(model)
        return trajectory

    def _policy(self, model: Any) -> Any:
        if self.is_by_agent:
            return self._acting.agent_of(model, self.collector.observations)
        return policies.FunctionPolicy(
            lambda observations: self._acting.chosen(model, observations, self._rng),
            lambda raw: checked_actions(
                self._where, self._to_env(raw), self.collector.envs
            ),
        )

    def tell(self, model: Any) -> None:
        """Lets the model know how many steps were played."""
        if hasattr(model, "env_steps"):
            model.env_steps.assign(self.collector.env_steps)

    def logs(self) -> dict[str, float]:
        """Returns what a callback adds to the logs of an epoch."""
        returns = self.collector.episode_returns
        lengths = self.collector.episode_lengths
        return {
            "return_mean": float(np.mean(returns)) if returns else float("nan"),
            "length_mean": float(np.mean(lengths)) if lengths else float("nan"),
            "env_steps": float(self.collector.env_steps),
        }

    def state(self) -> dict[str, Any]:
        """Returns everything a resumed run needs, as plain data."""
        return {
            "collector": self.collector.state(),
            "environments": snapshots.capture(self.collector.envs),
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> bool:
        """Takes up where `state` was returned; tells whether episodes go on."""
        collector, snapshot = self.collector, state["environments"]
        self._rng.bit_generator.state = state["rng"]
        if snapshot is not None:
            snapshots.restore(collector.envs, snapshot)
        else:
            collector.reset(self._seed + 7_919 * (1 + state["collector"]["env_steps"]))
            warnings.warn(
                f"`{self._where}`: resumed with new episodes: the state of these "
                "environments cannot be captured "
                f"({snapshots.uncapturable(collector.envs)})",
                stacklevel=3,
            )
        collector.set_state(state["collector"], same_episodes=snapshot is not None)
        return snapshot is not None
