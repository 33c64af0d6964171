"""Specs of distributions: what turns them into tensors and back.

A distribution cannot leave a SavedModel, a Keras layer or a replay storage; tensors
can. So it is kept as two things: its parameters, a nest of tensors, and a
`DistributionSpec` that makes a distribution of such a nest again.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks
from tfrl.core import specs
from tfrl.distributions import _recipe

tfd = tfp.distributions


class DistributionSpec:
    """How to build a distribution from a nest of tensors.

    Equal specs build alike: they compare, hash and pickle by the class of the
    distribution, all that was given to it other than as tensors, and the specs of its
    parameters. A leaf for `tf.nest`.

    Args:
        builder: function of one argument, the nest of parameters, that returns a
            distribution. Specs are equal only if their builders are.
        input_params_spec: nest of `tf.TensorSpec`, what `builder` takes.

    Attributes:
        builder: the function.
        input_params_spec: the nest of specs.

    Raises:
        TypeError: if `builder` cannot be called, or a leaf of `input_params_spec` is
            no `tf.TensorSpec`.

    Example:
        >>> policy = tfd.Independent(tfd.Normal(tf.zeros([5, 2]), tf.ones([5, 2])), 1)
        >>> spec = DistributionSpec.from_distribution(policy, from_dim=1)
        >>> spec.input_params_spec["loc"].shape
        TensorShape([2])
        >>> again = spec.build_distribution({"loc": np.zeros(2), "scale": np.ones(2)})
        >>> again.event_shape
        TensorShape([2])
    """

    def __init__(
        self,
        builder: Callable[[Any], tfp.distributions.Distribution],
        input_params_spec: Any,
    ) -> None:
        where, expected = "DistributionSpec", "a function of the parameters"
        checks.check_type(where, "builder", builder, Callable, expected)
        for leaf in tf.nest.flatten(input_params_spec):
            given = "input_params_spec", leaf, tf.TensorSpec
            checks.check_type(where, *given, "a nest of tf.TensorSpec")
        self.builder = builder
        self.input_params_spec = input_params_spec

    @classmethod
    def from_distribution(
        cls, dist: tfp.distributions.Distribution, from_dim: int = 0
    ) -> Self:
        """Returns the spec of a distribution.

        See `extract_distribution_parameters` for what is a parameter. All else, down
        to the hyper-parameters of nested bijectors, is kept in the spec as it is.

        Args:
            dist: the distribution, of any class of TFP's or derived from them whose
                `parameters` are complete.
            from_dim: how many leading axes of each parameter are a batch's and are not
                to be in the spec.

        Returns:
            The spec.

        Raises:
            TypeError: if `dist` is no distribution.
            ValueError: if a parameter has less than `from_dim` axes.

        Example:
            >>> clip = tfp.bijectors.SoftClip(-1.0, 1.0, hinge_softness=0.3)
            >>> dist = tfd.TransformedDistribution(tfd.Normal(tf.zeros(3), 1.0), clip)
            >>> spec = DistributionSpec.from_distribution(dist)
            >>> again = spec.build_distribution({"loc": np.ones(7, "f")})
            >>> again.batch_shape, again.bijector.parameters["hinge_softness"]
            (TensorShape([7]), 0.3)
        """
        where = "DistributionSpec.from_distribution"
        _check_distribution(where, dist)
        recipe, parameters = _recipe.taken_apart(dist)
        return cls(
            recipe,
            tf.nest.map_structure(
                lambda tensor: _spec_of(where, tensor, from_dim), parameters
            ),
        )

    def build_distribution(self, input_params: Any) -> tfp.distributions.Distribution:
        """Returns the distribution with these parameters.

        Args:
            input_params: nest like `input_params_spec` of tensors, numpy arrays or
                numbers; the latter get the dtype of their spec. Shapes are free: they
                may have batch axes in front, for instance.

        Returns:
            A distribution.

        Raises:
            ValueError: if the structure is another.

        Example:
            >>> spec = DistributionSpec(
            ...     lambda p: tfd.Normal(p["loc"], 0.5), {"loc": tf.TensorSpec([])})
            >>> float(spec.build_distribution({"loc": 2.0}).mean())
            2.0
        """
        _check_structure(
            "DistributionSpec.build_distribution",
            "input_params",
            input_params,
            self.input_params_spec,
        )
        return self.builder(
            tf.nest.map_structure(
                lambda spec, leaf: tf.convert_to_tensor(
                    leaf, None if tf.is_tensor(leaf) else spec.dtype
                ),
                self.input_params_spec,
                input_params,
            )
        )

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and self.builder == other.builder
            and self.input_params_spec == other.input_params_spec
        )

    def __hash__(self) -> int:
        return hash((self.builder, *tf.nest.flatten(self.input_params_spec)))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(builder={self.builder!r}, "
            f"input_params_spec={self.input_params_spec!r})"
        )


def extract_distribution_parameters(dist: tfp.distributions.Distribution) -> Any:
    """Returns the parameters of a distribution as a nest of tensors.

    A parameter is an argument of the constructor, or of a distribution or bijector
    nested in it, that was given

    - as a tensor or variable, unless TFP knows of no batch of it (the bounds that give
      an event its shape) and its value is known;
    - as an array or list to a distribution that admits batches of it.

    Other numbers, arrays and settings belong to the `DistributionSpec`. Parameters of
    smaller batches are broadcast to the batch shape of the distribution, so that one
    row is one row in all of them.

    Args:
        dist: the distribution.

    Returns:
        A dict by the names of the arguments; components give a dict within. Where all
        tensors belong to one component (of `Independent`, or of a
        `TransformedDistribution` whose bijector has only numbers), its dict itself.

    Raises:
        TypeError: if `dist` is no distribution.

    Example:
        >>> policy = tfd.Independent(tfd.Normal(tf.zeros([5, 2]), tf.ones([2])), 1)
        >>> {k: v.shape.as_list()
        ...  for k, v in extract_distribution_parameters(policy).items()}
        {'loc': [5, 2], 'scale': [5, 2]}
    """
    _check_distribution("extract_distribution_parameters", dist)
    return _recipe.taken_apart(dist)[1]


def extract_spec(nests: Any, from_dim: int = 1) -> Any:
    """Returns the specs of the tensors and distributions of a nest.

    Args:
        nests: nest of tensors, numpy arrays and distributions.
        from_dim: how many leading axes are a batch's and are not to be in the specs.

    Returns:
        The nest of `tf.TensorSpec` and `DistributionSpec`.

    Raises:
        TypeError: if `from_dim` is no integer.
        ValueError: if a leaf is of another kind, or has less than `from_dim` axes.

    Example:
        >>> extract_spec({"x": tf.zeros([4, 3])})
        {'x': TensorSpec(shape=(3,), dtype=tf.float32, name=None)}
    """
    checks.check_whole_number("extract_spec", "from_dim", from_dim, low=0)

    def spec(leaf: Any) -> Any:
        if isinstance(leaf, tfd.Distribution):
            return DistributionSpec.from_distribution(leaf, from_dim)
        _check_tensor("extract_spec", leaf)
        return _spec_of("extract_spec", leaf, from_dim)

    return tf.nest.map_structure(spec, nests)


def distributions_to_params(nests: Any) -> Any:
    """Returns the nest with each distribution replaced by its parameters.

    Args:
        nests: nest of distributions, tensors and numpy arrays.

    Returns:
        A nest of tensors; see `extract_distribution_parameters`. Tensors and arrays
        stay as they are.

    Raises:
        ValueError: if a leaf is of another kind.

    Example:
        >>> nest = (tf.zeros([4]), tfd.Categorical(logits=tf.zeros([4, 2])))
        >>> list(distributions_to_params(nest)[1])
        ['logits']
    """

    def parameters(leaf: Any) -> Any:
        if isinstance(leaf, tfd.Distribution):
            return extract_distribution_parameters(leaf)
        _check_tensor("distributions_to_params", leaf)
        return leaf

    return tf.nest.map_structure(parameters, nests)


def params_to_distributions(nests: Any, nest_spec: Any) -> Any:
    """Returns the nest with parameters made distributions again.

    Args:
        nests: nest of tensors, as `distributions_to_params` returns it.
        nest_spec: nest of specs, as `extract_spec` returns it.

    Returns:
        The nest of distributions and tensors, structured as `nest_spec`.

    Raises:
        ValueError: if the structure of `nests` does not fit `nest_spec`.

    Example:
        >>> nest = {"x": tf.zeros([4]), "pi": tfd.Categorical(logits=tf.zeros([4, 2]))}
        >>> again = params_to_distributions(
        ...     distributions_to_params(nest), extract_spec(nest))
        >>> type(again["pi"]).__name__
        'Categorical'
    """
    where = "params_to_distributions"
    _check_structure(where, "nests", nests, to_distribution_param_spec(nest_spec))
    leaves = iter(tf.nest.flatten(nests))

    def value(spec: Any) -> Any:
        if not isinstance(spec, DistributionSpec):
            return next(leaves)
        parameters = tf.nest.map_structure(
            lambda _: next(leaves), spec.input_params_spec
        )
        return spec.build_distribution(parameters)

    return tf.nest.map_structure(value, nest_spec)


def to_distribution_param_spec(nests: Any) -> Any:
    """Returns the specs of what `distributions_to_params` makes of a nest.

    Args:
        nests: nest of `DistributionSpec` and other specs.

    Returns:
        The nest of specs of tensors, each `DistributionSpec` replaced by its
        `input_params_spec`.

    Raises:
        TypeError: if a leaf is no spec.

    Example:
        >>> spec = extract_spec(tfd.Categorical(logits=tf.zeros([4, 2])))
        >>> to_distribution_param_spec([spec])
        [{'logits': TensorSpec(shape=(2,), dtype=tf.float32, name=None)}]
    """

    def params(spec: Any) -> Any:
        if isinstance(spec, DistributionSpec):
            return spec.input_params_spec
        specs.check_spec("to_distribution_param_spec", "nests", spec)
        return spec

    return tf.nest.map_structure(params, nests)


def _spec_of(where: str, value: Any, from_dim: int) -> tf.TensorSpec:
    shape = tf.TensorShape(value.shape)
    if shape.rank is not None and shape.rank < from_dim:
        raise ValueError(
            f"`{where}`: `from_dim` expected at most the number of axes of each "
            f"tensor, {shape.rank} of one of shape {shape}; got {from_dim}"
        )
    return tf.TensorSpec(shape[from_dim:], value.dtype)


def _check_distribution(where: str, dist: Any) -> None:
    checks.check_type(where, "dist", dist, tfd.Distribution, "a distribution of TFP")


def _check_tensor(where: str, leaf: Any) -> None:
    if not (tf.is_tensor(leaf) or isinstance(leaf, np.ndarray | np.generic)):
        raise ValueError(
            f"`{where}`: `nests` expected tensors, arrays and distributions; got "
            f"{checks.shown(leaf)}"
        )


def _check_structure(where: str, name: str, nest: Any, spec: Any) -> None:
    try:
        tf.nest.assert_same_structure(spec, nest)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{where}`: `{name}` expected the structure of its spec {spec}; got "
            f"another: {error}"
        ) from error
