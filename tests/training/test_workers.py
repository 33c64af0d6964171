"""What workers give each other; real ones are in `test_trainer_strategies`."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import records
from tfrl.training import _processes


def test_one_worker_has_its_own():
    for strategy in (None, tf.distribute.MultiWorkerMirroredStrategy()):
        workers = _processes.Workers(strategy)
        assert (workers.count, workers.rank, workers.is_chief) == (1, 0, True)
        assert workers.gather(b"ab") == [b"ab"]
        assert workers.gather_values({"a": (1, 2)}) == [{"a": (1, 2)}]
        own = records.Trajectory(*[np.zeros((2, 1))] * 7)
        assert workers.join(own) is own
        workers.check_alike({"seed": 3})
        asked = [False]
        workers.stop_when(lambda asked=asked: asked[0])
        assert not workers.stopped
        asked[0] = True
        assert workers.stopped


def test_the_strategy_in_scope_is_taken():
    strategy = tf.distribute.OneDeviceStrategy("CPU:1")
    with strategy.scope():
        workers = _processes.Workers()
    assert not tf.distribute.has_strategy()
    with workers.scope():
        assert tf.distribute.get_strategy() is strategy
    with _processes.Workers().scope():
        assert not tf.distribute.has_strategy()


def test_strategies_that_do_not_fit():
    with pytest.raises(TypeError, match="`strategy` expected a tf.distribute.Strategy"):
        _processes.Workers("mirrored")
    one, other = (tf.distribute.OneDeviceStrategy(f"CPU:{i}") for i in range(2))
    with one.scope():
        assert _processes.Workers(one).count == 1
        with pytest.raises(ValueError, match="`strategy` expected that in scope"):
            _processes.Workers(other)


class _Several(_processes.Workers):
    """Two workers, as the rest of the class sees them; the other one gives `other`."""

    def __init__(self, other):
        super().__init__()
        self.count, self.other = 2, other

    def gather(self, data):
        return [data, self.other(data)]


def test_trajectories_are_joined_side_by_side():
    rng = np.random.default_rng(0)
    mine = records.Trajectory(
        observations={"image": rng.integers(0, 255, (3, 2, 4)).astype(np.uint8)},
        actions=rng.integers(0, 5, (3, 2)),
        rewards=rng.normal(size=(3, 2)).astype(np.float32),
        terminated=rng.random((3, 2)) < 0.5,
        truncated=rng.random((3, 2)) < 0.5,
        next_observations={"image": rng.integers(0, 255, (3, 2, 4)).astype(np.uint8)},
        valid=rng.random((3, 2)) < 0.5,
    )
    workers = _Several(lambda data: data)
    workers.stop_when(lambda: False)
    joined = workers.join(mine)
    for one, both in zip(tf.nest.flatten(mine), tf.nest.flatten(joined), strict=True):
        assert both.dtype == one.dtype
        np.testing.assert_array_equal(both, np.concatenate([one, one], axis=1))
    assert not workers.stopped
    # The other one is asked to stop: its first byte says so.
    workers = _Several(lambda data: b"\1" + data[1:])
    workers.join(mine)
    assert workers.stopped


def test_workers_that_differ_are_told_in_what():
    workers = _Several(lambda data: data.replace(b"7", b"8"))
    workers.check_alike({"n_steps": 5})
    with pytest.raises(
        ValueError, match="`seed` expected alike .* got 7 .* and 8 on w"
    ):
        workers.check_alike({"n_steps": 5, "seed": 7})


def test_a_lost_worker_is_put_in_words():
    workers = _Several(bytes)
    lost = tf.errors.UnavailableError(None, None, "Connection reset by peer")
    with pytest.raises(ConnectionError, match="expected all 2 workers to stay; got"):
        with workers.guarded():
            raise lost
    aborted = tf.errors.InternalError(None, None, "Collective ops is aborted by: x")
    with pytest.raises(ConnectionError), workers.guarded():
        raise aborted
    other = tf.errors.InternalError(None, None, "out of luck")
    with pytest.raises(tf.errors.InternalError), workers.guarded():
        raise other
    with pytest.raises(tf.errors.UnavailableError), _processes.Workers().guarded():
        raise lost
