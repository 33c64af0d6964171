"""What a number becomes: pure functions of tensors that belong to no other room.

Here are the returns and advantages of trajectories, invertible transforms of values,
elementary functions, soft bounds, positions of extremes, gradients, covariances,
tensors reshaped, extended and selected, observations prepared for networks, quantile
fractions. Functions that return something to minimise live in `tfrl.losses`, invertible
ones with a Jacobian in `tfrl.bijectors`, functions of the training progress in
`tfrl.schedules`, anything with weights in `tfrl.layers`.
"""

from tfrl.ops.activations import double_relu, identity, softsign, swish
from tfrl.ops.conditional import (
    conditional_update,
    reset_state_if_necessary,
    select_from_mask,
)
from tfrl.ops.gradients import (
    clip_by_global_norm,
    clip_by_norms,
    clip_gradient,
    get_grads_diagnostics,
    get_magnitude_quantiles,
    global_norm,
    scale_gradient,
)
from tfrl.ops.indices import argmax, argmin, first_argmin, shuffle
from tfrl.ops.math import (
    add_ignore_empty,
    add_n,
    binary_neg_entropy,
    clipped_exp,
    clipped_logit,
    max_n,
    min_n,
    mul_n,
    square,
    sum_to_leftmost,
    weighted_reduce_mean,
)
from tfrl.ops.multistep import (
    importance_corrected_td_errors,
    n_step_return,
    off_policy_return,
    q_lambda_return,
    retrace,
)
from tfrl.ops.observations import (
    append_coordinate,
    cast_transformer,
    diff_transform,
    diff_transform_matrix,
    image_scale_transformer,
    spatial_broadcast,
)
from tfrl.ops.quantile_fractions import (
    quantile_cos_embedding,
    quantiles,
    quantiles_uniform,
)
from tfrl.ops.recomputation import lean_function
from tfrl.ops.reductions import cov, explained_variance, reverse_cumprod, reverse_cumsum
from tfrl.ops.squashing import (
    normalize_min_max,
    softclip,
    softclip_tf,
    softlower,
    softupper,
)
from tfrl.ops.tensors import (
    BatchSquash,
    expand_dims_as,
    idx,
    tensor_extend,
    tensor_extend_new_dim,
    tensor_extend_zero,
    tensor_prepend,
    tensor_prepend_zero,
    to_tensor,
)
from tfrl.ops.value import (
    VTraceReturns,
    discounted_return,
    generalized_advantage_estimation,
    one_step_discounted_return,
    td_lambda_return,
    vtrace,
)
from tfrl.ops.value_transforms import (
    InvertibleTransform,
    Log1pTransform,
    Sqrt1pTransform,
    SqrtLinearTransform,
)

__all__ = [
    "BatchSquash",
    "InvertibleTransform",
    "Log1pTransform",
    "Sqrt1pTransform",
    "SqrtLinearTransform",
    "VTraceReturns",
    "add_ignore_empty",
    "add_n",
    "append_coordinate",
    "argmax",
    "argmin",
    "binary_neg_entropy",
    "cast_transformer",
    "clip_by_global_norm",
    "clip_by_norms",
    "clip_gradient",
    "clipped_exp",
    "clipped_logit",
    "conditional_update",
    "cov",
    "diff_transform",
    "diff_transform_matrix",
    "discounted_return",
    "double_relu",
    "expand_dims_as",
    "explained_variance",
    "first_argmin",
    "generalized_advantage_estimation",
    "get_grads_diagnostics",
    "get_magnitude_quantiles",
    "global_norm",
    "identity",
    "idx",
    "image_scale_transformer",
    "importance_corrected_td_errors",
    "lean_function",
    "max_n",
    "min_n",
    "mul_n",
    "n_step_return",
    "normalize_min_max",
    "off_policy_return",
    "one_step_discounted_return",
    "q_lambda_return",
    "quantile_cos_embedding",
    "quantiles",
    "quantiles_uniform",
    "reset_state_if_necessary",
    "retrace",
    "reverse_cumprod",
    "reverse_cumsum",
    "scale_gradient",
    "select_from_mask",
    "shuffle",
    "softclip",
    "softclip_tf",
    "softlower",
    "softsign",
    "softupper",
    "spatial_broadcast",
    "square",
    "sum_to_leftmost",
    "swish",
    "td_lambda_return",
    "tensor_extend",
    "tensor_extend_new_dim",
    "tensor_extend_zero",
    "tensor_prepend",
    "tensor_prepend_zero",
    "to_tensor",
    "vtrace",
    "weighted_reduce_mean",
]
