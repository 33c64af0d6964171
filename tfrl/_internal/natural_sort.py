"""Names in the order in which people count: `seed_2` before `seed_10`."""

import re


def key(name: str) -> list[str | int]:
    """Returns what sorts names by their words, and numbers in them as numbers.

    Args:
        name: any text.

    Example:
        >>> sorted(["dense_10/bias", "dense_9/bias"], key=key)
        ['dense_9/bias', 'dense_10/bias']
    """
    pieces = enumerate(re.split(r"([0-9]+)", name))
    return [int(piece) if place % 2 else piece for place, piece in pieces]
