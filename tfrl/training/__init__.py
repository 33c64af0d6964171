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
from tfrl.training.evaluation import Evaluation, evaluate
from tfrl.training.export import export_policy, policy_inputs
from tfrl.training.host_policy import HostPolicy
from tfrl.training.trainer import Intervals, Trainer

__all__ = [
    "Collector",
    "Evaluation",
    "HostPolicy",
    "Intervals",
    "RunLock",
    "Trainer",
    "check_all_used",
    "clear",
    "evaluate",
    "export_policy",
    "latest_step",
    "list_steps",
    "load_run",
    "operative",
    "parse",
    "policy_inputs",
    "register",
    "save_run",
    "write",
]
