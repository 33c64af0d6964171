"""Optional libraries, and how to get one that is missing."""

import importlib
from typing import Any


def imported(where: str, module: str, library: str, extra: str, hint: str = "") -> Any:
    """Returns a module of an optional library.

    Args:
        where: name of the function that needs it, for the error message.
        module: such as "PIL.Image".
        library: its name for `pip install`.
        extra: of tfrl, which brings it.
        hint: what helps as well, at the end of the error message.

    Raises:
        ImportError: if it is missing.
    """
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{where}`: expected the library {library}; found none; run: pip install "
            f"{library} (the extra `tfrl[{extra}]`){hint}"
        ) from error
