"""The links of chains of gradient transforms: what each does, and its state.

A part has `init(params)`, which returns its state, a dictionary of nests of tensors,
and `update(grads, state, params)`, which returns other gradients and the next state.
"""
# The parts share one signature, which `GradientTransform` documents.
# ruff: noqa: ARG002, D102

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfrl._internal import natural_sort, operands
from tfrl.ops import gradients

Schedule = Callable[[tf.Tensor], Any]


def sorted_leaves(nest: Any) -> list[Any]:
    """Returns the leaves in the natural order of their names.

    `tf.nest` sorts names as texts, `dense_10` before `dense_9`. What is added up in
    that order would depend on how many layers Keras has counted before.

    Example:
        >>> sorted_leaves({"dense_10/bias": 2, "dense_9/bias": 1})
        [1, 2]
    """
    leaves = tf.nest.flatten(nest)
    return [leaves[place] for place in _sorted_places(nest, len(leaves))]


def nest_of_sorted(like: Any, leaves: list[Any]) -> Any:
    """Returns a nest like another, of leaves in the order of `sorted_leaves`.

    Example:
        >>> nest_of_sorted({"dense_10/bias": 0, "dense_9/bias": 0}, [1, 2])
        {'dense_10/bias': 2, 'dense_9/bias': 1}
    """
    found = dict(zip(_sorted_places(like, len(leaves)), leaves, strict=True))
    return tf.nest.pack_sequence_as(like, [found[k] for k in range(len(leaves))])


def _sorted_places(nest: Any, count: int) -> list[int]:
    names = list(nest) if isinstance(nest, Mapping) else []
    if len(names) != count or not all(isinstance(name, str) for name in names):
        return list(range(count))
    names.sort()  # as `tf.nest` does
    return sorted(range(count), key=lambda place: natural_sort.key(names[place]))


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
        _check_given(params, "the weight decay")
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
        flat = sorted_leaves(grads)
        if self.by == "value":
            clipped = [tf.clip_by_value(x, -self.limit, self.limit) for x in flat]
        elif self.by == "norm":
            clipped = gradients.clip_by_norms(flat, self.limit)
        else:
            clipped, _ = gradients.clip_by_global_norm(flat, self.limit)
        return nest_of_sorted(grads, clipped), state


@dataclasses.dataclass(frozen=True)
class ScaleByAdam:
    """Divides the mean gradient by the root of the mean square, both unbiased.

    With `eps_hat` the biased mean square is under the root beside which `eps` stands,
    as in Keras; `eps_root` is not used then. With `nesterov` the mean is that of one
    step ahead.
    """

    b1: float
    b2: float
    eps: float
    eps_root: float = 0.0
    eps_hat: bool = False
    nesterov: bool = False

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
        if self.nesterov:
            ahead = 1.0 - tf.constant(self.b1, power.dtype) ** (power + 1.0)
            mu = _moving_average(_scaled(mu, weight1 / ahead), grads, self.b1)
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
class ScaleByLion:
    """Takes the sign of a mixture of the gradient and its running mean."""

    b1: float
    b2: float

    def init(self, params: Any) -> dict:
        return {"mu": _zeros(params)}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        signs = tf.nest.map_structure(
            tf.sign, _moving_average(state["mu"], grads, self.b1)
        )
        return signs, {"mu": _moving_average(state["mu"], grads, self.b2)}


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
class ScaleByRootSum:
    """Divides each gradient by the root of the sum of all squares so far."""

    initial: float
    eps: float

    def init(self, params: Any) -> dict:
        zeros = _zeros(params)
        return {"sum": tf.nest.map_structure(lambda zero: zero + self.initial, zeros)}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        total = tf.nest.map_structure(
            lambda old, grad: old + tf.square(grad), state["sum"], grads
        )
        scaled = tf.nest.map_structure(
            lambda grad, x: tf.math.multiply_no_nan(tf.math.rsqrt(x + self.eps), grad),
            grads,
            total,
        )
        return scaled, {"sum": total}


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
class ScaleByTrustRatio:
    """Gives each tensor of updates the length of its parameter."""

    def init(self, params: Any) -> dict:
        return {}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        _check_given(params, "the trust ratio")

        def stretched(grad: tf.Tensor, param: tf.Tensor) -> tf.Tensor:
            wanted, found = (
                gradients.global_norm([param]),
                gradients.global_norm([grad]),
            )
            some = (wanted > 0) & (found > 0)
            ratio = wanted / tf.where(some, found, tf.ones_like(found))
            return grad * tf.where(some, ratio, tf.ones_like(ratio))

        return tf.nest.map_structure(stretched, grads, params), state


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


def _check_given(params: Any, what: str) -> None:
    if params is None:
        raise ValueError(
            "`GradientTransform.update`: `params` expected the parameters, which "
            f"{what} needs; got None; pass them"
        )


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
