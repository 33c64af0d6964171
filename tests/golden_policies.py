"""Builds the recorded distributions, nests of them and their specs.

    CASES = golden_policies.load("extract_spec")

`td.X` of the recordings is a class of another library; `_CLASSES` says what stands for
it here. Its transforms come in a list, the first one applied first.
"""

import golden_io
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors, distributions

tfd, tfb = tfp.distributions, tfp.bijectors


def _transformed(base, transforms):
    if len(transforms) == 1:
        return tfd.TransformedDistribution(base, transforms[0])
    return tfd.TransformedDistribution(base, tfb.Chain(transforms[::-1]))


_CLASSES = {
    "td.Beta": lambda alpha, beta: tfd.Beta(alpha, beta),
    "td.Categorical": tfd.Categorical,
    "td.Independent": tfd.Independent,
    "td.MixtureSameFamily": tfd.MixtureSameFamily,
    "td.Normal": tfd.Normal,
    # TFP has none; the recorded two differ in the gradient of the mode only.
    "td.OneHotCategoricalStraightThrough": (
        distributions.OneHotCategoricalStraightThrough
    ),
    "td.TransformedDistribution": _transformed,
}


def load(symbol, kind=None):
    """Returns the cases of a symbol, tensors as tensors, the rest as recorded."""
    cases = golden_io.load("alf/dist_utils", {"t": tf.constant}, symbol)
    return [case for case in cases if kind in (None, case["kind"])]


def build(value):
    """Returns a nest with each recorded object made."""
    if isinstance(value, golden_io.Marked):
        return {"obj": _object, "spec": _spec, "distspec": _parameters}[value.marker](
            value.content
        )
    if isinstance(value, dict):
        return {key: build(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(build, value))
    return value


def _object(content):
    name = content["cls"].rsplit(".", 1)[-1]
    makers = (getattr(room, name, None) for room in (distributions, bijectors))
    maker = _CLASSES.get(content["cls"]) or next(filter(None, makers))
    return maker(*build(content["args"]), **build(content["kwargs"]))


def _spec(content):
    return tf.TensorSpec(content["shape"], content["dtype"])


def _parameters(content):
    return in_our_words(build(content["params"]))


def in_our_words(parameters):
    """Returns the parameters of a distribution as we structure them.

    The recorded ones keep an empty dict for every transform, which has none, and say
    `mixture` for `mixture_distribution`.
    """
    if isinstance(parameters, dict):
        if "params_" in parameters:
            assert not tf.nest.flatten(parameters["transforms_params_"])
            return in_our_words(parameters["params_"])
        longer = {
            "mixture": "mixture_distribution",
            "components": "components_distribution",
        }
        return {
            longer.get(key, key): in_our_words(part) for key, part in parameters.items()
        }
    if isinstance(parameters, list | tuple):
        return type(parameters)(map(in_our_words, parameters))
    return parameters
