"""Tests of scalar summaries: what is written, under which tags, and when."""

import typing

import attr
import event_files
import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf
from event_files import Untouchable, both, written
from refusals import bad, table

import tfrl
from tfrl.core import pytree, records
from tfrl.distribute import per_process
from tfrl.summaries import _recording, gradients, histograms, scalars

OF_ARGUMENTS = [
    *["add_mean_hist_summary", "add_mean_summary", "add_nested_summaries"],
    *["safe_mean_hist_summary", "safe_mean_summary", "summarize_nest"],
]
CASES = golden_io.load("alf/summary_utils_doc", build={"t": tf.constant})
SIMPLE = [case for case in CASES if case["symbol"].rsplit(".")[-1] in OF_ARGUMENTS]
CATEGORIES = [case for case in CASES if "per_category" in case["symbol"]]
LOSSES = [case for case in CASES if case["symbol"].endswith("summarize_loss")]
[INTERVAL] = golden_io.load("alf/common", symbol="run_under_record_context")


class Labelled(typing.NamedTuple):
    loss: typing.Any
    extra: typing.Any = ()
    batch_label: typing.Any = ()


class Parts(typing.NamedTuple):
    b: typing.Any
    a: typing.Any


class Node(pytree.PyTreeNode):
    y: typing.Any
    x: typing.Any
    size: int = pytree.nonpytree_field(default=3)


@attr.s
class Attributes:
    y = attr.ib()
    x = attr.ib()


@event_files.eagerly_and_slow
@pytest.mark.parametrize("case", SIMPLE, ids=golden_io.ids(SIMPLE))
def test_golden(case, mode, tmp_path):
    function = getattr(scalars, case["symbol"].rsplit(".")[-1])
    given = case["in"]
    found = written(tmp_path, lambda: function(*given["args"], **given["kwargs"]), mode)
    event_files.check_calls(found, case["out"]["calls"], **case["tol"])


@event_files.eagerly_and_slow
@pytest.mark.parametrize("case", CATEGORIES, ids=golden_io.ids(CATEGORIES))
def test_golden_categories(case, mode, tmp_path):
    given = case["in"]
    info = Labelled(given["loss"], batch_label=given["batch_label"])
    summarize = scalars.summarize_per_category_loss
    found = written(tmp_path, lambda: summarize(info, **given["kwargs"]), mode)
    event_files.check_calls(found, case["out"]["calls"], **case["tol"])


@pytest.mark.parametrize("case", LOSSES, ids=golden_io.ids(LOSSES))
def test_golden_loss(case, tmp_path):
    nested = {"a": tf.constant(2.0), "b": {"c": tf.constant(3.0)}}
    parts = Parts(b=tf.constant(2.0), a=tf.constant(1.0))
    info = {
        "loss 1, extra dict(a=2,b=dict(c=3))": (tf.constant(1.0), nested),
        "no loss, namedtuple extra": ((), parts),
    }[case["in"]["desc"]]
    info = records.LossInfo(*info)
    found = written(tmp_path, lambda: scalars.summarize_loss(info))
    event_files.check_calls(found, case["out"]["calls"], **case["tol"])


def all_but_categories(value):
    scalars.add_mean_summary("m", value)
    scalars.add_mean_hist_summary("h", value)
    scalars.safe_mean_summary("s", value)
    scalars.safe_mean_hist_summary("sh", value)
    scalars.add_nested_summaries("n", {"a": value})
    scalars.summarize_nest("d", {"a": value})
    scalars.summarize_loss(Labelled(value, {"a": value}))


def all_of(value):
    all_but_categories(value)
    info = Labelled(value, {"a": value, "b": [value]}, value)
    scalars.summarize_per_category_loss(info, summarize_count=True)


def test_nothing_is_computed_when_off(tmp_path):
    all_of(Untouchable())
    for record in (False, lambda: tf.constant(False)):
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


def outer_ops(function):
    graph = function.get_concrete_function(tf.TensorSpec([2])).graph
    return {operation.type for operation in graph.get_operations()}


def test_without_a_writer_nothing_enters_the_graph():
    types = outer_ops(tf.function(lambda x: all_of(x) or x + 1.0, autograph=False))
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "bool"])
def test_means_of_any_numbers(dtype, tmp_path):
    value = tf.cast([[0, 1], [1, 1]], dtype)
    found = written(tmp_path, lambda: scalars.add_mean_hist_summary("x", value))
    assert found["x/mean"] == np.float32(0.75)
    assert found["x/value"][:, 2].tolist() == [1.0] + [0.0] * 28 + [3.0]


@pytest.mark.parametrize("odd", [np.nan, np.inf], ids=str)
def test_histograms_need_finite_numbers_means_do_not(odd, tmp_path):
    value = tf.constant([1.0, odd])
    found = written(tmp_path, lambda: scalars.add_mean_hist_summary("x", value))
    assert list(found) == ["x/mean"]
    np.testing.assert_equal(found["x/mean"], np.float32(odd))


