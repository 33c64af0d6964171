"""How schedules take their argument, and what they are made of."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.schedules import schedulers


@dataclasses.dataclass(frozen=True)
class Halved(schedulers.Scheduler):
    """Shows what arrives."""

    progress_type: str = "iterations"
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
    value = Halved()(number)
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
    value = Halved()(make())
    assert tf.is_tensor(value)
    assert value.dtype == (dtype if dtype.startswith("float") else "float32")
    np.testing.assert_allclose(value, [1.5, 0.5])


def test_large_integers_are_not_rounded():
    class Over(schedulers.Scheduler):
        def value_at(self, progress):
            return progress - 2.0**40

    assert float(Over("iterations")(tf.constant(2**40 + 1, tf.int64))) == 1.0


def test_config_is_the_fields():
    config = {"progress_type": "iterations", "divisor": 3.0}
    assert Halved(divisor=3.0).get_config() == config
    assert Halved.from_config(config) == Halved(divisor=3.0)


@pytest.mark.parametrize("progress", ["3", tf.constant(True)], ids=["text", "bool"])
def test_refuses_what_is_no_progress(progress):
    with pytest.raises(TypeError, match="`Halved`: `progress` expected a number or"):
        Halved()(progress)


def test_without_a_value_it_says_so():
    with pytest.raises(NotImplementedError):
        schedulers.Scheduler("percent")(1)


@pytest.mark.parametrize("value", ["1", True, None, 1j], ids=repr)
def test_values_are_numbers(value):
    match = "`ConstantScheduler`: `value` expected a number; got"
    with pytest.raises(TypeError, match=match):
        schedulers.ConstantScheduler(value)


def test_the_type_of_progress_is_known():
    schedulers.Scheduler("env_steps")
    match = "`Scheduler`: `progress_type` expected one of"
    with pytest.raises(ValueError, match=match):
        schedulers.Scheduler("steps")


def test_pairs_become_hashable():
    made = schedulers.LinearScheduler("percent", [[0, 1.0], (0, 2)])
    assert hash(made)
    assert made.schedule == ((0, 1.0), (0, 2))


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
@pytest.mark.parametrize("kind", ["LinearScheduler", "StepScheduler"])
def test_refuses_what_are_no_pairs(kind, schedule, error, message):
    with pytest.raises(error, match=f"`{kind}`: `schedule` {message}"):
        getattr(schedulers, kind)("percent", schedule)
