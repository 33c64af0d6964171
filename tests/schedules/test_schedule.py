"""How schedules take their argument."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.schedules import _schedule


@dataclasses.dataclass(frozen=True)
class Halved(_schedule.Schedule):
    """Shows what arrives."""

    divisor: float = 2.0

    def value_at(self, progress):
        if tf.is_tensor(progress):
            assert progress.dtype in (tf.float32, tf.float64)
        else:
            assert type(progress) is float
        return progress / self.divisor


NUMBERS = [3, 3.0, True + 2, np.int64(3), np.float32(3), np.uint8(3), np.array(3)]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: type(n).__name__)
def test_numbers_give_floats(number):
    value = Halved().applied(number)
    assert (type(value), value) == (float, 1.5)


@pytest.mark.parametrize(
    "dtype", ["int32", "int64", "uint8", *"float16 float64".split()]
)
@pytest.mark.parametrize("kind", ["tensor", "variable", "keras", "array"])
def test_tensors_give_tensors(dtype, kind):
    make = {
        "tensor": lambda: tf.constant([3, 1], dtype),
        "variable": lambda: tf.Variable(tf.constant([3, 1], dtype)),
        "keras": lambda: keras.Variable([3, 1], dtype=dtype, trainable=False),
        "array": lambda: np.array([3, 1], dtype),
    }[kind]
    value = Halved().applied(make())
    assert tf.is_tensor(value)
    assert value.dtype == (dtype if dtype.startswith("float") else "float32")
    np.testing.assert_allclose(value, [1.5, 0.5])


def test_large_integers_are_not_rounded():
    class Over(_schedule.Schedule):
        def value_at(self, progress):
            return progress - 2.0**40

    assert float(Over().applied(tf.constant(2**40 + 1, tf.int64))) == 1.0


def test_config_is_the_fields():
    assert Halved(3.0).get_config() == {"divisor": 3.0}
    assert Halved.from_config({"divisor": 3.0}) == Halved(3.0)


@pytest.mark.parametrize("progress", ["3", tf.constant(True)], ids=["text", "bool"])
def test_refuses_what_is_no_progress(progress):
    with pytest.raises(TypeError, match="`Halved`: `progress` expected a number or"):
        Halved().applied(progress)


def test_without_a_value_it_says_so():
    with pytest.raises(NotImplementedError):
        _schedule.Schedule().applied(1)


@pytest.mark.parametrize("value", ["1", True, None, 1j], ids=repr)
def test_check_number(value):
    with pytest.raises(TypeError, match="`f`: `x` expected a number; got"):
        _schedule.check_number("f", "x", value)


def test_check_progress_type():
    _schedule.check_progress_type("f", "env_steps")
    with pytest.raises(ValueError, match="`f`: `progress_type` expected one of"):
        _schedule.check_progress_type("f", "steps")


@dataclasses.dataclass(frozen=True)
class Paired(_schedule.Schedule):
    progress_type: str
    schedule: list

    def __post_init__(self):
        _schedule.check_pairs(self)


def test_check_pairs_makes_them_hashable():
    assert hash(Paired("percent", [[0, 1.0], (0, 2)]))
    assert Paired("percent", [[0, 1.0]]).schedule == ((0, 1.0),)


@pytest.mark.parametrize(
    ("schedule", "error", "message"),
    [
        ([], TypeError, r"expected a list of pairs \(progress, value\); got \[\]"),
        (3.0, TypeError, "expected a list of pairs"),
        ([1.0, 2.0], TypeError, r"expected pairs \(progress, value\); got 1.0"),
        ([(1, 2, 3)], TypeError, r"expected pairs .*got \(1, 2, 3\)"),
        ([(0, "a")], TypeError, "expected a number; got 'a'"),
        ([(0, float("nan"))], ValueError, "expected finite numbers"),
        ([(0, 1.0), (float("inf"), 2.0)], ValueError, "expected finite numbers"),
        (
            [(2, 1.0), (1, 2.0)],
            ValueError,
            r"expected progress that ascends; got \[2, 1\]",
        ),
    ],
    ids=["empty", "number", "flat", "triple", "text", "nan", "inf", "descending"],
)
def test_check_pairs_refuses(schedule, error, message):
    with pytest.raises(error, match=f"`Paired`: `schedule` {message}"):
        Paired("percent", schedule)