@both
def test_masks(mode, tmp_path):
    value, mask = np.array([[1, 2], [3, 9]]), np.array([[True, False], [True, True]])

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

    @tf.function(autograph=False, input_signature=spec)
    def update(x, mask):
        scalars.safe_mean_summary("x", x, mask)

    with event_files.writing(tmp_path):
        update(tf.constant([[1.0, 5.0]]), tf.constant([[False, True]]))
    assert event_files.last(tmp_path) == {"x": 5.0}


def test_losses_per_element_and_what_is_left_out(tmp_path):
    leaves = {"v": keras.Variable([1.0, 3.0]), "number": 3.0, "none": None}
    info = records.LossInfo(tf.constant([[1.0, 2.0]]), leaves)

    def record():
        scalars.summarize_loss(info)
        for extra in ((), None, 3.0, [tf.constant(1.0)]):
            scalars.summarize_loss(records.LossInfo(None, extra))
        for unlabelled in (records.LossInfo(tf.ones([2]), ()), Labelled(tf.ones([2]))):
            scalars.summarize_per_category_loss(unlabelled)

    assert written(tmp_path, record) == {"loss": 1.5, "loss/v": 2.0}


def test_nests_of_any_containers(tmp_path):
    nest = {"node": Node((np.float64([2.0]), None), ()), "k": Parts(b=1, a=[2.0])}

    def record():
        scalars.summarize_nest("n", nest)
        scalars.summarize_nest("one", 3.0)

    found = written(tmp_path, record)
    means = {tag: float(x) for tag, x in found.items() if tag.endswith("/mean")}
    expected = {"n/node.y.0/mean": 2.0, "n/k.b/mean": 1.0, "n/k.a.0/mean": 2.0}
    assert means == {**expected, "one/mean": 3.0}


@pytest.mark.parametrize(
    ("nest", "tags"),
    [
        ({"b": 1, "a": {"c": 2}}, {"n/a.c": 2, "n/b": 1}),
        (Parts(1, [2, (3,)]), {"n/b": 1, "n/a.0": 2, "n/a.1.0": 3}),
        (Node(1, 1), {"n/y": 1, "n/x": 1}),
        (Attributes(1, [2]), {"n/y": 1, "n/x.0": 2}),
        ({}, {}),
    ],
    ids=["dict", "tuple", "node", "attributes", "empty"],
)
def test_names_of_leaves_in_the_order_of_tensorflow(nest, tags):
    found = list(_recording.named_leaves("n", nest))
    assert dict(found) == tags
    assert [leaf for _, leaf in found] == tf.nest.flatten(nest)


@both
def test_categories_are_counted(mode, tmp_path):
    labels = tf.constant([10, 2, 10, 2, 2])
    loss = tf.constant([1.0, 0.0, 4.0, 3.0, 0.0], tf.bfloat16)
    info = records.LossInfo(loss, {"batch_label": labels})
    summarize = scalars.summarize_per_category_loss
    assert written(tmp_path, lambda: summarize(info, True), mode) == {
        "loss/loss_for_category_2": 1.0,
        "loss/loss_for_category_10": 2.5,
        "loss/sample_count_for_category_2": 3.0,
        "loss/sample_count_for_category_10": 2.0,
    }


TEXT, ONE = tf.constant("text"), tf.ones([1])


@table(
    (scalars.safe_mean_summary, bad(ValueError, "mask", "x", np.ones(2), [True])),
    (scalars.summarize_nest, bad(TypeError, "nest", "x", {"a": TEXT})),
    (
        scalars.add_mean_summary,
        bad(TypeError, "value", "x", TEXT),
        bad(TypeError, "value", "x", tf.complex(ONE, ONE)),
        bad(TypeError, "value", "x", tf.ragged.constant([[1], [1, 2]])),
    ),
    (
        scalars.summarize_per_category_loss,
        bad(ValueError, "batch_label", Labelled(tf.ones([2]), (), tf.constant([0]))),
        bad(TypeError, "batch_label", Labelled(ONE, (), tf.constant([0.5]))),
        bad(
            ValueError, "label_names", Labelled(ONE, (), tf.constant([2])), False, "ab"
        ),
    ),
)
def test_refusals(row, tmp_path):
    with event_files.writing(tmp_path):
        row()


@pytest.mark.parametrize("kind", ["eager", "graph"])
def test_golden_interval(kind, tmp_path):
    for row in INTERVAL["out"]["table"]:
        found, step = [], tf.Variable(0, dtype=tf.int64)
        ask = tf.summary.should_record_summaries
        ask = tf.function(lambda ask=ask: ask()) if kind == "graph" else ask

        def run(ask=ask, found=found, step=step):
            tf.summary.experimental.set_step(step)
            for _ in INTERVAL["in"]["steps"]:
                found += [int(step)] if ask() else []
                step.assign_add(1)
            return "done"

        given = row["interval"], 60, row["summarize_first_interval"]
        assert scalars.run_under_record_context(run, tmp_path, *given) == "done"
        assert found == list(row["recorded_steps"]), row
    tf.summary.experimental.set_step(None)


