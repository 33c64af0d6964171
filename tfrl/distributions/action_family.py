"""From free numbers, as networks give them, to distributions over an action space."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.core import checks, spaces, specs
from tfrl.distributions import product, squashed

tfd = tfp.distributions

# What softplus maps to 1.
_UNIT = math.log(math.expm1(1.0))
_MAX_CHOICES = 2**16


class ActionFamily:
    """The distributions over an action space, one for each vector of free numbers.

    A vector of `n_parameters` real numbers, the outputs of a network, names one
    distribution of actions as the space has them. The parts of the space follow each
    other in the order of `tf.nest.flatten`:

    - integers: independent choices, as many logits as there are options;
    - floats: independent normals, a mean for each; all the scales stand together at
      the end of the vector,

          scale = min_scale + (init_scale - min_scale) * softplus(r + ln(e - 1))

      which is `init_scale` for r = 0. With finite bounds the normals are squashed into
      them (`SquashedNormal`), without bounds they are plain.

    A space of one part gives its distribution, `Dict` and `Tuple` a `Product`. With an
    action mask use `MaskedCategorical(parameters, mask)` for a `Discrete` space.

    Args:
        action_spec: a Gymnasium space, or a nest of specs: integer
            `BoundedTensorSpec`s, floating `BoundedTensorSpec`s or `tf.TensorSpec`s.
        family: of floats: "squashed_normal", "normal" (not bounded by the
            distribution) or None for what the bounds ask for.
        init_scale: the scale for r = 0.
        min_scale: the least scale, positive and below `init_scale`.

    Attributes:
        action_spec: nest of specs of the actions.
        n_parameters: length of the vectors.
        n_scales: how many at their end are scales.

    Raises:
        ValueError: if a spec has unknown dimensions, integers without bounds, or floats
            bounded on one side, with no `family` given; if an argument is out of range.
        TypeError: if something is no spec of numbers.

    Example:
        >>> family = ActionFamily(gym.spaces.Dict(
        ...     jump=gym.spaces.Discrete(2),
        ...     steer=gym.spaces.Box(-1.0, 1.0, (3,)),
        ... ))
        >>> family.n_parameters, family.n_scales
        (8, 3)
        >>> policy = family.distribution(tf.zeros([5, 8]))
        >>> policy.mode()["steer"].shape, policy.distributions["steer"].scale[0].numpy()
        (TensorShape([5, 3]), array([1., 1., 1.], dtype=float32))
    """

    def __init__(
        self,
        action_spec: Any,
        family: str | None = None,
        init_scale: float = 1.0,
        min_scale: float = 1e-4,
    ) -> None:
        where = "ActionFamily"
        checks.check_one_of(where, "family", family, (None, *_FAMILIES))
        checks.check_positive(where, "min_scale", min_scale)
        checks.check_within(where, "init_scale", init_scale, min_scale, math.inf)
        if isinstance(action_spec, gym.Space):
            action_spec = spaces.spec_from_space(action_spec)
        self.action_spec = action_spec
        self._init_scale, self._min_scale = init_scale, min_scale
        leaves = [_leaf(spec, family) for spec in tf.nest.flatten(action_spec)]
        self._leaves = leaves
        self.n_scales = sum(leaf.n_scales for leaf in leaves)
        self.n_parameters = sum(leaf.n_free for leaf in leaves) + self.n_scales

    def distribution(self, parameters: Any) -> tfp.distributions.Distribution:
        """Returns the distribution that some free numbers name.

        Args:
            parameters: floating `[..., n_parameters]`.

        Returns:
            A distribution of batch shape `[...]`.

        Raises:
            ValueError: if the last axis has another length.
            TypeError: if `parameters` is not floating.
        """
        where = "ActionFamily.distribution"
        parameters = tf.convert_to_tensor(parameters)
        checks.check_floating(where, "parameters", parameters)
        checks.check_rank(where, "parameters", parameters, at_least=1)
        if not parameters.shape[-1:].is_compatible_with([self.n_parameters]):
            raise ValueError(
                f"`{where}`: `parameters` expected {self.n_parameters} numbers along "
                f"the last axis; got shape {parameters.shape}; give one per parameter"
            )
        sizes = [leaf.n_free for leaf in self._leaves]
        sizes += [leaf.n_scales for leaf in self._leaves]
        parts = tf.split(parameters, sizes, axis=-1)
        distributions = [
            leaf.distribution(free, self._positive(scale))
            for leaf, free, scale in zip(
                self._leaves, parts, parts[len(self._leaves) :], strict=False
            )
        ]
        if not tf.nest.is_nested(self.action_spec):
            return distributions[0]
        return product.Product(
            tf.nest.pack_sequence_as(self.action_spec, distributions)
        )

    def _positive(self, free: tf.Tensor) -> tf.Tensor:
        spread = self._init_scale - self._min_scale
        return self._min_scale + spread * tf.math.softplus(free + _UNIT)


class _Choices:
    """Independent choices among the integers of a spec."""

    n_scales = 0

    def __init__(self, spec: specs.BoundedTensorSpec) -> None:
        least = spec.minimum.ravel().astype(object)
        counts = (spec.maximum.ravel().astype(object) - least + 1).tolist()
        if max(counts) > _MAX_CHOICES:
            raise ValueError(
                "`ActionFamily`: `action_spec` expected integers of at most "
                f"{_MAX_CHOICES} options each; got {spec}; bound them or quantize"
            )
        self._spec, self._counts = spec, counts
        self._start = min(least)
        self._before = [int(start - self._start) for start in least]
        self._width = max(map(int.__add__, self._before, counts))
        self.n_free = sum(counts)

    def distribution(self, free: tf.Tensor, scale: tf.Tensor) -> Any:  # noqa: ARG002
        shape = tuple(self._spec.shape)
        if set(self._counts) == {self._width}:
            logits = _shaped(free, (*shape, self._width))
        else:
            outer = [[0, 0]] * (free.shape.rank - 1)
            padded = [
                tf.pad(
                    part,
                    [*outer, [before, self._width - before - count]],
                    constant_values=-math.inf,
                )
                for part, before, count in zip(
                    tf.split(free, self._counts, axis=-1),
                    self._before,
                    self._counts,
                    strict=True,
                )
            ]
            logits = _shaped(tf.concat(padded, axis=-1), (*shape, self._width))
        dtype = self._spec.dtype if self._spec.dtype == tf.int64 else tf.int32
        choice: Any
        if self._start:
            outcomes = tf.range(self._start, self._start + self._width, dtype=dtype)
            choice = tfd.FiniteDiscrete(outcomes, logits=logits)
        else:
            choice = tfd.Categorical(logits=logits, dtype=dtype)
        return tfd.Independent(choice, len(shape)) if shape else choice


class _Normals:
    """Independent normals over the floats of a spec, squashed into bounds if asked."""

    def __init__(self, spec: tf.TensorSpec, squash: bool) -> None:
        self._spec, self._squash = spec, squash
        self.n_free = self.n_scales = int(specs.flattened_size(spec))

    def distribution(self, free: tf.Tensor, scale: tf.Tensor) -> Any:
        shape = tuple(self._spec.shape)
        loc, scale = _shaped(free, shape), _shaped(scale, shape)
        if self._squash:
            low, high = self._spec.minimum, self._spec.maximum
            return squashed.SquashedNormal(loc, scale, low, high)
        normal = tfd.Normal(loc, scale)
        return tfd.Independent(normal, len(shape)) if shape else normal


_FAMILIES = ("normal", "squashed_normal")


def _leaf(spec: Any, family: str | None) -> _Choices | _Normals:
    where = "ActionFamily"
    bounded = isinstance(spec, specs.BoundedTensorSpec)
    discrete = bounded and spec.dtype.is_integer
    floating = isinstance(spec, tf.TensorSpec) and spec.dtype.is_floating
    if not (discrete or floating):
        raise TypeError(
            f"`{where}`: `action_spec` expected specs of floats or of bounded "
            f"integers; got {spec!r}; convert the actions to one"
        )
    checks.check_known_shape(where, "action_spec", spec)
    if discrete:
        return _Choices(spec)
    low, high = (spec.minimum, spec.maximum) if bounded else (-np.inf, np.inf)
    finite = np.isfinite(low) & np.isfinite(high) & np.less(low, high)
    squash = family == "squashed_normal" or (family is None and bool(np.all(finite)))
    wanted = finite if squash else np.isinf(low) & np.isinf(high)
    if family != "normal" and not np.all(wanted):
        raise ValueError(
            f"`{where}`: `action_spec` expected floats with finite bounds, low < high, "
            f"or without any; got {spec!r}; bound them, split them into several specs, "
            "or choose the family 'normal'"
        )
    return _Normals(spec, squash)


def _shaped(flat: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """Gives the last axis a shape of its own."""
    if len(shape) == 1:
        return flat
    return tf.reshape(flat, tf.concat([tf.shape(flat)[:-1], shape], axis=0))
