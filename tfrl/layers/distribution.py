"""The output head of a network: parameters of a distribution of actions."""

from typing import Any, Self

import gymnasium as gym
import keras
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import spaces, specs
from tfrl.distributions import heads_of_spaces
from tfrl.layers import _configs

# What to do with floats that have bounds, by the name of the family.
_SQUASH = {None: None, "normal": False, "squashed_normal": True}


@keras.saving.register_keras_serializable("tfrl")
class DistributionHead(keras.layers.Layer):
    """Ends a network in the parameters of a distribution of actions.

        parameters = inputs W + b

    Called, it gives one tensor of free numbers, like any layer: models with it fit,
    predict, save and export. `distribution(parameters)` makes the distribution of
    actions, as the space has them, where it is needed: in a loss, in a policy, after a
    replay buffer. Keras hands no distributions from layer to layer.

    The parameters are those of `action_head`: logits of choices, means of floats, and
    at the end the numbers r of all their scales,

        scale = min_scale + (init_scale - min_scale) * softplus(r + ln(e - 1))

    Floats with finite bounds get a `SquashedNormal`, those without a normal, `Dict` and
    `Tuple` spaces a `Product`.

    The parameters are float32 whatever the dtype policy, or float64 under a policy of
    float64.

    Args:
        action_spec: a Gymnasium space or nest of specs, as of `action_head`.
        family: of float actions: "squashed_normal", "normal" (not bounded by the
            distribution) or None for what the bounds ask for.
        state_dependent_scale: whether scales come from the inputs; if not, they are
            weights of their own.
        init_scale: the scale where its parameter is 0.
        min_scale: the least scale.
        kernel_initializer: of W, `[features, n]`.
        bias_initializer: of b, and of the scales that are weights.
        **kwargs: as of `keras.layers.Layer`.

    Attributes:
        action_spec: nest of specs of the actions.
        action_head: the head that the parameters are of.

    Raises:
        ValueError: if `family` is another, or as `action_head`.
        TypeError: as `action_head`.

    Example:
        >>> head = DistributionHead(gym.spaces.Box(-2.0, 2.0, (3,)), name="policy")
        >>> inputs = keras.Input([8])
        >>> model = keras.Model(inputs, head(keras.layers.Dense(16)(inputs)))
        >>> def negative_log_likelihood(actions, parameters):
        ...     return -head.distribution(parameters).log_prob(actions)
        >>> model.compile("adam", loss=negative_log_likelihood)
        >>> parameters = model(np.zeros([5, 8], np.float32))
        >>> parameters.shape, head.distribution(parameters).sample(seed=0).shape
        (TensorShape([5, 6]), TensorShape([5, 3]))
    """

    def __init__(
        self,
        action_spec: Any,
        family: str | None = None,
        state_dependent_scale: bool = True,
        init_scale: float = 1.0,
        min_scale: float = 1e-4,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        # A half precision network shall not round what comes from and goes to float32.
        super().__init__(autocast=False, **kwargs)
        checks.check_one_of("DistributionHead", "family", family, _SQUASH)
        if isinstance(action_spec, gym.Space):
            action_spec = spaces.spec_from_space(action_spec)
        # Of dicts and lists that it can see, Keras makes others of its own.
        self._spec = lambda: action_spec
        leaves = tf.nest.flatten(action_spec)
        floats = any(getattr(x, "dtype", tf.int32).is_floating for x in leaves)
        self.action_head = heads_of_spaces.action_head(
            action_spec,
            squash=_SQUASH[family] if floats else None,
            init_scale=init_scale,
            min_scale=min_scale,
        )
        self.family = family
        self.state_dependent_scale = state_dependent_scale
        self.init_scale = init_scale
        self.min_scale = min_scale
        n_scales = self.action_head.n_log_stds
        self._n_apart = 0 if state_dependent_scale else n_scales
        self._dense = keras.layers.Dense(
            self.action_head.n_outputs - self._n_apart,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            dtype="float64" if self.variable_dtype == "float64" else "float32",
            name="outputs",
        )
        self.supports_masking = True

    @property
    def action_spec(self) -> Any:
        """Nest of specs of the actions."""
        return self._spec()

    def build(self, input_shape: Any) -> None:
        """Creates the weights for inputs `[..., features]`."""
        self._dense.build(input_shape)
        self.input_spec = self._dense.input_spec  # symbolic inputs too are checked
        if self._n_apart:
            self.raw_scale = self.add_weight(
                shape=[self._n_apart],
                initializer=self._dense.bias_initializer,
                dtype=self._dense.dtype,
                autocast=False,
                name="raw_scale",
            )

    def call(self, inputs: Any) -> tf.Tensor:
        """Returns free numbers `[..., n_outputs]` for inputs `[..., features]`."""
        outputs = self._dense(inputs)
        if not self._n_apart:
            return outputs
        shape = tf.concat([tf.shape(outputs)[:-1], [self._n_apart]], axis=0)
        return tf.concat([outputs, tf.broadcast_to(self.raw_scale, shape)], axis=-1)

    def distribution(self, parameters: Any) -> Any:
        """Returns the distribution that parameters, as `call` gives them, name."""
        found = self.action_head.env_distribution(parameters)
        if not tf.nest.is_nested(self.action_spec):
            return found
        parts = tf.nest.flatten(found.distributions)
        return type(found)(tf.nest.pack_sequence_as(self.action_spec, parts))

    def compute_output_shape(self, input_shape: Any) -> Any:
        """`[..., n_outputs]` of the head."""
        return (*input_shape[:-1], self.action_head.n_outputs)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Shape and dtype of the parameters."""
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, self._dense.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Everything `from_config` needs."""
        serialize = keras.initializers.serialize
        return {
            **super().get_config(),
            "action_spec": _configs.encoded(self.action_spec, _encoded),
            "family": self.family,
            "state_dependent_scale": self.state_dependent_scale,
            "init_scale": self.init_scale,
            "min_scale": self.min_scale,
            "kernel_initializer": serialize(self._dense.kernel_initializer),
            "bias_initializer": serialize(self._dense.bias_initializer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the layer that `get_config` described."""
        action_spec = _configs.decoded(config["action_spec"], _decoded)
        return cls(**{**config, "action_spec": action_spec})


def _encoded(spec: Any) -> dict[str, Any]:
    found = {"shape": spec.shape.as_list(), "dtype": spec.dtype.name}
    if isinstance(spec, specs.BoundedTensorSpec):
        found |= {"minimum": spec.minimum.tolist(), "maximum": spec.maximum.tolist()}
    return {"spec": found}


def _decoded(content: dict[str, Any]) -> tf.TensorSpec:
    bounded = "minimum" in content
    return (specs.BoundedTensorSpec if bounded else tf.TensorSpec)(**content)
