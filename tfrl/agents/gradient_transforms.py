"""Functional gradient transforms: optimizers whose state is a nest of tensors.

Names, defaults and update rules are optax's. A transform holds only numbers and
functions, so it is hashable, equal to another one made alike, and safe as a static
argument of a `tf.function`. All that changes lives in the state: also the learning
rate. A number becomes a scalar of the state, which `with_learning_rate` replaces
between updates without a new trace; a function of the number of updates so far is
evaluated in the graph. Keras optimizers are translated in `keras_optimizers`.
"""
# The parts share one signature, which `GradientTransform` documents.
# ruff: noqa: ARG002, D102

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.ops import gradients

Schedule = Callable[[tf.Tensor], Any]


@dataclasses.dataclass(frozen=True)
class GradientTransform:
    """Turns gradients into the updates that are added to parameters.

        updates, state = transform.update(grads, state, params)
        params = params + updates

    States and updates keep structure, shapes and dtypes, as loops and XLA want it.

    Args:
        parts: the links of the chain, first one first. A part has `init(params)`, which
            returns its state, a dictionary of nests of tensors, and `update(grads,
            state, params)`, which returns other gradients and the next state. Frozen
            dataclasses of numbers and functions are equal when made alike.

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
        """Transforms `grads`, and moves the state one update on.

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
        updates = dense_gradients(grads, params)
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
    return GradientTransform((ScaleByAdam(*scale), _rate("adam", learning_rate)))


