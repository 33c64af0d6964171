"""What runs: the loop around an agent, and what it leaves on disk.

Agents and their losses live in `tfrl.agents` and `tfrl.losses`, pictures and logs in
`tfrl.summaries`; the command line is `tfrl.rl_trainer`.
"""

from tfrl.training.checkpoints import (
    RunLock,
    latest_step,
    list_steps,
    load_run,
    save_run,
)
from tfrl.training.collection import Collector
from tfrl.training.configs import (
    check_all_used,
    clear,
    operative,
    parse,
    register,
    write,
)
from tfrl.training.endpoints import Endpoint, distribution_endpoints
from tfrl.training.evaluation import Evaluation, evaluate
from tfrl.training.export import (
    export_model,
    export_policy,
    policy_endpoints,
    policy_inputs,
    value_endpoint,
    verify,
)
from tfrl.training.fit import FitModel
from tfrl.training.fit_callbacks import Collect, Evaluate, FollowSchedule, UpdateTarget
from tfrl.training.host_policy import HostPolicy
from tfrl.training.record_video import RecordVideo
from tfrl.training.rollouts import Rollouts
from tfrl.training.run_checkpoint import RunCheckpoint
from tfrl.training.trainer import Intervals, Trainer

__all__ = [
    "Collect",
    "Collector",
    "Endpoint",
    "Evaluate",
    "Evaluation",
    "FitModel",
    "FollowSchedule",
    "HostPolicy",
    "Intervals",
    "RecordVideo",
    "Rollouts",
    "RunCheckpoint",
    "RunLock",
    "Trainer",
    "UpdateTarget",
    "check_all_used",
    "clear",
    "distribution_endpoints",
    "evaluate",
    "export_model",
    "export_policy",
    "latest_step",
    "list_steps",
    "load_run",
    "operative",
    "parse",
    "policy_endpoints",
    "policy_inputs",
    "register",
    "save_run",
    "value_endpoint",
    "verify",
    "write",
]
