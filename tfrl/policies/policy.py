"""What a policy is: the protocol `Policy`, and what it does, `Acted`."""

import random as python_random
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import random

_HALF = 0xFFFFFFFF


class Acted(NamedTuple):
    """What a policy does.

    Attributes:
        actions: nest of `[B, ...]`, what environments take, of their dtypes and bounds.
        raw_actions: nest of `[B, ...]`, as they were drawn and learners store them.
        log_probs: `[B]`, of what was drawn, or of the action itself where actions are
            squashed; None where the policy has none. At temperature 0 they are those of
            the distribution at temperature 1, and for action values those of the greedy
            choice, 0.
        state: nest of `[B, ...]`, for the next call; `()` for a policy without memory.

    Example:
        >>> Acted([1], [1], None, ()).actions
        [1]
    """

    actions: Any
    raw_actions: Any
    log_probs: Any
    state: Any


class Policy(Protocol):
    """From observations to actions.

    `Trainer`, `evaluate`, callbacks of `fit` and videos accept any object with these
    two methods.

    Example:
        >>> class Still:
        ...     def initial_state(self, batch_size):
        ...         return ()
        ...     def act(self, observations, state=(), *, seed=None, temperature=1.0,
        ...             mask=None):
        ...         zeros = np.zeros(len(observations), np.int64)
        ...         return Acted(zeros, zeros, None, state)
        >>> Still().act(np.ones((2, 3))).actions.tolist()
        [0, 0]
    """

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state at the beginning of episodes, a nest of `[B, ...]`."""

    def act(
        self,
        observations: Any,
        state: Any = (),
        *,
        seed: Any = None,
        temperature: float = 1.0,
        mask: Any = None,
    ) -> Acted:
        """Chooses actions.

        Args:
            observations: nest of `[B, *shape]`.
            state: what `initial_state` or the previous call returned.
            seed: int, int32 `[2]` or None; with NumPy observations a
                `numpy.random.Generator` too.
            temperature: 1 acts as the policy learns, 0 takes the best action.
            mask: `[B, n]` bool, the choices that are allowed; None for all.
        """


class FunctionPolicy:
    """A function as a policy without memory.

        actions = function(observations)
        actions = function(network(observations), rng)    # with a network

    A network may be in training: its current weights count. Its outputs are NumPy
    arrays, computed by one compiled function without dropout; the generator comes from
    the seed, and is that of callbacks and collectors, saved with their state.

    Args:
        function: from a nest of observations `[B, *shape]` to actions `[B, ...]`.
        to_env: from these to what environments take; the identity by default.
        network: a built Keras layer or model, or None.

    Raises:
        TypeError: if one of them is something else.

    Example:
        >>> left = FunctionPolicy(lambda observations: np.zeros(len(observations), int))
        >>> left.act(np.ones((2, 3))).actions.tolist()
        [0, 0]
        >>> q_values = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> greedy = FunctionPolicy(lambda q, rng: q.argmax(-1), network=q_values)
        >>> greedy.act(np.ones((2, 3), np.float32)).actions.shape
        (2,)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        to_env: Callable[[Any], Any] = lambda raw: raw,
        network: Any = None,
    ) -> None:
        for name, value, kind, expected in (
            ("function", function, Callable, "a function of observations"),
            ("to_env", to_env, Callable, "a function of actions"),
            ("network", network, keras.layers.Layer | None, "a Keras layer or model"),
        ):
            checks.check_type("FunctionPolicy", name, value, kind, expected)
        self._function, self._to_env = function, to_env
        self._network: Any = network
        self._compiled: Any = None

    def initial_state(self, batch_size: int) -> Any:  # noqa: ARG002
        """Returns `()`."""
        return ()

    def act(
        self,
        observations: Any,
        state: Any = (),
        *,
        seed: Any = None,
        **_: Any,
    ) -> Acted:
        """Chooses actions; temperature and mask are ignored."""
        if self._network is None:
            raw = self._function(observations)
            if tf.is_tensor(raw):
                raw = raw.numpy()
        else:
            rng = generator("act", seed)
            raw = np.asarray(self._function(self._outputs(observations), rng))
        return Acted(self._to_env(raw), raw, None, state)

    def _outputs(self, observations: Any) -> Any:
        flat = [np.asarray(leaf) for leaf in tf.nest.flatten(observations)]
        if self._compiled is None:
            structure = tf.nest.map_structure(lambda _: 0, observations)

            def call(*leaves: tf.Tensor) -> Any:
                nest = tf.nest.pack_sequence_as(structure, leaves)
                return self._network(nest, training=False)

            specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in flat]
            function = tf.function(call, autograph=False)
            self._compiled = function.get_concrete_function(*specs)
        outputs = self._compiled(*map(tf.constant, flat))
        return tf.nest.map_structure(np.asarray, outputs)


def generator(where: str, seed: Any) -> np.random.Generator:
    """Returns what draws by a seed, as `act` takes it, for a function `where`."""
    if isinstance(seed, np.random.Generator):
        return seed
    if seed is None:
        # A draw of TensorFlow's would take ten times as long as the policy.
        seed = python_random.getrandbits(64)
    if type(seed) is int and -(2**63) <= seed < 2**64:  # as below, without a tensor
        halves = np.array([seed & _HALF, (seed >> 32) & _HALF], np.uint32)
        return np.random.default_rng(halves)
    halves = np.asarray(random.checked_seed(where, seed)).view(np.uint32)
    return np.random.default_rng(halves)


def without_optimizer(policy: Any) -> Any:
    """Returns a policy without the state of its optimizer, if it has one."""
    lighten = getattr(policy, "without_optimizer", None)
    return policy if lighten is None else lighten()


def as_policy(where: str, name: str, acting: Any) -> Any:
    """Returns a policy, made from a function if it is not one.

    Args:
        where: the asking function, for the message.
        name: of the argument.
        acting: a `Policy`, or a function from observations to actions.

    Returns:
        `acting`, or a `FunctionPolicy` of it.

    Raises:
        TypeError: if it is neither.

    Example:
        >>> as_policy("evaluate", "policy", print).act("seen").actions
        seen
    """
    is_class = isinstance(acting, type)
    if not is_class and hasattr(acting, "act") and hasattr(acting, "initial_state"):
        return acting
    if not is_class and callable(acting):
        return FunctionPolicy(acting)
    cure = "; pass its `policy`" if hasattr(acting, "policy") else ""
    raise TypeError(
        f"`{where}`: `{name}` expected a policy, or a function from observations to "
        f"actions; got {acting!r:.80}{cure}"
    )
