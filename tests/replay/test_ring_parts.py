"""What ring buffers are made of."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.replay import _ring_parts

SPEC = {"x": tf.TensorSpec([2]), "t": tf.TensorSpec([], tf.int64)}
LAYOUTS = {
    device: _ring_parts.parts("f", SPEC, 3, 4, device, shared=False)[0]
    for device in ("cpu", "/CPU:0")
}
on_devices = pytest.mark.parametrize("device", LAYOUTS, ids=["host", "variables"])


def batch(t_size, *x_shape):
    return {"x": np.zeros(x_shape), "t": np.zeros([t_size])}


@on_devices
def test_rows_of_positions_by_hand(device):
    layout = LAYOUTS[device]
    assert (layout.num_environments, layout.max_length) == (3, 4)
    ids = layout.distinct_ids("f", [0, 2])
    rows = layout.rows(ids, layout.integers("f", "positions", [5, 8]))
    np.testing.assert_array_equal(rows, [1, 8])


@on_devices
def test_parts_have_a_row_for_each_environment_and_step(device):
    _, positions, storage = _ring_parts.parts("f", SPEC, 3, 4, device, shared=False)
    assert storage.capacity == 12
    np.testing.assert_array_equal(positions.get(np.arange(3)), np.zeros([2, 3]))


def test_batches_have_one_size():
    layout = LAYOUTS["cpu"]
    assert layout.ranks == (0, 1)
    assert layout.batch_size("f", batch(5, 5, 2)) == 5
    assert layout.batch_size("f", batch(0, 0, 2)) == 0
    for wrong in (batch(5, 4, 2), batch(2, 2), {"x": np.zeros([5, 2])}, 1.0, ()):
        with pytest.raises(ValueError, match="`f`: `batch` expected .* of one B; got"):
            layout.batch_size("f", wrong)


def test_a_batch_has_a_row_for_each_environment():
    layout = LAYOUTS["cpu"]
    layout.check_batch("f", batch(2, 2, 2), np.array([0, 2]))
    with pytest.raises(ValueError, match="`f`: .* each of 1 environments; got 2; give"):
        layout.check_batch("f", batch(2, 2, 2), np.array([0]))


def test_tracing_may_hide_sizes():
    layout, seen = LAYOUTS["/CPU:0"], []

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2]),
            tf.TensorSpec(None),
            tf.TensorSpec([4]),
        ]
    )
    def graph(rows, anything, four):
        seen.append(layout.batch_size("f", {"x": rows, "t": anything}))
        seen.append(layout.batch_size("f", {"x": rows, "t": four}))

    graph.get_concrete_function()
    assert seen == [None, 4]


@on_devices
def test_ids_exist_and_come_once(device):
    layout = LAYOUTS[device]
    np.testing.assert_array_equal(layout.ids("f", [[2, 2]]), [[2, 2]])
    with pytest.raises(ValueError, match=r"`env_ids` expected integers in \[0, 3\)"):
        layout.ids("f", [3])
    with pytest.raises(ValueError, match="each id once"):
        layout.distinct_ids("f", [2, 2])
