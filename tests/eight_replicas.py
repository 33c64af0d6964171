"""Agents on eight replicas, in a process that splits its CPU in so many.

`python -m eight_replicas KIND...` prints the kinds that learn as one replica does.
"""

import contextlib
import sys

import agent_rows
import plain_graphs
import tensorflow as tf
from agent_examples import assert_close

from tfrl.distribute import strategies

# Minibatches that eight share; a memory goes by whole environments.
SHARED = {"ppo": {"minibatch_size": 24}, "ppo_memory": {"minibatch_size": 48}}
# What one learns is compiled by XLA, as users have it, of those that draw in their
# steps: what several learn never is. For all it would take minutes.
BY_XLA = {"rainbow", "iqn", "td3", "sac_choices", "sac_mixed", "sac_ensemble", "cql"}


def main(kinds):
    strategy = strategies.strategy("rehearsal:8")
    for kind in kinds:
        settings = SHARED.get(kind, {})
        alone = agent_rows.made(kind, n_envs=8, **settings)
        if hasattr(alone, "rng"):  # of which XLA makes other draws unless it is told
            alone = alone.replace(rng=tf.constant([7, -9]))
        shared = alone
        plainly = plain_graphs.plain_graphs
        alone_by = contextlib.nullcontext if kind in BY_XLA else plainly
        for seed in range(2):
            given = agent_rows.experience_of(kind, seed, n_envs=8)
            with alone_by():
                alone, expected = alone.update(given)
            with strategy.scope(), plainly():
                shared, info = shared.update(given)
        assert_close((shared, info), (alone, expected), rtol=1e-3, atol=2e-5)
        print(kind, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
