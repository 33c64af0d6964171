"""How gradient steps are taken: small networks in one vector, others in one piece.

XLA makes pieces of code for every parameter of a network, Adam alone three: to compile
them takes longer than all else of a small network. For one vector they are made once.

A plain graph, as convolutions on a CPU want it, reads and writes the numbers of a large
network a dozen times a step, op after op, which takes a fifth of it. XLA reads them
once: of such a graph it compiles the optimizer.
"""

import dataclasses
import math
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfrl.agents import _gradient_parts, gradient_transforms, train_state
from tfrl.core import compile
from tfrl.ops import gradients

# Of larger networks the copies would take longer than all that is saved.
_MOST_NUMBERS = 2**18
# What treats each number alike, wherever it stands.
_ENTRYWISE = (
    _gradient_parts.AddDecayedWeights,
    _gradient_parts.ScaleByAdam,
    _gradient_parts.ScaleByLearningRate,
    _gradient_parts.ScaleByLion,
    _gradient_parts.ScaleByRms,
    _gradient_parts.ScaleByRootSum,
    _gradient_parts.ScaleBySchedule,
    _gradient_parts.Trace,
)


@dataclasses.dataclass(frozen=True)
class Packing:
    """How the parameters of a `TrainState` lie in a vector.

    Attributes:
        like: nest of their `tf.TensorSpec`.
        kept: of each part of the transform, the names of what it keeps for every number
            of them.
    """

    like: Any
    kept: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, state: train_state.TrainState) -> Self | None:
        """Returns that of a state; None if its parameters stay apart."""
        leaves = tf.nest.flatten(state.params)
        known = all(x.shape.is_fully_defined() for x in leaves)
        alike = len({x.dtype for x in leaves}) == 1 and len(leaves) > 1
        parts = state.tx.parts if state.tx is not None else ()
        # Of one vector they measure what they do of all.
        entrywise = all(_is_entrywise(x) or _measures_all(x) for x in parts)
        if not (known and alike and entrywise and parts) or _is_large(state):
            return None
        like = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), state.params
        )
        kept = [
            tuple(name for name, value in each.items() if _is_like(value, like))
            for each in state.opt_state
        ]
        return cls(like, tuple(kept))

    def pack(self, state: train_state.TrainState) -> train_state.TrainState:
        """Returns the state of vectors."""
        return self._mapped(state, self._vector)

    def unpack(self, state: train_state.TrainState) -> train_state.TrainState:
        """Returns the state of nests."""
        return self._mapped(state, self.nest)

    def nest(self, vector: Any) -> Any:
        """Returns the nest that lies in a vector, which may be an array."""
        specs = _gradient_parts.sorted_leaves(self.like)
        sizes = [math.prod(spec.shape) for spec in specs]
        if isinstance(vector, np.ndarray):
            pieces = np.split(vector, np.cumsum(sizes)[:-1])
        else:
            pieces = tf.split(vector, sizes)
        pairs = zip(pieces, specs, strict=True)
        shaped = [_shaped(piece, spec.shape) for piece, spec in pairs]
        return _gradient_parts.nest_of_sorted(self.like, shaped)

    def _vector(self, nest: Any) -> Any:
        leaves = _gradient_parts.sorted_leaves(nest)
        pieces = [_shaped(x, [math.prod(x.shape)]) for x in leaves]
        is_array = isinstance(leaves[0], np.ndarray)
        return np.concatenate(pieces) if is_array else tf.concat(pieces, axis=0)

    def _mapped(self, state: Any, change: Any) -> Any:
        opt_state = tuple(
            each | {name: change(each[name]) for name in names}
            for each, names in zip(state.opt_state, self.kept, strict=True)
        )
        return state.replace(params=change(state.params), opt_state=opt_state)

    def __hash__(self) -> int:
        return hash((*tf.nest.flatten(self.like), *self.kept))


@dataclasses.dataclass(frozen=True)
class Fused:
    """How a plain graph steps a large network: by an optimizer that XLA compiles.

    Attributes:
        tx: the optimizer.
    """

    tx: gradient_transforms.GradientTransform

    @classmethod
    def of(cls, state: train_state.TrainState) -> Self | None:
        """Returns that of a state; None if that is small, or has no such optimizer."""
        tx = state.tx
        if tx is None or not (tx.parts and _is_entrywise(tx.parts[-1])):
            return None
        return cls(tx) if _is_large(state) else None

    def pack(self, state: train_state.TrainState) -> train_state.TrainState:
        """Returns the state with the optimizer that XLA compiles."""
        return state.replace(tx=_FusedTransform(self.tx.parts))

    def unpack(self, state: train_state.TrainState) -> train_state.TrainState:
        """Returns the state with its own optimizer."""
        return state.replace(tx=self.tx)

    def nest(self, params: Any) -> Any:
        """Returns the parameters, which stay as they are."""
        return params


def _shaped(piece: Any, shape: Any) -> Any:
    """Numbers in a shape, which most have already."""
    if tuple(piece.shape) == tuple(shape):
        return piece
    reshape = np.reshape if isinstance(piece, np.ndarray) else tf.reshape
    return reshape(piece, shape)


class _FusedTransform(gradient_transforms.GradientTransform):
    """Has XLA compile the last parts, as many as treat each number alike.

    Those in front of them, which measure norms, are faster without.
    """

    def stepped(self, grads: Any, state: tuple, params: Any) -> tuple[Any, tuple]:
        parts = self.parts
        n = max((i + 1 for i, x in enumerate(parts) if not _is_entrywise(x)), default=0)
        states = []
        for part, its_state in zip(parts[:n], state, strict=False):
            grads, its_state = _sparing(part, grads, its_state, params)
            states.append(its_state)
        params, last = _compiled_step(parts[n:], grads, state[n:], params)
        return params, (*states, *last)


def _sparing(part: Any, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
    """Updates by a part, which leaves gradients that are short enough as they are."""
    if not _measures_all(part):
        return part.update(grads, state, params)
    clipped = tf.cond(
        gradients.global_norm(_gradient_parts.sorted_leaves(grads)) > part.limit,
        lambda: part.update(grads, state, params)[0],
        lambda: grads,
    )
    return clipped, state


def _step(parts: tuple, grads: Any, state: tuple, params: Any) -> tuple[Any, tuple]:
    return gradient_transforms.GradientTransform(parts).stepped(grads, state, params)


_compiled_step = compile.jit(_step, static_argnums=0, differentiable=False)


def _is_large(state: train_state.TrainState) -> bool:
    sizes = [math.prod(x.shape) for x in tf.nest.flatten(state.params)]
    return sum(sizes) > _MOST_NUMBERS


def _is_entrywise(part: Any) -> bool:
    if isinstance(part, _gradient_parts.Clip):
        return part.by == "value"
    return type(part) in _ENTRYWISE


def _measures_all(part: Any) -> bool:
    return isinstance(part, _gradient_parts.Clip) and part.by == "global_norm"


def _is_like(nest: Any, like: Any) -> bool:
    try:
        tf.nest.assert_same_structure(nest, like)
    except (TypeError, ValueError):
        return False
    return True
