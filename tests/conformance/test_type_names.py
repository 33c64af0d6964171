"""Classes whose names TensorFlow Probability has too leave its type registry alone.

A `SavedModel` writes the name of the type of what its functions take and return, and
looks it up when loaded.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from conformance import examples

from tfrl import bijectors, distributions

ROOMS = {
    "distributions": (distributions, tfp.distributions),
    "bijectors": (bijectors, tfp.bijectors),
}
OURS = {example.cls: example() for example in examples.DISTRIBUTIONS}
OURS |= {type(each): each for each in examples.BIJECTORS}
VALUES = np.float32([0.2, 0.5, 0.7])
THEIRS = {
    "Beta": (VALUES, 2.0 + VALUES),
    "Normal": (VALUES, VALUES),
    "PowerTransform": (np.float32(0.5),),
    "Softplus": (VALUES,),
    "Softsign": (),
    "TruncatedCauchy": (VALUES, VALUES, -VALUES, VALUES),
    "TruncatedNormal": (VALUES, VALUES, -VALUES, VALUES),
}


def pairs():
    """Our class and theirs of each name that both have."""
    return {
        name: (getattr(ours, name), getattr(theirs, name))
        for ours, theirs in ROOMS.values()
        for name in ours.__all__
        if isinstance(getattr(theirs, name, None), type)
    }


def test_all_equal_names_are_tried():
    assert set(pairs()) == set(THEIRS)


def test_types_are_found_again(tmp_path):
    objects = {f"ours_{name}": OURS[ours] for name, (ours, _) in pairs().items()}
    for name, (_, theirs) in pairs().items():
        objects[f"theirs_{name}"] = theirs(*map(tf.constant, THEIRS[name]))
    module = tf.Module()
    for name, value in objects.items():
        spec = tf.type_spec_from_value(value)
        function = tf.function(lambda x: x, input_signature=[spec], autograph=False)
        setattr(module, name, function)
    with pytest.warns(UserWarning, match="Encoding a StructuredValue"):
        tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for name, value in objects.items():
        back = getattr(loaded, name)(value)
        assert type(back) is type(value), name
        assert back.parameters.keys() == value.parameters.keys(), name
