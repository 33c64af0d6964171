"""Which layer a `Checkpointer` loads an array into."""

import gc
import pathlib
import shutil
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from saving import saved_models

from tfrl import agents, core
from tfrl.saving import checkpointer, checkpoints

FORMAT_1 = pathlib.Path(__file__).parent / "format_1"


def critics(item):
    """Finds layers by name."""
    layers = getattr(item, "critics", None) or item.layers
    return {layer.name: layer for layer in layers if hasattr(layer, "net")}


def kernels(item):
    return {name: float(x.net.kernel[0, 0]) for name, x in critics(item).items()}


class Listed(keras.Model):
    def __init__(self, *layers):
        super().__init__()
        self.critics = list(layers)

    def build(self, _):
        for layer in self.critics:
            layer.build((None, 3))
        self.built = True


class Held(Listed):
    def __init__(self, *layers):
        keras.Model.__init__(self)
        self.a, self.b = [*layers, None][:2]
        self._critics = layers

    @property
    def critics(self):
        return self._critics


def listed(*layers):
    model = Listed(*layers)
    model.build(None)
    return model


def held(*layers):
    model = Held(*layers)
    model.build(None)
    return model


def module(*layers):
    made = tf.Module()
    made.critics = list(layers)
    for layer in layers:
        layer.build((None, 3))
    return made


def functional(*layers):
    inputs = keras.Input([3])
    return keras.Model(inputs, [layer(inputs) for layer in layers])


def sequential(*layers):
    return keras.Sequential([keras.Input([2]), *layers])


MAKERS = [listed, held, module, functional, sequential]


def named(make, *names, cls=saved_models.Critic):
    item = make(*[cls(name=name) for name in names])
    for name, layer in critics(item).items():
        layer.net.kernel.assign(tf.fill(layer.net.kernel.shape, float(name[-1])))
    return item


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_named_layer_gets_its_own_weights_or_none(tmp_path, make):
    checkpointer.Checkpointer(tmp_path, net=named(make, "critic_1", "critic_2")).save(1)
    one = make(saved_models.Critic(name="critic_2"))
    (before,) = kernels(one).values()
    manager = checkpointer.Checkpointer(tmp_path, net=one)
    manager.load(strict=False)
    if make is held:
        # `a` is another layer now.
        assert manager.missing == ("net.a.net.kernel", "net.a.net.bias")
        assert kernels(one) == {"critic_2": before}
    else:
        assert manager.missing == () and kernels(one) == {"critic_2": 2.0}
    assert len(manager.unexpected) == (4 if make is held else 2)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_other_names_are_refused(tmp_path, make):
    checkpointer.Checkpointer(tmp_path, net=named(make, "critic_1", "critic_2")).save(1)
    other = named(make, "critic_2", "critic_3")
    with pytest.raises(ValueError, match=r"missing there: .*named .*'critic_3'"):
        checkpointer.Checkpointer(tmp_path, net=other).load()
    assert kernels(other) == {"critic_2": 2.0, "critic_3": 3.0}
    same = make(*[saved_models.Critic(name=f"critic_{k}") for k in (1, 2)])
    checkpointer.Checkpointer(tmp_path, net=same).load()
    assert kernels(same) == {"critic_1": 1.0, "critic_2": 2.0}


def test_names_that_keras_may_have_made_are_not_guessed(tmp_path):
    class Judge(saved_models.Critic):
        pass

    made_before = [Judge() for _ in range(9)]
    assert made_before[-1].name == "judge_8"
    saved = named(sequential, "judge_1", "judge_2", cls=Judge)
    checkpointer.Checkpointer(tmp_path, net=saved).save(1)
    one = sequential(Judge(name="judge_2"))
    before = kernels(one)
    manager = checkpointer.Checkpointer(tmp_path, net=one)
    manager.load(strict=False)
    assert manager.missing == ("net.judge.net.kernel", "net.judge.net.bias")
    assert kernels(one) == before
    turned = sequential(Judge(name="judge_2"), Judge(name="judge_1"))
    with pytest.raises(ValueError, match="missing there: net.judge.net.kernel"):
        checkpointer.Checkpointer(tmp_path, net=turned).load()
    same = sequential(Judge(name="judge_1"), Judge(name="judge_2"))
    checkpointer.Checkpointer(tmp_path, net=same).load()
    assert kernels(same) == {"judge_1": 1.0, "judge_2": 2.0}
    shifted = sequential(Judge(), Judge())
    checkpointer.Checkpointer(tmp_path, net=shifted).load()
    assert list(kernels(shifted).values()) == [1.0, 2.0]


