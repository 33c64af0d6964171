"""All rows, and the public names that have none."""

from conformance import (
    gradient_rows,
    math_rows,
    moment_rows,
    regression_rows,
    schedule_rows,
    td_rows,
    tensor_rows,
    value_rows,
)

ROOMS = ("losses", "ops", "schedules")
ROWS = (
    *value_rows.ROWS,
    *tensor_rows.ROWS,
    *math_rows.ROWS,
    *gradient_rows.ROWS,
    *moment_rows.ROWS,
    *value_rows.POLICY_ROWS,
    *td_rows.ROWS,
    *regression_rows.ROWS,
    *schedule_rows.ROWS,
)

_RECORD = "a record of tensors: the function that fills it has a row"
_BASE = "an interface: what implements it has rows"
_KERAS = "tests/losses follows it through fit, save and load"
WITHOUT_ROW = {
    **dict.fromkeys(
        (
            "losses.CategoricalLossExtra",
            "losses.CloningLossExtra",
            "losses.ConservativeLossExtra",
            "losses.DeterministicPolicyGradientLossExtra",
            "losses.ImportanceRatio",
            "losses.MultiplierLossExtra",
            "losses.PolicyLossExtra",
            "losses.SACActorLossExtra",
            "losses.TDLossExtra",
            "losses.ValueLossExtra",
            "ops.MomentStream",
            "ops.Moments",
            "ops.VTraceReturns",
            "schedules.Progress",
        ),
        _RECORD,
    ),
    "losses.AsymmetricSimSiamLoss": f"a layer with weights: {_KERAS}",
    "losses.InitialBias": f"an initializer: {_KERAS}",
    "losses.ScalarPredictionLoss": _BASE,
    "losses.as_keras_loss": f"takes other losses to Keras: {_KERAS}",
    "ops.InvertibleTransform": _BASE,
    "ops.pool_over_replicas": "the identity outside a strategy: tests/ops has two",
    "ops.start_moment_stream": "zeros, which advance_moment_stream takes",
    "ops.widened": "changes the dtype on purpose: tests/ops has every one",
    "schedules.ConstantScheduler": "a constant: nothing flows through it",
    "schedules.as_scheduler": "returns its argument or a ConstantScheduler",
    "schedules.current_progress": "reads a context variable",
    "schedules.progress_context": "sets a context variable",
}
