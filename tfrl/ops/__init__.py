"""What a number becomes: pure functions of tensors that belong to no other room.

Here are the returns and advantages of trajectories. Functions that return something to
minimise live in `tfrl.losses`, invertible ones with a Jacobian in `tfrl.bijectors`,
functions of the training progress in `tfrl.schedules`, anything with weights in
`tfrl.layers`.
"""

from tfrl.ops.value import (
    VTraceReturns,
    discounted_return,
    generalized_advantage_estimation,
    one_step_discounted_return,
    td_lambda_return,
    vtrace,
)

__all__ = [
    "VTraceReturns",
    "discounted_return",
    "generalized_advantage_estimation",
    "one_step_discounted_return",
    "td_lambda_return",
    "vtrace",
]