def test_points_land_at_their_steps_in_one_trace(tmp_path):
    step, traces = tf.Variable(0, dtype=tf.int64), []

    @tf.function
    def update(x):
        traces.append(1)
        scalars.add_mean_summary("loss", x)

    def run():
        tf.summary.experimental.set_step(step)
        for _ in range(10):
            update(tf.cast(tf.stack([step, step]), tf.float32))
            step.assign_add(1)

    scalars.run_under_record_context(run, tmp_path, 4, 60, False)
    tf.summary.experimental.set_step(None)
    found = event_files.points(tmp_path)
    assert [(at, float(x)) for at, x in found["loss"]] == [(0, 0), (4, 4), (8, 8)]
    assert event_files.plugins(tmp_path) == {"loss": "scalars"}
    assert len(traces) == 1


def test_other_ranks_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(per_process.PerProcessContext, "ddp_rank", 1)
    run = tf.summary.should_record_summaries
    assert not scalars.run_under_record_context(run, tmp_path / "run", 1, 60)
    assert not (tmp_path / "run").exists()


def test_home_folder_and_closing(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(step=0):
        tf.summary.experimental.set_step(step)
        scalars.add_mean_summary("a", tf.constant([2.0]))
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        scalars.run_under_record_context(run, "~/run", 1, 60)
    tf.summary.experimental.set_step(None)
    assert event_files.last(tmp_path / "run") == {"a": 2.0}
    assert not tf.summary.should_record_summaries()
    with pytest.raises(ValueError, match="expected a step of the summaries; got none"):
        scalars.run_under_record_context(lambda: run(None), tmp_path, 1, 60)


@table(
    (
        scalars.run_under_record_context,
        bad(ValueError, "summary_interval", abs, "gone/x", 0, 1),
        bad(TypeError, "summary_interval", abs, "gone/x", 2.0, 1),
        bad(ValueError, "flush_secs", abs, "gone/x", 1, 0),
        bad(ValueError, "flush_secs", abs, "gone/x", 1, np.inf),
        bad(ValueError, "summary_max_queue", abs, "gone/x", 1, 1, True, 0),
        bad(ValueError, "summary_dir", abs, "file", 1, 60),
        bad(ValueError, "summary_dir", abs, "file/run", 1, 60),
    ),
)
def test_bad_intervals_and_folders_make_nothing(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    row()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_condition_is_asked_once(tmp_path):
    asked = []

    def record():
        tf.summary.scalar("a", 1.0)
        tf.summary.scalar("b", 2.0)

    with event_files.writing(tmp_path):
        with tf.summary.record_if(lambda: asked.append(1) or True):
            _recording.when_recording(record)
    assert len(asked) == 1
    assert event_files.last(tmp_path) == {"a": 1.0, "b": 2.0}


X = tf.constant([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
SPECS = {
    "c": tfrl.core.BoundedTensorSpec([2], tf.float32, -1.0, 1.0),
    "d": tfrl.core.BoundedTensorSpec([], tf.int32, 0, 3),
}


def record_all(x):
    labels = tf.cast(x[:, 1], tf.int32)
    info = tfrl.core.LossInfo(x[:, 0], {"entropy": x[0, 0], "batch_label": labels})
    policy = tfrl.distributions.DiagMultivariateNormal(x, tf.exp(x))
    scalars.add_mean_summary("mean", x)
    scalars.safe_mean_hist_summary("safe", x, x > 0)
    scalars.summarize_nest("nest", {"a": [x]})
    scalars.summarize_loss(info)
    scalars.summarize_per_category_loss(info, summarize_count=True)
    histograms.summarize_action({"c": x, "d": labels}, SPECS)
    histograms.summarize_distribution("policy", policy)
    gradients.summarize_variables([("w", x)])
    gradients.summarize_gradients([("w", x)])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = gradients.summarize_tensor_gradients("features", x)
        seen = gradients.summarize_distribution_gradient("policy", policy)
        loss = tf.reduce_sum(y**2) + tf.reduce_sum(seen.log_prob(2 * x))
        tape.gradient(loss, x)


class Recorder(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        record_all(x)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss}


def fit(copies=1, **options):
    model = Recorder()
    model.compile("sgd", jit_compile=False, **options)
    x = tf.repeat(X, copies, axis=0)
    model.fit(x, tf.ones([len(x), 1]), batch_size=len(x), verbose=0)


def on_replicas():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    strategy.run(tf.function(record_all), args=(X,))


def fit_on_replicas():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        fit(copies=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "train",
    [
        lambda: tf.function(record_all)(X),
        on_replicas,
        fit,
        lambda: fit(steps_per_execution=2),
        lambda: fit(run_eagerly=True),
        fit_on_replicas,
    ],
    ids=["graph", "replicas", "fit", "fit two steps", "fit eager", "fit replicas"],
)
def test_tags_and_values_are_the_same(train, tmp_path):
    with event_files.writing(tmp_path / "alone"):
        record_all(X)
    with event_files.writing(tmp_path / "trained"):
        train()
    wanted = event_files.last(tmp_path / "alone")
    found = event_files.last(tmp_path / "trained")
    assert set(found) == set(wanted)
    assert len(wanted) == 31
    for tag, value in wanted.items():
        np.testing.assert_allclose(found[tag], value, rtol=1e-5, err_msg=tag)
