"""Learners with actors, to be killed, as forks of one process that is started once.

`python -m actor_victims FOLDER` reads lines of WHAT and MARK, and prints the number of
the learner that it forked. Its processes have the variable MARK, its output goes to
FOLDER/MARK.
"""

import functools
import os
import pathlib
import signal
import sys

import actor_envs
import keras
import numpy as np

from tfrl.training.collecting import actors


def ignore(trajectory, env_ids):
    pass


def learn(what):
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
            learn(what)
        print(learner, flush=True)


if __name__ == "__main__":
    serve(pathlib.Path(sys.argv[1]))
