"""A small agent of each kind and what it learns from: the rows of their battery."""

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf
from agent_examples import BOX, batch_of, trajectory_of

from tfrl.agents import _minibatches
from tfrl.agents.off_policy import (
    c51,
    crossq,
    ddpg,
    dqn,
    iqn,
    qr_dqn,
    r2d2,
    rainbow,
    sac,
    td3,
    tqc,
)
from tfrl.agents.offline import awac, bc, cql, iql, td3_bc
from tfrl.agents.on_policy import _on_policy, a2c, impala, policy_gradient, ppo, rnd
from tfrl.core import records
from tfrl.replay.sampling import transitions

S = gym.spaces
T, N = 6, 2
CHOICES = S.Discrete(3, start=5)
STEER = S.Box(-2.0, np.float32([2.0, 4.0]), (2,))
MIXED = S.Dict(press=S.Discrete(2), steer=STEER, turn=S.MultiDiscrete([2, 3]))
SMALL: dict[str, Any] = {"hidden_units": (8,)}
QUICK = {**SMALL, "learning_rate": 0.01, "tau": 0.2}
SOFT = {**QUICK, "critic_learning_rate": 0.01, "temperature_learning_rate": 0.02}
ENSEMBLE = {
    "n_critics": 4,
    "n_critics_in_target": 2,
    "actor_value": "mean",
    "policy_delay": 2,
    "dropout_rate": 0.2,
    "layer_norm": True,
}
ON_POLICY = {
    "ppo": ppo.PPO(
        minibatch_size=4,
        n_epochs=2,
        learning_rate=0.01,
        value_clip=0.2,
        entropy_coefficient=0.01,
        target_kl=5e-4,
        normalize_observations=True,
        normalize_rewards=True,
        **SMALL,
    ),
    "ppo_memory": ppo.PPO(
        minibatch_size=12, n_epochs=2, memory="gru", memory_units=2, **SMALL
    ),
    "policy_gradient": policy_gradient.PolicyGradient(**SMALL),
    "a2c": a2c.A2C(**SMALL),
    "impala": impala.IMPALA(**SMALL),
    "rnd": rnd.RND(
        a2c.A2C(**SMALL), learning_rate=0.01, n_epochs=2, n_minibatches=3, **SMALL
    ),
}
Q_LEARNING = {
    "dqn": dqn.DQN(epsilon=0.1, target_period=2, tau=0.5, **SMALL),
    "c51": c51.C51(epsilon=0.1, target_period=2, n_atoms=5, double=True, **SMALL),
    "qr_dqn": qr_dqn.QRDQN(epsilon=0.1, n_quantiles=5, dueling=True, **SMALL),
    "iqn": iqn.IQN(
        epsilon=0.1, hidden_units=(8, 6), n_fractions=3, n_target_fractions=4
    ),
    "rainbow": rainbow.Rainbow(n_atoms=5, **SMALL),
}
SEQUENCES = {
    "r2d2": r2d2.R2D2(
        epsilon=0.1, target_period=2, memory_units=2, n_step_returns=2, **SMALL
    ),
}
OFF_POLICY = {
    "td3": td3.TD3(**QUICK, exploration_noise=0.3),
    "ddpg": ddpg.DDPG(**QUICK),
    "sac": sac.SAC(**SOFT),
    "sac_choices": sac.SAC(**SOFT),
    "sac_mixed": sac.SAC(**SOFT),
    "sac_ensemble": sac.SAC(**SOFT, **ENSEMBLE),
    "tqc": tqc.TQC(**SOFT, n_critics=3, n_quantiles=5),
    "crossq": crossq.CrossQ(
        **{k: v for k, v in SOFT.items() if k != "tau"},
        **{"critic_units": (6,), "policy_delay": 2},
    ),
}
OFFLINE = {
    "td3_bc": td3_bc.TD3BC(**QUICK),
    "iql": iql.IQL(**QUICK, normalize_observations=True),
    "awac": awac.AWAC(**QUICK),
    "cql": cql.CQL(**SOFT, n_samples=2),
    "discrete_cql": cql.DiscreteCQL(epsilon=0.1, **SMALL, target_period=2),
    "bc": bc.BC(**SMALL, learning_rate=0.01),
}
FAMILIES = {
    "on_policy": ON_POLICY,
    "q_learning": Q_LEARNING,
    "sequences": SEQUENCES,
    "off_policy": OFF_POLICY,
    "offline": OFFLINE,
}
CONFIGS = ON_POLICY | Q_LEARNING | SEQUENCES | OFF_POLICY | OFFLINE
_CHOOSES = {*ON_POLICY, *Q_LEARNING, "r2d2", "sac_choices", "discrete_cql", "bc"}
BURN_IN = 2


