"""Learners with actors, to be killed, as forks of one process that is started once.

`python -m actor_victims FOLDER` reads lines of WHAT and MARK, and prints the number of
the learner that it forked. Its processes have the variable MARK, its output goes to
FOLDER/MARK.
"""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import sys

import actor_envs
import actor_trainers
import keras
import numpy as np

from tfrl.saving import checkpoints
from tfrl.training.collecting import actors

EPOCHS = 120


def ignore(trajectory, env_ids):
    pass


def train(folder):
    """Trains by actors, or goes on where the last one was killed."""
    resume = folder.exists() and checkpoints.latest_step(folder) is not None
    with actor_trainers.build(folder, EPOCHS, seconds=1e-3, resume=resume) as running:
        try:
            running.run(quiet=True)
            ended = "ended"
        except KeyboardInterrupt:
            ended = "interrupted"
    print(ended, running.epoch, flush=True)


def learn(what, folder):
    if what == "trainer":
        train(folder / "run")
        os._exit(0)
    network = keras.Sequential([keras.Input([4]), keras.layers.Dense(3)])
    make_env = actor_envs.Sleeping
    if what == "asynchronous":
        make_env = actor_envs.asynchronous
    if what == "error-in-actor":
        make_env = functools.partial(actor_envs.Failing, "error")
    found = actors.Actors(make_env, network, ignore, 2, actor_envs.drawn)
    if what == "killed-actor":
        found.wait_for(10)
        source = found._intake._sources[np.random.default_rng().integers(2)]
        os.kill(source.actor.process.pid, signal.SIGKILL)
    if what == "error-in-learner":
        found.wait_for(10)
        raise ZeroDivisionError
    while True:
        found.push(network)
        found.wait_for(found.env_steps + 1)


@contextlib.contextmanager
def served(folder):
    """A function that forks learners, of what they do and their mark."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-m", "actor_victims", str(folder)],
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def start(what, mark):
            print(what, mark, file=server.stdin, flush=True)
            return int(server.stdout.readline()), folder / mark

        yield start
        server.stdin.close()


def serve(folder):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        what, mark = line.split()
        learner = os.fork()
        if not learner:
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Who was started in the background ignores it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ[mark] = "1"
            output = os.open(folder / mark, os.O_CREAT | os.O_WRONLY)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            learn(what, folder)
        print(learner, flush=True)


if __name__ == "__main__":
    serve(pathlib.Path(sys.argv[1]))
