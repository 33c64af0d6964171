"""TrainState on variables that are not trained, and on other kinds of models."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import assert_close, two_replicas

from tfrl.agents import gradient_transforms, train_state


class Twins(keras.layers.Layer):
    """Sublayers in a list and a dictionary, two of one name."""

    def __init__(self):
        super().__init__(name="twins")
        self.twins = [keras.layers.Dense(2, name="twin") for _ in range(2)]
        self.noise = {"drop": keras.layers.Dropout(0.5, name="drop")}

    def build(self, input_shape):
        for twin in self.twins:
            twin.build((None, 2))
        self.built = True

    def call(self, x, training=None):
        for twin in self.twins:
            x = twin(x)
        return self.noise["drop"](x, training=training)


def built(layer, shape):
    layer.build(shape)
    return layer


def test_statistics_are_averaged_over_replicas():
    norm = keras.layers.BatchNormalization(momentum=0.5, name="norm")
    norm.build((None, 1))
    tx = gradient_transforms.sgd(0.0)
    state = train_state.TrainState.create(norm, tx=tx)
    strategy = two_replicas()
    shards = strategy.experimental_distribute_values_from_function(
        lambda context: tf.fill([2, 1], 2.0 + 4.0 * context.replica_id_in_sync_group)
    )

    def replica(x):
        def loss_fn(params):
            y, extra = state(x, params=params, training=True, mutable=True)
            return tf.reduce_mean(y), {"extra_variables": extra}

        new, info = state.apply_loss_fn(loss_fn=loss_fn, pmap_axis="i", has_aux=True)
        assert info == {}
        return new.extra_variables

    values = strategy.run(replica, (shards,))
    for mean in strategy.experimental_local_results(values["norm/moving_mean"]):
        np.testing.assert_allclose(mean, [2.0])
    with pytest.raises(ValueError, match="`pmap_axis` expected None outside"):
        with strategy.scope():
            state.apply_loss_fn(
                loss_fn=lambda params: tf.reduce_sum(params["norm/beta"]), pmap_axis="i"
            )


def normalizer():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, use_bias=False, name="a"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(2, name="b"),
        ],
        name="net",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "jit_compile",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["graph", "XLA"],
)
def test_training_with_batch_norm_equals_keras(jit_compile):
    rng = np.random.default_rng(0)
    x = rng.normal(2.0, 3.0, size=(3, 8, 3)).astype(np.float32)
    y = rng.normal(size=(3, 8, 2)).astype(np.float32)
    model = normalizer()
    state = train_state.TrainState.create(model, tx=keras.optimizers.Adam(1e-2))

    @tf.function(jit_compile=jit_compile)
    def update(state, x, y):
        def loss_fn(params):
            outputs, extra = state(x, params=params, training=True, mutable=True)
            loss = tf.reduce_mean((outputs - y) ** 2)
            return loss, {"loss": loss, "extra_variables": extra}

        return state.apply_loss_fn(loss_fn=loss_fn, has_aux=True)

    before = [variable.numpy() for variable in model.variables]
    for i in range(3):
        state, info = update(state, tf.constant(x[i]), tf.constant(y[i]))
        assert set(info) == {"loss"}
    assert update.experimental_get_tracing_count() == 1
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, variable)
    model.compile(keras.optimizers.Adam(1e-2), loss="mse", jit_compile=False)
    for i in range(3):
        model.train_on_batch(x[i], y[i])
    values = {**state.params, **state.extra_variables}
    assert len(values) == len(model.variables) == 7
    for variable in model.variables:
        np.testing.assert_allclose(
            values[variable.path], variable, rtol=1e-4, atol=2e-5
        )
    np.testing.assert_allclose(state(x[0]), model(x[0]), rtol=1e-3, atol=1e-4)


def test_generators_of_seeds_are_counted_within_the_layer():
    for _ in range(2):
        layers = [keras.layers.Dropout(0.5) for _ in range(2)]
        model = keras.Sequential([keras.Input((2,)), *layers])
        names = [*train_state.TrainState.create(model).extra_variables]
        first, second = "seed_generator", "seed_generator_1"
        assert names == [f"{x}/seed_generator_state" for x in (first, second)]


def test_dropout_moves_its_seed_only_where_it_is_kept():
    model = keras.Sequential([keras.Input((50,)), keras.layers.Dropout(0.5, seed=1)])
    state = train_state.TrainState.create(model)
    x = tf.ones([4, 50])
    np.testing.assert_array_equal(state(x), x)
    np.testing.assert_array_equal(state(x, training=False), x)
    first, extra = state(x, training=True, mutable=True)
    again, _ = state(x, training=True, mutable=True)
    second, _ = state(x, training=True, mutable=True, extra_variables=extra)
    np.testing.assert_array_equal(first, again)
    assert np.any(first.numpy() != second.numpy())
    kept = state.replace(extra_variables=extra)
    np.testing.assert_array_equal(kept(x, training=True, mutable=True)[0], second)
    same, unchanged = state(x, mutable=True)
    np.testing.assert_array_equal(same, x)
    assert unchanged == state.extra_variables
    with pytest.raises(
        ValueError, match="`mutable` expected True, as the call changes"
    ):
        state(x, training=True)


def test_other_variables_are_used():
    model = normalizer()
    state = train_state.TrainState.create(model)
    x = np.ones((2, 3), np.float32)
    moved = {k: v + 1.0 for k, v in state.extra_variables.items()}
    other = state(x, extra_variables=moved)
    assert np.any(np.abs(other - state(x)) > 1e-3)
    np.testing.assert_allclose(
        other, state.replace(extra_variables=moved)(x), rtol=1e-6
    )
    zeros = {k: np.zeros(v.shape) for k, v in state.params.items()}
    np.testing.assert_array_equal(state(x, params=zeros), np.zeros((2, 2)))
    given = train_state.TrainState.create(model, params=zeros, extra_variables=moved)
    assert_close(given.extra_variables, moved)
    np.testing.assert_array_equal(given(x), np.zeros((2, 2)))


def test_a_function_of_parameters_is_a_model():
    def line(params, x, power=1.0):
        return (params["slope"] * x + params["offset"]) ** power

    params = {"slope": 2.0, "offset": np.float32(1.0)}
    tx = gradient_transforms.sgd(0.5)
    state = train_state.TrainState.create(line, params, tx)
    assert float(state(3.0)) == 7.0
    assert float(state(3.0, power=2.0)) == 49.0
    assert float(state(3.0, method=lambda params, x: params["slope"] * x)) == 6.0
    new = state.apply_loss_fn(loss_fn=lambda params: state(1.0, params=params))
    assert [float(new.params[key]) for key in ("slope", "offset")] == [1.5, 0.5]
    assert state(3.0, mutable=True)[1] == {}
    with pytest.raises(ValueError, match="`method` expected a function"):
        state(3.0, method="line")
    with pytest.raises(ValueError, match="`params` expected, and no `extra_variables`"):
        train_state.TrainState.create(line)


def test_the_present_parameters_are_constants_in_a_loss():
    state = train_state.TrainState.create(
        tf.multiply, params=tf.constant(3.0), tx=gradient_transforms.sgd(1.0)
    )
    new = state.apply_loss_fn(
        loss_fn=lambda params: state(2.0) * state(2.0, params=params)
    )
    assert float(new.params) == 3.0 - 6.0 * 2.0


def test_embeddings_get_dense_gradients():
    layer = keras.layers.Embedding(4, 1, name="e", embeddings_initializer="zeros")
    layer.build((None,))
    state = train_state.TrainState.create(layer, tx=gradient_transforms.adam(0.1))
    ids = tf.constant([2, 0, 2])
    new = state.apply_loss_fn(
        loss_fn=lambda params: tf.reduce_sum(state(ids, params=params))
    )
    np.testing.assert_allclose(
        new.params["e/embeddings"][:, 0], [-0.1, 0, -0.1, 0], atol=1e-6
    )


def test_mixed_precision_computes_in_half_and_keeps_float32():
    layer = keras.layers.Dense(2, dtype="mixed_bfloat16", name="d")
    layer.build((None, 3))
    state = train_state.TrainState.create(layer, tx=gradient_transforms.adam(0.1))
    x = np.ones((1, 3), np.float32)
    assert state(x).dtype == tf.bfloat16
    new = state.apply_loss_fn(
        loss_fn=lambda params: tf.reduce_sum(state(x, params=params))
    )
    assert {value.dtype for value in new.params.values()} == {tf.float32}
    assert np.all(new.params["d/bias"] < 0)


def test_a_restored_state_goes_on_to_the_bit(tmp_path):
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)

    def fresh(seed):
        keras.utils.set_random_seed(seed)
        layers = [
            keras.layers.Dense(3, name="d"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dropout(0.5, name="drop"),
        ]
        model = keras.Sequential([keras.Input((3,)), *layers], name="net")
        tx = gradient_transforms.adam(lambda n: 0.1 / (1.0 + tf.cast(n, tf.float32)))
        return train_state.TrainState.create(model, tx=tx)

    def step(state):
        def loss_fn(params):
            outputs, extra = state(x, params=params, training=True, mutable=True)
            return tf.reduce_mean((outputs - x) ** 2), {"extra_variables": extra}

        return state.apply_loss_fn(loss_fn=loss_fn, has_aux=True)[0]

    def variables(state):
        return [tf.Variable(leaf) for leaf in tf.nest.flatten(state)]

    state = step(step(fresh(0)))
    path = tf.train.Checkpoint(leaves=variables(state)).write(str(tmp_path / "state"))
    other = fresh(1)
    slots = variables(other)
    tf.train.Checkpoint(leaves=slots).read(path).assert_consumed()
    restored = tf.nest.pack_sequence_as(other, [tf.identity(slot) for slot in slots])
    assert int(restored.step) == 3
    assert_close(step(restored), step(state))


def test_names_are_paths_made_unique():
    layer = built(Twins(), (None, 2))
    state = train_state.TrainState.create(layer)
    names = ["bias", "kernel", "bias:1", "kernel:1"]
    assert sorted(state.params) == sorted(f"twins/twin/{name}" for name in names)
    assert len(state.extra_variables) == 1
    x = np.ones((1, 2), np.float32)
    np.testing.assert_allclose(state(x), layer(x), rtol=1e-6)
    zeros = {**state.params, "twins/twin/kernel:1": tf.zeros([2, 2])}
    expected = state.params["twins/twin/bias:1"][None]
    np.testing.assert_array_equal(state(x, params=zeros), expected)


def test_values_are_apart_from_the_variables():
    layer = built(keras.layers.Dense(1, name="d"), (None, 1))
    state = train_state.TrainState.create(layer)
    kernel = np.copy(state.params["d/kernel"])
    layer.kernel.assign(layer.kernel + 1.0)
    np.testing.assert_array_equal(state.params["d/kernel"], kernel)
    other = train_state.TrainState.create(built(keras.layers.Dense(1), (None, 1)))
    again = train_state.TrainState.create(layer)
    assert state.apply_fn == again.apply_fn != other.apply_fn
    assert hash(state.apply_fn) == hash(again.apply_fn)
    layer.trainable = False
    frozen = train_state.TrainState.create(layer)
    assert not frozen.params
    assert sorted(frozen.extra_variables) == ["d/bias", "d/kernel"]


class Late(keras.layers.Layer):
    """Says it is built, and makes its variables when called."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def build(self, input_shape):
        self.built = True

    def call(self, x):
        return self.dense(x)


