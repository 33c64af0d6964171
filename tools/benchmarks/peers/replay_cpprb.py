"""Replay of cpprb, for the benchmarks of replays."""

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

    def save(self, folder):
        self.buffer.save_transitions(f"{folder}/buffer.npz")

    def load(self, folder):
        self.buffer.load_transitions(f"{folder}/buffer.npz")


class CpprbOnce(Cpprb):
    """With `next_of`: observations are kept once."""

    settings: dict = {}

    def make(self, capacity, fields):
        fields = {name: fields[name] for name in fields if name != "next_obs"}
        return cpprb.ReplayBuffer(capacity, fields, next_of="obs", **self.settings)


class CpprbFrames(CpprbOnce):
    """With `stack_compress`, too: of stacked frames each is kept once."""

    settings = {"stack_compress": "obs"}


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
