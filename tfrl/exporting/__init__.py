"""What leaves for another runtime: SavedModel, Keras, LiteRT; `verify` proves it.

Policies come from `tfrl.policies`, checkpoints of runs from `tfrl.saving`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tfrl.exporting.endpoints import Endpoint
from tfrl.exporting.export import export_model, export_policy, verify
from tfrl.exporting.policies import policy_endpoints, value_endpoint

if TYPE_CHECKING:
    from tfrl.exporting.of_distributions import distribution_endpoints

__all__ = [
    "Endpoint",
    "distribution_endpoints",
    "export_model",
    "export_policy",
    "policy_endpoints",
    "value_endpoint",
    "verify",
]
_LAZY = ("of_distributions",)  # it loads TensorFlow Probability


def __getattr__(name: str) -> Any:
    for file in _LAZY if name in __all__ else ():
        module = importlib.import_module(f"{__name__}.{file}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
