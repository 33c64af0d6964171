"""Gymnasium environments: vectors, checks, snapshots, wrappers, the Control Suite.

Here are vectors of environments, also of EnvPool's and PettingZoo's, two small games
with known equilibria, preprocessed Atari games, a check of what is wrong with an
environment, snapshots of its inner state, random elements of spaces and their
preprocessing for networks, the current environment, wrappers that Gymnasium lacks, and
the DeepMind Control Suite. Environments of tensors, for training in one graph, have
their own door, `tfrl.environments.compiled`. Names whose files need TensorFlow load it
when first touched. Their steps as transitions are in `tfrl.host`, the loops around a
learner in `tfrl.training`, specs of spaces in `tfrl.core`.
"""

from typing import TYPE_CHECKING

from tfrl._internal import lazy_doors
from tfrl.environments.action_masks import ActionMasks, VectorActionMasks
from tfrl.environments.atari import EndOnLifeLoss, make_atari
from tfrl.environments.attributes import get_env_attr, has_env_attr
from tfrl.environments.control_suite import ControlSuite, make_dmc
from tfrl.environments.env_check import check_env
from tfrl.environments.envpool_vector import EnvPoolVector
from tfrl.environments.goals import BitFlipping, goal_rewards
from tfrl.environments.kuhn_poker import KuhnPoker
from tfrl.environments.matrix_game import MatrixGame
from tfrl.environments.parallel_vector import ParallelEnvVector
from tfrl.environments.sampling import (
    get_transition_batch,
    safe_sample,
)
from tfrl.environments.snapshots import capture, restore
from tfrl.environments.vector import make_vec
from tfrl.environments.wrappers import (
    PartialObservation,
    ScaleReward,
    StackChannels,
)

if TYPE_CHECKING:
    from tfrl.environments import compiled
    from tfrl.environments.current import (
        environment_context,
        get_action_spec,
        get_env,
        get_initial_time_step,
        get_observation_spec,
        get_raw_observation_spec,
        get_reward_spec,
        get_states_shape,
        get_vocab_size,
        set_global_env,
        set_transformed_observation_spec,
    )
    from tfrl.environments.preprocessing import (
        check_preprocessors,
        default_preprocessor,
    )

__all__ = [
    "ActionMasks",
    "BitFlipping",
    "ControlSuite",
    "EndOnLifeLoss",
    "EnvPoolVector",
    "KuhnPoker",
    "MatrixGame",
    "ParallelEnvVector",
    "PartialObservation",
    "ScaleReward",
    "StackChannels",
    "VectorActionMasks",
    "capture",
    "check_env",
    "check_preprocessors",
    "compiled",
    "default_preprocessor",
    "environment_context",
    "get_action_spec",
    "get_env",
    "get_env_attr",
    "get_initial_time_step",
    "get_observation_spec",
    "get_raw_observation_spec",
    "get_reward_spec",
    "get_states_shape",
    "get_transition_batch",
    "get_vocab_size",
    "goal_rewards",
    "has_env_attr",
    "make_atari",
    "make_dmc",
    "make_vec",
    "restore",
    "safe_sample",
    "set_global_env",
    "set_transformed_observation_spec",
]
_LAZY = ("compiled", "current", "preprocessing")
__getattr__, __dir__ = lazy_doors.door(__name__, __all__, _LAZY)
