"""Which head fits an action space, or a nest of specs."""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import spaces, specs
from tfrl.distributions import action_heads

Head = (
    action_heads.CategoricalHead | action_heads.NormalHead | action_heads.CompositeHead
)
_MAX_CHOICES = 2**20


def action_head(
    action_space: Any,
    *,
    squash: bool | None = False,
    init_scale: float | None = None,
    min_scale: float = 1e-4,
) -> Head:
    """Returns the head that fits an action space.

    Discrete, MultiDiscrete, MultiBinary and a Box of integers get a `CategoricalHead`,
    a float Box gets a `NormalHead`, Dict and Tuple of them a `CompositeHead`.

    Args:
        action_space: of one environment, not of a vector of them; or a nest of specs,
            integer `BoundedTensorSpec`s, floating ones or `tf.TensorSpec`s.
        squash: squash every Box of floats by tanh instead of clipping; needs finite
            bounds, low below high. None squashes those whose bounds are such, and
            takes those without any bounds as they are.
        init_scale: see `NormalHead`.
        min_scale: see `NormalHead`; positive, below `init_scale`.

    Returns:
        The head.

    Raises:
        TypeError: if no head fits the space.
        ValueError: if the space holds no number, or a choice of more than 2^20 options;
            if `squash` meets a Box with other bounds or a space without floats; if a
            scale is out of range.

    Example:
        >>> action_head(gym.spaces.MultiDiscrete([3, 2])).n_outputs
        5
        >>> action_head(gym.spaces.Box(-1.0, 1.0, (4,)), squash=True).n_outputs
        8
        >>> action_head(gym.spaces.Tuple([gym.spaces.Discrete(3)] * 2)).n_options
        6
    """
    where, name = "action_head", "action_space"
    checks.check_positive(where, "min_scale", min_scale)
    if init_scale is not None:
        checks.check_within(where, "init_scale", init_scale, min_scale, math.inf)
    head = _head_of(name, action_space, squash, init_scale, min_scale)
    if squash and not head.has_log_std:
        raise _no_squash(action_space)
    return head


def space_of(head: Head) -> gym.Space:
    """Returns a space that `action_head` makes such a head of, to be shown.

    Example:
        >>> space_of(action_head(gym.spaces.Discrete(3, start=5)))
        Discrete(3, start=5)
    """
    if isinstance(head, action_heads.CompositeHead):
        parts = [*map(space_of, head.parts)]
        if head.keys is None:
            return gym.spaces.Tuple(parts)
        return gym.spaces.Dict(dict(zip(head.keys, parts, strict=True)))
    dtype: Any = np.dtype(head.dtype)
    if isinstance(head, action_heads.NormalHead):
        low, high = (np.reshape(x, head.shape) for x in (head.low, head.high))
        return gym.spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
    if head.scalar:
        return gym.spaces.Discrete(head.n_choices[0], start=head.starts[0])
    counts, starts = (np.reshape(x, head.shape) for x in (head.n_choices, head.starts))
    if dtype == np.int8 and np.all(counts == 2) and not np.any(starts):
        return gym.spaces.MultiBinary(head.shape)
    return gym.spaces.MultiDiscrete(counts, dtype, start=starts)


def _head_of(name: str, part: Any, squash: bool | None, *scales: Any) -> Any:
    """The head of a part of what `action_head` got, by its name in messages."""
    if isinstance(part, Mapping | gym.spaces.Tuple | tuple | list):
        keys = tuple(sorted(part)) if isinstance(part, Mapping) else None
        made = tuple(
            _head_of(f"{name}[{key!r}]", part[key], squash, *scales)
            for key in (range(len(part)) if keys is None else keys)
        )
        if not made:
            raise _empty(name, part)
        return action_heads.CompositeHead(made, keys)
    spec = part
    if isinstance(part, gym.Space):
        with contextlib.suppress(TypeError):  # of kinds that have no head either
            spec = spaces.spec_from_space(part)
    bounded = isinstance(spec, specs.BoundedTensorSpec)
    floating = isinstance(spec, tf.TensorSpec) and spec.dtype.is_floating
    if not (floating or (bounded and spec.dtype.is_integer)):
        raise TypeError(
            f"`action_head`: `{name}` expected Discrete, MultiDiscrete, MultiBinary, "
            "Box, Dict or Tuple, or specs of floats and of bounded integers; got "
            f"{part!r}"
        )
    checks.check_known_shape("action_head", name, spec)
    if 0 in spec.shape:
        raise _empty(name, part)
    if floating:
        return _normal_of(name, spec, squash, *scales)
    return _choices_of(name, spec)


def _choices_of(name: str, spec: specs.BoundedTensorSpec) -> Head:
    starts, ends = spec.minimum.ravel().tolist(), spec.maximum.ravel().tolist()
    counts = tuple(end - start + 1 for start, end in zip(starts, ends, strict=True))
    if max(counts) > _MAX_CHOICES:
        raise ValueError(
            f"`action_head`: `{name}` expected choices of at most "
            f"{_MAX_CHOICES} options; got {spec}; bound them or quantize"
        )
    shape = tuple(spec.shape)
    table = shape if len(shape) > 1 else ()
    return action_heads.CategoricalHead(
        counts, tuple(starts), not shape, spec.dtype.name, table
    )


def _normal_of(name: str, spec: Any, squash: bool | None, *scales: Any) -> Head:
    bounds = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
    low, high = (np.broadcast_to(bound, spec.shape).ravel() for bound in bounds)
    finite = bool((np.isfinite(low) & np.isfinite(high) & (low < high)).all())
    if squash and not finite:
        raise _no_squash(spec)
    if squash is None and not (finite or np.isinf([low, high]).all()):
        raise ValueError(
            f"`action_head`: `{name}` expected floats with finite bounds, low < "
            f"high, or without any; got {spec}; wrap in gymnasium's TransformAction"
        )
    shape, squash = tuple(spec.shape), finite if squash is None else squash
    bounds = tuple(low.tolist()), tuple(high.tolist())
    return action_heads.NormalHead(*bounds, shape, spec.dtype.name, squash, *scales)


def _empty(name: str, given: Any) -> ValueError:
    return ValueError(
        f"`action_head`: `{name}` must hold a number at least; got {given}"
    )


def _no_squash(given: Any) -> ValueError:
    return ValueError(
        "`action_head`: `squash` expected a Box with finite bounds, low < high; got "
        f"{given}"
    )
