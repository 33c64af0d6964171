"""The stream of seeds: its modes, its checkpoint, its export."""

import copy

import numpy as np
import pytest
import tensorflow as tf

from tfrl.exploration import _seeded


def drawn(module, n=3):
    return [tuple(module.next_seed().numpy()) for _ in range(n)]


def test_the_stream_is_the_seed_s():
    assert drawn(_seeded.Seeded(7)) == drawn(_seeded.Seeded(tf.constant([7, 0])))
    streams = [drawn(_seeded.Seeded(seed)) for seed in (0, 1, -1, 2**40, [1, 1])]
    assert len({seed for stream in streams for seed in stream}) == 15


def test_without_a_seed_the_global_one_chooses():
    streams = []
    for _ in range(2):
        tf.random.set_seed(5)
        streams.append(drawn(_seeded.Seeded(None)) + drawn(_seeded.Seeded(None)))
    assert streams[0] == streams[1]
    assert streams[0][:3] != streams[0][3:]


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_every_mode_draws_the_same(jit):
    eager, compiled = _seeded.Seeded(3), _seeded.Seeded(3)
    step = tf.function(compiled.next_seed, jit_compile=jit)
    assert drawn(eager, 2) == [tuple(step().numpy()) for _ in range(2)]
    assert drawn(eager, 1) == drawn(compiled, 1)


def test_a_given_seed_leaves_the_stream_alone():
    one, other = _seeded.Seeded(3), _seeded.Seeded(3)
    np.testing.assert_array_equal(one.next_seed(9), [9, 0])
    np.testing.assert_array_equal(one.next_seed(tf.constant([1, 2])), [1, 2])
    assert drawn(one) == drawn(other)


def test_checkpoint_and_copy_go_on(tmp_path):
    module = _seeded.Seeded(3)
    drawn(module)
    path = tf.train.Checkpoint(variables=module.variables).write(str(tmp_path / "c"))
    twin = copy.deepcopy(module)
    expected = drawn(module)
    assert drawn(twin) == expected
    other = _seeded.Seeded(8)
    status = tf.train.Checkpoint(variables=other.variables).read(path)
    status.assert_consumed()
    assert drawn(other) == expected


def test_saved_model_goes_on(tmp_path):
    module = _seeded.Seeded(3)
    drawn(module)
    module.served = tf.function(module.next_seed, input_signature=[])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert [tuple(loaded.served().numpy()) for _ in range(3)] == drawn(module)


def test_replicas_of_a_strategy_draw_from_one_stream():
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        module = _seeded.Seeded(3)
    run = tf.function(lambda: strategy.run(module.next_seed))
    seeds = [
        tuple(seed.numpy())
        for _ in range(2)
        for seed in strategy.experimental_local_results(run())
    ]
    assert len(set(seeds)) == 4
