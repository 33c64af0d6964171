"""Several networks in one `FitModel`, each with its loss and optimizer."""

import fit_examples as examples
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import layers, losses, replay, training


@keras.saving.register_keras_serializable("tests")
def critic_loss(model, batch):
    values = model.network["critic"](batch["x"])[:, 0]
    return (batch["y"] - values) ** 2, {"values": values}


@keras.saving.register_keras_serializable("tests")
def actor_loss(model, batch):
    """Calls both networks: what it wants of the critic must not move that."""
    actions = model.network["actor"](batch["x"])
    return -model.network["critic"](actions)[:, 0]


def networks():
    return {"actor": examples.network(), "critic": examples.network(3, 1, seed=5)}


def model_of(optimizer=None, loss_fn=None, **options):
    both = {"actor": actor_loss, "critic": critic_loss}
    model = training.FitModel(networks(), both if loss_fn is None else loss_fn)
    if optimizer is None:
        optimizer = {
            "actor": keras.optimizers.SGD(0.1),
            "critic": keras.optimizers.Adam(1e-2),
        }
    model.compile(optimizer, **examples.untraced(options))
    return model


def values(network):
    return [weight.numpy() for weight in network.weights]


def step_by_hand(given, batch):
    """Both gradients at the weights before the step."""
    model = training.FitModel(networks(), {"actor": actor_loss, "critic": critic_loss})
    model.set_weights(given)
    found = {}
    for name, loss_fn in (("actor", actor_loss), ("critic", critic_loss)):
        with tf.GradientTape() as tape:
            result = loss_fn(model, batch)
            loss = tf.reduce_mean(result[0] if isinstance(result, tuple) else result)
        found[name] = tape.gradient(loss, model.network[name].trainable_weights)
    for name, optimizer in (
        ("actor", keras.optimizers.SGD(0.1)),
        ("critic", keras.optimizers.Adam(1e-2)),
    ):
        weights = model.network[name].trainable_weights
        optimizer.apply_gradients(zip(found[name], weights, strict=True))
    return model.get_weights()


