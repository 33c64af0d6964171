"""Networks, saved and loaded by tfrl, TensorFlow, torch and NumPy."""

import pathlib
import shutil

import numpy as np
import tensorflow as tf

from tfrl.saving import checkpointer, checkpoints


class Contender:
    """Saves to and loads from `folder`; `lasting` if the disk has it then."""

    lasting = False

    def __init__(self, arrays, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.make(arrays)

    def clear(self):
        """Removes what was saved before: nobody is to overwrite, nobody to append."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()


class Run(Contender):
    """`tfrl.saving.save_run`."""

    lasting = True

    def make(self, arrays):
        self.state = {f"w{k}": tf.constant(x) for k, x in enumerate(arrays)}

    def save(self):
        checkpoints.save_run(self.folder, 1, self.state, {"step": 1})

    def load(self):
        self.state = checkpoints.load_run(self.folder, self.state)[0]


class Checkpointer(Contender):
    """`tfrl.saving.Checkpointer`."""

    lasting = True

    def make(self, arrays):
        module = tf.Module()
        module.weights = [tf.Variable(x) for x in arrays]
        self.checkpointer = checkpointer.Checkpointer(self.folder, net=module)

    def save(self):
        self.checkpointer.save(1)

    def load(self):
        self.checkpointer.load()


class Tensorflow(Contender):
    """`tf.train.Checkpoint`."""

    def make(self, arrays):
        weights = [tf.Variable(x) for x in arrays]
        self.checkpoint = tf.train.Checkpoint(weights=weights)

    def save(self):
        self.checkpoint.write(str(self.folder / "checkpoint"))

    def load(self):
        self.checkpoint.read(str(self.folder / "checkpoint")).assert_consumed()


class Numpy(Contender):
    """`numpy.savez`."""

    def make(self, arrays):
        self.arrays = {f"w{k}": x for k, x in enumerate(arrays)}

    def save(self):
        np.savez(self.folder / "arrays.npz", **self.arrays)

    def load(self):
        with np.load(self.folder / "arrays.npz") as found:
            self.arrays = {name: found[name] for name in found}


class Torch(Contender):
    """`torch.save` of a dictionary, loaded into the tensors that are there."""

    def make(self, arrays):
        import torch  # noqa: PLC0415

        self.torch = torch
        self.state = {f"w{k}": torch.from_numpy(x) for k, x in enumerate(arrays)}

    def save(self):
        self.torch.save(self.state, self.folder / "state.pt")

    def load(self):
        found = self.torch.load(self.folder / "state.pt", weights_only=True)
        for name, value in found.items():
            self.state[name].copy_(value)


CONTENDERS = {
    "tfrl save_run": Run,
    "tfrl Checkpointer": Checkpointer,
    "tf.train.Checkpoint": Tensorflow,
    "numpy.savez": Numpy,
    "torch.save": Torch,
}