def test_a_session_cleared_between_does_not_matter(tmp_path):
    class Cleared(saved_models.Critic):
        pass

    saved = sequential(Cleared(), Cleared())
    gc.freeze()  # It collects what is left behind, of a whole process of tests.
    keras.utils.clear_session()
    gc.unfreeze()
    checkpointer.Checkpointer(tmp_path, net=saved).save(1)
    Cleared()
    checkpointer.Checkpointer(tmp_path, net=sequential(Cleared(), Cleared())).load()


def test_keys_of_nests_are_kept_letter_by_letter(tmp_path):
    class Node(keras.layers.Layer):
        pass

    assert Node.__name__ == "Node"
    first = {"node_1": tf.constant(1.0), "node_2": tf.constant(2.0)}
    checkpointer.Checkpointer(tmp_path, nest=first).save(1, nest=first)
    manager = checkpointer.Checkpointer(tmp_path, nest={"node_2": tf.constant(0.0)})
    manager.load(strict=False)
    assert float(manager["nest"]["node_2"]) == 2.0


def test_a_train_state_knows_the_layers_of_its_model(tmp_path):
    def made(*names):
        model = named(sequential, *names)
        return agents.TrainState.create(model, tx=agents.adam(1e-3))

    state = made("critic_1", "critic_2")
    checkpointer.Checkpointer(tmp_path, agent=state).save(1, agent=state)
    with pytest.raises(ValueError, match="critic_3"):
        checkpointer.Checkpointer(tmp_path, agent=made("critic_2", "critic_3")).load()
    manager = checkpointer.Checkpointer(tmp_path, agent=made("critic_2"))
    manager.load(strict=False)
    assert manager.missing == ()
    loaded = manager["agent"].params
    assert [float(x[0, 0]) for k, x in loaded.items() if "kernel" in k] == [2.0]


class Torso(keras.Model):
    """A model of a user's own class, whose name Keras makes unless one is given."""

    def __init__(self, name=None):
        super().__init__(name=name)
        self.inner = keras.layers.Dense(2)

    def build(self, shape):
        self.inner.build(shape)
        self.built = True


class Pair(core.PyTreeNode):
    states: Any
    targets: Any


def pair(*names):
    models = [Torso(name) for name in names]
    for model in models:
        model.build((None, 4))
    states = [agents.TrainState.create(x, tx=agents.sgd(0.1)) for x in models]
    targets = {k: 2.0 * v for state in states for k, v in state.params.items()}
    return Pair(states, targets)


@pytest.mark.parametrize("times", [1, 9])
def test_keys_of_a_model_without_a_name_are_known_beside_its_state(tmp_path, times):
    # The second time across a number with another digit, which sorts otherwise.
    saved = [pair(None, None) for _ in range(times)][-1]
    checkpointer.Checkpointer(tmp_path / "one", agent=saved).save(3, agent=saved)
    checkpoints.save_run(tmp_path / "run", 3, saved, {})
    empty = tf.nest.map_structure(tf.zeros_like, pair(None, None))
    loader = checkpointer.Checkpointer(tmp_path / "one", agent=empty)
    assert loader.load() == 3
    for found in (loader["agent"], checkpoints.load_run(tmp_path / "run", empty)[0]):
        wanted = [state.params for state in saved.states]
        for state, params in zip(found.states, wanted, strict=True):
            for key, before in zip(sorted(state.params), sorted(params), strict=True):
                np.testing.assert_array_equal(state.params[key], params[before])
                np.testing.assert_array_equal(found.targets[key], 2.0 * params[before])


