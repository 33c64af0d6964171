"""What `AsKeras` is saved as."""

import json

import foreign_layers
import numpy as np
import pytest
import tensorflow as tf

from tfrl import core
from tfrl.layers import _foreign

SIGNATURE = (
    {"a": core.ShapeDtype((None, 3), np.int32)},
    [core.ShapeDtype(()), core.ShapeDtype((2,), "bfloat16")],
)


@pytest.mark.parametrize("signature", [SIGNATURE, SIGNATURE[1][0]], ids=["nest", "one"])
def test_signatures_come_back_from_json(signature):
    text = json.dumps(_foreign.encoded(signature))
    assert _foreign.decoded(json.loads(text)) == signature


def test_keras_tensors_of_a_signature():
    found = _foreign.symbolic(SIGNATURE)
    assert (found[0]["a"].shape, found[0]["a"].dtype) == ((None, 3), "int32")
    assert [x.dtype for x in found[1]] == ["float32", "bfloat16"]


def test_keys_and_names_come_back():
    key = np.array([1, 2**32 - 1], np.uint32)
    config = json.loads(json.dumps(_foreign.encoded_key(key)))
    np.testing.assert_array_equal(np.array(config["value"], config["dtype"]), key)
    name = _foreign.name_of("layer", foreign_layers.registered_mix)
    assert name == "foreign_layers>registered_mix"
    found = _foreign.found("layer", name)
    assert found.__name__ == "registered_mix"
    assert _foreign.found("rng_updater", None) is None


def test_what_has_no_registered_name():
    with pytest.raises(
        ValueError, match="`AsKeras`: `layer` expected a function decor"
    ):
        _foreign.name_of("layer", foreign_layers.network)
    with pytest.raises(ValueError, match="got 'x>y', which is not; import the module"):
        _foreign.found("layer", "x>y")


@pytest.mark.parametrize(
    ("dtype", "want"),
    [
        (None, (None, None)),
        ("float64", ("float64", None)),
        (tf.float16, ("float16", None)),
        ("mixed_float16", ("mixed_float16", None)),
        (np.int32, (None, "int32")),
        ("bool", (None, "bool")),
    ],
)
def test_dtypes_of_inputs_and_policies(dtype, want):
    assert _foreign.split_dtype(dtype) == want
