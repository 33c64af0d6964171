"""Rehearsals: planted faults are named with their line, sound agents pass."""

import functools
import io
import pathlib
import warnings

import numpy as np
import pytest
import rich.console
import tensorflow as tf
import tiny_agents

from tfrl.agents.on_policy import a2c
from tfrl.core import pytree
from tfrl.distribute import replicas, strategies
from tfrl.policies import policy
from tfrl.training import experience
from tfrl.training.rehearsing import _tpu_fitness, rehearsal

FILE = pathlib.Path(__file__)
ROWS = np.linspace(-1.0, 1.0, 8, dtype=np.float32)
STEPS = ["update", "act", "act, greedy"]


class Faulty(pytree.PyTreeNode):
    """Moves its weight by what a function makes of the batch."""

    weight: tf.Tensor
    fault: object = pytree.nonpytree_field()

    def update(self, batch):
        moved = tf.ensure_shape(self.fault(batch), [])
        return self.replace(weight=self.weight + moved), {"moved": moved}

    @property
    def policy(self):
        return self

    def initial_state(self, batch_size):
        return ()

    def act(self, observations, state=(), *, seed=None, temperature=1.0, mask=None):
        actions = self.weight * observations * temperature
        return policy.Acted(actions, actions, None, state)


class Chaotic(Faulty):
    """The logistic map, one of its products taken in another order by replicas."""

    def update(self, batch):
        del batch
        weight = self.weight
        for _ in range(20):
            if tf.distribute.has_strategy():
                weight = weight * (3.9 * (1.0 - weight))
            else:
                weight = 3.9 * weight * (1.0 - weight)
        return self.replace(weight=weight), {}


class Mixed(Faulty):
    """Descends a gradient computed in bfloat16; `fault` reduces it over replicas."""

    def update(self, batch):
        def gradient(weight, rows):
            rows = tf.cast(rows, tf.bfloat16)
            errors = tf.linalg.matvec(rows, tf.cast(weight, tf.bfloat16)) - rows[:, 0]
            mean = tf.linalg.matvec(rows, errors, transpose_a=True) / rows.shape[0]
            return tf.cast(mean, tf.float32)

        if tf.distribute.has_strategy():
            strategy = tf.distribute.get_strategy()
            found = strategy.run(
                lambda rows: self.fault(gradient(self.weight, rows)),
                (replicas.shard_batch(batch),),
            )
            found = replicas.unreplicate(found)
        else:
            found = gradient(self.weight, batch)
        return self.replace(weight=self.weight - 0.1 * found), {}

    def act(self, observations, state=(), *, seed=None, temperature=1.0, mask=None):
        actions = tf.linalg.matvec(observations, self.weight) * temperature
        return policy.Acted(actions, actions, None, state)


def sums(gradient):
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, gradient)


def calls_python(x):
    return tf.py_function(lambda v: v.numpy().sum(), [x], tf.float32)  # python


def masks(x):
    return tf.reduce_sum(tf.boolean_mask(x, x > 0.0))  # mask


def widens(x):
    return tf.cast(tf.reduce_sum(tf.cast(x, tf.float64) ** 2), tf.float32)  # wide


def shuffles(x):
    return tf.random.experimental.stateless_shuffle(x, seed=[0, 1])[0]  # shuffle


def prints(x):
    tf.print("here", x)  # print
    return tf.reduce_sum(x)


def asserts(x):
    tf.debugging.assert_all_finite(x, "x")
    tf.debugging.assert_less(x, 2.0)  # assert
    return tf.reduce_sum(x)


def looks(x):
    return tf.constant(float(x.numpy()[0]))


def sums_by_replica(x):
    return tf.reduce_sum(x + 1.0) / tf.distribute.get_strategy().num_replicas_in_sync


def refuses_replicas(x):
    if tf.distribute.has_strategy():
        raise ValueError(f"got {len(x)} rows")
    return tf.reduce_sum(x)


@functools.cache
def rehearsed(fault, strategy=None):
    agent = Faulty(weight=tf.constant(0.5), fault=fault)
    return rehearsal.rehearse(agent, ROWS, ROWS[:2], strategy=strategy)


def bad_checks(report):
    return {
        (check.step, check.name): check
        for check in report.checks
        if check.verdict != "passed"
    }


def place_of(mark):
    lines = FILE.read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return f"{FILE.name}:{number}"


