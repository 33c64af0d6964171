"""State of modules in checkpointed variables: a stream of seeds, and settings."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.core import random


class Seeded(tf.Module):
    """A module with a stream of seeds, whose state is a checkpointed variable.

    The stream is the same on every device, eagerly, in `tf.function` and under XLA.

    Args:
        seed: int, integer tensor of shape `[]` or `[2]`, or None for a stream that
            TensorFlow's global seed chooses.

    Attributes:
        start: the seed as one int.

    Example:
        >>> first, second = Seeded(7), Seeded(7)
        >>> bool(tf.reduce_all(first.next_seed() == second.next_seed()))
        True
    """

    def __init__(self, seed: Any) -> None:
        super().__init__()
        with tf.init_scope():
            self.start = self._as_int(seed)
            self._generator = tf.random.Generator.from_seed(self.start, alg="philox")
        # `tf.Module.variables` does not look into a generator.
        self._state = self._generator.state

    def restart(self, seed: Any) -> None:
        """Starts the stream anew, by what the constructor takes as seed."""
        self.start = self._as_int(seed)
        self._generator.reset_from_seed(self.start)

    def next_seed(self, seed: Any = None) -> tf.Tensor:
        """Returns an int32 `[2]` seed: the given one, or the next of the stream."""
        where = type(self).__name__
        return self._drawn() if seed is None else random.checked_seed(where, seed)

    def _as_int(self, seed: Any) -> int:
        seed = random.checked_seed(type(self).__name__, seed)
        return int(tf.bitcast(seed, tf.int64))

    @tf.function(autograph=False)
    def _drawn(self) -> tf.Tensor:
        return self._generator.uniform_full_int([2], tf.int32)


@dataclasses.dataclass(kw_only=True, eq=False)
class Setting:
    """A number or an array of a `tf.Module`, kept in a float64 variable of fixed shape.

    Reading it gives a float or a new array; in a graph, a tensor. Variables, and
    schedules where they are admitted, are kept as they are.

    Attributes:
        least: the least number admitted.
        is_open: whether `least` itself is refused.
        is_scheduled: whether functions without arguments are admitted.
        absent: the infinite number that stands for None, if None is admitted.
        other: name of the setting that this one must not exceed, or, if `absent` is
            greater than 0, not be less than.
        doc: what `help` says of it.

    Example:
        >>> class Walk(tf.Module):
        ...     step = Setting(least=0.0)
        >>> walk = Walk()
        >>> walk.step = 2
        >>> walk.step *= 0.5
        >>> walk.step, [variable.numpy().item() for variable in walk.variables]
        (1.0, [1.0])
    """

    least: float = -np.inf
    is_open: bool = False
    is_scheduled: bool = False
    absent: float | None = None
    other: str = ""
    doc: str | None = None

    def __post_init__(self) -> None:
        self.__doc__ = self.doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, module: Any, owner: Any = None) -> Any:
        if module is None:
            return self
        if f"_given_{self._name}" not in vars(module):
            raise AttributeError(self._name)
        value = self.tensor_of(module)
        if not isinstance(value, tf.Tensor) or tf.is_symbolic_tensor(value):
            return value
        array = value.numpy()
        if self.absent is not None and np.all(array == self.absent):
            return None
        return np.array(array) if np.ndim(array) else float(array)

    def __set__(self, module: Any, value: Any) -> None:
        self._check(module, value)
        as_it_is = callable(value) or isinstance(value, tf.Variable)
        vars(module)[f"_given_{self._name}"] = value if as_it_is else None
        if as_it_is:
            return
        value = self.absent if value is None else value
        variable = vars(module).get(f"_kept_{self._name}")
        if variable is None:
            with tf.init_scope():
                start = tf.Variable(np.asarray(value, np.float64), trainable=False)
            setattr(module, f"_kept_{self._name}", start)
            return
        if not tf.is_tensor(value):
            value = np.asarray(value, np.float64)
        variable.assign(tf.broadcast_to(tf.cast(value, tf.float64), variable.shape))

    def tensor_of(self, module: Any) -> Any:
        """The value as a tensor; a schedule or a variable as it is."""
        given = vars(module)[f"_given_{self._name}"]
        if given is None:
            return tf.convert_to_tensor(vars(module)[f"_kept_{self._name}"])
        return given

    def _check(self, module: Any, value: Any) -> None:
        where, name = type(module).__name__, self._name
        if self.is_scheduled and callable(value):
            return
        if value is None and self.absent is not None:
            return
        if self.absent is None:
            checks.check_finite(where, name, value)
        if self.is_open:
            checks.check_positive(where, name, value)
        checks.check_within(where, name, value, self.least, np.inf)
        kept = vars(module).get(f"_kept_{name}")
        if kept is not None:
            operands.check_broadcasts(where, name, value, kept.shape)
        against = getattr(module, self.other, None) if self.absent else None
        if against is None or any(map(tf.is_symbolic_tensor, (value, against))):
            return
        is_upper = self.absent == np.inf
        low, high = (against, value) if is_upper else (value, against)
        if not np.all(np.less_equal(low, high)):
            raise ValueError(
                f"`{where}`: `{name}` expected at {'least' if is_upper else 'most'} "
                f"`{self.other}` {checks.shown(against)}; got {checks.shown(value)}"
            )
