"""Quantization of continuous actions: levels, and the bins around them."""

from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import compile, spaces, specs

# In the logarithmic space of a range with 0 in it, the widest bin is that many times
# as wide as the narrowest, about.
_LOG_CONTRAST = 100.0


class ActionQuantizer:
    """Maps continuous actions to indices of levels, and indices to levels.

    The range of each element of the action, from its minimum to its maximum, is cut
    into bins that are equally wide in a space `y`:

        "uniform":  y = a
        "log":      y = sign(a) log|a|                 where the range excludes 0
                    y = sign(a) log(1 + 100 |a| / m)   otherwise,
                    m = max(|minimum|, |maximum|)

    so that "log" has fine bins near 0 and bins that grow by a constant factor away from
    it, whatever the unit of the action. With `n = action_bins` and `linspace` in `y`,

        "center":    levels = linspace(min + w / 2, max - w / 2, n), the centres of bins
                     of width w = (max - min) / n
        "boundary":  levels = linspace(min, max, n), where bins begin; the last bin is
                     the maximum alone

    A bin has its lower boundary and not its upper one. What lies outside the range
    belongs to the first or the last bin. `action_to_ind(ind_to_action(i))` is `i`, with
    no exception.

    Args:
        action_spec: floating-point spec of rank 1 or more with finite bounds, which may
            differ between elements; or the Gymnasium `Box` it would come from.
        sampling_method: "uniform" or "log".
        action_bins: number of levels, at least 2.
        rep_mode: "center" or "boundary".

    Raises:
        TypeError: if `action_spec` has no bounds or is not floating-point, or
            `action_bins` is no int.
        ValueError: if a choice is unknown, the spec is a scalar or has infinite bounds,
            there are less than 2 levels, or so many that the dtype cannot tell them
            apart.

    Example:
        >>> spec = specs.BoundedTensorSpec([2], tf.float32, -1.0, 1.0)
        >>> quantizer = ActionQuantizer(spec, action_bins=4)
        >>> quantizer.action_to_ind([[-1.0, 0.3]]).numpy()
        array([[0, 2]])
        >>> quantizer.ind_to_action([[0, 2]]).numpy()
        array([[-0.75,  0.25]], dtype=float32)
        >>> fine = ActionQuantizer(spec, "log", 5, "boundary")
        >>> fine.levels.round(2)
        array([-1.  , -0.09,  0.  ,  0.09,  1.  ], dtype=float32)
    """

    def __init__(
        self,
        action_spec: Any,
        sampling_method: str = "uniform",
        action_bins: int = 7,
        rep_mode: str = "center",
    ) -> None:
        where = "ActionQuantizer"
        if isinstance(action_spec, gym.Space):
            action_spec = spaces.spec_from_space(action_spec)
        kinds = specs.BoundedTensorSpec, "a BoundedTensorSpec or a Box"
        checks.check_type(where, "action_spec", action_spec, *kinds)
        checks.check_floating(where, "action_spec", action_spec)
        checks.check_rank(where, "action_spec", action_spec, at_least=1)
        checks.check_known_shape(where, "action_spec", action_spec)
        checks.check_finite(where, "action_spec.minimum", action_spec.minimum)
        checks.check_finite(where, "action_spec.maximum", action_spec.maximum)
        checks.check_one_of(
            where, "sampling_method", sampling_method, ("uniform", "log")
        )
        checks.check_one_of(where, "rep_mode", rep_mode, ("center", "boundary"))
        self._bins = checks.check_whole_number(where, "action_bins", action_bins, low=2)
        self._spec = action_spec
        levels, edges = _levels_and_edges(
            action_spec, sampling_method, self._bins, rep_mode
        )
        # One row for all elements of the action where they have the same bounds.
        is_uniform = bool(
            (levels == levels[:, :1]).all() and (edges == edges[:, :1]).all()
        )
        rows = 1 if is_uniform else levels.shape[1]
        self._element_shape = tf.TensorShape([]) if is_uniform else action_spec.shape
        self._levels, self._edges = levels[:, :rows].T, edges[:, :rows].T

    @property
    def action_bins(self) -> int:
        """The number of levels."""
        return self._bins

    @property
    def levels(self) -> np.ndarray:
        """The levels in ascending order.

        `[action_bins]` where all elements of the action have the same bounds, else
        `[action_bins, *action_spec.shape]`.
        """
        return self._levels.T.reshape([self._bins, *self._element_shape]).copy()

    def action_to_ind(self, action: Any) -> tf.Tensor:
        """Returns the indices of the bins that actions lie in.

        Args:
            action: `[..., *action_spec.shape]` floating-point; of any shape where all
                elements have the same bounds.

        Returns:
            int64 of the same shape, in [0, action_bins - 1]; not differentiable. A NaN
            that shows only when a graph runs has the index -1, which is no bin.

        Raises:
            TypeError: if `action` is not floating-point.
            ValueError: if its shape does not end in that of the spec, or a known action
                is NaN.
        """
        where = "ActionQuantizer.action_to_ind"
        action = checks.as_tensor(where, "action", action, None, self._spec.dtype)
        checks.check_floating(where, "action", action)
        self._check_shape(where, "action", action)
        checks.check_within(where, "action", action, -np.inf, np.inf)
        is_double = tf.float64 in (action.dtype, self._spec.dtype)
        wide = tf.float64 if is_double else tf.float32  # holds every value exactly
        edges = self._edges.astype(wide.as_numpy_dtype)
        return _bins_of(tf.cast(action, wide), edges)

    def ind_to_action(self, action_ind: Any) -> tf.Tensor:
        """Returns the levels that indices stand for.

        Args:
            action_ind: `[..., *action_spec.shape]` integers in [0, action_bins - 1]; of
                any shape where all elements have the same bounds.

        Returns:
            Actions of the spec's dtype and the same shape.

        Raises:
            TypeError: if `action_ind` is not of integers.
            ValueError: if its shape does not end in that of the spec, or an index that
                is known is out of range. What is not known while tracing is not
                checked.
        """
        where = "ActionQuantizer.ind_to_action"
        action_ind = checks.as_tensor(where, "action_ind", action_ind)
        if not action_ind.dtype.is_integer:
            raise TypeError(
                f"`{where}`: `action_ind` expected integers; "
                f"got {action_ind.dtype.name}; cast it with tf.cast"
            )
        self._check_shape(where, "action_ind", action_ind)
        checks.check_within(where, "action_ind", action_ind, 0, self._bins - 1)
        return _levels_at(tf.cast(action_ind, tf.int64), self._levels)

    def _check_shape(self, where: str, name: str, value: tf.Tensor) -> None:
        if value.shape.rank is not None:
            operands.axes_before(where, name, value, self._element_shape)


