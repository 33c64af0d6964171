"""What tests have other processes do, without TensorFlow."""

import os
import signal
import subprocess
import sys
import time

import numpy as np

from tfrl.host import shared_rows

COLUMNS = [((2,), np.dtype("float32")), ((), np.dtype("int64")), ((3,), np.dtype(bool))]


def write_rows(send, fd, total):
    ring = shared_rows.RowRing(COLUMNS, 7, fd=fd)
    for number in range(total):
        slot = ring.begin()
        ring.arrays[0][slot] = number
        ring.arrays[1][slot] = number
        ring.arrays[2][slot] = number % 3 == 0
        ring.commit()


def read_versions(send, fd, times):
    mine = [np.zeros(3_000), np.zeros(3_000, np.int32)]
    shared = shared_rows.SharedArrays(mine, fd=fd)
    known, torn, versions = shared.read(mine, -1), 0, []
    while len(versions) < times:
        newer = shared.read(mine, known)
        if newer != known:
            torn += any((array != newer).any() for array in mine)
            versions.append(newer)
        known = newer
    send((torn, versions))


def echo(send, *values):
    for value in values:
        send(value)


def modules(send):
    send(sorted({name.split(".")[0] for name in sys.modules}))


def surroundings(send):
    names = ("OPENBLAS_NUM_THREADS", "TFRL_TEST")
    send((sys.path, os.getcwd(), os.getpgrp(), [os.environ.get(n) for n in names]))


def fail(send, how):
    if how == "error":
        raise OSError("the wheel came off")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "import":
        import tensorflow  # noqa: F401


def hang(send, child=False):
    """Ignores whom it can, with a process of its own."""
    if child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        send(child.pid)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(0.01)
