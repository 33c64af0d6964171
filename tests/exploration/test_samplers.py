"""Samplers against recordings, exact frequencies and a plain Python draw."""

import copy
import types

import golden_io
import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from tfrl import schedules
from tfrl.core import specs
from tfrl.exploration import samplers

FALSE_ALARM = 1e-6
PROBS = np.array([0.2, 0.5, 0.3, 0.0], np.float32)


def cases(symbol):
    return golden_io.load("alf/action_samplers", symbol=symbol)


def assert_frequencies(actions, probs):
    """Chi-square test of counts; what has no probability was never drawn."""
    probs = np.asarray(probs, np.float64) / np.sum(probs, dtype=np.float64)
    counts = np.bincount(actions, minlength=len(probs))
    assert counts[probs == 0].sum() == 0
    possible = probs > 0
    if possible.sum() > 1:
        p = stats.chisquare(counts[possible], probs[possible] * len(actions)).pvalue
        assert p > FALSE_ALARM, counts / len(actions)


def assert_mean(samples, mean, deviation):
    error = abs(np.mean(samples) - mean)
    assert error < stats.norm.isf(FALSE_ALARM / 2) * deviation / np.sqrt(len(samples))


def rows_of(probs, n=100_000):
    return tf.tile(tf.constant(probs)[tf.newaxis], [n, 1])


MODES = {
    "eager": lambda f: f,
    "graph": tf.function,
    "xla": lambda f: tf.function(f, jit_compile=True),
}
every_mode = pytest.mark.parametrize("compiled", MODES.values(), ids=MODES)


@pytest.mark.parametrize("case", cases("EpsilonGreedySampler"), ids=lambda c: c["id"])
def test_golden_epsilon_greedy(case):
    if case["kind"] == "object":
        sampler = samplers.EpsilonGreedySampler(*case["ctor"]["args"])
        for step in case["steps"]:
            actions = sampler(*step["args"])
            assert actions.dtype == tf.int64
            np.testing.assert_array_equal(actions, step["out"])
        return
    given, out = case["in"], case["out"]
    sampler = samplers.EpsilonGreedySampler(given["epsilon_greedy"], seed=1)
    actions = sampler(rows_of(given["probs"], given["n"])).numpy()
    assert out["dtype"] == f"torch.{actions.dtype}"
    frequencies = np.bincount(actions, minlength=len(given["probs"])) / given["n"]
    for name in ("freq", "expected"):
        np.testing.assert_allclose(frequencies, out[name], **case["tol"])


@pytest.mark.parametrize("case", cases("MultinomialSampler"), ids=lambda c: c["id"])
def test_golden_multinomial(case):
    given, out = case["in"], case["out"]
    actions = samplers.MultinomialSampler(1)(
        rows_of(given["probs"], given["n"])
    ).numpy()
    assert out["dtype"] == f"torch.{actions.dtype}"
    frequencies = np.bincount(actions, minlength=len(given["probs"])) / given["n"]
    for name in ("freq", "expected"):
        np.testing.assert_allclose(frequencies, out[name], **case["tol"])


@pytest.mark.parametrize("case", cases("CategoricalSeedSampler"), ids=lambda c: c["id"])
def test_golden_categorical_seed(case):
    given, out = case["in"], case["out"]
    if case["kind"] == "map":
        sampler = samplers.CategoricalSeedSampler(4, 0.0, given["concentration"], 1)
        _, state = sampler(given["probs"], given["state"])
        np.testing.assert_array_equal(state, out["new_state"])
        perturbed = sampler.perturb(given["probs"], state)
        np.testing.assert_allclose(perturbed, out["new_probs"], **case["tol"])
        return
    if "probs" in given:
        n, classes = given["n"], len(given["probs"])
        sampler = samplers.CategoricalSeedSampler(
            classes, concentration=given["concentration"], seed=1
        )
        probs = rows_of(given["probs"], n)
        actions, state = sampler(probs, tf.zeros([n, classes]))
        perturbed = sampler.perturb(probs, state).numpy()
        found = {
            "action_freq": np.bincount(actions, minlength=classes) / n,
            "new_probs_mean": perturbed.mean(0),
            "new_probs_var": perturbed.var(0),
            "theory_mean": perturbed.mean(0),
            "theory_var": perturbed.var(0),
        }
        for name, expected in out.items():
            np.testing.assert_allclose(found[name], expected, **case["tol"])
        return
    sampler = samplers.CategoricalSeedSampler(3, given["new_noise_prob"], seed=1)
    probs, state = tf.fill([50_000, 3], 1 / 3), tf.zeros([50_000, 3])
    _, state = sampler(probs, state)
    for fraction in out["fraction_changed_per_step"]:
        _, after = sampler(probs, state)
        changed = np.any(after != state, axis=-1)
        np.testing.assert_allclose(changed.mean(), fraction, **case["tol"])
        state = after


