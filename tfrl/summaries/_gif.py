"""What the writers of GIFs ask for before they begin."""

import os
from typing import Any


def imported_pillow(where: str) -> Any:
    """Returns the module `PIL.Image`.

    Raises:
        ImportError: if Pillow is missing.
    """
    try:
        from PIL import Image  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"`{where}`: expected Pillow; found none; run: pip install 'tfrl[video]'"
        ) from error
    return Image


def checked_path(where: str, name: str, path: str | os.PathLike[str]) -> str:
    """Returns a path as text.

    Raises:
        ValueError: if it does not end in `.gif`.
    """
    text = os.fspath(path)
    if not text.lower().endswith(".gif"):
        raise ValueError(
            f"`{where}`: `{name}` expected to end in .gif; got {text}; rename it"
        )
    return text
