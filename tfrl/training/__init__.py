"""What runs: the loop around an agent, and what it leaves on disk.

Agents and their losses live in `tfrl.agents` and `tfrl.losses`, pictures and logs in
`tfrl.summaries`; the command line is `tfrl.command`.
"""

from tfrl.training.cadence import Intervals
from tfrl.training.checking.learner_check import LearnerReport, check_learner
from tfrl.training.checkpointing.checkpointer import (
    Checkpointer,
    enable_checkpoint,
    extract_sub_state_dict_from_checkpoint,
    is_checkpoint_enabled,
)
from tfrl.training.checkpointing.checkpoints import (
    RunLock,
    latest_step,
    list_steps,
    load_run,
    save_best,
    save_run,
)
from tfrl.training.collecting.actors import Actors
from tfrl.training.collecting.collection import Collector
from tfrl.training.configuring.config_files import (
    abs_path,
    copy_gin_configs,
    get_conf_file,
    get_gin_file,
    parse_conf_file,
    read_conf_file,
    write_config,
    write_gin_configs,
)
from tfrl.training.configuring.configs import (
    check_all_used,
    clear,
    compute_summary_or_eval_interval,
    configured,
    get_gin_config_strs,
    inoperative_config_str,
    operative,
    parse,
    register,
    summarize_config,
    summarize_gin_config,
    write,
)
from tfrl.training.configuring.snapshots import (
    generate_snapshot,
    get_diff,
    get_revision,
    get_snapshot_env_vars,
    is_inside_docker_container,
    is_repo_root,
    package_root,
    snapshot_repo_roots,
    unzip_snapshot,
)
from tfrl.training.doctor import NonFinite, find_nonfinite, list_overrides
from tfrl.training.evaluation import (
    Evaluation,
    auc_score,
    evaluate,
    predict_dataset,
)
from tfrl.training.experience import FromDataset, Replayed, Trajectories
from tfrl.training.exporting.endpoints import Endpoint, distribution_endpoints
from tfrl.training.exporting.export import export_model, export_policy, verify
from tfrl.training.exporting.policies import (
    policy_endpoints,
    policy_inputs,
    value_endpoint,
)
from tfrl.training.fitting.agent_model import AgentModel
from tfrl.training.fitting.fit import FitModel
from tfrl.training.fitting.fit_callbacks import (
    Collect,
    Evaluate,
    FollowSchedule,
    Rollouts,
    UpdateTarget,
)
from tfrl.training.fitting.record_video import RecordVideo
from tfrl.training.fitting.run_checkpoint import RunCheckpoint
from tfrl.training.rehearsing.rehearsal import Rehearsal, RehearsalCheck, rehearse
from tfrl.training.saved_run import SavedRun
from tfrl.training.serializing.serialization import dump, dumps, load, loads
from tfrl.training.trainer import Trainer

__all__ = [
    "Actors",
    "AgentModel",
    "Checkpointer",
    "Collect",
    "Collector",
    "Endpoint",
    "Evaluate",
    "Evaluation",
    "FitModel",
    "FollowSchedule",
    "FromDataset",
    "Intervals",
    "LearnerReport",
    "NonFinite",
    "RecordVideo",
    "Rehearsal",
    "RehearsalCheck",
    "Replayed",
    "Rollouts",
    "RunCheckpoint",
    "RunLock",
    "SavedRun",
    "Trainer",
    "Trajectories",
    "UpdateTarget",
    "abs_path",
    "auc_score",
    "check_all_used",
    "check_learner",
    "clear",
    "compute_summary_or_eval_interval",
    "configured",
    "copy_gin_configs",
    "distribution_endpoints",
    "dump",
    "dumps",
    "enable_checkpoint",
    "evaluate",
    "export_model",
    "export_policy",
    "extract_sub_state_dict_from_checkpoint",
    "find_nonfinite",
    "generate_snapshot",
    "get_conf_file",
    "get_diff",
    "get_gin_config_strs",
    "get_gin_file",
    "get_revision",
    "get_snapshot_env_vars",
    "inoperative_config_str",
    "is_checkpoint_enabled",
    "is_inside_docker_container",
    "is_repo_root",
    "latest_step",
    "list_overrides",
    "list_steps",
    "load",
    "load_run",
    "loads",
    "operative",
    "package_root",
    "parse",
    "parse_conf_file",
    "policy_endpoints",
    "policy_inputs",
    "predict_dataset",
    "read_conf_file",
    "register",
    "rehearse",
    "save_best",
    "save_run",
    "snapshot_repo_roots",
    "summarize_config",
    "summarize_gin_config",
    "unzip_snapshot",
    "value_endpoint",
    "verify",
    "write",
    "write_config",
    "write_gin_configs",
]
