"""Acting without TensorFlow: networks, action heads and environment steps in NumPy.

What processes need that play environments and load no TensorFlow: small networks, the
heads that turn their outputs into actions, normalization by statistics learned in
TensorFlow, and steps of vector environments. The same heads with densities and
gradients are in `tfrl.distributions`, processes in `tfrl.distribute`, the loops that
learn in `tfrl.training`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tfrl.host.heads import NumpyCategorical, NumpyComposite, NumpyNormal
from tfrl.host.networks import NumpyNetwork
from tfrl.host.normalizer import HostNormalizer

if TYPE_CHECKING:
    from tfrl.host.stepping import Stepper, autoreset_mode

__all__ = [
    "HostNormalizer",
    "NumpyCategorical",
    "NumpyComposite",
    "NumpyNetwork",
    "NumpyNormal",
    "Stepper",
    "autoreset_mode",
]
_LAZY = ("stepping",)  # Gymnasium takes as long to import as all else here


def __getattr__(name: str) -> Any:
    for file in _LAZY if name in __all__ else ():
        module = importlib.import_module(f"{__name__}.{file}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
