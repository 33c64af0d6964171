"""What agents minimise: a loss per element and named diagnostics.

A loss here never reduces over the batch; the agent does. Targets and advantages are
made by `tfrl.ops`; optimizer steps are taken in `tfrl.agents`.
"""

from tfrl.losses.policy import (
    PolicyLossExtra,
    ValueLossExtra,
    policy_gradient_loss,
    ppo_clip_loss,
    value_loss,
)

__all__ = [
    "PolicyLossExtra",
    "ValueLossExtra",
    "policy_gradient_loss",
    "ppo_clip_loss",
    "value_loss",
]
