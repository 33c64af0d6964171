"""Replay of Stable-Baselines3 and torchrl, for the benchmarks of replays."""

import gymnasium as gym
import numpy as np
from peers import torchrl_trees

try:
    torchrl_trees.load()
    has_trees = True
except ImportError:
    has_trees = False

import tensordict  # noqa: E402
import torch  # noqa: E402
from stable_baselines3.common import buffers, save_util  # noqa: E402
from torchrl import data, torchrl_logger  # noqa: E402

torchrl_logger.setLevel("WARNING")


class StableBaselines3:
    """`ReplayBuffer`, as its off-policy algorithms fill, read and save it."""

    settings: dict = {}

    def __init__(self, case, width):
        low, high = (0, 255) if case.dtype == np.uint8 else (-np.inf, np.inf)
        self.buffer = buffers.ReplayBuffer(
            case.capacity,
            gym.spaces.Box(low, high, case.shape, case.dtype),
            gym.spaces.Discrete(4),
            device="cpu",
            n_envs=width,
            **self.settings,
        )

    def ready(self, step):
        infos = [{"TimeLimit.truncated": bool(cut)} for cut in step.truncated]
        ends = step.terminated | step.truncated
        seen = step.observations, step.next_observations
        return *seen, step.actions, step.rewards, ends, infos

    def add(self, *step):
        self.buffer.add(*step)

    def sample(self, n):
        return self.buffer.sample(n)

    def read(self, found):
        ends, rewards = found.dones.numpy()[:, 0], found.rewards.numpy()[:, 0]
        seen, then = found.observations.numpy(), found.next_observations.numpy()
        return seen, found.actions.numpy()[:, 0], rewards, ends, then

    def save(self, folder):
        save_util.save_to_pkl(f"{folder}/buffer.pkl", self.buffer)

    def load(self, folder):
        self.buffer = save_util.load_from_pkl(f"{folder}/buffer.pkl")


class StableBaselines3Once(StableBaselines3):
    """With `optimize_memory_usage`: observations are kept once."""

    settings = {"optimize_memory_usage": True, "handle_timeout_termination": False}


class Torchrl:
    """`LazyTensorStorage` behind a `TensorDictReplayBuffer`."""

    def __init__(self, case, width):
        del width
        self.buffer = self.made(data.LazyTensorStorage(case.capacity))

    def made(self, storage):
        return data.TensorDictReplayBuffer(storage=storage, batch_size=256)

    def ready(self, step):
        leaves = {
            "observation": step.observations,
            "action": step.actions,
            ("next", "observation"): step.next_observations,
            ("next", "reward"): step.rewards,
            ("next", "terminated"): step.terminated,
            ("next", "done"): step.terminated | step.truncated,
        }
        leaves = {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}
        return (tensordict.TensorDict(leaves, batch_size=[len(step.rewards)]),)

    def add(self, step):
        self.buffer.extend(step)

    def sample(self, n):
        return self.buffer.sample(n)

    def read(self, found):
        then = found["next"]
        names = ("reward", "terminated", "observation")
        seen = found["observation"].numpy(), found["action"].numpy()
        return *seen, *(then[name].numpy() for name in names)

    def save(self, folder):
        self.buffer.dumps(folder)

    def load(self, folder):
        self.buffer.loads(folder)


class TorchrlPrioritized(Torchrl):
    """`LazyTensorStorage` behind a `TensorDictPrioritizedReplayBuffer`."""

    def made(self, storage):
        return data.TensorDictPrioritizedReplayBuffer(
            alpha=0.6, beta=0.4, eps=1e-6, storage=storage, batch_size=256
        )

    def indices(self, found):
        return found["index"]

    def priorities(self, numbers):
        return torch.from_numpy(numbers)

    def set(self, indices, priorities):
        self.buffer.update_priority(indices, priorities)
