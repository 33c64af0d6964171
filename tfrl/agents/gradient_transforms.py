"""Functional gradient transforms: optimizers whose state is a nest of tensors.

Names, defaults and update rules are optax's. A transform holds only numbers and
functions, so it is hashable, equal to another one made alike, and safe as a static
argument of a `tf.function`. All that changes lives in the state, also the learning
rate. A number becomes a scalar of the state, which `with_learning_rate` replaces
between updates without a new trace; a function of the number of updates so far is
evaluated in the graph. Keras optimizers are translated in `keras_optimizers`.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrl._internal import checks
from tfrl.agents import _gradient_parts
from tfrl.schedules import schedulers

Schedule = _gradient_parts.Schedule


@dataclasses.dataclass(frozen=True)
class GradientTransform:
    """Turns gradients into the updates that are added to parameters.

        updates, state = transform.update(grads, state, params)
        params = params + updates

    States and updates keep structure, shapes and dtypes, as loops and XLA want it.

    Args:
        parts: the links of the chain, in order. A part has `init(params)`, which
            returns its state, a dictionary of nests of tensors, and
            `update(grads, state, params)`, which returns other gradients and the next
            state. Frozen dataclasses of numbers and functions are equal when made
            alike.

    Example:
        >>> transform = sgd(0.5)
        >>> params = {"w": tf.constant([1.0, 2.0])}
        >>> updates, _ = transform.update(params, transform.init(params), params)
        >>> updates["w"].numpy().tolist()
        [-0.5, -1.0]
    """

    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        expected = "a tuple of parts with `init` and `update`"
        checks.check_type("GradientTransform", "parts", self.parts, tuple, expected)
        for part in self.parts:
            if not all(callable(getattr(part, x, None)) for x in ("init", "update")):
                raise checks.wrong_type("GradientTransform", "parts", part, expected)

    def init(self, params: Any) -> tuple[Any, ...]:
        """Returns the state before the first update.

        Args:
            params: nest of floating tensors.

        Returns:
            One state per part.
        """
        return tuple(part.init(params) for part in self.parts)

    def update(
        self, grads: Any, state: tuple[Any, ...], params: Any = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Transforms `grads`, and advances the state by one update.

        Args:
            grads: nest like `params` of tensors, `tf.IndexedSlices` (rows are summed
                up) or None (zeros).
            state: what `init` or the last `update` returned.
            params: nest of floating tensors; needed if weights decay.

        Returns:
            Updates to add to `params`, and the next state.

        Raises:
            ValueError: if `grads` do not match `params`, or `state` the transform.
        """
        if not isinstance(state, tuple) or len(state) != len(self.parts):
            raise ValueError(
                "`GradientTransform.update`: `state` expected one entry for each of "
                f"{len(self.parts)} parts; got {state!r:.80}; "
                "start with `transform.init(params)`"
            )
        updates = _gradient_parts.dense_gradients(grads, params)
        states = []
        for part, part_state in zip(self.parts, state, strict=True):
            updates, part_state = part.update(updates, part_state, params)
            states.append(part_state)
        return updates, tuple(states)

    def stepped(
        self, grads: Any, state: tuple[Any, ...], params: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        """Returns `params` with the updates added, and the next state; see `update`."""
        updates, state = self.update(grads, state, params)
        return tf.nest.map_structure(tf.add, params, updates), state


def chain(*transforms: GradientTransform) -> GradientTransform:
    """Returns the transform that applies `transforms` one after the other.

    Args:
        *transforms: in order.

    Returns:
        Their parts in one transform.

    Raises:
        TypeError: if an argument is not a `GradientTransform`.

    Example:
        >>> clipped = chain(clip_by_global_norm(0.5), adam(1e-2))
        >>> len(clipped.parts)
        3
    """
    for transform in transforms:
        expected = "`GradientTransform`s, such as `from_keras` makes of an optimizer"
        checks.check_type("chain", "transforms", transform, GradientTransform, expected)
    return GradientTransform(tuple(part for t in transforms for part in t.parts))


def sgd(
    learning_rate: float | Schedule,
    momentum: float | None = None,
    nesterov: bool = False,
) -> GradientTransform:
    """Descends along the gradient, with momentum if asked for.

        update = -learning_rate * trace,    trace = grad + momentum * trace
        update = -learning_rate * (grad + momentum * trace)     if nesterov

    Args:
        learning_rate: step size, or a function from the number of updates so far
            (scalar int32) to it.
        momentum: decay of the trace, in [0, 1); None for plain descent.
        nesterov: looks one step ahead.

    Returns:
        The transform.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> sgd(0.1, momentum=0.9) == sgd(0.1, momentum=0.9)
        True
    """
    traces = _traces("sgd", momentum, nesterov)
    return GradientTransform((*traces, _rate("sgd", learning_rate)))


def adam(
    learning_rate: float | Schedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
) -> GradientTransform:
    """Scales each gradient by running averages of it and of its square.

        m = b1 * m + (1 - b1) * grad,      v = b2 * v + (1 - b2) * grad^2
        update = -learning_rate * m' / (sqrt(v' + eps_root) + eps)
        m' = m / (1 - b1^t),               v' = v / (1 - b2^t),    t = 1, 2, ...

    Keras' `Adam` adds `epsilon` to sqrt(v), not to sqrt(v'): see `from_keras`.

    Args:
        learning_rate: as in `sgd`.
        b1: decay of the average of gradients, in [0, 1).
        b2: decay of the average of squares, in [0, 1).
        eps: keeps the quotient finite.
        eps_root: keeps the gradient of the quotient finite.

    Returns:
        The transform.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> annealed = adam(lambda n_updates: 3e-4 * (1.0 - n_updates / 1000))
        >>> [type(part).__name__ for part in annealed.parts]
        ['ScaleByAdam', 'ScaleBySchedule']

    References:
        Kingma and Ba, 2015, Adam: A Method for Stochastic Optimization, algorithm 1.
    """
    scale = _numbers("adam", b1=b1, b2=b2, eps=eps, eps_root=eps_root)
    return GradientTransform(
        (_gradient_parts.ScaleByAdam(*scale), _rate("adam", learning_rate))
    )


def adamw(
    learning_rate: float | Schedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 1e-4,
) -> GradientTransform:
    """Is `adam` with weight decay apart from the gradient.

        update = adam's update - learning_rate * weight_decay * param

    Args:
        learning_rate: as in `sgd`.
        b1: as in `adam`.
        b2: as in `adam`.
        eps: as in `adam`.
        eps_root: as in `adam`.
        weight_decay: share of each parameter taken off, times the learning rate.

    Returns:
        The transform; its `update` needs `params`.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> len(adamw(1e-3).parts)
        3

    References:
        Loshchilov and Hutter, 2019, Decoupled Weight Decay Regularization, algorithm 2.
    """
    scale = _numbers("adamw", b1=b1, b2=b2, eps=eps, eps_root=eps_root)
    decay = _gradient_parts.AddDecayedWeights(
        *_numbers("adamw", weight_decay=weight_decay)
    )
    rate = _rate("adamw", learning_rate)
    return GradientTransform((_gradient_parts.ScaleByAdam(*scale), decay, rate))


def nadam(
    learning_rate: float | Schedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
) -> GradientTransform:
    """Is `adam` with Nesterov momentum.

        update = -learning_rate * m' / (sqrt(v' + eps_root) + eps)
        m' = b1 * m / (1 - b1^(t+1)) + (1 - b1) * grad / (1 - b1^t)

    with m, v and v' of `adam`.

    Args:
        learning_rate: as in `sgd`.
        b1: as in `adam`.
        b2: as in `adam`.
        eps: as in `adam`.
        eps_root: as in `adam`.

    Returns:
        The transform.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> nadam(1e-3) == adam(1e-3)
        False

    References:
        Dozat, 2016, Incorporating Nesterov Momentum into Adam, algorithm 2.
    """
    scale = _numbers("nadam", b1=b1, b2=b2, eps=eps, eps_root=eps_root)
    part = dataclasses.replace(_gradient_parts.ScaleByAdam(*scale), nesterov=True)
    return GradientTransform((part, _rate("nadam", learning_rate)))


def lion(
    learning_rate: float | Schedule,
    b1: float = 0.9,
    b2: float = 0.99,
    weight_decay: float = 1e-3,
) -> GradientTransform:
    """Steps of one length in every component, by the sign of a mean gradient.

        update = -learning_rate * (sign(b1 * m + (1 - b1) * grad)
                                   + weight_decay * param)
        m = b2 * m + (1 - b2) * grad

    Needs a learning rate 3 to 10 times smaller than `adam`.

    Args:
        learning_rate: as in `sgd`.
        b1: share of the mean in what the sign is taken of, in [0, 1).
        b2: decay of the mean, in [0, 1).
        weight_decay: share of each parameter taken off, times the learning rate.

    Returns:
        The transform; its `update` needs `params`.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> transform, params = lion(0.5, weight_decay=0.0), [tf.constant([3.0, -0.1])]
        >>> updates, _ = transform.update(params, transform.init(params), params)
        >>> updates[0].numpy()
        array([-0.5,  0.5], dtype=float32)

    References:
        Chen et al., 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2.
    """
    scale = _gradient_parts.ScaleByLion(*_numbers("lion", b1=b1, b2=b2))
    (decay,) = _numbers("lion", weight_decay=weight_decay)
    rate = _rate("lion", learning_rate)
    return GradientTransform((scale, _gradient_parts.AddDecayedWeights(decay), rate))


def lamb(
    learning_rate: float | Schedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    weight_decay: float = 0.0,
) -> GradientTransform:
    """Is `adamw` with steps as long as the parameters are, for large batches.

        update = -learning_rate * u * |param| / |u|
        u = m' / (sqrt(v' + eps_root) + eps) + weight_decay * param

    for each tensor, with m' and v' of `adam`; the quotient is 1 where a length is 0.

    Args:
        learning_rate: as in `sgd`.
        b1: as in `adam`.
        b2: as in `adam`.
        eps: as in `adam`.
        eps_root: as in `adam`.
        weight_decay: as in `adamw`.

    Returns:
        The transform; its `update` needs `params`.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> len(lamb(1e-3).parts)
        4

    References:
        You et al., 2020, Large Batch Optimization for Deep Learning: Training BERT in
        76 minutes, algorithm 2.
    """
    scale = _numbers("lamb", b1=b1, b2=b2, eps=eps, eps_root=eps_root)
    (decay,) = _numbers("lamb", weight_decay=weight_decay)
    parts = (
        _gradient_parts.ScaleByAdam(*scale),
        _gradient_parts.AddDecayedWeights(decay),
        _gradient_parts.ScaleByTrustRatio(),
    )
    return GradientTransform((*parts, _rate("lamb", learning_rate)))


def adagrad(
    learning_rate: float | Schedule,
    initial_accumulator_value: float = 0.1,
    eps: float = 1e-7,
) -> GradientTransform:
    """Divides each gradient by the root of the sum of all its squares so far.

        s = s + grad^2
        update = -learning_rate * grad / sqrt(s + eps)

    Args:
        learning_rate: as in `sgd`.
        initial_accumulator_value: s before the first update.
        eps: keeps the quotient finite; under the root.

    Returns:
        The transform.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> len(adagrad(0.1).parts)
        2

    References:
        Duchi, Hazan, Singer, 2011, Adaptive Subgradient Methods for Online Learning and
        Stochastic Optimization, figure 1.
    """
    part = _gradient_parts.ScaleByRootSum(
        *_numbers(
            "adagrad", initial_accumulator_value=initial_accumulator_value, eps=eps
        )
    )
    return GradientTransform((part, _rate("adagrad", learning_rate)))


def rmsprop(
    learning_rate: float | Schedule,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
) -> GradientTransform:
    """Scales each gradient by a running average of its square.

        v = decay * v + (1 - decay) * grad^2
        update = -learning_rate * grad / sqrt(v + eps)
        update = -learning_rate * grad / sqrt(v - mean^2 + eps)       if centered

    and runs the update through a trace as in `sgd` with `momentum`.

    Args:
        learning_rate: as in `sgd`.
        decay: of the running averages, in [0, 1).
        eps: keeps the quotient finite; under the root.
        initial_scale: value of v before the first update.
        centered: divides by the deviation about the running mean of the gradients.
        momentum: as in `sgd`.
        nesterov: as in `sgd`.

    Returns:
        The transform.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> len(rmsprop(1e-3, momentum=0.9).parts)
        3

    References:
        Tieleman and Hinton, 2012, Neural Networks for Machine Learning, lecture 6.5.
    """
    decay, eps, initial_scale = _numbers(
        "rmsprop", decay=decay, eps=eps, initial_scale=initial_scale
    )
    scale = _gradient_parts.ScaleByRms(decay, eps, initial_scale, bool(centered))
    rate = _rate("rmsprop", learning_rate)
    return GradientTransform((scale, rate, *_traces("rmsprop", momentum, nesterov)))


def clip_by_global_norm(max_norm: float) -> GradientTransform:
    """Shortens gradients whose common length exceeds `max_norm`.

        update = grad * min(1, max_norm / norm),    norm = sqrt(sum of all squares)

    Args:
        max_norm: the longest length that passes.

    Returns:
        The transform, to be chained before an optimizer.

    Raises:
        ValueError: if `max_norm` is negative.

    Example:
        >>> clip = clip_by_global_norm(1.0)
        >>> updates, _ = clip.update([tf.constant([3.0, 4.0])], clip.init([]))
        >>> updates[0].numpy()
        array([0.6, 0.8], dtype=float32)
    """
    (limit,) = _numbers("clip_by_global_norm", max_norm=max_norm)
    return GradientTransform((_gradient_parts.Clip(limit, "global_norm"),))


def scale_by_schedule(step_size_fn: Schedule) -> GradientTransform:
    """Multiplies gradients by a function of the number of updates so far.

        update = step_size_fn(n) * grad,    n = 0, 1, ...

    Args:
        step_size_fn: from a scalar int32 tensor to a scalar; evaluated in the graph.

    Returns:
        The transform.

    Raises:
        TypeError: if `step_size_fn` is not callable.

    Example:
        >>> decline = scale_by_schedule(lambda n: 8 - n)
        >>> _, state = decline.update([tf.ones(())], decline.init([]))
        >>> float(decline.update([tf.ones(())], state)[0][0])
        7.0
    """
    where = "scale_by_schedule"
    checks.check_type(where, "step_size_fn", step_size_fn, Callable, "a function")
    schedulers.check_counts_updates(where, step_size_fn)
    return GradientTransform((_gradient_parts.ScaleBySchedule(step_size_fn),))


def with_learning_rate(state: tuple[Any, ...], learning_rate: Any) -> tuple[Any, ...]:
    """Returns `state` with another learning rate for the updates to come.

    All transforms within transforms, as in `partitioned`, get it.

    Args:
        state: of a transform whose `learning_rate` was a number.
        learning_rate: number or scalar tensor.

    Returns:
        A state of the same structure.

    Raises:
        ValueError: if `state` holds none, as with a schedule.

    Example:
        >>> transform = sgd(0.5)
        >>> state = with_learning_rate(transform.init([tf.ones(())]), 0.25)
        >>> float(transform.update([tf.ones(())], state)[0][0])
        -0.25
    """
    found: list[tf.Tensor] = []

    def like(old: tf.Tensor) -> tf.Tensor:
        found.append(old)
        if tf.is_tensor(learning_rate):
            return tf.cast(learning_rate, old.dtype)
        return tf.constant(learning_rate, old.dtype)

    def changed(part: dict[str, Any]) -> dict[str, Any]:
        if "learning_rate" in part:
            return {"learning_rate": like(part["learning_rate"])}
        if "inner" in part:
            inner = tuple(tuple(map(changed, each)) for each in part["inner"])
            return {**part, "inner": inner}
        return part

    new = tuple(map(changed, state))
    if not found:
        raise ValueError(
            "`with_learning_rate`: `state` expected a learning rate that was given as "
            f"a number; got {state!r:.80}; a schedule sets its own"
        )
    return new


def learning_rates(state: tuple[Any, ...]) -> list[tf.Tensor]:
    """Returns the rates in a state of a transform, of those given as numbers.

    Example:
        >>> [float(x) for x in learning_rates(sgd(0.5).init([tf.ones(())]))]
        [0.5]
    """
    found = [part["learning_rate"] for part in state if "learning_rate" in part]
    inner = [each for part in state for each in part.get("inner", ())]
    return found + [rate for each in inner for rate in learning_rates(each)]


def _rate(
    where: str, learning_rate: Any
) -> _gradient_parts.ScaleBySchedule | _gradient_parts.ScaleByLearningRate:
    if callable(learning_rate):
        schedulers.check_counts_updates(where, learning_rate)
        return _gradient_parts.ScaleBySchedule(learning_rate, sign=-1.0)
    return _gradient_parts.ScaleByLearningRate(
        *_numbers(where, learning_rate=learning_rate)
    )


def _traces(
    where: str, momentum: float | None, nesterov: bool
) -> list[_gradient_parts.Trace]:
    if momentum is None:
        return []
    (decay,) = _numbers(where, momentum=momentum)
    return [_gradient_parts.Trace(decay, bool(nesterov))]


def _numbers(where: str, **given: Any) -> list[Any]:
    """Checks numbers from 0 on, those of averages below 1."""
    found = []
    for name, value in given.items():
        below = 1.0 if name in ("b1", "b2", "decay", "momentum") else math.inf
        if isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
            value = value.numpy()
        plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not plain or not 0.0 <= value < below:
            raise ValueError(
                f"`{where}`: `{name}` expected a number in [0, {below}); got {value!r};"
                " one that changes is a schedule or goes into `with_learning_rate`"
            )
        found.append(float(value))
    return found
