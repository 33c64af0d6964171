"""Tests of the check of whole numbers that needs no TensorFlow."""

import numpy as np
import pytest

from tfrl.core import checks
from tfrl.distribute import _whole_numbers


@pytest.mark.parametrize("value", [1, np.int64(4), 5])
def test_whole_numbers_within_bounds_become_ints(value):
    found = _whole_numbers.check_whole_number("f", "n", value, low=1, high=5)
    assert found == value
    assert type(found) is int


@pytest.mark.parametrize("value", [0, 6, -1, True, 1.0, "1", None], ids=repr)
@pytest.mark.parametrize("high", [None, 5])
def test_it_says_what_the_check_of_core_says(value, high):
    results = []
    for check in (checks.check_whole_number, _whole_numbers.check_whole_number):
        try:
            results.append(check("f", "n", value, 1, high))
        except (TypeError, ValueError) as error:
            results.append((type(error), str(error)))
    assert results[0] == results[1]
    if value != 6 or high == 5:
        assert isinstance(results[0], tuple)
