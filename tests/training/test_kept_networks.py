"""Configurations of networks are alike in every process."""

import keras
import pytest

from tfrl.training import _kept_arguments


def functional(units=2):
    inputs = {"a": keras.Input([3], name="a"), "b": keras.Input([1], name="b")}
    hidden = keras.layers.Concatenate()([*inputs.values()])
    hidden = keras.layers.Softmax()(keras.layers.Dense(4, "softmax")(hidden))
    return keras.Model(inputs, keras.layers.Dense(units)(hidden))


class Own(keras.layers.Dense):
    pass


class Silent(keras.Model):
    def __init__(self, scale):
        super().__init__()
        self.layer = keras.layers.Dense(scale)

    def call(self, inputs):
        return self.layer(inputs)


def test_names_that_keras_counted_are_counted_anew():
    one, two = functional(), functional()
    assert one.layers[-1].name != two.layers[-1].name
    config = _kept_arguments.kept(one)
    assert config == _kept_arguments.kept(two)
    assert config != _kept_arguments.kept(functional(3))
    made = _kept_arguments.made(_kept_arguments.kept(one))
    assert _kept_arguments.kept(made) == config
    assert {x.name for x in made.inputs} >= {"a"}
    shapes = [[w.shape for w in x.weights] for x in (made, one)]
    assert shapes[0] == shapes[1]


def test_differences_tell_the_place():
    kept = [_kept_arguments.kept(functional(units)) for units in (2, 3)]
    found = _kept_arguments.differences(*kept, "network")
    assert [*found.values()] == [("2", "3")]
    (place,) = found
    assert place.startswith("network.config.layers[") and place.endswith(".units")


@pytest.mark.parametrize("make", [Own, Silent])
def test_what_no_other_process_could_make_has_a_digest(make):
    texts = []
    for count in (2, 2, 3):
        network = keras.Sequential([keras.Input([3]), make(count)])
        network.build([None, 3])
        (text,) = _kept_arguments.lost(_kept_arguments.kept(network), "").values()
        texts.append(text)
    assert texts[0] == texts[1] != texts[2]
    assert "Sequential, digest" in texts[0]
