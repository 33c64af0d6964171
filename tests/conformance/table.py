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

ROOMS = ("losses", "ops", "schedules", "stats")
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
_KINDS = ("Adaptive", "EM", "Window")
WITHOUT_ROW = {
    **dict.fromkeys(
        ("losses.ImportanceRatio", "ops.VTraceReturns", "schedules.Progress"), _RECORD
    ),
    "losses.AsymmetricSimSiamLoss": f"a layer with weights: {_KERAS}",
    "losses.InitialBias": f"an initializer: {_KERAS}",
    "losses.ScalarPredictionLoss": _BASE,
    "losses.TransformedLoss": _BASE,
    "losses.as_keras_loss": f"takes other losses to Keras: {_KERAS}",
    "ops.InvertibleTransform": _BASE,
    "schedules.ConstantScheduler": "a constant: nothing flows through it",
    "schedules.as_scheduler": "returns its argument or a ConstantScheduler",
    "schedules.current_progress": "reads a context variable",
    "schedules.progress_context": "sets a context variable",
    **dict.fromkeys(
        (
            *(f"stats.{kind}Averager" for kind in _KINDS),
            *(f"stats.Scalar{kind}Averager" for kind in _KINDS),
            *(f"stats.{kind}Normalizer" for kind in _KINDS),
            *(f"stats.Scalar{kind}Normalizer" for kind in _KINDS),
            "stats.PopArt",
            "stats.ReturnScale",
            "stats.RunningMoments",
        ),
        "keeps state: tests/stats follows it from batch to batch",
    ),
    "stats.average_outer_dims": "a mean: tests/stats has every dtype",
}