def test_bad_values():
    create = train_state.TrainState.create
    layer = built(keras.layers.Dense(1, name="d"), (None, 1))
    with pytest.raises(ValueError, match=r"`params` .*missing are \['d/bias'\]"):
        create(layer, params={"d/kernel": np.ones((1, 1))})
    with pytest.raises(ValueError, match=r"`extra_variables` .*unknown are \['x'\]"):
        create(layer, extra_variables={"x": 1.0})
    state = create(layer)
    wrong = {**state.params, "d/kernel": tf.ones([1, 2])}
    with pytest.raises(ValueError, match=r"expected shape \(1, 1\) for 'd/kernel'"):
        state(tf.ones([1, 1]), params=wrong)
    late = create(built(Late(), (None, 1)))
    with pytest.raises(
        ValueError, match="expected the variables that it had in .*, 0; got 2"
    ):
        late(tf.ones([1, 1]))


def trees():
    return (
        {"body": {"w": tf.constant([1.0, 2.0])}, "pi": {"w": tf.constant([7.0])}},
        {"body": {"w": tf.constant([5.0, 6.0]), "b": tf.constant(1.0)}},
        {"body": {"b": tf.constant(4.0)}, "v": tf.constant(3.0)},
    )


@pytest.mark.parametrize(
    ("weights", "w", "b"),
    [(None, [3.0, 4.0], 2.5), ([3, 1, 1], [2.0, 3.0], 2.5), ([1, 1, 2], [3, 4], 3.0)],
    ids=["equal", "unequal", "last"],
)
def test_shared_leaves_get_the_mean_of_their_holders(weights, w, b):
    def sync():
        return train_state.sync_shared_params(*trees(), weights=weights)

    for call in (sync, tf.function(sync, jit_compile=True)):
        first, second, third = call()
        tf.nest.assert_same_structure((first, second, third), trees())
        np.testing.assert_allclose(first["body"]["w"], w)
        np.testing.assert_allclose(second["body"]["w"], w)
        np.testing.assert_allclose(second["body"]["b"], b)
        np.testing.assert_allclose(third["body"]["b"], b)
        np.testing.assert_array_equal(first["pi"]["w"], [7.0])
        np.testing.assert_array_equal(third["v"], 3.0)


def test_what_cannot_be_shared():
    sync = train_state.sync_shared_params
    for weights in ([1.0], [1.0, 0.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="`weights` expected 2 positive numbers"):
            sync({}, {}, weights=weights)
    for other in (tf.ones(3), tf.ones(2, tf.float64), {"w": tf.ones(2)}):
        with pytest.raises(ValueError, match="`params` expected tensors of one shape"):
            sync({"a": tf.ones(2)}, {"a": other})
