"""Lean functions equal plain ones, keep less and compute again."""

import functools
import gc
import operator
import re
import weakref

import golden_io
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from default_rows import slow
from modes import run, same

from tfrl.ops import lean_function

CASES = golden_io.load("alf/misc", {"t": tf.constant}, symbol="lean_function")


def chain(x, w, *, depth=6):
    for _ in range(depth):
        x = tf.tanh(tf.matmul(x, w))
    return x


modes = pytest.mark.parametrize("mode", ["eager", "graph", *slow("xla")])
X = tf.constant(np.random.default_rng(0).normal(size=[5, 4]).astype(np.float32))
W = tf.constant(np.random.default_rng(1).normal(size=[4, 4]).astype(np.float32))


@modes
@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_equals_the_recording(case, mode):
    def func(x, w, b, scale=1.0):
        return tf.sigmoid(scale * (x @ w) + b)

    given, expected = case["in"], case["out"]
    lean = lean_function(func)

    def step(x, w, b):
        with tf.GradientTape() as tape:
            tape.watch([x, w, b])
            y = lean(x, w, b, scale=given["scale"])
        return y, *tape.gradient(y, [x, w, b], output_gradients=given["ct"])

    got = run(mode, step, given["x"], given["w"], given["b"])
    wanted = tuple(expected[name] for name in ("y", "dx", "dw", "db"))
    same(got, wanted, **case["tol"])
    assert len(CASES) == 1


def nested(pair, options=None, *, scale, ids=None, kind="sum"):
    """Several outputs in a nest, from arguments of every sort."""
    first, second = pair
    total = first * scale["by"] + second if kind == "sum" else first
    rows = None if ids is None else tf.gather(total, ids)
    return {"total": total, "rest": (rows, options, tf.argmax(total, -1), [total**2])}


@modes
def test_nests_keywords_and_what_is_no_tensor(mode):
    def step(lean, x, w, ids):
        func = lean_function(nested) if lean else nested
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            out = func((x, w), {"a": 3}, scale={"by": w}, ids=ids)
            loss = tf.reduce_sum(out["rest"][3][0]) + tf.reduce_sum(out["rest"][0])
        assert out["rest"][1] == {"a": 3}
        fixed = [out["total"], *out["rest"][2:]]
        return fixed, tape.gradient(loss, [x, w])

    args = (X, X + 1.0, tf.constant([0, 0, 2]))
    got = run(mode, functools.partial(step, True), *args)
    same(got, run(mode, functools.partial(step, False), *args), rtol=1e-5, atol=1e-5)


