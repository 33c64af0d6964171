"""What data looks like: shapes, specs, nests, immutable records, seeds and modes.

Here is what describes data, walks structures of it, or only raises, and the compiler of
public functions. Arithmetic on tensors is in `tfrl.ops`,
what keeps data between steps in `tfrl.replay`, distributions and their specs in
`tfrl.distributions`.
"""

from tfrl.core.arrays import check_array, check_numerics, isscalar
from tfrl.core.compile import compiled, jit
from tfrl.core.modes import (
    ExeMode,
    eval_context,
    exe_mode_name,
    is_eval,
    is_pretrain,
    is_replay,
    is_rollout,
    is_training,
    mark_eval,
    mark_pretrain,
    mark_replay,
    mark_rollout,
    pretrain_context,
    replay_context,
    rollout_context,
    set_exe_mode,
)
from tfrl.core.nest import (
    batch_to_single,
    detach,
    get_all_parameters,
    merge_dicts,
    single_to_batch,
    stack_trees,
    tree_ravel,
    unvectorize,
)
from tfrl.core.pretty import PrettyPrinter, pformat_pycolor, pretty_print, pretty_repr
from tfrl.core.python import (
    add_method,
    as_list,
    call_stack,
    docstring,
    reload_recursive,
    tuplify2d,
)
from tfrl.core.pytree import PyTreeNode, nonpytree_field
from tfrl.core.random import new_seed, set_random_seed, split_seed
from tfrl.core.records import LossInfo, StepType, TimeStep, Trajectory, Transition
from tfrl.core.shapes import (
    ShapeDtype,
    assert_same_shape,
    assert_shape_equals,
    signature,
    splice_signatures,
)
from tfrl.core.spaces import space_from_spec, spec_from_space
from tfrl.core.specs import (
    BoundedTensorSpec,
    clip_to_spec,
    flattened_size,
    get_initial_policy_state,
    is_same_spec,
    scale_to_spec,
    spec_means_and_magnitudes,
    zeros_from_spec,
)

__all__ = [
    "BoundedTensorSpec",
    "ExeMode",
    "LossInfo",
    "PrettyPrinter",
    "PyTreeNode",
    "ShapeDtype",
    "StepType",
    "TimeStep",
    "Trajectory",
    "Transition",
    "add_method",
    "as_list",
    "assert_same_shape",
    "assert_shape_equals",
    "batch_to_single",
    "call_stack",
    "check_array",
    "check_numerics",
    "clip_to_spec",
    "compiled",
    "detach",
    "docstring",
    "eval_context",
    "exe_mode_name",
    "flattened_size",
    "get_all_parameters",
    "get_initial_policy_state",
    "is_eval",
    "is_pretrain",
    "is_replay",
    "is_rollout",
    "is_same_spec",
    "is_training",
    "isscalar",
    "jit",
    "mark_eval",
    "mark_pretrain",
    "mark_replay",
    "mark_rollout",
    "merge_dicts",
    "new_seed",
    "nonpytree_field",
    "pformat_pycolor",
    "pretrain_context",
    "pretty_print",
    "pretty_repr",
    "reload_recursive",
    "replay_context",
    "rollout_context",
    "scale_to_spec",
    "set_exe_mode",
    "set_random_seed",
    "signature",
    "single_to_batch",
    "space_from_spec",
    "spec_from_space",
    "spec_means_and_magnitudes",
    "splice_signatures",
    "split_seed",
    "stack_trees",
    "tree_ravel",
    "tuplify2d",
    "unvectorize",
    "zeros_from_spec",
]
