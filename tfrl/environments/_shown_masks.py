"""Actions that the mask allows which an environment shows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrl._internal import allowed_actions, gym_checks


def allowed(
    env: Any, observation: Any, info: Any, action: Any, rng: np.random.Generator
) -> Any:
    """Returns an action, with choices drawn anew that are not allowed now.

    Args:
        env: an environment, wrapped or not.
        observation: its last one.
        info: that came with it.
        action: of its space.
        rng: draws.
    """
    mask, space = _shown(env, observation, info), env.action_space
    n_options = sum(gym_checks.option_counts(space))
    if not n_options or np.shape(mask) != (n_options,):
        return action
    batch = gym_checks.mapped(lambda x: np.asarray(x)[None], action)
    drawn = allowed_actions.redrawn(space, batch, np.asarray(mask)[None], rng)
    return gym_checks.mapped(lambda x: x[0], drawn)


def _shown(env: Any, observation: Any, info: Any) -> Any:
    """The mask, where agents are shown it or `ActionMasks` would look for it."""
    for told in (observation, info):
        if isinstance(told, Mapping) and gym_checks.MASK in told:
            return told[gym_checks.MASK]
    has_method = env.has_wrapper_attr("action_masks")
    return env.get_wrapper_attr("action_masks")() if has_method else None
