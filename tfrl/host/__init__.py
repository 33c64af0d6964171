"""Acting without TensorFlow: networks, action heads and environment steps in NumPy.

What processes need that play environments and load no TensorFlow: small networks, the
heads that turn their outputs into actions, normalization by statistics learned in
TensorFlow, and steps of vector environments. The same heads with densities and
gradients are in `tfrl.distributions`, processes in `tfrl.distribute`, the loops that
learn in `tfrl.training`.
"""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors
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
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
