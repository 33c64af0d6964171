"""Exports to other runtimes: SavedModel, Keras, LiteRT; `verify` checks them.

Policies come from `tfrl.policies`, checkpoints of runs from `tfrl.saving`.
"""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors
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
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
