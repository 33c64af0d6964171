"""Networks on the host, and players that can be saved."""

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl.training.fitting import _playing


def player(seed=0, act=examples.drawn):
    return _playing.Player(
        "Collect", examples.walks(), 2, act, network=None, to_env=None, seed=seed
    )


def test_networks_follow_their_weights():
    network = examples.network()
    host = _playing.HostNetwork(network)
    for batch in (2, 5):
        x = np.ones([batch, 3], np.float32) * batch
        np.testing.assert_allclose(host(x), network(x), rtol=1e-5)
        network.weights[0].assign(network.weights[0] * 2.0)


def test_networks_of_nests():
    inputs = {"a": keras.Input([2], name="a"), "b": keras.Input([1], name="b")}
    both = keras.layers.Concatenate()([inputs["a"], inputs["b"]])
    network = keras.Model(inputs, {"sum": both, "last": [both]})
    host = _playing.HostNetwork(network)
    given = {"a": np.ones([4, 2], np.float32), "b": np.zeros([4, 1], np.float32)}
    got = host(given)
    assert sorted(got) == ["last", "sum"]
    assert isinstance(got["last"][0], np.ndarray)
    np.testing.assert_array_equal(got["sum"], [[1.0, 1.0, 0.0]] * 4)


def test_dropout_is_off():
    network = keras.Sequential([keras.Input([3]), keras.layers.Dropout(0.9)])
    x = np.ones([4, 3], np.float32)
    np.testing.assert_array_equal(_playing.HostNetwork(network)(x), x)


def test_state_in_the_middle_of_episodes():
    model = examples.q_model()
    one, two = player(), player(seed=9)
    for _ in range(3):
        one.play(model)
    assert two.set_state(one.state())
    for _ in range(3):
        first, second = one.play(model), two.play(model)
        examples.assert_same(tf.nest.flatten(first), tf.nest.flatten(second))
    assert one.logs() == two.logs()
    assert int(model.env_steps) == 36


def test_logs_before_the_first_episode():
    logs = player().logs()
    assert np.isnan([logs["return_mean"], logs["length_mean"]]).all()
    assert logs["env_steps"] == 0.0


def test_progress_of_models():
    plain = examples.network()
    plain.compile("sgd", "mse")
    found = _playing.progress_of(plain, 7)
    assert (found.env_steps, found.iterations, found.percent) == (7, 0, 0.0)
    model = examples.fit_model()
    model.env_steps.assign(8)
    assert _playing.progress_of(model, 7).env_steps == 8


def test_who_acts():
    network, model = examples.network(), examples.fit_model()
    assert _playing.network_of("Collect", model, None) is model.network
    assert _playing.network_of("Collect", network, None) is network
    assert _playing.network_of("Collect", model, network) is network
    with pytest.raises(TypeError, match="`Collect`: `act` expected a function"):
        player(act=3)
