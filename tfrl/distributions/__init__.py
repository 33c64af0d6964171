"""Probability distributions for policies, built on TensorFlow Probability.

Here are families of distributions, what turns a network's outputs into one over an
action space, and what is done with nests of them: drawing, scoring, entropies, and
specs that make them of tensors. The networks live in `tfrl.policies`, one-to-one maps
in `tfrl.bijectors`, other maps without randomness in `tfrl.ops`. Only what is a
distribution loads TensorFlow Probability, when it is first touched: heads need none.
"""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors
from tfrl.distributions.action_heads import (
    CategoricalHead,
    CompositeHead,
    NormalHead,
)
from tfrl.distributions.divergence import normal_divergence
from tfrl.distributions.epsilon_greedy import epsilon_greedy_logits
from tfrl.distributions.heads_of_spaces import action_head

if TYPE_CHECKING:
    from tfrl.distributions.affine import AffineTransformedDistribution
    from tfrl.distributions.beta import Beta, DiagMultivariateBeta
    from tfrl.distributions.cauchy import DiagMultivariateCauchy, StableCauchy
    from tfrl.distributions.clipped import Clipped
    from tfrl.distributions.entropy import (
        active_action_target_entropy,
        calc_default_max_entropy,
        calc_default_target_entropy,
        calc_default_target_entropy_quantized,
        calc_uniform_log_prob,
        compute_entropy,
        entropy_with_fallback,
        estimated_entropy,
    )
    from tfrl.distributions.inverse_transform import (
        T2ITS,
        CauchyITS,
        InverseTransformSampling,
        NormalITS,
        t2cdf,
    )
    from tfrl.distributions.masked import MaskedCategorical
    from tfrl.distributions.modes import get_base_dist, get_mode, get_rmode
    from tfrl.distributions.normal import DiagMultivariateNormal, Normal
    from tfrl.distributions.one_hot import (
        OneHotCategoricalGumbelSoftmax,
        OneHotCategoricalStraightThrough,
    )
    from tfrl.distributions.product import Product
    from tfrl.distributions.sampling import (
        compute_log_probability,
        epsilon_greedy_sample,
        rsample_action_distribution,
        sample_action_distribution,
    )
    from tfrl.distributions.spec import (
        DistributionSpec,
        distributions_to_params,
        extract_distribution_parameters,
        extract_spec,
        params_to_distributions,
        to_distribution_param_spec,
    )
    from tfrl.distributions.squashed import SquashedNormal
    from tfrl.distributions.truncated import (
        TruncatedCauchy,
        TruncatedDistribution,
        TruncatedNormal,
        TruncatedT2,
    )

__all__ = [
    "AffineTransformedDistribution",
    "Beta",
    "CategoricalHead",
    "CauchyITS",
    "Clipped",
    "CompositeHead",
    "DiagMultivariateBeta",
    "DiagMultivariateCauchy",
    "DiagMultivariateNormal",
    "DistributionSpec",
    "InverseTransformSampling",
    "MaskedCategorical",
    "Normal",
    "NormalHead",
    "NormalITS",
    "OneHotCategoricalGumbelSoftmax",
    "OneHotCategoricalStraightThrough",
    "Product",
    "SquashedNormal",
    "StableCauchy",
    "T2ITS",
    "TruncatedCauchy",
    "TruncatedDistribution",
    "TruncatedNormal",
    "TruncatedT2",
    "action_head",
    "active_action_target_entropy",
    "calc_default_max_entropy",
    "calc_default_target_entropy",
    "calc_default_target_entropy_quantized",
    "calc_uniform_log_prob",
    "compute_entropy",
    "compute_log_probability",
    "distributions_to_params",
    "entropy_with_fallback",
    "epsilon_greedy_logits",
    "epsilon_greedy_sample",
    "estimated_entropy",
    "extract_distribution_parameters",
    "extract_spec",
    "get_base_dist",
    "get_mode",
    "get_rmode",
    "normal_divergence",
    "params_to_distributions",
    "rsample_action_distribution",
    "sample_action_distribution",
    "t2cdf",
    "to_distribution_param_spec",
]
_LAZY = (
    "affine",
    "beta",
    "cauchy",
    "clipped",
    "entropy",
    "inverse_transform",
    "masked",
    "modes",
    "normal",
    "one_hot",
    "product",
    "sampling",
    "spec",
    "squashed",
    "truncated",
)
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
