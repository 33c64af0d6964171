"""What a fresh environment must be able to do: `tools/check-install` runs it there.

The last line printed is the version of the one TensorFlow; whatever is wrong ends it.
"""

import pathlib
import tempfile
from importlib import metadata

import keras
import numpy as np
import tensorflow as tf

import tfrl


def owners() -> list[str]:
    """Returns the distributions that own TensorFlow's files."""
    return [
        owner.name
        for owner in metadata.distributions()
        if any(
            file.as_posix() == "tensorflow/__init__.py" for file in owner.files or ()
        )
    ]


def train_and_export(folder: pathlib.Path) -> None:
    envs = tfrl.environments.make_vec("CartPole-v1", n_envs=4)
    spaces = envs.single_observation_space, envs.single_action_space
    agent = tfrl.agents.PPO(minibatch_size=32, n_epochs=2).create(*spaces, seed=0)
    collector = tfrl.training.Collector(envs, n_steps=16, seed=0)
    policy, rng = tfrl.policies.HostPolicy(agent.policy), np.random.default_rng(0)
    for _ in range(2):
        trajectory = collector.collect(policy, rng)
        agent, info = agent.update(trajectory)
        policy.push(agent.policy)
    if not all(np.isfinite(value).all() for value in info.values()):
        raise SystemExit(f"PPO: {info}")
    tfrl.exporting.export_policy(agent, str(folder), *spaces)
    tfrl.exporting.verify(str(folder))


def fit_with_xla() -> None:
    def loss(model, sample):
        batch = sample.data
        taken = tfrl.losses.q_taken(model(batch.observations), batch.actions)
        after = tf.reduce_max(model.target_network(batch.next_observations), -1)
        return tfrl.losses.td_loss(taken, batch.rewards + batch.discounts * after)

    def network():
        return keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])

    envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
    store = tfrl.replay.EpisodeStore(
        tf.TensorSpec([4]), tf.TensorSpec([], tf.int64), 500, num_environments=2
    )
    replay = tfrl.replay.UniformReplay(store, tfrl.replay.Transitions(), seed=0)
    online = network()
    greedy = tfrl.policies.FunctionPolicy(
        lambda values, _: values.argmax(-1), network=online
    )
    collect = tfrl.training.Collect(envs, store, greedy, warm_up_steps=64)
    updater = tfrl.layers.TargetUpdater(online, network(), tau=0.1)
    model = tfrl.training.FitModel(online, loss, updater)
    # TensorFlow's wheel for TPUs has no XLA for the CPU.
    has_xla = owners() != ["tensorflow_tpu"]
    model.compile(keras.optimizers.Adam(1e-3), jit_compile=has_xla)
    options = {"batch_size": 16, "steps_per_epoch": 4, "verbose": 0}
    history = model.fit(replay, epochs=1, callbacks=[collect], **options)
    if not np.isfinite(history.history["loss"]).all():
        raise SystemExit(f"fit: {history.history}")


if len(owners()) != 1:
    raise SystemExit(f"expected one TensorFlow; found {owners()}")
for room in tfrl.__all__:
    getattr(tfrl, room)
with tempfile.TemporaryDirectory() as folder:
    train_and_export(pathlib.Path(folder, "policy"))
fit_with_xla()
print(".".join(tf.__version__.split(".")[:2]))
