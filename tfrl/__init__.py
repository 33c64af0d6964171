"""Reinforcement learning components for TensorFlow 2 and Keras 3.

Each room below is a package that works alone; it is imported when first touched, so
`import tfrl` itself loads neither TensorFlow nor TensorFlow Probability.
"""

import importlib
import importlib.util
import os
from types import ModuleType

from tfrl._internal import lazy_doors

__version__ = "0.1.0"

_ROOMS = (
    "agents",
    "bijectors",
    "command",
    "configuring",
    "core",
    "datasets",
    "distribute",
    "distributions",
    "entry",
    "environments",
    "experiments",
    "exploration",
    "exporting",
    "host",
    "layers",
    "losses",
    "ops",
    "policies",
    "replay",
    "rl_trainer",
    "saving",
    "schedules",
    "stats",
    "summaries",
    "training",
)

__all__ = sorted(["__version__", *_ROOMS])

if importlib.util.find_spec("tensorflow") is None:
    raise ImportError(
        "tfrl: expected an installed TensorFlow (2.18 to 2.21); found none; "
        "run: pip install 'tensorflow<2.22' tf-keras (the extra `tfrl[cpu]`; for GPUs "
        "and TPUs see `tfrl[gpu]` and `tfrl[tpu]` in tools/site/install.md)"
    )

if importlib.util.find_spec("tf_keras") is None:
    installed = importlib.import_module("tensorflow").__version__
    raise ImportError(
        "tfrl: expected an installed tf-keras, which TensorFlow Probability imports; "
        "found none; run: pip install --no-deps "
        f"'tf-keras=={'.'.join(installed.split('.')[:2])}.*'"
    )

if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
    raise ImportError(
        "tfrl: expected Keras on the TensorFlow backend; "
        f"got KERAS_BACKEND={os.environ['KERAS_BACKEND']!r}; "
        "unset it or set it to 'tensorflow'"
    )


def __getattr__(name: str) -> ModuleType:
    if name not in _ROOMS:
        raise AttributeError(f"module 'tfrl' has no attribute {name!r}")
    return lazy_doors.imported(f"tfrl.{name}")


def __dir__() -> list[str]:
    return list(__all__)
