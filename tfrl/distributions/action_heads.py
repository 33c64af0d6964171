"""From a network's outputs to actions of a space, in TensorFlow and in NumPy.

A head speaks of two forms of an action. The *raw* action is what is drawn and what a
learner stores: its log-probability is exact and finite. The *environment's* action is
what `env.step` takes: clipped or squashed to the bounds, of the space's dtype. Heads
are hashable configuration without weights.
"""

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import _squash
from tfrl.host import heads

tfd = tfp.distributions

# Nodes and weights of E[f(z)], z standard normal, by equal steps. Where f bends as
# log tanh' does at great deviations, they err a hundredth of Gauss-Hermite's.
_NODES = np.linspace(-5.0, 5.0, 48)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()


@dataclasses.dataclass(frozen=True)
class CategoricalHead(heads.NumpyCategorical):
    """Independent choices, one or several, from logits.

    `log_prob(a) = sum_i log softmax(logits_i)[a_i]`. Serves Discrete (a scalar action),
    MultiDiscrete and MultiBinary (a vector of choices).

    Attributes:
        n_choices: number of options of each choice.
        starts: the environment's number of each first option.
        scalar: whether the action is one number, not a vector of length 1.
        dtype: the environment's dtype.

    Example:
        >>> head = CategoricalHead((2,), (0,), scalar=True, dtype="int64")
        >>> head.mode(tf.constant([[0.0, 1.0]])).numpy().tolist()
        [1]
    """

    @property
    def has_log_std(self) -> bool:
        """Whether half of the parameters are log standard deviations."""
        return False

    def distribution(self, parameters: tf.Tensor) -> Any:
        """Returns the TFP distribution of raw actions for logits `[..., n_outputs]`.

        Raises:
            ValueError: if there are not `n_outputs` of them.
        """
        parameters = tf.convert_to_tensor(parameters)
        if parameters.shape.rank is not None:
            self._check_width(parameters.shape.as_list())
        if self.scalar:
            return tfd.Categorical(logits=parameters)
        widest = max(self.n_choices)
        padded = [
            tf.pad(
                logits,
                [[0, 0]] * (logits.shape.rank - 1) + [[0, widest - logits.shape[-1]]],
                constant_values=-np.inf,
            )
            for logits in tf.split(parameters, self.n_choices, axis=-1)
        ]
        choices = tfd.Categorical(logits=tf.stack(padded, axis=-2))
        return tfd.Independent(choices, reinterpreted_batch_ndims=1)

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws raw actions with an int32 `[2]` seed."""
        return self.distribution(parameters).sample(seed=seed)

    def mode(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the most probable raw action, the first of equals."""
        return self.distribution(parameters).mode()

    def log_prob(self, parameters: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns the log-mass of raw actions, `[...]`."""
        return self.distribution(parameters).log_prob(actions)

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the entropy in nats, `[...]`."""
        return self.distribution(parameters).entropy()

    def to_env(self, actions: tf.Tensor) -> tf.Tensor:
        """Turns raw actions into the environment's."""
        starts = self.starts[0] if self.scalar else self.starts
        return tf.cast(actions, self.dtype) + tf.constant(starts, self.dtype)

    def from_env(self, actions: tf.Tensor) -> tf.Tensor:
        """Turns the environment's actions into raw ones."""
        starts = self.starts[0] if self.scalar else self.starts
        offsets = tf.cast(actions, tf.int64) - tf.constant(starts, tf.int64)
        return tf.cast(offsets, tf.int32)


@dataclasses.dataclass(frozen=True)
class NormalHead(heads.NumpyNormal):
    """A diagonal normal whose draws are clipped or squashed to the bounds.

    The parameters are means and log standard deviations, `[..., 2 * D]`. The raw action
    u is the normal's draw. With `squash` the environment gets

        clip(centre + half_range * tanh(u), low, high)

    and log-probabilities are those of that squashed action,

        log N(u) - sum_i log(half_range_i * (1 - tanh(u_i)^2)),

    finite for every u since u itself is stored. Without it the environment gets
    `clip(u, low, high)` and log-probabilities are the normal's own.

    Attributes:
        low: lower bounds, `-inf` for none; flattened.
        high: upper bounds, `inf` for none; flattened.
        shape: shape of the environment's action.
        dtype: the environment's dtype.
        squash: whether tanh maps the draw into the bounds.

    Example:
        >>> head = NormalHead((-2.0,), (2.0,), (1,), "float32", squash=True)
        >>> head.to_env(tf.constant([[0.0], [100.0]])).numpy().tolist()
        [[0.0], [2.0]]

    References:
        Haarnoja et al., 2018, Soft Actor-Critic, appendix C, eq. 21.
    """

    @property
    def has_log_std(self) -> bool:
        """Whether half of the parameters are log standard deviations.

        Where they depend on no observation, a network gives the means alone,
        `n_outputs // 2` numbers, and a vector of as many is learned beside it.
        """
        return True

    def distribution(self, parameters: tf.Tensor) -> Any:
        """Returns the TFP distribution of raw actions, event shape `[D]`.

        Raises:
            ValueError: if there are not `n_outputs` parameters, 2 * D.
        """
        loc, log_std = self._split(parameters)
        return tfd.MultivariateNormalDiag(loc, tf.exp(log_std))

    def _split(self, parameters: tf.Tensor) -> list[tf.Tensor]:
        parameters = tf.convert_to_tensor(parameters)
        if parameters.shape.rank is not None:
            self._check_width(parameters.shape.as_list())
        return tf.split(parameters, 2, axis=-1)

    def _log_slope(self, actions: tf.Tensor) -> tf.Tensor:
        half_range = tf.constant(self._scale[1], actions.dtype)
        return _squash.log_slope(actions) + tf.math.log(half_range)

    def sample(self, parameters: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws raw actions with an int32 `[2]` seed; differentiable."""
        return self.distribution(parameters).sample(seed=seed)

    def mode(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the raw action at the normal's mode."""
        return self._split(parameters)[0]

    def log_prob(self, parameters: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Returns the log-density of raw actions, `[...]`."""
        log_probs = self.distribution(parameters).log_prob(actions)
        if self.squash:
            log_probs -= tf.reduce_sum(self._log_slope(actions), axis=-1)
        return log_probs

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the differential entropy in nats, `[...]`.

        With `squash` it is `H(N) + E[sum_i log slope(u_i)]`; the expectation, which has
        no closed form, is a sum over 48 nodes, without random numbers. Per choice it
        errs by less than 1e-3 for log standard deviations up to 2.
        """
        entropy = self.distribution(parameters).entropy()
        if not self.squash:
            return entropy
        loc, log_std = self._split(parameters)
        nodes = tf.constant(_NODES[:, None], parameters.dtype)
        weights = tf.constant(_WEIGHTS, parameters.dtype)
        points = loc[..., None, :] + tf.exp(log_std)[..., None, :] * nodes
        slopes = tf.reduce_sum(self._log_slope(points), axis=-1)
        return entropy + tf.linalg.matvec(slopes, weights)

    def to_env(self, actions: tf.Tensor) -> tf.Tensor:
        """Turns raw actions into the environment's."""
        if self.squash:
            centre, half_range = self._scale
            actions = centre + half_range * tf.tanh(actions)
        # Clipped in the environment's dtype: rounding may lead beyond a bound.
        bounded = tf.clip_by_value(tf.cast(actions, self.dtype), *self._bounds)
        return tf.reshape(bounded, [*tf.unstack(tf.shape(actions)[:-1]), *self.shape])

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
        return _squash.unsquash(flat, low, high)


def action_head(
    action_space: gym.Space, *, squash: bool = False
) -> CategoricalHead | NormalHead:
    """Returns the head that fits an action space.

    Discrete, MultiDiscrete and MultiBinary get a `CategoricalHead`, a float Box gets a
    `NormalHead`.

    Args:
        action_space: of one environment, not of a vector of them.
        squash: squash a Box by tanh instead of clipping; needs finite bounds, low
            below high.

    Returns:
        The head.

    Raises:
        TypeError: if no head fits the space.
        ValueError: if the space holds no number; if `squash` meets an unbounded or
            empty Box or a space that is none.

    Example:
        >>> action_head(gym.spaces.MultiDiscrete([3, 2])).n_outputs
        5
        >>> action_head(gym.spaces.Box(-1.0, 1.0, (4,)), squash=True).n_outputs
        8
    """
    spaces = gym.spaces
    if 0 in (getattr(action_space, "shape", None) or ()):
        raise ValueError(
            "`action_head`: `action_space` must hold a number at least; got "
            f"{action_space}; declare what the environment takes"
        )
    if squash and not (
        isinstance(action_space, spaces.Box)
        and action_space.is_bounded()
        and np.all(action_space.low < action_space.high)
    ):
        raise ValueError(
            "`action_head`: `squash` expected a Box with finite bounds, low < high; "
            f"got {action_space}; leave `squash` False"
        )
    if isinstance(action_space, spaces.Discrete):
        size, start = int(action_space.n), int(action_space.start)
        dtype = np.dtype(action_space.dtype).name
        return CategoricalHead((size,), (start,), scalar=True, dtype=dtype)
    if isinstance(action_space, spaces.MultiDiscrete) and action_space.nvec.ndim == 1:
        return CategoricalHead(
            tuple(map(int, action_space.nvec)),
            tuple(map(int, action_space.start)),
            scalar=False,
            dtype=np.dtype(action_space.dtype).name,
        )
    if isinstance(action_space, spaces.MultiBinary) and len(action_space.shape) == 1:
        size = int(action_space.shape[0])
        dtype = np.dtype(action_space.dtype).name
        return CategoricalHead((2,) * size, (0,) * size, scalar=False, dtype=dtype)
    if isinstance(action_space, spaces.Box) and np.issubdtype(
        action_space.dtype, np.floating
    ):
        return NormalHead(
            tuple(map(float, action_space.low.ravel())),
            tuple(map(float, action_space.high.ravel())),
            tuple(action_space.shape),
            np.dtype(action_space.dtype).name,
            squash=squash,
        )
    raise TypeError(
        "`action_head`: `action_space` expected Discrete, MultiDiscrete or MultiBinary "
        f"of one axis, or a float Box; got {action_space}; flatten or wrap the space"
    )
