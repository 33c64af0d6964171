"""One row per class of bijectors: its extreme points and what is right there."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from conformance import bijections, extremes, wide
from conformance.points import Points, choices, crossed, signed, signed_but_zero, sizes

from tfrl import bijectors

SHARES = np.array([1e-30, 1e-12, 1e-6, 1e-3, 0.1, 0.5])
LOWS = [-1e4, -3.0, -1.0, 0.0, 1e-3, 200.0]
EXPONENTS = np.array([1e-3, 0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 7.0, 1e3])


def numbers(dtype: str, **_: Any) -> np.ndarray:
    """Very many of all sizes and signs."""
    positive = np.geomspace(sizes(dtype)[0], sizes(dtype)[-1], 4000)
    both = np.concatenate([positive, np.geomspace(1e-3, 1e3, 1000)])
    return np.concatenate([-both, [0.0], both])


def positive_numbers(dtype: str, **_: Any) -> np.ndarray:
    both = numbers(dtype)
    return both[both > 0]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Map:
    """One class of bijectors.

    Attributes:
        cls: the class.
        forward: of `x` and parameters, as `Wide`, to y.
        inverse: of `y` and parameters to x.
        log_slope: of `x` and parameters, where it is defined.
        parameters: of a dtype, arrays of all combinations.
        inputs: of a dtype and parameters, to `x`: a flat array where there are no
            parameters, else a column for each combination.
        outputs: likewise of `y`, bounds included.
        limits: of parameters, to the bounds of `y`.
        units: of points, to the `units` of a question.
        rough: results that are only to be finite, as the tests of their room compare
            them with formulas of their own.
    """

    cls: type
    forward: Callable[..., Any]
    inverse: Callable[..., Any]
    log_slope: Callable[..., Any] | None = None
    parameters: Callable[[str], Points] = lambda dtype: {}
    inputs: Callable[..., np.ndarray] = numbers
    outputs: Callable[..., np.ndarray] = numbers
    limits: Callable[..., tuple[Any, Any]] = lambda **_: (-np.inf, np.inf)
    units: Callable[..., Mapping[str, Any]] = lambda **_: {}
    rough: Sequence[str] = ()

    def asked_forward(self, given: Points, settings: Any) -> Any:
        parameters = dict(given)
        x = parameters.pop("x")
        bijector = self.cls(**parameters)
        yield "forward", lambda: bijector.forward(x)
        if self.log_slope:
            yield "log_slope", lambda: bijector.forward_log_det_jacobian(x)

    def asked_inverse(self, given: Points, settings: Any) -> Any:
        parameters = dict(given)
        y = parameters.pop("y")
        bijector = self.cls(**parameters)
        yield "inverse", lambda: bijector.inverse(y)
        if self.log_slope:
            yield "log_slope", lambda: bijector.inverse_log_det_jacobian(y)

    def questions(self, dtype: str) -> list[extremes.Question]:
        """What is right at the extreme points, forwards and back."""
        parameters = {k: x.astype(dtype) for k, x in self.parameters(dtype).items()}
        forward, inverse = {"forward": self.forward}, {"inverse": self._inverse(dtype)}
        if self.log_slope:
            forward["log_slope"] = self.log_slope
            inverse["log_slope"] = self._inverse_log_slope(dtype)
        sides = (
            ("x", self.inputs, self.asked_forward, forward),
            ("y", self.outputs, self.asked_inverse, inverse),
        )
        questions = []
        for name, values, asked, formulas in sides:
            found = values(dtype, **parameters).astype(dtype)
            points = {name: found}
            for k, x in parameters.items():
                points[k] = np.broadcast_to(x, found.shape).ravel()
                points[name] = found.ravel()
            questions.append(
                extremes.Question(
                    asked=asked,
                    points=points,
                    formulas=formulas,
                    units=self.units(**points),
                    rough=self.rough,
                )
            )
        return questions

    def _inverse(self, dtype: str) -> Callable[..., Any]:
        """The inverse of what lies on a bound is that of the next number inside."""

        def inverse(y: Any, **parameters: Any) -> Any:
            arrays = {k: x.value.astype(dtype) for k, x in parameters.items()}
            low, high = (np.asarray(x, dtype) for x in self.limits(**arrays))
            tiny, infinity = np.finfo(dtype).tiny, np.asarray(np.inf, dtype)
            least = np.maximum(np.nextafter(low, infinity), low + tiny)
            most = np.minimum(np.nextafter(high, -infinity), high - tiny)
            moved = (y.value < least) | (y.value > most)
            inner = wide.where(moved, np.clip(y.value, least, most), y)
            x = self.inverse(inner, **parameters)
            # How the next number depends on the bound is left open.
            for name in parameters:
                x.slopes[name] = np.where(moved, np.nan, x.slopes.get(name, 0))
            # The greatest numbers may stand for greater ones, and do not move then.
            great = np.abs(x.value) > np.finfo(dtype).max / 16
            x.slopes = {k: np.where(great, np.inf, s) for k, s in x.slopes.items()}
            return x

        return inverse

    def _inverse_log_slope(self, dtype: str) -> Callable[..., Any]:
        inverse, most = self._inverse(dtype), np.finfo(dtype).max / 16

        def log_slope(y: Any, **parameters: Any) -> Any:
            x = inverse(y, **parameters)
            result = -self.log_slope(x, **parameters)
            # It is computed of x, whose slopes have to be within the dtype, too.
            for name, slope in x.slopes.items():
                beyond = np.abs(slope) > most
                result.slopes[name] = np.where(beyond, np.inf, result.slopes[name])
            return result

        return log_slope


def between(low: float, high: float) -> Callable[..., Any]:
    """Very many numbers of an interval, both bounds included."""

    def inside(dtype: str) -> np.ndarray:
        near = np.geomspace(np.finfo(dtype).eps / 4, 0.5, 3000) * (high - low)
        least = np.geomspace(sizes(dtype)[0], 0.5, 3000) * (high - low)
        values = np.concatenate([[low, high], low + least, low + near, high - near])
        return np.clip(values.astype(dtype), low, high)

    return inside


def places(dtype: str, low: Any, high: Any, **_: Any) -> np.ndarray:
    """Numbers between two bounds, these included, for each pair."""
    steps = np.concatenate([[0.0, np.finfo(dtype).eps], SHARES])[:, None]
    width = np.asarray(high, wide.LONG) - low
    found = np.concatenate([low + steps * width, high - steps * width])
    return np.clip(found.astype(dtype), low, high)


def beyond(dtype: str, hinge_softness: Any, low: Any = 0.0, high: Any = None) -> Any:
    """Numbers on one side of a bound, for each."""
    steps = np.append(0.0, sizes(dtype)[1:])[:, None]
    found = low + steps if high is None else high - steps
    return found + 0 * hinge_softness


def around(dtype: str, hinge_softness: Any, low: Any = 0.0, high: Any = None) -> Any:
    """Numbers of all sizes, and some bends away from the bounds."""
    anywhere = signed(dtype)[:, None] + 0 * hinge_softness
    bends = np.array([1e-3, 0.3, 3.0, 9.0, 30.0, 80.0])
    bends = np.concatenate([-bends, bends])[:, None] * hinge_softness
    near = [bound + bends for bound in (low, high) if bound is not None]
    return np.concatenate([anywhere, *near])


def one_bound(name: str) -> Callable[[str], Points]:
    softness = np.geomspace(1e-3, 1e3, 30)
    bounds = [*LOWS, 0.1, 1e6]
    return lambda dtype: crossed(dtype, **{name: bounds, "hinge_softness": softness})


def two_bounds(dtype: str) -> Points:
    """Intervals of a thousandth of a bend to many bends, near and far from 0."""
    widths, softness = [1e-2, 0.5, 2.0, 1e3, 1e6], np.geomspace(1e-3, 1e3, 7)
    made = crossed(dtype, low=LOWS, width=widths, hinge_softness=softness)
    made["high"] = made["low"] + made.pop("width")
    kept = made["high"] - made["low"] > 1e-3 * made["hinge_softness"]
    return {name: x[kept] for name, x in made.items()}


def size_of_bounds(
    hinge_softness: Any, low: Any = 0.0, high: Any = 0.0, **on: Any
) -> Any:
    """What is computed relative to 0 has the digits of the bounds.

    Far from them the formulas' slope of the softness is a difference of great numbers.
    """
    size = np.abs(low) + np.abs(high)
    slope = 1 + size / hinge_softness
    exact = 4 * np.finfo(wide.LONG).eps / np.finfo(hinge_softness.dtype).eps
    far = np.abs(on["x"] if "x" in on else on["y"]) / hinge_softness * exact
    units = {"low": slope, "high": slope, "x": slope, "hinge_softness": slope + far}
    return {"": 1 + size + hinge_softness, **units}


SOFT = {"inputs": around, "units": size_of_bounds, "rough": ("inverse", "log_slope")}
CLIPPED = {
    **SOFT,
    "parameters": two_bounds,
    "outputs": places,
    "limits": lambda low, high, **_: (low, high),
}
HALF = {"outputs": positive_numbers, "limits": lambda: (0.0, np.inf)}

ROWS = (
    Map(
        cls=bijectors.StableTanh,
        forward=bijections.tanh,
        inverse=bijections.inverse_tanh,
        log_slope=bijections.tanh_log_slope,
        outputs=between(-1.0, 1.0),
        limits=lambda: (-1.0, 1.0),
    ),
    Map(
        cls=bijectors.Softsign,
        forward=bijections.softsign,
        inverse=bijections.inverse_softsign,
        log_slope=bijections.softsign_log_slope,
        outputs=between(-1.0, 1.0),
        limits=lambda: (-1.0, 1.0),
    ),
    Map(
        cls=bijectors.Softplus,
        forward=bijections.softplus,
        inverse=bijections.inverse_softplus,
        log_slope=bijections.softplus_log_slope,
        parameters=lambda dtype: {"hinge_softness": np.geomspace(1e-3, 1e3, 300)},
        outputs=beyond,
        limits=lambda **_: (0.0, np.inf),
        **SOFT,
    ),
    Map(
        cls=bijectors.Softlower,
        forward=bijections.softlower,
        inverse=bijections.inverse_softlower,
        log_slope=bijections.softlower_log_slope,
        parameters=one_bound("low"),
        outputs=beyond,
        limits=lambda low, **_: (low, np.inf),
        **SOFT,
    ),
    Map(
        cls=bijectors.Softupper,
        forward=bijections.softupper,
        inverse=bijections.inverse_softupper,
        log_slope=bijections.softupper_log_slope,
        parameters=one_bound("high"),
        outputs=beyond,
        limits=lambda high, **_: (-np.inf, high),
        **SOFT,
    ),
    Map(
        cls=bijectors.Softclip,
        forward=bijections.softclip,
        inverse=bijections.inverse_softclip,
        log_slope=bijections.softclip_log_slope,
        **CLIPPED,
    ),
    Map(
        cls=bijectors.SoftclipTF,
        forward=bijections.softclip_tf,
        inverse=bijections.inverse_softclip_tf,
        log_slope=bijections.softclip_tf_log_slope,
        **CLIPPED,
    ),
    Map(
        cls=bijectors.AffineTransform,
        forward=bijections.affine,
        inverse=bijections.inverse_affine,
        log_slope=bijections.affine_log_slope,
        parameters=lambda dtype: crossed(
            dtype, loc=signed(dtype), scale=signed_but_zero(dtype)
        ),
        inputs=lambda dtype, loc, scale: signed(dtype)[:, None] + 0 * loc,
        outputs=lambda dtype, loc, scale: signed(dtype)[:, None] + 0 * loc,
    ),
    Map(
        cls=bijectors.ExpTransform,
        forward=wide.exp,
        inverse=wide.log,
        log_slope=bijections.itself,
        **HALF,
    ),
    Map(
        cls=bijectors.PowerTransform,
        forward=bijections.power,
        inverse=bijections.inverse_power,
        log_slope=bijections.power_log_slope,
        parameters=lambda dtype: {"exponent": np.append(-EXPONENTS, EXPONENTS)},
        inputs=lambda dtype, exponent: (
            positive_numbers(dtype)[::20, None] + 0 * exponent
        ),
        outputs=lambda dtype, exponent: (
            positive_numbers(dtype)[::20, None] + 0 * exponent
        ),
        limits=lambda **_: (0.0, np.inf),
        rough=("log_slope",),
    ),
    Map(
        cls=bijectors.SigmoidTransform,
        forward=wide.sigmoid,
        inverse=bijections.inverse_sigmoid,
        log_slope=bijections.sigmoid_log_slope,
        outputs=between(0.0, 1.0),
        limits=lambda: (0.0, 1.0),
    ),
    Map(
        cls=bijectors.AbsTransform,
        forward=wide.absolute,
        inverse=bijections.itself,
        **HALF,
    ),
    Map(
        cls=bijectors.SoftmaxTransform,
        forward=bijections.softmax,
        inverse=wide.log,
        inputs=lambda dtype: choices(dtype)["logits"],
        outputs=lambda dtype: np.resize(positive_numbers(dtype)[:2000], [5000, 2]),
    ),
)