@pytest.mark.parametrize(
    ("epsilon", "compiled"),
    [(0.0, MODES["eager"]), (1.0, MODES["graph"]), (0.3, MODES["xla"])],
    ids=["0-eager", "1-graph", "0.3-xla"],
)
def test_epsilon_greedy_frequencies(epsilon, compiled):
    sampler = samplers.EpsilonGreedySampler(epsilon, seed=3)
    actions = compiled(sampler)(rows_of(7.0 * PROBS)).numpy()
    expected = epsilon * PROBS + (1.0 - epsilon) * (np.arange(4) == 1)
    assert_frequencies(actions, expected)


@every_mode
@pytest.mark.parametrize(
    "dtype", [tf.float16, tf.bfloat16, tf.float64], ids=lambda d: d.name
)
def test_multinomial_frequencies(dtype, compiled):
    weights = tf.cast(rows_of([0.0, 3.0, 0.0, 1.0, 4.0, 0.0]), dtype)
    actions = compiled(samplers.MultinomialSampler(4))(weights)
    assert actions.dtype == tf.int64
    assert_frequencies(actions.numpy(), [0, 3, 0, 1, 4, 0])


@pytest.mark.parametrize(
    ("concentration", "compiled"),
    # XLA takes seconds, and test_gamma_quantile.py asks it for the same.
    [(0.05, MODES["eager"]), (30.0, MODES["graph"]), (1, MODES["graph"])],
    ids=["0.05-eager", "30-graph", "1-graph"],
)
def test_perturbed_probabilities_are_dirichlet(concentration, compiled):
    sampler = samplers.CategoricalSeedSampler(4, 0.0, concentration, seed=5)
    probs = rows_of(PROBS, 20_000)
    actions, state = compiled(sampler)(probs, tf.zeros_like(probs))
    assert_frequencies(actions.numpy(), PROBS)
    perturbed = sampler.perturb(probs, state).numpy()
    np.testing.assert_allclose(perturbed.sum(-1), 1.0, rtol=1e-5)
    assert np.all(perturbed[:, 3] == 0)
    for k, p in enumerate(PROBS[:3].astype(np.float64)):
        deviation = np.sqrt(p * (1 - p) / (concentration + 1))
        assert_mean(perturbed[:, k], p, deviation)
        # A component of Dirichlet(a) is Beta(a_k, sum(a) - a_k): the bound of
        # Dvoretzky, Kiefer, Wolfowitz on the distance of distribution functions.
        beta = stats.beta(concentration * p, concentration * (1 - p))
        levels = np.clip(np.sort(perturbed[:, k].astype(np.float64)), 0, 1)
        inside = (levels > 1e-6) & (levels < 1 - 1e-6)
        steps = np.arange(1, len(levels) + 1) / len(levels)
        distance = np.abs(beta.cdf(levels) - steps)[inside].max()
        assert distance < np.sqrt(np.log(2 / FALSE_ALARM) / (2 * len(levels))) + 1e-4


def test_perturbation_against_scipy():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(5), 40)
    state = rng.uniform(0.01, 0.99, [40, 5])
    sampler = samplers.CategoricalSeedSampler(5, 0.0, 2.5)
    gamma = special.gammaincinv(2.5 * probs, state)
    expected = gamma / gamma.sum(-1, keepdims=True)
    got = sampler.perturb(tf.constant(3.0 * probs), tf.constant(state))
    assert got.dtype == tf.float64
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


def test_noise_is_kept_renewed_and_independent_of_the_row_s_neighbours():
    sampler = samplers.CategoricalSeedSampler(3, 0.25, seed=6)
    n = 40_000
    probs = tf.fill([n, 3], 1 / 3)
    state = tf.tensor_scatter_nd_update(
        tf.fill([n, 3], 0.5), [[0], [1]], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.1]]
    )
    _, after = sampler(probs, state)
    changed = np.any(after != state, axis=-1)
    assert changed[0], "an all-zero row starts with new noise"
    np.testing.assert_array_equal(
        np.all(after != state, axis=-1)[2:], changed[2:], "all of a row is renewed"
    )
    assert_mean(changed[2:], 0.25, np.sqrt(0.25 * 0.75))
    fresh = after.numpy()[2:][changed[2:]]
    assert stats.kstest(fresh.ravel(), "uniform").pvalue > FALSE_ALARM
    assert fresh.min() > 0 and fresh.max() < 1


