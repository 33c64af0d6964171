"""What runs: the loop around an agent, and what it leaves on disk.

Agents and their losses live in `tfrl.agents` and `tfrl.losses`, pictures and logs in
`tfrl.summaries`; the command line is `tfrl.command`.
"""

from tfrl.training.cadence import Intervals
from tfrl.training.checking.learner_check import check_learner
from tfrl.training.collecting.actor_collection import ActorPool
from tfrl.training.collecting.actors import Actors
from tfrl.training.collecting.collection import Collector
from tfrl.training.collecting.recording import record_transitions
from tfrl.training.doctor import (
    describe_actors,
    find_nonfinite,
    list_missing,
    list_overrides,
)
from tfrl.training.evaluation import (
    auc_score,
    evaluate,
    predict_dataset,
)
from tfrl.training.experience import FromDataset, Replayed, Trajectories
from tfrl.training.fitting.agent_model import AgentModel
from tfrl.training.fitting.fit import FitModel
from tfrl.training.fitting.fit_callbacks import (
    Collect,
    Evaluate,
    RecordVideo,
    Rollouts,
)
from tfrl.training.fitting.run_checkpoint import RunCheckpoint
from tfrl.training.fitting.step_callbacks import FollowSchedule, UpdateTarget
from tfrl.training.loggers import MlflowLogger, WandbLogger
from tfrl.training.population import Population, train_population
from tfrl.training.rehearsing.rehearsal import rehearse
from tfrl.training.saved_run import SavedRun
from tfrl.training.trainer import Trainer

__all__ = [
    "ActorPool",
    "Actors",
    "AgentModel",
    "Collect",
    "Collector",
    "Evaluate",
    "FitModel",
    "FollowSchedule",
    "FromDataset",
    "Intervals",
    "MlflowLogger",
    "Population",
    "RecordVideo",
    "Replayed",
    "Rollouts",
    "RunCheckpoint",
    "SavedRun",
    "Trainer",
    "Trajectories",
    "UpdateTarget",
    "WandbLogger",
    "auc_score",
    "check_learner",
    "describe_actors",
    "evaluate",
    "find_nonfinite",
    "list_missing",
    "list_overrides",
    "predict_dataset",
    "record_transitions",
    "rehearse",
    "train_population",
]
