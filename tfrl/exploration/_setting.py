"""Attributes of a module that are numbers in variables, so that assignment counts."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands


class Setting:
    """A number or an array of a `tf.Module`, kept in a float64 variable of fixed shape.

    Reading it gives a float or a new array; in a graph, a tensor. Variables, and
    schedules where they are admitted, are kept as they are.

    Args:
        least: the least number admitted, None for any that is finite.
        is_open: whether `least` itself is refused.
        is_scheduled: whether functions without arguments are admitted.
        absent: the infinite number that stands for None, if None is admitted.
        at_least: name of the setting that this one must not be less than.
        at_most: name of the one that it must not exceed.

    Example:
        >>> class Walk(tf.Module):
        ...     step = Setting(least=0.0)
        >>> walk = Walk()
        >>> walk.step = 2
        >>> walk.step *= 0.5
        >>> walk.step, [variable.numpy().item() for variable in walk.variables]
        (1.0, [1.0])
    """

    def __init__(
        self,
        *,
        least: float | None = None,
        is_open: bool = False,
        is_scheduled: bool = False,
        absent: float | None = None,
        at_least: str | None = None,
        at_most: str | None = None,
    ) -> None:
        self._least = least
        self._is_open = is_open
        self._is_scheduled = is_scheduled
        self._absent = absent
        self._at_least = at_least
        self._at_most = at_most
        self._name = ""

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
        if self._absent is not None and np.all(array == self._absent):
            return None
        return np.array(array) if np.ndim(array) else float(array)

    def __set__(self, module: Any, value: Any) -> None:
        self._check(module, value)
        as_it_is = callable(value) or isinstance(value, tf.Variable)
        vars(module)[f"_given_{self._name}"] = value if as_it_is else None
        if as_it_is:
            return
        value = self._absent if value is None else value
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
        if self._is_scheduled and callable(value):
            return
        if value is None and self._absent is not None:
            return
        if self._absent is None:
            checks.check_finite(where, name, value)
        least = -np.inf if self._least is None else self._least
        if self._is_open:
            checks.check_positive(where, name, value)
        checks.check_within(where, name, value, least, np.inf)
        kept = vars(module).get(f"_kept_{name}")
        if kept is not None:
            operands.check_broadcasts(where, name, value, kept.shape)
        self._check_order(where, module, value)

    def _check_order(self, where: str, module: Any, value: Any) -> None:
        other = self._at_least or self._at_most
        against = None if other is None else getattr(module, other, None)
        if against is None or any(map(tf.is_symbolic_tensor, (value, against))):
            return
        fits = np.less_equal if self._at_most else np.greater_equal
        if not np.all(fits(value, against)):
            raise ValueError(
                f"`{where}`: `{self._name}` expected at "
                f"{'most' if self._at_most else 'least'} `{other}` {against!r}; "
                f"got {value!r}; swap or correct them"
            )
