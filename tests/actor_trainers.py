"""Trainers whose actors play environments of which every row is known beforehand."""

import collections
import dataclasses
import functools
import os
import random
import signal
import threading
import time
from typing import Any, ClassVar

import actor_envs
import counted_rows
import numpy as np

from tfrl.agents.on_policy import ppo
from tfrl.core import pytree, records
from tfrl.training import cadence, experience, trainer
from tfrl.training.collecting import actor_collection

T = 16
EVERY = cadence.Intervals(log_epochs=1, eval_episodes=1, checkpoint_epochs=3)


@dataclasses.dataclass(frozen=True)
class Idle:
    """Hyper-parameters of an agent that learns nothing, and is a new one each time.

    Attributes:
        seconds: how long an update takes.
    """

    learns_from: ClassVar = ("trajectories", "transitions")
    seconds: float = 0.0

    def create(self, observation_space, action_space, *, seed=0):
        made = ppo.PPO(hidden_units=(4,)).create(
            observation_space, action_space, seed=seed
        )
        return IdleAgent(made.policy, self)


class IdleAgent(pytree.PyTreeNode):
    policy: Any
    config: Idle = pytree.nonpytree_field()
    needs_log_probs: ClassVar = True

    def update(self, given):
        time.sleep(self.config.seconds)
        return self.replace(policy=self.policy.replace()), {}


def build(folder, n_epochs=20, seconds=0.0, n_actors=4, max_lag=2, **settings):
    """Returns a trainer of two environments an actor."""
    given = {
        "agent": Idle(),
        "make_envs": functools.partial(actor_envs.lived, seconds=seconds),
        "n_envs": 2 * n_actors,
        "experience": experience.Trajectories(T),
        "intervals": EVERY,
        "collector": actor_collection.ActorPool(n_actors, max_lag),
    }
    return trainer.Trainer(folder, n_epochs, **{**given, **settings})


def seats_of(running):
    """Who plays for a trainer, by the number of the actor."""
    return running._collector._engine._seats


def pids_of(running):
    return [seat.actor.process.pid for seat in seats_of(running)]


def has_all(running):
    """Whether something came of each actor that plays now."""
    return not any(seat.is_new for seat in seats_of(running))


def until(running, condition, limit=60.0):
    """Returns what ends a run when something of it is so, or takes too long."""
    end = time.monotonic() + limit

    def then():
        running.stop_training = condition(running) or time.monotonic() > end

    return then


class Watch:
    """What a trainer is given to learn from, and all episodes that ended.

    Args:
        running: the trainer.
        then: called after each epoch was played.

    Attributes:
        then: likewise, which may ask what came.
    """

    def __init__(self, running, then=lambda: None):
        self.given, self._order, self.then = [], [], then
        collector, gather = running._collector, running._collector.collect
        running._collector.episode_returns = self.returns = collections.deque()
        running._collector.episode_lengths = self.lengths = collections.deque()

        def watched(*args, **kwargs):
            self.given.append(gather(*args, **kwargs))
            self._order.append([place for *_, place in collector._origins])
            self.then()
            return self.given[-1]

        running._collector.collect = watched

    def lives(self):
        """All rows `[n, ...]` of each environment that ever was, by its number."""
        found = {}
        for trajectory, places in zip(self.given, self._order, strict=True):
            numbers = trajectory.observations[..., 3].astype(int)
            np.testing.assert_array_equal(numbers, numbers[:1].repeat(T, 0))
            # As they came: an actor may have played two of them.
            columns = np.arange(numbers.shape[1]).reshape(len(places), -1)
            for column in columns[places].reshape(-1):
                number = int(numbers[0, column])
                names = [x for x in records.Trajectory._fields if x != "states"]
                rows = {x: getattr(trajectory, x)[:, column] for x in names}
                found.setdefault(number, []).append(rows)
        return {
            number: records.Trajectory(
                **{name: np.concatenate([x[name] for x in parts]) for name in parts[0]}
            )
            for number, parts in found.items()
        }

    def check(self):
        """Compares all that came with what was played.

        Returns:
            How many environments there were, and how many pieces of theirs, before the
            last that came, never came.
        """
        lengths, missing = [], 0
        lives = self.lives()
        for number, rows in lives.items():
            steps = rows.observations[:, 0].astype(int)
            assert (np.diff(steps) > 0).all(), "nothing comes twice"
            actions = np.zeros(steps[-1] + 1, int)
            actions[steps] = rows.actions
            for name, column in counted_rows.expected(number, actions).items():
                np.testing.assert_array_equal(getattr(rows, name), column[steps])
            assert rows.valid.all() and np.isfinite(rows.log_probs).all()
            gaps = len(actions) - len(steps)
            missing += gaps // T
            assert gaps % T == 0, "whole pieces come"
            ended = rows.terminated | rows.truncated
            lengths += rows.next_observations[ended, 2].tolist()
            if not gaps:
                known = counted_rows.episodes(number, rows.actions)
                assert set(known) <= set(zip(self.returns, self.lengths, strict=True))
        assert sorted(self.lengths) == sorted(lengths)
        return len(lives), missing


