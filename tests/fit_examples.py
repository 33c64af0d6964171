"""Small networks, losses and replays that the tests of `fit` share."""

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf
import toy_envs

from tfrl import agents, layers, losses, policies, replay, training


def strategy_of_two():
    # The default way of reducing leaves a thread pool to the garbage collector.
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )


def network(n_inputs=3, n_outputs=3, seed=0, **options):
    return keras.Sequential(
        [
            keras.Input([n_inputs]),
            keras.layers.Dense(
                8,
                "tanh",
                kernel_initializer=keras.initializers.GlorotUniform(seed),
                **options,
            ),
            keras.layers.Dense(
                n_outputs,
                kernel_initializer=keras.initializers.GlorotUniform(seed + 1),
                dtype="float32",
            ),
        ]
    )


@keras.saving.register_keras_serializable("tests")
def squares(model, batch):
    """A loss per element and a report of it, of dicts `x`, `y`."""
    errors = batch["y"] - model.network(batch["x"])[:, 0]
    return errors**2, {"errors": errors}


@keras.saving.register_keras_serializable("tests")
def q_loss(model, sample):
    data = sample.data
    q_values = losses.q_taken(model.network(data.observations), data.actions)
    targets = losses.q_learning_target(
        data.rewards, data.discounts, model.target_network(data.next_observations)
    )
    return losses.td_loss(q_values, targets)


SPACES = gym.spaces.Box(-np.inf, np.inf, (3,)), gym.spaces.Discrete(3)
DQN = agents.DQN(hidden_units=(8,), target_period=3, epsilon=0.5)


def spaces():
    envs = walks()
    return envs.single_observation_space, envs.single_action_space


def model_of(config=DQN, steps_per_execution=1, **arguments):
    model = training.AgentModel.create(config, *spaces(), **arguments)
    model.compile(steps_per_execution=steps_per_execution)
    return model


def untraced(options):
    """Options of `compile` for fits so small that a trace would cost more."""
    traced = options.get("steps_per_execution", 1) > 1 or "jit_compile" in options
    eager = not traced and not tf.distribute.has_strategy()
    return {"run_eagerly": True} | options if eager else options


def q_model(**options):
    q_network, target = network(), network(seed=7)
    updater = layers.TargetUpdater(q_network, target, tau=0.5, period=2)
    model = training.FitModel(q_network, q_loss, updater)
    model.compile(keras.optimizers.Adam(1e-2), **untraced(options))
    return model


def fit_model(loss_fn=squares, optimizer=None, reduction=None, **options):
    made = {} if reduction is None else {"reduction": reduction}
    model = training.FitModel(network(), loss_fn, **made)
    model.compile(optimizer or keras.optimizers.SGD(0.1), **untraced(options))
    return model


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=[count, 3]).astype(np.float32)
    return {"x": x, "y": x.sum(-1)}


def data(count, batch_size, seed=0):
    return tf.data.Dataset.from_tensor_slices(rows(count, seed)).batch(batch_size)


def walks(mode=toy_envs.MODES[0], n_envs=3):
    return toy_envs.vector(mode, n_envs)


def store(n_envs=3, capacity=300):
    return replay.EpisodeStore(
        tf.TensorSpec([3]), tf.TensorSpec([], tf.int64), capacity, n_envs
    )


def drawn(outputs, rng):
    """Actions drawn by the outputs as logits."""
    return (outputs + rng.gumbel(size=outputs.shape)).argmax(-1)


def greedy(outputs, rng):
    return outputs.argmax(-1)


def acting(model, function=drawn):
    """A policy that plays the network of a model, as it is then."""
    network = getattr(model, "network", model)
    return policies.FunctionPolicy(function, network=network)


def weights_of(model):
    return [variable.numpy() for variable in model.variables]


def assert_same(first, second):
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)


def filled_store(model):
    """60 steps of walks, as the model plays them."""
    found = store()
    collect = training.Collect(walks(), found, acting(model), warm_up_steps=60)
    collect.before_fit(model)
    return found


def sample_data(source):
    """A sample as a dataset of one element."""
    sample = replay.UniformReplay(source, seed=0).sample(8)
    return tf.data.Dataset.from_tensors(sample)


class BreakOffError(Exception):
    pass


def break_off_in(epoch, batch=1):
    """A callback that raises in the middle of an epoch."""
    current = []

    def end(batch_now, logs):
        if current and current[-1] == epoch and batch_now == batch:
            raise BreakOffError

    callback = keras.callbacks.Callback()
    callback.on_epoch_begin = lambda epoch, logs=None: current.append(epoch)
    callback.on_train_batch_end = lambda batch, logs=None: end(batch, logs)
    return callback