def test_keys_of_a_model_with_a_name_of_its_own_are_not_renumbered(tmp_path):
    saved, other = pair("torso_7001"), pair("torso_7003")
    checkpointer.Checkpointer(tmp_path, agent=saved).save(1, agent=saved)
    with pytest.raises(ValueError, match=r"missing.*torso_7003"):
        checkpointer.Checkpointer(tmp_path, agent=other).load()


class Scale(keras.layers.Layer):
    """A layer of the user's own class."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="scale")

    def call(self, inputs):
        return self.scale * inputs


def scaled(*names):
    return keras.Sequential([keras.Input([3]), *(Scale(name=name) for name in names)])


def pair_of(model):
    for k, variable in enumerate(model.variables):
        variable.assign(tf.fill([3], k + 1.0))
    state = agents.TrainState.create(model, tx=agents.sgd(0.1))
    return Pair([state], {key: 2.0 * value for key, value in state.params.items()})


def test_keys_of_layers_of_own_classes_are_known_beside_their_state(tmp_path):
    # Across a number with another digit, which sorts otherwise.
    while keras.backend.get_uid("scale") % 10 != 9:
        pass
    checkpoints.save_run(tmp_path, 3, pair_of(scaled(None, None)), {})
    empty = tf.nest.map_structure(tf.zeros_like, pair_of(scaled(None, None)))
    found = checkpoints.load_run(tmp_path, empty)[0]
    firsts = [float(value[0]) for value in found.targets.values()]
    assert sorted(firsts) == [2.0, 4.0]
    for key, value in found.states[0].params.items():
        np.testing.assert_array_equal(found.targets[key], 2.0 * value)


@pytest.mark.parametrize("saved", [(None, "scale_7002"), ("scale_7002", None)])
def test_keys_of_layers_of_own_classes_that_a_user_numbered_are_not_guessed(
    tmp_path, saved
):
    checkpoints.save_run(tmp_path, 3, pair_of(scaled(*saved)), {})
    empty = tf.nest.map_structure(tf.zeros_like, pair_of(scaled(None, None)))
    with pytest.raises(ValueError, match=r"targets.*scale.* missing here"):
        checkpoints.load_run(tmp_path, empty)


def test_an_optimizer_goes_with_its_variables(tmp_path):
    def made(*names):
        model = named(listed, *names)
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
        for k, slot in enumerate(optimizer.variables[2:]):
            slot.assign(tf.fill(slot.shape, k + 1.0))
        return {"model": model, "optimizer": optimizer}

    checkpointer.Checkpointer(tmp_path, **made("critic_1", "critic_2")).save(1)
    items = made("critic_2", "critic_3")
    manager = checkpointer.Checkpointer(tmp_path, **items)
    manager.load(strict=False)
    assert {f"optimizer.{k}" for k in (2, 3, 4, 5)} <= set(manager.missing)
    assert kernels(items["model"]) == {"critic_2": 2.0, "critic_3": 3.0}


def test_checkpoints_of_format_1_still_load(tmp_path):
    folder = shutil.copytree(FORMAT_1, tmp_path / "copy")
    keras.layers.Dense(1)
    items = saved_models.made()
    manager = checkpointer.Checkpointer(folder / "many", **items)
    assert manager.load() == 1
    saved_models.check({**items, "state": manager["state"]})
    names = saved_models.sequential("critic", "target")
    assert checkpointer.Checkpointer(folder / "named", net=names).load() == 1


def test_numbers_that_format_1_lost_are_not_guessed(tmp_path):
    folder = shutil.copytree(FORMAT_1, tmp_path / "copy") / "numbered"
    for names in (["critic_1", "critic_2"], ["critic_2", "critic_3"], ["critic_2"]):
        item = saved_models.sequential(*names)
        manager = checkpointer.Checkpointer(folder, net=item)
        for strict in (True, False):
            with pytest.raises(ValueError, match=r"layers named \['critic_.*apart"):
                manager.load(strict=strict)
    unnamed = saved_models.sequential(None, None)
    assert checkpointer.Checkpointer(folder, net=unnamed).load() == 1
    manager = checkpointer.Checkpointer(folder, net=saved_models.sequential(None))
    manager.load(strict=False)
    assert len(manager.missing) == 2 and len(manager.unexpected) == 4
