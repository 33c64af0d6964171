"""Generators that a checkpoint keeps."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay.sampling import _draws

KINDS = [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64]


@pytest.mark.parametrize("kind", KINDS)
def test_draws_go_on_where_they_were(kind, tmp_path):
    draws = _draws.Draws(np.random.Generator(kind(1)))
    draws.generator.normal(size=5)
    path = tf.train.Checkpoint(draws=draws).save(str(tmp_path / "draws"))
    expected = draws.generator.normal(size=1000)
    fresh = _draws.Draws(np.random.Generator(kind(2)))
    tf.train.Checkpoint(draws=fresh).restore(path).assert_consumed()
    np.testing.assert_array_equal(fresh.generator.normal(size=1000), expected)


def test_another_kind_of_generator_is_refused(tmp_path):
    path = tf.train.Checkpoint(draws=_draws.Draws(1)).save(str(tmp_path / "draws"))
    other = _draws.Draws(np.random.Generator(np.random.Philox(1)))
    with pytest.raises(ValueError, match="Philox"):
        tf.train.Checkpoint(draws=other).restore(path)


def test_no_seed_is_another_each_time():
    first, second = (_draws.Draws(None).generator.integers(2**62) for _ in range(2))
    assert first != second
