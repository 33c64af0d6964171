"""Five arrays of transitions, saved by NumPy, by torch, and with nothing in between."""

import pathlib

import numpy as np


class Arrays:
    """What a replay of whole transitions holds, full, and nothing around it."""

    def __init__(self, case, width):
        del width
        fields = ((*case.shape,), case.dtype), ((), "int64"), ((), "float32")
        self.arrays = [
            np.zeros((case.capacity, *shape), dtype)
            for shape, dtype in (*fields, ((), "bool"), fields[0])
        ]

    def fill(self):
        rng = np.random.default_rng(0)
        for array in self.arrays:
            flat = array.reshape(-1).view(np.uint8)
            flat[:] = np.resize(rng.integers(0, 2, 1 << 20, np.uint8), flat.size)


class NumpyArrays(Arrays):
    """`numpy.save`, one file for each."""

    def save(self, folder):
        for k, array in enumerate(self.arrays):
            np.save(f"{folder}/{k}.npy", array)

    def load(self, folder):
        self.arrays = [np.load(f"{folder}/{k}.npy") for k in range(len(self.arrays))]


class TorchArrays(Arrays):
    """`torch.save`, all in one file."""

    def save(self, folder):
        import torch  # noqa: PLC0415

        torch.save([torch.from_numpy(x) for x in self.arrays], f"{folder}/arrays.pt")

    def load(self, folder):
        import torch  # noqa: PLC0415

        self.arrays = [x.numpy() for x in torch.load(f"{folder}/arrays.pt")]


class PlainFiles(Arrays):
    """The bytes alone, into and out of the memory where they are."""

    def save(self, folder):
        for k, array in enumerate(self.arrays):
            with open(f"{folder}/{k}", "wb", buffering=0) as file:
                rest = memoryview(array.reshape(-1).view(np.uint8))
                while rest:
                    rest = rest[file.write(rest) :]

    def load(self, folder):
        for k, array in enumerate(self.arrays):
            with pathlib.Path(f"{folder}/{k}").open("rb", buffering=0) as file:
                rest = memoryview(array.reshape(-1).view(np.uint8))
                while rest:
                    rest = rest[file.readinto(rest) :]
