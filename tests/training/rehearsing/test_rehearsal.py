import functools
import io
import pathlib

import numpy as np
import pytest
import rich.console
import tensorflow as tf

from tfrl.core import pytree
from tfrl.distribute import strategies
from tfrl.policies import policy
from tfrl.training.rehearsing import rehearsal

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


def test_graphs_that_cannot_be_read_are_told(monkeypatch):
    monkeypatch.setattr(rehearsal._tpu_fitness, "operations", lambda concrete: [])
    agent = Faulty(weight=tf.constant(0.5), fault=tf.reduce_mean)
    report = rehearsal.rehearse(agent, ROWS, ROWS[:2])
    found = [(check.name, check.verdict) for check in report.checks]
    assert found == [("operations read", "warned"), ("compiled by XLA", "passed")] * 3
    assert "prints graphs otherwise" in shown(report)
