"""Rows of the losses of regression, supervision, matching and importance."""

import tensorflow_probability as tfp
from conformance.battery import EVERYWHERE, Row
from conformance.inputs import both, integers, normal

from tfrl import losses, ops

LOGITS = 7
SQRT = ops.SqrtLinearTransform(0.01)


def loss_row(name, call, pred, target, **changes):
    """A row of a loss of predictions and targets; both carry gradients."""
    return Row(
        name=f"losses.{name}",
        call=call,
        **{
            "make": normal(**{pred[0]: pred[1:], target[0]: target[1:]}),
            "differentiable": (pred[0], target[0]),
            "extremes": {pred[0]: EVERYWHERE, target[0]: EVERYWHERE},
            **changes,
        },
    )


def expectation_row(name, loss, **changes):
    return Row(
        name=f"losses.{name}",
        call=lambda logits: loss.calc_expectation(logits),
        make=normal(logits=["B", LOGITS]),
        differentiable=("logits",),
        extremes={"logits": EVERYWHERE},
        **changes,
    )


def grid_rows(name):
    """Rows of a loss over a grid of values, with and without a transform."""
    plain, transformed, after = (
        getattr(losses, name)(*arguments) for arguments in ((), (SQRT,), (SQRT, True))
    )
    for aspect, loss in ((name, plain), (f"{name}: transformed", transformed)):
        yield loss_row(
            aspect,
            loss,
            ("pred", "B", LOGITS),
            ("target", "B"),
            differentiable=("pred",),
            stopped=("target",),
        )
    yield expectation_row(f"{name}: expectation", transformed)
    yield expectation_row(f"{name}: expectation, inverse after mean", after)


VECTOR = ("pred", "B", 2)
ELEMENT_WISE = (
    Row(
        name="losses.huber_function",
        call=losses.huber_function,
        make=normal(x=["B"]),
        options={"delta": 0.7},
        differentiable=("x",),
        extremes={"x": EVERYWHERE},
        scalars={"delta": (0.1, 2.0)},
    ),
    *(
        loss_row(name, getattr(losses, name), ("x", "B"), ("y", "B"))
        for name in ("element_wise_huber_loss", "element_wise_squared_loss")
    ),
    loss_row(
        "multi_quantile_huber_loss",
        losses.multi_quantile_huber_loss,
        ("quantiles", "B", 4),
        ("target", "B"),
        options={"delta": 0.3},
        scalars={"delta": (0.0, 1.0)},
    ),
    loss_row(
        "multi_quantile_huber_loss: several targets",
        losses.multi_quantile_huber_loss,
        ("quantiles", "B", 4),
        ("target", "B", 3),
    ),
    loss_row(
        "multi_quantile_huber_loss: pinball",
        losses.multi_quantile_huber_loss,
        ("quantiles", "B", 4),
        ("target", "B", 3),
        options={"delta": 0.0},
    ),
    loss_row(
        "multi_quantile_huber_loss: given fractions",
        lambda quantiles, target: losses.multi_quantile_huber_loss(
            quantiles, target, fractions=[0.1, 0.9, 0.55, 0.3]
        ),
        ("quantiles", "B", 4),
        ("target", "B", 3),
    ),
    loss_row("MeanSquaredLoss", losses.MeanSquaredLoss(), VECTOR, ("target", "B", 2)),
)
SCALAR = (
    loss_row("SquareLoss", losses.SquareLoss(), ("pred", "B"), ("target", "B")),
    loss_row(
        "SquareLoss: transformed",
        losses.SquareLoss(SQRT),
        ("pred", "B"),
        ("target", "B"),
    ),
    expectation_row("SquareLoss: expectation", losses.SquareLoss(SQRT)),
    loss_row(
        "QuantileRegressionLoss",
        losses.QuantileRegressionLoss(SQRT),
        ("pred", "B", LOGITS),
        ("target", "B"),
    ),
    expectation_row(
        "QuantileRegressionLoss: expectation", losses.QuantileRegressionLoss(SQRT)
    ),
    *grid_rows("DiscreteRegressionLoss"),
    *grid_rows("OrderedDiscreteRegressionLoss"),
)


def ratio(log_probs, rollout_log_probs, **options):
    """The ratio of a distribution whose log-probabilities are given."""
    shifted = tfp.distributions.Deterministic(log_probs)
    shifted.log_prob = lambda _: log_probs
    return losses.action_importance_ratio(
        action_distribution=shifted,
        rollout_action_distribution=None,
        action=log_probs,
        scope=None,
        check_numerics=False,
        debug_summaries=False,
        rollout_log_prob=rollout_log_probs,
        **options,
    )


RATIO = {
    "call": ratio,
    "make": normal(log_probs=["B"], rollout_log_probs=["B"]),
    "differentiable": ("log_probs",),
    "stopped": ("rollout_log_probs",),
    "extremes": {"log_probs": EVERYWHERE, "rollout_log_probs": EVERYWHERE},
}
OTHERS = (
    Row(
        name="losses.action_importance_ratio",
        options={
            "clipping_mode": "double_sided",
            "importance_ratio_clipping": 0.3,
            "log_prob_clipping": 0.0,
        },
        # The plain ratio overflows by definition; the clipped one must not.
        objective=lambda result: result.importance_ratio_clipped,
        **RATIO,
    ),
    Row(
        name="losses.action_importance_ratio: capping",
        options={
            "clipping_mode": "capping",
            "importance_ratio_clipping": 0.3,
            "log_prob_clipping": 5.3,
        },
        objective=lambda result: result.importance_ratio_clipped,
        **RATIO,
    ),
    Row(
        name="losses.classification_loss",
        call=losses.classification_loss,
        make=both(normal(output=["B", 3]), integers(3, target=["B"])),
        differentiable=("output",),
        extremes={"output": EVERYWHERE},
    ),
    Row(
        name="losses.classification_loss: several",
        call=losses.classification_loss,
        make=both(normal(output=["B", 2, 3]), integers(3, target=["B", 2])),
        differentiable=("output",),
        extremes={"output": EVERYWHERE},
    ),
    loss_row(
        "regression_loss",
        losses.regression_loss,
        ("output", "B", 2),
        ("target", "B", 2),
    ),
    loss_row(
        "BipartiteMatchingLoss",
        losses.BipartiteMatchingLoss(),
        ("matching_cost_mat", "B", 3, 3),
        ("cost_mat", "B", 3, 3),
        differentiable=("cost_mat",),
        stopped=("matching_cost_mat",),
        not_xla="the assignment is solved by SciPy on the host",
    ),
)
ROWS = (*ELEMENT_WISE, *SCALAR, *OTHERS)
