"""Probability distributions of TensorFlow Probability, made fit for acting.

Here is what turns a network's outputs into a distribution over an action space. The
networks live in `tfrl.agents`, maps without randomness in `tfrl.ops`.
"""

from tfrl.distributions.action_heads import (
    CategoricalHead,
    NormalHead,
    action_head,
)

__all__ = ["CategoricalHead", "NormalHead", "action_head"]
