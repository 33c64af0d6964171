"""What agents minimise: a loss per element and named diagnostics.

A loss here never reduces over the batch (save those of supervised learning, which sum
over it); the agent does. One-step targets are here too; returns and advantages along
trajectories are made by `tfrl.ops`, optimizer steps are taken in `tfrl.agents`.
"""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors
from tfrl.losses.actor import deterministic_policy_gradient_loss, sac_actor_loss
from tfrl.losses.categorical import (
    categorical_mean,
    categorical_projection,
    categorical_q_target,
    categorical_td_loss,
    two_hot,
)
from tfrl.losses.discrete_regression import (
    DiscreteRegressionLoss,
    OrderedDiscreteRegressionLoss,
)
from tfrl.losses.keras_losses import as_keras_loss
from tfrl.losses.matching import BipartiteMatchingLoss
from tfrl.losses.mpo import (
    mpo_policy_loss,
    mpo_temperature_loss,
    vmpo_policy_loss,
    vmpo_temperature_loss,
)
from tfrl.losses.multiplier import (
    conservative_alpha_loss,
    temperature_loss,
    trust_region_loss,
)
from tfrl.losses.offline import (
    advantage_weighted_loss,
    behavior_cloning_loss,
    conservative_q_loss,
    sampled_conservative_q_loss,
)
from tfrl.losses.policy import (
    entropy_loss,
    policy_gradient_loss,
    ppo_clip_loss,
    q_policy_gradient_loss,
    regret_matching_loss,
    regret_policy_gradient_loss,
    value_loss,
)
from tfrl.losses.quantile import (
    fraction_proposal_loss,
    quantile_expected_sarsa_target,
    quantile_q_target,
    quantile_td_loss,
)
from tfrl.losses.regression import (
    MeanSquaredLoss,
    element_wise_huber_loss,
    element_wise_squared_loss,
    huber_function,
    multi_quantile_huber_loss,
)
from tfrl.losses.representation import AsymmetricSimSiamLoss
from tfrl.losses.scalar_prediction import (
    InitialBias,
    QuantileRegressionLoss,
    ScalarPredictionLoss,
    SquareLoss,
    TransformedLoss,
)
from tfrl.losses.supervised import classification_loss, regression_loss
from tfrl.losses.temporal_difference import (
    clipped_double_q_target,
    double_q_target,
    expected_sarsa_target,
    expectile_loss,
    q_learning_target,
    q_taken,
    td_loss,
    td_target,
)

if TYPE_CHECKING:
    from tfrl.losses.importance import ImportanceRatio, action_importance_ratio

__all__ = [
    "AsymmetricSimSiamLoss",
    "BipartiteMatchingLoss",
    "DiscreteRegressionLoss",
    "ImportanceRatio",
    "InitialBias",
    "MeanSquaredLoss",
    "OrderedDiscreteRegressionLoss",
    "QuantileRegressionLoss",
    "ScalarPredictionLoss",
    "SquareLoss",
    "TransformedLoss",
    "action_importance_ratio",
    "advantage_weighted_loss",
    "as_keras_loss",
    "behavior_cloning_loss",
    "categorical_mean",
    "categorical_projection",
    "categorical_q_target",
    "categorical_td_loss",
    "classification_loss",
    "clipped_double_q_target",
    "conservative_alpha_loss",
    "conservative_q_loss",
    "deterministic_policy_gradient_loss",
    "double_q_target",
    "element_wise_huber_loss",
    "element_wise_squared_loss",
    "entropy_loss",
    "expected_sarsa_target",
    "expectile_loss",
    "fraction_proposal_loss",
    "huber_function",
    "mpo_policy_loss",
    "mpo_temperature_loss",
    "multi_quantile_huber_loss",
    "policy_gradient_loss",
    "ppo_clip_loss",
    "q_learning_target",
    "q_policy_gradient_loss",
    "q_taken",
    "quantile_expected_sarsa_target",
    "quantile_q_target",
    "quantile_td_loss",
    "regression_loss",
    "regret_matching_loss",
    "regret_policy_gradient_loss",
    "sac_actor_loss",
    "sampled_conservative_q_loss",
    "td_loss",
    "td_target",
    "temperature_loss",
    "trust_region_loss",
    "two_hot",
    "value_loss",
    "vmpo_policy_loss",
    "vmpo_temperature_loss",
]
_LAZY = ("importance",)  # it loads TensorFlow Probability
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
