"""Rows of the losses of value-based and offline agents."""

import numpy as np
from conformance.battery import EVERYWHERE, Row, between
from conformance.inputs import (
    both,
    constant,
    discounts,
    integers,
    normal,
    probabilities,
)

from tfrl import losses, ops

TRANSITIONS = both(normal(rewards=["B"]), discounts())
OF_TARGETS = {"rewards": EVERYWHERE, "discounts": between(0.0, 1.0)}
SQRT = ops.SqrtLinearTransform(0.01)
SUPPORT = [-1.0, -0.4, 0.1, 0.8, 2.0]


def target_row(name, values, make, **changes):
    """A row of a target: rewards, discounts and what follows; nothing flows through."""
    return Row(
        name=f"losses.{name}",
        call=getattr(losses, name.split(":")[0]),
        make=both(TRANSITIONS, make),
        **{
            "stopped": ("rewards", "discounts", *values),
            "extremes": OF_TARGETS | dict.fromkeys(values, EVERYWHERE),
            **changes,
        },
    )


def loss_row(name, free, held=(), extremes=None, **changes):
    """A row of a loss: gradients flow to `free`, none to `held`."""
    return Row(
        name=f"losses.{name}",
        call=getattr(losses, name.split(":")[0]),
        differentiable=free,
        stopped=held,
        extremes=extremes or dict.fromkeys((*free, *held), EVERYWHERE),
        **changes,
    )


