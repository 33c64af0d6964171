"""What an object computes, recognized by its methods.

    policy               `act`, `sample_actions`, or `dist_params` and `mode`; or an
                         attribute `policy` that has `act`
    Q-function           `q_values` of 1 or 2 arguments, or `critic` of 2
    V-function           `values` or `critic` of 1
    reward function      `rewards` of 2
    transition model     `next_observations` of 2
    stochastic           `sample_actions`, `dist_params`, `distribution`; a policy with
                         `has_log_probs`; or a Keras model that ends in a stochastic
                         layer, if only by one output

Arguments are those without a default, observations first, then actions. An object may
also declare it in an attribute `kinds`, a collection of the words "policy",
"qfunction", "vfunction", "reward_function", "transition_model" and "stochastic", which
lets a plain function or a Keras model be one of these. Classes are none of them, only
their instances.
"""

import inspect
from collections.abc import Callable
from typing import Any


def is_policy(obj: Any) -> bool:
    """Whether an object chooses actions.

    Args:
        obj: anything.

    Returns:
        True for all agents and policies of tfrl and for what has their methods.

    Example:
        >>> class Still:
        ...     def sample_actions(self, observations, *, seed=None, temperature=1.0):
        ...         return np.zeros(len(observations))
        >>> is_policy(Still()), is_policy(Still), is_policy(print)
        (True, False, False)
    """
    draws = _has(obj, "dist_params") and _has(obj, "mode")
    return (
        draws or _has(_policy_of(obj), "act") or _is(obj, "policy", ["sample_actions"])
    )


def is_qfunction(obj: Any) -> bool:
    """Whether an object values actions in states.

    Args:
        obj: anything.

    Returns:
        True for what maps observations and actions to values, or observations alone to
        the values of all actions.

    Example:
        >>> class Table:
        ...     def q_values(self, observations):
        ...         return np.zeros([len(observations), 2])
        >>> is_qfunction(Table()), is_vfunction(Table())
        (True, False)
    """
    return _is(obj, "qfunction", ["q_values", 1], ["q_values", 2], ["critic", 2])


def is_reward_function(obj: Any) -> bool:
    """Whether an object predicts rewards of actions in states.

    Args:
        obj: anything.

    Returns:
        True if so.

    Example:
        >>> def cost(observations, actions):
        ...     return -np.square(actions)
        >>> is_reward_function(cost)
        False
        >>> cost.kinds = {"reward_function"}
        >>> is_reward_function(cost)
        True
    """
    return _is(obj, "reward_function", ["rewards", 2])


def is_stochastic(obj: Any) -> bool:
    """Whether what an object computes is a distribution.

    Args:
        obj: anything.

    Returns:
        True if so.

    Example:
        >>> head = tfrl.layers.DistributionHead(gym.spaces.Discrete(2))
        >>> is_stochastic(head), is_stochastic(keras.Sequential([head]))
        (True, True)
        >>> is_stochastic(keras.layers.Dense(2))
        False
    """
    names = ["sample_actions"], ["dist_params"], ["distribution"]
    if _is(obj, "stochastic", *names):
        return True
    if getattr(_policy_of(obj), "has_log_probs", False) is True:
        return True
    layers = getattr(obj, "layers", None)
    if not isinstance(layers, list) or not layers:
        return False
    # One of several outputs is enough; only models of the functional API name them.
    named = getattr(obj, "output_names", None)
    outputs = named if isinstance(named, list) else []
    ends = [layer for layer in layers if layer.name in outputs]
    return any(map(is_stochastic, ends or layers[-1:]))


def is_transition_model(obj: Any) -> bool:
    """Whether an object predicts what follows actions in states.

    Args:
        obj: anything.

    Returns:
        True if so.

    Example:
        >>> class Line:
        ...     def next_observations(self, observations, actions):
        ...         return observations + actions
        >>> is_transition_model(Line())
        True
    """
    return _is(obj, "transition_model", ["next_observations", 2])


def is_vfunction(obj: Any) -> bool:
    """Whether an object values states.

    Args:
        obj: anything.

    Returns:
        True if so; an `ActorCritic` does.

    Example:
        >>> kinds = tfrl.policies.SpaceEncoder.describe(gym.spaces.Discrete(3))
        >>> model = tfrl.policies.ActorCritic(kinds, n_outputs=2)
        >>> is_vfunction(model), is_vfunction({})
        (True, False)
    """
    return _is(obj, "vfunction", ["values", 1], ["critic", 1])


def _policy_of(obj: Any) -> Any:
    """The policy that an agent acts by, or the object itself."""
    return getattr(obj, "__dict__", {}).get("policy", obj)


def _is(obj: Any, kind: str, *methods: list[Any]) -> bool:
    """Whether an object says that it is of a kind, or has one of some methods."""
    told = () if inspect.isclass(obj) else getattr(obj, "kinds", ())
    says = isinstance(told, set | frozenset | tuple | list) and kind in told
    return says or any(_has(obj, *method) for method in methods)


def _has(obj: Any, name: str, arity: int | None = None) -> bool:
    method = None if inspect.isclass(obj) else getattr(obj, name, None)
    return callable(method) and arity in (None, _arity(method))


def _arity(function: Callable[..., Any]) -> int | None:
    """Number of positional arguments without a default; None if it is not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return sum(p.default is p.empty and p.kind in positional for p in parameters)