def _levels_and_edges(
    spec: specs.BoundedTensorSpec, sampling_method: str, bins: int, rep_mode: str
) -> tuple[np.ndarray, np.ndarray]:
    """The levels `[bins, n]` and, for all bins but the first, where each begins."""
    low = spec.minimum.astype(np.float64).reshape(-1)
    high = spec.maximum.astype(np.float64).reshape(-1)
    if rep_mode == "center":
        places = np.arange(2 * bins + 1) / (2 * bins)
        points = _points(low, high, places, sampling_method)
        points = points.astype(spec.dtype.as_numpy_dtype)
        levels, edges = points[1::2], points[2:-1:2]
    else:
        places = np.arange(bins) / (bins - 1)
        points = _points(low, high, places, sampling_method)
        levels = points.astype(spec.dtype.as_numpy_dtype)
        edges = levels[1:]
    if not np.all((levels[:-1] < edges) & (edges <= levels[1:])):
        raise ValueError(
            f"`ActionQuantizer`: `action_bins` expected levels that {spec.dtype.name} "
            f"tells apart between {spec.minimum} and {spec.maximum}; got {bins}; "
            "use fewer bins, a wider range or a wider dtype"
        )
    return levels, edges


def _points(
    low: np.ndarray, high: np.ndarray, places: np.ndarray, sampling_method: str
) -> np.ndarray:
    """Points at shares of the way from low to high, `[len(places), n]`."""
    first, last = low, high
    if sampling_method == "log":
        most = np.maximum(np.abs(low), np.abs(high))
        one_sided = np.sign(low) * np.sign(high) > 0
        unit = np.where(most > 0, most, 1.0) / _LOG_CONTRAST
        first, last = (_to_log(bound, unit, one_sided) for bound in (low, high))
    share = places[:, np.newaxis]
    points = first * (1.0 - share) + last * share
    if sampling_method == "log":
        points = _from_log(points, unit, one_sided, np.sign(low + high))
    points[places == 0.0], points[places == 1.0] = low, high
    return points


def _to_log(a: np.ndarray, unit: np.ndarray, one_sided: np.ndarray) -> np.ndarray:
    size = np.abs(a)
    plain = np.log(np.where(one_sided, size, 1.0))
    return np.sign(a) * np.where(one_sided, plain, np.log1p(size / unit))


def _from_log(
    y: np.ndarray, unit: np.ndarray, one_sided: np.ndarray, sign: np.ndarray
) -> np.ndarray:
    around_zero = np.sign(y) * unit * np.expm1(np.abs(y))
    return np.where(one_sided, sign * np.exp(sign * y), around_zero)


@compile.compiled
def _bins_of(action: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
    rows = tf.transpose(tf.reshape(action, [-1, tf.shape(edges)[0]]))
    bins = tf.searchsorted(edges, rows, side="right", out_type=tf.int64)
    bins = tf.where(tf.math.is_nan(rows), tf.constant(-1, tf.int64), bins)
    return tf.reshape(tf.transpose(bins), tf.shape(action))


@compile.compiled
def _levels_at(indices: tf.Tensor, levels: tf.Tensor) -> tf.Tensor:
    rows = tf.transpose(tf.reshape(indices, [-1, tf.shape(levels)[0]]))
    found = tf.gather(levels, rows, batch_dims=1)
    return tf.reshape(tf.transpose(found), tf.shape(indices))
