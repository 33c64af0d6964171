"""Transforms around transforms: by hand, in loops, packed or not, and errors."""

import pickle

import numpy as np
import pytest
import refusals
import tensorflow as tf
from default_rows import slow
from refusals import bad

from tfrl import agents
from tfrl.agents import _packed, train_state


def draw(steps=6):
    rng = np.random.default_rng(0)
    grads = [
        {
            "a": rng.normal(size=(2, 3)),
            "b": rng.normal(size=3),
            "c": rng.normal(size=()),
        }
        for _ in range(steps)
    ]
    return tf.nest.map_structure(tf.constant, [*grads, grads[0]])


def walk(transform, grads, params):
    state = transform.init(params)
    for grad in grads:
        updates, state = transform.update(grad, state, params)
        params = tf.nest.map_structure(tf.add, params, updates)
    return params, state


def is_matrix(params):
    return tf.nest.map_structure(lambda x: x.shape.rank == 2, params)


def by_rank(params):
    return tf.nest.map_structure(lambda x: x.shape.rank, params)


def assert_same(one, other):
    tf.nest.map_structure(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), one, other
    )


def test_accumulated_gradients_count_as_their_mean():
    *grads, params = draw(6)
    for inner in (
        agents.adam(0.1),
        agents.sgd(lambda n: 0.1 * tf.cast(n + 1, "float64")),
    ):
        transform, state = agents.accumulated(inner, 3), None
        state, now = transform.init(params), params
        for count, grad in enumerate(grads, start=1):
            updates, state = transform.update(grad, state, now)
            if count % 3:
                assert_same(updates, tf.nest.map_structure(tf.zeros_like, params))
            now = tf.nest.map_structure(tf.add, now, updates)
        means = [
            tf.nest.map_structure(lambda *x: tf.add_n(x) / 3, *grads[start : start + 3])
            for start in (0, 3)
        ]
        assert_same(now, walk(inner, means, params)[0])
    once = agents.accumulated(agents.adam(0.1), 1)
    assert_same(walk(once, grads, params)[0], walk(agents.adam(0.1), grads, params)[0])


def test_parameters_that_are_needed_are_missed_at_once():
    transform, grads = agents.accumulated(agents.lion(0.1), 2), [tf.constant(3.0)]
    with pytest.raises(ValueError, match="`params` expected the parameters"):
        transform.update(grads, transform.init(grads))


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, *slow(True)], ids=["graph", "xla"])
def test_one_compiled_loop_equals_eager_steps(jit_compile):
    *grads, params = draw(6)
    rules = {2: agents.adamw(0.1), 1: agents.lamb(0.1), 0: None}
    transform = agents.chain(
        agents.masked(agents.clip_by_global_norm(0.5), is_matrix),
        agents.accumulated(agents.partitioned(rules, by_rank), 2),
    )
    stacked = tf.nest.map_structure(lambda *x: tf.stack(x), *grads)

    @tf.function(jit_compile=jit_compile)
    def loop(params, state, stacked):
        def body(step, params, state):
            grad = tf.nest.map_structure(lambda x: x[step], stacked)
            updates, state = transform.update(grad, state, params)
            return step + 1, tf.nest.map_structure(tf.add, params, updates), state

        return tf.while_loop(lambda step, *_: step < 6, body, (0, params, state))[1:]

    found, _ = loop(params, transform.init(params), stacked)
    expected, _ = walk(transform, grads, params)
    assert_same(found, expected)
    np.testing.assert_array_equal(found["c"], params["c"])


def test_each_part_is_treated_as_if_it_were_alone():
    *grads, params = draw(4)
    clipped = agents.chain(agents.clip_by_global_norm(0.3), agents.adam(0.1))
    rules = {2: clipped, 1: agents.sgd(0.5, momentum=0.9), 0: None}
    found, _ = walk(agents.partitioned(rules, by_rank), grads, params)
    for name, rule in (("a", clipped), ("b", rules[1])):
        own = [{name: grad[name]} for grad in grads]
        assert_same(found[name], walk(rule, own, {name: params[name]})[0][name])
    np.testing.assert_array_equal(found["c"], params["c"])


def test_masked_gradients_pass_where_the_mask_is_false():
    *_, grads = draw(1)
    halved = agents.masked(agents.scale_by_schedule(lambda n: 0.5), is_matrix)
    updates, state = halved.update(grads, halved.init(grads))
    assert_same(updates, {**grads, "a": 0.5 * grads["a"]})
    # Weights decay of those named alone.
    decay = agents.masked(agents.adamw(0.1, weight_decay=0.5), is_matrix)
    zeros = tf.nest.map_structure(tf.zeros_like, grads)
    updates, _ = decay.update(zeros, decay.init(grads), grads)
    assert_same(updates, {**zeros, "a": -0.05 * grads["a"]})


def test_the_learning_rate_changes_within():
    *_, grads = draw(1)
    rules = {2: agents.adam(0.1), 1: agents.sgd(0.1), 0: None}
    transform = agents.accumulated(agents.partitioned(rules, by_rank), 1)
    state = agents.with_learning_rate(transform.init(grads), 0.25)
    updates, _ = transform.update(grads, state, grads)
    np.testing.assert_allclose(updates["b"], -0.25 * grads["b"])
    np.testing.assert_allclose(updates["a"], -0.25 * np.sign(grads["a"]), rtol=1e-5)
    scheduled = agents.accumulated(agents.sgd(lambda n: 0.1), 2)
    with pytest.raises(ValueError, match="`with_learning_rate`: `state`"):
        agents.with_learning_rate(scheduled.init(grads), 0.1)


