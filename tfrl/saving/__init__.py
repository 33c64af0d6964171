"""What survives: checkpoints of runs and of objects, single objects, typed JSON.

`Checkpointer` and `save_run` keep folders of checkpoints, `dump` and `load` single
objects. The run itself is in `tfrl.training`, models that leave for another runtime in
`tfrl.exporting`, saved replays in `tfrl.replay`.
"""

from tfrl.saving.checkpointer import (
    Checkpointer,
    enable_checkpoint,
    extract_sub_state_dict_from_checkpoint,
    is_checkpoint_enabled,
)
from tfrl.saving.checkpoints import (
    RunLock,
    latest_step,
    list_steps,
    load_run,
    save_run,
)
from tfrl.saving.serialization import dump, dumps, load, loads
from tfrl.saving.typed_json import from_json, to_json

__all__ = [
    "Checkpointer",
    "RunLock",
    "dump",
    "dumps",
    "enable_checkpoint",
    "extract_sub_state_dict_from_checkpoint",
    "from_json",
    "is_checkpoint_enabled",
    "latest_step",
    "list_steps",
    "load",
    "load_run",
    "loads",
    "save_run",
    "to_json",
]
