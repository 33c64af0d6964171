"""What every numeric component promises, as functions of one row of the table.

A `Row` says how to call a component, how to make its inputs and which of them carry a
gradient; each `check_*` raises `AssertionError` where the component breaks a promise.
`test_battery.py` shows every check failing on a component that breaks it.
"""

import dataclasses
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import records

Nest = Any
Arguments = dict[str, Nest]

DTYPES = ("float16", "bfloat16", "float32", "float64")
EPSILONS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}
_SIZES = (1e-38, 1e-30, 1e-3, 0.5, 1.0, 2.0, 50.0, 100.0, 1e4, 1e10, 1e30)
EVERYWHERE = np.array([0.0, -0.0, *_SIZES, *(-size for size in _SIZES)])
BATCH = 4


def between(low: float, high: float, least: float = 0.0) -> np.ndarray:
    """The extreme values of an interval, those of less size than `least` left out."""
    sizes = np.abs(EVERYWHERE)
    kept = (sizes >= least) | (sizes == 0)
    return EVERYWHERE[(EVERYWHERE >= low) & (EVERYWHERE <= high) & kept]


def loss_or_all(result: Nest) -> Nest:
    """What gradients are taken of: the loss of a `LossInfo`, or the whole result."""
    return result.loss if isinstance(result, records.LossInfo) else result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One component.

    Attributes:
        name: `room.function`, and `: aspect` where a component has several rows.
        call: of the inputs and options by name, to a nest of tensors.
        make: of a numpy generator and a batch size, to the inputs by name: nests of
            arrays. Floating ones are cast to the dtype under test.
        options: further arguments, Python values that stay as they are.
        differentiable: inputs whose gradient is that of the mathematics.
        stopped: inputs that must have no gradient.
        objective: of the result, to what gradients are taken of.
        kinks: values of inputs where the derivative jumps; kept away from.
        extremes: the extreme values that inputs take: `EVERYWHERE` or `between`.
        batch_axis: of the inputs.
        known_axes: number of axes at the end whose sizes a trace knows.
        scalars: arguments that may be any number of an interval without a new trace.
        dtypes: which the component supports.
        rounding: error allowed, in units of the dtype's last place.
        keeps_dtype: whether floating results have the dtype of the inputs.
        own_draws: why the dtypes' results are random numbers of their own, if so.
        not_xla: why XLA cannot compile it, if it cannot.
    """

    name: str
    call: Callable[..., Nest]
    make: Callable[[np.random.Generator, int], Arguments]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    differentiable: Sequence[str] = ()
    stopped: Sequence[str] = ()
    objective: Callable[[Nest], Nest] = loss_or_all
    kinks: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    extremes: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    batch_axis: int = 0
    known_axes: int = 0
    scalars: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    dtypes: Sequence[str] = DTYPES
    rounding: float = 4.0
    keeps_dtype: bool = True
    own_draws: str = ""
    not_xla: str = ""

    @property
    def covers(self) -> str:
        return self.name.split(":")[0]

    def inputs(self, batch: int = BATCH, seed: int = 0) -> Arguments:
        """Ordinary inputs in float64, away from the kinks."""
        made = self.make(np.random.default_rng(seed), batch)
        for name, points in self.kinks.items():
            made[name] = tf.nest.map_structure(
                lambda array, points=points: away_from(points, array), made[name]
            )
        return made

    def sources(self, tensors: Arguments) -> list[tuple[str, tf.Tensor]]:
        """The leaves whose gradients are looked at, each with its input's name."""
        return [
            (name, leaf)
            for name in (*self.differentiable, *self.stopped)
            for leaf in tf.nest.flatten(tensors[name])
        ]

    def outcome(self, tensors: Arguments, waves: bool = True) -> tuple[Nest, Nest]:
        """The results, and the gradients of the sources of a weighted sum of them."""
        flat = [leaf for _, leaf in self.sources(tensors)]
        with tf.GradientTape() as tape:
            tape.watch(flat)
            result = self.call(**tensors, **self.options)
            leaves = tf.nest.flatten(self.objective(result))
            leaves = [leaf for leaf in leaves if leaf.dtype.is_floating]
        weights = [wave(leaf) if waves else tf.ones_like(leaf) for leaf in leaves]
        gradients = []
        if flat:
            gradients = tape.gradient(leaves, flat, output_gradients=weights)
        dense = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        return tf.nest.flatten(result), dense