@pytest.mark.parametrize(
    "options",
    [
        {"run_eagerly": False},
        {"run_eagerly": True},
        pytest.param({"jit_compile": True}, marks=pytest.mark.slow),
    ],
)
def test_each_loss_moves_its_own_network(options):
    model, batch = model_of(**options), examples.rows(8)
    before = model.get_weights()
    model.fit(tf.data.Dataset.from_tensors(batch), verbose=0)
    for one, two in zip(model.get_weights(), step_by_hand(before, batch), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_optimizers_of_one_name_are_two():
    model = model_of({"actor": "adam", "critic": "adam"})
    assert model.optimizers["actor"] is not model.optimizers["critic"]


def test_a_network_without_a_loss_stays():
    model = model_of("adam", {"actor": actor_loss})
    before = values(model.network["critic"])
    moved = values(model.network["actor"])
    model.fit(examples.data(16, 4), epochs=2, verbose=0)
    examples.assert_same(before, values(model.network["critic"]))
    assert not np.array_equal(moved[0], values(model.network["actor"])[0])


def test_a_frozen_network_with_a_loss_stays():
    model = model_of()
    model.network["actor"].trainable = False
    before = values(model.network["actor"]), values(model.network["critic"])
    message = "^The network 'actor' does not have any trainable weights.$"
    with pytest.warns(UserWarning, match=message):
        history = model.fit(examples.data(8, 4), verbose=0).history
    assert {"loss", "actor_loss", "critic_loss"} <= set(history)
    examples.assert_same(before[0], values(model.network["actor"]))
    assert not np.array_equal(before[1][0], values(model.network["critic"])[0])
    # Schedules follow the optimizer that has something to do.
    assert model.progress().iterations == 2
    assert model.progress().percent == 1.0


def test_logs_tell_every_loss():
    model = model_of("sgd", metrics={"critic_values": keras.metrics.Mean("v")})
    data = examples.data(16, 4)
    history = model.fit(data, validation_data=data, epochs=1, verbose=0).history
    names = {"loss", "actor_loss", "critic_loss", "v"}
    assert set(history) == names | {f"val_{name}" for name in names}
    total = history["val_actor_loss"][0] + history["val_critic_loss"][0]
    np.testing.assert_allclose(history["val_loss"], [total], rtol=1e-5)
    held = model.evaluate(data, return_dict=True, verbose=0)
    np.testing.assert_allclose(history["val_v"], [held["v"]], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    "file",
    ["model.keras", pytest.param("model.weights.h5", marks=pytest.mark.slow)],
)
def test_files_have_all_optimizers(tmp_path, file):
    model, data = model_of(), examples.data(16, 4)
    model.fit(data, epochs=2, verbose=0)
    if file.endswith(".keras"):
        model.save(tmp_path / file)
        other = keras.saving.load_model(tmp_path / file)
    else:
        model.save_weights(tmp_path / file)
        other = model_of()
        other.load_weights(tmp_path / file)
    assert int(other.optimizers["critic"].iterations.numpy()) == 8
    for each in (model, other):
        each.fit(data, epochs=1, verbose=0)
    examples.assert_same(model.get_weights(), other.get_weights())


@pytest.mark.slow
def test_a_run_is_resumed(tmp_path):
    def run(folder, epochs):
        model = model_of()
        model.fit(
            examples.data(16, 4),
            epochs=epochs,
            verbose=0,
            callbacks=[training.RunCheckpoint(folder)],
        )
        return model

    run(tmp_path / "a", 1)
    resumed, whole = run(tmp_path / "a", 3), run(tmp_path / "b", 3)
    examples.assert_same(resumed.get_weights(), whole.get_weights())
    for name, optimizer in whole.optimizers.items():
        found = [x.numpy() for x in resumed.optimizers[name].variables]
        examples.assert_same(found, [x.numpy() for x in optimizer.variables])


@pytest.mark.slow
def test_replicas_share_the_steps():
    found = []
    for strategy in (tf.distribute.get_strategy(), examples.strategy_of_two()):
        with strategy.scope():
            model = model_of({"actor": keras.optimizers.SGD(0.1),
                              "critic": keras.optimizers.SGD(0.1)})  # fmt: skip
        model.fit(examples.data(16, 4), verbose=0)
        found.append(model.get_weights())
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_mixed_precision():
    def network(n_outputs):
        return examples.network(3, n_outputs, dtype="mixed_float16")

    model = training.FitModel(
        {"actor": network(3), "critic": network(1)},
        {"actor": actor_loss, "critic": critic_loss},
        dtype="mixed_float16",
    )
    model.compile("adam", run_eagerly=True)
    history = model.fit(examples.data(16, 4), verbose=0).history
    scaled = keras.optimizers.LossScaleOptimizer
    assert {type(x) for x in model.optimizers.values()} == {scaled}
    assert np.isfinite(history["loss"]).all()


def test_priorities_of_one_of_the_losses():
    def q_loss(model, sample):
        q_values = model.network["q"](sample.data.observations)
        taken = losses.q_taken(q_values, sample.data.actions)
        return losses.td_loss(taken, sample.data.rewards)

    def other_loss(model, sample):
        return model.network["other"](sample.data.observations)[:, 0] ** 2

    pair = {"other": examples.network(3, 1), "q": examples.network()}
    target = examples.network()
    updater = layers.TargetUpdater({"q": pair["q"]}, {"q": target})
    model = training.FitModel(pair, {"other": other_loss, "q": q_loss}, updater)
    model.compile("adam", run_eagerly=True)
    drawn = replay.PrioritizedReplay(examples.filled_store(examples.q_model()))
    history = model.fit(drawn, batch_size=8, steps_per_epoch=3, verbose=0).history
    assert {"loss", "q_loss", "other_loss"} <= set(history)
    assert np.ptp(drawn.sample(100).probabilities) > 1e-6
    examples.assert_same(values(pair["q"]), values(target))


@pytest.mark.parametrize(
    "loss_fn", [{}, {"q": actor_loss}, {"actor": actor_loss, "b": critic_loss}]
)
def test_losses_have_the_names_of_networks(loss_fn):
    with pytest.raises(ValueError, match="`loss_fn` expected losses by names of netw"):
        training.FitModel(networks(), loss_fn)
    with pytest.raises(ValueError, match="of which a single one has none"):
        training.FitModel(examples.network(), {"actor": actor_loss})


def test_shared_weights_have_one_optimizer():
    one = examples.network()
    with pytest.raises(ValueError, match="each weight has one optimizer; got .*kernel"):
        training.FitModel({"a": one, "b": one}, {"a": actor_loss, "b": actor_loss})


@pytest.mark.parametrize(
    "optimizer",
    [
        {"actor": "sgd"},
        {"actor": "sgd", "critic": "sgd", "c": "sgd"},
        keras.optimizers.SGD,
        dict.fromkeys(["actor", "critic"], keras.optimizers.SGD()),
    ],
)
def test_every_loss_has_an_optimizer_of_its_own(optimizer):
    given = optimizer() if isinstance(optimizer, type) else optimizer
    with pytest.raises(TypeError, match=r"for each of \['actor', 'critic'\]; got"):
        model_of(given)


def test_names_do_not_collide():
    def told(model, batch):
        return critic_loss(model, batch)[0], {"loss": tf.constant(1.0)}

    model = model_of("sgd", {"actor": actor_loss, "critic": told})
    with pytest.raises(ValueError, match=r"got \['critic_loss'\]; rename them"):
        model.fit(examples.data(16, 4), verbose=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        keras.callbacks.ReduceLROnPlateau("loss"),
        training.FollowSchedule(0.5, "learning_rate"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_callbacks_that_set_one_optimizer(callback):
    model = model_of("sgd")
    with pytest.raises(TypeError, match="`FitModel.fit`: `callbacks` expected none th"):
        model.fit(examples.data(16, 4), callbacks=[callback], verbose=0)
    assert int(model.optimizer.iterations) == 0
    alone = model_of("sgd", {"actor": actor_loss})
    alone.fit(examples.data(16, 4), callbacks=[callback], verbose=0)
