import typing

import event_files
import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf
from modes import in_mode

from tfrl.core import pytree, records
from tfrl.summaries import scalars

OF_ARGUMENTS = [
    "add_mean_hist_summary",
    "add_mean_summary",
    "add_nested_summaries",
    "safe_mean_hist_summary",
    "safe_mean_summary",
    "summarize_nest",
]
CASES = golden_io.load("alf/summary_utils_doc", build={"t": tf.constant})
SIMPLE = [case for case in CASES if case["symbol"].rsplit(".")[-1] in OF_ARGUMENTS]
CATEGORIES = [case for case in CASES if "per_category" in case["symbol"]]
LOSSES = [case for case in CASES if case["symbol"].endswith("summarize_loss")]
both = pytest.mark.parametrize("mode", ["eager", "graph"])


class Labelled(typing.NamedTuple):
    loss: typing.Any
    extra: typing.Any = ()
    batch_label: typing.Any = ()


class Parts(typing.NamedTuple):
    b: typing.Any
    a: typing.Any


class Node(pytree.PyTreeNode):
    x: typing.Any
    size: int = pytree.nonpytree_field(default=3)


def written(directory, function, mode="eager", record=True):
    """What `function` writes at step 0."""

    def body():
        function()
        return tf.constant(0)

    with event_files.writing(directory), tf.summary.record_if(record):
        in_mode(mode, body)()
    return event_files.last(directory)


@both
@pytest.mark.parametrize("case", SIMPLE, ids=golden_io.ids(SIMPLE))
def test_golden(case, mode, tmp_path):
    function = getattr(scalars, case["symbol"].rsplit(".")[-1])
    given = case["in"]
    found = written(tmp_path, lambda: function(*given["args"], **given["kwargs"]), mode)
    event_files.check_calls(found, case["out"]["calls"], **case["tol"])


@both
@pytest.mark.parametrize("case", CATEGORIES, ids=golden_io.ids(CATEGORIES))
def test_golden_categories(case, mode, tmp_path):
    given = case["in"]
    info = Labelled(given["loss"], batch_label=given["batch_label"])
    found = written(
        tmp_path,
        lambda: scalars.summarize_per_category_loss(info, **given["kwargs"]),
        mode,
    )
    event_files.check_calls(found, case["out"]["calls"], **case["tol"])


@pytest.mark.parametrize("case", LOSSES, ids=golden_io.ids(LOSSES))
def test_golden_loss(case, tmp_path):
    info = {
        "loss 1, extra dict(a=2,b=dict(c=3))": records.LossInfo(
            tf.constant(1.0), {"a": tf.constant(2.0), "b": {"c": tf.constant(3.0)}}
        ),
        "no loss, namedtuple extra": records.LossInfo(
            (), Parts(b=tf.constant(2.0), a=tf.constant(1.0))
        ),
    }[case["in"]["desc"]]
    found = written(tmp_path, lambda: scalars.summarize_loss(info))
    event_files.check_calls(found, case["out"]["calls"], **case["tol"])


class Untouchable:
    """An array that may be looked at from outside only."""

    shape, dtype = tf.TensorShape([2]), tf.float32

    def __array__(self, *args, **kwargs):
        raise AssertionError("was computed with")

    __tf_tensor__ = __array__


def all_of(value):
    info = Labelled(value, {"a": value, "b": [value]}, value)
    scalars.add_mean_summary("m", value)
    scalars.add_mean_hist_summary("h", value)
    scalars.safe_mean_summary("s", value)
    scalars.safe_mean_hist_summary("sh", value)
    scalars.add_nested_summaries("n", {"a": value})
    scalars.summarize_nest("d", {"a": value})
    scalars.summarize_loss(info)
    scalars.summarize_per_category_loss(info, summarize_count=True)


@pytest.mark.parametrize("gate", ["no writer", "off", "asked"])
def test_nothing_is_computed_when_off(gate, tmp_path):
    if gate == "no writer":
        all_of(Untouchable())
    else:
        record = False if gate == "off" else lambda: tf.constant(False)
        assert written(tmp_path, lambda: all_of(Untouchable()), record=record) == {}
    with pytest.raises(AssertionError, match="was computed with"):
        written(tmp_path, lambda: scalars.add_mean_summary("m", Untouchable()))