def away_from(points: Sequence[float], array: np.ndarray) -> np.ndarray:
    """Moves what lies within 0.01 of a point to a distance of 0.02."""
    for point in points:
        array = np.where(np.abs(array - point) < 0.01, point + 0.02, array)
    return array


def wave(leaf: tf.Tensor) -> tf.Tensor:
    """Weights of a result in a sum: all different, none zero."""
    places = tf.cast(tf.range(tf.size(leaf)), tf.float32)
    return tf.cast(tf.reshape(1.5 + tf.cos(3 * places), tf.shape(leaf)), leaf.dtype)


def cast(arguments: Arguments, dtype: str) -> Arguments:
    """Tensors of arrays, the floating ones in a dtype."""

    def converted(array: np.ndarray) -> tf.Tensor:
        array = np.asarray(array)
        floating = np.issubdtype(array.dtype, np.floating)
        return tf.cast(array, dtype) if floating else tf.constant(array)

    return tf.nest.map_structure(converted, arguments)


def widened(tensors: Arguments) -> Arguments:
    """The same numbers in float64."""
    return tf.nest.map_structure(
        lambda t: tf.cast(t, tf.float64) if t.dtype.is_floating else t, tensors
    )


def doubles(leaf: Any) -> np.ndarray:
    """A leaf in numpy's float64, or as it is where it does not hold numbers."""
    if leaf.dtype.is_floating:
        return tf.cast(leaf, tf.float64).numpy()
    return leaf.numpy()


def assert_close(
    got: Sequence[Any], expected: Sequence[Any], error: float, what: str
) -> None:
    """Compares leaves; `error` is relative to the largest number of each leaf."""
    assert len(got) == len(expected), what
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert (one is None) == (other is None), f"{what}[{index}]: {one} {other}"
        if one is None:
            continue
        right = doubles(other)
        scale = 0.0
        if right.dtype.kind == "f":
            scale = float(np.max(np.abs(right[np.isfinite(right)]), initial=0.0))
        np.testing.assert_allclose(
            doubles(one),
            right,
            rtol=error,
            atol=error * scale,
            err_msg=f"{what}[{index}]",
        )


def check_compiled(row: Row) -> None:
    """Eager, in a graph of unknown sizes and in XLA: the same."""
    tensors = cast(row.inputs(), "float32")
    expected = row.outcome(tensors)
    unknown = tf.nest.map_structure(lambda t: unknown_sizes(t, row.known_axes), tensors)
    graph = tf.function(row.outcome, autograph=False, input_signature=[unknown])
    assert_alike(row, "graph", graph(tensors), expected)
    xla = tf.function(row.outcome, autograph=False, jit_compile=True)
    if not row.not_xla:
        assert_alike(row, "XLA", xla(tensors), expected)
        return
    try:
        xla(tensors)
    except Exception:
        return
    raise AssertionError(f"{row.name}: XLA compiles it; `not_xla` is out of date")


def check_converted(row: Row) -> None:
    """Eager and in a graph of known sizes whose Python autograph has rewritten."""
    tensors = cast(row.inputs(), "float32")
    got = tf.function(row.outcome)(tensors)
    assert_alike(row, "graph by autograph", got, row.outcome(tensors))


def assert_alike(row: Row, how: str, got: Nest, expected: Nest) -> None:
    error = row.rounding * 4 * EPSILONS["float32"]
    for kind, ours, theirs in zip(("value", "gradient"), got, expected, strict=True):
        assert_close(ours, theirs, error, f"{row.name}: {how}: {kind}")


