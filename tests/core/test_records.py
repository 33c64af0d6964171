"""Tests of tfrl.core.records."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import records

FIELDS = {
    records.TimeStep: ("step_types", "rewards", "discounts", "observations"),
    records.Transition: (
        "observations",
        "actions",
        "rewards",
        "discounts",
        "next_observations",
    ),
    records.Trajectory: (
        "observations",
        "actions",
        "rewards",
        "terminated",
        "truncated",
        "next_observations",
        "valid",
        "log_probs",
        "states",
    ),
    records.LossInfo: ("loss", "extra"),
}


def test_step_types():
    kind = records.StepType
    assert [(kind.FIRST, 0), (kind.MID, 1), (kind.LAST, 2)] == [
        (part, int(part)) for part in kind
    ]
    steps = tf.constant([0, 2, 1])
    np.testing.assert_array_equal(steps == kind.LAST, [False, True, False])


@pytest.mark.parametrize("record", FIELDS, ids=lambda record: record.__name__)
def test_records_are_nests(record):
    assert record._fields == FIELDS[record]
    made = record(*({"a": tf.ones(2) * i} for i in range(len(record._fields))))
    double = tf.function(lambda r: tf.nest.map_structure(lambda x: 2.0 * x, r))
    found = double(made)
    assert type(found) is record
    for i, part in enumerate(found):
        np.testing.assert_array_equal(part["a"], [2.0 * i, 2.0 * i])
    assert type(pickle.loads(pickle.dumps(made))) is record