def test_nothing_is_computed_in_a_graph_when_off(tmp_path, monkeypatch):
    computed, on, mean = [], tf.Variable(False), tf.reduce_mean

    def counted(x):
        with tf.control_dependencies([tf.py_function(computed.append, [x], [])]):
            return mean(x)

    monkeypatch.setattr(tf, "reduce_mean", counted)
    update = tf.function(lambda x: all_but_categories(x) or x, autograph=False)
    with event_files.writing(tmp_path), tf.summary.record_if(lambda: on):
        update(tf.constant([1.0, 2.0]))
        assert not computed
        assert "WriteSummary" not in outer_ops(update)
        on.assign(True)
        update(tf.constant([1.0, 2.0]))
        assert len(computed) == 8
    assert len(event_files.last(tmp_path)) == 8 + 3


def all_but_categories(value):
    scalars.add_mean_summary("m", value)
    scalars.add_mean_hist_summary("h", value)
    scalars.safe_mean_summary("s", value)
    scalars.safe_mean_hist_summary("sh", value)
    scalars.add_nested_summaries("n", {"a": value})
    scalars.summarize_nest("d", {"a": value})
    scalars.summarize_loss(Labelled(value, {"a": value}))


def outer_ops(function):
    graph = function.get_concrete_function(tf.TensorSpec([2])).graph
    return {operation.type for operation in graph.get_operations()}


def test_without_a_writer_nothing_enters_the_graph_which_xla_compiles():
    update = tf.function(lambda x: all_of(x) or x + 1.0, jit_compile=True)
    assert update(tf.constant([1.0, 2.0])).numpy().tolist() == [2.0, 3.0]
    types = outer_ops(update)
    assert not types & {"If", "StatelessIf", "Mean", "WriteSummary"}


@both
def test_name_scopes_are_in_the_tags(mode, tmp_path):
    on = tf.Variable(True)

    def scoped():
        with tf.name_scope("agent"):
            scalars.add_mean_hist_summary("x", tf.constant([1.0]))
            info = Labelled(tf.constant([1.0]), batch_label=tf.constant([7]))
            scalars.summarize_per_category_loss(info)

    found = written(tmp_path, scoped, mode, record=lambda: on)
    tags = {"x/value", "x/mean", "loss/loss_for_category_7"}
    assert set(found) == {f"agent/{tag}" for tag in tags}


