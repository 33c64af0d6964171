"""What approximates: Keras layers, with weights that train or are learned otherwise.

Here is normalization by running moments. The same outside Keras, as `tf.Module`s, is in
`tfrl.stats`; whole actor and critic networks in `tfrl.agents`; functions without
weights in `tfrl.ops`.
"""

from tfrl.layers.normalization import RunningNormalization

__all__ = ["RunningNormalization"]
