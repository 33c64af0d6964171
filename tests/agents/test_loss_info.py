"""Tests of `tfrl.agents._loss_info`; what users see of it is in `test_train_state`."""

import pytest
import tensorflow as tf

from tfrl.agents import _loss_info


def test_loss_and_info():
    loss, info = _loss_info.loss_and_info((2, {"n": 1}), has_aux=True)
    assert loss.shape == () and info == {"n": 1}
    assert _loss_info.loss_and_info(tf.constant(2.0), has_aux=False)[1] == ()


@pytest.mark.parametrize(
    ("result", "has_aux", "message"),
    [
        (tf.constant(1.0), True, "expected to return a pair"),
        ((1.0, 2.0, 3.0), True, "expected to return a pair"),
        (tf.ones([2]), False, r"a scalar loss; got shape \(2,\)"),
    ],
)
def test_other_results_are_refused(result, has_aux, message):
    with pytest.raises(ValueError, match=message):
        _loss_info.loss_and_info(result, has_aux)


def test_extra_variables_have_a_structure():
    assert _loss_info.checked_extra({"a": 1.0}, {"a": 0.0}) == {"a": 1.0}
    with pytest.raises(ValueError, match="info's `extra_variables` expected"):
        _loss_info.checked_extra({"b": 1.0}, {"a": 0.0})
