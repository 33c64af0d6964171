"""Gradient transforms: hand-worked steps, a plain oracle, loops, and errors."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import tensorflow as tf

from tfrl.agents import gradient_transforms as transforms

RATES = (0.1, 0.05, 0.2, 0.1)


def oracle(kind, grads, params, rates, **options):
    """Steps of one parameter array, from the papers' equations in float64."""
    p, m, t = params.astype(np.float64), 0.0, 0.0
    v = options.get("initial_scale", 0.0)
    for count, (g, rate) in enumerate(zip(grads, rates, strict=True), start=1):
        if kind.startswith("adam"):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            unbiased = m / (1 - 0.9**count), v / (1 - 0.999**count)
            update = unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
            p = p - rate * (update + options.get("weight_decay", 0.0) * p)
        elif kind == "nadam":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            ahead = 0.9 * m / (1 - 0.9 ** (count + 1)) + 0.1 * g / (1 - 0.9**count)
            p = p - rate * ahead / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
        elif kind == "lamb":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            update = m / (1 - 0.9**count) / (np.sqrt(v / (1 - 0.999**count)) + 1e-6)
            update = update + options["weight_decay"] * p
            p = p - rate * update * np.linalg.norm(p) / np.linalg.norm(update)
        elif kind == "lion":
            sign = np.sign(0.9 * m + 0.1 * g)
            m = 0.99 * m + 0.01 * g
            p = p - rate * (sign + options["weight_decay"] * p)
        elif kind == "adagrad":
            v = v + g**2
            p = p - rate * g / np.sqrt(options["initial_accumulator_value"] + v + 1e-7)
        elif kind == "rmsprop":
            v = 0.9 * v + 0.1 * g**2
            m = 0.9 * m + 0.1 * g
            variance = v - m**2 if options.get("centered") else v
            step = rate * g / np.sqrt(variance + 1e-8)
            t = step + options.get("momentum", 0.0) * t
            p = p - t
        else:
            t = g + options.get("momentum", 0.0) * t
            ahead = g + options["momentum"] * t if options.get("nesterov") else t
            p = p - rate * ahead
    return p


CASES = {
    "sgd": (transforms.sgd, {}),
    "momentum": (transforms.sgd, {"momentum": 0.9}),
    "nesterov": (transforms.sgd, {"momentum": 0.9, "nesterov": True}),
    "adam": (transforms.adam, {}),
    "adamw": (transforms.adamw, {"weight_decay": 0.1}),
    "nadam": (transforms.nadam, {}),
    "lion": (transforms.lion, {"weight_decay": 0.1}),
    "lamb": (transforms.lamb, {"weight_decay": 0.1}),
    "adagrad": (transforms.adagrad, {"initial_accumulator_value": 0.3}),
    "rmsprop": (transforms.rmsprop, {}),
    "rmsprop_momentum": (transforms.rmsprop, {"momentum": 0.5}),
    "rmsprop_centered": (
        transforms.rmsprop,
        {"centered": True, "initial_scale": 2.0},
    ),
}


def walk(transform, grads, params, state=None):
    state = transform.init(params) if state is None else state
    for grad in grads:
        updates, state = transform.update({"w": grad}, state, params)
        params = tf.nest.map_structure(tf.add, params, updates)
    return params, state


def problem(dtype=np.float32):
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 2, 3)).astype(dtype), rng.normal(size=(2, 3)).astype(
        dtype
    )


@pytest.mark.parametrize("rate", ["number", "schedule"])
@pytest.mark.parametrize("case", CASES)
def test_steps_equal_the_equations(case, rate):
    make, options = CASES[case]
    grads, start = problem()
    schedule = lambda count: tf.gather(tf.constant(RATES), count)  # noqa: E731
    transform = make(0.1 if rate == "number" else schedule, **options)
    params, _ = walk(transform, grads, {"w": tf.constant(start)})
    rates = [0.1] * 4 if rate == "number" else RATES
    kind = case.split("_")[0]
    expected = oracle(kind, grads, start, rates, **options)
    # 1 - 0.999 in float32 is off by 1e-5 of itself, in optax as here.
    np.testing.assert_allclose(params["w"], expected, rtol=1e-5, atol=5e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "jit_compile",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["graph", "XLA"],
)
def test_one_trace_of_a_compiled_loop_equals_eager_steps(jit_compile):
    grads, start = problem()
    made = {
        case: transforms.chain(
            transforms.clip_by_global_norm(0.5),
            make(lambda n: 0.1 / (1.0 + tf.cast(n, tf.float32)), **options),
        )
        for case, (make, options) in CASES.items()
        if case not in ("sgd", "momentum", "adam")  # parts of others
    }

    @tf.function(jit_compile=jit_compile)
    def loop(params, states, grads):
        def body(i, params, states):
            for case, transform in made.items():
                updates, states[case] = transform.update(
                    {"w": grads[i]}, states[case], params[case]
                )
                params[case] = tf.nest.map_structure(tf.add, params[case], updates)
            return i + 1, params, states

        return tf.while_loop(lambda i, *_: i < 4, body, (0, params, states))[1:]

    params = {case: {"w": tf.constant(start)} for case in made}
    states = {case: transform.init(params[case]) for case, transform in made.items()}
    for _ in range(2):
        found, later = loop(params, states, tf.constant(grads))
    loop(found, later, tf.constant(grads))
    for case, transform in made.items():
        expected, _ = walk(transform, grads, {"w": tf.constant(start)})
        np.testing.assert_allclose(
            found[case]["w"], expected["w"], rtol=1e-5, atol=1e-6, err_msg=case
        )
    assert loop.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("case", CASES)
