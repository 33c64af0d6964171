"""Tests of `tfrl.saving._layer_paths`."""

import gc

import keras
import pytest

from tfrl.saving import _layer_paths

Step = _layer_paths.Step


def names(item):
    paths = _layer_paths.variable_paths(item)
    return [_layer_paths.joined(paths[id(each)]) for each in item.variables]


def built(layer, shape=(None, 2)):
    layer.build(shape)
    return layer


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Step("a"), Step("a"), True),
        (Step("a"), Step("b"), False),
        (Step("a", "x_1", False), Step("a", "x_7", False), True),
        (Step("a", "x_1", True), Step("a", "x_7", False), True),
        (Step("a", "x_1", True), Step("a", "x_7", True), False),
        (Step("0", "x", False, 0), Step("0", "x_3", False, 0), True),
        (Step("0", "x", False, 0), Step("1", "x", False, 1), False),
        (Step("x", "x", True, 0), Step("3", "x", False, 3), True),
        (Step("x", "x", True, 0), Step("x", "x_2", False, 1), False),
        (Step("x", "x", True, 1), Step("1", "x_2", False, 1), True),
        (Step("x", "x", True, 1), Step("y", "y", True, 1), False),
    ],
)
def test_steps_of_two_processes(one, other, expected):
    assert one.is_same(other) is other.is_same(one) is expected


def test_paths_go_through_json():
    path = (Step("net"), Step("0", "dense", False, 0), Step("kernel"))
    assert _layer_paths.from_json(_layer_paths.to_json(path)) == path


def test_layers_of_models_are_ranked_by_class_and_place():
    layers = [keras.layers.Dense(1) for _ in range(3)]
    fc = keras.layers.Dense(1, name="fc")
    model = keras.Sequential([keras.Input([1]), layers[2], fc, layers[0], layers[1]])
    found = names(model)[::2]
    assert found == ["dense.kernel", "fc.kernel", "dense_1.kernel", "dense_2.kernel"]


def test_a_rank_is_not_the_name_of_another_layer():
    class Odd(keras.layers.Dense):
        pass

    layers = [Odd(1, name="odd"), Odd(1, name="odd_1")]
    assert all(map(_layer_paths.is_given, layers))
    layers = [Odd(1), layers[0], Odd(1), layers[1], Odd(1)]
    found = names(keras.Sequential([keras.Input([1]), *layers]))
    assert [name.split(".")[0] for name in found[::2]] == [
        "odd_2",
        "odd",
        "odd_3",
        "odd_1",
        "odd_4",
    ]


def test_keras_own_layers_name_their_parts_themselves():
    made = keras.layers.Bidirectional(keras.layers.LSTM(1, name="lstm_7"))
    found = names(built(made, (None, 3, 2)))
    assert found[0] == "forward_layer.cell.kernel"
    paths = _layer_paths.variable_paths(made)
    assert not any(step.given for path in paths.values() for step in path)


def test_weights_without_a_name_are_known_by_their_attribute():
    class Weights(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.second = self.add_weight(), self.add_weight(name="w")
            self.many = [self.add_weight(name="v") for _ in range(2)]
            self.built = True

    keras.Variable(1.0)
    assert names(Weights()) == ["first", "w", "v", "v:1"]


def test_what_is_certain_about_a_name():
    class Guess(keras.layers.Layer):
        pass

    before = [Guess(name=name) for name in ("guess", "guess_1", "other", "guess_x")]
    assert all(map(_layer_paths.is_given, before))
    made = [Guess() for _ in range(4)]
    assert not any(map(_layer_paths.is_given, made))
    assert all(map(_layer_paths.is_given, before))
    assert _layer_paths.is_given(Guess(name="guess_100"))
    assert not _layer_paths.is_given(Guess(name=made[-1].name))


def test_nothing_is_kept_alive():
    class Kept(keras.layers.Layer):
        pass

    gc.collect()
    count = len(_layer_paths._told)
    layer = Kept()
    _layer_paths.is_given(layer)
    assert len(_layer_paths._told) == count + 1
    del layer
    gc.collect()
    assert len(_layer_paths._told) == count


def test_matching():
    def path(token, layer, given=False):
        index = int(layer.partition("_")[2] or 0)
        return (Step(token, layer, given, index), Step("w"))

    def matched(here, there):
        names = [{_layer_paths.joined(p): p for p in side} for side in (here, there)]
        return _layer_paths.matched(*names)

    automatic = [path("0", "x"), path("1", "x_1")]
    assert matched([path("0", "x_1"), path("1", "x_2")], automatic) == {
        "0.w": "0.w",
        "1.w": "1.w",
    }
    assert matched([path("0", "x_1")], automatic) == {}
    assert matched([path("0", "x_5")], automatic) == {"0.w": "0.w"}
    assert matched([path("x_1", "x_1", True)], automatic) == {"x_1.w": "1.w"}
