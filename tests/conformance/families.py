"""One row per class of distributions: its extreme points and what is right there."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from conformance import densities, extremes, points, wide

from tfrl import distributions

SEED = (5, 6)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """One class of distributions.

    Attributes:
        cls: the class.
        points: of a dtype and `settings` to parameters and `value`, as many rows as
            there are extreme points.
        log_prob: of `points` and `settings`, as `Wide`, to that of each point.
        entropy: likewise, where there is one.
        units: of points, to the `units` of a question; None likewise.
        settings: further arguments at the extreme points, a dict for each call: numbers
            become scalar tensors.
        support: least and greatest draw, by settings.
        make: what to call instead of the class.
        values: the points that are the value and no parameters, in its nest's order.
    """

    cls: type
    points: Callable[..., points.Points]
    log_prob: Callable[..., Any]
    entropy: Callable[..., Any] | None = None
    units: Callable[..., Any] | None = lambda **_: {}
    settings: Sequence[Mapping[str, Any]] = ({},)
    support: Callable[..., tuple[float, float]] = lambda **_: (-np.inf, np.inf)
    make: Callable[..., Any] | None = None
    values: tuple[str, ...] = ("value",)

    def asked(self, given: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        """Results of a distribution, by name."""
        parameters = {k: x for k, x in given.items() if k not in self.values}
        dist = (self.make or self.cls)(**parameters, **settings)
        values = [given[name] for name in self.values]
        event = values[0] if len(values) == 1 else values
        # Drawn once, where the tape that asks for it runs.
        drawn = functools.cache(
            lambda: dist.experimental_sample_and_log_prob(seed=SEED)
        )
        yield "log_prob", lambda: dist.log_prob(event)
        yield "score", lambda: drawn()[1]
        yield "draw", lambda: drawn()[0]
        yield "mode", dist.mode
        if self.entropy:
            yield "entropy", dist.entropy

    def questions(self, dtype: str) -> list[extremes.Question]:
        """What is right at the extreme points, for each of the settings."""
        made = [self.points(dtype, **settings) for settings in self.settings]
        count = max(len(x) for given in made for x in given.values())
        margin = np.finfo(dtype).epsneg
        formulas = {"log_prob": functools.partial(self.log_prob, margin=margin)}
        if self.entropy:
            formulas["entropy"] = self.entropy
        questions = []
        for settings, given in zip(self.settings, made, strict=True):
            # As many for all settings, that one trace serves all.
            given = {k: np.resize(x, (count, *x.shape[1:])) for k, x in given.items()}
            limits = self.support(**settings)
            questions.append(
                extremes.Question(
                    asked=self.asked,
                    points=given,
                    settings=settings,
                    formulas=formulas,
                    rough=["entropy"],
                    units=self.units and self.units(**given),
                    limits={"draw": limits, "mode": limits},
                )
            )
        return questions


def of_events(formula: Callable[..., Any]) -> Callable[..., Any]:
    """The formula of single numbers for events of one."""

    def of_event(**named: Any) -> Any:
        each = formula(**named)
        if isinstance(each, dict):
            return {k: x[:, 0] if k == "" else x for k, x in each.items()}
        return wide.Wide(each.value[:, 0], each.slopes)

    return of_event


def both(event_cls: Any, cls: Any, make_points: Any, **rest: Any) -> Any:
    """The rows of a class of single numbers, and of that for events of them."""
    yield Family(cls=cls, points=make_points, **rest)
    formulas = ("log_prob", "entropy", "units")
    wrapped = {k: of_events(x) if k in formulas else x for k, x in rest.items()}
    yield Family(cls=event_cls, points=points.of_events(make_points), **wrapped)


def affine(loc: Any, scale: Any) -> Any:
    base = distributions.Normal(tf.zeros([], loc.dtype), tf.ones([], loc.dtype))
    return distributions.AffineTransformedDistribution(base, loc, scale)


def unclipped(loc: Any, scale: Any) -> Any:
    return distributions.Clipped(distributions.Normal(loc, scale), -np.inf, np.inf)


def product(loc: Any, scale: Any, logits: Any, mask: Any) -> Any:
    normal = distributions.Normal(loc, scale)
    choice = distributions.MaskedCategorical(logits, mask)
    return distributions.Product([normal, choice])


def by_bounds(names: tuple[str, str], *pairs: tuple[float, float]) -> dict[str, Any]:
    """What rows of distributions between two bounds have in common."""
    return {
        "points": lambda dtype, **bounds: points.bounded(dtype, *bounds.values()),
        "settings": [dict(zip(names, pair, strict=True)) for pair in pairs],
        "support": lambda **bounds: tuple(bounds.values()),
    }


BOUNDS = ((-1.0, 1.0), (0.0, 1e-6), (-8.0, 8.0), (100.0, 101.0))
SQUASHED = by_bounds(("low", "high"), *BOUNDS, (-10.0, 2.0))
TRUNCATED = {
    **by_bounds(("lower_bound", "upper_bound"), *BOUNDS, (5.0, np.inf), (-np.inf, 5.0)),
    "units": None,
}
UNIT = {"support": lambda: (0, 1)}

ROWS = (
    *both(
        distributions.DiagMultivariateNormal,
        distributions.Normal,
        points.location_scale,
        log_prob=densities.normal,
        entropy=densities.normal_entropy,
    ),
    *both(
        distributions.DiagMultivariateCauchy,
        distributions.StableCauchy,
        points.location_scale,
        log_prob=densities.cauchy,
        entropy=densities.cauchy_entropy,
    ),
    *both(
        distributions.DiagMultivariateBeta,
        distributions.Beta,
        points.concentrations,
        log_prob=densities.beta,
        entropy=densities.beta_entropy,
        units=densities.beta_terms,
        **UNIT,
    ),
    Family(
        cls=distributions.AffineTransformedDistribution,
        make=affine,
        points=lambda dtype: points.location_scale(dtype, points.signed_but_zero),
        log_prob=densities.affine,
        entropy=densities.affine_entropy,
    ),
    # tests/distributions has what is clipped.
    Family(
        cls=distributions.Clipped,
        make=unclipped,
        points=points.location_scale,
        log_prob=densities.normal,
    ),
    Family(cls=distributions.SquashedNormal, log_prob=densities.squashed, **SQUASHED),
    Family(
        cls=distributions.TruncatedNormal,
        log_prob=densities.size_of_truncated_normal(1e-30),
        **TRUNCATED,
    ),
    *(
        Family(cls=cls, log_prob=densities.size_of_truncated_heavy, **TRUNCATED)
        for cls in (distributions.TruncatedCauchy, distributions.TruncatedT2)
    ),
    Family(
        cls=distributions.TruncatedDistribution,
        make=functools.partial(
            distributions.TruncatedDistribution,
            its=distributions.NormalITS,
            mass_floor=0.0,
        ),
        log_prob=densities.size_of_truncated_normal(0.0),
        **TRUNCATED,
    ),
    Family(
        cls=distributions.MaskedCategorical,
        points=points.masked_choices,
        log_prob=densities.masked,
        entropy=densities.masked_entropy,
        support=lambda: (0, points.OPTIONS - 1),
    ),
    Family(
        cls=distributions.OneHotCategoricalStraightThrough,
        points=points.one_hot_probs,
        log_prob=densities.one_hot_of_probs,
        entropy=densities.one_hot_entropy_of_probs,
        units=densities.one_hot_terms,
        **UNIT,
    ),
    Family(
        cls=distributions.OneHotCategoricalGumbelSoftmax,
        points=points.one_hot_logits,
        log_prob=densities.one_hot,
        entropy=densities.one_hot_entropy,
        **UNIT,
    ),
    Family(
        cls=distributions.Product,
        make=product,
        points=points.pairs,
        values=("value", "option"),
        log_prob=densities.product,
        entropy=densities.product_entropy,
    ),
)