def test_made_alike_they_are_equal_and_survive_copies():
    rules = {True: agents.lion(0.1), False: None}
    for make in (
        lambda: agents.accumulated(agents.adam(0.1), 2),
        lambda: agents.masked(agents.lamb(0.1), is_matrix),
        lambda: agents.partitioned(rules, is_matrix),
    ):
        assert make() == make()
        assert hash(make()) == hash(make())
        assert pickle.loads(pickle.dumps(make())) == make()


@pytest.mark.parametrize("vector", [*slow(False), True], ids=["apart", "in a vector"])
def test_steps_do_not_depend_on_how_many_layers_there_were_before(vector):
    """Of names that Keras counted: `tf.nest` sorts `dense_10` before `dense_9`."""

    def steps(first):
        tx = agents.chain(agents.clip_by_global_norm(0.01), agents.sgd(0.1))
        rng = np.random.default_rng(0)
        names = [f"dense_{first + k}" if first + k else "dense" for k in range(12)]
        grads = {
            f"{name}/{part}": tf.constant(rng.normal(size=shape), tf.float32)
            for name in names
            for part, shape in (("kernel", [7, 5]), ("bias", [5]))
        }
        params = tf.nest.map_structure(tf.zeros_like, grads)
        state = train_state.TrainState.create(lambda p: p, params, tx)
        packing = _packed.Packing.of(state) if vector else None
        given = grads
        if packing is not None:
            given, state = packing._vector(grads), packing.pack(state)
        step = tf.function(lambda x, y: x.apply_gradients(grads=y), jit_compile=True)
        for k in range(20):
            scaled = tf.nest.map_structure(lambda x, by=1.37**k: x * by, given)
            state = step(state, scaled)
        state = state if packing is None else packing.unpack(state)
        return [state.params[name].numpy() for name in grads]

    expected = steps(0)
    for first in (1, 4, 7, 95):
        for mine, other in zip(steps(first), expected, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    ("transform", "packs"),
    [
        (agents.lion(0.1), True),
        (agents.nadam(0.1), True),
        (agents.adagrad(0.1), True),
        (agents.lamb(0.1), False),
        (agents.accumulated(agents.adam(0.1), 2), False),
        (agents.masked(agents.adam(0.1), is_matrix), False),
    ],
    ids=["lion", "nadam", "adagrad", "lamb", "accumulated", "masked"],
)
def test_what_looks_at_places_is_not_packed_into_a_vector(transform, packs):
    *_, grads, params = draw(1)
    state = train_state.TrainState.create(tf.multiply, params=params, tx=transform)
    packing = _packed.Packing.of(state)
    assert (packing is not None) == packs
    if packs:
        vector = packing.pack(state)
        stepped = vector.apply_gradients(grads=packing._vector(grads))
        expected = state.apply_gradients(grads=grads)
        assert_same(packing.unpack(stepped).params, expected.params)


@pytest.mark.parametrize("limit", [0.1, pytest.param(9.0, marks=pytest.mark.slow)])
def test_fused_steps_are_those_of_their_parts(monkeypatch, limit):
    *_, grads, params = draw(1)
    transform = agents.chain(agents.clip_by_global_norm(limit), agents.adam(0.1))
    state = train_state.TrainState.create(tf.multiply, params=params, tx=transform)
    assert _packed.Fused.of(state) is None
    monkeypatch.setattr(_packed, "_MOST_NUMBERS", 0)
    fused = _packed.Fused.of(state)
    stepped = tf.function(lambda s, x: fused.pack(s).apply_gradients(grads=x))
    expected, found = state.apply_gradients(grads=grads), stepped(state, grads)
    assert fused.unpack(found).tx == transform != found.tx
    assert_same(found.params, expected.params)
    assert_same(found.opt_state, expected.opt_state)


@refusals.table(
    (
        agents.accumulated,
        bad(TypeError, "transform", tf.exp, 2),
        bad(ValueError, "n_steps", agents.sgd(0.1), 0),
        bad(TypeError, "n_steps", agents.sgd(0.1), 1.5),
    ),
    (
        agents.masked,
        bad(TypeError, "transform", None, is_matrix),
        bad(TypeError, "mask", agents.sgd(0.1), {"a": True}),
        bad(TypeError, "mask", agents.sgd(0.1), None),
    ),
    (
        agents.partitioned,
        bad(TypeError, "transforms", agents.sgd(0.1), by_rank),
        bad(TypeError, "transforms", {2: 0.1}, by_rank),
        bad(TypeError, "labels", {2: agents.sgd(0.1)}, None),
    ),
)
def test_errors(row):
    row()


def test_labels_that_do_not_fit_are_named():
    *_, params = draw(1)
    transform = agents.partitioned({2: agents.sgd(0.1)}, by_rank)
    with pytest.raises(ValueError, match=r"`partitioned`: `labels` .* \[2\].* got 1"):
        transform.init(params)
    transform = agents.masked(agents.sgd(0.1), lambda params: True)
    with pytest.raises(ValueError, match="`masked`: `mask` expected .* nest"):
        transform.init(params)
    with pytest.raises(ValueError, match="`params` expected"):
        lamb = agents.lamb(0.1)
        lamb.update(params, lamb.init(params))
