"""Datasets: data to learn from that no environment has to make.

Here are supervised sets as `tf.data`: a linear problem to try learners on, images and
texts of the field, downloaded once by Keras or read from files at hand; and experience
that was recorded, of Minari, in NumPy archives or in logs of one's own, with the scores
that D4RL gives. Nothing of a given file is ever executed. What agents remember of their
own experience lives in `tfrl.replay`, the losses in `tfrl.losses`, predictions of a set
in `tfrl.training`.
"""

from tfrl.datasets.images import get_classes, load_cifar10, load_mnist
from tfrl.datasets.linear import TestDataSet, load_test
from tfrl.datasets.recorded import (
    MinariDataset,
    NpzDataset,
    write_minari,
    write_npz,
)
from tfrl.datasets.recorded_rows import join_rows, rows_from_episodes
from tfrl.datasets.scores import normalized_score
from tfrl.datasets.text import load_wikitext2, load_wikitext103

__all__ = [
    "MinariDataset",
    "NpzDataset",
    "TestDataSet",
    "get_classes",
    "join_rows",
    "load_cifar10",
    "load_mnist",
    "load_test",
    "load_wikitext103",
    "load_wikitext2",
    "normalized_score",
    "rows_from_episodes",
    "write_minari",
    "write_npz",
]