def test_dtypes_are_kept(case):
    make, options = CASES[case]
    grads, start = problem(np.float64)
    for rate in (0.1, lambda n: 0.1 / (1.0 + tf.cast(n, tf.float64))):
        transform = make(rate, **options)
        params, state = walk(transform, grads, {"w": tf.constant(start)})
        assert params["w"].dtype == tf.float64
        for before, after in zip(
            tf.nest.flatten(transform.init(params)), tf.nest.flatten(state), strict=True
        ):
            assert (before.dtype, before.shape) == (after.dtype, after.shape)
    params, _ = walk(make(0.1, **options), grads, {"w": tf.constant(start)})
    expected = oracle(case.split("_")[0], grads, start, [0.1] * 4, **options)
    np.testing.assert_allclose(params["w"], expected, rtol=1e-12)
    params = {"w": tf.ones([2], tf.bfloat16)}
    params, _ = walk(make(0.1, **options), [tf.ones([2], tf.bfloat16)], params)
    assert params["w"].dtype == tf.bfloat16
    assert np.all(params["w"].numpy() < 1)


def test_learning_rate_changes_without_a_new_trace():
    transform = transforms.chain(
        transforms.clip_by_global_norm(9.0), transforms.sgd(0.5)
    )

    @tf.function
    def step(params, state):
        updates, state = transform.update({"w": tf.ones(())}, state, params)
        return params["w"] + updates["w"], state

    params = {"w": tf.constant(1.0)}
    state = transform.init(params)
    assert float(step(params, state)[0]) == 0.5
    for rate in (
        0.25,
        np.float64(0.75),
        tf.constant(1.0),
        tf.constant(0.0, tf.float64),
    ):
        value, after = step(params, transforms.with_learning_rate(state, rate))
        np.testing.assert_allclose(value, 1.0 - float(rate))
        np.testing.assert_allclose(after[1]["learning_rate"], float(rate))
    assert step.experimental_get_tracing_count() == 1
    assert float(step(params, state)[0]) == 0.5  # the old state is as it was

    @tf.function
    def rate_after(progress):
        inside = transforms.with_learning_rate(state, 0.5 * (1.0 - progress))
        return transform.update({"w": tf.ones(())}, inside)[0]["w"]

    assert float(rate_after(tf.constant(0.5))) == -0.25


def test_clip_by_global_norm():
    clip = transforms.clip_by_global_norm(5.0)
    grads = {"a": tf.constant([3.0, 0.0]), "b": tf.constant(4.0, tf.float64)}
    for scale, expected in ((1.0, 3.0), (2.0, 3.0), (0.5, 1.5)):
        scaled = tf.nest.map_structure(lambda g: g * tf.cast(scale, g.dtype), grads)  # noqa: B023
        updates, _ = clip.update(scaled, clip.init(grads))
        np.testing.assert_allclose(updates["a"][0], expected, rtol=1e-6)
        assert updates["b"].dtype == tf.float64
    zero = tf.nest.map_structure(tf.zeros_like, grads)
    np.testing.assert_array_equal(clip.update(zero, clip.init(grads))[0]["a"], [0, 0])
    assert clip.update({}, clip.init({}))[0] == {}


@dataclasses.dataclass(frozen=True)
class Centered:
    """Takes the mean off each gradient, and counts."""

    def init(self, params):
        return {"count": tf.constant(0)}

    def update(self, grads, state, params):
        updates = tf.nest.map_structure(lambda g: g - tf.reduce_mean(g), grads)
        return updates, {"count": state["count"] + 1}


def test_an_own_part_joins_a_chain():
    own = transforms.GradientTransform((Centered(),))
    transform = transforms.chain(own, transforms.sgd(1.0))
    grads = [tf.constant([1.0, 3.0])]
    updates, state = transform.update(grads, transform.init(grads))
    assert updates[0].numpy().tolist() == [1.0, -1.0]
    assert int(state[0]["count"]) == 1


def test_gradients_become_dense():
    params = {"a": tf.ones([3, 2]), "b": tf.ones([2]), "c": tf.ones([1])}
    slices = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([2, 0, 2]))
    grads = {"a": slices, "b": None, "c": np.ones(1)}
    up = transforms.scale_by_schedule(lambda n: 1)

    def updates():
        return up.update(grads, up.init(params), params)[0]

    for call in (updates, tf.function(updates, jit_compile=True)):
        found = call()
        np.testing.assert_array_equal(found["a"], [[1, 1], [0, 0], [2, 2]])
        np.testing.assert_array_equal(found["b"], [0, 0])
        assert found["c"].dtype == tf.float32
    with_shape = tf.IndexedSlices(tf.ones([1, 2]), [1], dense_shape=tf.constant([2, 2]))
    found, _ = up.update([with_shape], up.init([]))
    np.testing.assert_array_equal(found[0], [[0, 0], [1, 1]])


