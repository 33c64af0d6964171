"""Storage on variables, and the buffers that live on it inside tf.function."""

import functools

import modes
import numpy as np
import pytest
import tensorflow as tf

from tfrl import replay

SPEC = {"x": tf.TensorSpec([2], tf.float32), "t": tf.TensorSpec([], tf.int64)}
ELSEWHERE = "/CPU:1"
# Nothing here takes the time to be converted.
graph = functools.partial(tf.function, autograph=False)


def steps(numbers):
    t = tf.cast(tf.convert_to_tensor(numbers), tf.int64)
    return {"x": tf.cast(tf.stack([t, -t], axis=-1), tf.float32), "t": t}


def ring(device="/CPU:0"):
    return replay.RingBuffer(SPEC, 3, 2, device=device)


def contents(buffer):
    return [variable.numpy() for variable in buffer.variables]


def assert_same(found, expected):
    tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("mode", ["eager", "xla"])
def test_rows_come_back(mode):
    storage = replay.VariableStorage(SPEC, 4)

    def script(idx):
        storage.set(idx, steps(idx * 10))
        return storage.get([[0, 1], [3, 2]])

    found = modes.run(mode, script, tf.constant([2, 0], tf.int64))
    assert_same(found["t"], np.array([[0, 0], [0, 20]]))
    assert_same(found["x"][1, 1], np.array([20.0, -20.0]))


@pytest.mark.parametrize(
    "dtype", "bool uint8 int32 float16 bfloat16 float64 complex64".split()
)
def test_dtypes_are_kept(dtype):
    storage = replay.VariableStorage(tf.TensorSpec([2], dtype), 3)
    value = tf.cast([[1, 0]], dtype)
    storage.set([1], value)
    found = storage.get(1)
    assert found.dtype == dtype
    assert_same(found, value[0])


def test_any_shape_of_row():
    spec = (tf.TensorSpec([0]), {"a": (tf.TensorSpec([2, 1], tf.uint8), ())})
    storage = replay.VariableStorage(spec, 2)
    storage.set([0], (tf.zeros([1, 0]), {"a": (np.full([1, 2, 1], 7, np.uint8), ())}))
    empty, rest = storage.get([0, 1])
    assert empty.shape == (2, 0)
    assert_same(rest["a"][0][:, 0, 0], np.array([7, 0]))
    assert storage.capacity == 2


