"""Results and gradients at extreme points against formulas of greater range.

A formula of `Wide` numbers tells what is right. Where that is within the dtype a result
is finite, and it is what is right for inputs moved by some units in the last place.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from conformance import wide

# How far inputs may be moved and results be off, in units of the last place: logarithms
# of numbers of all sizes cost some.
ULPS = {"float32": 64, "float64": 2048}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a component at some points.

    Attributes:
        asked: of tensors `points` and `settings`, to pairs of a name and a function
            without arguments that computes the result.
        points: arrays by name with as many rows as there are points.
        settings: numbers by name, the same for all points.
        formulas: by name of a result, of all points and settings to what is right,
            NaN where it is left open. Results without one must be finite.
        units: by name of an input, the size of the terms that slopes by it are sums of,
            where greater than 1; by "", of those of the values. None where the formulas
            tell only how large results can be.
        rough: names of results whose values are not compared.
        limits: by name of a result, least and greatest value.
    """

    asked: Callable[..., Any]
    points: Mapping[str, np.ndarray]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    formulas: Mapping[str, Callable[..., Any]]
    units: Mapping[str, Any] | None = dataclasses.field(default_factory=dict)
    rough: Sequence[str] = ()
    limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def dtype(self):
        return next(x.dtype for x in self.points.values() if x.dtype.kind == "f")

    @functools.cached_property
    def right(self):
        return {name: self.expected(each) for name, each in self.formulas.items()}

    def expected(self, formula, **instead):
        """Value and slopes by name, and how far off each may be."""
        points = {**self.points, **instead}
        error = np.finfo(self.dtype).eps * ULPS[self.dtype.name]
        fixed = {
            k: wide.wide(np.asarray(x, self.dtype)) for k, x in self.settings.items()
        }
        floats = [name for name, x in points.items() if x.dtype.kind == "f"]
        rest = {name: x for name, x in points.items() if name not in floats}

        def at(moved=None, steps=0.0):
            numbers = {name: points[name].astype(wide.LONG) for name in floats}
            if moved:
                numbers[moved] = numbers[moved] * (1 + error * steps)
            with np.errstate(all="ignore"):
                result = formula(**wide.inputs(numbers), **rest, **fixed)
            return {"": result.value, **{f"d{k}": x for k, x in result.slopes.items()}}

        right = at()
        if self.units is None:
            return right, dict.fromkeys(right, np.inf)
        units = {"": 1.0, **self.units}
        slack = {
            part: error * (np.abs(x) + units.get(part[1:], 1.0))
            for part, x in right.items()
        }
        for name in floats:
            width = points[name].shape[-1] if points[name].ndim > 1 else 1
            ways = (1.0, -1.0) if width == 1 else (np.resize([1.0, -1.0], width),)
            for steps in ways:
                for part, x in at(name, steps).items():
                    with np.errstate(invalid="ignore"):
                        slack[part] = slack[part] + np.abs(x - right[part])
        return right, slack

    def complaints(self, got):
        """Lines about each result that is wrong somewhere."""
        for name, parts in got.items():
            for part, array in parts.items():
                if array.dtype.kind != "f":
                    wrong, truth, slack = np.zeros(array.shape, bool), 0.0, 0.0
                else:
                    truth, slack = self.truth(name, part, got)
                    wrong = faults(array, truth, slack)
                if name in self.limits and not part:
                    low, high = self.limits[name]
                    wrong |= ~((array >= low) & (array <= high))
                if wrong.any():
                    label = f"{dict(self.settings)} {name} {part}"
                    yield report(label, wrong, array, truth, slack, self.points)

    def truth(self, name, part, got):
        """What is right of one result, and how far off it may be."""
        array = got[name][part]
        right = self.right.get(name)
        if name == "score" and self.units is None:
            right = self.size_of_score(got["draw"])
        if right is None or (part and part not in right[0]):
            return np.zeros(array.shape, wide.LONG), np.inf
        truth, slack = (np.asarray(of[part]) for of in right)
        if truth.ndim < array.ndim:  # of events of one number
            truth = truth.reshape(array.shape)
            slack = slack.reshape(array.shape) if slack.ndim else slack
        return truth, np.inf if name in self.rough else slack

    def size_of_score(self, draw):
        """How large the log-density of a draw and its gradients can be."""
        sizes, _ = self.expected(self.formulas["log_prob"], value=draw[""])
        through = sizes.pop("dvalue")
        with np.errstate(invalid="ignore", over="ignore"):
            for part in set(sizes) - {""}:
                sizes[part] = sizes[part] + np.abs(through * draw[part])
        return sizes, dict.fromkeys(sizes, np.inf)


