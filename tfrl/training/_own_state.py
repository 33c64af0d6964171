"""What is one process's own in a run: environments, episodes, draws."""

from typing import Any

import numpy as np

from tfrl.environments import snapshots
from tfrl.training.collecting import collection


def captured(rng: np.random.Generator, collector: collection.Collector) -> dict:
    """Returns all of it as plain values, for `restore`."""
    return {
        "rng": rng.bit_generator.state,
        "collector": collector.state(),
        "environments": snapshots.capture(collector.envs),
    }


def restore(
    state: dict[str, Any],
    rng: np.random.Generator,
    collector: collection.Collector,
    seed: int,
) -> str | None:
    """Goes back to where `captured` was called.

    Args:
        state: what it returned.
        rng: which then has its state.
        collector: likewise.
        seed: of new episodes, where the environments cannot be restored.

    Returns:
        What the user should know.
    """
    rng.bit_generator.state = state["rng"]
    snapshot = state["environments"]
    if snapshot is None:
        collector.reset(seed)
        notice = f"resumed with new episodes: {lacking(collector)}"
    else:
        snapshots.restore(collector.envs, snapshot)
        notice = None
    collector.set_state(state["collector"], same_episodes=notice is None)
    return notice


def forewarning(collector: collection.Collector) -> str | None:
    """Tells what resuming will bring, where not all can be captured."""
    reason = lacking(collector)
    return reason and f"a resumed run will begin new episodes: {reason}"


def lacking(collector: collection.Collector) -> str | None:
    """Tells what `captured` cannot capture, if there is anything."""
    reason = snapshots.uncapturable(collector.envs)
    return reason and f"the state of these environments cannot be captured ({reason})"