def unknown_sizes(tensor: tf.Tensor, known_axes: int) -> tf.TensorSpec:
    sizes = list(tensor.shape)
    hidden = len(sizes) - known_axes
    return tf.TensorSpec(
        [None if axis < hidden else size for axis, size in enumerate(sizes)],
        tensor.dtype,
    )


def check_gradients(row: Row) -> None:
    """Gradients are central differences in float64; stopped ones are none."""
    tensors = cast(row.inputs(), "float64")
    _, gradients = row.outcome(tensors)
    for (label, leaf), gradient in zip(row.sources(tensors), gradients, strict=True):
        where = f"{row.name}: gradient of {label}"
        if label in row.stopped:
            assert gradient is None or not np.any(gradient), f"{where}: {gradient}"
            continue
        assert gradient is not None, f"{where}: none"
        expected = central_differences(row, tensors, leaf)
        scale = max(1.0, float(np.max(np.abs(expected))))
        worst = float(np.max(np.abs(gradient - expected)))
        assert worst <= 1e-5 * scale, f"{where}: {gradient} is not {expected}"


def central_differences(row: Row, tensors: Arguments, leaf: tf.Tensor) -> np.ndarray:
    """Derivative of the weighted sum by each element of one leaf of the inputs."""
    flat = tf.nest.flatten(tensors)
    place = next(index for index, other in enumerate(flat) if other is leaf)

    def total(array: np.ndarray) -> float:
        moved = [*flat[:place], tf.constant(array), *flat[place + 1 :]]
        result = row.call(**tf.nest.pack_sequence_as(tensors, moved), **row.options)
        leaves = tf.nest.flatten(row.objective(result))
        return sum(
            float(tf.reduce_sum(wave(leaf) * leaf))
            for leaf in leaves
            if leaf.dtype.is_floating
        )

    array = np.array(leaf)
    out = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        step = 1e-5 * max(1.0, abs(array[index]))
        sides = []
        for sign in (1.0, -1.0):
            moved = array.copy()
            moved[index] += sign * step
            sides.append(total(moved))
        out[index] = (sides[0] - sides[1]) / (2 * step)
    return out


def check_dtype(row: Row, dtype: str) -> None:
    """The caller's dtype comes back, with the values of float64 rounded to it."""
    tensors = cast(row.inputs(), dtype)
    values, gradients = row.outcome(tensors)
    if row.keeps_dtype:
        kinds = {v.dtype.name for v in values if v.dtype.is_floating}
        assert kinds <= {dtype}, f"{row.name}: {dtype} became {kinds}"
    kinds = {g.dtype.name for g in gradients if g is not None}
    assert kinds <= {dtype}, f"{row.name}: gradients of {dtype} became {kinds}"
    if row.own_draws or dtype == "float64":
        return
    expected, expected_gradients = row.outcome(widened(tensors))
    error = row.rounding * EPSILONS[dtype]
    assert_close(values, expected, error, f"{row.name}: {dtype}: value")
    assert_close(
        gradients, expected_gradients, 4 * error, f"{row.name}: {dtype}: gradient"
    )


def check_numbers(row: Row) -> None:
    """Python's numbers are not rounded to float32 on their way into float64."""
    tensors = cast(row.inputs(), "float64")
    exact = {
        name: np.float64(value) if isinstance(value, float) else value
        for name, value in row.options.items()
    }
    got, _ = row.outcome(tensors)
    expected, _ = dataclasses.replace(row, options=exact).outcome(tensors)
    error = row.rounding * EPSILONS["float64"]
    assert_close(got, expected, error, f"{row.name}: Python instead of numpy number")


