"""What is nothing like the argument is refused, by an error that names the argument.

The rows of the table that call a public function as it is, and `CALLS` for the others:
each argument is replaced by None, an object, a dict and a word.
"""

import functools
import inspect
import re
import types

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from conformance import battery, table

import tfrl
from tfrl import (
    bijectors,
    core,
    distributions,
    environments,
    exploration,
    losses,
    ops,
    replay,
    saving,
    schedules,
    stats,
    summaries,
)

WRONG = {"None": None, "object": object(), "dict": {}, "word": "word"}
BOX = core.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
TWO, ROW = tf.constant([0.25, 0.75]), tf.constant([[0.2, 0.3, 0.5]])
IMAGE = tf.zeros([1, 2, 3, 3])
NORMAL = tfp.distributions.Normal([0.0, 1.0], 1.0)
LOC_SCALE = {"loc": TWO, "scale": TWO}
BOUNDS = {"lower_bound": -1.0, "upper_bound": 1.0}
QUANTIZER = exploration.ActionQuantizer(BOX)
SAMPLER = exploration.CategoricalSeedSampler(3)
FOUND = {"dist": NORMAL}
NEST = {"nested_distributions": NORMAL}
MOMENTS = stats.RunningMoments.create([2])
CARTPOLE = gym.make("CartPole-v1")
CURVE = summaries.MeanCurve.from_curves([0, 1], [[0.0, 1.0]])
# A call of each: the function, its arguments, and those that may be any object.
CALLS = {
    "add_ignore_empty": (ops.add_ignore_empty, {"x": TWO, "y": TWO}),
    "add_n": (ops.add_n, {"inputs": [TWO, TWO]}),
    "append_coordinate": (ops.append_coordinate, {"im": IMAGE}),
    "argmax": (ops.argmax, {"arr": TWO}),
    "binary_neg_entropy": (ops.binary_neg_entropy, {"p": TWO}),
    "clipped_exp": (ops.clipped_exp, {"value": TWO}),
    "clipped_logit": (ops.clipped_logit, {"x": TWO, "epsilon": 0.1}),
    "cov": (ops.cov, {"data": ROW}),
    "diff_transform": (ops.diff_transform, {"X": TWO}),
    "double_relu": (ops.double_relu, {"arr": TWO}),
    "flatten": (ops.BatchSquash(2).flatten, {"tensor": IMAGE}),
    "get_grads_diagnostics": (ops.get_grads_diagnostics, {"grads": [TWO]}),
    "get_magnitude_quantiles": (ops.get_magnitude_quantiles, {"pytree": [TWO]}),
    "idx": (ops.idx, {"arr": TWO}),
    "image_scale_transformer": (
        ops.image_scale_transformer,
        {"observation": np.zeros([2], np.uint8), "min": 0.0, "max": 1.0},
    ),
    "max_n": (ops.max_n, {"inputs": [TWO, TWO]}),
    "min_n": (ops.min_n, {"inputs": [TWO, TWO]}),
    "mul_n": (ops.mul_n, {"inputs": [TWO, TWO]}),
    "normalize_min_max": (ops.normalize_min_max, {"x": ROW}),
    "quantile_cos_embedding": (
        ops.quantile_cos_embedding,
        {"quantile_fractions": TWO, "n": 3},
    ),
    "quantiles": (ops.quantiles, {"batch_size": 2, "num_quantiles": 3}),
    "reverse_cumprod": (ops.reverse_cumprod, {"x": TWO, "dim": 0}),
    "reverse_cumsum": (ops.reverse_cumsum, {"x": TWO, "dim": 0}),
    "scale_gradient": (ops.scale_gradient, {"tensor": TWO, "scale": 2.0}),
    "softclip": (
        ops.softclip,
        {"x": TWO, "low": 0.0, "high": 1.0, "hinge_softness": 1.0},
    ),
    "spatial_broadcast": (ops.spatial_broadcast, {"z": TWO, "im_shape": (2, 2)}),
    "square": (ops.square, {"x": TWO}),
    "sum_to_leftmost": (ops.sum_to_leftmost, {"value": ROW, "dim": 1}),
    "value_transform": (ops.Log1pTransform().inverse_transform, {"y": TWO}),
    "compute_log_probability": (
        distributions.compute_log_probability,
        {"distributions": NORMAL, "actions": TWO},
    ),
    "sample": (distributions.sample_action_distribution, NEST),
    "rsample": (distributions.rsample_action_distribution, NEST),
    "epsilon_greedy": (distributions.epsilon_greedy_sample, NEST | {"eps": 0.1}),
    "greedy": (distributions.epsilon_greedy_sample, NEST | {"eps": 0.0}),
    "compute_entropy": (distributions.compute_entropy, {"distributions": NORMAL}),
    "entropy_with_fallback": (
        distributions.entropy_with_fallback,
        {"distributions": NORMAL},
    ),
    "estimated_entropy": (distributions.estimated_entropy, FOUND | {"num_samples": 2}),
    "get_mode": (distributions.get_mode, FOUND),
    "get_rmode": (distributions.get_rmode, FOUND),
    "get_base_dist": (distributions.get_base_dist, FOUND),
    "extract_distribution_parameters": (
        distributions.extract_distribution_parameters,
        FOUND,
    ),
    "distributions_to_params": (
        distributions.distributions_to_params,
        {"nests": NORMAL},
    ),
    "extract_spec": (distributions.extract_spec, {"nests": NORMAL, "from_dim": 0}),
    "to_distribution_param_spec": (
        distributions.to_distribution_param_spec,
        {"nests": BOX},
    ),
    "t2cdf": (distributions.t2cdf, {"x": TWO}),
    "calc_uniform_log_prob": (distributions.calc_uniform_log_prob, {"spec": BOX}),
    "Normal": (distributions.Normal, LOC_SCALE),
    "StableCauchy": (distributions.StableCauchy, LOC_SCALE),
    "DiagMultivariateNormal": (distributions.DiagMultivariateNormal, LOC_SCALE),
    "DiagMultivariateCauchy": (distributions.DiagMultivariateCauchy, LOC_SCALE),
    "SquashedNormal": (
        distributions.SquashedNormal,
        LOC_SCALE | {"low": -1.0, "high": 1.0},
    ),
    "AffineTransformedDistribution": (
        distributions.AffineTransformedDistribution,
        LOC_SCALE | {"base_dist": NORMAL},
    ),
    "Beta": (distributions.Beta, {"concentration1": TWO, "concentration0": TWO}),
    "TruncatedNormal": (distributions.TruncatedNormal, LOC_SCALE | BOUNDS),
    "TruncatedCauchy": (distributions.TruncatedCauchy, LOC_SCALE | BOUNDS),
    "TruncatedT2": (distributions.TruncatedT2, LOC_SCALE | BOUNDS),
    "MaskedCategorical": (
        distributions.MaskedCategorical,
        {"logits": TWO, "mask": [True, False]},
    ),
    "AffineTransform": (bijectors.AffineTransform, {"loc": 1.0, "scale": 2.0}),
    "PowerTransform": (bijectors.PowerTransform, {"exponent": 2.0}),
    "Softclip": (bijectors.Softclip, {"low": 0.0, "high": 1.0, "hinge_softness": 1.0}),
    "forward": (bijectors.Softsign().forward, {"x": TWO}),
    "inverse": (bijectors.Softsign().inverse, {"y": TWO}),
    "slope": (bijectors.StableTanh().forward_log_det_jacobian, {"x": TWO}),
    "get_invertible": (bijectors.get_invertible, {"cls": bijectors.Softplus}),
    "ActionQuantizer": (
        exploration.ActionQuantizer,
        {"action_spec": BOX, "action_bins": 3},
    ),
    "action_to_ind": (QUANTIZER.action_to_ind, {"action": TWO[tf.newaxis]}),
    "ind_to_action": (QUANTIZER.ind_to_action, {"action_ind": [[0, 1]]}),
    "CategoricalSeedSampler": (
        exploration.CategoricalSeedSampler,
        {"num_classes": 3, "new_noise_prob": 0.1, "concentration": 1.0},
    ),
    "seed_sampler": (SAMPLER.__call__, {"input": ROW, "state": tf.zeros([1, 3])}),
    "perturb": (SAMPLER.perturb, {"input": ROW, "state": ROW}),
    "EpsilonGreedySampler": (exploration.EpsilonGreedySampler, {"epsilon_greedy": 0.1}),
    "multinomial": (exploration.MultinomialSampler().__call__, {"input": ROW}),
    "OUProcess": (
        exploration.OUProcess,
        {"initial_value": TWO, "damping": 0.1, "stddev": 0.1},
    ),
    "OrnsteinUhlenbeckNoise": (
        exploration.OrnsteinUhlenbeckNoise,
        {"mu": 0.0, "sigma": 1.0, "theta": 0.1},
    ),
    "create_ou_process": (
        exploration.create_ou_process,
        {"action_spec": BOX, "ou_stddev": 0.1, "ou_damping": 0.1},
    ),
    "get_epsilon_greedy": (
        exploration.get_epsilon_greedy,
        {"config": types.SimpleNamespace(epsilon_greedy=0.1)},
    ),
    "WindowAverager": (stats.WindowAverager, {"tensor_spec": BOX, "window_size": 3}),
    "EMNormalizer": (stats.EMNormalizer, {"tensor_spec": BOX}),
    "average_outer_dims": (stats.average_outer_dims, {"tensor": ROW, "spec": ROW[0]}),
    "average": (stats.AdaptiveAverager(BOX).average, {"tensor": TWO[tf.newaxis]}),
    "normalize": (stats.EMNormalizer(BOX).normalize, {"tensor": TWO[tf.newaxis]}),
    "ConstantScheduler": (schedules.ConstantScheduler, {"value": 1.0}),
    "Progress": (schedules.Progress, {"percent": 0.0, "iterations": 1}),
    "as_scheduler": (schedules.as_scheduler, {"value_or_scheduler": 1.0}),
    "conservative_alpha_loss": (
        losses.conservative_alpha_loss,
        {"log_alpha": 0.0, "penalties": TWO, "threshold": 1.0},
    ),
    "multi_quantile_huber_loss": (
        losses.multi_quantile_huber_loss,
        {"quantiles": TWO, "target": 1.0, "delta": 0.1},
    ),
    "ppo_clip_loss": (
        losses.ppo_clip_loss,
        {"log_probs": TWO, "old_log_probs": TWO, "advantages": TWO, "clip": 0.2},
    ),
    "sac_actor_loss": (
        losses.sac_actor_loss,
        {"log_probs": TWO, "q_values": [[1.0], [2.0]], "alpha": 0.2},
    ),
    "temperature_loss": (
        losses.temperature_loss,
        {"log_alpha": 0.0, "log_probs": TWO, "target_entropy": -1.0},
    ),
    "RunningMoments": (stats.RunningMoments.create, {"shape": [2]}),
    "moments_update": (MOMENTS.update, {"values": ROW[:, :2], "weights": [1.0]}),
    "moments_normalize": (
        MOMENTS.normalize,
        {"values": ROW[:, :2], "clip": 1.0, "epsilon": 0.1},
    ),
    "return_scale": (
        stats.ReturnScale.create(2),
        {"rewards": ROW[:, :2], "ended": [[True, False]], "valid": [[True, False]]}
        | {"gamma": 0.9, "clip": 1.0, "epsilon": 0.1},
    ),
    "ScalarEMAverager": (
        stats.ScalarEMAverager,
        {"update_rate": 0.1, "dtype": tf.float32},
    ),
    "cast_transformer": (
        ops.cast_transformer,
        {"observation": TWO, "dtype": tf.float32},
    ),
    "conditional_update": (
        ops.conditional_update,
        {"target": TWO, "cond": [True, True], "func": lambda: TWO},
    ),
    "reset": (exploration.OUProcess(TWO).reset, {"mask": [True, False]}),
    "ema_smooth": (summaries.ema_smooth, {"scalars": [1.0, 2.0], "weight": 0.5}),
    "from_curves": (
        summaries.MeanCurve.from_curves,
        {"x": [0, 1], "ys": [[0.0, 1.0]], "interval_mode": "std"},
    ),
    "interquartile_mean": (
        summaries.interquartile_mean,
        {"scores": [[1.0, 2.0]], "confidence": 0.9, "resamples": 2, "seed": 0},
    ),
    "render_bars": (
        functools.partial(summaries.render_bars, "name"),
        {"data": TWO, "labels": ["a", "b"], "low": 0.0, "high": 1.0},
    ),
    "CurvesPlotter": (
        summaries.CurvesPlotter,
        {"mean_curves": CURVE, "y_range": (0, 1), "dpi": 50, "linewidth": 1}
        | {"std_alpha": 0.1, "x_ticks": [0, 1], "markers": [""]},
    ),
    "summarize_loss": (
        summaries.summarize_loss,
        {"loss_info": core.LossInfo(TWO, {})},
    ),
    "log_metrics": (summaries.log_metrics, {"metrics": []}),
    "list_steps": (saving.list_steps, {"directory": "."}),
    "capture": (environments.capture, {"env": CARTPOLE}),
    "restore": (
        environments.restore,
        {"env": CARTPOLE, "snapshot": environments.capture(CARTPOLE)},
    ),
    "DataBuffer": (
        replay.DataBuffer,
        {"data_spec": BOX, "capacity": 3, "device": "cpu", "seed": 0},
    ),
    "SumTree": (replay.SumTree, {"capacity": 3, "random_seed": 0}),
    "VariableStorage": (replay.VariableStorage, {"data_spec": BOX, "capacity": 3}),
    "zeros_from_spec": (core.zeros_from_spec, {"nested_spec": BOX, "batch_size": 2}),
    "batch_to_single": (
        core.batch_to_single,
        {"pytree": {"a": np.zeros([2, 3])}, "index": 0},
    ),
}
# Values that mean something: empty nests, what any dtype may hold, what is optional.
ADMITTED = {
    ("DataBuffer", "data_spec", "dict"),
    ("VariableStorage", "data_spec", "dict"),
    ("cast_transformer", "observation", "None"),
    ("cast_transformer", "observation", "dict"),
    ("conditional_update", "target", "None"),
    ("conditional_update", "target", "dict"),
    ("conditional_update", "target", "object"),
    ("conditional_update", "target", "word"),
    ("list_steps", "directory", "word"),
    ("log_metrics", "metrics", "dict"),
    ("moments_normalize", "clip", "None"),
    ("return_scale", "clip", "None"),
    ("EMNormalizer", "tensor_spec", "dict"),
    ("WindowAverager", "tensor_spec", "dict"),
    ("add_ignore_empty", "x", "None"),
    ("add_ignore_empty", "y", "None"),
    ("batch_to_single", "pytree", "None"),
    ("batch_to_single", "pytree", "dict"),
    ("create_ou_process", "action_spec", "dict"),
    ("distributions_to_params", "nests", "dict"),
    ("epsilon_greedy", "nested_distributions", "dict"),
    ("extract_spec", "nests", "dict"),
    ("greedy", "nested_distributions", "dict"),
    ("rsample", "nested_distributions", "dict"),
    ("sample", "nested_distributions", "dict"),
    ("to_distribution_param_spec", "nests", "dict"),
    ("zeros_from_spec", "nested_spec", "dict"),
    ("ops.add_ignore_empty", "x", "None"),
    ("ops.add_ignore_empty", "y", "None"),
    ("ops.clip_by_global_norm", "tensors", "dict"),
    ("ops.clip_by_norms", "tensors", "None"),
    ("ops.clip_by_norms", "tensors", "dict"),
    ("ops.expand_dims_as", "x", "word"),
    ("ops.global_norm", "tensors", "dict"),
    ("ops.identity", "x", "None"),
    ("ops.identity", "x", "dict"),
    ("ops.identity", "x", "object"),
    ("ops.identity", "x", "word"),
    ("ops.select_from_mask", "data", "None"),
    ("ops.select_from_mask", "data", "dict"),
    ("ops.reset_state_if_necessary", "state", "None"),
    ("ops.tensor_extend_new_dim", "x", "word"),
    ("ops.tensor_extend_zero", "x", "word"),
    ("ops.weighted_reduce_mean", "x", "dict"),
}
NAN = {
    "action_to_ind": {"action": [[np.nan, 0.0]]},
    "Progress": {"percent": np.nan, "iterations": np.nan},
    "batch_to_single": {"index": np.nan},
    "ConstantScheduler": {"value": np.nan},
    "epsilon_greedy": {"eps": np.nan},
    "estimated_entropy": {"num_samples": np.nan},
    "EpsilonGreedySampler": {"epsilon_greedy": np.nan},
    "image_scale_transformer": {"min": np.nan, "max": np.nan},
    "multinomial": {"input": [[np.nan, 1.0]]},
    "OrnsteinUhlenbeckNoise": {"mu": np.nan, "sigma": np.nan, "theta": np.nan},
    "OUProcess": {"damping": np.nan, "stddev": np.nan},
    "scale_gradient": {"scale": np.nan},
    "softclip": {"low": np.nan, "high": np.nan, "hinge_softness": np.nan},
    "TruncatedNormal": {"scale": np.nan, "lower_bound": np.nan},
    "zeros_from_spec": {"batch_size": np.nan},
}


