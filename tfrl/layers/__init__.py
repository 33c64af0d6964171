"""What approximates: Keras layers, with weights that train or are learned otherwise.

Here are normalization by running moments, the end of a network in a distribution, and
what keeps target networks behind those that train.
Normalization outside Keras, as `tf.Module`s, is in `tfrl.stats`; the distributions are
in `tfrl.distributions`, whole actor and critic networks in `tfrl.policies`, functions
without weights in `tfrl.ops`.
"""

from tfrl.layers.as_keras import (
    AsKeras,
    read_values,
    tensor_shapes_to_shape_dtypes,
    to_arrays,
    to_tensors,
)
from tfrl.layers.distribution import DistributionHead
from tfrl.layers.foreign import FunctionLayer, ModuleLayer
from tfrl.layers.jax_modules import from_flax, from_haiku, from_jax, from_nnx
from tfrl.layers.normalization import RunningNormalization
from tfrl.layers.target import Periodically, TargetUpdater

__all__ = [
    "AsKeras",
    "DistributionHead",
    "FunctionLayer",
    "ModuleLayer",
    "Periodically",
    "RunningNormalization",
    "TargetUpdater",
    "from_flax",
    "from_haiku",
    "from_jax",
    "from_nnx",
    "read_values",
    "tensor_shapes_to_shape_dtypes",
    "to_arrays",
    "to_tensors",
]
