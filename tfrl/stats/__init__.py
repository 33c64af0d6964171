"""Running summaries of what they are fed.

Here are averagers, normalizers, and the moments that agents carry along. What turns a
number into another number without remembering anything lives in `tfrl.ops`, with the
formulas behind this room; the Keras form of a normalizer in `tfrl.layers`.
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
from tfrl.stats.host_normalizer import HostNormalizer
from tfrl.stats.moments import ReturnScale, RunningMoments
from tfrl.stats.normalizers import (
    AdaptiveNormalizer,
    EMNormalizer,
    Normalizer,
    WindowNormalizer,
)
from tfrl.stats.scalar_normalizers import (
    ScalarAdaptiveNormalizer,
    ScalarEMNormalizer,
    ScalarWindowNormalizer,
)

__all__ = [
    "AdaptiveAverager",
    "AdaptiveNormalizer",
    "EMAverager",
    "EMNormalizer",
    "HostNormalizer",
    "Normalizer",
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