def actions_of(kind):
    """The space that agents of a kind act in."""
    return CHOICES if kind in _CHOOSES else MIXED if kind == "sac_mixed" else STEER


def update_of(kind):
    """The compiled function by which they learn."""
    if kind in ON_POLICY:
        return _on_policy._compiled_update
    return bc._compiled_update if kind == "bc" else _minibatches._compiled_update


def made(kind, seed=0, space=BOX, n_envs=N, **settings):
    config = dataclasses.replace(CONFIGS[kind], **settings)
    counts = {"n_envs": n_envs, "n_steps": T} if kind in ON_POLICY else {}
    counts |= {"burn_in": BURN_IN} if kind in SEQUENCES else {}
    return config.create(space, actions_of(kind), seed=seed, **counts)


def experience_of(kind, seed=0, space=BOX, n_envs=N):
    """What agents of a kind learn from: T * N rows, in three minibatches or one."""
    acts = actions_of(kind)
    raw = S.Discrete(int(acts.n)) if acts is CHOICES else acts
    if kind in SEQUENCES:
        return sequences_of(space, raw, 3, T * n_envs // 3, seed)
    seen = trajectory_of(space, raw, T, n_envs, seed)
    if kind == "ppo_memory":
        seen = seen._replace(states=np.full((T, n_envs, 4), 0.5, np.float32))
    if kind == "impala":
        seen = seen._replace(log_probs=np.full((T, n_envs), -1.5, np.float32))
    if kind in ON_POLICY:
        valid = np.random.default_rng(seed).random((T, n_envs)) < 0.7
        return seen._replace(valid=valid)
    data = tf.nest.map_structure(lambda x: x.reshape(3, -1, *x.shape[2:]), seen)
    if kind == "bc":
        return {"observations": data.observations, "actions": data.actions + 5}
    discounts = np.where(data.terminated, 0.0, 0.97).astype(np.float32)
    rows = records.Transition(*data[:3], discounts, data.next_observations)
    weights = np.linspace(0.2, 1.0, discounts.size, dtype=np.float32)
    weights = weights.reshape(discounts.shape)
    return transitions.Sample(rows, np.zeros(weights.shape, int), weights, weights)


def sequences_of(space, raw, n_minibatches, n_rows, seed=0):
    """A sample of sequences `[K, B, T]`, as `Sequences` pads them at both ends.

    Some end truly, some by a time limit, some go on.
    """
    rng, count = np.random.default_rng(seed), n_minibatches * n_rows
    shown = batch_of(space, count, T + 1, seed=seed, center=0.0)
    acted = batch_of(raw, count, T, seed=seed, center=0.0)
    first = rng.integers(0, BURN_IN + 1, count)
    last = np.where(rng.random(count) < 0.5, rng.integers(BURN_IN, T, count), T - 1)
    ends = np.where(last < T - 1, rng.integers(1, 3, count), rng.integers(0, 3, count))
    times = np.arange(T)
    along = np.clip(times, first[:, None], last[:, None])

    def taken(leaf, later=0):
        found = leaf[np.arange(count)[:, None], along + later]
        return found.reshape(n_minibatches, n_rows, *found.shape[1:])

    rewards = rng.normal(size=(count, T)).astype(np.float32)
    flags = [
        np.where(times == last[:, None], ends[:, None] == kind, False)
        for kind in (1, 2)
    ]
    valid = along == times
    data = records.Trajectory(
        observations=tf.nest.map_structure(taken, shown),
        actions=tf.nest.map_structure(taken, acted),
        rewards=taken(rewards),
        terminated=taken(flags[0]),
        truncated=taken(flags[1]),
        next_observations=tf.nest.map_structure(lambda x: taken(x, 1), shown),
        valid=valid.reshape(n_minibatches, n_rows, T),
        states=rng.normal(size=(n_minibatches, n_rows, T, 4)).astype(np.float32),
    )
    weights = np.linspace(0.2, 1.0, count, dtype=np.float32).reshape(
        data.valid.shape[:2]
    )
    return transitions.Sample(data, np.zeros(weights.shape, int), weights, weights)
