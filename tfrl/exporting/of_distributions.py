"""Endpoints from the parameters of a distribution to its samples and statistics."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import specs
from tfrl.distributions import modes, spec
from tfrl.exporting import _golden, _graphs, endpoints

_RESERVED = ("seed", "values")


def distribution_endpoints(
    dist_spec: spec.DistributionSpec, methods: Sequence[str] | None = None
) -> dict[str, endpoints.Endpoint]:
    """Returns endpoints from a distribution's parameters to samples and statistics.

    Each takes the parameters of one spec, with a batch axis B in front, by their names
    (`parameters` where there is a single tensor without a name), and returns a
    dictionary.

    * `sample`: with `seed`, int32 `[2]`: `values` and their `log_probs`.
    * `log_prob`: with `values`: their `log_probs`.
    * `mode`, `mean`: `values`; a mode is that of `tfrl.distributions.get_mode`.
    * `entropy`: `entropies`, where there is a closed form.

    Args:
        dist_spec: how to make the distribution of one row of parameters.
        methods: which of the above; by default all that the distribution has and
            defines.

    Returns:
        The endpoints by name.

    Raises:
        TypeError: if `dist_spec` is no `DistributionSpec`.
        ValueError: if a method is unknown, or a parameter is named `seed` or `values`.
        NotImplementedError: if the distribution lacks one of `methods`; or a
            `ValueError`, if the distribution itself declares one undefined.

    Example:
        >>> import tensorflow_probability as tfp
        >>> dist = tfp.distributions.Beta(tf.ones([3]), tf.ones([3]))
        >>> spec = tfrl.distributions.DistributionSpec.from_distribution(dist)
        >>> list(distribution_endpoints(spec))
        ['sample', 'log_prob', 'mode', 'mean', 'entropy']
    """
    where = "distribution_endpoints"
    wanted = "a DistributionSpec, as of `DistributionSpec.from_distribution`"
    checks.check_type(where, "dist_spec", dist_spec, spec.DistributionSpec, wanted)
    unknown = sorted(set(methods or ()) - set(_METHODS))
    if isinstance(methods, str) or unknown:
        raise ValueError(
            f"`{where}`: `methods` expected some of {list(_METHODS)}; got {methods!r}"
        )
    parameters = _parameter_inputs(dist_spec)
    given = _golden.examples(where, _graphs.input_specs(where, parameters), None)
    nests = _graphs.packed(parameters, given)
    values = _ask(dist_spec, "sample", **nests, seed=tf.constant([0, 0]))["values"]
    batches = tf.nest.map_structure(
        lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), values
    )
    inputs = {
        "sample": parameters | {"seed": tf.TensorSpec([2], tf.int32)},
        "log_prob": parameters | {"values": batches},
    }
    drawn = {x: np.asarray(y) for x, y in _graphs.named_leaves(values, "values")}
    examples = {"log_prob": {**given, **drawn}}
    found = {}
    for name in _METHODS if methods is None else methods:
        ask = functools.partial(_ask, dist_spec, name)
        if name in inputs:
            found[name] = endpoints.Endpoint(ask, inputs[name], examples.get(name))
            continue
        try:
            (told,) = ask(**nests).values()
        except (NotImplementedError, ValueError):
            if methods is not None:
                raise
            continue
        if methods is not None or not _is_undefined(told):
            found[name] = endpoints.Endpoint(ask, parameters)
    return found


def _drawn(dist: Any, seed: tf.Tensor) -> dict[str, Any]:
    values, log_probs = dist.experimental_sample_and_log_prob(seed=seed)
    return {"values": values, "log_probs": log_probs}


_METHODS: dict[str, Callable[..., dict[str, Any]]] = {
    "sample": _drawn,
    "log_prob": lambda dist, values: {"log_probs": dist.log_prob(values)},
    "mode": lambda dist: {"values": modes.get_mode(dist)},
    "mean": lambda dist: {"values": dist.mean()},
    "entropy": lambda dist: {"entropies": dist.entropy()},
}


def _ask(
    dist_spec: spec.DistributionSpec, method: str, /, **given: Any
) -> dict[str, Any]:
    """What a distribution of parameters tells, by the names of endpoints' outputs."""
    more = {name: given.pop(name) for name in _RESERVED if name in given}
    is_named = isinstance(dist_spec.input_params_spec, Mapping)
    dist = dist_spec.build_distribution(given if is_named else given["parameters"])
    return _METHODS[method](dist, **more)


def _is_undefined(told: Any) -> bool:
    """Whether a statistic is NaN everywhere, as the mean of a Cauchy distribution."""
    leaves = map(tf.convert_to_tensor, tf.nest.flatten(told))
    return any(bool(tf.reduce_all(leaf != leaf)) for leaf in leaves)


def _parameter_inputs(dist_spec: spec.DistributionSpec) -> dict[str, Any]:
    """Specs of batches, within bounds where nearly all parameters make sense."""

    def batched(name: str, leaf: tf.TensorSpec) -> tf.TensorSpec:
        low, high = (0.1, 2.0) if leaf.dtype.is_floating else (1, 1)
        if leaf.dtype.is_floating and name.endswith(("probs", "low")):
            high = 0.9
        elif leaf.dtype.is_floating and name.endswith("high"):
            low = 1.1
        return specs.BoundedTensorSpec([None, *leaf.shape], leaf.dtype, low, high)

    given = dist_spec.input_params_spec
    leaves = [batched(*pair) for pair in _graphs.named_leaves(given, "parameters")]
    nest = tf.nest.pack_sequence_as(given, leaves)
    if not isinstance(nest, Mapping):
        nest = {"parameters": nest}
    taken = sorted(set(nest) & set(_RESERVED))
    if taken:
        raise ValueError(
            "`distribution_endpoints`: `dist_spec` expected parameters other than "
            f"{list(_RESERVED)}; got {taken}"
        )
    return dict(nest)