@both
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "bool"])
def test_means_of_any_numbers(dtype, mode, tmp_path):
    value = tf.cast([[0, 1], [1, 1]], dtype)
    found = written(tmp_path, lambda: scalars.add_mean_hist_summary("x", value), mode)
    assert found["x/mean"] == np.float32(0.75)
    assert found["x/value"][:, 2].tolist() == [1.0] + [0.0] * 28 + [3.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_histograms_need_finite_numbers_means_do_not(bad, tmp_path):
    found = written(
        tmp_path, lambda: scalars.add_mean_hist_summary("x", tf.constant([1.0, bad]))
    )
    assert list(found) == ["x/mean"]
    np.testing.assert_equal(found["x/mean"], np.float32(bad))


@both
def test_masks(mode, tmp_path):
    value, mask = (
        tf.constant([[1, 2], [3, 9]]),
        tf.constant([[True, False], [True] * 2]),
    )

    def masked():
        scalars.safe_mean_summary("some", value, mask)
        scalars.safe_mean_hist_summary("hist", value, np.array([[True] * 2] * 2))
        scalars.safe_mean_hist_summary("none", tf.zeros([0, 3]))

    found = written(tmp_path, masked, mode)
    assert set(found) == {"some", "hist/mean", "hist/value"}
    assert found["some"] == np.float32(13 / 3)
    assert found["hist/mean"] == 3.75


def test_masks_of_unknown_shape(tmp_path):
    spec = [tf.TensorSpec(None), tf.TensorSpec(None, tf.bool)]
    update = tf.function(
        lambda x, m: scalars.safe_mean_summary("x", x, m), input_signature=spec
    )
    with event_files.writing(tmp_path):
        update(tf.constant([[1.0, 5.0]]), tf.constant([[False, True]]))
    assert event_files.last(tmp_path) == {"x": 5.0}


def test_loss_per_element_and_other_leaves(tmp_path):
    variable = keras.Variable([1.0, 3.0])
    info = records.LossInfo(
        tf.constant([[1.0, 2.0]]),
        {"v": variable, "number": 3.0, "none": None, "text": tf.constant("x")},
    )
    found = written(tmp_path, lambda: scalars.summarize_loss(info))
    assert found == {"loss": 1.5, "loss/v": 2.0}


@pytest.mark.parametrize(
    "extra", [(), None, 3.0, [tf.constant(1.0)]], ids=["empty", "None", "float", "list"]
)
def test_loss_with_nothing_to_name(extra, tmp_path):
    found = written(
        tmp_path, lambda: scalars.summarize_loss(records.LossInfo(None, extra))
    )
    assert found == {}


def test_nests_of_any_containers(tmp_path):
    nest = {"node": Node(x=(np.float64([2.0]), None)), "k": Parts(b=1, a=[2.0])}
    found = written(tmp_path, lambda: scalars.summarize_nest("n", nest))
    means = {tag: float(x) for tag, x in found.items() if tag.endswith("/mean")}
    assert means == {"n/node.x.0/mean": 2.0, "n/k.b/mean": 1.0, "n/k.a.0/mean": 2.0}
    assert list(
        written(tmp_path / "one", lambda: scalars.summarize_nest("n", 2.0))
    ) == [
        "n/value",
        "n/mean",
    ]


@both
def test_categories_are_counted(mode, tmp_path):
    labels = tf.constant([10, 2, 10, 2, 2])
    loss = tf.constant([1.0, 0.0, 4.0, 3.0, 0.0], tf.bfloat16)
    info = records.LossInfo(loss, {"batch_label": labels})
    found = written(
        tmp_path, lambda: scalars.summarize_per_category_loss(info, True), mode
    )
    assert found == {
        "loss/loss_for_category_2": 1.0,
        "loss/loss_for_category_10": 2.5,
        "loss/sample_count_for_category_2": 3.0,
        "loss/sample_count_for_category_10": 2.0,
    }


def test_without_labels_nothing_is_recorded(tmp_path):
    def record():
        for info in (records.LossInfo(tf.ones([2]), ()), Labelled(tf.ones([2]))):
            scalars.summarize_per_category_loss(info)

    assert written(tmp_path, record) == {}


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: scalars.safe_mean_summary("x", np.ones(2), [True]),
            ValueError,
            r"_summary`: `mask` expected the shape of `value` \[2\]; got \[1\]",
        ),
        (
            lambda: scalars.add_mean_summary("x", tf.constant("text")),
            TypeError,
            "`add_mean_summary`: `value` expected real numbers; got string",
        ),
        (
            lambda: scalars.summarize_nest("x", {"a": tf.constant("text")}),
            TypeError,
            "`summarize_nest`: `nest` expected real numbers; got string",
        ),
        (
            lambda: scalars.add_mean_summary("x", tf.ragged.constant([[1], [1, 2]])),
            TypeError,
            "`add_mean_summary`: `value` expected a dense tensor of numbers; got Ragg",
        ),
        (
            lambda: scalars.summarize_per_category_loss(
                Labelled(tf.ones([2]), batch_label=tf.constant([0]))
            ),
            ValueError,
            r"`batch_label` expected the shape of `loss` \[2\]; got \[1\]",
        ),
        (
            lambda: scalars.summarize_per_category_loss(
                Labelled(tf.ones([1]), batch_label=tf.constant([0.5]))
            ),
            TypeError,
            "`batch_label` expected integers; got float32",
        ),
        (
            lambda: scalars.summarize_per_category_loss(
                Labelled(tf.ones([1]), batch_label=tf.constant([2])), False, ["a", "b"]
            ),
            ValueError,
            "`label_names` expected a name for each label; got 2 names and the label 2",
        ),
    ],
    ids=["mask", "text", "nest", "ragged", "labels", "floats", "names"],
)
def test_errors(call, error, match, tmp_path):
    with event_files.writing(tmp_path), pytest.raises(error, match=match):
        call()
