"""Attributes of environments, looked up through their wrappers."""

from typing import Any

from tfrl._internal import arguments

_RAISE = "__ERROR__"


def get_env_attr(
    env: Any, attr: str, default: Any = _RAISE, max_depth: int = 100
) -> Any:
    """Returns an attribute of an environment or of one that it wraps.

    Wrappers are searched from the outside in, by their attribute `env`; the outermost
    that has the attribute wins. A Gymnasium wrapper itself forwards none.

    Args:
        env: environment, wrapped or not.
        attr: name of the attribute.
        default: what to return if none has it; if left out, that is an error.
        max_depth: how many environments to look at, including the outermost.

    Returns:
        The attribute's value.

    Raises:
        AttributeError: if none has it and there is no `default`.
        TypeError: if `attr` is no string or `max_depth` no int.
        ValueError: if `max_depth` is not positive.

    Example:
        >>> env = gym.make("CartPole-v1")
        >>> get_env_attr(env, "gravity"), get_env_attr(env, "wind", default=0.0)
        (9.8, 0.0)
    """
    owner = _owner("get_env_attr", env, attr, max_depth)
    if owner is not None:
        return getattr(owner, attr)
    if isinstance(default, str) and default == _RAISE:
        raise AttributeError(
            f"`get_env_attr`: `env` expected an attribute {attr!r}, its own or of one "
            f"it wraps; got {arguments.shown(env)}"
        )
    return default


def has_env_attr(env: Any, attr: str, max_depth: int = 100) -> bool:
    """Whether an environment, or one that it wraps, has an attribute.

    Args:
        env: environment, wrapped or not.
        attr: name of the attribute.
        max_depth: how many environments to look at, including the outermost.

    Returns:
        True if `get_env_attr` finds it.

    Raises:
        TypeError: if `attr` is no string or `max_depth` no int.
        ValueError: if `max_depth` is not positive.

    Example:
        >>> env = gym.make("CartPole-v1")
        >>> has_env_attr(env, "gravity"), has_env_attr(env, "gravity", max_depth=1)
        (True, False)
    """
    return _owner("has_env_attr", env, attr, max_depth) is not None


def _owner(where: str, env: Any, attr: str, max_depth: int) -> Any:
    arguments.check_type(where, "attr", attr, str, "the name of an attribute")
    arguments.check_whole_number(where, "max_depth", max_depth, low=1)
    for _ in range(max_depth):
        if env is None or hasattr(env, attr):
            return env
        env = getattr(env, "env", None)
    return None
