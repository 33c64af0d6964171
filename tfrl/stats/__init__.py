"""Running summaries of what they are fed.

Here are moments that normalise observations and scale rewards. What turns a number
into another number without remembering anything lives in `tfrl.ops`.
"""

from tfrl.stats.moments import ReturnScale, RunningMoments

__all__ = ["ReturnScale", "RunningMoments"]