class Doubled(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(W)

    def __call__(self, x):
        return tf.tanh(x @ self.weight) @ self.weight


@modes
def test_variables_of_modules_closures_and_arguments(mode):
    module, scale = Doubled(), tf.Variable(2.0)
    lean_module = lean_function(module)
    lean_closure = lean_function(lambda: scale**3)
    lean_argument = lean_function(lambda v: v**2)

    def step(x):
        with tf.GradientTape() as tape:
            y = lean_module(x) * lean_closure() + lean_argument(scale)
            loss = tf.reduce_sum(y)
        return y, tape.gradient(loss, [module.weight, scale])

    def plain(x):
        with tf.GradientTape() as tape:
            y = module(x) * scale**3 + scale**2
            loss = tf.reduce_sum(y)
        return y, tape.gradient(loss, [module.weight, scale])

    same(run(mode, step, X), run(mode, plain, X), rtol=1e-4, atol=1e-4)


@modes
def test_integers_alone_as_arguments(mode):
    table = tf.Variable(W)
    lean = lean_function(lambda ids: tf.tanh(tf.gather(table, ids)))

    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(lean(ids) ** 2)
        return tf.convert_to_tensor(tape.gradient(loss, table))

    y = np.tanh(W.numpy())
    expected = 2 * y * (1 - y**2) * np.array([[0.0], [2.0], [1.0], [0.0]])
    got = run(mode, step, tf.constant([1, 1, 2]))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@modes
def test_stateless_randomness_is_the_same_in_both_passes(mode):
    def noisy(x, seed):
        return x * tf.random.stateless_normal(x.shape, seed)

    def step(x, seed):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = lean_function(noisy)(x, seed)
        return y, tape.gradient(y, x)

    y, slope = run(mode, step, tf.fill([64], 2.0), tf.constant([1, 2]))
    np.testing.assert_allclose(slope, y / 2.0, rtol=1e-6)


def kept(func):
    """How many of 8 intermediate results live between the passes, and after."""
    seen = []

    def body(x):
        for _ in range(8):
            x = tf.tanh(1.5 * x)
            seen.append(weakref.ref(x))
        return x + 1.0

    def alive():
        gc.collect()
        return sum(reference() is not None for reference in seen)

    x = tf.ones([3])
    gc.freeze()  # what was there before need not be looked through again
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = func(body)(x)
    between = alive()
    tape.gradient(y, x)
    after = alive()
    gc.unfreeze()
    return between, after


def test_tapes_keep_no_intermediate_results():
    assert kept(lambda body: body) == (8, 0)
    assert kept(lean_function) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("with_float", [True, False], ids=["floats", "integers"])
def test_graphs_compute_again_under_xla(with_float):
    # Did XLA merge both passes, the intermediate results would be kept after all.
    table = tf.Variable(W)

    def count(func):
        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(func(x) ** 2)
            return tape.gradient(loss, table)

        function = tf.function(step, jit_compile=True, autograph=False)
        x = X if with_float else tf.constant([0, 1])
        hlo = function.experimental_get_compiler_ir(x)(stage="optimized_hlo")
        return len(re.findall(r"\btanh\(", hlo))

    def body(x):
        return chain(x if with_float else tf.gather(table, x), table)

    assert [count(body), count(lean_function(body))] == [6, 12]


def test_graphs_compute_again_after_grappler():
    def executed(func):
        with tf.Graph().as_default(), tf.compat.v1.Session() as runner:
            x = tf.compat.v1.placeholder(tf.float32, [5, 4])
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(func(x, tf.identity(W.numpy())) ** 2)
            slope = tape.gradient(loss, x)
            record = tf.compat.v1.RunMetadata()
            options = tf.compat.v1.RunOptions(output_partition_graphs=True)
            runner.run(slope, {x: X.numpy()}, options, record)
        nodes = [node for graph in record.partition_graphs for node in graph.node]
        return sum(node.op == "Tanh" for node in nodes)

    assert [executed(chain), executed(lean_function(chain))] == [6, 12]


def test_an_exception_leaves_nothing_behind():
    broken = [True]

    def func(x):
        if broken[0]:
            raise RuntimeError("not now")
        return x**2

    lean = lean_function(func)
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(RuntimeError, match="not now"):
            lean(x)
        broken[0] = False
        y, plain = lean(x), x**3
    broken[0] = True
    with tf.GradientTape(), pytest.raises(RuntimeError, match="not now"):
        lean(x)
    broken[0] = False
    assert [float(g) for g in tape.gradient([y, plain], [x])] == [33.0]


def test_builtins_partials_and_nesting():
    x = tf.constant([1.0, -2.0])
    same(lean_function(sum)([x, x]), 2.0 * x)
    same(lean_function(operator.mul)(x, x), x**2)
    assert lean_function(max)(1, 2) == 2
    twice = lean_function(lean_function(functools.partial(chain, depth=2)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([X, W])
        y, expected = twice(X, W), chain(X, W, depth=2)
    for source in (X, W):
        want = tape.gradient(expected, source)
        # A persistent tape may be asked more than once.
        same(tape.gradient(y, source), want, rtol=1e-5, atol=1e-6)


def test_distributions_are_nests_of_tensors():
    scale = tf.constant([1.0, 2.0])
    entropy = lean_function(lambda distribution: distribution.entropy())
    with tf.GradientTape() as tape:
        tape.watch(scale)
        y = entropy(tfp.distributions.Normal(0.0, scale))
    same(tape.gradient(y, scale), 1.0 / scale)


def test_keeps_name_and_documentation():
    lean = lean_function(nested)
    assert lean.__name__ == "nested"
    assert lean.__doc__ == nested.__doc__


def test_mistakes_are_told():
    with pytest.raises(TypeError, match="`lean_function`: `func` expected a function"):
        lean_function(3)
    with pytest.raises(TypeError, match="got a symbolic Keras tensor; .*RematScope"):
        lean_function(keras.layers.Dense(1))(keras.Input([2]))
