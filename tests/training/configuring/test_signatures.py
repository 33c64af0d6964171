"""Tests of `tfrl.training.configuring._signatures`."""

import enum
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import keras
import numpy as np
import pytest

from tfrl.training.configuring import _signatures


class Colour(enum.Enum):
    RED = 1


class Speaks(Protocol):
    def speak(self) -> str: ...


class Later:
    """Stands for a value not known yet."""

    def __repr__(self):
        return "Later()"  # no address: parallel runs must agree on the names of tests


def fault(annotation, value, **default):
    def target(x):
        return x

    target.__annotations__["x"] = annotation
    return _signatures.parameter_fault(target, "x", value, (Later,))


FITTING = [
    (int, 3),
    (float, 3),
    (float, 0.5),
    (bool, True),
    (str, "a"),
    (bytes, b"a"),
    (None, None),
    (int | None, None),
    (float | str, "a"),
    (Literal["a", 3], 3),
    (Annotated[int, "steps"], 3),
    (list[int], [1, 2]),
    (tuple[int, ...], (1, 2)),
    (tuple[int, ...], [1, 2]),
    (tuple[int, str], (1, "a")),
    (Sequence[float], (1, 2.0)),
    (list, ["a", 1]),
    (Mapping[str, int], {"a": 1}),
    (dict, {}),
    (Any, "a"),
    (object, "a"),
    ("Unknown", "a"),
    (Speaks, "a"),
    (int, Later()),
    (list[int], [Later()]),
    (Callable[..., int] | float, 1.0),
]


@pytest.mark.parametrize(("annotation", "value"), FITTING, ids=str)
def test_fitting_values_pass(annotation, value):
    assert fault(annotation, value) is None


MISFITS = [
    (int, 3.0),
    (int, True),
    (float, True),
    (float, "0.1"),
    (bool, 1),
    (str, 3),
    (None, 0),
    (int | None, "a"),
    (Literal["a", 3], "b"),
    (Literal[1], True),
    (Annotated[int, "steps"], "a"),
    (list[int], (1, 2)),
    (list[int], ["a"]),
    (tuple[int, ...], [1, "a"]),
    (tuple[int, str], (1,)),
    (Sequence[str], "abc"),
    (Sequence[int], 3),
    (Mapping[str, int], [1]),
    (Callable[..., int] | float, "0.1"),
    (Colour, "RED"),
    (pathlib.Path, "a"),
    (np.ndarray, [1]),
    (dict, [1]),
]


@pytest.mark.parametrize(("annotation", "value"), MISFITS, ids=str)
def test_misfits_are_told(annotation, value):
    expected, got, todo = fault(annotation, value)
    assert expected.endswith(" for")
    assert got == f"{value!r} ({type(value).__name__})"
    assert todo == "write a value of that type"


class Plain:
    def __init__(self, size: int = 3):
        pass


class Record(NamedTuple):
    size: int


class Layer(keras.layers.Layer):
    def __init__(self, size: int, **kwargs):
        super().__init__(**kwargs)


def make(size: int, *, name: str = "x") -> None:
    pass


@pytest.mark.parametrize("target", [Plain, Record, Layer, make])
def test_functions_and_constructors_are_read(target):
    assert _signatures.parameter_fault(target, "size", 3) is None
    assert _signatures.parameter_fault(target, "size", "3")[0] == "int for"


def test_unknown_parameters_are_told():
    assert _signatures.parameter_fault(make, "sise", 3) == (
        "a parameter for",
        "no such parameter",
        "did you mean `size`?",
    )
    assert _signatures.parameter_fault(Plain, "x", 3)[2] == "there are ['size']"
    assert _signatures.parameter_fault(Layer, "name", "x") is None


def test_the_default_passes_whatever_its_annotation():
    def target(x: int = None):
        pass

    assert _signatures.parameter_fault(target, "x", None) is None


def test_annotations_and_signatures_that_cannot_be_read_judge_nothing():
    def target(x: "Nowhere", y: "int" = 1):  # noqa: F821
        pass

    assert _signatures.parameter_fault(target, "x", "a") is None
    assert _signatures.parameter_fault(target, "z", "a") is not None
    assert _signatures.parameter_fault(dict, "x", "a") is None