def is_public(row):
    room, name = row.covers.split(".")
    return row.call is getattr(getattr(tfrl, room), name)


ROWS = {row.name: row for row in table.ROWS if is_public(row)}


def check_refused(call, arguments, name, kind, wrong):
    try:
        call(**{**arguments, name: wrong})
    except (TypeError, ValueError) as error:
        assert re.match(r"`[\w. ]+`: ", str(error)), (name, kind, str(error))
        assert f"`{name}" in str(error), (name, kind, str(error))
    else:
        pytest.fail(f"`{name}` was taken as {kind}")


def check_all(label, call, arguments):
    call(**arguments)
    parameters = inspect.signature(call).parameters
    for name in arguments:
        for kind, wrong in WRONG.items():
            optional = kind == "None" and parameters[name].default is None
            if not optional and (label, name, kind) not in ADMITTED:
                check_refused(call, arguments, name, kind, wrong)


@pytest.mark.parametrize("label", CALLS)
def test_calls_name_what_is_no_tensor(label):
    check_all(label, *CALLS[label])


# Of many tensors, each of which is taken for every kind of what is none.
LONG = ("categorical_q_target", "two_hot", "categorical_projection", "quantile_td_loss")
LONG += ("discounted_return", "td_lambda_return", "softclip_tf", "retrace")
LONG += ("importance_corrected_td_errors", "multi_quantile_huber_loss")


@pytest.mark.parametrize(
    "label",
    [
        pytest.param(x, marks=[pytest.mark.slow] if any(y in x for y in LONG) else [])
        for x in ROWS
    ],
)
def test_rows_name_what_is_no_tensor(label):
    row = ROWS[label]
    tensors = battery.cast(row.inputs(), row.dtypes[-1])

    def call(**arguments):
        return row.call(**arguments, **row.options)

    call.__signature__ = inspect.signature(row.call)
    check_all(label, call, tensors)


@pytest.mark.parametrize("label", NAN)
def test_nan_is_refused_where_no_number_may_be_missing(label):
    call, arguments = CALLS[label]
    for name, wrong in NAN[label].items():
        check_refused(call, arguments, name, "NaN", wrong)


def test_most_rows_are_followed():
    assert len(ROWS) > 50
    known = {(label, *rest) for label, *rest in ADMITTED}
    assert {label for label, *_ in known} <= {*CALLS, *ROWS}


def test_spaces_of_gymnasium_are_named_too():
    with pytest.raises(TypeError, match="`action_spec` expected"):
        exploration.create_ou_process(gym.spaces.Discrete(2), 0.1, 0.1)
