"""Many runs: seeds side by side, comparisons, tuning, the zoo of configurations.

Each is a command too: `tfrl train --seeds`, `tfrl compare`, `tfrl tune`, `tfrl zoo`.
One run is in `tfrl.training`; pictures and statistics of numbers are in
`tfrl.summaries`.
"""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors

if TYPE_CHECKING:
    from tfrl.experiments.comparison import Comparison, compare
    from tfrl.experiments.measuring import curve_of, measured_header
    from tfrl.experiments.seeds import train_seeds
    from tfrl.experiments.tuning import Tuning, tune
    from tfrl.experiments.zoo import list_zoo, read_entry, zoo_folder

__all__ = [
    "Comparison",
    "Tuning",
    "compare",
    "curve_of",
    "list_zoo",
    "measured_header",
    "read_entry",
    "train_seeds",
    "tune",
    "zoo_folder",
]
_LAZY = ("comparison", "measuring", "seeds", "tuning", "zoo")
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
