"""Configurations by gin: reading, checking and recording them, copies of the source.

What they configure is elsewhere: trainers in `tfrl.training`, algorithms in
`tfrl.agents`; the command that reads them is `tfrl.rl_trainer`.
"""

from tfrl.configuring.config_files import (
    abs_path,
    copy_gin_configs,
    get_conf_file,
    get_gin_file,
    parse_conf_file,
    read_conf_file,
    write_config,
    write_gin_configs,
)
from tfrl.configuring.configs import (
    compute_summary_or_eval_interval,
    get_gin_config_strs,
    inoperative_config_str,
    parse,
    register,
    summarize_config,
    summarize_gin_config,
)
from tfrl.configuring.snapshots import (
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

__all__ = [
    "abs_path",
    "compute_summary_or_eval_interval",
    "copy_gin_configs",
    "generate_snapshot",
    "get_conf_file",
    "get_diff",
    "get_gin_config_strs",
    "get_gin_file",
    "get_revision",
    "get_snapshot_env_vars",
    "inoperative_config_str",
    "is_inside_docker_container",
    "is_repo_root",
    "package_root",
    "parse",
    "parse_conf_file",
    "read_conf_file",
    "register",
    "snapshot_repo_roots",
    "summarize_config",
    "summarize_gin_config",
    "unzip_snapshot",
    "write_config",
    "write_gin_configs",
]
