"""Replay buffers: steps and values kept in host memory between updates.

Here are trees over numbered values, which reduce ranges of them and draw by weight;
buffers of the last steps of environments, on the host or in variables on a device; a
store of episodes, from which samplers draw transitions or sequences, uniformly or by
priority, as arrays or a `tf.data.Dataset`; the rows of numpy arrays below them, in
memory, in files or shared between processes; and saving of all of it to the disk.
Losses that weigh what was drawn are in `tfrl.losses`, running statistics of
observations in `tfrl.stats`.
"""

from tfrl.replay.data_buffer import DataBuffer
from tfrl.replay.disk.saving import check_saved, load, save
from tfrl.replay.episodes import EpisodeStore, Step
from tfrl.replay.locking import atomic
from tfrl.replay.memory.numpy_storage import NumpyStorage
from tfrl.replay.memory.variable_storage import VariableStorage
from tfrl.replay.ring_buffer import RingBuffer
from tfrl.replay.sampling.dataset import as_dataset
from tfrl.replay.sampling.prioritized import PrioritizedReplay
from tfrl.replay.sampling.segment_tree import MaxTree, MinTree, SegmentTree, SumTree
from tfrl.replay.sampling.single_pass import SinglePass
from tfrl.replay.sampling.transitions import Hindsight, Sample, Sequences, Transitions
from tfrl.replay.sampling.uniform import UniformReplay

__all__ = [
    "DataBuffer",
    "EpisodeStore",
    "Hindsight",
    "MaxTree",
    "MinTree",
    "NumpyStorage",
    "PrioritizedReplay",
    "RingBuffer",
    "Sample",
    "SegmentTree",
    "Sequences",
    "SinglePass",
    "Step",
    "SumTree",
    "Transitions",
    "UniformReplay",
    "VariableStorage",
    "as_dataset",
    "atomic",
    "check_saved",
    "load",
    "save",
]
