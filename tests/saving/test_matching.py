"""Tests of `tfrl.saving._matching`."""

import numpy as np
import pytest

from tfrl._internal import sealed_folder
from tfrl.saving import _matching, typed_json


def test_states_of_generators_fit_or_are_damage():
    rng = np.random.default_rng(3)
    text = typed_json.to_json(rng.bit_generator.state)
    found = _matching.generator_states({"generators": {"r": text}}, {"r": rng})
    assert found == {"r": rng.bit_generator.state}
    for bad in ("", "3", "{}", '{"bit_generator":"PCG64"}'):
        with pytest.raises(sealed_folder.DamageError, match="generator|no such state"):
            _matching.generator_states({"generators": {"r": bad}}, {"r": rng})