def shown(report, width=200):
    text = io.StringIO()
    report.show(rich.console.Console(file=text, width=width))
    return text.getvalue()


def test_a_sound_agent_passes_with_replicas():
    report = rehearsed(tf.reduce_mean, strategies.strategy("rehearsal:2"))
    assert report.passed and bad_checks(report) == {}
    assert list(dict.fromkeys(x.step for x in report.checks)) == [*STEPS, "replicas"]
    assert report.checks[-1].details == (
        "max |dw| = 0.0e+00 after 3 updates of the same batch",
    )
    text = shown(report)
    assert "Faulty" in text and "19 passed, 0 warned, 0 failed" in text
    assert "Not proven without a TPU" in text and "bfloat16" in text


@pytest.mark.slow
def test_schedules_are_those_of_the_beginning(tmp_path):
    agent = a2c.A2C(hidden_units=(4,), learning_rate_schedule="linear")
    steps = {"n_envs": 2, "experience": experience.Trajectories(2)}
    with tiny_agents.build(tmp_path, agent=agent, **steps) as running:
        given, _ = running.rehearsed()
        shared = strategies.strategy("rehearsal:2")
        rows = given.observations[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            report = rehearsal.rehearse(running.agent, given, rows, strategy=shared)
    last = report.checks[-1]
    assert (last.step, last.verdict) == ("replicas", "passed"), last.details


def test_a_program_that_collects_too_is_rehearsed():
    def program(agent, start):
        moved = sums_by_replica(start) if is_faulty else tf.reduce_mean(start)
        return agent.replace(weight=agent.weight + moved), start

    agent = Faulty(weight=tf.constant(0.5), fault=looks)
    given = {"strategy": strategies.strategy("rehearsal:2"), "update": program}
    for is_faulty in (False, True):
        report = rehearsal.rehearse(agent, ROWS, ROWS[:2], **given)
        assert report.passed != is_faulty
        assert report.checks[0].step == "collect and learn"
        assert [x[0] for x in bad_checks(report)] == ["replicas"] * is_faulty
    text = shown(report)
    assert "collecting and learning" in text and "stays on the cores" in text


def test_the_number_of_updates_is_checked():
    agent = Faulty(weight=tf.constant(0.5), fault=tf.reduce_mean)
    with pytest.raises(ValueError, match="`n_updates` expected"):
        rehearsal.rehearse(agent, ROWS, ROWS, n_updates=0)
    with pytest.raises(TypeError, match="`rehearse`: `agent` expected one with `upd"):
        rehearsal.rehearse(3, ROWS, ROWS)


@pytest.mark.parametrize(
    ("fault", "name", "verdict", "kind", "mark"),
    [
        (calls_python, "no host callbacks", "failed", "EagerPyFunc", "python"),
        (masks, "operations that TPUs have", "failed", "Where", "mask"),
        (masks, "static shapes", "failed", "Where", "mask"),
        (widens, "dtypes that TPUs have", "warned", "float64", "wide"),
        (
            shuffles,
            "operations that TPUs have",
            "failed",
            "StatelessShuffle",
            "shuffle",
        ),
        (prints, "operations that TPUs have", "failed", "PrintV2", "print"),
        (asserts, "no checks that XLA drops", "warned", "Assert", "assert"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_planted_faults_are_named_with_their_line(fault, name, verdict, kind, mark):
    report = rehearsed(fault)
    check = bad_checks(report)["update", name]
    assert check.verdict == verdict
    (text,) = [text for text in check.details if kind in text]
    assert place_of(mark) in text
    assert report.passed == (verdict == "warned")
    assert place_of(mark) in shown(report)


def test_what_does_not_compile_or_trace_is_told():
    report = rehearsed(calls_python, strategies.strategy("rehearsal:2"))
    compiled = bad_checks(report)["update", "compiled by XLA"]
    assert compiled.verdict == "failed" and "EagerPyFunc" in compiled.details[0]
    assert (
        report.checks[-1].step == "replicas" and report.checks[-1].verdict == "passed"
    )
    traced = bad_checks(rehearsed(looks))
    assert list(traced) == [("update", "traced as a graph")]
    assert "numpy" in traced["update", "traced as a graph"].details[0]


def test_replicas_that_learn_something_else_are_told():
    strategy = strategies.strategy("rehearsal:2")
    check = rehearsed(sums_by_replica, strategy).checks[-1]
    assert check.verdict == "failed" and "max |dw| = 1.2e+01" in check.details[0]
    check = rehearsed(refuses_replicas, strategy).checks[-1]
    assert check.verdict == "failed" and check.details == ("ValueError: got 8 rows",)


def test_rounding_that_grows_is_a_warning():
    agent = Chaotic(weight=tf.constant(0.3), fault=None)
    strategy = strategies.strategy("rehearsal:2")
    report = rehearsal.rehearse(agent, ROWS, ROWS, strategy=strategy)
    (text,) = report.checks[-1].details
    assert report.checks[-1].verdict == "warned" and report.passed
    assert "rounding error in each weight grows to" in text


@pytest.mark.parametrize(
    ("reduced", "verdict"), [(replicas.mean, "warned"), (sums, "failed")]
)
def test_replicas_are_held_to_what_they_compute_with(reduced, verdict):
    """Half precision explains its own rounding, and no sum in place of a mean."""
    rows = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    agent = Mixed(weight=tf.linspace(-1.0, 1.0, 8), fault=reduced)
    strategy = strategies.strategy("rehearsal:2")
    check = rehearsal.rehearse(agent, rows, rows, strategy=strategy).checks[-1]
    assert check.verdict == verdict, check.details
    assert "one of bfloat16, in which the update computes" in check.details[0]
    assert ("a rehearsal in float32" in check.details[0]) == (verdict == "warned")


def test_graphs_that_cannot_be_read_are_told(monkeypatch):
    monkeypatch.setattr(_tpu_fitness, "operations", lambda concrete: [])
    agent = Faulty(weight=tf.constant(0.5), fault=tf.reduce_mean)
    report = rehearsal.rehearse(agent, ROWS, ROWS[:2])
    found = [(check.name, check.verdict) for check in report.checks]
    assert found == [("operations read", "warned"), ("compiled by XLA", "passed")] * 3
    assert "prints graphs otherwise" in shown(report)


def found_in(function, *specs, **options):
    concrete = tf.function(function, **options).get_concrete_function(*specs)
    return _tpu_fitness.operations(concrete)


def inner(x):
    kept = tf.boolean_mask(x, x > 0.0)  # masked
    called = tf.numpy_function(np.sum, [x], tf.float32)  # call
    return tf.reduce_sum(kept) + called


def outer(x):
    nested = tf.function(inner, autograph=False, jit_compile=True)

    def body(step, total):
        wide = tf.cast(tf.ensure_shape(nested(x), []), tf.float64)
        return step + 1, total + tf.cast(wide * wide, tf.float32)  # product

    return tf.while_loop(lambda step, _: step < 3, body, (0, 0.0))


def test_nested_functions_and_loops_are_read_with_their_lines():
    operations = found_in(outer, tf.TensorSpec([3]), autograph=False)
    (where,) = [x for x in operations if x.kind == "Where"]
    assert where.place.endswith(place_of("masked"))
    assert where.inputs == ("3xi1",) and where.outputs == ("?x1xi64",)
    (call,) = [x for x in operations if x.kind == "PyFunc"]
    assert call.place.endswith(place_of("call")) and call.outputs == ("*xf32",)
    (product,) = [x for x in operations if x.kind == "Mul"]
    assert product.place.endswith(place_of("product"))
    assert product.inputs == ("f64", "f64") and product.outputs == ("f64",)


def test_what_lists_hold_is_no_shape_of_an_operation():
    def function(x):
        rows = tf.TensorArray(tf.float32, size=3, element_shape=None)
        rows = tf.while_loop(
            lambda step, _: step < 3,
            lambda step, rows: (step + 1, rows.write(step, x)),
            (0, rows),
        )[1]
        return rows.stack()

    operations = found_in(function, tf.TensorSpec([2]), autograph=False)
    (write,) = [x for x in operations if x.kind == "TensorListSetItem"]
    assert (write.inputs, write.outputs) == (("i32", "2xf32"), ())
    (stack,) = [x for x in operations if x.kind == "TensorListStack"]
    assert stack.outputs == ("3x2xf32",)


def operation(kind, inputs=("4xf32",), outputs=("4xf32",), place="a.py:1"):
    return _tpu_fitness.Operation(kind, place, inputs, outputs)


SOUND = [
    operation(kind)
    for kind in (
        *("Const", "MatMul", "SelectV2", "GatherV2", "TensorListSetItem", "While"),
        *("SparseSoftmaxCrossEntropyWithLogits", "StatelessRandomUniformV2", "TopKV2"),
        *("StatelessRandomGetKeyCounter", "TensorListReserve", "XlaEinsum", "Bitcast"),
    )
]


@pytest.mark.parametrize("check", _tpu_fitness.CHECKS, ids=lambda check: check[0])
def test_sound_operations_are_not_accused(check):
    assert check[2](SOUND) == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Where", "boolean_mask"),
        ("UniqueV2", "size that depends on values"),
        ("DynamicPartition", "sizes that depend on values"),
        ("TensorListResize", "TensorArray grow"),
        ("RaggedTensorToTensor", "ragged"),
        ("StatelessRandomGammaV3", "not compiled by XLA"),
        ("WriteScalarSummary", "writes summaries"),
        ("StringFormat", "works on strings"),
        ("DecodePng", "images"),
        ("ReadFile", "works on files"),
        ("LookupTableFindV2", "table"),
        ("PyFunc", "calls Python on the host"),
        ("Assert", "left out"),
        ("CheckNumerics", "left out"),
    ],
)
def test_what_tpus_lack_is_found(kind, words):
    found = [*SOUND, operation(kind, place="b.py:7")]
    checks = [find for _, _, find in _tpu_fitness.CHECKS]
    (finding,) = [finding for each in checks for finding in each(found)]
    assert finding[1:] == (kind, "b.py:7") and words in finding.reason


def test_dynamic_shapes_are_found_where_they_arise():
    operations = [
        operation("Where", ("4xi1",), ("?x1xi64",), "a.py:3"),
        operation("Squeeze", ("?x1xi64",), ("?xi64",)),
        operation("PyFunc", ("4xf32",), ("*xf32",), "a.py:5"),
        operation("StatefulPartitionedCall", ("4xf32",), ("*xf32",)),
    ]
    findings = _tpu_fitness.dynamic_shapes([*SOUND, *operations])
    assert [finding.place for finding in findings] == ["a.py:3", "a.py:5"]


def test_dtypes_without_units_are_found():
    operations = [
        operation("Mul", ("4xf64", "f64"), ("4xf64",), "a.py:1"),
        operation("Cast", ("?xf32",), ("?xf16",), "a.py:2"),
        operation("Identity", ("f64",), ("f64",), "a.py:3"),
        operation("Conj", ("2xcomplex<f64>",), ("2xcomplex<f64>",), "a.py:4"),
        operation("Cast", ("*xf32",), ("*xbf16",), "a.py:5"),
    ]
    findings = _tpu_fitness.unfit_numbers(operations)
    assert [(x.place, x.reason.split(",")[0]) for x in findings] == [
        ("a.py:1", "computes in float64"),
        ("a.py:2", "computes in float16"),
        ("a.py:4", "computes in complex128"),
    ]


@pytest.mark.parametrize(
    ("tensors", "name"),
    [
        (("4xf32", "f64"), None),
        (("?x4xf16", "f32"), "float16"),
        (("f16", "*xbf16"), "bfloat16"),
    ],
)
def test_half_precision_is_found_where_it_computes(tensors, name):
    assert _tpu_fitness.half_precision([operation("MatMul", tensors)]) == name
    assert _tpu_fitness.half_precision([operation("Cast", tensors)]) is None


def test_findings_are_told_by_reason_with_the_commonest_first():
    findings = [
        _tpu_fitness.Finding("is slow", kind, place)
        for kind, place in [
            *[("Mul", "a.py:1")] * 3,
            *[("Add", "a.py:2")] * 2,
            *[(kind, f"b.py:{kind}") for kind in "CDE"],
        ]
    ]
    first, second = _tpu_fitness.described(
        [*findings, _tpu_fitness.Finding("is wrong", "Where", "c.py:9")]
    )
    assert first == (
        "Mul (3), Add (2), C, 2 more kinds at a.py:1 (3), a.py:2 (2), b.py:C, "
        "2 more places: is slow"
    )
    assert second == "Where at c.py:9: is wrong"
    (few,) = _tpu_fitness.described([findings[0], *findings[3:5]])
    assert few == "Add at a.py:2 (2), Mul at a.py:1: is slow"