def test_precision_of_floats_adapts_and_nothing_else():
    storage = replay.VariableStorage(tf.TensorSpec([]), 2)
    storage.set([0, 1], np.array([0.5, 1.5]))
    storage.set([1], np.array([7], np.int16))
    assert_same(storage.get([0, 1]), np.array([0.5, 7.0]))
    with pytest.raises(TypeError, match="expected float32; got int32; cast it"):
        storage.set([0], np.array([1], np.int32))
    integers = replay.VariableStorage(tf.TensorSpec([], tf.int32), 2)
    with pytest.raises(TypeError, match="expected int32; got float32; cast it"):
        integers.set([0], np.array([1.0], np.float32))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda s: s.get(4), ValueError, r"`idx` expected integers in .*; got 4"),
        (lambda s: s.set([-1], steps([0])), ValueError, "`idx` .*got -1 to -1"),
        (lambda s: s.get([0.0]), TypeError, "`idx` expected integers; got float64"),
        (lambda s: s.set([0], {"x": 0}), ValueError, "`value` expected a nest like"),
        (lambda s: s.set([0], steps([0, 1])), ValueError, r"shape \(1,\); got \(2,\)"),
    ],
    ids=["high", "negative", "float", "structure", "rows"],
)
def test_storage_refuses(call, error, match):
    storage = replay.VariableStorage(SPEC, 4)
    before = contents(storage)
    with pytest.raises(error, match=match):
        call(storage)
    assert_same(contents(storage), before)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"capacity": 0}, ValueError, "`VariableStorage`: `capacity` expected"),
        ({"capacity": "4"}, TypeError, "`capacity` expected an int of at least 1"),
        ({"device": 0}, TypeError, "`device` expected a string; got 0"),
        ({"device": "/CPU:9"}, ValueError, "expected one of .*CPU:1.*; got '/CPU:9'"),
        ({"data_spec": tf.TensorSpec([None])}, ValueError, "expected known dimensions"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_storage_constructor_refuses(kwargs, error, match):
    with pytest.raises(error, match=match):
        replay.VariableStorage(**{"data_spec": SPEC, "capacity": 4, **kwargs})


@pytest.mark.parametrize("device", ["/CPU:0", ELSEWHERE])
def test_variables_live_where_asked(device):
    for buffer in (ring(device), replay.DataBuffer(SPEC, 2, device)):
        places = {variable.device for variable in buffer.variables}
        assert [place[-6:] for place in places] == [f":{device[1:]}"]
        assert not buffer.trainable_variables


def script_of(buffer):
    """A round of all calls that a training loop makes."""

    def script(start, env_ids):
        buffer.enqueue(steps(start + tf.range(3)))
        buffer.enqueue(steps(start + 10 + tf.range(2)), env_ids)
        buffer.remove_up_to(1, [2])
        earliest = buffer.get_earliest_position(env_ids)
        return {
            "read": buffer.get(env_ids[:, None], earliest[:, None] + [[0, 1]]),
            "space": buffer.has_space(env_ids),
            "data": buffer.has_data(env_ids, 2),
            "taken": buffer.dequeue(env_ids, n=2),
            "sizes": buffer.current_size,
            "positions": buffer.get_current_position(),
        }

    return script


@pytest.mark.parametrize(
    ("mode", "device"),
    [
        pytest.param("graph", "/CPU:0", marks=pytest.mark.slow),
        ("graph", ELSEWHERE),
        pytest.param("xla", ELSEWHERE, marks=pytest.mark.slow),
    ],
)
def test_ring_buffer_in_a_graph_is_the_eager_one(mode, device):
    eager, other = ring(device), ring(device)
    compiled = modes.in_mode(mode, script_of(other))
    with tf.device(device):
        for start in range(5):
            given = tf.constant(100 * start), tf.constant([start % 2, 1 - start % 2])
            assert_same(compiled(*given), script_of(eager)(*given))
            assert_same(contents(other), contents(eager))


@pytest.mark.parametrize("mode", [pytest.param("graph", marks=pytest.mark.slow), "xla"])
def test_data_buffer_in_a_graph_is_the_eager_one(mode):
    eager, other = (replay.DataBuffer(SPEC, 5, "/CPU:0", seed=3) for _ in range(2))

    def script_of(buffer):
        def script(numbers):
            buffer.add_batch(steps(numbers))
            newest = buffer.current_size - 1
            return (
                buffer.get_batch_by_indices(tf.stack([newest, newest * 0])),
                buffer.get_batch(4),
                buffer.is_full(),
                buffer.current_pos,
            )

        return script

    compiled = modes.in_mode(mode, script_of(other))
    for numbers in (range(3), range(10, 13), range(20, 27)):
        numbers = tf.constant(list(numbers))
        assert_same(compiled(numbers), script_of(eager)(numbers))
        assert_same(contents(other), contents(eager))


def test_graph_of_unknown_sizes():
    buffer = replay.DataBuffer(SPEC, 4, "/CPU:0")
    unknown = {
        "x": tf.TensorSpec([None, 2], tf.float32),
        "t": tf.TensorSpec([None], tf.int64),
    }
    add = graph(buffer.add_batch, input_signature=[unknown])
    for numbers in ([0, 1], [2], [], [3, 4, 5, 6, 7, 8]):
        add(steps(np.array(numbers, np.int64)))
    found = graph(buffer.get_all)()
    assert_same(found["t"], np.array([5, 6, 7, 8]))
    assert int(buffer.current_pos) == 7
    # Of one leaf not even the rank is known: the other tells the size.
    hidden = {
        "x": tf.TensorSpec([2, 2], tf.float32),
        "t": tf.TensorSpec(None, tf.int64),
    }
    graph(buffer.add_batch, input_signature=[hidden])(steps([9, 10]))
    assert_same(buffer.get_all()["t"], np.array([7, 8, 9, 10]))
    environments = ring()
    ids = tf.TensorSpec([None], tf.int64)
    graph(environments.enqueue, input_signature=[unknown, ids])(
        steps([7, 8]), tf.constant([2, 0], tf.int64)
    )
    assert_same(environments.current_size, np.array([1, 0, 1]))


@pytest.mark.slow
def test_compiled_training_loop_fits_from_its_own_buffer():
    buffer = replay.DataBuffer(
        (tf.TensorSpec([2]), tf.TensorSpec([])), 64, "/CPU:0", seed=0
    )
    weights = tf.Variable([0.0, 0.0])

    @tf.function(jit_compile=True)
    def train(seed):
        for step in tf.range(100):
            x = tf.random.stateless_normal([4, 2], [seed, step])
            buffer.add_batch((x, tf.linalg.matvec(x, [2.0, -1.0])))
            inputs, targets = buffer.get_batch(32)
            error = tf.linalg.matvec(inputs, weights) - targets
            weights.assign_sub(0.1 * tf.linalg.matvec(inputs, error, True) / 32.0)

    train(tf.constant(7))
    np.testing.assert_allclose(weights, [2.0, -1.0], atol=1e-2)
    assert int(buffer.current_pos) == 400


def test_what_tracing_knows_is_refused_while_tracing():
    buffer = ring()

    @tf.function
    def enqueue(ids):
        return buffer.enqueue(steps(tf.range(2)), ids)

    with pytest.raises(ValueError, match="one row for each of 3 environments; got 2"):
        enqueue(tf.constant([0, 1, 2]))
    with pytest.raises(TypeError, match="`env_ids` expected integers; got float32"):
        enqueue(tf.constant([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"shape \[B\], B > 0; got \[1, 2\]"):
        enqueue(tf.constant([[0, 1]]))


def test_what_a_graph_finds_out_later_is_an_assertion():
    buffer = ring()
    before = contents(buffer)
    empty, zero = replay.DataBuffer(SPEC, 2, "/CPU:0"), tf.constant([0])
    for call, match in (
        (lambda _: buffer.dequeue(n=2), "expected sizes of at least 2"),
        (lambda step: buffer.get([0], step), "`positions` expected steps"),
        (lambda one: buffer.clear(one + 3), "`env_ids` expected integers"),
        (lambda _: empty.get_batch(2), "a buffer that holds rows"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=match):
            graph(call)(zero)
    assert_same(contents(buffer), before)


def test_xla_asserts_nothing_and_sizes_stay_at_least_zero():
    buffer = ring()
    taken = graph(lambda: buffer.dequeue(n=2), jit_compile=True)()
    assert taken["t"].shape == (3, 2)
    assert_same(buffer.current_size, np.zeros([3]))
