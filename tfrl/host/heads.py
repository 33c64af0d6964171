"""From a network's outputs to actions of a space, in NumPy alone.

The heads of `tfrl.distributions` are these with what TensorFlow adds. Parameters and
the two forms of an action, raw and the environment's, are described there.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np


class _Head:
    """What all heads have in common."""

    @property
    def n_outputs(self) -> int:
        raise NotImplementedError

    def _check_width(self, shape: Sequence[int | None]) -> None:
        """Raises unless parameters of this shape are as many as the head takes."""
        if not shape or shape[-1] not in (None, self.n_outputs):
            raise ValueError(
                f"`{type(self).__name__}`: `parameters` must have shape [..., "
                f"{self.n_outputs}], `n_outputs` numbers a row; got {list(shape)}"
            )


@dataclasses.dataclass(frozen=True)
class NumpyCategorical(_Head):
    """Independent choices, one or several, from logits.

    Attributes:
        n_choices: number of options of each choice.
        starts: the environment's number of each first option.
        scalar: whether the action is one number, not a vector of length 1.
        dtype: the environment's dtype.

    Example:
        >>> head = NumpyCategorical((2,), (7,), scalar=True, dtype="int64")
        >>> head.host_to_env(head.host_mode(np.array([[0.0, 1.0]]))).tolist()
        [8]
    """

    n_choices: tuple[int, ...]
    starts: tuple[int, ...]
    scalar: bool
    dtype: str

    @property
    def n_outputs(self) -> int:
        """How many numbers a row the parameters have: a logit for each option."""
        return sum(self.n_choices)

    def plain(self) -> "NumpyCategorical":
        """Returns the head without what a subclass adds."""
        return NumpyCategorical(self.n_choices, self.starts, self.scalar, self.dtype)

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
        edges = np.cumsum(self.n_choices)[:-1]
        chosen = [part.argmax(-1) for part in np.split(parameters, edges, axis=-1)]
        return np.stack(chosen, axis=-1).astype(np.int32)

    def host_to_env(self, actions: np.ndarray) -> np.ndarray:
        """Turns raw actions into the environment's in NumPy."""
        starts = self.starts[0] if self.scalar else np.array(self.starts)
        return (actions + starts).astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class NumpyNormal(_Head):
    """A diagonal normal whose draws are clipped or squashed to the bounds.

    Attributes:
        low: lower bounds, `-inf` for none; flattened.
        high: upper bounds, `inf` for none; flattened.
        shape: shape of the environment's action.
        dtype: the environment's dtype.
        squash: whether tanh maps the draw into the bounds.

    Example:
        >>> head = NumpyNormal((-2.0,), (2.0,), (1,), "float32", squash=True)
        >>> head.host_to_env(np.array([[0.0], [100.0]])).tolist()
        [[0.0], [2.0]]
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str
    squash: bool

    @functools.cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.low, self.dtype), np.array(self.high, self.dtype)

    @functools.cached_property
    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.array(self.low), np.array(self.high)
        return ((high + low) / 2).astype("f"), ((high - low) / 2).astype("f")

    @property
    def n_outputs(self) -> int:
        """How many numbers a row the parameters have: means, then log deviations."""
        return 2 * len(self.low)

    def plain(self) -> "NumpyNormal":
        """Returns the head without what a subclass adds."""
        return NumpyNormal(self.low, self.high, self.shape, self.dtype, self.squash)

    def host_sample(
        self, parameters: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draws raw float32 actions `[N, D]` from `[N, 2 * D]` in NumPy."""
        self._check_width(parameters.shape)
        loc, log_std = np.split(parameters, 2, axis=-1)
        return loc + np.exp(log_std) * rng.standard_normal(loc.shape, np.float32)

    def host_mode(self, parameters: np.ndarray) -> np.ndarray:
        """Returns the raw action at the normal's mode in NumPy."""
        self._check_width(parameters.shape)
        return np.split(parameters, 2, axis=-1)[0]

    def host_to_env(self, actions: np.ndarray) -> np.ndarray:
        """Turns raw actions into the environment's in NumPy."""
        if self.squash:
            centre, half_range = self._scale
            actions = centre + half_range * np.tanh(actions)
        bounded = np.clip(actions.astype(self.dtype), *self._bounds)
        return bounded.reshape(*actions.shape[:-1], *self.shape)
