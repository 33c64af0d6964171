"""Exploration: samplers of discrete actions, noise, quantized actions.

Here are choices among discrete actions by given probabilities, noise for continuous
ones, and continuous actions as indices of levels. Bonuses for what was seldom seen,
which learn, are `tfrl.agents.RandomNetworkDistillation`. Distributions, and what draws
from them, are in `tfrl.distributions`; schedules of the strength of exploration in
`tfrl.schedules`; agents that explore in `tfrl.agents`.
"""

from tfrl.exploration.noise import (
    OrnsteinUhlenbeckNoise,
    OUProcess,
    create_ou_process,
)
from tfrl.exploration.quantizer import ActionQuantizer
from tfrl.exploration.samplers import (
    CategoricalSeedSampler,
    EpsilonGreedySampler,
    MultinomialSampler,
    get_epsilon_greedy,
)

__all__ = [
    "ActionQuantizer",
    "CategoricalSeedSampler",
    "EpsilonGreedySampler",
    "MultinomialSampler",
    "OUProcess",
    "OrnsteinUhlenbeckNoise",
    "create_ou_process",
    "get_epsilon_greedy",
]
