"""Repeats recorded calls: what they returned and which gradients flowed back.

    CASES = golden_calls.load("alf/tensor_utils", ["reverse_cumsum"])

    @pytest.mark.parametrize("mode", golden_calls.MODES)
    @pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
    def test_golden(case, mode):
        golden_calls.check(case, reverse_cumsum, mode)

A mode is eager, or a graph whose tensors have ranks but no sizes.
"""

import golden_io
import numpy as np
import tensorflow as tf

MODES = ("eager", "graph")


def load(stem, symbols=None, build=None):
    """Returns the decoded cases, of some symbols if given, tensors as tensors."""
    with np.load(golden_io.ROOT / f"{stem}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    cases = []
    for case in golden_io.load(stem, {"t": tf.constant, **(build or {})}):
        if symbols is None or case["symbol"].rsplit(".", 1)[-1] in symbols:
            for name in ("ct", "grads") if "grad" in case else ():
                keys = case["grad"][name]
                case["grad"][name] = [key and arrays[key] for key in keys]
            cases.append(case)
    return cases


def check(case, function, mode="eager"):
    """Calls `function` as recorded; compares results, dtypes and gradients."""
    nest = (case["args"], case["kwargs"])
    leaves = tf.nest.flatten(nest)
    places = [place for place, leaf in enumerate(leaves) if tf.is_tensor(leaf)]
    gradient = case.get("grad", {"wrt": [], "ct": [], "grads": []})
    sources = [_named(case, key) for key in gradient["wrt"]]
    sources = [[leaf is source for leaf in leaves].index(True) for source in sources]

    def call(*tensors):
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        args, kwargs = tf.nest.pack_sequence_as(nest, given)
        with tf.GradientTape() as tape:
            watched = [given[place] for place in sources]
            tape.watch(watched)
            out = function(*args, **kwargs)
        if not watched:
            return out, []
        floats = [o for o in tf.nest.flatten(out) if o.dtype.is_floating]
        cotangents = [tf.constant(ct) for ct in gradient["ct"]]
        return out, tape.gradient(floats, watched, output_gradients=cotangents)

    if mode == "graph":
        specs = [
            tf.TensorSpec([None] * leaves[place].shape.rank, leaves[place].dtype)
            for place in places
        ]
        call = tf.function(call, input_signature=specs, autograph=False)
    out, gradients = call(*(leaves[place] for place in places))
    compare_all(case, out, case["out"])
    for got, expected in zip(gradients, gradient["grads"], strict=True):
        if got is None or expected is None:
            # What is unconnected in one mode may be a zero in another.
            rest = expected if got is None else got
            np.testing.assert_array_equal(0.0 if rest is None else rest, 0.0)
        else:
            compare(case, got, expected)


def compare_all(case, got, expected):
    """Compares nests leaf by leaf."""
    for pair in zip(tf.nest.flatten(got), tf.nest.flatten(expected), strict=True):
        if pair[1] is None or isinstance(pair[1], str):
            assert pair[0] == pair[1]
        else:
            compare(case, *pair)


def compare(case, got, expected):
    """The tolerance of the case holds and the dtype is the recorded one."""
    got = np.asarray(got)
    if hasattr(expected, "dtype") and not case.get("any_dtype"):
        assert got.dtype == expected.dtype
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, **case["tol"])


def _named(case, key):
    """The input of a case called `arg0.b.1` or, by keyword, `y.0`."""
    first, *path = key.removeprefix(f"{case['id']}/").split(".")
    by_place = first.startswith("arg") and first not in case["kwargs"]
    nest = case["args"][int(first[3:])] if by_place else case["kwargs"][first]
    for part in path:
        nest = nest[part] if isinstance(nest, dict) else nest[int(part)]
    return nest
