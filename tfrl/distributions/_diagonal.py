"""The base of families whose event is a vector of independent numbers."""

from typing import Any

import tensorflow_probability as tfp

from tfrl._internal import checks
from tfrl.distributions import _parameters


class Diagonal(tfp.distributions.Independent):
    """Independent distributions of one family along the last axis.

    Args:
        family: the class of the distribution of each number.
        parameters: the `locals()` of the constructor: all but `name` are what the
            family takes, the first one with an axis at least.
    """

    def __init__(self, family: Any, parameters: dict[str, Any]) -> None:
        given = _parameters.arguments(parameters)
        name = given.pop("name")
        first, value = next(iter(given.items()))
        checks.check_rank(type(self).__name__, first, value, at_least=1)
        super().__init__(
            family(**given),
            reinterpreted_batch_ndims=1,
            validate_args=given["validate_args"],
            name=name,
        )
        _parameters.keep(self, parameters)

    _parameter_properties = tfp.distributions.Independent.parameter_properties
