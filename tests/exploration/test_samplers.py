"""Samplers against recordings, exact frequencies and a plain Python draw."""

import copy
import types

import confidence
import golden_io
import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from tfrl import exploration, schedules
from tfrl.configuring import configs
from tfrl.core import specs
from tfrl.exploration import samplers
from tfrl.training import configurables

PROBS = np.array([0.2, 0.5, 0.3, 0.0], np.float32)


def cases(symbol):
    return golden_io.load("alf/action_samplers", symbol=symbol)


def assert_mean(samples, mean, deviation):
    error = abs(np.mean(samples) - mean)
    quantile = stats.norm.isf(confidence.FALSE_ALARM / 2)
    assert error < quantile * deviation / np.sqrt(len(samples))


def rows_of(probs, n=20_000):
    return tf.tile(tf.constant(probs)[tf.newaxis], [n, 1])


def assert_drawn(actions, probs):
    counts = np.bincount(actions, minlength=len(probs))
    if np.count_nonzero(probs) == 1:
        np.testing.assert_array_equal(actions, np.argmax(probs))
    else:
        confidence.assert_frequencies(counts, probs)


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


@pytest.mark.slow
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


@pytest.mark.parametrize("compiled", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_frequencies(compiled):
    greedy = samplers.EpsilonGreedySampler(0.3, seed=3)
    expected = 0.3 * PROBS + 0.7 * (np.arange(4) == 1)
    assert_drawn(compiled(greedy)(rows_of(7.0 * PROBS)), expected)
    weights = rows_of([0.0, 3.0, 0.0, 1.0, 4.0, 0.0])
    for dtype in (tf.float16, tf.float64):
        sampler = samplers.MultinomialSampler(4)
        actions = compiled(sampler)(tf.cast(weights, dtype))
        assert actions.dtype == tf.int64
        assert_drawn(actions, [0, 3, 0, 1, 4, 0])


@pytest.mark.parametrize("concentration", [0.05, 1, 30.0])
def test_perturbed_probabilities_are_dirichlet(concentration):
    sampler = samplers.CategoricalSeedSampler(4, 0.0, concentration, seed=5)
    probs = rows_of(PROBS)
    actions, state = sampler(probs, tf.zeros_like(probs))
    assert_drawn(actions, PROBS)
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
        assert distance < confidence.cdf_margin(len(levels)) + 1e-4


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


def test_noise_is_kept_renewed_and_of_the_whole_row():
    sampler = samplers.CategoricalSeedSampler(3, 0.25, seed=6)
    start = np.full([20_000, 3], 0.5, np.float32)
    start[0], start[1:9000] = [0.0, 0.0, 0.0], [0.0, 0.0, 0.1]
    _, after = sampler(tf.fill(start.shape, 1 / 3), start)
    changed = np.any(after != start, axis=-1)
    assert changed[0], "an all-zero row starts with new noise"
    np.testing.assert_array_equal(np.all(after != start, axis=-1), changed)
    assert_mean(changed[1:], 0.25, np.sqrt(0.25 * 0.75))
    fresh = after.numpy()[changed].ravel()
    confidence.assert_cdf(fresh, lambda x: x)
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
                assert_drawn(call(rows), expected)
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


def act(sampler, rows, seed=None):
    return act_on(sampler, rows, seed).numpy()


def act_on(sampler, rows, seed):
    if not isinstance(sampler, samplers.CategoricalSeedSampler):
        return sampler(rows, seed=seed)
    return sampler(rows, tf.fill(rows.shape, 0.5), seed=seed)[0]


@pytest.mark.slow
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
    # Without one TensorFlow's global seed decides.
    streams = []
    for _ in range(2):
        tf.random.set_seed(5)
        streams.append([act(make(None), rows), act(make(None), rows)])
    np.testing.assert_array_equal(*streams)
    assert np.any(streams[0][0] != streams[0][1])


@pytest.mark.slow  # compiling the inverse takes seconds
@EVERY_SAMPLER
def test_xla_draws_what_eager_calls_do(make):
    rows = rows_of([0.1, 0.2, 0.3, 0.4], 500)
    sampler = make(1)
    drawn = act(sampler, rows, seed=9)
    xla = tf.function(lambda rows: act_on(sampler, rows, 9), jit_compile=True)
    assert len(set(drawn)) > 1
    # Logarithms may differ in the last digit.
    assert np.mean(xla(rows).numpy() == drawn) > 0.99


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


BAD_SAMPLERS = [
    (ValueError, samplers.EpsilonGreedySampler, (1.1,), "epsilon_greedy"),
    (TypeError, samplers.EpsilonGreedySampler, ("0.1",), "epsilon_greedy"),
    (TypeError, samplers.CategoricalSeedSampler, (3.0,), "num_classes"),
    (ValueError, samplers.CategoricalSeedSampler, (0,), "num_classes"),
    (ValueError, samplers.CategoricalSeedSampler, (3, 2), "new_noise_prob"),
    (ValueError, samplers.CategoricalSeedSampler, (3, 0, 0), "concentration"),
]


@pytest.mark.parametrize(("error", "make", "args", "name"), BAD_SAMPLERS)
def test_bad_constructor_arguments(error, make, args, name):
    with pytest.raises(error, match=rf"`{make.__name__}`: `{name}` expected"):
        make(*args)


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


def test_gin_builds_every_class(request):
    request.addfinalizer(configs.clear)
    made = configs.register(configurables.CONFIGURABLES)
    classes = {name for name in exploration.__all__ if name[0].isupper()}
    assert classes <= set(made)
    configs.parse(
        bindings=[
            "EpsilonGreedySampler.epsilon_greedy = @LinearScheduler()",
            "LinearScheduler.progress_type = 'env_steps'",
            "LinearScheduler.schedule = [(0, 0.0), (10, 1.0)]",
            "OrnsteinUhlenbeckNoise.sigma = 1e-9",
            "OrnsteinUhlenbeckNoise.mu = [1.0, 2.0]",
            "OrnsteinUhlenbeckNoise.max_value = 1.5",
            "CategoricalSeedSampler.num_classes = 3",
        ]
    )
    sampler, noise = made["EpsilonGreedySampler"](), made["OrnsteinUhlenbeckNoise"]()
    with schedules.progress_context(schedules.Progress(env_steps=0)):
        np.testing.assert_array_equal(sampler(tf.constant([[0.1, 0.9]] * 9)), [1] * 9)
    np.testing.assert_allclose(noise(np.zeros([2])), [1.0, 1.5], atol=1e-7)
    assert made["CategoricalSeedSampler"]().state_spec.shape == [3]
    configs.check_all_used()
    configs.parse(bindings=["EpsilonGreedySampler.epsilon_greedy = 2"])
    with pytest.raises(ValueError, match="`epsilon_greedy` expected numbers in"):
        made["EpsilonGreedySampler"]()


# The inverse of the incomplete gamma function.


def grid(dtype):
    """All pairs of shapes from 1e-4 to 1e4 and probabilities from 1e-35 to 1 - eps."""
    shapes = np.logspace(-4, 4, 160)
    closest = -np.log10(np.finfo(dtype).epsneg)
    probabilities = np.concatenate(
        [
            np.logspace(-35, -1, 60),
            np.linspace(0.1, 0.999, 60),
            1.0 - np.logspace(-3, -closest, 30),
        ]
    )
    pairs = np.meshgrid(shapes.astype(dtype), probabilities.astype(dtype))
    return [pair.ravel() for pair in pairs]


def reference(shape, probability):
    """log x, from the series where x is less than SciPy can say."""
    a, p = shape.astype(np.float64), probability.astype(np.float64)
    with np.errstate(divide="ignore"):
        found = np.log(special.gammaincinv(a, p))
    log_x = (np.log(p) + special.gammaln(1.0 + a)) / a
    return np.where(log_x < -20.0, log_x, found)


def error_bound(log_x, shape, probability, dtype):
    """What rounding of the inputs, of P and of log x alone amounts to."""
    a = shape.astype(np.float64)
    density = np.exp(a * log_x - np.exp(log_x) - special.gammaln(a))  # dP / dlog x
    unit = np.finfo(dtype).eps
    gamma = np.abs(special.gammaln(1.0 + a)) + 1.0
    return unit * (probability / density + np.abs(log_x) + gamma / a + 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_quantiles_against_scipy(dtype):
    shape, probability = grid(dtype)
    tensors = tf.constant(shape), tf.constant(probability)
    got = samplers._log_gamma_quantile(*tensors).numpy()
    assert got.dtype == dtype
    expected = reference(shape, probability)
    bound = error_bound(expected, shape, probability, dtype)
    # The series stops where float64 would go on.
    units = np.abs(got - expected) / (3e-10 + bound)
    assert np.quantile(units, 0.99) <= 16.0
    worst = np.argmax(units)
    assert units[worst] <= 150.0, (shape[worst], probability[worst], got[worst])


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_quantiles_are_finite_and_ascending_for_any_shape(dtype):
    shape = np.logspace(-30, 5, 200).astype(dtype)
    limits = np.finfo(dtype)
    p = np.array([limits.tiny, 1e-7, 0.3, 0.7, 0.999, 1.0 - limits.epsneg], dtype)
    shape, probability = np.meshgrid(shape, p)
    got = samplers._log_gamma_quantile(
        tf.constant(shape), tf.constant(probability)
    ).numpy()
    assert np.all(np.isfinite(got))
    # Where shapes are so small that P is a step in its dtype, equal up to its width.
    assert np.all(np.diff(got, axis=0) > -0.6)
    normal = (shape > 1e-3) & (shape < 1e3)
    assert np.all(np.diff(got, axis=0)[normal[1:]] > 0)


@pytest.mark.slow  # compiling the inverse takes seconds
def test_quantiles_agree_under_xla():
    shape, probability = (x[::53] for x in grid(np.float32))
    tensors = tf.constant(shape), tf.constant(probability)
    run = tf.function(samplers._log_gamma_quantile, jit_compile=True)
    expected = samplers._log_gamma_quantile(*tensors)
    bound = error_bound(expected.numpy(), shape, probability, np.float32)
    assert np.all(np.abs(run(*tensors) - expected) <= 300.0 * bound)
