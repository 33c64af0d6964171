"""Returns as scores between those of a random and of an expert policy."""

import re
from typing import Any

import numpy as np

from tfrl._internal import arguments

# Mean returns of a random and an expert policy. Of D4RL: `REF_MIN_SCORE` and
# `REF_MAX_SCORE` of its `d4rl/infos.py`, of MuJoCo versions before v4.
_REFERENCES = {
    "ant": (-325.6, 3879.7),
    "antmaze": (0.0, 1.0),
    "door": (-56.512833, 2880.5693087298737),
    "halfcheetah": (-280.178953, 12135.0),
    "hammer": (-274.856578, 12794.134825156867),
    "hopper": (-20.272305, 3234.3),
    "kitchen": (0.0, 4.0),
    "pen": (96.262799, 3076.8331017826877),
    "relocate": (-6.425911, 4233.877797728884),
    "walker2d": (1.629008, 4592.3),
}
# Words that name data sets of D4RL and Minari.
_SETS = (
    "random|simple|medium|expert|replay|full|human|cloned|longhorizon|complete|partial|"
    "mixed|eval|umaze|large|play|diverse"
)
_NAME = re.compile(
    rf"(?:(?:mujoco|d4rl)/)?({'|'.join(_REFERENCES)})"
    rf"(?:[-/](?:{_SETS})(?:-(?:{_SETS}))*)?(?:-v\d+)?"
)


def normalized_score(
    returns: Any, env: str | None = None, *, low: Any = None, high: Any = None
) -> Any:
    """Returns scores as D4RL gives them: 0 of a random policy, 100 of an expert.

        score = 100 * (returns - low) / (high - low)

    Args:
        returns: of episodes, numbers of any shape.
        env: name of a task of which D4RL tells both references, alone or as in the
            names of D4RL, Minari and Gymnasium: "hopper", "hopper-medium-v2",
            "mujoco/hopper/expert-v0", "Hopper-v5". The version is not looked at. Tasks
            of other suites, such as "dmc/hopper-hop-v0", have other returns.
        low: mean return of a random policy, where `env` is None.
        high: mean return of an expert, likewise.

    Returns:
        Scores of the same shape, float64.

    Raises:
        ValueError: if nothing is known of `env`, or `low` is not below `high`.
        TypeError: if neither `env` nor both references are given, or both are.

    Example:
        >>> round(float(normalized_score(1606.9, "Hopper-v5")), 1)
        50.0
        >>> normalized_score([5.0, 10.0], low=0.0, high=10.0).tolist()
        [50.0, 100.0]

    References:
        Fu et al., 2020, D4RL: Datasets for Deep Data-Driven Reinforcement Learning,
        section 5.
    """
    where = "normalized_score"
    if env is not None:
        arguments.check_type(where, "env", env, str, "the name of a task")
        if low is not None or high is not None:
            raise TypeError(
                f"`{where}`: `env` expected None beside `low` and `high`; got {env!r}; "
                "give one or the other"
            )
        known = _NAME.fullmatch(env.lower())
        if known is None:
            raise ValueError(
                f"`{where}`: `env` expected one of {sorted(_REFERENCES)}, alone or as "
                f"D4RL, Minari or Gymnasium name it; got {env!r}; give `low` and "
                "`high` instead"
            )
        low, high = _REFERENCES[known[1]]
    elif low is None or high is None:
        raise TypeError(
            f"`{where}`: `env` expected the name of a task, or `low` and `high`; got "
            "neither"
        )
    if not low < high:
        raise ValueError(
            f"`{where}`: `low` expected less than `high`, {high}; got {low}"
        )
    return 100.0 * (np.asarray(returns, np.float64) - low) / (high - low)