class Killer:
    """A thread that kills actors of a trainer at random moments.

    Args:
        running: the trainer, which has begun to play.
        count: how many.
        most: seconds between two of them.
    """

    def __init__(self, running, count, most, seed=0):
        self.count, self.left = 0, count
        self._running, self._most, self._killed = running, most, []
        self._random = random.Random(seed)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def done(self):
        return not self._thread.is_alive()

    def _run(self):
        while self.left:
            time.sleep(self._random.uniform(0.0, self._most))
            seat = self._random.choice(seats_of(self._running))
            # One that is killed thrice before it has played ends the run.
            if seat.fruitless < 2 and seat.actor not in self._killed:
                self._killed.append(seat.actor)
                try:
                    os.kill(seat.actor.process.pid, signal.SIGKILL)
                except ProcessLookupError:  # the run has ended meanwhile
                    return
                self.left, self.count = self.left - 1, self.count + 1


class StoreWatch:
    """What is added to the replay of a trainer, and where it is cut.

    Args:
        running: the trainer.
    """

    def __init__(self, running):
        self.store = running._source._replay.store
        self.replay = running._source._replay
        self.rows = collections.defaultdict(list)
        self._cut = set()
        add, cut = self.store.add, self.store.cut

        def added(*, env_ids, **columns):
            for n, env in enumerate(env_ids.tolist()):
                row = {name: column[n] for name, column in columns.items()}
                self.rows[env].append((env in self._cut, row))
                self._cut.discard(env)
            return add(env_ids=env_ids, **columns)

        def was_cut(env_ids=None):
            every = range(self.store.num_environments)
            self._cut.update(every if env_ids is None else env_ids.tolist())
            return cut(env_ids)

        self.store.add, self.store.cut = added, was_cut

    def check(self):
        """Compares rows with what was played; returns how many environments there were.

        The rows of one place are of one environment until there is a cut, all that it
        played from its first step on.
        """
        lives = 0
        for rows in self.rows.values():
            starts = [i for i, (is_cut, _) in enumerate(rows) if is_cut]
            assert starts[0] == 0
            for first, after in zip(starts, [*starts[1:], len(rows)], strict=True):
                part = [row for _, row in rows[first:after]]
                columns = {x: np.array([row[x] for row in part]) for x in part[0]}
                found = records.Trajectory(**columns, valid=())
                counted_rows.check(int(found.observations[0, 3]), found)
                lives += 1
        return lives

    def check_drawn(self, n_steps, count=2_000):
        """What is drawn is of one episode of one environment; returns its steps."""
        data = self.replay.sample(count).data
        seen, after = data.observations, data.next_observations
        lengths = after[:, 0] - seen[:, 0]
        assert set(lengths.tolist()) <= set(range(1, n_steps + 1))
        np.testing.assert_array_equal(after[:, 2] - seen[:, 2], lengths)
        np.testing.assert_array_equal(after[:, [1, 3]], seen[:, [1, 3]])
        return lengths
