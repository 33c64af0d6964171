"""Running statistics: averages, means and variances of streams of batches.

Here are averagers, normalizers, the moments that agents carry along, and the scale of
targets of any size. What turns a number into another number without remembering
anything lives in `tfrl.ops`, the Keras form of a normalizer in `tfrl.layers`.
"""

from tfrl.stats.averagers import (
    AdaptiveAverager,
    EMAverager,
    ScalarAdaptiveAverager,
    ScalarEMAverager,
    ScalarWindowAverager,
    WindowAverager,
    average_outer_dims,
)
from tfrl.stats.moments import ReturnScale, RunningMoments
from tfrl.stats.normalizers import (
    AdaptiveNormalizer,
    EMNormalizer,
    Normalizer,
    ScalarAdaptiveNormalizer,
    ScalarEMNormalizer,
    ScalarWindowNormalizer,
    WindowNormalizer,
)
from tfrl.stats.pop_art import PopArt

__all__ = [
    "AdaptiveAverager",
    "AdaptiveNormalizer",
    "EMAverager",
    "EMNormalizer",
    "Normalizer",
    "PopArt",
    "ReturnScale",
    "RunningMoments",
    "ScalarAdaptiveAverager",
    "ScalarAdaptiveNormalizer",
    "ScalarEMAverager",
    "ScalarEMNormalizer",
    "ScalarWindowAverager",
    "ScalarWindowNormalizer",
    "WindowAverager",
    "WindowNormalizer",
    "average_outer_dims",
]
