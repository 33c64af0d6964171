"""Tests of `tfrl.saving._admitted_classes`."""

import dataclasses
import enum
import functools
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import pytree, records, shapes
from tfrl.saving import _admitted_classes, serialization
from tfrl.schedules import schedulers


def copied(value):
    return serialization.loads(serialization.dumps(value))


class Pair(NamedTuple):
    """Known inside of `known()` only."""

    x: object
    y: object = 0


class Colour(enum.Flag):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Counted:
    items: list
    count: int = dataclasses.field(init=False)
    made = 0

    def __post_init__(self):
        Counted.made += 1
        self.count = len(self.items)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    value: object


class Node(pytree.PyTreeNode):
    weights: object
    factor: float = pytree.nonpytree_field(default=2.0)

    @functools.cached_property
    def doubled(self):
        return self.factor * 2


def known(*classes):
    return keras.saving.custom_object_scope({cls.__name__: cls for cls in classes})


@keras.saving.register_keras_serializable(package="admitted_tests")
class Configured:
    def __init__(self, value):
        self.value = value

    def get_config(self):
        return {"value": self.value}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable(package="admitted_tests")
def double(x):
    return 2 * x


def test_records_of_the_house_come_back():
    step = records.TimeStep(
        step_types=records.StepType.MID,
        rewards=np.ones(2),
        discounts=tf.ones([2]),
        observations={"a": 1},
    )
    copy = copied(step)
    assert type(copy) is records.TimeStep
    assert copy.step_types is records.StepType.MID
    assert copy.observations == {"a": 1} and copy.discounts.shape == [2]
    spec = shapes.ShapeDtype((2, None), np.int8)
    assert copied(spec) == spec


def test_names_are_those_of_the_doors():
    name = _admitted_classes.name_of(shapes.ShapeDtype)
    assert name == "tfrl.core.ShapeDtype"
    assert _admitted_classes.named(name) is shapes.ShapeDtype


def test_your_own_records_come_back_where_keras_knows_them():
    values = [Pair(1, [2]), Slotted((3,)), Node(np.ones(2)), Colour.BLUE]
    with known(Pair, Slotted, Node, Colour):
        pair, slotted, node, colour = copied(values)
    assert pair == Pair(1, [2]) and type(pair) is Pair
    assert slotted == Slotted((3,))
    assert (node.factor, node.weights.tolist()) == (2.0, [1.0, 1.0])
    assert colour is Colour.BLUE


def test_records_come_back_without_their_constructor():
    with known(Counted):
        value = Counted([1, 2])
        before = Counted.made
        assert copied(value) == value
    assert Counted.made == before


def test_a_record_that_contains_itself_is_refused():
    value = Counted([])
    value.items = (1, {"self": value})
    with (
        known(Counted),
        pytest.raises(TypeError, match=r"items\[1\]` is of dict and is"),
    ):
        serialization.dumps(value)


def test_records_are_keys():
    with known(Slotted, Pair):
        copy = copied({Slotted(Pair(1, 2)): {Slotted(3)}})
    assert copy == {Slotted(Pair(1, 2)): {Slotted(3)}}


def test_what_is_cached_is_left_out():
    node = Node(1)
    assert node.doubled == 4.0
    with known(Node):
        assert copied(node).doubled == 4.0


def test_registered_objects_come_back_by_their_configuration():
    copy = copied(Configured({"a": [np.float32(2)], 3: Configured(None)}))
    assert copy.value["a"] == [2.0] and copy.value[3].value is None
    schedule = schedulers.LinearScheduler("iterations", [(0, 1.0), (10, 0.0)])
    assert copied(schedule) == schedule


def test_registered_classes_and_functions_come_back():
    assert copied([double, Configured]) == [double, Configured]


class Derived(Configured):
    pass


class Grown(dict):
    pass


Grown = dataclasses.dataclass(Grown)


def remember(record):
    record.extra = 3
    return record


CASES = {
    "unregistered": (Pair(1), (), "is of Pair"),
    "derived": (Derived(1), (), "is of Derived"),
    "layer": (keras.layers.Dense(1), ("Dense",), "has variables"),
    "built_on_dict": (Grown(), (Grown,), "not safe"),
    "extra": (remember(Counted([])), (Counted,), r"has \['extra'\] beside its fields"),
    "flags": (Colour.RED | Colour.BLUE, (Colour,), "is of Colour"),
    "nested_keras": (
        Configured(keras.saving.serialize_keras_object(keras.losses.Huber())),
        (),
        "holds another Keras object",
    ),
    "no_dict": (Configured, (), "no dict"),
}


@pytest.mark.parametrize("case", CASES)
def test_others_are_refused(case, monkeypatch):
    value, classes, message = CASES[case]
    if case == "layer":
        classes = [keras.layers.Dense]
    if case == "no_dict":
        monkeypatch.setattr(Configured, "get_config", lambda self: [1])
        value = Configured(1)
    with known(*classes), pytest.raises(TypeError, match=message):
        serialization.dumps(value)


def test_a_class_that_is_not_known_here_is_named():
    with known(Pair):
        data = serialization.dumps(Pair(1))
    with pytest.raises(ValueError, match="'Pair' is not registered"):
        serialization.loads(data)


def test_a_class_that_changed_is_named():
    with known(Pair):
        data = serialization.dumps(Pair(1))

    class Changed(NamedTuple):
        x: int

    with keras.saving.custom_object_scope({"Pair": Changed}):
        with pytest.raises(ValueError, match=r"had the fields \['x', 'y'\] and now"):
            serialization.loads(data)


@pytest.mark.parametrize(
    "name",
    ["os.system", "builtins.eval", "tfrl.core.checks", "tfrl.ops.square", "tfrl", ""]
    + [
        "keras.layers.Lambda",
        "tfrl.saving._admitted_classes.sys",
        "..",
        "tfrl.core.",
    ],
)
def test_nothing_else_can_be_named(name):
    with pytest.raises(ValueError, match="is not registered"):
        _admitted_classes.named(name)


@pytest.mark.parametrize(
    ("kind", "static", "items", "error"),
    [
        ("enum", ["tfrl.core.TimeStep", "MID"], [], TypeError),
        ("enum", ["tfrl.core.StepType", "mro"], [], KeyError),
        ("config", "tfrl.core.TimeStep", [{}], TypeError),
        ("config", "tfrl>ConstantScheduler", [[]], TypeError),
        (
            "config",
            "tfrl>ConstantScheduler",
            [{"value": [{"class_name": "Lambda"}]}],
            TypeError,
        ),
        ("record", ["tfrl.core.LossInfo", ["loss", "extra"]], [1, 2], TypeError),
        ("named_tuple", ["tfrl.core.LossInfo", ["loss", "extra"]], [1], ValueError),
        ("record", ["tfrl>AsKeras", []], [], TypeError),
    ],
)
def test_kinds_do_not_mix(kind, static, items, error):
    with pytest.raises(error):
        _admitted_classes.MAKERS[kind](static, items)
