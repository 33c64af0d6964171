"""Parameters in one vector, in which gradient steps are taken.

XLA makes pieces of code for every parameter of a network, Adam alone three: to compile
them takes longer than all else of a small network. For one vector they are made once.
"""

import dataclasses
import math
from typing import Any, Self

import tensorflow as tf

from tfrl.agents import _gradient_parts, train_state

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
        entrywise = all(_is_entrywise(part) for part in parts)
        if not (known and alike and entrywise and parts):
            return None
        if sum(math.prod(x.shape) for x in leaves) > _MOST_NUMBERS:
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

    def nest(self, vector: tf.Tensor) -> Any:
        """Returns the nest that lies in a vector."""
        specs = tf.nest.flatten(self.like)
        pieces = tf.split(vector, [math.prod(spec.shape) for spec in specs])
        pairs = zip(pieces, specs, strict=True)
        shaped = [tf.reshape(piece, spec.shape) for piece, spec in pairs]
        return tf.nest.pack_sequence_as(self.like, shaped)

    def _vector(self, nest: Any) -> tf.Tensor:
        return tf.concat([tf.reshape(x, [-1]) for x in tf.nest.flatten(nest)], axis=0)

    def _mapped(self, state: Any, change: Any) -> Any:
        opt_state = tuple(
            each | {name: change(each[name]) for name in names}
            for each, names in zip(state.opt_state, self.kept, strict=True)
        )
        return state.replace(params=change(state.params), opt_state=opt_state)

    def __hash__(self) -> int:
        return hash((*tf.nest.flatten(self.like), *self.kept))


def _is_entrywise(part: Any) -> bool:
    if isinstance(part, _gradient_parts.Clip):
        return part.by != "norm"
    return type(part) in _ENTRYWISE


def _is_like(nest: Any, like: Any) -> bool:
    try:
        tf.nest.assert_same_structure(nest, like)
    except (TypeError, ValueError):
        return False
    return True
