"""Bijectors: invertible maps with the logarithm of their Jacobian's determinant.

Here are bijectors of TensorFlow Probability: maps into bounds, safe on the bounds
themselves, and elementary ones, all comparable and with every parameter in
`parameters`. Densities that they transform live in `tfrl.distributions`, soft bounds as
plain functions, and transforms of values without a Jacobian, in `tfrl.ops`.
"""

from tfrl.bijectors.squashing import (
    Softclip,
    SoftclipTF,
    Softlower,
    Softplus,
    Softsign,
    Softupper,
    StableTanh,
)
from tfrl.bijectors.standard import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    get_invertible,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "ExpTransform",
    "PowerTransform",
    "SigmoidTransform",
    "Softclip",
    "SoftclipTF",
    "Softlower",
    "SoftmaxTransform",
    "Softplus",
    "Softsign",
    "Softupper",
    "StableTanh",
    "get_invertible",
]