def test_actions_stay_alike_while_the_noise_does():
    sampler = samplers.CategoricalSeedSampler(3, 0.0, 0.1, seed=7)
    probs = rows_of([0.3, 0.3, 0.4], 4000)
    first, state = sampler(probs, specs.zeros_from_spec(sampler.state_spec, 4000))
    second, _ = sampler(probs, state)
    alike = np.mean(first == second)
    pi = np.array([0.3, 0.3, 0.4])
    # E sum_k pi'_k^2 of Dirichlet(c pi), against sum_k pi_k^2 = 0.34 without noise.
    expected = np.sum(pi**2 + pi * (1 - pi) / 1.1)
    assert_mean(np.asarray(first == second), expected, np.sqrt(alike * (1 - alike)))


def test_extreme_rows_never_draw_the_impossible():
    tiny = np.finfo(np.float32).tiny
    probs = np.array([[1, 0, 0], [0, 0, 1], [2e-38, 0, 0], [3e38, 0, 0]], np.float32)
    for noise in (tiny, 0.5, 1.0):
        state = np.full([4, 3], noise, np.float32)
        for concentration in (1e-6, 1.0, 1e6):
            sampler = samplers.CategoricalSeedSampler(3, 0.0, concentration)
            expected = np.eye(3)[[0, 2, 0, 0]]
            np.testing.assert_array_equal(sampler.perturb(probs, state), expected)
            action, _ = sampler(probs, state)
            np.testing.assert_array_equal(action, [0, 2, 0, 0])


def test_epsilon_follows_a_schedule_also_in_a_graph():
    epsilon = schedules.LinearScheduler("iterations", [(0, 1.0), (10, 0.0)])
    sampler = samplers.EpsilonGreedySampler(epsilon, seed=8)
    rows, iterations = rows_of(PROBS, 20_000), tf.Variable(0)
    with schedules.progress_context(schedules.Progress(iterations=iterations)):
        step = tf.function(sampler)
        for done in (0, 5, 10):
            iterations.assign(done)
            share = 1.0 - done / 10
            for call in (step, sampler):
                expected = share * PROBS + (1 - share) * (np.arange(4) == 1)
                assert_frequencies(call(rows).numpy(), expected)
    assert step.experimental_get_tracing_count() == 1
    rate = tf.Variable(0.0)
    variable = samplers.EpsilonGreedySampler(lambda: rate)
    np.testing.assert_array_equal(variable(rows[:5]), [1] * 5)


EVERY_SAMPLER = pytest.mark.parametrize(
    "make",
    [
        lambda seed: samplers.EpsilonGreedySampler(0.5, seed),
        samplers.MultinomialSampler,
        lambda seed: samplers.CategoricalSeedSampler(4, 0.5, seed=seed),
    ],
    ids=["epsilon", "multinomial", "categorical_seed"],
)


def act(sampler, rows, **kwargs):
    if not isinstance(sampler, samplers.CategoricalSeedSampler):
        return sampler(rows, **kwargs).numpy()
    return sampler(rows, tf.fill(rows.shape, 0.5), **kwargs)[0].numpy()


