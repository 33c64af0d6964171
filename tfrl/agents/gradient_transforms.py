"""Functional gradient transforms: optimizers whose state is a nest of tensors.

Names, defaults and update rules are optax's. A transform holds only numbers and
functions, so it is hashable, equal to another one made alike, and safe as a static
argument of a `tf.function`. All that changes lives in the state: also the learning
rate. A number becomes a scalar of the state, which `with_learning_rate` replaces
between updates without a new trace; a function of the number of updates so far is
evaluated in the graph. Keras optimizers are translated in `keras_optimizers`.
"""

import dataclasses
import numbers
from typing import Any

import tensorflow as tf

from tfrl.agents import _gradient_parts


@dataclasses.dataclass(frozen=True)
class GradientTransform:
    """Turns gradients into the updates that are added to parameters.

        updates, state = transform.update(grads, state, params)
        params = params + updates

    States and updates keep structure, shapes and dtypes, as loops and XLA want it.

    Args:
        parts: the links of the chain, first one first.

    Example:
        >>> transform = sgd(0.5)
        >>> params = {"w": tf.constant([1.0, 2.0])}
        >>> updates, _ = transform.update(params, transform.init(params), params)
        >>> updates["w"].numpy().tolist()
        [-0.5, -1.0]
    """

    parts: tuple[_gradient_parts.Part, ...]

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
        """Transforms `grads`, and moves the state one update on.

        Args:
            grads: nest like `params`; see `_gradient_parts.dense_gradients`.
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


def chain(*transforms: GradientTransform) -> GradientTransform:
    """Returns the transform that applies `transforms` one after the other.

    Args:
        *transforms: first one first.

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
        if not isinstance(transform, GradientTransform):
            raise TypeError(
                "`chain`: `transforms` expected `GradientTransform`s; "
                f"got {transform!r}; a Keras optimizer goes through `from_keras`"
            )
    return GradientTransform(tuple(part for t in transforms for part in t.parts))


def sgd(
    learning_rate: float | _gradient_parts.Schedule,
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
    rate = _learning_rate_part("sgd", learning_rate)
    return GradientTransform((*_trace_parts("sgd", momentum, nesterov), rate))


def adam(
    learning_rate: float | _gradient_parts.Schedule,
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
    scale = _adam_part("adam", b1, b2, eps, eps_root)
    return GradientTransform((scale, _learning_rate_part("adam", learning_rate)))


def adamw(
    learning_rate: float | _gradient_parts.Schedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 1e-4,
) -> GradientTransform:
    """Is `adam` with weights that decay apart from the gradient.

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
    scale = _adam_part("adamw", b1, b2, eps, eps_root)
    decay = _gradient_parts.AddDecayedWeights(
        _number("adamw", "weight_decay", weight_decay)
    )
    return GradientTransform(
        (scale, decay, _learning_rate_part("adamw", learning_rate))
    )


def rmsprop(
    learning_rate: float | _gradient_parts.Schedule,
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
    scale = _gradient_parts.ScaleByRms(
        _number("rmsprop", "decay", decay, below=1.0),
        _number("rmsprop", "eps", eps),
        _number("rmsprop", "initial_scale", initial_scale),
        bool(centered),
    )
    rate = _learning_rate_part("rmsprop", learning_rate)
    traces = _trace_parts("rmsprop", momentum, nesterov)
    return GradientTransform((scale, rate, *traces))


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
    limit = _number("clip_by_global_norm", "max_norm", max_norm)
    return GradientTransform((_gradient_parts.Clip(limit, "global_norm"),))


def scale_by_schedule(step_size_fn: _gradient_parts.Schedule) -> GradientTransform:
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
    if not callable(step_size_fn):
        raise TypeError(
            "`scale_by_schedule`: `step_size_fn` expected a function; "
            f"got {step_size_fn!r}; a constant goes into `sgd`"
        )
    return GradientTransform((_gradient_parts.ScaleBySchedule(step_size_fn),))


def with_learning_rate(state: tuple[Any, ...], learning_rate: Any) -> tuple[Any, ...]:
    """Returns `state` with another learning rate for the updates to come.

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
    if not any("learning_rate" in part for part in state):
        raise ValueError(
            "`with_learning_rate`: `state` expected a learning rate that was given as "
            f"a number; got {state!r:.80}; a schedule sets its own"
        )

    def like(old: tf.Tensor) -> tf.Tensor:
        if tf.is_tensor(learning_rate):
            return tf.cast(learning_rate, old.dtype)
        return tf.constant(learning_rate, old.dtype)

    return tuple(
        {key: like(old) for key, old in part.items()}
        if "learning_rate" in part
        else part
        for part in state
    )


def _adam_part(
    where: str, b1: float, b2: float, eps: float, eps_root: float
) -> _gradient_parts.ScaleByAdam:
    return _gradient_parts.ScaleByAdam(
        _number(where, "b1", b1, below=1.0),
        _number(where, "b2", b2, below=1.0),
        _number(where, "eps", eps),
        _number(where, "eps_root", eps_root),
    )


def _learning_rate_part(
    where: str, learning_rate: float | _gradient_parts.Schedule
) -> _gradient_parts.Part:
    if callable(learning_rate):
        return _gradient_parts.ScaleBySchedule(learning_rate, sign=-1.0)
    rate = _number(where, "learning_rate", learning_rate)
    return _gradient_parts.ScaleByLearningRate(rate)


def _trace_parts(
    where: str, momentum: float | None, nesterov: bool
) -> tuple[_gradient_parts.Part, ...]:
    if momentum is None:
        return ()
    decay = _number(where, "momentum", momentum, below=1.0)
    return (_gradient_parts.Trace(decay, bool(nesterov)),)


def _number(where: str, name: str, value: Any, *, below: float = float("inf")) -> float:
    if isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
        value = value.numpy()
    plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not plain or not 0.0 <= value < below:
        raise ValueError(
            f"`{where}`: `{name}` expected a number in [0, {below}); got {value!r}; "
            "one that changes is a schedule or goes into `with_learning_rate`"
        )
    return float(value)
