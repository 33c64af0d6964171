"""Tests of the types that `configs.parse` admits, judged by annotations."""

import enum
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import keras
import numpy as np
import pytest

from tfrl.configuring import configs


class Colour(enum.Enum):
    RED = 1


class Speaks(Protocol):
    def speak(self) -> str: ...


@pytest.fixture(autouse=True)
def _forget():
    yield
    configs.clear()


def parse(annotation, *lines, default=...):
    def typed(x=default, y: int = 0):
        return x

    typed.__annotations__["x"] = annotation
    made = configs.register({"typed": typed}, module="types")["typed"]
    configs.parse(bindings=lines)
    return made


FITTING = [
    (int, 3),
    (float, 3),
    (float, 0.5),
    (bool, True),
    (str, "a"),
    (bytes, b"a"),
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
    (Callable[..., int] | float, 1.0),
]


@pytest.mark.parametrize(("annotation", "value"), FITTING, ids=str)
def test_fitting_values_pass(annotation, value):
    assert parse(annotation, f"typed.x = {value!r}")() == value
    parse(annotation, "typed.x = %later", f"later = {value!r}")


MISFITS = [
    (int, 3.0),
    (int, True),
    (float, True),
    (float, "0.1"),
    (bool, 1),
    (str, 3),
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
    got = rf"bindings:1: expected .* for `typed.x`; got {re.escape(f'{value!r} (')}"
    message = got + rf"{type(value).__name__}\)"
    with pytest.raises(ValueError, match=message):
        parse(annotation, f"typed.x = {value!r}")
    with pytest.raises(ValueError, match=message):
        parse(annotation, "typed.x = %later", f"later = {value!r}")


def test_references_pass():
    parse(int, "typed.x = @typed")
    parse(list[int], "typed.x = [@typed, @s/typed()]", "s/typed.x = [1]")
    parse(int | None, "typed.x = %again", "again = @s/typed()", "s/typed.x = 1")


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
    configs.register({"target": target}, module=f"types_{target.__name__}")
    name = f"types_{target.__name__}.target"
    configs.parse(bindings=[f"{name}.size = 3"])
    with pytest.raises(ValueError, match=f"expected int for `{name}.size`"):
        configs.parse(bindings=[f"{name}.size = '3'"])


def test_unknown_parameters_are_told():
    targets = {"t_make": make, "t_plain": Plain, "t_layer": Layer}
    configs.register(targets, module="types")
    configs.parse(bindings=["t_layer.name = 'x'"])
    for line, message in {
        "t_make.sise = 3": "no such parameter; did you mean `size`?",
        "t_plain.q = 3": r"a parameter for `t_plain.q`; got no such.*\['size'\]",
    }.items():
        with pytest.raises(ValueError, match=message):
            configs.parse(bindings=[line])
    with pytest.raises(ValueError, match="did you mean `t_make.name`"):
        configs.parse(bindings=["t_plain.name = 'x'", "t_make.name = 'x'"])


def test_arguments_of_an_environment_have_a_place():
    def t_make_vec(env_id: str, n_envs: int = 1, env_kwargs: dict | None = None):
        return env_id, n_envs, env_kwargs

    configs.register({"t_make_vec": t_make_vec}, module="types")
    told = r"go into `t_make_vec.env_kwargs = \{'own_spaces': \.\.\.\}`"
    with pytest.raises(ValueError, match=told):
        configs.parse(bindings=["t_make_vec.own_spaces = True"])
    with pytest.raises(ValueError, match=r"did you mean `env_kwargs`\?$"):
        configs.parse(bindings=["t_make_vec.env_kwarg = {}"])


def test_the_default_passes_whatever_its_annotation():
    parse(int, "typed.x = None", default=None)


def test_annotations_and_signatures_that_cannot_be_read_judge_nothing():
    def unread(x: "Nowhere", y: "int" = 1):  # noqa: F821
        return x

    configs.register({"unread": unread, "t_dict": dict}, module="types")
    configs.parse(bindings=["unread.x = 'a'"])
    with pytest.raises(ValueError, match="no such parameter"):
        configs.parse(bindings=["unread.z = 'a'"])
    configs.parse(bindings=["t_dict.x = 'a'"])
