"""One core and one thread for everything that is measured.

Imports nothing but the standard library: the threads of NumPy, TensorFlow and the
others are counted when they are imported.
"""

import os
import shutil
import sys

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def pinned(command: list[str]) -> list[str]:
    """`command`, on the last core there is, where cores can be chosen."""
    if not shutil.which("taskset"):
        return command
    return ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]


def start_again() -> None:
    """Starts the running script again, on one core, with single-threaded libraries."""
    if all(os.environ.get(name) == value for name, value in ONE_THREAD.items()):
        return
    command = pinned([sys.executable, *sys.argv])
    os.execvpe(command[0], command, {**os.environ, **ONE_THREAD})
