"""Rows of the ops of single numbers, of several side by side, and of positions."""

from conformance.battery import EVERYWHERE, Row, between
from conformance.inputs import both, normal, uniform

from tfrl import ops


def unary(name, call=None, **changes):
    """A row of an op of each element of `x`."""
    return Row(
        name=f"ops.{name}",
        call=call or getattr(ops, name.split(":")[0]),
        **{
            "make": normal(x=["B"]),
            "differentiable": ("x",),
            "extremes": {"x": EVERYWHERE},
            **changes,
        },
    )


SOFTNESS = {"hinge_softness": (0.01, 2.0)}
SQUASHING = (
    unary(
        "softlower",
        options={"low": -0.7, "hinge_softness": 0.3},
        scalars={"low": (-1.0, 1.0), **SOFTNESS},
    ),
    unary(
        "softupper",
        options={"high": 1.3, "hinge_softness": 0.3},
        scalars={"high": (-1.0, 1.0), **SOFTNESS},
    ),
    *(
        unary(
            name,
            make=both(
                normal(x=["B"]),
                uniform(-2.0, -1.0, low=["B"]),
                uniform(1.0, 2.0, high=["B"]),
                uniform(0.1, 1.0, hinge_softness=[]),
            ),
            differentiable=("x", "low", "high", "hinge_softness"),
            scalars={"low": (-1.0, 0.0), "high": (1.0, 2.0), **SOFTNESS},
            rounding=8,
        )
        for name in ("softclip", "softclip_tf")
    ),
    unary("softsign"),
    unary("normalize_min_max", make=normal(x=["B", 5]), rounding=8),
)


def transforms(name, *arguments, largest=1e30, **changes):
    """Rows of a transform and its inverse, up to the largest image."""
    transform = getattr(ops, name)(*arguments)
    yield unary(f"{name}", lambda x: transform.transform(x), **changes)
    yield unary(
        f"{name}: inverse",
        lambda x: transform.inverse_transform(x),
        extremes={"x": between(-largest, largest)},
        **changes,
    )


TRANSFORMS = (
    *transforms("Log1pTransform", 20.0),
    *transforms("Sqrt1pTransform"),
    *transforms("SqrtLinearTransform", 0.01),
)


def several(rng, batch):
    """Tensors that broadcast against each other."""
    return {"inputs": list(map(rng.normal, [0.0] * 3, [1.0] * 3, [batch, (2, 1), ()]))}


OF_SEVERAL = {
    "make": several,
    "differentiable": ("inputs",),
    "extremes": {"inputs": EVERYWHERE},
    "batch_axis": 0,
}
ELEMENTARY = (
    unary("identity"),
    unary("square"),
    unary("swish"),
    unary("double_relu", lambda x: ops.double_relu(x), kinks={"x": (0.0,)}),
    unary(
        "clipped_exp",
        lambda x, **named: ops.clipped_exp(x, **named),
        make=uniform(-4.0, 4.0, x=["B"]),
        options={"clip_value_min": -1.7, "clip_value_max": 1.3},
        kinks={"x": (-1.7, 1.3)},
        scalars={"clip_value_min": (-3.0, -1.0), "clip_value_max": (1.0, 2.0)},
    ),
    unary(
        "clipped_logit",
        make=uniform(x=["B"]),
        options={"epsilon": 1e-6},
        extremes={"x": between(0.0, 1.0)},
        scalars={"epsilon": (1e-9, 1e-3)},
    ),
    unary(
        "binary_neg_entropy",
        lambda x: ops.binary_neg_entropy(x),
        make=uniform(x=["B"]),
        extremes={"x": between(0.0, 1.0)},
    ),
    unary(
        "add_ignore_empty",
        make=normal(x=["B"], y=["B"]),
        differentiable=("x", "y"),
        extremes={"x": EVERYWHERE, "y": EVERYWHERE},
    ),
    unary("add_n", **OF_SEVERAL),
    # The product of three is within float32.
    unary("mul_n", **OF_SEVERAL | {"extremes": {"inputs": between(-1e10, 1e10)}}),
    unary("max_n", **OF_SEVERAL),
    unary("min_n", **OF_SEVERAL),
    unary(
        "sum_to_leftmost",
        lambda x, dim: ops.sum_to_leftmost(x, dim),
        make=normal(x=["B", 2, 3]),
        options={"dim": 1},
    ),
    unary(
        "weighted_reduce_mean",
        make=both(normal(x=["B", 3]), uniform(weight=["B", 3])),
        options={"dim": 1},
        differentiable=("x", "weight"),
        extremes={"x": EVERYWHERE, "weight": between(0.0, 1e30)},
    ),
)
POSITIONS = (
    unary(
        "argmax",
        lambda x: ops.argmax(x, seed=3),
        make=normal(x=["B", 4]),
        differentiable=(),
    ),
    unary(
        "argmin",
        lambda x: ops.argmin(x, axis=0, seed=3),
        make=normal(x=["B", 4]),
        differentiable=(),
    ),
    unary("first_argmin", make=normal(x=["B", 4]), differentiable=()),
    unary(
        "shuffle",
        lambda x, y: ops.shuffle({"x": x, "y": y}, seed=3),
        make=normal(x=["B", 2], y=["B"]),
        differentiable=("x", "y"),
        extremes={"x": EVERYWHERE, "y": EVERYWHERE},
    ),
)


ROWS = (*SQUASHING, *TRANSFORMS, *ELEMENTARY, *POSITIONS)