def adamw(
    learning_rate: float | Schedule,
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
    scale = _numbers("adamw", b1=b1, b2=b2, eps=eps, eps_root=eps_root)
    decay = AddDecayedWeights(*_numbers("adamw", weight_decay=weight_decay))
    rate = _rate("adamw", learning_rate)
    return GradientTransform((ScaleByAdam(*scale), decay, rate))


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
    scale = ScaleByRms(decay, eps, initial_scale, bool(centered))
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
    return GradientTransform((Clip(limit, "global_norm"),))


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
    return GradientTransform((ScaleBySchedule(step_size_fn),))


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


def dense_gradients(grads: Any, params: Any) -> Any:
    """Returns dense tensors of the dtypes of `params`, or of their own without."""
    where = "`GradientTransform.update`: `grads` expected"
    like = grads if params is None else params
    operands.check_nest(f"{where} the nest of `params`, as of `init`", grads, like)

    def dense(grad: Any, param: Any) -> tf.Tensor:
        if param is None:
            raise ValueError(f"{where} tensors; got None; pass `params` for its shape")
        if grad is None:
            return tf.zeros_like(param)
        if isinstance(grad, tf.IndexedSlices):
            grad = tf.math.unsorted_segment_sum(
                grad.values, grad.indices, param.shape[0]
            )
        if not tf.TensorShape(grad.shape).is_compatible_with(param.shape):
            raise ValueError(
                f"{where} the shape {tuple(param.shape)} of its parameter; got "
                f"{tuple(grad.shape)}; differentiate with respect to these parameters"
            )
        return tf.cast(grad, param.dtype)

    return tf.nest.map_structure(dense, grads, like)


@dataclasses.dataclass(frozen=True)
class AddDecayedWeights:
    """Adds `weight_decay * param` to each gradient."""

    weight_decay: float

    def init(self, params: Any) -> dict:
        return {}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        if params is None:
            raise ValueError(
                "`GradientTransform.update`: `params` expected the parameters, which "
                "the weight decay needs; got None; pass them"
            )
        decayed = tf.nest.map_structure(
            lambda grad, param: grad + self.weight_decay * tf.cast(param, grad.dtype),
            grads,
            params,
        )
        return decayed, state


@dataclasses.dataclass(frozen=True)
class Clip:
    """Clips gradients to `limit`, by what `by` says.

    `global_norm` measures all of them together, `norm` each tensor, `value` each entry.
    """

    limit: float
    by: str

    def init(self, params: Any) -> dict:
        return {}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        flat = tf.nest.flatten(grads)
        if self.by == "value":
            clipped = [tf.clip_by_value(x, -self.limit, self.limit) for x in flat]
        elif self.by == "norm":
            clipped = gradients.clip_by_norms(flat, self.limit)
        else:
            clipped, _ = gradients.clip_by_global_norm(flat, self.limit)
        return tf.nest.pack_sequence_as(grads, clipped), state


@dataclasses.dataclass(frozen=True)
class ScaleByAdam:
    """Divides the mean gradient by the root of the mean square, both unbiased.

    With `eps_hat` the biased mean square is under the root beside which `eps` stands,
    as in Keras; `eps_root` is not used then.
    """

    b1: float
    b2: float
    eps: float
    eps_root: float = 0.0
    eps_hat: bool = False

    def init(self, params: Any) -> dict:
        return {"count": tf.constant(0), "mu": _zeros(params), "nu": _zeros(params)}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        count = state["count"] + 1
        mu = _moving_average(state["mu"], grads, self.b1)
        nu = _moving_average(
            state["nu"], tf.nest.map_structure(tf.square, grads), self.b2
        )
        power = tf.cast(count, _widest(grads))
        weight1 = 1.0 - tf.constant(self.b1, power.dtype) ** power
        weight2 = 1.0 - tf.constant(self.b2, power.dtype) ** power

        def scaled(mean: tf.Tensor, square: tf.Tensor) -> tf.Tensor:
            first, second = tf.cast(weight1, mean.dtype), tf.cast(weight2, mean.dtype)
            if self.eps_hat:
                return mean * (tf.sqrt(second) / first) / (tf.sqrt(square) + self.eps)
            root = tf.sqrt(square / second + self.eps_root)
            return mean / first / (root + self.eps)

        state = {"count": count, "mu": mu, "nu": nu}
        return tf.nest.map_structure(scaled, mu, nu), state


@dataclasses.dataclass(frozen=True)
class ScaleByLearningRate:
    """Turns gradients into steps downhill; the rate is data of the state."""

    learning_rate: float

    def init(self, params: Any) -> dict:
        return {"learning_rate": tf.constant(self.learning_rate, _widest(params))}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        return _scaled(grads, -state["learning_rate"]), state


@dataclasses.dataclass(frozen=True)
class ScaleByRms:
    """Divides each gradient by the root of its mean square, or its deviation."""

    decay: float
    eps: float
    initial_scale: float = 0.0
    centered: bool = False

    def init(self, params: Any) -> dict:
        zeros = _zeros(params)
        nu = tf.nest.map_structure(lambda zero: zero + self.initial_scale, zeros)
        return {"mu": zeros, "nu": nu} if self.centered else {"nu": nu}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        squares = tf.nest.map_structure(tf.square, grads)
        nu = variance = _moving_average(state["nu"], squares, self.decay)
        new_state = {"nu": nu}
        if self.centered:
            mu = new_state["mu"] = _moving_average(state["mu"], grads, self.decay)
            variance = tf.nest.map_structure(lambda v, m: v - tf.square(m), nu, mu)
        scaled = tf.nest.map_structure(
            lambda grad, v: grad * tf.math.rsqrt(v + self.eps), grads, variance
        )
        return scaled, new_state


@dataclasses.dataclass(frozen=True)
class ScaleBySchedule:
    """Multiplies gradients by `sign` times a function of the number of updates."""

    step_size_fn: Schedule
    sign: float = 1.0

    def init(self, params: Any) -> dict:
        return {"count": tf.constant(0)}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        size = tf.cast(self.step_size_fn(state["count"]), _widest(grads))
        return _scaled(grads, self.sign * size), {"count": state["count"] + 1}


@dataclasses.dataclass(frozen=True)
class Trace:
    """Sums up gradients, older ones decayed; with `nesterov` one step ahead."""

    decay: float
    nesterov: bool = False

    def init(self, params: Any) -> dict:
        return {"trace": _zeros(params)}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        trace = self._traced(grads, state["trace"])
        updates = self._traced(grads, trace) if self.nesterov else trace
        return updates, {"trace": trace}

    def _traced(self, grads: Any, trace: Any) -> Any:
        grads = dense_gradients(grads, trace)
        return tf.nest.map_structure(lambda g, t: g + self.decay * t, grads, trace)


def _rate(where: str, learning_rate: Any) -> ScaleBySchedule | ScaleByLearningRate:
    if callable(learning_rate):
        return ScaleBySchedule(learning_rate, sign=-1.0)
    return ScaleByLearningRate(*_numbers(where, learning_rate=learning_rate))


def _traces(where: str, momentum: float | None, nesterov: bool) -> list[Trace]:
    if momentum is None:
        return []
    (decay,) = _numbers(where, momentum=momentum)
    return [Trace(decay, bool(nesterov))]


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


def _moving_average(average: Any, values: Any, decay: float) -> Any:
    values = dense_gradients(values, average)
    return tf.nest.map_structure(
        lambda old, new: decay * old + (1.0 - decay) * new, average, values
    )


def _scaled(grads: Any, factor: tf.Tensor) -> Any:
    return tf.nest.map_structure(lambda grad: grad * tf.cast(factor, grad.dtype), grads)


def _widest(nest: Any) -> tf.DType:
    # Scalars shared by all tensors lose nothing: float64 if any is, else float32.
    dtypes = {tf.as_dtype(tensor.dtype) for tensor in tf.nest.flatten(nest)}
    return tf.float64 if tf.float64 in dtypes else tf.float32


def _zeros(params: Any) -> Any:
    return tf.nest.map_structure(tf.zeros_like, params)
