"""What leaves for another runtime: SavedModel, Keras, LiteRT; `verify` proves it.

Policies come from `tfrl.policies`, checkpoints of runs from `tfrl.saving`.
"""

from tfrl.exporting.endpoints import Endpoint, distribution_endpoints
from tfrl.exporting.export import export_model, export_policy, verify
from tfrl.exporting.policies import policy_endpoints, value_endpoint

__all__ = [
    "Endpoint",
    "distribution_endpoints",
    "export_model",
    "export_policy",
    "policy_endpoints",
    "value_endpoint",
    "verify",
]
