"""Functions that trace once and are cheap to call.

An eager TensorFlow op costs tens of microseconds and a `tf.function` call a few
hundred; calling a concrete function directly costs a third of the latter. `compiled`
keeps concrete functions in a dictionary of its own, `jit` makes a picklable one.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

import tensorflow as tf

from tfrl._internal import arguments, autograph, calls
from tfrl.core import _traces

# Whatever of tfrl a graph may call imports this file.
autograph.spare("tfrl")

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def compiled(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...


@overload
def compiled(
    *, static: Sequence[str] = ..., jit_compile: bool = ...
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...


def compiled(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static: Sequence[str] = (),
    jit_compile: bool = False,
) -> Callable[..., Any]:
    """Makes eager calls of an op run as one compiled function.

    - Called eagerly, the function is traced once for each combination of ranks,
      dtypes, nest structures and static values, with every dimension unknown, and the
      trace is reused whatever the sizes are.
    - Called inside a graph, it runs as written and becomes part of that graph. With
      `jit_compile` it becomes one XLA cluster there, and melts into the caller where
      that is compiled by XLA itself.
    - Under `tf.config.run_functions_eagerly(True)` it runs as written.

    XLA compiles anew for each concrete shape (a fraction of a second each): pad or
    bucket inputs whose sizes vary at every call.

    A Python or numpy number becomes a scalar of the dtype of the first floating tensor
    among the arguments (float32 without one), so that no number enters the cache; an
    integer that must stay one (an axis, a count) belongs in `static`. `None` stays
    `None`. As a trace knows ranks but no sizes, checks of sizes belong in front of the
    decorated function.

    The result is an ordinary function with the name, signature and docstring of the
    original, and pickles by name like it. Its `trace_count()` says how many traces it
    has made: one that keeps growing means that something other than tensors enters the
    calls; each trace takes tens of milliseconds and memory that is never returned.

    What the function reads of the context (`is_eval()` and its like, the current
    progress and environment, all of `core.context`) is part of the cache key too:
    each value has its own trace, as its `if` may depend on it. A number that changes
    all the time, such as a progress, belongs in a variable: one trace then serves all
    its values. The same holds of `jit`; a plain `tf.function` keeps what it read at
    first.

    Args:
        function: an op of tensors or nests of tensors. Left out where options are
            given: `@compiled(jit_compile=True)`.
        static: names of parameters that are not tensors (bool, string, axis); their
            values must be hashable and each value has its own trace.
        jit_compile: whether to compile with XLA.

    Returns:
        The function, compiled when called eagerly.

    Raises:
        ValueError: if `static` names no parameter, or a parameter whose default is a
            bool or a string is missing from it.

    Example:
        >>> @compiled(static=("squared",))
        ... def distance(x, y, squared=False):
        ...     gap = tf.reduce_sum(tf.square(x - y))
        ...     return gap if squared else tf.sqrt(gap)
        >>> float(distance(tf.constant([3.0, 4.0]), 0.0))
        5.0
        >>> float(distance(tf.constant([3.0, 4.0, 12.0]), 0))
        13.0
        >>> distance.trace_count()
        1
    """
    if function is None:
        return functools.partial(compiled, static=static, jit_compile=jit_compile)
    signature = inspect.signature(function)
    _check_static(function, signature, static)
    cache, named = _traces.Cache(), _traces.binder(signature)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        eager = tf.executing_eagerly()
        if tf.config.functions_run_eagerly() or not (eager or jit_compile):
            return function(*args, **kwargs)
        given = named(args, kwargs)
        nests = {k: v for k, v in given.items() if k not in static}
        leaves = _traces.leaves(function.__name__, nests)
        tensors = [leaf for leaf in leaves if leaf is not None]

        def trace() -> Any:
            bound = inspect.BoundArguments(signature, given)
            flat = _traces.of_leaves(function, bound, nests, leaves)
            xla = jit_compile and _traces.host_has_xla()
            made = _traces.trace(flat, leaves, eager, xla)
            return calls.differentiable(flat, made, xla) if eager else made

        if not eager:
            return trace()(*tensors)
        kinds = tuple(
            [
                leaf if leaf is None else (leaf.dtype.as_datatype_enum, leaf.shape.rank)
                for leaf in leaves
            ]
        )
        fixed = tuple([given[name] for name in static])
        nested = [
            None if isinstance(nest, _traces.LEAVES) else _traces.structure(nest)
            for nest in nests.values()
        ]
        key = (fixed, kinds, tuple(nested))
        return cache.get(key, trace)(*tensors)

    call.trace_count = lambda: len(cache.traces)  # type: ignore[attr-defined]
    return call


def jit(
    func: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
    *,
    differentiable: bool = True,
    xla: bool | Callable[..., bool] = True,
) -> "JittedFunc":
    """Compiles a function with XLA; the result can be pickled.

    Every argument is a nest of tensors, arrays or numbers, except those named by
    `static_argnums`. Numbers become tensors (float32, int32, bool), so their values
    never cause a trace. The function is traced for each combination of shapes and
    dtypes, so that sizes are plain integers in its body, and for each static value.
    Python's `if` and `while` see tensors without values: use `tf.cond` and
    `tf.while_loop`.

    Pickling keeps the function and the options; the compiled code is made again at
    the first call. A function that pickle cannot name (a lambda, a closure) needs
    cloudpickle, and so does one of the main script that another process is sent.

    Args:
        func: the function.
        static_argnums: positions of arguments that are ordinary Python values; they
            must be hashable.
        donate_argnums: positions of arguments the caller will not use again. Kept for
            callers that pass it; TensorFlow cannot hand input memory to a function,
            so it changes nothing.
        differentiable: whether gradients of the result may be asked for. False makes
            an eager call cheaper by a microsecond per result, and by some 10 per
            tensor that goes in where the function reads variables or draws numbers.
        xla: False compiles a plain TensorFlow graph; a function says which of both from
            the arguments of the call, whenever a trace is made.

    Returns:
        A callable with the signature of `func`.

    Raises:
        ValueError: if a position is outside the signature of `func`.
        TypeError: if a position is not an integer.

    Example:
        >>> def power(x, n):
        ...     return x**n
        >>> cube = jit(power, static_argnums=1)
        >>> float(cube(2.0, 3))
        8.0
        >>> cube
        JittedFunc(x, n)
    """
    return JittedFunc(func, static_argnums, donate_argnums, differentiable, xla)


class JittedFunc:
    """What `jit` returns: a function, its options, and its compiled form."""

    def __init__(
        self,
        func: Callable[..., Any],
        static_argnums: int | Sequence[int],
        donate_argnums: int | Sequence[int],
        differentiable: bool,
        xla: bool | Callable[..., bool],
    ) -> None:
        functools.update_wrapper(self, func)
        self.func, self._signature = func, inspect.signature(func)
        names = list(self._signature.parameters)
        self.static_argnums = _positions("static_argnums", static_argnums, names)
        self.donate_argnums = _positions("donate_argnums", donate_argnums, names)
        self.differentiable, self.xla = differentiable, xla
        self._static_names = {names[index] for index in self.static_argnums}
        self._cache = _traces.Cache()
        self._named = _traces.binder(self._signature, defaults=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the compiled function; the arguments are those of `func`."""
        if tf.config.functions_run_eagerly():
            return self.func(*args, **kwargs)
        given, static = self._named(args, kwargs), self._static_names
        nests = {name: value for name, value in given.items() if name not in static}
        leaves = [*map(_traces.as_tensor, tf.nest.flatten(list(nests.values())))]
        tensors = [leaf for leaf in leaves if leaf is not None]
        eager = tf.executing_eagerly()

        def trace() -> Any:
            xla = self.xla(*args, **kwargs) if callable(self.xla) else self.xla
            bound = inspect.BoundArguments(self._signature, given)
            flat = _traces.of_leaves(self.func, bound, nests, leaves)
            xla = xla and _traces.host_has_xla()
            made = _traces.trace(flat, leaves, False, xla)
            if not eager:
                return made
            if self.differentiable:
                return calls.differentiable(flat, made, xla)
            return calls.handed_over(made)

        if not eager:
            return trace()(*tensors)
        kinds = tuple(
            leaf if leaf is None else (leaf.dtype, tuple(leaf.shape)) for leaf in leaves
        )
        fixed = tuple([(name, given[name]) for name in given if name in static])
        structures = tuple([(k, _traces.structure(nest)) for k, nest in nests.items()])
        return self._cache.get((fixed, kinds, structures), trace)(*tensors)

    def __repr__(self) -> str:
        return f"JittedFunc{self._signature}"

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", "")
        module = sys.modules.get(getattr(self.func, "__module__", None) or "")
        is_decorated = getattr(module, name, None) is self
        if is_decorated and self.func.__module__ != "__main__":
            return name  # pickle finds it by name
        make = functools.partial(jit, differentiable=self.differentiable, xla=self.xla)
        options = self.static_argnums, self.donate_argnums
        if not is_decorated:
            return make, (self.func, *options)
        # Another process has not this main script: cloudpickle sends the function
        # there, and pickle finds it here, by this name.
        self.func.__qualname__ = f"{name}.func"
        return _of_main, (name, make, self.func, *options)

    def trace_count(self) -> int:
        """Number of traces so far."""
        return len(self._cache.traces)


