"""A categorical distribution some of whose options are masked."""

import operator
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl._internal import checks, draws, precision
from tfrl.distributions import _families, _masks


class MaskedCategorical(tfp.distributions.Categorical):
    """A categorical distribution over the options that a mask allows.

        p(k) = mask_k * exp(logits_k) / sum_j mask_j * exp(logits_j)

    Options that are not allowed have the probability 0 exactly and log-probability
    -inf; they are never drawn, never the mode, count nothing in the entropy, and their
    logits, whatever they are, get no gradient. It is a `tfd.Categorical`, with the
    divergences registered for it; `logits_parameter()` gives -inf for what is masked.

    A row of the mask that allows nothing is an error where its numbers are known; at
    run time of a graph it makes a uniform distribution over all options, without
    gradient.

    Args:
        logits: floating `[..., n]`, finite where allowed; a variable is read here.
        mask: what is allowed, bool or integers (not 0), broadcast against `logits`.
        dtype: of the choices.
        validate_args: as of `tfd.Categorical`.
        allow_nan_stats: as of `tfd.Categorical`.
        name: prefix of the operations' names.

    Raises:
        ValueError: if a known row of `mask` allows nothing, or its shape does not fit.
        TypeError: if `mask` is neither bool nor of integers.

    Example:
        >>> policy = MaskedCategorical([2.0, 9.0, 2.0], mask=[True, False, True])
        >>> policy.probs_parameter().numpy()
        array([0.5, 0. , 0.5], dtype=float32)
        >>> int(policy.mode()), float(policy.log_prob(1))
        (0, -inf)
        >>> float(policy.entropy()) == float(np.log(np.float32(2.0)))
        True
    """

    def __init__(
        self,
        logits: Any,
        mask: Any,
        dtype: Any = tf.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "MaskedCategorical",
    ) -> None:
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            self._mask = parameters["mask"] = _masks.as_mask(mask)
            self._given = checks.as_tensor("MaskedCategorical", "logits", logits)
            super().__init__(
                logits=_masks.masked_logits(self._given, self._mask),
                dtype=dtype,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                name=name,
            )
        self._parameters = parameters

    _parameter_properties = _families.annotated(
        lambda dtype: dict.fromkeys(  # noqa: ARG005
            ("logits", "mask"), tfp.util.ParameterProperties(event_ndims=1)
        )
    )

    logits = property(
        operator.attrgetter("_given"),
        doc="The logits as given; `logits_parameter()` are those after masking.",
    )
    mask = property(operator.attrgetter("_mask"), doc="What is allowed, bool.")

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        # TFP would draw others with an int seed each time, and others under XLA.
        logits = precision.widened(self.logits_parameter())
        shape = tf.shape(logits)
        shares = tf.cumsum(tf.nn.softmax(logits), axis=-1)
        shares = tf.reshape(shares, [-1, shape[-1]])
        chance = draws.uniform([tf.shape(shares)[0], n], seed, logits.dtype)
        found = tf.searchsorted(shares, chance * shares[:, -1:], side="right")
        found = tf.reshape(tf.transpose(found), tf.concat([[n], shape[:-1]], axis=0))
        return tf.cast(found, self.dtype)
