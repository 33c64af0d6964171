"""The links of which `gradient_transforms` makes its chains.

A link holds numbers and functions only, so links made alike are equal and hash alike;
what changes between updates is in the state, a nest of tensors of fixed structure,
shapes and dtypes.
"""
# The links share one signature, which `Part` documents.
# ruff: noqa: ARG002, D102

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrl.ops import gradients

Schedule = Callable[[tf.Tensor], Any]


class Part:
    """A link of a chain; subclasses are frozen dataclasses of numbers and functions.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Negate(Part):
        ...     def update(self, grads, state, params):
        ...         return tf.nest.map_structure(tf.negative, grads), state
        >>> Negate().update([tf.ones(())], {}, None)[0][0].numpy()
        np.float32(-1.0)
    """

    def init(self, params: Any) -> dict[str, Any]:
        """Returns the state before the first update; here there is none.

        Args:
            params: nest of tensors.

        Returns:
            A dictionary of nests of tensors.
        """
        return {}

    def update(
        self, grads: Any, state: dict[str, Any], params: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Transforms gradients and moves the state one update on.

        Args:
            grads: nest of dense tensors.
            state: of the last update.
            params: nest like `grads`, or None if the caller gave none.

        Returns:
            The transformed gradients, and a state of the same structure, shapes and
            dtypes.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class AddDecayedWeights(Part):
    """Adds `weight_decay * param` to each gradient.

    Example:
        >>> decay = AddDecayedWeights(0.5)
        >>> decay.update([tf.ones(())], {}, [tf.ones(())])[0][0].numpy()
        np.float32(1.5)
    """

    weight_decay: float

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
class Clip(Part):
    """Clips gradients to `limit`, by what `by` says.

    `global_norm` measures all of them together, `norm` each tensor, `value` each entry.

    Example:
        >>> Clip(0.5, "value").update([tf.ones(())], {}, None)[0][0].numpy()
        np.float32(0.5)
    """

    limit: float
    by: str

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
class ScaleByAdam(Part):
    """Divides the mean gradient by the root of the mean square, both unbiased.

    With `eps_hat` the biased mean square is under the root beside which `eps` stands,
    as in Keras; `eps_root` is not used then.

    Example:
        >>> sorted(ScaleByAdam(0.9, 0.999, 1e-8).init([tf.ones(2)]))
        ['count', 'mu', 'nu']
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
        power = tf.cast(count, _widest(tf.nest.flatten(grads)))
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
class ScaleByLearningRate(Part):
    """Turns gradients into steps downhill; the rate is data of the state.

    Example:
        >>> ScaleByLearningRate(0.5).init([tf.ones(2)])["learning_rate"].numpy()
        np.float32(0.5)
    """

    learning_rate: float

    def init(self, params: Any) -> dict:
        dtype = _widest(tf.nest.flatten(params))
        return {"learning_rate": tf.constant(self.learning_rate, dtype)}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        return _scaled(grads, -state["learning_rate"]), state


@dataclasses.dataclass(frozen=True)
class ScaleByRms(Part):
    """Divides each gradient by the root of its mean square, or its deviation.

    Example:
        >>> sorted(ScaleByRms(0.9, 1e-8, centered=True).init([tf.ones(2)]))
        ['mu', 'nu']
    """

    decay: float
    eps: float
    initial_scale: float = 0.0
    centered: bool = False

    def init(self, params: Any) -> dict:
        nu = tf.nest.map_structure(
            lambda zero: zero + self.initial_scale, _zeros(params)
        )
        return {"mu": _zeros(params), "nu": nu} if self.centered else {"nu": nu}

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
class ScaleBySchedule(Part):
    """Multiplies gradients by `sign` times a function of the number of updates.

    Example:
        >>> ScaleBySchedule(lambda n: 8 - n).init([])["count"].numpy()
        np.int32(0)
    """

    step_size_fn: Schedule
    sign: float = 1.0

    def init(self, params: Any) -> dict:
        return {"count": tf.constant(0)}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        size = tf.cast(
            self.step_size_fn(state["count"]), _widest(tf.nest.flatten(grads))
        )
        return _scaled(grads, self.sign * size), {"count": state["count"] + 1}


@dataclasses.dataclass(frozen=True)
class Trace(Part):
    """Sums up gradients, older ones decayed; with `nesterov` one step ahead.

    Example:
        >>> Trace(0.9).init([tf.ones(())])["trace"][0].numpy()
        np.float32(0.0)
    """

    decay: float
    nesterov: bool = False

    def init(self, params: Any) -> dict:
        return {"trace": _zeros(params)}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        trace = self._traced(grads, state["trace"])
        updates = self._traced(grads, trace) if self.nesterov else trace
        return updates, {"trace": trace}

    def _traced(self, grads: Any, trace: Any) -> Any:
        return tf.nest.map_structure(lambda g, t: g + self.decay * t, grads, trace)


def dense_gradients(grads: Any, params: Any) -> Any:
    """Returns `grads` as dense tensors of the dtypes of `params`.

    Args:
        grads: nest like `params` of tensors, `tf.IndexedSlices` (rows are summed up)
            or None (zeros).
        params: nest of tensors; None to take shapes and dtypes from `grads`.

    Returns:
        A nest of dense tensors.

    Raises:
        ValueError: if the nests or the shapes differ, or a gradient is None without
            `params`.

    Example:
        >>> dense_gradients([None], [tf.ones(2)])[0].numpy().tolist()
        [0.0, 0.0]
    """
    where = "`dense_gradients`: `grads` expected"
    like = grads if params is None else params
    check_nest(f"{where} the nest of `params`, of all of them", grads, like)

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


def check_nest(expected: str, given: Any, like: Any) -> None:
    """Raises unless two nests are alike.

    Args:
        expected: function, argument and what is expected, for the message.
        given: nest of the argument.
        like: nest that it is to be like.

    Raises:
        ValueError: if they differ in structure.

    Example:
        >>> check_nest("`update`: `grads` expected another", {"a": 1}, {"a": 0})
    """
    try:
        tf.nest.assert_same_structure(given, like)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected}; got another one: {error}") from error


def _moving_average(average: Any, values: Any, decay: float) -> Any:
    return tf.nest.map_structure(
        lambda old, new: decay * old + (1.0 - decay) * new, average, values
    )


def _scaled(grads: Any, factor: tf.Tensor) -> Any:
    return tf.nest.map_structure(lambda grad: grad * tf.cast(factor, grad.dtype), grads)


def _widest(tensors: list[tf.Tensor]) -> tf.DType:
    # Scalars shared by all tensors lose nothing: float64 if any is, else float32.
    wide = any(tf.as_dtype(tensor.dtype) == tf.float64 for tensor in tensors)
    return tf.float64 if wide else tf.float32


def _zeros(params: Any) -> Any:
    return tf.nest.map_structure(tf.zeros_like, params)
