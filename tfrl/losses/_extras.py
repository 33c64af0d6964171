"""Diagnostics that losses return beside themselves, in the `extra` of a `LossInfo`.

The functions that fill these records say what is in them.
"""

from typing import NamedTuple

import tensorflow as tf


class PolicyLossExtra(NamedTuple):
    """Of `policy_gradient_loss` and `ppo_clip_loss`."""

    ratios: tf.Tensor
    clipped: tf.Tensor
    approx_kl: tf.Tensor


class ValueLossExtra(NamedTuple):
    """Of `value_loss`."""

    errors: tf.Tensor


class TDLossExtra(NamedTuple):
    """Of `td_loss` and `expectile_loss`."""

    errors: tf.Tensor
    priorities: tf.Tensor


class CategoricalLossExtra(NamedTuple):
    """Of `categorical_td_loss`."""

    priorities: tf.Tensor


class QuantileLossExtra(NamedTuple):
    """Of `quantile_td_loss`."""

    priorities: tf.Tensor


class SACActorLossExtra(NamedTuple):
    """Of `sac_actor_loss`."""

    q_values: tf.Tensor


class DeterministicPolicyGradientLossExtra(NamedTuple):
    """Of `deterministic_policy_gradient_loss`."""

    clipped: tf.Tensor


class MultiplierLossExtra(NamedTuple):
    """Of `temperature_loss`, `conservative_alpha_loss` and `trust_region_loss`."""

    alpha: tf.Tensor
    violations: tf.Tensor


class MPOLossExtra(NamedTuple):
    """Of `mpo_policy_loss` and `vmpo_policy_loss`."""

    weights: tf.Tensor


class CloningLossExtra(NamedTuple):
    """Of `behavior_cloning_loss` and `advantage_weighted_loss`."""

    weights: tf.Tensor
    clipped: tf.Tensor


class ConservativeLossExtra(NamedTuple):
    """Of `conservative_q_loss` and `sampled_conservative_q_loss`."""

    soft_maxima: tf.Tensor
    data_values: tf.Tensor
