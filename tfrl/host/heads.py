"""From a network's outputs to actions of a space, in NumPy alone.

The heads of `tfrl.distributions` are these with what TensorFlow adds. Parameters and
the two forms of an action, raw and the environment's, are described there.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfrl.host import _bounded, _masks

# What softplus maps to 1.
UNIT_SOFTPLUS = math.log(math.expm1(1.0))


def epsilon_greedy_logits(
    values: np.ndarray, epsilon: Any, mask: np.ndarray | None = None
) -> np.ndarray:
    """Returns the logits of the choice that explores with probability epsilon.

        logits_i = log((1 - epsilon) [i = argmax values] + epsilon / n_allowed)

    for allowed options i, the first of equals being the argmax; -inf for the others.
    `tfrl.distributions` has the same in TensorFlow.

    Args:
        values: floating `[..., n]`, of all options.
        epsilon: in [0, 1], `[]` or `[...]`.
        mask: `[..., n]` or `[n]` of bool or integers, the options that are allowed;
            None for all.

    Returns:
        `[..., n]`, of the dtype of `values`.

    Raises:
        TypeError: if `mask` is neither bool nor of integers.
        ValueError: if `epsilon` is out of [0, 1], or `mask` does not fit or a row of it
            allows nothing.

    Example:
        >>> np.exp(epsilon_greedy_logits(np.array([1.0, 3.0]), 0.5)).tolist()
        [0.25, 0.75]
    """
    where, allowed = "epsilon_greedy_logits", np.ones(values.shape, bool)
    explored = np.asarray(epsilon, values.dtype)[..., None]
    if not np.all((explored >= 0) & (explored <= 1)):
        raise ValueError(
            f"`{where}`: `epsilon` expected numbers in [0, 1]; got {epsilon!r:.80}"
        )
    if mask is not None:
        mask = np.asarray(mask)
        _masks.check(where, mask.dtype, mask.shape, values.shape)
        allowed = np.broadcast_to(_masks.as_bools(where, mask), values.shape)
    best = np.where(allowed, values, -np.inf).argmax(-1)
    share = explored / allowed.sum(-1, keepdims=True, dtype=values.dtype)
    greedy = np.arange(values.shape[-1]) == best[..., None]
    with np.errstate(divide="ignore"):
        return np.log(np.where(allowed, share + (1 - explored) * greedy, 0))


def _split(values: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Cuts the last axis; as `np.split`, which takes ten times as long."""
    ends = itertools.accumulate(sizes)
    return [values[..., end - n : end] for n, end in zip(sizes, ends, strict=True)]


