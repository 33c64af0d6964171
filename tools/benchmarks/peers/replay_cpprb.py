"""Replay of cpprb, for tools/benchmarks/replay.py."""

import cpprb


class Cpprb:
    """`ReplayBuffer` of whole transitions."""

    make = staticmethod(cpprb.ReplayBuffer)

    def __init__(self, case, width):
        del width
        seen = {"shape": case.shape, "dtype": case.dtype}
        fields = {
            "obs": seen,
            "act": {"dtype": "int64"},
            "rew": {},
            "next_obs": seen,
            "done": {"dtype": "bool"},
            "cut": {"dtype": "bool"},
        }
        self.buffer = self.make(case.capacity, fields)

    def ready(self, step):
        seen, then = step.observations, step.next_observations
        steps = (seen, step.actions, step.rewards, then)
        return *steps, step.terminated, step.truncated

    def add(self, seen, actions, rewards, then, ends, cuts):
        self.buffer.add(
            obs=seen, act=actions, rew=rewards, next_obs=then, done=ends, cut=cuts
        )

    def sample(self, n):
        return self.buffer.sample(n)

    def read(self, found):
        numbers = (found[name][:, 0] for name in ("act", "rew", "done"))
        return found["obs"], *numbers, found["next_obs"]


class CpprbPrioritized(Cpprb):
    """`PrioritizedReplayBuffer`, with importance weights."""

    make = staticmethod(cpprb.PrioritizedReplayBuffer)

    def sample(self, n):
        return self.buffer.sample(n, beta=0.4)

    def indices(self, found):
        return found["indexes"]

    def priorities(self, numbers):
        return numbers

    def set(self, indices, priorities):
        self.buffer.update_priorities(indices, priorities)
