"""An episode store written as plain lists, and streams that fill it and a real one."""

import numpy as np
import tensorflow as tf

from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.transitions import Sequences

OUT, ON, TERMINATED, TRUNCATED, BOTH, CUT = range(6)


class Listed:
    """Every row there ever was, and those an environment of `length` rows still has."""

    def __init__(self, n, length):
        self.n, self.length = n, length
        self.rows = [[] for _ in range(n)]  # steps, and None for closing rows
        self.seen = [[] for _ in range(n)]  # the observation of each row
        self.first = [[] for _ in range(n)]  # where its episode begins
        self.running = [False] * n

    def add(self, env, step, after):
        rows, seen, first = self.rows[env], self.seen[env], self.first[env]
        if not self.running[env]:
            seen.append(step["observation"])
            first.append(len(rows))
        rows.append(step)
        seen.append(after)
        first.append(first[-1])
        self.running[env] = True
        if step["terminated"] or step["truncated"]:
            self.close(env)

    def close(self, env):
        self.rows[env].append(None)
        self.running[env] = False

    def cut(self, env):
        if self.running[env]:
            self.rows[env][-1]["truncated"] = True
            self.close(env)

    def oldest(self, env):
        return max(0, len(self.seen[env]) - self.length)

    def steps(self):
        """Yields environment and position of each step there is."""
        for env in range(self.n):
            for position in range(self.oldest(env), len(self.rows[env])):
                if self.rows[env][position] is not None:
                    yield env, position

    def end(self, env, position):
        """Returns the position after the last step of an episode."""
        while position < len(self.rows[env]) and self.rows[env][position] is not None:
            position += 1
        return position

    def stack(self, env, position, count):
        if count is None:
            return self.seen[env][position]
        first = self.first[env][position]
        frames = range(position - count + 1, position + 1)
        return [self.seen[env][max(first, frame)] for frame in frames]

    def complete(self, env, position, behind):
        first = max(self.first[env][position], position - behind)
        return first >= self.oldest(env)

    def transitions(self, n_step=1, discount=0.99, frame_stack=None):
        """Returns by index what every transition is that can be drawn."""
        found = {}
        for env, position in self.steps():
            if self.complete(env, position, (frame_stack or 1) - 1):
                after = min(position + n_step, self.end(env, position))
                steps = self.rows[env][position:after]
                alive = not steps[-1]["terminated"]
                found[position * self.n + env] = (
                    self.stack(env, position, frame_stack),
                    steps[0]["action"],
                    sum(discount**k * step["reward"] for k, step in enumerate(steps)),
                    discount ** len(steps) * alive,
                    self.stack(env, after, frame_stack),
                )
        return found

    def sequences(self, length, burn_in=0, frame_stack=None, pad_end=False):
        """Returns by index what every sequence is that can be drawn."""
        found = {}
        for env, position in self.steps():
            last, end = position + length, self.end(env, position)
            behind = burn_in + (frame_stack or 1) - 1
            goes_on = end == len(self.rows[env])
            if last > end and (goes_on or not pad_end):
                continue
            if not self.complete(env, position, behind):
                continue
            first = self.first[env][position]
            wanted = range(position - burn_in, last)
            along = [min(max(first, at), end - 1) for at in wanted]
            steps = [self.rows[env][at] for at in along]
            found[position * self.n + env] = (
                [self.stack(env, at, frame_stack) for at in along],
                [step["action"] for step in steps],
                [step["reward"] for step in steps],
                [step["terminated"] for step in steps],
                [step["truncated"] for step in steps],
                [self.stack(env, at + 1, frame_stack) for at in along],
                [first <= at < end for at in wanted],
            )
        return found

    def listed(self, kind):
        """Returns by index what every sample of a kind is."""
        if isinstance(kind, Sequences):
            settings = kind.length, kind.burn_in, kind.frame_stack, kind.pad_end
            return self.sequences(*settings)
        return self.transitions(kind.n_step, kind.discount, kind.frame_stack)


class Stream:
    """Feeds a store and its plain model the same steps, no two of them alike."""

    def __init__(self, n, length, **kwargs):
        self.model = Listed(n, length)
        self.store = EpisodeStore(
            tf.TensorSpec([]),
            tf.TensorSpec([], tf.int64),
            n * length,
            n,
            extra_spec={"n": tf.TensorSpec([], tf.int64)},
            **kwargs,
        )
        self.count = 0
        self.last = [None] * n

    def number(self):
        self.count += 1
        return self.count

    def advance(self, codes):
        """Adds a step of each environment whose code is not OUT."""
        for env, code in enumerate(codes):
            if code == CUT:
                self.store.cut([env])
                self.model.cut(env)
        ids = [env for env, code in enumerate(codes) if code != OUT]
        if not ids:
            return
        ids = ids[::-1] if self.count % 2 else ids
        rows = []
        for env in ids:
            code, model = codes[env], self.model
            before = self.last[env] if model.running[env] else float(self.number())
            step = {
                "observation": before,
                "action": self.number(),
                "reward": float(self.number() % 7),
                "terminated": code in (TERMINATED, BOTH),
                "truncated": code in (TRUNCATED, BOTH),
            }
            self.last[env] = float(self.number())
            model.add(env, step, self.last[env])
            rows.append([*step.values(), self.last[env], step["action"]])
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        observations, actions, rewards, terminated, truncated, after, extra = columns
        self.store.add(
            observations.astype(np.float32),
            actions,
            rewards,
            terminated,
            truncated,
            after.astype(np.float32),
            {"n": extra},
            None if ids == list(range(self.model.n)) else ids,
        )

    def run(self, seed, rounds, ends=0.2):
        """Adds random steps, all environments in most rounds."""
        rng = np.random.default_rng(seed)
        for _ in range(rounds):
            n = self.model.n
            codes = np.where(rng.random(n) < ends, rng.integers(0, 6, n), ON)
            self.advance(codes.tolist())
        return self


def assert_draws(replay, expected, batch_size=None, transposed=False):
    """Draws are right in every number, and all of `expected` come, nothing else."""
    assert replay.size == len(expected)
    if not expected:
        return None
    sample = replay.sample(batch_size or 30 * len(expected))
    assert {*sample.indices.tolist()} == {*expected}
    for found, column in zip(
        [part for part in sample.data if isinstance(part, np.ndarray)],
        zip(*(expected[index] for index in sample.indices.tolist()), strict=True),
        strict=True,
    ):
        column = np.array(column)
        column = column.swapaxes(0, 1) if transposed else column
        np.testing.assert_allclose(found, column, rtol=1e-6)
    return sample


def stored(kind, folder=None, n=2, length=12):
    """Returns a stream of a store in "memory", in files at a "path", or "shared"."""
    path = {"path": folder} if kind == "path" else {}
    return Stream(n, length, shared=kind == "shared", **path)


def draws(*replays):
    """Returns two samples of each that has any, with new priorities in between."""
    found = []
    for replay in replays:
        if replay.size:
            found.append(replay.sample(20))
            if isinstance(replay, PrioritizedReplay):
                indices = found[-1].indices
                replay.update_priorities(indices, indices % 5)
            found.append(replay.sample(30))
    return found


def assert_same(found, expected):
    tf.nest.map_structure(np.testing.assert_array_equal, found, expected)
