"""Acting without TensorFlow: networks and action heads in NumPy.

What processes need that play environments and load no TensorFlow. The same heads with
densities and gradients are in `tfrl.distributions`, the loops that play in
`tfrl.environments`, the memory they share in `tfrl.distribute`.
"""

from tfrl.host.heads import (
    NumpyCategorical,
    NumpyComposite,
    NumpyNormal,
    epsilon_greedy_logits,
)
from tfrl.host.networks import NumpyNetwork

__all__ = [
    "NumpyCategorical",
    "NumpyComposite",
    "NumpyNetwork",
    "NumpyNormal",
    "epsilon_greedy_logits",
]
