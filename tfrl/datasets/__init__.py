"""Supervised datasets: data to learn from that no environment has to make.

Here are supervised sets as `tf.data`: a linear problem to try learners on, images and
texts of the field, downloaded once by Keras or read from files at hand. Nothing of a
given file is ever executed. What agents remember of their own experience lives in
`tfrl.replay`, the losses in `tfrl.losses`, predictions of a set in `tfrl.training`.
"""

from tfrl.datasets.images import get_classes, load_cifar10, load_mnist
from tfrl.datasets.linear import TestDataSet, load_test
from tfrl.datasets.text import load_wikitext2, load_wikitext103

__all__ = [
    "TestDataSet",
    "get_classes",
    "load_cifar10",
    "load_mnist",
    "load_test",
    "load_wikitext103",
    "load_wikitext2",
]
