"""Every public class of distributions and bijectors has its rows and examples."""

import pytest
import tensorflow_probability as tfp
from conformance import examples, families, maps

from tfrl import bijectors, distributions

CLASSES = {
    distributions: tfp.distributions.Distribution,
    bijectors: tfp.bijectors.Bijector,
}
KINDS = {
    "families": (distributions, [row.cls for row in families.ROWS]),
    "maps": (bijectors, [row.cls for row in maps.ROWS]),
    "distributions": (distributions, [row.cls for row in examples.DISTRIBUTIONS]),
    "bijectors": (bijectors, [type(each) for each in examples.BIJECTORS]),
}


def public_classes(room):
    values = (getattr(room, name) for name in room.__all__)
    base = CLASSES[room]
    return [x for x in values if isinstance(x, type) and issubclass(x, base)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_class_is_there_once(kind):
    room, classes = KINDS[kind]
    assert sorted(c.__name__ for c in classes) == sorted(
        c.__name__ for c in public_classes(room)
    )
    assert set(classes) == set(public_classes(room))