class _Head:
    """What all heads have in common."""

    @property
    def is_mirrored(self) -> bool:
        """Whether it acts in NumPy by itself, not by a subclass in TensorFlow."""
        return True

    @property
    def n_outputs(self) -> int:
        raise NotImplementedError

    @property
    def n_options(self) -> int:
        """How many options all choices have together: the width of a mask."""
        return 0

    @property
    def n_log_stds(self) -> int:
        """How many parameters, at the end, are (log) standard deviations.

        Where they depend on no observation, a network gives the others alone, and a
        vector of so many is learned beside it.
        """
        return 0

    @property
    def has_log_std(self) -> bool:
        """Whether parameters at the end are (log) standard deviations."""
        return self.n_log_stds > 0

    def _check_width(self, shape: _masks.Shape) -> None:
        """Raises unless parameters of this shape are as many as the head takes."""
        if shape is not None and not (shape and shape[-1] in (None, self.n_outputs)):
            raise ValueError(
                f"`{type(self).__name__}`: `parameters` must have shape [..., "
                f"{self.n_outputs}], `n_outputs` numbers a row; got {list(shape)}"
            )

    def _check_mask(
        self, dtype: np.dtype, shape: _masks.Shape, parameters: _masks.Shape
    ) -> None:
        """Raises unless a mask fits parameters of this shape."""
        options = None if parameters is None else [*parameters[:-1], self.n_options]
        _masks.check(type(self).__name__, dtype, shape, options)

    def _check_actions(
        self, shape: _masks.Shape, parameters: _masks.Shape, inner: Sequence[int]
    ) -> None:
        """Raises unless raw actions, of an inner shape each, fit the parameters."""
        wanted = None if parameters is None else [*parameters[:-1], *inner]
        if not _masks.fits(shape, wanted):
            raise ValueError(
                f"`{type(self).__name__}`: `actions` must have shape {wanted}, one for "
                f"each row of parameters; got {shape}"
            )

    def plain(self) -> Any:
        """Returns the head without what a subclass adds.

        Raises:
            TypeError: if the subclass changes something, so that this is another.
        """
        kind: Any = next(x for x in type(self).__mro__ if x.__module__ == __name__)
        given = {x.name: getattr(self, x.name) for x in dataclasses.fields(kind)}
        if "parts" in given:
            given["parts"] = tuple(part.plain() for part in given["parts"])
        return kind(**given)

    def _check_temperature(self, temperature: Any) -> None:
        if isinstance(temperature, int | float) and not temperature > 0:
            raise ValueError(
                f"`{type(self).__name__}`: `temperature` expected a number > 0; got "
                f"{temperature}; `mode` takes the best action"
            )


