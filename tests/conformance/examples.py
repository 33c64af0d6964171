"""An everyday object of each class of distributions and bijectors.

None of their hyper-parameters is the default: what gets lost on the way is missed.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl import bijectors, distributions

LOCS = np.float32([[0.3, 1.0], [0.0, 0.5], [0.7, 1.5], [-0.4, 2.0]])
SCALES = np.float32([[0.5, 1.0], [2.0, 0.7], [1.0, 1.2], [0.7, 3.0]])
LOW, HIGH = np.float32([-1.0, 0.0]), np.float32([1.0, 4.0])
LOGITS = np.float32(
    [[0, 0.5, 1, -0.5], [0, 0, 0, 0], [1, 0.4, 0.3, 0], [-0.5, 0, 0.5, 1]]
)
MASK = np.array([[1, 1, 0, 1], [1, 0, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0]], bool)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """Distributions of one class, batch shape [4].

    Attributes:
        cls: the class.
        parameters: arrays by name.
        fixed: its other arguments.
        make: what to call instead of the class.
        options: of what is discrete, all there are.
    """

    cls: type
    parameters: Mapping[str, np.ndarray]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    make: Callable[..., Any] | None = None
    options: Any = None

    def __call__(self, **instead: Any) -> Any:
        """Makes it of tensors, or of others in the same structure."""
        tensors = {k: tf.constant(x) for k, x in self.parameters.items()}
        return (self.make or self.cls)(**{**tensors, **instead}, **self.fixed)


def affine(base_loc: Any, base_scale: Any, loc: Any, scale: Any, name: str) -> Any:
    base = distributions.DiagMultivariateNormal(base_loc, base_scale, True, "base")
    return distributions.AffineTransformedDistribution(
        base, loc, scale, validate_args=True, name=name
    )


def clipped(loc: Any, scale: Any, low: Any, high: Any, name: str) -> Any:
    base = distributions.Normal(loc, scale, name="base")
    return distributions.Clipped(base, low, high, validate_args=True, name=name)


def product(loc: Any, scale: Any, logits: Any, mask: Any, name: str) -> Any:
    parts = {
        "choice": distributions.MaskedCategorical(logits, mask, dtype=tf.int64),
        "move": distributions.SquashedNormal(loc, scale, LOW, HIGH, validate_args=True),
    }
    return distributions.Product(parts, name=name)


def located(*rows: Any) -> Any:
    """Examples of events of two numbers and of single ones by location and scale."""
    for cls, events, fixed in rows:
        cut = slice(None) if events else 0
        yield Example(
            cls=cls,
            parameters={"loc": LOCS[:, cut], "scale": SCALES[:, cut]},
            fixed={"validate_args": True, "name": "mine", **fixed},
        )


PLAIN = {"allow_nan_stats": False}
BOUNDS = {"lower_bound": LOW, "upper_bound": HIGH}
SQUASHED = {"loc": 0.5 * LOCS, "scale": 0.4 * SCALES}
DISTRIBUTIONS = (
    *located(
        (distributions.DiagMultivariateCauchy, True, PLAIN),
        (distributions.DiagMultivariateNormal, True, {}),
        (distributions.Normal, False, PLAIN),
        (distributions.StableCauchy, False, PLAIN),
        (distributions.TruncatedCauchy, True, {**BOUNDS, "mass_floor": 1e-9}),
        (
            distributions.TruncatedDistribution,
            True,
            {**BOUNDS, "its": distributions.T2ITS, "mass_floor": 1e-9},
        ),
        (distributions.TruncatedNormal, True, {**BOUNDS, "mass_floor": 1e-9}),
        (distributions.TruncatedT2, True, {**BOUNDS, "mass_floor": 1e-9}),
    ),
    Example(
        cls=distributions.AffineTransformedDistribution,
        make=affine,
        parameters={
            **{"base_loc": LOCS, "base_scale": SCALES},
            **{"loc": SCALES - 1, "scale": -SCALES},
        },
        fixed={"name": "mine"},
    ),
    Example(
        cls=distributions.Beta,
        parameters={"concentration1": SCALES[:, 0], "concentration0": SCALES[:, 1]},
        fixed={"eps": 0.1, "validate_args": True, "name": "mine", **PLAIN},
    ),
    Example(
        cls=distributions.Clipped,
        make=clipped,
        parameters={
            **{"loc": LOCS[:, 0], "scale": SCALES[:, 0]},
            **{"low": LOCS[:, 0] - 0.5, "high": LOCS[:, 0] + 0.7},
        },
        fixed={"name": "mine"},
    ),
    Example(
        cls=distributions.DiagMultivariateBeta,
        parameters={"concentration1": SCALES, "concentration0": SCALES[::-1]},
        fixed={"eps": 0.1, "validate_args": True, "name": "mine"},
    ),
    Example(
        cls=distributions.MaskedCategorical,
        parameters={"logits": LOGITS, "mask": MASK},
        fixed={"dtype": tf.int64, "validate_args": True, "name": "mine", **PLAIN},
        options=np.arange(4),
    ),
    Example(
        cls=distributions.OneHotCategoricalGumbelSoftmax,
        parameters={"logits": LOGITS},
        fixed={"hard_sample": False, "tau": 0.3, "name": "mine", **PLAIN},
        options=np.eye(4, dtype=np.float32),
    ),
    Example(
        cls=distributions.OneHotCategoricalStraightThrough,
        parameters={"probs": np.float32(np.exp(LOGITS))},
        fixed={"name": "mine", **PLAIN},
        options=np.eye(4, dtype=np.float32),
    ),
    Example(
        cls=distributions.Product,
        make=product,
        parameters={**SQUASHED, "logits": LOGITS, "mask": MASK},
        fixed={"name": "mine"},
        options=np.arange(4),
    ),
    Example(
        cls=distributions.SquashedNormal,
        parameters=SQUASHED,
        fixed={
            "low": LOW,
            "high": HIGH,
            "validate_args": True,
            "name": "mine",
            **PLAIN,
        },
    ),
)
BIJECTORS = (
    bijectors.AbsTransform(cache_size=0, validate_args=True, name="mine"),
    bijectors.AffineTransform([0.5, 1.0], -2.0, 1, cache_size=0),
    bijectors.ExpTransform(cache_size=0, validate_args=True, name="mine"),
    bijectors.PowerTransform(tf.constant([3.0, 0.5]), cache_size=0),
    bijectors.SigmoidTransform(cache_size=0, validate_args=True, name="mine"),
    bijectors.Softclip(-0.7, [1.5, 2.0], 0.3, cache_size=0),
    bijectors.SoftclipTF(-0.7, tf.constant(1.5), 0.3, cache_size=0),
    bijectors.Softlower(-0.7, 0.3, cache_size=0),
    bijectors.SoftmaxTransform(cache_size=0, validate_args=True, name="mine"),
    bijectors.Softplus(0.3, cache_size=0),
    bijectors.Softsign(cache_size=0, validate_args=True, name="mine"),
    bijectors.Softupper(tf.constant([0.7, 2.0]), 0.3, cache_size=0),
    bijectors.StableTanh(cache_size=0, validate_args=True, name="mine"),
)
