"""Whether what JSON held has the shape that a reader relies on."""

from typing import Any


def fits(value: Any, like: Any) -> bool:
    """Tells whether a nest is like a pattern.

    Args:
        value: what `json.loads` returned.
        like: a type, of which ints are those from 0 to 2**63; None for null; a tuple
            of patterns of which one fits; `[item]` for a list of any length, `[first,
            second]` for one of that length; `{str: value}` for any object, `{"key":
            value}` for one with that key and maybe others.

    Returns:
        Whether it fits.

    Example:
        >>> fits({"step": 3, "score": None}, {"step": int, "score": (float, None)})
        True
        >>> fits({"step": -3}, {"step": int})
        False
    """
    if isinstance(like, tuple):
        return any(fits(value, each) for each in like)
    if isinstance(like, list) and isinstance(value, list):
        likes = like * len(value) if len(like) == 1 else like
        return len(value) == len(likes) and all(map(fits, value, likes))
    if isinstance(like, dict) and isinstance(value, dict):
        if str in like:
            return all(fits(each, like[str]) for each in value.values())
        return all(key in value and fits(value[key], like[key]) for key in like)
    if like is int:
        return type(value) is int and 0 <= value < 2**63
    return value is like is None or type(value) is like
