"""What a policy is: the protocol `Policy`, and what it does, `Acted`."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Acted(NamedTuple):
    """What a policy does.

    Attributes:
        actions: nest of `[B, ...]`, what environments take, of their dtypes and bounds.
        raw_actions: nest of `[B, ...]`, as they were drawn and learners store them.
        log_probs: `[B]`, of the actions; None where the policy has none.
        state: nest of `[B, ...]`, for the next call; `()` of a policy without memory.

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

    Whoever acts takes any object with these two methods: `Trainer`, `evaluate`,
    callbacks of `fit`, videos.

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
            state: what `initial_state` or the call before returned.
            seed: int, int32 `[2]` or None; with NumPy observations a
                `numpy.random.Generator` too.
            temperature: 1 acts as the policy learns, 0 takes the best action.
            mask: `[B, n]` bool, the choices that are allowed; None for all.
        """


class FunctionPolicy:
    """A function from observations to actions as a policy without memory.

    Args:
        function: from a nest of observations `[B, *shape]` to actions `[B, ...]`.
        to_env: from these to what environments take; they are that by default.

    Raises:
        TypeError: if one of both is no function.

    Example:
        >>> left = FunctionPolicy(lambda observations: np.zeros(len(observations), int))
        >>> left.act(np.ones((2, 3))).actions.tolist()
        [0, 0]
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        to_env: Callable[[Any], Any] = lambda raw: raw,
    ) -> None:
        if not callable(function) or not callable(to_env):
            raise TypeError(
                "`FunctionPolicy`: `function` expected a function of observations; got "
                f"{function!r:.80}"
            )
        self._function, self._to_env = function, to_env

    def initial_state(self, batch_size: int) -> Any:  # noqa: ARG002
        """Returns `()`."""
        return ()

    def act(
        self,
        observations: Any,
        state: Any = (),
        **_: Any,
    ) -> Acted:
        """Chooses actions; neither seed, nor temperature, nor mask is looked at."""
        raw = self._function(observations)
        return Acted(self._to_env(raw), raw, None, state)


def as_policy(where: str, name: str, acting: Any) -> Any:
    """Returns a policy, made of a function if it is none.

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
    if hasattr(acting, "act") and hasattr(acting, "initial_state"):
        return acting
    if callable(acting):
        return FunctionPolicy(acting)
    raise TypeError(
        f"`{where}`: `{name}` expected a policy, or a function from observations to "
        f"actions; got {acting!r:.80}"
    )
