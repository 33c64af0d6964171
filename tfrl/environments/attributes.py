"""Attributes of environments, wherever in their wrappers they lie."""

from typing import Any

_RAISE = "__ERROR__"


def check_renders(where: str, env: Any) -> None:
    """Raises unless an environment renders arrays.

    Args:
        where: name of the asking function, for the error message.
        env: environment, wrapped or not.

    Raises:
        ValueError: if its `render_mode` is not "rgb_array".

    Example:
        >>> check_renders("film", gym.make("CartPole-v1"))
        Traceback (most recent call last):
        ...
        ValueError: `film`: `env` expected render_mode 'rgb_array'; got None; make it so
    """
    mode = getattr(env, "render_mode", None)
    if mode != "rgb_array":
        raise ValueError(
            f"`{where}`: `env` expected render_mode 'rgb_array'; got {mode!r}; make it "
            "so"
        )


def get_env_attr(
    env: Any, attr: str, default: Any = _RAISE, max_depth: int = 100
) -> Any:
    """Returns an attribute of an environment or of one that it wraps.

    Wrappers are looked through from the outside in, by their attribute `env`; the
    outermost that has the attribute wins. A Gymnasium wrapper itself forwards none.

    Args:
        env: environment, wrapped or not.
        attr: name of the attribute.
        default: what to return if nobody has it; left out, that is an error.
        max_depth: how many environments to look at, the outermost counted.

    Returns:
        The attribute's value.

    Raises:
        AttributeError: if nobody has it and there is no `default`.
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
            f"it wraps; got {env!r}; check the spelling, or give a `default`"
        )
    return default


def has_env_attr(env: Any, attr: str, max_depth: int = 100) -> bool:
    """Whether an environment, or one that it wraps, has an attribute.

    Args:
        env: environment, wrapped or not.
        attr: name of the attribute.
        max_depth: how many environments to look at, the outermost counted.

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
    if not isinstance(attr, str):
        raise TypeError(
            f"`{where}`: `attr` expected the name of an attribute; got {attr!r}; "
            "pass a string"
        )
    # Not by `tfrl.core.checks`: this room works without TensorFlow.
    if isinstance(max_depth, bool) or not isinstance(max_depth, int):
        raise TypeError(
            f"`{where}`: `max_depth` expected an int of at least 1; got "
            f"{max_depth!r}; correct it"
        )
    if max_depth < 1:
        raise ValueError(
            f"`{where}`: `max_depth` expected an int of at least 1; got "
            f"{max_depth!r}; correct it"
        )
    for _ in range(max_depth):
        if env is None:
            return None
        if hasattr(env, attr):
            return env
        env = getattr(env, "env", None)
    return None
