"""What approximates: Keras layers, with weights that train or are learned otherwise.

Here are normalization by running moments and the end of a network in a distribution.
Normalization outside Keras, as `tf.Module`s, is in `tfrl.stats`; the distributions are
in `tfrl.distributions`, whole actor and critic networks in `tfrl.agents`, functions
without weights in `tfrl.ops`.
"""

from tfrl.layers.distribution import DistributionHead
from tfrl.layers.normalization import RunningNormalization

__all__ = ["DistributionHead", "RunningNormalization"]
