"""Averagers and normalizers against recordings of the library they are named after."""

import functools

import golden_io
import numpy as np
import pytest
import tensorflow as tf

from tfrl import stats

BUILD = {
    "t": tf.constant,
    "spec": lambda spec: tf.TensorSpec(spec["shape"], spec["dtype"]),
    "dtype": tf.as_dtype,
}
CASES = golden_io.load("alf/averager", BUILD) + golden_io.load("alf/normalizers", BUILD)


def of_kind(kind):
    return [case for case in CASES if case["kind"] == kind]


def symbol(case):
    return getattr(stats, case["symbol"].rsplit(".", 1)[-1])


def assert_equal_nests(got, expected, tolerance):
    tf.nest.assert_same_structure(got, expected)
    pairs = zip(tf.nest.flatten(got), tf.nest.flatten(expected), strict=True)
    for mine, recorded in pairs:
        assert mine.dtype == recorded.dtype
        assert mine.shape == recorded.shape
        np.testing.assert_allclose(mine, recorded, **tolerance)


def test_recordings_are_there():
    assert len(CASES) == 65
    kinds = {case["id"]: case["kind"] for case in CASES}
    assert list(kinds.values()).count("object") == 57
    assert [name for name, kind in kinds.items() if kind == "note"] == [
        "normalizers/Normalizer/001"
    ]


def perform(instance, step, graph):
    """Does one step of a recording; returns what came out."""
    if step["op"] == "set":
        setattr(instance, step["name"], *step["args"])
        return None
    method = instance if step["op"] == "call" else getattr(instance, step["name"])
    method = functools.partial(method, **step["kwargs"])
    if not graph:
        return method(*step["args"])
    specs = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None] * x.shape.rank, x.dtype), step["args"]
    )
    return tf.function(method, specs)(*step["args"])


@pytest.mark.parametrize(
    "case", of_kind("object"), ids=golden_io.ids(of_kind("object"))
)
def test_steps_equal_the_recording(case):
    instance = symbol(case)(*case["ctor"]["args"], **case["ctor"]["kwargs"])
    for step in case["steps"]:
        if "raises" in step:
            with pytest.raises((TypeError, ValueError), match="expected"):
                perform(instance, step, graph=False)
            continue
        got = perform(instance, step, graph=False)
        if step["out"] is None:
            assert got is None
        else:
            assert_equal_nests(got, step["out"], case["tol"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "normalizers/AdaptiveNormalizer/003",
        pytest.param("averager/AdaptiveAverager/003", marks=pytest.mark.slow),
        pytest.param("normalizers/WindowNormalizer/003", marks=pytest.mark.slow),
        pytest.param("normalizers/ScalarEMNormalizer/011", marks=pytest.mark.slow),
    ],
)
def test_steps_in_a_graph_of_unknown_sizes_equal_the_recording(name):
    (case,) = (case for case in CASES if case["id"] == name)
    instance = symbol(case)(*case["ctor"]["args"], **case["ctor"]["kwargs"])
    for step in case["steps"][:6]:
        got = perform(instance, step, graph=True)
        if step["out"] is not None:
            assert_equal_nests(got, step["out"], case["tol"])


@pytest.mark.parametrize("case", of_kind("call"), ids=golden_io.ids(of_kind("call")))
def test_call_equals_the_recording(case):
    got = symbol(case)(*case["args"], **case["kwargs"])
    assert_equal_nests(got, case["out"], case["tol"])


@pytest.mark.parametrize(
    "case", of_kind("raises"), ids=golden_io.ids(of_kind("raises"))
)
def test_constructor_refuses_what_the_recorded_one_refuses(case):
    with pytest.raises(ValueError, match="`zero_mean` expected to be True"):
        symbol(case)(*case["ctor"]["args"], **case["ctor"]["kwargs"])


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError, match="`Normalizer`: `rule` expected"):
        stats.Normalizer(tf.TensorSpec([]))
