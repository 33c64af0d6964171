"""How an agent acts: networks with an action head, from observations to actions.

Here are the protocol that everything that acts follows, policies of several kinds,
their default networks, and the NumPy copy with which small ones play. Action heads are
in `tfrl.distributions`, training of policies in `tfrl.agents`, exploration noise in
`tfrl.exploration`.
"""

from tfrl.policies.action_value import ActionValuePolicy
from tfrl.policies.actor import Actor, ActorPolicy, StateNoiseActorPolicy
from tfrl.policies.actor_critic import ActorCriticPolicy, StateNoisePolicy
from tfrl.policies.critics import Critics, action_features
from tfrl.policies.deterministic import DeterministicActor, DeterministicPolicy
from tfrl.policies.feedforward import MLP, NoisyDense, conv_encoder
from tfrl.policies.host_policy import HostPolicy, numpy_copy
from tfrl.policies.network_policy import NetworkPolicy
from tfrl.policies.networks import (
    ActionValues,
    ActorCritic,
    SpaceEncoder,
)
from tfrl.policies.policy import Acted, FunctionPolicy, Policy
from tfrl.policies.recurrent import (
    RecurrentNetwork,
    RecurrentPolicy,
    RecurrentValuePolicy,
)

__all__ = [
    "Acted",
    "ActionValuePolicy",
    "ActionValues",
    "Actor",
    "ActorCritic",
    "ActorCriticPolicy",
    "ActorPolicy",
    "Critics",
    "DeterministicActor",
    "DeterministicPolicy",
    "FunctionPolicy",
    "HostPolicy",
    "MLP",
    "NetworkPolicy",
    "NoisyDense",
    "Policy",
    "RecurrentNetwork",
    "RecurrentPolicy",
    "RecurrentValuePolicy",
    "SpaceEncoder",
    "StateNoiseActorPolicy",
    "StateNoisePolicy",
    "action_features",
    "conv_encoder",
    "numpy_copy",
]
