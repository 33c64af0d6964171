"""What learns: train states, gradient transforms, networks and algorithms.

One algorithm per file, its hyper-parameters a dataclass that makes the agent. Losses
live in `tfrl.losses`, targets and advantages in `tfrl.ops`, the loop around an agent
in `tfrl.training`.
"""

from tfrl.agents.actor_critic import (
    ActorCriticPolicy,
    Experience,
    estimate_advantages,
)
from tfrl.agents.agent import Agent, AgentConfig
from tfrl.agents.bc import BC, BCAgent
from tfrl.agents.feedforward import MLP, conv_encoder
from tfrl.agents.gradient_transforms import (
    GradientTransform,
    adam,
    adamw,
    chain,
    clip_by_global_norm,
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
from tfrl.agents.networks import ActorCritic, SpaceEncoder
from tfrl.agents.policy_gradient import PolicyGradient, PolicyGradientAgent
from tfrl.agents.ppo import PPO, PPOAgent
from tfrl.agents.shared_params import sync_shared_params
from tfrl.agents.train_state import TrainState, target_update

__all__ = [
    "ActorCritic",
    "ActorCriticPolicy",
    "Agent",
    "AgentConfig",
    "BC",
    "BCAgent",
    "Experience",
    "GradientTransform",
    "MLP",
    "PPO",
    "PPOAgent",
    "PolicyGradient",
    "PolicyGradientAgent",
    "SpaceEncoder",
    "TrainState",
    "adam",
    "adamw",
    "chain",
    "clip_by_global_norm",
    "conv_encoder",
    "estimate_advantages",
    "from_keras",
    "is_policy",
    "is_qfunction",
    "is_reward_function",
    "is_stochastic",
    "is_transition_model",
    "is_vfunction",
    "rmsprop",
    "scale_by_schedule",
    "sgd",
    "sync_shared_params",
    "target_update",
    "with_learning_rate",
]
