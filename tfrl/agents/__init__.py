"""What learns: train states, gradient transforms and algorithms.

One algorithm per file, its hyper-parameters a dataclass that makes the agent. Losses
live in `tfrl.losses`, targets and advantages in `tfrl.ops`, networks and how they act
in `tfrl.policies`, the loop around an agent in `tfrl.training`.
"""

from tfrl.agents.advantages import estimate_advantages
from tfrl.agents.agent import Agent, AgentConfig
from tfrl.agents.gradient_transforms import (
    GradientTransform,
    adagrad,
    adam,
    adamw,
    chain,
    clip_by_global_norm,
    lamb,
    lion,
    nadam,
    rmsprop,
    scale_by_schedule,
    sgd,
    with_learning_rate,
)
from tfrl.agents.keras_optimizers import from_keras
from tfrl.agents.kinds import (
    is_policy,
    is_qfunction,
    is_reward_function,
    is_stochastic,
    is_transition_model,
    is_vfunction,
)
from tfrl.agents.multi_agent.independent import (
    Independent,
    IndependentAgent,
    IndependentPolicy,
)
from tfrl.agents.multi_agent.league_policy import LeaguePolicy
from tfrl.agents.multi_agent.self_play import SelfPlay, SelfPlayAgent
from tfrl.agents.off_policy.c51 import C51
from tfrl.agents.off_policy.crossq import CrossQ, CrossQAgent
from tfrl.agents.off_policy.ddpg import DDPG
from tfrl.agents.off_policy.dqn import DQN, DQNAgent
from tfrl.agents.off_policy.iqn import IQN
from tfrl.agents.off_policy.qr_dqn import QRDQN
from tfrl.agents.off_policy.r2d2 import R2D2, R2D2Agent
from tfrl.agents.off_policy.rainbow import Rainbow
from tfrl.agents.off_policy.sac import SAC, SACAgent
from tfrl.agents.off_policy.td3 import TD3, TD3Agent
from tfrl.agents.off_policy.tqc import TQC, TQCAgent
from tfrl.agents.offline.awac import AWAC, AWACAgent
from tfrl.agents.offline.bc import BC, BCAgent
from tfrl.agents.offline.cql import CQL, CQLAgent, DiscreteCQL
from tfrl.agents.offline.iql import IQL, IQLAgent
from tfrl.agents.offline.td3_bc import TD3BC, TD3BCAgent
from tfrl.agents.on_policy.a2c import A2C, A2CAgent
from tfrl.agents.on_policy.impala import IMPALA, IMPALAAgent
from tfrl.agents.on_policy.policy_gradient import PolicyGradient, PolicyGradientAgent
from tfrl.agents.on_policy.ppo import PPO, PPOAgent
from tfrl.agents.on_policy.rnd import RND, RNDAgent
from tfrl.agents.random_distillation import RandomNetworkDistillation
from tfrl.agents.replicated import (
    ReplicatedState,
    compiled_update,
    n_replicas,
    run_update,
    take_steps,
)
from tfrl.agents.train_state import TrainState, sync_shared_params, target_update
from tfrl.agents.transform_wrappers import accumulated, masked, partitioned

__all__ = [
    "A2C",
    "A2CAgent",
    "AWAC",
    "AWACAgent",
    "Agent",
    "AgentConfig",
    "BC",
    "BCAgent",
    "C51",
    "CQL",
    "CQLAgent",
    "CrossQ",
    "CrossQAgent",
    "DDPG",
    "DQN",
    "DQNAgent",
    "DiscreteCQL",
    "GradientTransform",
    "IMPALA",
    "IMPALAAgent",
    "IQL",
    "IQLAgent",
    "IQN",
    "Independent",
    "IndependentAgent",
    "IndependentPolicy",
    "LeaguePolicy",
    "PPO",
    "PPOAgent",
    "PolicyGradient",
    "PolicyGradientAgent",
    "QRDQN",
    "R2D2",
    "R2D2Agent",
    "RND",
    "RNDAgent",
    "Rainbow",
    "RandomNetworkDistillation",
    "ReplicatedState",
    "SAC",
    "SACAgent",
    "SelfPlay",
    "SelfPlayAgent",
    "TD3",
    "TD3Agent",
    "TD3BC",
    "TD3BCAgent",
    "TQC",
    "TQCAgent",
    "TrainState",
    "accumulated",
    "adagrad",
    "adam",
    "adamw",
    "chain",
    "clip_by_global_norm",
    "compiled_update",
    "estimate_advantages",
    "from_keras",
    "is_policy",
    "is_qfunction",
    "is_reward_function",
    "is_stochastic",
    "is_transition_model",
    "is_vfunction",
    "lamb",
    "lion",
    "masked",
    "n_replicas",
    "nadam",
    "partitioned",
    "rmsprop",
    "run_update",
    "scale_by_schedule",
    "sgd",
    "sync_shared_params",
    "take_steps",
    "target_update",
    "with_learning_rate",
]