def _of_main(name: str, make: Callable[..., Any], func: Any, *options: Any) -> Any:
    """Returns what a function of the main script was decorated to, here or anew."""
    found = getattr(sys.modules["__main__"], name, None)
    return found if getattr(found, "func", None) is func else make(func, *options)


def _check_static(
    function: Callable[..., Any], signature: inspect.Signature, static: Sequence[str]
) -> None:
    unknown = sorted(set(static) - set(signature.parameters))
    if isinstance(static, str) or unknown:
        raise ValueError(
            f"`compiled`: `static` expected parameter names of `{function.__name__}` "
            f"{list(signature.parameters)}; got {static!r}"
        )
    for name, parameter in signature.parameters.items():
        if isinstance(parameter.default, (bool, str)) and name not in static:
            raise ValueError(
                f"`compiled`: `static` expected to name `{name}` of "
                f"`{function.__name__}`, whose default is {parameter.default!r}; "
                f"got {list(static)}"
            )


def _positions(
    argument: str, value: int | Sequence[int], names: Sequence[str]
) -> tuple[int, ...]:
    """Positions among the parameters of a function, counted from its first one."""
    n = len(names)
    positions = (value,) if isinstance(value, int) else tuple(value)
    return tuple(
        arguments.check_whole_number("jit", argument, position, -n, n - 1) % n
        for position in positions
    )
