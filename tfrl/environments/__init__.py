"""Where actions go: Gymnasium environments, many at a time.

Here are vectors of environments, how they reset, and snapshots of their inner state.
The loop that steps them lives in `tfrl.training`, specs of their spaces in `tfrl.core`.
"""

from tfrl.environments.snapshots import capture, restore, uncapturable
from tfrl.environments.vector import autoreset_mode, make_vec

__all__ = ["autoreset_mode", "capture", "make_vec", "restore", "uncapturable"]
