"""Behaviour cloning: a policy learned from recorded actions."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import agent as agents
from tfrl.agents import replicated, train_state
from tfrl.core import compile, pytree, random
from tfrl.distributions import action_heads
from tfrl.host import networks as host_networks
from tfrl.policies import actor_critic, host_policy
from tfrl.policies import policy as policies
from tfrl.schedules import progress as progresses


@dataclasses.dataclass(frozen=True)
class BC:
    """Hyper-parameters of behaviour cloning.

    Each batch of recorded observations and actions gives one gradient step of

        actor_loss = mean(-log_prob(actions | observations))

    Attributes:
        learning_rate: of Adam: a number, or a schedule of `tfrl.schedules` or Keras.
            The default is that of jaxrl_m, for networks that see images;
            `configs/bc_cartpole.gin` has 1e-3 for a small one.
        optimizer: as in `PPO`; None for Adam.
        max_gradient_norm: clips gradients to this global norm; None for no clipping.
        hidden_units: of the policy.
        activation: of the policy.
        squash: squash continuous actions by tanh instead of clipping them. An agent
            that continues with the network must have the same setting.
        log_std: initial log standard deviation of continuous actions.

    Example:
        >>> agent = BC(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2), seed=0)
        >>> agent.sample_actions(np.zeros((2, 3), np.float32), seed=0).shape
        (2,)

    References:
        Pomerleau, 1991, Efficient Training of Artificial Neural Networks for
        Autonomous Navigation.
    """

    learns_from: ClassVar[str] = "batches"
    columns: ClassVar[tuple[str, ...]] = ("observations", "actions")
    initial_settings: ClassVar[tuple[str, ...]] = ("log_std",)

    learning_rate: agents.Scheduled = 6e-5
    max_gradient_norm: float | None = None
    hidden_units: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    squash: bool = False
    log_std: float = 0.0
    optimizer: agents.Optimizer = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        agents.check_settings(self, optional=("max_gradient_norm",))

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
    ) -> "BCAgent":
        """Returns an agent for the spaces of one environment.

        Its network has a critic too, which cloning leaves unchanged: another agent,
        such as PPO's, can continue with the network and an optimizer of its own:
        `PPO().create(..., network=agent.policy.to_keras(as_network=True))`. Give it the
        same `squash`, which is no part of the network.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            seed: of the weights.
            network: your own Keras model, or a function of both spaces that returns
                one: from observations to a pair of the head's parameters and values;
                see `ActorCriticPolicy.create`.

        Returns:
            An untrained `BCAgent`.

        Raises:
            ValueError: if `squash` does not fit the action space, or the outputs of
                `network` do not fit.
            TypeError: if a space is of an unsupported kind, or `network` no model.
        """
        policy = agents.actor_critic_of(
            self, observation_space, action_space, network, seed
        )
        if not isinstance(
            policy.head, action_heads.CategoricalHead | action_heads.NormalHead
        ):
            raise TypeError(
                "`BC.create`: `action_space` expected one without parts; got "
                f"{action_space}"
            )
        return BCAgent(
            model=policy.state,
            method="actor",
            head=policy.head,
            learning_rate=self.learning_rate,
        )


class BCAgent(pytree.PyTreeNode):
    """A policy that imitates. Make one with `BC.create`, or from your own model.

    `BCAgent(model)` alone takes the model's outputs as the logits of a choice among 0,
    1, ...

    Attributes:
        model: `TrainState` whose model maps observations to the head's parameters.
        method: method of the model to call; None calls the model itself.
        head: from the model's outputs to actions, see `action_head`; None for logits.
        learning_rate: a schedule; None for the rate of the model's optimizer.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
        >>> agent = BCAgent(tfrl.agents.TrainState.create(
        ...     model, tx=tfrl.agents.adam(0.1)))
        >>> batch = {"observations": np.array([[-1.0], [1.0]], np.float32),
        ...          "actions": np.array([0, 1])}
        >>> for _ in range(50):
        ...     agent, info = agent.update(batch)
        >>> sorted(info), float(info["accuracy"])
        (['accuracy', 'actor_loss', 'entropy'], 1.0)
        >>> agent.sample_actions(batch["observations"], argmax=True).numpy().tolist()
        [0, 1]
    """

    model: train_state.TrainState
    method: str | Callable[..., Any] | None = pytree.nonpytree_field(default=None)
    head: Any = pytree.nonpytree_field(default=None)
    learning_rate: Any = pytree.nonpytree_field(default=None)

    @property
    def _is_created(self) -> bool:
        return self.method == "actor" and self.head is not None

    @functools.cached_property
    def policy(self) -> actor_critic.ActorCriticPolicy:
        """What acts, for evaluation, export and learners that continue from here.

        Raises:
            ValueError: if the agent was not made by `BC.create`.
        """
        if not self._is_created:
            raise ValueError(
                "`BCAgent.policy`: `model` expected the network of `BC.create`; got "
                f"{self.model.model_def!r:.80}; act by `sample_actions`"
            )
        return actor_critic.ActorCriticPolicy(
            state=self.model, observation_moments=(), head=self.head
        )

    @functools.cached_property
    def _twin(self) -> "_Twin | None":
        """What acts on a few NumPy observations without TensorFlow, if anything can."""
        model, state = self.model.model_def, self.model
        if self.method is not None or not isinstance(model, keras.Model):
            return None
        known = {**state.extra_variables, **state.params}
        network = host_policy.numpy_copy(model, known)
        if network is None or len(model.outputs) > 1:
            return None
        head = _head_of(self, model.output_shape)
        return _Twin(network, head, model.input_shape[1:])

    def update(
        self, batch: Any, *, progress: progresses.Progress | None = None
    ) -> tuple[Self, dict]:
        """Takes gradient steps on recorded experience, in one compiled call.

        In the scope of a strategy its replicas share the batch evenly.

        Args:
            batch: mapping or record with `observations`, a nest of `[B, *shape]`, and
                `actions`, `[B, ...]`, as the environment takes them; anything else in
                it is ignored, `weights` too. With another axis K in front of both, it
                is K minibatches, for a gradient step each. Keep K and B, since each new
                size is compiled anew.
            progress: what a scheduled learning rate follows; the one in context if
                None.

        Returns:
            The new agent, and an info of float32 scalars: `actor_loss`, `entropy`, and
            `accuracy` of choices (all of a row right) or `mse_loss` of continuous
            actions, both of the most probable action.

        Raises:
            ValueError: if the batch lacks either of them, is empty, has leaves of
                different lengths, holds actions that the head does not know (in host
                arrays), or cannot be split evenly over the replicas.
            TypeError: if choices are not integers.
        """
        observations, actions = _checked(self, batch)
        if actions.shape[1] is not None:
            replicated.check_rows("BCAgent.update", "batch", actions.shape[1])
        learner = self.replace(model=self.model.lent(), learning_rate=None)
        if self.learning_rate is not None:
            rates = agents.settings_at(
                self, progress, ["learning_rate"], self.model.step
            )
            model = train_state.with_rate(learner.model, rates["learning_rate"])
            learner = learner.replace(model=model)
        agent, info = replicated.run_update(
            _compiled_update, learner, observations, actions
        )
        model = agent.model.returned(self.model)
        return agent.replace(model=model, learning_rate=self.learning_rate), info

    def sample_actions(
        self,
        observations: Any,
        *,
        seed: int | tf.Tensor | None = None,
        temperature: float = 1.0,
        argmax: bool = False,
    ) -> Any:
        """Draws actions for the environment, in one compiled call.

        In an agent made by `BC.create` the policy acts, see `NetworkPolicy.act`. For a
        `keras.Sequential` of only dense layers, a NumPy copy acts on a few rows of
        NumPy observations.

        Args:
            observations: nest of `[B, *shape]`.
            seed: int or int32 `[2]`; None draws one from TensorFlow's generator, or
                from Python's where NumPy acts. The same seed gives different draws in
                both.
            temperature: divides logits, multiplies standard deviations; 0 is greedy.
            argmax: take the most probable action.

        Returns:
            Actions `[B, ...]` in the environment's dtype and bounds; a tensor, unless a
            policy was given NumPy arrays.

        Raises:
            ValueError: if `temperature` is negative or not finite, or, eagerly, if an
                observation is not finite.
        """
        where = "BCAgent.sample_actions"
        if self._is_created:
            temperature = 0.0 if argmax else temperature
            return self.policy.act(
                observations, seed=seed, temperature=temperature
            ).actions
        for leaf in tf.nest.flatten(observations):
            checks.check_finite(where, "observations", leaf)
        if not (isinstance(temperature, int | float) and 0 <= temperature < np.inf):
            checks.check_within(where, "temperature", temperature, 0.0, np.inf)
            checks.check_finite(where, "temperature", temperature)
        greedy = argmax or (
            not tf.is_symbolic_tensor(temperature) and float(temperature) == 0.0
        )
        twin = self._twin
        if twin is not None and twin.takes(observations, temperature):
            rng = None if greedy else policies.generator(where, seed)
            return tf.constant(twin.actions(observations, temperature, rng))
        model = self.model.replace(opt_state=())
        return _compiled_actions(
            self.replace(model=model.lent(), learning_rate=None),
            observations,
            random.checked_seed(where, 0 if greedy else seed),
            tf.cast(temperature, tf.float32),
            greedy,
        )


class _Twin:
    """A model in NumPy, and the head behind it.

    Args:
        network: the copy of the model.
        head: from its outputs to actions.
        shape: of an observation, as the model takes it.
    """

    def __init__(
        self, network: host_networks.NumpyNetwork, head: Any, shape: tuple
    ) -> None:
        self._network, self._head, self._shape = network, head, shape
        self._rows = host_policy.numpy_rows(network)

    def takes(self, observations: Any, temperature: Any) -> bool:
        """Whether these are arrays of floats for which it is made."""
        return (
            type(observations) is np.ndarray
            and observations.dtype.kind == "f"
            and observations.shape[1:] == self._shape
            and 0 < len(observations) <= self._rows
            and isinstance(temperature, int | float)
            and not tf.inside_function()
        )

    def actions(
        self,
        observations: np.ndarray,
        temperature: float,
        rng: np.random.Generator | None,
    ) -> np.ndarray:
        """Returns actions, the most probable ones without a generator."""
        head, parameters = self._head, self._network(observations)
        if rng is None:
            return head.host_to_env(head.host_mode(parameters))
        if temperature != 1.0:
            parameters = head.host_tempered(parameters, temperature)
        return head.host_to_env(head.host_sample(parameters, rng))


def _checked(agent: BCAgent, batch: Any) -> tuple[Any, Any]:
    """Returns observations and actions of a batch that can be learned from."""
    where, names = "`BCAgent.update`: `batch` expected", ("observations", "actions")
    given = batch
    if not isinstance(batch, Mapping):
        given = {name: getattr(batch, name) for name in names if hasattr(batch, name)}
    missing = [name for name in names if name not in given]
    if missing:
        raise ValueError(
            f"{where} `observations` and `actions`; got {type(batch).__name__} without "
            f"{missing}; pass a dictionary of both"
        )
    observations, actions = (given[name] for name in names)
    actions = actions if tf.is_tensor(actions) else np.asarray(actions)
    n_axes = len(np.shape(actions)) - len(_row_shape(agent.head))
    lengths = [
        tuple(np.shape(leaf)[: max(n_axes, 1)])
        for leaf in (*tf.nest.flatten(observations), actions)
    ]
    if len(set(lengths)) != 1 or lengths[0] == () or 0 in lengths[0]:
        raise ValueError(
            f"{where} leaves of the same length, at least 1; got {lengths}; cut them "
            "to the same rows"
        )
    if agent._is_created:
        name, n_front = "batch.observations", max(n_axes, 1)
        agent.policy.check_observations("BCAgent.update", name, observations, n_front)
    else:
        _check_inputs(where, agent.model.model_def, observations, max(n_axes, 1))
    _check_actions(where, agent.head, actions)
    for leaf in tf.nest.flatten(observations):
        is_float = isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
        if is_float and not np.isfinite(leaf).all():
            raise ValueError(f"{where} finite observations; got NaN or infinity")
    if n_axes == 1:
        return tf.nest.map_structure(lambda x: x[None], (observations, actions))
    return observations, actions


def _check_inputs(where: str, model: Any, observations: Any, n_axes: int) -> None:
    """Raises unless a Keras model of one input can take observations."""
    wanted: Any = getattr(model, "input_shape", None)
    is_one = isinstance(wanted, tuple) and not any(isinstance(x, tuple) for x in wanted)
    if not is_one or tf.nest.is_nested(observations):
        return
    wanted, given = wanted[1:], tuple(np.shape(observations))[n_axes:]
    fits = tf.TensorShape(wanted).is_compatible_with(given)
    if len(wanted) == len(given) and not fits:  # Keras adds and drops axes of one
        raise ValueError(
            f"{where} observations of shape {['B', *wanted]}, that of the model's "
            f"input; got {['B', *given]}; record what the model takes"
        )


def _check_actions(where: str, head: Any, actions: Any) -> None:
    """Raises unless a head can take these for the environment's actions.

    Tensors on a device are not looked into.
    """
    continuous, shape = isinstance(head, action_heads.NormalHead), _row_shape(head)
    given = tuple(np.shape(actions))
    if shape not in (given[1:], given[2:]):
        raise ValueError(
            f"{where} actions of shape {['B', *shape]}, or {['K', 'B', *shape]}; got "
            f"{list(given)}; record what the environment takes"
        )
    kind = tf.as_dtype(actions.dtype)
    if not continuous and not (kind.is_integer or kind.is_bool):
        raise TypeError(
            f"{where} actions that are integers, as they are choices; got {kind.name}; "
            "cast them"
        )
    if tf.is_tensor(actions):
        if tf.inside_function() or "CPU" not in actions.device:
            return
        actions = np.asarray(actions)
    least, most = _bounds(head)
    if not np.all((actions >= least) & (actions <= most) & np.isfinite(actions)):
        raise ValueError(
            f"{where} finite actions in [{least}, {most}]; got some in "
            f"[{actions.min()}, {actions.max()}]; record what the environment takes"
        )


def _row_shape(head: Any) -> tuple[int, ...]:
    return () if head is None else head.shape


def _bounds(head: Any) -> tuple[Any, Any]:
    if head is None:
        return 0, np.inf
    if isinstance(head, action_heads.NormalHead):
        if not head.squash:
            return -np.inf, np.inf
        low, high = (np.reshape(x, head.shape) for x in (head.low, head.high))
        slack = 1e-6 * (high - low)  # of a recording in another dtype
        return low - slack, high + slack
    starts, sizes = (np.reshape(x, head.shape) for x in (head.starts, head.n_choices))
    return starts, starts + sizes - 1


def _head_of(agent: BCAgent, shape: Any) -> Any:
    """Returns the head behind parameters of a shape."""
    if agent.head is not None:
        return agent.head
    if len(shape) != 2 or shape[-1] is None:
        raise ValueError(
            "`BCAgent`: `model` expected to return logits [B, n_actions] where there "
            f"is no `head`; got shape {shape}; pass a `head`"
        )
    n_choices = shape[-1]
    return action_heads.CategoricalHead((n_choices,), (0,), scalar=True, dtype="int32")


def _update(
    agent: BCAgent, observations: Any, actions: tf.Tensor
) -> tuple[BCAgent, dict]:
    def loss_fn(
        model: train_state.TrainState, params: Any, rows: tuple[Any, tf.Tensor]
    ) -> tuple[tf.Tensor, dict]:
        parameters = model(rows[0], params=params, method=agent.method)
        return _loss(_head_of(agent, parameters.shape), parameters, rows[1])

    model, info = replicated.take_steps(agent.model, loss_fn, (observations, actions))
    return agent.replace(model=model), info


def _loss(
    head: Any, parameters: tf.Tensor, actions: tf.Tensor
) -> tuple[tf.Tensor, dict]:
    loss = -tf.reduce_mean(head.log_prob(parameters, head.from_env(actions)))
    info = {"actor_loss": loss, "entropy": tf.reduce_mean(head.entropy(parameters))}
    likely = head.to_env(head.mode(parameters))
    taken, inner = tf.cast(actions, likely.dtype), list(range(1, likely.shape.rank))
    if isinstance(head, action_heads.CategoricalHead):
        right = tf.reduce_all(tf.equal(likely, taken), inner)
        info["accuracy"] = tf.reduce_mean(tf.cast(right, loss.dtype))
    else:
        squares = tf.square(tf.cast(likely - taken, loss.dtype))
        info["mse_loss"] = tf.reduce_mean(tf.reduce_sum(squares, inner))
    return loss, info


_compiled_update = replicated.compiled_update(_update)


def _actions(
    agent: BCAgent,
    observations: Any,
    seed: tf.Tensor,
    temperature: tf.Tensor,
    greedy: bool,
) -> tf.Tensor:
    parameters = agent.model(observations, method=agent.method)
    head = _head_of(agent, parameters.shape)
    if greedy:
        return head.to_env(head.mode(parameters))
    return head.to_env(head.sample(head.tempered(parameters, temperature), seed))


_compiled_actions = compile.jit(
    _actions, static_argnums=4, differentiable=False, xla=False
)
