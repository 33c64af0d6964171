"""Rows of the returns, advantages and losses along trajectories."""

from conformance.battery import EVERYWHERE, Row, between

from tfrl import losses, ops

STEPS = 5


def steps(rng, batch):
    """Episodes as environments show them, time first, with ends of both kinds."""
    shape = (STEPS, batch)
    rewards, values = rng.normal(size=(2, *shape))
    return {
        "rewards": rewards,
        "values": values,
        "step_types": rng.integers(0, 3, size=shape).astype("int32"),
        "discounts": 0.9 * (rng.random(shape) > 0.2),
    }


def transitions(rng, batch):
    shape = (STEPS, batch)
    rewards, next_values = rng.normal(size=(2, *shape))
    return {
        "rewards": rewards,
        "discounts": 0.9 * (rng.random(shape) > 0.2),
        "next_values": next_values,
    }


def corrected(rng, batch):
    """Transitions of another policy."""
    named = transitions(rng, batch)
    values, log_rhos = rng.normal(size=(2, STEPS, batch))
    return {**named, "values": values, "rhos": 1.3**log_rhos}


IN_STEPS = {
    "make": steps,
    "stopped": ("rewards", "values", "discounts"),
    "extremes": {
        "rewards": EVERYWHERE,
        "values": EVERYWHERE,
        "discounts": between(0.0, 1.0),
    },
    "batch_axis": 1,
    "rounding": 8,
}
ROWS = (
    Row(name="ops.discounted_return", call=ops.discounted_return, **IN_STEPS),
    Row(
        name="ops.one_step_discounted_return",
        call=ops.one_step_discounted_return,
        **IN_STEPS,
    ),
    Row(
        name="ops.generalized_advantage_estimation",
        call=ops.generalized_advantage_estimation,
        options={"td_lambda": 0.7},
        scalars={"td_lambda": (0.0, 1.0)},
        **IN_STEPS,
    ),
    Row(
        name="ops.td_lambda_return",
        call=ops.td_lambda_return,
        make=transitions,
        options={"lambda_": 0.8},
        differentiable=("rewards", "discounts", "next_values"),
        extremes={
            "rewards": EVERYWHERE,
            "discounts": between(0.0, 1.0),
            "next_values": EVERYWHERE,
        },
        batch_axis=1,
        scalars={"lambda_": (0.0, 1.0)},
        rounding=8,
    ),
    Row(
        name="ops.vtrace",
        call=ops.vtrace,
        make=corrected,
        options={"lambda_": 0.9, "clip_rho": 1.3, "clip_pg_rho": 0.7},
        stopped=("values", "next_values", "rewards", "discounts", "rhos"),
        extremes={
            "values": EVERYWHERE,
            "next_values": EVERYWHERE,
            "rewards": EVERYWHERE,
            "rhos": between(0.0, 1e30),
        },
        batch_axis=1,
        scalars={
            "lambda_": (0.0, 1.0),
            "clip_rho": (0.5, 2.0),
            "clip_pg_rho": (0.5, 2.0),
        },
        rounding=8,
    ),
    Row(
        name="ops.vtrace: leaky",
        call=ops.vtrace,
        make=corrected,
        options={"clip_share": 0.7},
        stopped=("values", "next_values", "rewards", "discounts", "rhos"),
        extremes={"values": EVERYWHERE, "rhos": between(0.0, 50.0)},
        batch_axis=1,
        scalars={"clip_share": (0.0, 1.0)},
        rounding=8,
    ),
)
OFF_POLICY = {
    "options": {"lambda_": 0.9},
    "extremes": {
        "next_values": EVERYWHERE,
        "rewards": EVERYWHERE,
        "discounts": between(0.0, 1.0),
    },
    "batch_axis": 1,
    "scalars": {"lambda_": (0.0, 1.0)},
    "rounding": 8,
}
GIVEN = ("next_values", "rewards", "discounts")
SQRT = ops.SqrtLinearTransform(0.01)
MULTISTEP = (
    *(
        Row(
            name=f"ops.n_step_return{aspect}",
            call=ops.n_step_return,
            make=transitions,
            differentiable=GIVEN,
            **{**OFF_POLICY, "options": {"lambda_": 0.8, "n_steps": 3, **options}},
        )
        for aspect, options in (("", {}), (": transformed", {"transform": SQRT}))
    ),
    Row(
        name="ops.q_lambda_return",
        call=ops.q_lambda_return,
        make=lambda rng, batch: {
            **{k: v for k, v in transitions(rng, batch).items() if k != "next_values"},
            "next_q_values": rng.normal(size=(STEPS, batch, 3)),
        },
        differentiable=("rewards", "discounts", "next_q_values"),
        **OFF_POLICY
        | {
            "extremes": {
                "next_q_values": EVERYWHERE,
                "rewards": EVERYWHERE,
                "discounts": between(0.0, 1.0),
            }
        },
    ),
    *(
        Row(
            name=f"ops.{name}{aspect}",
            call=getattr(ops, name),
            make=lambda rng, batch, ratios=ratios: {
                {"values": "q_values", "rhos": ratios}.get(k, k): v
                for k, v in corrected(rng, batch).items()
            },
            stopped=("q_values", *GIVEN, ratios),
            **{**OFF_POLICY, "options": {"lambda_": 0.9, **options}},
        )
        for name, ratios, aspect, options in (
            ("retrace", "rhos", "", {}),
            ("retrace", "rhos", ": transformed", {"transform": SQRT}),
            ("off_policy_return", "traces", "", {}),
        )
    ),
    Row(
        name="ops.importance_corrected_td_errors",
        call=ops.importance_corrected_td_errors,
        make=corrected,
        stopped=(*GIVEN, "rhos"),
        **OFF_POLICY,
    ),
)
ROWS = (*ROWS, *MULTISTEP)


def column(*names):
    """Makes normal numbers for each name."""

    def make(rng, batch):
        return dict(zip(names, rng.normal(size=(len(names), batch)), strict=True))

    return make


POLICY_ROWS = (
    Row(
        name="losses.policy_gradient_loss",
        call=losses.policy_gradient_loss,
        make=column("log_probs", "advantages"),
        differentiable=("log_probs",),
        stopped=("advantages",),
        extremes={"log_probs": EVERYWHERE, "advantages": between(-1e4, 1e4)},
    ),
    Row(
        name="losses.ppo_clip_loss",
        call=losses.ppo_clip_loss,
        make=column("log_probs", "old_log_probs", "advantages"),
        options={"clip": 0.2},
        differentiable=("log_probs",),
        stopped=("old_log_probs", "advantages"),
        extremes={
            "log_probs": EVERYWHERE,
            "old_log_probs": EVERYWHERE,
            # A ratio beyond float32 times less than 1e-30 may be within it.
            "advantages": between(-1e4, 1e4, least=1e-3),
        },
        scalars={"clip": (0.1, 0.3)},
    ),
    Row(
        name="losses.value_loss",
        call=losses.value_loss,
        make=column("values", "returns"),
        differentiable=("values",),
        stopped=("returns",),
        extremes={"values": EVERYWHERE, "returns": EVERYWHERE},
    ),
    Row(
        name="losses.value_loss: clipped",
        call=losses.value_loss,
        make=column("values", "returns", "old_values"),
        options={"clip": 0.3},
        differentiable=("values",),
        stopped=("returns", "old_values"),
        extremes={
            "values": EVERYWHERE,
            "returns": EVERYWHERE,
            "old_values": EVERYWHERE,
        },
        scalars={"clip": (0.1, 1.0)},
    ),
)