def extreme_inputs(row: Row) -> Arguments:
    """Inputs of which the named ones hold all their extreme values."""
    grids = row.extremes
    sizes = [len(grid) for grid in grids.values()]
    plain = row.inputs(batch=int(np.prod(sizes)) if len(sizes) <= 2 else 512)
    rng = np.random.default_rng(1)
    in_pairs = len(grids) <= 2 and all(
        isinstance(plain[name], np.ndarray) and plain[name].ndim == 1 for name in grids
    )
    if in_pairs:
        pairs = np.array(list(itertools.product(*grids.values())))
        return plain | dict(zip(grids, pairs.T, strict=True))

    def filled(array: np.ndarray, grid: np.ndarray) -> np.ndarray:
        out = rng.choice(grid, size=array.shape)
        if array.ndim:  # some samples of one value throughout
            by_sample = np.moveaxis(out, min(row.batch_axis, array.ndim - 1), 0)
            for index in range(min(len(by_sample), len(grid))):
                by_sample[index] = grid[index]
        return out

    return plain | {
        name: tf.nest.map_structure(lambda a, g=grid: filled(a, g), plain[name])
        for name, grid in grids.items()
    }


def check_extremes(row: Row) -> None:
    """No NaN and no infinity in float32 where float64, rounded to it, is finite.

    In float64 there is no NaN at all.
    """
    tensors = cast(extreme_inputs(row), "float32")
    got = row.outcome(tensors, waves=False)
    expected = row.outcome(widened(tensors), waves=False)
    for kind, ours, reference in zip(("value", "gradient"), got, expected, strict=True):
        for index, (one, other) in enumerate(zip(ours, reference, strict=True)):
            if one is None or not one.dtype.is_floating:
                continue
            right = doubles(other)
            faults = np.isnan(right)
            with np.errstate(over="ignore"):
                rounded = right.astype(np.float32)
            faults |= ~np.isfinite(doubles(one)) & np.isfinite(rounded)
            assert not faults.any(), (
                f"{row.name}: extremes: {kind}[{index}] has {faults.sum()} faults of "
                f"{faults.size}\n{first_fault(row, tensors, one, right, faults)}"
            )


def first_fault(
    row: Row, tensors: Arguments, got: tf.Tensor, right: np.ndarray, faults: np.ndarray
) -> str:
    """The inputs where the first fault lies, as far as shapes tell."""
    at = tuple(int(axis[0]) for axis in np.nonzero(faults))
    lines = [f"at {list(at)}: got {doubles(got)[at]}, float64 {right[at]}"]
    for name, nest in tensors.items():
        for leaf in tf.nest.flatten(nest):
            axis = min(row.batch_axis, max(leaf.shape.rank - 1, 0))
            if leaf.shape.rank and len(at) > axis and at[axis] < leaf.shape[axis]:
                sample = np.take(doubles(leaf), at[axis], axis)
                lines.append(f"{name} = {sample.tolist()}")
    return "\n".join(lines)


def check_traces(row: Row, calls: int = 4) -> None:
    """Different numbers and batch sizes cause one trace at most."""
    first = None
    for call in range(calls):
        share = (call + 0.5) / calls
        numbers = {
            name: low + (high - low) * share
            for name, (low, high) in row.scalars.items()
        }
        tensors = cast(row.inputs(batch=BATCH + call % 2), "float32")
        row.call(**{**tensors, **row.options, **numbers})
        first = traces() if first is None else first
    more = traces() - first
    assert more == 0, f"{row.name}: {calls} calls traced {more} times more than one"


def traces() -> int:
    """Traces of everything compiled that a module or class of the package holds."""
    modules = [m for name, m in sys.modules.items() if name.startswith("tfrl.")]
    found = {id(v): v for module in modules for v in vars(module).values()}
    classes = [v for v in found.values() if isinstance(v, type)]
    found |= {id(v): v for each in classes for v in vars(each).values()}
    total = 0
    for value in found.values():
        if isinstance(value, tf.types.experimental.PolymorphicFunction):
            total += value.experimental_get_tracing_count()
        elif callable(value) and not isinstance(value, type):
            total += getattr(value, "trace_count", int)()
    return total
