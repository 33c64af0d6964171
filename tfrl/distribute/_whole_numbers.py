"""The check of `core.checks.check_whole_number` for files without TensorFlow."""

import numbers
from typing import Any


def check_whole_number(
    where: str, name: str, value: Any, low: int, high: int | None = None
) -> int:
    """Returns `value` as an int, or raises unless it is an integer within bounds."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if whole and value >= low and (high is None or value <= high):
        return int(value)
    bounds = f"of at least {low}" if high is None else f"in [{low}, {high}]"
    raise (ValueError if whole else TypeError)(
        f"`{where}`: `{name}` expected an int {bounds}; got {value!r}; correct it"
    )
