"""What gin files may name of tfrl, beside the call of the command itself."""

from collections.abc import Callable
from typing import Any

import keras
from gymnasium import wrappers as gym_wrappers

from tfrl.agents import gradient_transforms
from tfrl.agents.multi_agent import independent, self_play
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
from tfrl.agents.on_policy import a2c, impala, policy_gradient, ppo, rnd
from tfrl.datasets import recorded
from tfrl.environments import atari, vector, wrappers
from tfrl.environments.compiled import vector_env
from tfrl.environments.compiled import wrappers as compiled_wrappers
from tfrl.exploration import noise, quantizer, samplers
from tfrl.schedules import annealing, joined, schedulers
from tfrl.training import cadence, experience, loggers, trainer
from tfrl.training.collecting import actor_collection
from tfrl.training.fitting import _fit_trainer

CONFIGURABLES: dict[str, Callable[..., Any]] = {
    "A2C": a2c.A2C,
    "AWAC": awac.AWAC,
    "ActionQuantizer": quantizer.ActionQuantizer,
    "ActorPool": actor_collection.ActorPool,
    "AtariPreprocessing": gym_wrappers.AtariPreprocessing,
    "AutoReset": compiled_wrappers.AutoReset,
    "BC": bc.BC,
    "C51": c51.C51,
    "CQL": cql.CQL,
    "CategoricalSeedSampler": samplers.CategoricalSeedSampler,
    "ConstantScheduler": schedulers.ConstantScheduler,
    "CosineScheduler": annealing.CosineScheduler,
    "CrossQ": crossq.CrossQ,
    "CyclicalScheduler": schedulers.CyclicalScheduler,
    "DDPG": ddpg.DDPG,
    "DQN": dqn.DQN,
    "DiscreteCQL": cql.DiscreteCQL,
    "EarlyStopping": keras.callbacks.EarlyStopping,
    "EpisodeStatistics": compiled_wrappers.EpisodeStatistics,
    "EpsilonGreedySampler": samplers.EpsilonGreedySampler,
    "ExponentialScheduler": schedulers.ExponentialScheduler,
    "FitTrainer": _fit_trainer.FitTrainer,
    "FrameStack": compiled_wrappers.FrameStack,
    "FrameStackObservation": gym_wrappers.FrameStackObservation,
    "FromDataset": experience.FromDataset,
    "IMPALA": impala.IMPALA,
    "IQL": iql.IQL,
    "IQN": iqn.IQN,
    "Independent": independent.Independent,
    "Intervals": cadence.Intervals,
    "JoinedScheduler": joined.JoinedScheduler,
    "LinearScheduler": schedulers.LinearScheduler,
    "MinariDataset": recorded.MinariDataset,
    "MlflowLogger": loggers.MlflowLogger,
    "MultinomialSampler": samplers.MultinomialSampler,
    "NormalizeObservations": compiled_wrappers.NormalizeObservations,
    "NormalizeRewards": compiled_wrappers.NormalizeRewards,
    "NpzDataset": recorded.NpzDataset,
    "OUProcess": noise.OUProcess,
    "OneCycleScheduler": annealing.OneCycleScheduler,
    "OrnsteinUhlenbeckNoise": noise.OrnsteinUhlenbeckNoise,
    "PPO": ppo.PPO,
    "PartialObservation": wrappers.PartialObservation,
    "PolicyGradient": policy_gradient.PolicyGradient,
    "PolynomialScheduler": annealing.PolynomialScheduler,
    "QRDQN": qr_dqn.QRDQN,
    "R2D2": r2d2.R2D2,
    "RND": rnd.RND,
    "Rainbow": rainbow.Rainbow,
    "Replayed": experience.Replayed,
    "SAC": sac.SAC,
    "SelfPlay": self_play.SelfPlay,
    "StepScheduler": schedulers.StepScheduler,
    "TD3": td3.TD3,
    "TD3BC": td3_bc.TD3BC,
    "TQC": tqc.TQC,
    "Trainer": trainer.Trainer,
    "Trajectories": experience.Trajectories,
    "WandbLogger": loggers.WandbLogger,
    "WarmUpScheduler": joined.WarmUpScheduler,
    "adagrad": gradient_transforms.adagrad,
    "adam": gradient_transforms.adam,
    "adamw": gradient_transforms.adamw,
    "lamb": gradient_transforms.lamb,
    "lion": gradient_transforms.lion,
    "make_atari": atari.make_atari,
    "make_compiled": vector_env.make_compiled,
    "make_vec": vector.make_vec,
    "nadam": gradient_transforms.nadam,
    "rmsprop": gradient_transforms.rmsprop,
    "sgd": gradient_transforms.sgd,
}