@dataclasses.dataclass(frozen=True)
class NumpyCategorical(_Head):
    """Independent choices, one or several, from logits.

    Attributes:
        n_choices: number of options of each choice.
        starts: the environment's number of each first option.
        scalar: whether the action is one number, not a vector of length 1.
        dtype: the environment's dtype.
        table: shape of choices that stand in several axes, which `n_choices` lists
            flat; `()` for one number or a vector.

    Example:
        >>> head = NumpyCategorical((2,), (7,), scalar=True, dtype="int64")
        >>> head.host_to_env(head.host_mode(np.array([[0.0, 1.0]]))).tolist()
        [8]
    """

    n_choices: tuple[int, ...]
    starts: tuple[int, ...]
    scalar: bool
    dtype: str
    table: tuple[int, ...] = ()

    @functools.cached_property
    def _first(self) -> np.ndarray:
        return np.reshape(self.starts, self.shape)

    @functools.cached_property
    def _counts(self) -> np.ndarray:
        return np.array(self.n_choices)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""
        return () if self.scalar else self.table or (len(self.n_choices),)

    @functools.cached_property
    def n_outputs(self) -> int:
        """How many numbers a row the parameters have: a logit for each option."""
        return sum(self.n_choices)

    @property
    def n_options(self) -> int:
        """How many options all choices have together: the width of a mask."""
        return self.n_outputs

    def _host_split(self, values: np.ndarray) -> list[np.ndarray]:
        return _split(values, self.n_choices)

    def host_sample(
        self, parameters: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draws raw int32 actions `[N, ...]` from logits `[N, n_outputs]` in NumPy.

        The index of the largest of `logits + G`, G independent standard Gumbel, is
        distributed as the softmax of the logits.
        """
        return self.host_mode(parameters + rng.gumbel(size=parameters.shape))

    def host_mode(self, parameters: np.ndarray) -> np.ndarray:
        """Returns the most probable raw action in NumPy."""
        self._check_width(parameters.shape)
        if self.scalar:
            return parameters.argmax(-1).astype(np.int32)
        chosen = [part.argmax(-1) for part in self._host_split(parameters)]
        flat = np.stack(chosen, axis=-1).astype(np.int32)
        return flat.reshape(*flat.shape[:-1], *self.shape)

    def host_log_prob(self, parameters: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Returns the log-mass `[N]` of raw actions in NumPy."""
        self._check_width(parameters.shape)
        actions, outer = np.asarray(actions), parameters.shape[:-1]
        self._check_actions(actions.shape, parameters.shape, self.shape)
        self._check_choices(actions.dtype)
        columns = actions.reshape(-1, len(self.n_choices)).astype(int)
        if np.count_nonzero((columns < 0) | (columns >= self._counts)):
            raise ValueError(
                f"`{type(self).__name__}`: `actions` expected choices from 0 on, of "
                f"{self.n_choices} options; got {actions.min()} to {actions.max()}"
            )
        flat, rows = parameters.reshape(-1, self.n_outputs), np.arange(len(columns))
        total = np.zeros(len(columns), parameters.dtype)
        for logits, column in zip(self._host_split(flat), columns.T, strict=True):
            shifted = logits - logits.max(-1, keepdims=True)
            total += shifted[rows, column] - np.log(np.exp(shifted).sum(-1))
        return total.reshape(outer)

    def _check_choices(self, dtype: np.dtype) -> None:
        """Raises unless raw actions are of bools or integers."""
        if dtype.kind not in "biu":
            raise TypeError(
                f"`{type(self).__name__}`: `actions` expected integers, as they are "
                f"choices; got {dtype}"
            )

    def host_masked(self, parameters: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Returns logits of which those of forbidden options are -inf, in NumPy."""
        self._check_width(parameters.shape)
        mask = np.asarray(mask)
        self._check_mask(mask.dtype, mask.shape, parameters.shape)
        mask = mask.astype(bool) & (parameters != -np.inf)
        for part in self._host_split(mask):
            _masks.as_bools(type(self).__name__, part)
        return np.where(mask, parameters, np.array(-np.inf, parameters.dtype))

    def host_tempered(self, parameters: np.ndarray, temperature: float) -> np.ndarray:
        """Returns logits divided by the temperature in NumPy."""
        self._check_temperature(temperature)
        return parameters / np.asarray(temperature, parameters.dtype)

    def host_to_env(self, actions: np.ndarray) -> np.ndarray:
        """Turns raw actions into the environment's in NumPy."""
        return (actions + self._first).astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class NumpyNormal(_bounded.Bounded, _Head):
    """A diagonal normal whose draws are clipped or squashed to the bounds.

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
        >>> head = NumpyNormal((-2.0,), (2.0,), (1,), "float32", squash=True)
        >>> head.host_to_env(np.array([[0.0], [100.0]])).tolist()
        [[0.0], [2.0]]
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str
    squash: bool = False
    init_scale: float | None = None
    min_scale: float = 1e-4

    @functools.cached_property
    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.array(self.low), np.array(self.high)
        return ((high + low) / 2).astype("f"), ((high - low) / 2).astype("f")

    @property
    def n_outputs(self) -> int:
        """How many numbers a row the parameters have: means, then deviations."""
        return 2 * len(self.low)

    @property
    def n_log_stds(self) -> int:
        """How many parameters, at the end, are (log) standard deviations: half."""
        return len(self.low)

    def _host_split(self, parameters: np.ndarray) -> list[np.ndarray]:
        self._check_width(parameters.shape)
        return _split(parameters, [len(self.low)] * 2)

    def _host_deviation(self, free: np.ndarray) -> np.ndarray:
        if self.init_scale is None:
            return np.exp(free)
        slope = self.init_scale - self.min_scale
        return self.min_scale + slope * np.logaddexp(0, free + UNIT_SOFTPLUS)

    def host_sample(
        self, parameters: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draws raw float32 actions `[N, D]` from `[N, 2 * D]` in NumPy."""
        loc, free = self._host_split(parameters)
        deviation = self._host_deviation(free)
        return loc + deviation * rng.standard_normal(loc.shape, np.float32)

    def host_mode(self, parameters: np.ndarray) -> np.ndarray:
        """Returns the raw action at the normal's mode in NumPy."""
        return self._host_split(parameters)[0]

    def host_log_prob(self, parameters: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Returns the log-density `[N]` of raw actions in NumPy."""
        loc, free = self._host_split(parameters)
        actions = np.asarray(actions)
        self._check_actions(actions.shape, parameters.shape, (len(self.low),))
        deviation = self._host_deviation(free)
        each = -0.5 * np.square((actions - loc) / deviation) - np.log(deviation)
        each -= 0.5 * math.log(2.0 * math.pi)
        if self.squash:
            size = np.abs(actions)
            slope = 2.0 * (math.log(2.0) - size - np.log1p(np.exp(-2.0 * size)))
            each -= slope + np.log(self._scale[1])
        return each.sum(-1)

    def host_masked(self, parameters: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Returns the parameters: there is nothing that a mask `[..., 0]` forbids."""
        mask = np.asarray(mask)
        self._check_mask(mask.dtype, mask.shape, parameters.shape)
        return parameters

    def host_tempered(self, parameters: np.ndarray, temperature: float) -> np.ndarray:
        """Returns parameters of deviations times the temperature in NumPy.

        Those of an `init_scale` stay at `min_scale` at least.
        """
        self._check_temperature(temperature)
        loc, free = self._host_split(parameters)
        if self.init_scale is None:
            return np.concatenate(
                [loc, free + np.log(temperature)], -1, dtype=free.dtype
            )
        rest = temperature * self._host_deviation(free) - self.min_scale
        share = rest / (self.init_scale - self.min_scale)
        share = np.maximum(share, np.finfo(free.dtype).tiny)
        # The inverse of softplus, which does not overflow.
        free = share + np.log(-np.expm1(-share)) - UNIT_SOFTPLUS
        return np.concatenate([loc, free], -1, dtype=loc.dtype)

    def host_to_env(self, actions: np.ndarray) -> np.ndarray:
        """Turns raw actions into the environment's in NumPy."""
        if self.squash:
            centre, half_range = self._scale
            actions = centre + half_range * np.tanh(actions)
        low, high = self._limits(actions.dtype)
        # As `np.clip` in half of its time on a few rows.
        bounded = np.minimum(np.maximum(actions.astype(low.dtype), low), high)
        shaped = bounded.reshape(*actions.shape[:-1], *self.shape)
        return shaped.astype(self.dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class NumpyComposite(_Head):
    """Independent heads of the parts of a Dict or Tuple space.

    Attributes:
        parts: heads, which may be composite, in the order of `tf.nest`.
        keys: of a Dict space, sorted; None for a Tuple space.

    Example:
        >>> press = NumpyCategorical((2,), (0,), scalar=True, dtype="int64")
        >>> steer = NumpyNormal((-2.0,), (2.0,), (1,), "float32", squash=True)
        >>> head = NumpyComposite((press, steer), ("press", "steer"))
        >>> raw = head.host_mode(np.array([[0.0, 1.0, 100.0, 0.0]]))
        >>> {key: part.tolist() for key, part in head.host_to_env(raw).items()}
        {'press': [1], 'steer': [[2.0]]}
    """

    parts: tuple[Any, ...]
    keys: tuple[Any, ...] | None = None

    @functools.cached_property
    def n_outputs(self) -> int:
        """How many numbers a row the parameters have."""
        return sum(part.n_outputs for part in self.parts)

    @functools.cached_property
    def n_options(self) -> int:
        """How many options all choices have together: the width of a mask."""
        return sum(part.n_options for part in self.parts)

    @functools.cached_property
    def n_log_stds(self) -> int:
        """How many parameters, at the end, are (log) standard deviations."""
        return sum(part.n_log_stds for part in self.parts)

    @property
    def is_mirrored(self) -> bool:
        """Whether all parts act in NumPy by themselves."""
        return all(part.is_mirrored for part in self.parts)

    @property
    def squash(self) -> bool:
        """Whether tanh maps draws of a part into its bounds."""
        return any(getattr(part, "squash", False) for part in self.parts)

    @functools.cached_property
    def _sizes(self) -> list[tuple[int, int]]:
        """How many parameters of each part are no deviations, and how many are."""
        parts = [(part.n_outputs, part.n_log_stds) for part in self.parts]
        return [(n - n_log_stds, n_log_stds) for n, n_log_stds in parts]

    def _packed(self, values: Sequence[Any]) -> Any:
        if self.keys is None:
            return tuple(values)
        return dict(zip(self.keys, values, strict=True))

    def _unpacked(self, nest: Any) -> list[Any]:
        if self.keys is None:
            fits = isinstance(nest, tuple | list) and len(nest) == len(self.parts)
        else:
            fits = isinstance(nest, Mapping) and nest.keys() == {*self.keys}
        if not fits:
            kind = f"a dict of {list(self.keys)}" if self.keys else "a tuple of "
            kind += "" if self.keys else str(len(self.parts))
            raise ValueError(
                f"`{type(self).__name__}`: `actions` expected {kind}; got {nest!r:.80}"
            )
        return list(nest) if self.keys is None else [nest[key] for key in self.keys]

    def _host_split(
        self, parameters: Any, cut: Any = _split, joined: Any = np.concatenate
    ) -> list[Any]:
        """Cuts parameters into those of the parts, by functions of any library."""
        free, last = zip(*self._sizes, strict=True)
        pieces = cut(parameters, [*free, *last])
        pairs = zip(pieces, pieces[len(free) :], last, strict=False)
        return [joined([one, two], -1) if n else one for one, two, n in pairs]

    def _host_joined(
        self, parameters: list[Any], cut: Any = _split, joined: Any = np.concatenate
    ) -> Any:
        pairs = [cut(x, n) for x, n in zip(parameters, self._sizes, strict=True)]
        free, last = zip(*pairs, strict=True)
        return joined([*free, *last], -1)

    def _host_each(self, method: str, parameters: Any, *columns: Any) -> list[Any]:
        self._check_width(parameters.shape)
        return self._of_parts(method, self._host_split(parameters), *columns)

    def _of_parts(self, method: str, *columns: Any) -> list[Any]:
        """Calls a method of all parts, with one of each column."""
        rows = zip(self.parts, *columns, strict=True)
        return [getattr(part, method)(*arguments) for part, *arguments in rows]

    def host_sample(self, parameters: np.ndarray, rng: np.random.Generator) -> Any:
        """Draws a nest of raw actions from `[N, n_outputs]` in NumPy."""
        columns = [rng] * len(self.parts)
        return self._packed(self._host_each("host_sample", parameters, columns))

    def host_mode(self, parameters: np.ndarray) -> Any:
        """Returns the nest of the parts' modes in NumPy."""
        return self._packed(self._host_each("host_mode", parameters))

    def host_log_prob(self, parameters: np.ndarray, actions: Any) -> np.ndarray:
        """Returns the sum `[N]` of the parts' log-probabilities in NumPy."""
        columns = self._unpacked(actions)
        return np.sum(self._host_each("host_log_prob", parameters, columns), axis=0)

    def host_masked(self, parameters: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Returns parameters whose logits of forbidden options are -inf, in NumPy."""
        mask = np.asarray(mask)
        self._check_mask(mask.dtype, mask.shape, parameters.shape)
        masks = _split(mask, [part.n_options for part in self.parts])
        return self._host_joined(self._host_each("host_masked", parameters, masks))

    def host_tempered(self, parameters: np.ndarray, temperature: float) -> np.ndarray:
        """Returns the parameters of all parts at a temperature in NumPy."""
        columns = [temperature] * len(self.parts)
        return self._host_joined(self._host_each("host_tempered", parameters, columns))

    def host_to_env(self, actions: Any) -> Any:
        """Turns a nest of raw actions into the environment's in NumPy."""
        return self._packed(self._of_parts("host_to_env", self._unpacked(actions)))
