"""Tests of `tfrl.distributions._parts`."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.distributions import _parts

tfd = tfp.distributions


def test_paired():
    normal, joint = (
        tfd.Normal(0.0, 1.0),
        tfd.JointDistributionNamed({"x": tfd.Normal(0.0, 1.0), "y": tfd.Poisson(1.0)}),
    )
    nest = {"b": (normal,), "a": joint}
    actions = {"b": (tf.constant(1.0),), "a": {"x": 2.0, "y": 3.0}}
    pairs = _parts.paired("f", nest, actions)
    assert [pair[0] for pair in pairs] == [joint, normal]
    assert pairs[0][1] == {"x": 2.0, "y": 3.0}
    assert float(pairs[1][1]) == 1.0
    assert _parts.paired("f", normal, 4.0) == [(normal, 4.0)]
    for wrong in ({"b": (1.0,)}, {"a": 1.0, "b": (1.0,)}, [1.0, 2.0]):
        with pytest.raises(ValueError, match="`f`: `actions` expected the structure"):
            _parts.paired("f", nest, wrong)


def test_total():
    parts = [tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])]
    np.testing.assert_array_equal(_parts.total("f", "entropy", parts), [4.0, 6.0])
    with pytest.raises(ValueError, match="`entropy of leaf 1` expected the shape"):
        _parts.total("f", "entropy", [tf.zeros(2), tf.zeros([2, 1])])
    with pytest.raises(ValueError, match="`f`: `distributions` expected a nest with a"):
        _parts.total("f", "entropy", [])