@pytest.mark.parametrize(
    ("grads", "params", "message"),
    [
        ([None], None, "`grads` expected tensors; got None"),
        ([1.0, 2.0], [tf.ones(())], "`grads` expected the nest of `params`"),
        ({"a": 1.0}, {"b": tf.ones(())}, "`grads` expected the nest of `params`"),
        ([tf.ones([2, 1])], [tf.ones([2])], r"shape \(2,\) .* got \(2, 1\)"),
    ],
)
def test_gradients_that_do_not_match(grads, params, message):
    transform = transforms.scale_by_schedule(lambda n: 1)
    with pytest.raises(ValueError, match=message):
        transform.update(grads, transform.init(params), params)


def test_transforms_made_alike_are_equal_and_survive_copies():
    def schedule(count):
        return count

    for make in (
        lambda: transforms.adam(1e-3),
        lambda: transforms.adamw(schedule),
        lambda: transforms.chain(
            transforms.clip_by_global_norm(1), transforms.rmsprop(0.1, momentum=0.5)
        ),
    ):
        assert make() == make()
        assert hash(make()) == hash(make())
    assert transforms.adam(1e-3) != transforms.adam(1e-2)
    for rate in (1, 0.5, np.float32(0.5), tf.constant(0.5), np.int64(1)):
        assert transforms.sgd(rate) == transforms.sgd(float(rate))
    transform = transforms.adam(1e-3)
    assert (
        pickle.loads(pickle.dumps(transform)) == copy.deepcopy(transform) == transform
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: transforms.sgd(-0.1), "`sgd`: `learning_rate` expected .* got -0.1"),
        (lambda: transforms.adam(float("nan")), "`adam`: `learning_rate`"),
        (lambda: transforms.adam(False), "`adam`: `learning_rate`"),
        (lambda: transforms.sgd(tf.ones(2)), "`sgd`: `learning_rate`"),
        (lambda: transforms.sgd(0.1, momentum=1.0), "`sgd`: `momentum` .*, 1.0\\)"),
        (lambda: transforms.adam(0.1, b1=1.0), "`adam`: `b1`"),
        (lambda: transforms.adamw(0.1, b2=-0.1), "`adamw`: `b2`"),
        (lambda: transforms.adam(0.1, eps=-1e-8), "`adam`: `eps`"),
        (lambda: transforms.adam(0.1, eps_root=-1e-8), "`adam`: `eps_root`"),
        (lambda: transforms.adamw(0.1, weight_decay=-1), "`adamw`: `weight_decay`"),
        (lambda: transforms.rmsprop(0.1, decay=2), "`rmsprop`: `decay`"),
        (lambda: transforms.rmsprop(0.1, momentum=2), "`rmsprop`: `momentum`"),
        (
            lambda: transforms.clip_by_global_norm(-1),
            "`clip_by_global_norm`: `max_norm",
        ),
    ],
)
def test_bad_numbers(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "transform",
    [
        *[transforms.sgd(0.1, 0.9), transforms.adam(0.1)],
        transforms.rmsprop(0.1, centered=True),
    ],
)
def test_nests_and_shapes_stay_those_of_the_first_call(transform):
    state = transform.init({"w": tf.ones([2])})
    for grads in ({"v": tf.ones([2])}, {"w": tf.ones([2]), "v": tf.ones([])}):
        with pytest.raises(
            ValueError, match="`grads` expected the nest .* as of `init`"
        ):
            transform.update(grads, state)
    with pytest.raises(ValueError, match=r"`grads` expected the shape .*got \(\)"):
        transform.update({"w": tf.ones([])}, state)


def test_bad_arguments():
    for parts in ((transforms.adam(0.1), "sgd"), [transforms.adam(0.1)], (object(),)):
        with pytest.raises(TypeError, match="`GradientTransform`: `parts` expected"):
            transforms.GradientTransform(parts)
    with pytest.raises(TypeError, match="`chain`: `transforms` expected"):
        transforms.chain(transforms.adam(1.0), "sgd")
    with pytest.raises(TypeError, match="`scale_by_schedule`: `step_size_fn` expected"):
        transforms.scale_by_schedule(0.5)
    state = transforms.adam(lambda n: 0.1).init([tf.ones(())])
    with pytest.raises(ValueError, match="`with_learning_rate`: `state` expected"):
        transforms.with_learning_rate(state, 0.1)
    transform = transforms.adam(0.1)
    with pytest.raises(ValueError, match="`state` expected one entry for each of 2"):
        transform.update([tf.ones(())], (), [tf.ones(())])
    with pytest.raises(ValueError, match="`params` expected the parameters"):
        transforms.adamw(0.1).update(
            [tf.ones(())], transforms.adamw(0.1).init([tf.ones(())])
        )
