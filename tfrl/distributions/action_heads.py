"""From a network's outputs to actions of a space, in TensorFlow and in NumPy.

A head speaks of two forms of an action. The *raw* action is what is drawn and what a
learner stores: its log-probability is exact and finite. The *environment's* action is
what `env.step` takes: clipped or squashed to the bounds, of the space's dtype. Heads
are hashable configuration without weights; their methods `host_...` need no TensorFlow,
and only those that return distributions load TensorFlow Probability.
"""

import dataclasses
import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws, precision
from tfrl.core import random
from tfrl.distributions import _masks, _own_heads
from tfrl.host import heads

# Nodes and weights of E[f(z)], z standard normal, by equal steps. Where f bends as
# log tanh' does at great deviations, they err a hundredth of Gauss-Hermite's.
_NODES = np.linspace(-5.0, 5.0, 48)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_cut = functools.partial(tf.split, axis=-1)


class _InTensorFlow:
    """What heads have in common in TensorFlow: checks, and distributions by request."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        _own_heads.bridge(cls)

    @property
    def _families(self) -> Any:
        """What makes distributions of TFP, which nothing else here needs."""
        return importlib.import_module("tfrl.distributions._head_distributions")

    def _given(self: Any, parameters: Any) -> tf.Tensor:
        parameters = tf.convert_to_tensor(parameters)
        checks.check_floating(type(self).__name__, "parameters", parameters)
        self._check_width(_known(parameters.shape))
        return parameters

    def _given_mask(self: Any, mask: Any, parameters: tf.Tensor) -> tf.Tensor:
        mask = tf.convert_to_tensor(mask)
        dtype = np.dtype(mask.dtype.as_numpy_dtype)
        self._check_mask(dtype, _known(mask.shape), _known(parameters.shape))
        # LiteRT splits no bools.
        return tf.cast(mask, tf.int32)

    def _given_actions(
        self: Any, actions: Any, parameters: Any, inner: Any, dtype: Any = None
    ) -> tf.Tensor:
        actions = tf.convert_to_tensor(actions, dtype_hint=dtype)
        shape = _known(tf.convert_to_tensor(parameters).shape)
        self._check_actions(_known(actions.shape), shape, inner)
        return actions


@dataclasses.dataclass(frozen=True)
class CategoricalHead(heads.NumpyCategorical, _InTensorFlow):
    """Independent choices, one or several, from logits.

    `log_prob(a) = sum_i log softmax(logits_i)[a_i]`. Serves Discrete (a scalar action),
    MultiDiscrete, MultiBinary and a Box of integers (an array of choices).

    Attributes:
        n_choices: number of options of each choice.
        starts: the environment's number of each first option.
        scalar: whether the action is one number, not a vector of length 1.
        dtype: the environment's dtype.
        table: shape of choices that stand in several axes, which `n_choices` lists
            flat; `()` for one number or a vector.

    Example:
        >>> head = CategoricalHead((2,), (0,), scalar=True, dtype="int64")
        >>> head.mode(tf.constant([[0.0, 1.0]])).numpy().tolist()
        [1]
        >>> head.mode(head.masked([[0.0, 1.0]], [[True, False]])).numpy().tolist()
        [0]
    """

    def distribution(self, parameters: tf.Tensor) -> Any:
        """Returns the TFP distribution of raw actions for logits `[..., n_outputs]`.

        Raises:
            ValueError: if there are not `n_outputs` of them.
            TypeError: if they are not floating.
        """
        return self._families.choices(self._table(parameters), 0, tf.int32, self.shape)

    def env_distribution(self, parameters: tf.Tensor) -> Any:
        """Returns the TFP distribution of the environment's actions, of int32 or int64.

        It scores integers of every dtype, so those of `to_env` too.

        Raises: as of `distribution`.
        """
        dtype = tf.int64 if self.dtype == "int64" else tf.int32
        table = self._table(parameters, self.starts)
        return self._families.choices(table, min(self.starts), dtype, self.shape)

    def _table(self, parameters: Any, starts: Sequence[int] | None = None) -> tf.Tensor:
        """Logits `[..., *shape, n]`, -inf where a choice has less than n options.

        By `starts` all choices lie in one range, from the least of them on.
        """
        logits = self._given(parameters)
        if self.scalar:
            return logits
        starts = starts or (0,) * len(self.n_choices)
        before = [start - min(starts) for start in starts]
        width = max(map(int.__add__, before, self.n_choices))
        outer = [[0, 0]] * (logits.shape.rank - 1)
        ends = [[x, width - x - n] for x, n in zip(before, self.n_choices, strict=True)]
        padded = [
            tf.pad(part, [*outer, end], constant_values=-np.inf)
            for part, end in zip(_cut(logits, self.n_choices), ends, strict=True)
        ]
        logits = tf.stack(padded, axis=-2)
        if self.table:
            rows = tf.unstack(tf.shape(logits)[:-2])
            logits = tf.reshape(logits, [*rows, *self.table, width])
        return logits

    def _summed(self, values: tf.Tensor) -> tf.Tensor:
        """The sum over all choices of an action."""
        n_axes = len(self.shape)
        return tf.reduce_sum(values, list(range(-n_axes, 0))) if n_axes else values

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws raw int32 actions with an int32 `[2]` seed."""
        logits = self._table(parameters)
        if logits.dtype != tf.float64:
            logits = tf.cast(logits, tf.float32)
        shares = tf.cumsum(tf.nn.softmax(logits), -1)
        chance = draws.uniform(tf.shape(logits)[:-1], _as_seed(seed), logits.dtype)
        passed = shares <= chance[..., None] * shares[..., -1:]
        return tf.reduce_sum(tf.cast(passed, tf.int32), -1)

    def mode(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the most probable raw action, the first of equals."""
        return tf.argmax(self._table(parameters), -1, tf.int32)

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the entropy in nats, `[...]`."""
        log_probs = tf.math.log_softmax(self._table(parameters))
        probs = tf.exp(log_probs)
        # What has no chance counts nothing, its -inf neither.
        finite = tf.where(tf.equal(probs, 0), tf.zeros_like(probs), log_probs)
        return -self._summed(tf.reduce_sum(probs * finite, axis=-1))

    def log_prob(self, parameters: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns the log-mass of raw actions, bools or integers from 0 on, `[...]`."""
        actions = self._given_actions(actions, parameters, self.shape)
        self._check_choices(np.dtype(actions.dtype.as_numpy_dtype))
        choices, logits = tf.cast(actions, tf.int32), self._table(parameters)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(choices, logits)
        return -self._summed(losses)

    def masked(self, parameters: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns logits of which those of forbidden options are -inf.

        They get no gradient, as of `MaskedCategorical`. The mask is bool or integers,
        `[..., n_options]`. Logits that are -inf already stay so.
        """
        logits = self._given(parameters)
        mask = self._given_mask(mask, logits)
        choices = zip(*(_cut(x, self.n_choices) for x in (logits, mask)), strict=True)
        allowed = [_masks.masked_logits(x, _masks.as_mask(y, x)) for x, y in choices]
        return tf.concat(allowed, axis=-1)

    def tempered(self, parameters: tf.Tensor, temperature: Any) -> tf.Tensor:
        """Returns logits divided by a temperature > 0."""
        self._check_temperature(temperature)
        logits = self._given(parameters)
        return logits / tf.cast(temperature, logits.dtype)

    def to_env(self, actions: tf.Tensor) -> tf.Tensor:
        """Turns raw actions into the environment's."""
        first = tf.constant(self._first.astype(self.dtype))
        return tf.cast(actions, self.dtype) + first

    def from_env(self, actions: tf.Tensor) -> tf.Tensor:
        """Turns the environment's actions into raw ones."""
        offsets = tf.cast(actions, tf.int64) - tf.constant(self._first, tf.int64)
        return tf.cast(offsets, tf.int32)


@dataclasses.dataclass(frozen=True)
class NormalHead(heads.NumpyNormal, _InTensorFlow):
    """A diagonal normal whose draws are clipped or squashed to the bounds.

    The parameters are means and log standard deviations, `[..., 2 * D]`. The raw action
    u is the normal's draw. With `squash` the environment gets

        clip(centre + half_range * tanh(u), low, high)

    and log-probabilities are those of that squashed action,

        log N(u) - sum_i log(half_range_i * (1 - tanh(u_i)^2)),

    finite for every u since u itself is stored. Without it the environment gets
    `clip(u, low, high)` and log-probabilities are the normal's own.

    With `init_scale` the second half of the parameters, r, are no logarithms:

        deviation = min_scale + (init_scale - min_scale) * softplus(r + ln(e - 1))

    which is `init_scale` for r = 0.

    Attributes:
        low: lower bounds, `-inf` for none; flattened.
        high: upper bounds, `inf` for none; flattened.
        shape: shape of the environment's action.
        dtype: the environment's dtype.
        squash: whether tanh maps the draw into the bounds.
        init_scale: standard deviation where its parameter is 0, if that goes through
            softplus; None if it is the logarithm.
        min_scale: with `init_scale`, the least standard deviation.

    Example:
        >>> head = NormalHead((-2.0,), (2.0,), (1,), "float32", squash=True)
        >>> head.to_env(tf.constant([[0.0], [100.0]])).numpy().tolist()
        [[0.0], [2.0]]

    References:
        Haarnoja et al., 2018, Soft Actor-Critic, appendix C, eq. 21.
    """

    def distribution(self, parameters: tf.Tensor) -> Any:
        """Returns the TFP distribution of raw actions, event shape `[D]`.

        Raises:
            ValueError: if there are not `n_outputs` parameters, 2 * D.
            TypeError: if they are not floating.
        """
        loc, free = self._split(parameters)
        return self._families.normal(loc, self._deviation(free))

    def env_distribution(self, parameters: tf.Tensor) -> Any:
        """Returns the TFP distribution of the environment's actions.

        It is a `SquashedNormal` with `squash`, without it the normal, whose draws are
        not clipped. They have the parameters' dtype; floats of every dtype are scored,
        so those of `to_env` too.

        Raises:
            ValueError: if there are not `n_outputs` parameters, 2 * D.
            TypeError: if they are not floating.
        """
        loc, free = (_shaped(part, self.shape) for part in self._split(parameters))
        deviation = self._deviation(free)
        if self.squash:
            low, high = (np.reshape(bound, self.shape) for bound in self._bounds)
            return self._families.squashed_normal(loc, deviation, low, high)
        return self._families.box_normal(loc, deviation, len(self.shape))

    def _split(self, parameters: tf.Tensor) -> list[tf.Tensor]:
        return tf.split(self._given(parameters), 2, axis=-1)

    def _deviation(self, free: tf.Tensor) -> tf.Tensor:
        if self.init_scale is None:
            return tf.exp(free)
        slope = self.init_scale - self.min_scale
        return self.min_scale + slope * tf.math.softplus(free + heads.UNIT_SOFTPLUS)

    def _log_slope(self, actions: tf.Tensor) -> tf.Tensor:
        half_range = tf.constant(self._scale[1], actions.dtype)
        return precision.tanh_log_slope(actions) + tf.math.log(half_range)

    def _log_deviation(self, free: tf.Tensor) -> tf.Tensor:
        return free if self.init_scale is None else tf.math.log(self._deviation(free))

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws raw actions with an int32 `[2]` seed, differentiably."""
        loc, free = self._split(parameters)
        noise = draws.normal(tf.shape(loc), _as_seed(seed), loc.dtype)
        return loc + self._deviation(free) * noise

    def mode(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the raw action at the normal's mode."""
        return self._split(parameters)[0]

    def log_prob(self, parameters: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns the log-density of raw actions, `[...]`."""
        known, inner = self._given(parameters), [len(self.low)]
        actions = self._given_actions(actions, known, inner, known.dtype)
        checks.check_floating(type(self).__name__, "actions", actions)
        actions = tf.cast(actions, known.dtype)
        loc, free = self._split(known)
        gaps = (actions - loc) / self._deviation(free)
        each = -0.5 * tf.square(gaps) - self._log_deviation(free) - _LOG_SQRT_2_PI
        if self.squash:
            each -= self._log_slope(actions)
        return tf.reduce_sum(each, axis=-1)

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the differential entropy in nats, `[...]`.

        With `squash` it is `H(N) + E[sum_i log slope(u_i)]`; the expectation, which has
        no closed form, is a sum over 48 nodes, without random numbers. Per choice it
        errs by less than 1e-3 for log standard deviations up to 2.
        """
        loc, free = self._split(parameters)
        each = self._log_deviation(free) + (0.5 + _LOG_SQRT_2_PI)
        entropy = tf.reduce_sum(each, axis=-1)
        if not self.squash:
            return entropy
        nodes = tf.constant(_NODES[:, None], loc.dtype)
        weights = tf.constant(_WEIGHTS, loc.dtype)
        points = loc[..., None, :] + self._deviation(free)[..., None, :] * nodes
        slopes = tf.reduce_sum(self._log_slope(points), axis=-1)
        return entropy + tf.reduce_sum(slopes * weights, axis=-1)

    def masked(self, parameters: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the parameters: there is nothing that a mask `[..., 0]` forbids."""
        self._given_mask(mask, self._given(parameters))
        return parameters

    def tempered(self, parameters: tf.Tensor, temperature: Any) -> tf.Tensor:
        """Returns parameters of deviations times a temperature > 0.

        Those of an `init_scale` stay at `min_scale` at least.
        """
        self._check_temperature(temperature)
        loc, free = self._split(parameters)
        temperature = tf.cast(temperature, free.dtype)
        if self.init_scale is None:
            return tf.concat([loc, free + tf.math.log(temperature)], axis=-1)
        rest = temperature * self._deviation(free) - self.min_scale
        share = precision.widened(rest / (self.init_scale - self.min_scale))
        share = tf.maximum(share, np.finfo(share.dtype.as_numpy_dtype).tiny)
        # The inverse of softplus, which does not overflow.
        free = share + tf.math.log(-tf.math.expm1(-share)) - heads.UNIT_SOFTPLUS
        return tf.concat([loc, tf.cast(free, loc.dtype)], axis=-1)

    def to_env(self, actions: tf.Tensor) -> tf.Tensor:
        """Turns raw actions into the environment's."""
        actions = tf.convert_to_tensor(actions)
        if self.squash:
            centre, half_range = self._scale
            actions = centre + half_range * tf.tanh(actions)
        low, high = self._limits(actions.dtype.as_numpy_dtype)
        bounded = tf.clip_by_value(tf.cast(actions, low.dtype), low, high)
        return tf.cast(_shaped(bounded, self.shape), self.dtype)

    def from_env(self, actions: tf.Tensor) -> tf.Tensor:
        """Turns the environment's actions into raw ones.

        A squashed action at or beyond a bound counts as the last one before it that
        tanh gives in float32, so that its log-probability is finite.
        """
        actions = tf.convert_to_tensor(actions)
        n_outer = actions.shape.rank - len(self.shape)
        outer = tf.unstack(tf.shape(actions)[:n_outer])
        flat = tf.cast(tf.reshape(actions, [*outer, len(self.low)]), tf.float32)
        if not self.squash:
            return flat
        low, high = (tf.constant(b, tf.float32) for b in (self.low, self.high))
        return precision.unsquash(flat, low, high)


@dataclasses.dataclass(frozen=True)
class CompositeHead(heads.NumpyComposite, _InTensorFlow):
    """Independent heads of the parts of a Dict or Tuple space.

    Actions, raw and the environment's, are nests like the space, whose leaves are as
    the parts have them; log-probabilities and entropies are sums over the parts. The
    parameters of the parts follow each other in the order of `tf.nest`, except that all
    standard deviations stand together at the end, in that order too:

        parameters = [logits or means of each part, deviations of each part]

    Attributes:
        parts: heads, which may be composite, in the order of `tf.nest`.
        keys: of a Dict space, sorted; None for a Tuple space.

    Example:
        >>> head = tfrl.distributions.action_head(gym.spaces.Dict(
        ...     press=gym.spaces.Discrete(2), steer=gym.spaces.Box(-1.0, 1.0, (3,))))
        >>> head.n_outputs, head.n_log_stds, head.n_options
        (8, 3, 2)
        >>> raw = head.sample(tf.zeros([5, 8]), seed=[1, 2])
        >>> {key: part.shape.as_list() for key, part in head.to_env(raw).items()}
        {'press': [5], 'steer': [5, 3]}
    """

    def distribution(self, parameters: tf.Tensor) -> Any:
        """Returns the `Product` of the parts' distributions of raw actions."""
        parts = self._each("distribution", parameters)
        return self._families.product_of(self._packed(parts))

    def env_distribution(self, parameters: tf.Tensor) -> Any:
        """Returns the `Product` of the parts' distributions of actions."""
        parts = self._each("env_distribution", parameters)
        return self._families.product_of(self._packed(parts))

    def _joined(self, parameters: list[tf.Tensor]) -> tf.Tensor:
        return self._host_joined(parameters, _cut, tf.concat)

    def _each(self, method: str, parameters: Any, *columns: Any) -> list[Any]:
        """Calls a method of all parts with their parameters, and one of each column."""
        given = self._host_split(self._given(parameters), _cut, tf.concat)
        return self._of_parts(method, given, *columns)

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> Any:
        """Draws a nest of raw actions with an int32 `[2]` seed."""
        seeds = random.split_seed(seed, len(self.parts))
        return self._packed(self._each("sample", parameters, seeds))

    def mode(self, parameters: tf.Tensor) -> Any:
        """Returns the nest of the parts' modes."""
        return self._packed(self._each("mode", parameters))

    def log_prob(self, parameters: tf.Tensor, actions: Any) -> tf.Tensor:
        """Returns the sum of the parts' log-probabilities of raw actions, `[...]`."""
        columns = self._unpacked(actions)
        return functools.reduce(tf.add, self._each("log_prob", parameters, columns))

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the sum of the parts' entropies in nats, `[...]`."""
        return functools.reduce(tf.add, self._each("entropy", parameters))

    def masked(self, parameters: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns parameters whose logits of forbidden options are out.

        The mask `[..., n_options]` is of the options of all choices, in the order of
        the parts; see `CategoricalHead.masked`.
        """
        sizes = [part.n_options for part in self.parts]
        parameters = self._given(parameters)
        masks = tf.split(self._given_mask(mask, parameters), sizes, axis=-1)
        return self._joined(self._each("masked", parameters, masks))

    def tempered(self, parameters: tf.Tensor, temperature: Any) -> tf.Tensor:
        """Returns the parameters of all parts at a temperature > 0."""
        columns = [temperature] * len(self.parts)
        return self._joined(self._each("tempered", parameters, columns))

    def to_env(self, actions: Any) -> Any:
        """Turns a nest of raw actions into the environment's."""
        return self._packed(self._of_parts("to_env", self._unpacked(actions)))

    def from_env(self, actions: Any) -> Any:
        """Turns a nest of the environment's actions into raw ones."""
        return self._packed(self._of_parts("from_env", self._unpacked(actions)))


def _as_seed(seed: Any) -> tf.Tensor:
    return seed if tf.is_tensor(seed) else random.new_seed(seed)


def _known(shape: tf.TensorShape) -> list[int | None] | None:
    return None if shape.rank is None else shape.as_list()


def _shaped(flat: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """Gives the last axis a shape of its own."""
    if len(shape) == 1:
        return flat
    return tf.reshape(flat, [*tf.unstack(tf.shape(flat)[:-1]), *shape])