def faults(got, right, slack):
    """Where a result is not finite though it should be, or not what is right."""
    info = np.finfo(got.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        fits = ~(np.abs(right) >= info.max / 16)
        off = np.abs(got.astype(wide.LONG) - right) > slack + 1024 * info.tiny
    return fits & (~np.isfinite(got) | off)


def report(name, wrong, got, right, slack, points):
    """The share of wrong results and a few of them."""
    at = np.argwhere(wrong)
    right, slack = (np.broadcast_to(x, got.shape) for x in (right, slack))
    lines = [f"{name}: {len(at)} of {wrong.size} are wrong"]
    for place in at[np.linspace(0, len(at) - 1, 4).astype(int)]:
        place = tuple(place)
        where = {k: x[place[0]].tolist() for k, x in points.items()}
        lines.append(
            f"  at {where}: got {got[place]}, right {right[place]:.9g}"
            f" +- {slack[place]:.2g}"
        )
    return "\n".join(lines)


def tensors(arrays, dtype):
    """Floating arrays and numbers in a dtype, all else as it is."""

    def converted(x):
        x = np.asarray(x)
        return tf.constant(x, dtype if x.dtype.kind == "f" else None)

    return {name: converted(x) for name, x in arrays.items()}


def answers(asked, points, settings):
    """By name, the results that are asked for, each with its gradients by name.

    A tape for each of them in eager mode, as is usual: a tape that serves several makes
    compiled functions propagate zeros, which meet infinite slopes. In a graph one tape
    serves all.
    """
    sources = {k: x for k, x in points.items() if x.dtype.is_floating}
    shared = not tf.executing_eagerly()
    out, tape, index, more = {}, None, 0, True
    while more:
        if tape is None or not shared:
            tape = tf.GradientTape(persistent=shared)
            with tape:
                tape.watch(sources)
                results = list(asked(points, settings))
        name, compute = results[index]
        with tape:
            result = compute()
        for place, leaf in enumerate(tf.nest.flatten(result)):
            parts = {"": leaf}
            if leaf.dtype.is_floating:
                slopes = tape.gradient(leaf, sources, unconnected_gradients="zero")
                parts |= {f"d{k}": x for k, x in slopes.items()}
            out[f"{name}{place or ''}"] = parts
        index += 1
        more = index < len(results)
    return out


def check(questions, mode, at_least=10_000):
    """Raises AssertionError where an answer is not what a formula says."""
    functions, messages, count = {}, [], 0
    for question in questions:
        asked = question.asked
        if asked not in functions:
            functions[asked] = functools.partial(answers, asked)
            if mode != "eager":
                functions[asked] = tf.function(
                    functions[asked], autograph=False, jit_compile=mode == "xla"
                )
        points = tensors(question.points, question.dtype)
        settings = tensors(question.settings, question.dtype)
        got = functions[asked](points, settings)
        count += len(next(iter(question.points.values())))
        messages += question.complaints(
            tf.nest.map_structure(lambda leaf: leaf.numpy(), got)
        )
    assert count >= at_least, f"{count} points are less than {at_least}"
    assert not messages, "\n".join(messages)
