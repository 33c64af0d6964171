"""Samplers of discrete actions: epsilon-greedy, multinomial, with lasting noise.

Samplers draw from a stream of their own, which checkpoints and exports with them; a
call with `seed=` leaves the stream alone. The same seed gives the same actions eagerly,
in a graph and under XLA.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws, operands
from tfrl.core import compile, random
from tfrl.exploration import _state
from tfrl.schedules import schedulers

# Most arguments need 5; a root at the very end of its bracket is left to bisection.
_STEPS = 12
# Relative error of the series for x: about its square.
_LOG_SMALL = math.log(1e-5)


class CategoricalSeedSampler(_state.Seeded):
    """Draws actions that stay alike from step to step.

    Each row carries a noise vector `eps`, uniform in (0, 1), from step to step and
    bends the given distribution `pi` by it. In every step a row gets new noise with
    probability `new_noise_prob`, and in the first one, when its state is all zero:

        gamma_k = x with P(c * pi_k, x) = eps_k
        pi'_k = gamma_k / sum_j gamma_j
        action ~ pi'

    with `P` the regularised lower incomplete gamma function and `c` the concentration.
    Over the noise, `gamma_k` has the gamma distribution of shape `c * pi_k`, so `pi'`
    has the distribution Dirichlet(c * pi), with mean `pi` and variance
    `pi (1 - pi) / (c + 1)`: actions follow `pi` in the long run.

    The logarithm of `gamma` is what is computed, so that nothing underflows however
    small `c * pi_k` is. All of it runs under XLA too, which takes some seconds to
    compile the inverse.

    Args:
        num_classes: number of actions, at least 1.
        new_noise_prob: probability of new noise in each step of each row.
        concentration: the factor `c`, greater than 0; the greater it is, the closer
            `pi'` stays to `pi`.
        seed: int, int32 `[2]` tensor or None, see `tfrl.core.new_seed`.

    Attributes:
        state_spec: spec of the state of one row; `zeros_from_spec` makes the first one.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if it is outside its range.

    Example:
        >>> sampler = CategoricalSeedSampler(3, new_noise_prob=0.0, seed=0)
        >>> probs, state = tf.constant([[0.2, 0.3, 0.5]]), tf.zeros([1, 3])
        >>> action, state = sampler(probs, state)
        >>> action.shape, bool(tf.reduce_all(sampler(probs, state)[1] == state))
        (TensorShape([1]), True)

    References:
        Ferguson, 1973, A Bayesian Analysis of Some Nonparametric Problems, section 1
        (the Dirichlet distribution by normalised gamma variables).
    """

    def __init__(
        self,
        num_classes: int,
        new_noise_prob: float = 0.01,
        concentration: float = 1,
        seed: Any = None,
    ) -> None:
        where = "CategoricalSeedSampler"
        n = checks.check_whole_number(where, "num_classes", num_classes, low=1)
        checks.check_within(where, "new_noise_prob", new_noise_prob, 0, 1)
        checks.check_positive(where, "concentration", concentration)
        checks.check_finite(where, "concentration", concentration)
        super().__init__(seed)
        self.state_spec = tf.TensorSpec([n], tf.float32)
        self._new_noise_prob = new_noise_prob
        self._concentration = concentration

    def __call__(
        self, input: Any, state: Any, seed: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws an action for each row.

        Args:
            input: `[B, num_classes]` floating-point weights >= 0 of the actions; they
                need not sum to 1.
            state: `[B, num_classes]` noise that the last call returned, or zeros.
            seed: what `new_seed` takes; None for the sampler's own stream.

        Returns:
            The actions, `[B]` int64, and the new state.

        Raises:
            TypeError: if `input` or `state` is not floating-point.
            ValueError: if a shape does not fit, or a row of known weights has a
                negative or infinite one, or none above 0.
        """
        weights, state = self._checked("CategoricalSeedSampler", input, state)
        renew_seed, noise_seed, action_seed = random.split_seed(self.next_seed(seed), 3)
        state = _with_new_noise(state, self._new_noise_prob, renew_seed, noise_seed)
        logits = _perturbed_logits(weights, state, self._concentration)
        return _draw(logits, action_seed), state

    def perturb(self, input: Any, state: Any) -> tf.Tensor:
        """Returns the distribution `pi'` that given noise makes of a given one.

        What the logarithm of a behaviour policy's probabilities needs: with the state
        that a call returned, it is the distribution that its action was drawn from.

        Args:
            input: `[B, num_classes]` as above.
            state: `[B, num_classes]` noise; it is not renewed.

        Returns:
            `[B, num_classes]` probabilities.

        Raises:
            TypeError: if `input` or `state` is not floating-point.
            ValueError: as above.
        """
        weights, state = self._checked("CategoricalSeedSampler.perturb", input, state)
        return tf.nn.softmax(_perturbed_logits(weights, state, self._concentration))

    def _checked(
        self, where: str, weights: Any, state: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        weights = _checked_weights(where, weights)
        state = operands.floating(where, "state", state)
        wanted = [None, *self.state_spec.shape]
        for name, value in (("input", weights), ("state", state)):
            if not value.shape.is_compatible_with(wanted):
                raise ValueError(
                    f"`{where}`: `{name}` expected shape {wanted}; "
                    f"got {value.shape.as_list()}"
                )
        checks.check_same_shape(where, input=weights, state=state)
        return weights, state


class EpsilonGreedySampler(_state.Seeded):
    """Takes the best action, or now and then any.

        action = argmax_k pi_k    with probability 1 - epsilon, the first of equals
                 ~ pi             with probability epsilon

    Args:
        epsilon_greedy: epsilon in [0, 1], or a schedule of it: a `tfrl.schedules` one,
            or any function without arguments. It is called at each call; in a
            `tf.function` a number that it returns is that of the trace, so let it
            return a tensor (see `tfrl.schedules.Progress`).
        seed: int, int32 `[2]` tensor or None, see `tfrl.core.new_seed`.

    Raises:
        TypeError: if `epsilon_greedy` is neither a number nor a function.
        ValueError: if it is a number outside [0, 1].

    Example:
        >>> sampler = EpsilonGreedySampler(0.0)
        >>> sampler(tf.constant([[0.2, 0.7, 0.1], [0.4, 0.2, 0.4]])).numpy()
        array([1, 0])
    """

    def __init__(
        self,
        epsilon_greedy: float | Callable[..., Any] = 0.1,
        seed: Any = None,
    ) -> None:
        if not callable(epsilon_greedy):
            checks.check_within(
                "EpsilonGreedySampler", "epsilon_greedy", epsilon_greedy, 0, 1
            )
        super().__init__(seed)
        self._epsilon = schedulers.as_scheduler(epsilon_greedy)

    def __call__(self, input: Any, seed: Any = None) -> tf.Tensor:
        """Draws an action for each row.

        Args:
            input: `[B, K]` floating-point weights >= 0 of the actions; they need not
                sum to 1.
            seed: what `new_seed` takes; None for the sampler's own stream.

        Returns:
            `[B]` int64.

        Raises:
            TypeError: if `input` is not floating-point.
            ValueError: if its rank is not 2, or a row of known weights has a negative
                or infinite one, or none above 0.
        """
        weights = _checked_weights("EpsilonGreedySampler", input)
        return _greedy_or_drawn(weights, self._epsilon(), self.next_seed(seed))


class MultinomialSampler(_state.Seeded):
    """Draws actions from the given distributions.

        P(action = k) = w_k / sum_j w_j

    Args:
        seed: int, int32 `[2]` tensor or None, see `tfrl.core.new_seed`.

    Example:
        >>> sampler = MultinomialSampler(seed=0)
        >>> sampler(tf.constant([[0.0, 3.0, 0.0], [5.0, 0.0, 0.0]])).numpy()
        array([1, 0])
    """

    def __init__(self, seed: Any = None) -> None:
        super().__init__(seed)

    def __call__(self, input: Any, seed: Any = None) -> tf.Tensor:
        """Draws an action for each row.

        Args:
            input: `[B, K]` floating-point weights >= 0 of the actions; they need not
                sum to 1.
            seed: what `new_seed` takes; None for the sampler's own stream.

        Returns:
            `[B]` int64.

        Raises:
            TypeError: if `input` is not floating-point.
            ValueError: if its rank is not 2, or a row of known weights has a negative
                or infinite one, or none above 0.
        """
        weights = _checked_weights("MultinomialSampler", input)
        return _draw(tf.math.log(weights), self.next_seed(seed))


def get_epsilon_greedy(config: Any, default: Any = 0.1) -> Any:
    """Returns the epsilon that a configuration asks for, or the run's own.

    Args:
        config: an object with an attribute `epsilon_greedy`: a number in [0, 1], a
            schedule, or None to leave it to the run.
        default: the run's epsilon, likewise a number or a schedule.

    Returns:
        `config.epsilon_greedy`, or `default` where that is None.

    Raises:
        TypeError: if `config` has no such attribute or its value is no number.
        ValueError: if it is a number outside [0, 1].

    Example:
        >>> import types
        >>> get_epsilon_greedy(types.SimpleNamespace(epsilon_greedy=0.05))
        0.05
        >>> get_epsilon_greedy(types.SimpleNamespace(epsilon_greedy=None), default=0.2)
        0.2
    """
    where = "get_epsilon_greedy"
    if not hasattr(config, "epsilon_greedy"):
        raise TypeError(
            f"`{where}`: `config` expected an object with `epsilon_greedy`; "
            f"got {type(config).__name__}"
        )
    own = config.epsilon_greedy
    name, epsilon = ("default", default) if own is None else ("config", own)
    if not callable(epsilon):
        checks.check_within(where, name, epsilon, 0, 1)
    return epsilon


def _checked_weights(where: str, weights: Any) -> tf.Tensor:
    """Weights as float32 or float64."""
    weights = operands.floating(where, "input", weights)
    checks.check_rank(where, "input", weights, exact=2)
    checks.check_within(where, "input", weights, 0, float("inf"))
    checks.check_finite(where, "input", weights)
    if not tf.is_symbolic_tensor(weights):
        checks.check_positive(
            where, "input (largest of each row)", weights.numpy().max(-1)
        )
    return tf.cast(weights, tf.float32) if weights.dtype.size < 4 else weights


@compile.compiled
def _draw(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    noise = draws.gumbel(tf.shape(logits), seed, logits.dtype)
    return tf.argmax(logits + noise, axis=-1)


@compile.compiled
def _greedy_or_drawn(weights: tf.Tensor, epsilon: Any, seed: tf.Tensor) -> tf.Tensor:
    lot_seed, action_seed = random.split_seed(seed, 2)
    lot = draws.uniform(tf.shape(weights)[:1], lot_seed, tf.float32)
    return tf.where(
        lot >= tf.cast(epsilon, tf.float32),
        tf.argmax(weights, axis=-1),
        _draw(tf.math.log(weights), action_seed),
    )


@compile.compiled
def _with_new_noise(
    state: tf.Tensor, prob: Any, renew_seed: tf.Tensor, noise_seed: tf.Tensor
) -> tf.Tensor:
    lot = draws.uniform(tf.shape(state)[:1], renew_seed, tf.float32)
    renewed = (lot < tf.cast(prob, tf.float32)) | tf.reduce_all(state == 0, axis=-1)
    noise = draws.uniform(tf.shape(state), noise_seed, tf.float32)
    return tf.where(renewed[:, tf.newaxis], tf.cast(noise, state.dtype), state)


@compile.compiled
def _perturbed_logits(
    weights: tf.Tensor, state: tf.Tensor, concentration: Any
) -> tf.Tensor:
    """Logarithms of `pi'`, up to a constant per row."""
    dtype = weights.dtype
    share = weights / tf.reduce_max(weights, axis=-1, keepdims=True)  # no overflow
    share /= tf.reduce_sum(share, axis=-1, keepdims=True)
    shape = tf.maximum(tf.cast(concentration, dtype) * share, 1e-30)
    limits = np.finfo(dtype.as_numpy_dtype)
    noise = tf.clip_by_value(tf.cast(state, dtype), limits.tiny, 1.0 - limits.epsneg)
    quantile = _log_gamma_quantile(shape, noise)
    return tf.where(weights > 0, quantile, -math.inf)


def _log_gamma_quantile(shape: tf.Tensor, probability: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the x with P(shape, x) = probability, in (0, 1).

    P is the distribution function of a gamma variable of scale 1. The result is finite
    for every shape > 0 whose logarithm of P at 1 is not beyond the dtype, also where x
    is far below the least number of the dtype.

    Small x come from the series

        P(a, x) = x^a / Gamma(a + 1) * (1 - x a / (a + 1) + ...),

    others from Newton's method, kept by bisection between

        -log(1 - p^(1/a))    and    -log(1 - p^(1/a)) * Gamma(a + 1)^(1/a)

    References:
        Alzer, 1997, On some inequalities for the incomplete gamma function, theorem 1
        (the bracket). Wilson, Hilferty, 1931, The distribution of chi-square (the
        starting point).
    """
    log_power = tf.math.log(probability) / shape
    log_x = log_power + tf.math.lgamma(1.0 + shape) / shape
    is_small = log_x < _LOG_SMALL
    one = tf.ones_like(shape)
    root = _log_root(
        tf.where(is_small, one, shape), tf.where(is_small, 0.5 * one, probability)
    )
    series = log_x + tf.exp(tf.minimum(log_x, _LOG_SMALL)) / (1.0 + shape)
    return tf.where(is_small, series, root)


def _log_root(a: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    log_power = tf.math.log(p) / a
    one_end = tf.math.log(-_log_of_one_less_exp(log_power))
    other_end = one_end + tf.math.lgamma(1.0 + a) / a
    low, high = tf.minimum(one_end, other_end), tf.maximum(one_end, other_end)
    third_root = 1.0 - 1.0 / (9.0 * a) + tf.math.ndtri(p) / (3.0 * tf.sqrt(a))
    start = tf.math.log(a) + 3.0 * tf.math.log(tf.maximum(third_root, 1e-3))
    log_factor = tf.math.lgamma(a)

    def step(
        log_x: tf.Tensor, low: tf.Tensor, high: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        x = tf.exp(log_x)
        reached = tf.math.igamma(a, x)
        is_low = reached < p
        low, high = tf.where(is_low, log_x, low), tf.where(is_low, high, log_x)
        # log P is nearly a line in log x where P is small, and concave everywhere.
        gap = reached * tf.math.log(reached / p)
        newton = log_x - gap * tf.exp(x + log_factor - a * log_x)
        is_inside = (newton >= low) & (newton <= high)
        return tf.where(is_inside, newton, 0.5 * (low + high)), low, high

    log_x, _, _ = tf.while_loop(
        lambda *_: True,
        step,
        (tf.clip_by_value(start, low, high), low, high),
        maximum_iterations=_STEPS,
    )
    return log_x


def _log_of_one_less_exp(x: tf.Tensor) -> tf.Tensor:
    """`log(1 - exp(x))` for x < 0, without cancellation."""
    return tf.where(
        x > -math.log(2.0), tf.math.log(-tf.math.expm1(x)), tf.math.log1p(-tf.exp(x))
    )
