"""Makers of inputs: functions of a generator and a batch size to arrays by name."""

import numpy as np


def sized(shape, batch):
    return tuple(batch if size == "B" else size for size in shape)


def normal(**shapes):
    """Normal numbers; "B" in a shape stands for the batch size."""

    def make(rng, batch):
        return {name: rng.normal(size=sized(s, batch)) for name, s in shapes.items()}

    return make


def both(*makers):
    """The inputs of several makers together."""

    def make(rng, batch):
        return {k: v for maker in makers for k, v in maker(rng, batch).items()}

    return make


def uniform(least=0.0, greatest=1.0, /, **shapes):
    """Numbers of an interval, away from its ends."""

    def make(rng, batch):
        share = {k: rng.uniform(0.05, 0.95, sized(s, batch)) for k, s in shapes.items()}
        return {
            name: least + (greatest - least) * numbers
            for name, numbers in share.items()
        }

    return make


def integers(count, **shapes):
    """Integers from 0 to below `count`."""

    def make(rng, batch):
        drawn = {
            name: rng.integers(0, count, size=sized(shape, batch))
            for name, shape in shapes.items()
        }
        return {name: numbers.astype(np.int32) for name, numbers in drawn.items()}

    return make


def discounts(name="discounts", shape=("B",)):
    """Discounts of which a fifth tell of an end."""
    return lambda rng, batch: {name: 0.9 * (rng.random(sized(shape, batch)) > 0.2)}


def probabilities(**shapes):
    """Distributions over the last axis."""

    def make(rng, batch):
        drawn = {k: rng.gamma(2.0, size=sized(s, batch)) for k, s in shapes.items()}
        return {k: v / v.sum(axis=-1, keepdims=True) for k, v in drawn.items()}

    return make


def constant(**arrays):
    """The same arrays whatever the batch size is."""
    return lambda rng, batch: {name: np.array(a, float) for name, a in arrays.items()}
