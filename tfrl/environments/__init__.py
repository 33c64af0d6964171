"""Where actions go: Gymnasium environments, many at a time.

Here are vectors of environments and how they reset. The loop that steps them lives in
`tfrl.training`, specs of their spaces in `tfrl.core`.
"""

from tfrl.environments.vector import autoreset_mode, make_vec

__all__ = ["autoreset_mode", "make_vec"]