@EVERY_SAMPLER
def test_streams_repeat_checkpoint_and_export(make, tmp_path):
    rows = rows_of([0.25] * 4, 500)
    sampler, other = make(1), make(2)
    first = act(sampler, rows)
    np.testing.assert_array_equal(first, act(make(1), rows))
    assert np.any(first != act(other, rows))
    path = tf.train.Checkpoint(sampler=sampler).write(str(tmp_path / "ckpt"))
    twin = copy.deepcopy(sampler)
    signature = [tf.TensorSpec([None, 4])]
    if isinstance(sampler, samplers.CategoricalSeedSampler):
        signature *= 2
    sampler.served = tf.function(sampler.__call__, input_signature=signature)
    tf.saved_model.save(sampler, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    second = act(sampler, rows)
    assert np.any(first != second)
    np.testing.assert_array_equal(second, act(twin, rows))
    tf.train.Checkpoint(sampler=other).read(path).assert_consumed()
    np.testing.assert_array_equal(second, act(other, rows))
    args = (rows, tf.fill(rows.shape, 0.5))[: len(signature)]
    np.testing.assert_array_equal(second, tf.nest.flatten(loaded.served(*args))[0])


@EVERY_SAMPLER
def test_a_given_seed_decides_alone(make):
    rows = rows_of([0.25] * 4, 500)
    one, other = make(1), make(2)
    act(other, rows)
    np.testing.assert_array_equal(act(one, rows, seed=9), act(other, rows, seed=9))
    np.testing.assert_array_equal(act(one, rows), act(make(1), rows))


def test_config_or_the_run_decides_on_epsilon():
    config = types.SimpleNamespace
    assert samplers.get_epsilon_greedy(config(epsilon_greedy=0.0)) == 0.0
    assert samplers.get_epsilon_greedy(config(epsilon_greedy=0.3), 0.5) == 0.3
    assert samplers.get_epsilon_greedy(config(epsilon_greedy=None)) == 0.1
    schedule = schedules.ConstantScheduler(0.2)
    assert (
        samplers.get_epsilon_greedy(config(epsilon_greedy=None), schedule) is schedule
    )
    (case,) = golden_io.load("alf/common", symbol="get_epsilon_greedy")
    assert case["note"].startswith("config.epsilon_greedy; None -> the global")
    with pytest.raises(TypeError, match=r"`config` expected an object with"):
        samplers.get_epsilon_greedy(object())
    with pytest.raises(ValueError, match=r"`config` expected numbers in \[0, 1\]"):
        samplers.get_epsilon_greedy(config(epsilon_greedy=1.5))
    with pytest.raises(ValueError, match=r"`default` expected numbers in \[0, 1\]"):
        samplers.get_epsilon_greedy(config(epsilon_greedy=None), -0.1)


BAD_SAMPLERS = {
    "epsilon": (
        ValueError,
        lambda: samplers.EpsilonGreedySampler(1.1),
        "epsilon_greedy",
    ),
    "text": (TypeError, lambda: samplers.EpsilonGreedySampler("0.1"), "epsilon_greedy"),
    "classes": (TypeError, lambda: samplers.CategoricalSeedSampler(3.0), "num_classes"),
    "none": (ValueError, lambda: samplers.CategoricalSeedSampler(0), "num_classes"),
    "prob": (
        ValueError,
        lambda: samplers.CategoricalSeedSampler(3, 2),
        "new_noise_prob",
    ),
    "c": (
        ValueError,
        lambda: samplers.CategoricalSeedSampler(3, 0, 0),
        "concentration",
    ),
}


@pytest.mark.parametrize(
    ("error", "make", "name"), BAD_SAMPLERS.values(), ids=BAD_SAMPLERS
)
def test_bad_constructor_arguments(error, make, name):
    with pytest.raises(error, match=rf"Sampler`: `{name}` expected"):
        make()


BAD_ROWS = {
    "rank": (ValueError, tf.ones([3]), r"`input` expected rank 2"),
    "integer": (TypeError, tf.ones([2, 3], tf.int32), r"`input` expected a floating"),
    "negative": (ValueError, [[0.5, -0.1, 0.6]], r"`input` expected numbers in \[0"),
    "nan": (ValueError, [[0.5, np.nan, 0.6]], r"`input` expected numbers in \[0"),
    "infinite": (ValueError, [[0.5, np.inf, 0.6]], r"`input` expected finite"),
    "zeros": (ValueError, [[1.0, 0, 0], [0, 0, 0]], r"`input \(largest of each row\)`"),
}


@EVERY_SAMPLER
@pytest.mark.parametrize(("error", "rows", "match"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows(error, rows, match, make):
    sampler = make(1)
    args = [rows]
    if isinstance(sampler, samplers.CategoricalSeedSampler):
        sampler = samplers.CategoricalSeedSampler(3)
        args.append(np.zeros(np.shape(rows), np.float32))
    with pytest.raises(error, match=match):
        sampler(*args)


def test_shapes_of_noise():
    sampler = samplers.CategoricalSeedSampler(3)
    with pytest.raises(ValueError, match=r"`input` expected shape \[None, 3\]"):
        sampler(tf.ones([2, 4]), tf.ones([2, 3]))
    with pytest.raises(ValueError, match=r"`state` expected shape \[None, 3\]"):
        sampler(tf.ones([2, 3]), tf.ones([3]))
    with pytest.raises(ValueError, match=r"`state` expected the shape of `input`"):
        sampler(tf.ones([2, 3]), tf.ones([4, 3]))
    with pytest.raises(TypeError, match=r"`state` expected a floating-point dtype"):
        sampler(tf.ones([2, 3]), tf.ones([2, 3], tf.int32))
