"""Checks of masks, which say what options of choices are allowed, and of shapes."""

from collections.abc import Sequence

import numpy as np

# Unknown sizes are None, and so is a shape of unknown rank.
Shape = Sequence[int | None] | None


def check(where: str, dtype: np.dtype, shape: Shape, options: Shape) -> None:
    """Raises unless a mask is of bools or integers, one for each option.

    Args:
        where: the asking function, for the message.
        dtype: of the mask.
        shape: of the mask.
        options: shape of what it masks, `[..., n]`; one mask `[n]` may serve all rows.

    Raises:
        TypeError: if it is of other numbers.
        ValueError: if it is of another shape.

    Example:
        >>> check("act", np.dtype(bool), (4, 2), (4, 2))
    """
    if dtype.kind not in "biu":
        raise TypeError(
            f"`{where}`: `mask` expected bool or integers; got {dtype}; compare it "
            "with a threshold"
        )
    if options is None or fits(shape, options) or fits(shape, options[-1:]):
        return
    raise ValueError(
        f"`{where}`: `mask` must have shape [..., {options[-1]}], one for each option, "
        f"in all {list(options)}; got {shape}"
    )


def as_bools(where: str, mask: np.ndarray) -> np.ndarray:
    """Returns a mask as bools, each row of which allows something.

    Args:
        where: the asking function, for the message.
        mask: of the options of one choice.

    Raises:
        ValueError: if a row allows nothing.

    Example:
        >>> as_bools("act", np.array([[0, 1]])).tolist()
        [[False, True]]
    """
    allowed = mask.astype(bool, copy=False)
    rows = allowed.any(-1)
    if not rows.all():
        raise ValueError(
            f"`{where}`: `mask` must allow an option of each choice; got none in "
            f"{(~rows).sum()} of {rows.size} rows"
        )
    return allowed


def fits(shape: Shape, other: Shape) -> bool:
    """Whether two shapes can be the same.

    Args:
        shape: one.
        other: the other.

    Example:
        >>> fits((None, 3), (4, 3)), fits((4, 1), (4,))
        (True, False)
    """
    if shape is None or other is None:
        return True
    return len(shape) == len(other) and all(
        n is None or m is None or n == m for n, m in zip(shape, other, strict=True)
    )