TARGETS = (
    target_row("td_target", ["next_values"], normal(next_values=["B", 2])),
    target_row("q_learning_target", ["next_q_values"], normal(next_q_values=["B", 3])),
    target_row(
        "double_q_target",
        ["next_q_values", "next_q_selector"],
        normal(next_q_values=["B", 3], next_q_selector=["B", 3]),
    ),
    target_row(
        "expected_sarsa_target",
        ["next_q_values"],
        both(normal(next_q_values=["B", 3]), probabilities(next_probs=["B", 3])),
    ),
    target_row(
        "clipped_double_q_target", ["next_q_values"], normal(next_q_values=["B", 2])
    ),
    target_row(
        "clipped_double_q_target: entropy",
        ["next_q_values", "next_log_probs"],
        normal(next_q_values=["B", 2], next_log_probs=["B"]),
        options={"alpha": 0.3},
        scalars={"alpha": (0.0, 1.0)},
    ),
)
TEMPORAL_DIFFERENCE = (
    loss_row(
        "q_taken",
        ["q_values"],
        make=both(normal(q_values=["B", 3, 2]), integers(3, actions=["B"])),
    ),
    loss_row(
        "td_loss", ["values"], ["targets"], make=normal(values=["B", 2], targets=["B"])
    ),
    loss_row(
        "td_loss: huber",
        ["values"],
        ["targets"],
        make=normal(values=["B"], targets=["B"]),
        options={"huber_delta": 0.7},
        scalars={"huber_delta": (0.1, 2.0)},
    ),
    loss_row(
        "expectile_loss",
        ["values"],
        ["targets"],
        make=normal(values=["B"], targets=["B"]),
        options={"expectile": 0.7},
        scalars={"expectile": (0.1, 0.9)},
    ),
)
CATEGORICAL = (
    loss_row(
        "categorical_mean",
        ["probs"],
        make=both(constant(support=SUPPORT), probabilities(probs=["B", 5])),
        extremes={"probs": between(0.0, 1.0)},
    ),
    loss_row(
        "categorical_mean: transformed",
        ["probs"],
        make=both(constant(support=SUPPORT), probabilities(probs=["B", 5])),
        options={"transform": SQRT},
        extremes={"probs": between(0.0, 1.0)},
    ),
    *(
        loss_row(
            f"two_hot{aspect}",
            ["values"],
            make=both(normal(values=["B", 2]), constant(support=SUPPORT)),
            options=options,
            kinks={"values": kinks},
            rounding=16,  # of the share between two atoms
        )
        for aspect, options, kinks in (
            ("", {}, SUPPORT),
            (
                ": transformed",
                {"transform": SQRT},
                SQRT.inverse_transform(np.array(SUPPORT)).numpy().tolist(),
            ),
        )
    ),
    loss_row(
        "categorical_projection",
        ["support", "probs"],
        make=both(
            normal(support=["B", 4]),
            probabilities(probs=["B", 4]),
            constant(target_support=SUPPORT),
        ),
        extremes={"support": EVERYWHERE, "probs": between(0.0, 1.0)},
    ),
    loss_row(
        "categorical_td_loss",
        ["logits"],
        ["targets"],
        make=both(normal(logits=["B", 3]), probabilities(targets=["B", 3])),
        extremes={"logits": EVERYWHERE, "targets": between(0.0, 1.0)},
        rounding=32,  # the divergence is the difference of two numbers of its size
    ),
    target_row(
        "categorical_q_target",
        ["next_logits"],
        both(normal(next_logits=["B", 2, 5]), constant(support=SUPPORT)),
    ),
    target_row(
        "categorical_q_target: double",
        ["next_logits", "next_q_selector"],
        both(
            normal(next_logits=["B", 2, 5], next_q_selector=["B", 2]),
            constant(support=SUPPORT),
        ),
    ),
)
FRACTIONS = [0.1, 0.9, 0.55, 0.3]
QUANTILES = (
    target_row(
        "quantile_q_target", ["next_quantiles"], normal(next_quantiles=["B", 2, 5])
    ),
    target_row(
        "quantile_q_target: double",
        ["next_quantiles", "next_q_selector"],
        normal(next_quantiles=["B", 2, 5], next_q_selector=["B", 2]),
    ),
    target_row(
        "quantile_expected_sarsa_target",
        ["next_quantiles"],
        both(normal(next_quantiles=["B", 2, 5]), probabilities(next_probs=["B", 2])),
    ),
    loss_row(
        "quantile_td_loss",
        ["quantiles"],
        ["targets"],
        make=both(
            normal(quantiles=["B", 4], targets=["B", 3]), constant(fractions=FRACTIONS)
        ),
        options={"huber_delta": 0.7},
        scalars={"huber_delta": (0.0, 2.0)},
    ),
    loss_row(
        "quantile_td_loss: critics, weights",
        ["quantiles"],
        ["targets"],
        make=both(
            normal(quantiles=["B", 2, 4], targets=["B", 3]),
            probabilities(target_weights=["B", 3]),
        ),
    ),
    loss_row(
        "fraction_proposal_loss",
        ["fractions"],
        ["at_fractions", "at_midpoints"],
        make=normal(fractions=["B", 2], at_fractions=["B", 2], at_midpoints=["B", 3]),
        extremes={
            "fractions": between(0.0, 1.0),
            "at_fractions": between(-1e10, 1e10),
            "at_midpoints": between(-1e10, 1e10),
        },
    ),
)
OFFLINE = (
    loss_row("behavior_cloning_loss", ["log_probs"], make=normal(log_probs=["B"])),
    loss_row(
        "advantage_weighted_loss",
        ["log_probs"],
        ["advantages"],
        make=normal(log_probs=["B"], advantages=["B"]),
        options={"beta": 0.3, "max_weight": 1.3},
        scalars={"beta": (0.0, 3.0), "max_weight": (1.0, 100.0)},
    ),
    loss_row(
        "conservative_q_loss",
        ["q_values"],
        make=both(normal(q_values=["B", 3, 2]), integers(3, actions=["B"])),
    ),
)
ACTORS = (
    loss_row(
        "sampled_conservative_q_loss",
        ["sampled_q_values", "q_values"],
        ["sampled_log_probs"],
        make=normal(
            sampled_q_values=["B", 3, 2], sampled_log_probs=["B", 3], q_values=["B", 2]
        ),
    ),
    loss_row(
        "sac_actor_loss",
        ["log_probs", "q_values"],
        make=normal(log_probs=["B"], q_values=["B", 2]),
        options={"alpha": 0.3},
        scalars={"alpha": (0.0, 1.0)},
    ),
    loss_row(
        "deterministic_policy_gradient_loss",
        ["actions"],
        ["action_gradients"],
        make=normal(actions=["B", 2], action_gradients=["B", 2]),
        extremes={"actions": between(-1.0, 1.0), "action_gradients": EVERYWHERE},
    ),
    loss_row(
        "deterministic_policy_gradient_loss: clipped",
        ["actions"],
        ["action_gradients"],
        make=normal(actions=["B", 2], action_gradients=["B", 2]),
        options={"clip": 0.3},
        extremes={"actions": between(-1.0, 1.0), "action_gradients": EVERYWHERE},
        scalars={"clip": (0.1, 2.0)},
    ),
    loss_row(
        "temperature_loss",
        ["log_alpha"],
        ["log_probs"],
        make=normal(log_alpha=[], log_probs=["B"]),
        options={"target_entropy": -1.3},
        extremes={"log_probs": EVERYWHERE},
        scalars={"target_entropy": (-3.0, 3.0)},
    ),
    loss_row(
        "conservative_alpha_loss",
        ["log_alpha"],
        ["penalties"],
        make=normal(log_alpha=[], penalties=["B"]),
        options={"threshold": 5.3},
        extremes={"penalties": EVERYWHERE},
        scalars={"threshold": (0.0, 5.0)},
    ),
)
MODERATE = between(-50.0, 50.0)
IMPROVEMENT = (
    loss_row(
        "mpo_policy_loss",
        ["log_probs"],
        ["q_values"],
        make=normal(log_probs=["B", 3], q_values=["B", 3]),
        options={"log_temperature": 0.3},
        scalars={"log_temperature": (-1.0, 1.0)},
        rounding=8,
    ),
    loss_row(
        "mpo_temperature_loss",
        ["log_temperature"],
        ["q_values"],
        make=normal(log_temperature=[], q_values=["B", 3]),
        options={"epsilon": 0.1},
        extremes={"q_values": MODERATE},
        scalars={"epsilon": (0.0, 1.0)},
        rounding=8,
    ),
    loss_row(
        "vmpo_policy_loss",
        ["log_probs"],
        ["advantages"],
        make=normal(log_probs=["B"], advantages=["B"]),
        options={"log_temperature": 0.3},
        extremes={"log_probs": between(-1e4, 1e4), "advantages": EVERYWHERE},
        scalars={"log_temperature": (-1.0, 1.0)},
        rounding=8,
    ),
    loss_row(
        "vmpo_temperature_loss",
        ["log_temperature"],
        ["advantages"],
        make=normal(log_temperature=[], advantages=["B"]),
        options={"epsilon": 0.1},
        extremes={"advantages": MODERATE},
        scalars={"epsilon": (0.0, 1.0)},
        rounding=8,
    ),
    Row(
        name="losses.trust_region_loss",
        call=losses.trust_region_loss,
        make=normal(log_alpha=[], divergences=["B"]),
        options={"threshold": 0.1},
        # Each gradient is one factor of the other's: the value is a constant.
        objective=lambda info: info.extra.alpha,
        differentiable=("log_alpha",),
        extremes={"divergences": EVERYWHERE},
        scalars={"threshold": (0.0, 1.0)},
    ),
    loss_row("entropy_loss", ["logits"], make=normal(logits=["B", 3]), rounding=8),
    loss_row(
        "q_policy_gradient_loss",
        ["logits"],
        ["q_values"],
        make=normal(logits=["B", 3], q_values=["B", 3]),
        extremes={"logits": EVERYWHERE, "q_values": MODERATE},
        rounding=16,  # of a mean
    ),
    loss_row(
        "regret_matching_loss",
        [],
        ["q_values"],
        make=normal(logits=["B", 3], q_values=["B", 3]),
        extremes={"logits": EVERYWHERE, "q_values": MODERATE},
        rounding=64,  # of values less their mean
    ),
    loss_row(
        "regret_policy_gradient_loss",
        ["logits"],
        ["q_values"],
        make=normal(logits=["B", 3], q_values=["B", 3]),
        extremes={"logits": EVERYWHERE, "q_values": MODERATE},
        rounding=32,  # of values less their mean
    ),
)
ROWS = (
    *IMPROVEMENT,
    *TARGETS,
    *TEMPORAL_DIFFERENCE,
    *CATEGORICAL,
    *QUANTILES,
    *OFFLINE,
    *ACTORS,
)
