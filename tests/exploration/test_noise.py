"""Drifting noise against recordings, NumPy and its stationary distribution."""

import copy
import inspect

import confidence
import golden_io
import gymnasium as gym
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfrl import exploration, schedules
from tfrl.core import specs
from tfrl.exploration import noise


def specs_of(content):
    return specs.BoundedTensorSpec(
        content["shape"], content["dtype"], content["minimum"], content["maximum"]
    )


OU_CASES = golden_io.load("alf/dist_utils", symbol="OUProcess")
NOISE_CASES = golden_io.load(
    "coax/schedule_noise", build={"dict": dict}, symbol="OrnsteinUhlenbeckNoise"
)


@pytest.fixture
def white(monkeypatch):
    """Puts given numbers in the place of random tensors."""
    numbers = []

    def draw(shape, seed, dtype):
        array = np.asarray(numbers.pop(0))
        assert array.shape == tuple(shape)
        return tf.constant(array, dtype)

    monkeypatch.setattr(tf.random, "stateless_normal", draw)
    tf.config.run_functions_eagerly(True)
    yield numbers
    tf.config.run_functions_eagerly(False)


def moved_on(process, n=2):
    if isinstance(process, noise.OUProcess):
        return np.stack([process() for _ in range(n)])
    zeros = np.zeros([3, 2])
    pairs = [(process(tf.constant(zeros)), process(zeros)) for _ in range(n)]
    return np.stack([x for pair in pairs for x in pair])


class Given:
    """Given numbers in the place of NumPy's random ones."""

    def __init__(self, numbers):
        self.numbers = list(numbers)

    def randn(self, *shape):
        return np.reshape(self.numbers.pop(0), shape)


@pytest.mark.parametrize(
    "case",
    [case for case in OU_CASES if case["kind"] == "injected"],
    ids=lambda case: case["id"],
)
def test_golden_process(case, white):
    given = case["in"]
    white.extend(given["noise"])
    process = noise.OUProcess(
        given["initial_value"], damping=given["damping"], stddev=given["stddev"]
    )
    values = [process() for _ in given["noise"]]
    np.testing.assert_allclose(values, case["out"]["x"], **case["tol"])


@pytest.mark.parametrize(
    "case",
    [case for case in OU_CASES if case["kind"] == "stats"],
    ids=lambda case: case["id"],
)
def test_golden_stationary_distribution(case):
    given, out = case["in"], case["out"]
    n, deviation = 100_000, given["theory_std"]
    process = noise.OUProcess(
        tf.zeros([n]), damping=given["damping"], stddev=given["stddev"], seed=1
    )
    for _ in range(60):
        before = process()
    after = process().numpy()
    units = 1 / np.sqrt(n) + 1 / np.sqrt(case["n_draws"])
    assert abs(after.mean() - out["mean"]) <= 5 * deviation * units
    np.testing.assert_allclose(after.std(), [out["std"], deviation], rtol=0.02)
    for level, quantile in zip(case["quantile_levels"], out["quantiles"], strict=True):
        error = 5 * np.sqrt(level * (1 - level) * (1 / n + 1 / case["n_draws"]))
        assert abs(np.mean(after < quantile) - level) <= error
    correlation = np.corrcoef(before, after)[0, 1]
    np.testing.assert_allclose(correlation, given["theory_lag1"], atol=5 / np.sqrt(n))
    confidence.assert_cdf(after, scipy.stats.norm(0, deviation).cdf)


def test_golden_nest_of_processes():
    (case,) = golden_io.load(
        "alf/common", build={"spec": specs_of}, symbol="create_ou_process"
    )
    given, out = case["in"], case["out"]
    made = noise.create_ou_process(
        given["spec"], given["ou_stddev"], given["ou_damping"]
    )
    assert sorted(made) == out["keys"]
    tf.nest.assert_same_structure(made, given["spec"])

    def check(process, initial):
        np.testing.assert_array_equal(process.value, initial)
        twin = noise.OUProcess(initial, out["damping"], out["stddev"])
        np.testing.assert_array_equal(process(seed=3), twin(seed=3))
        np.testing.assert_array_equal(process(seed=4), twin(seed=4))

    tf.nest.map_structure(check, made, out["initial"])


@pytest.mark.parametrize("kind", ["array", "tensor"])
@pytest.mark.parametrize("case", NOISE_CASES, ids=golden_io.ids(NOISE_CASES))
def test_golden_noise(case, kind, white):
    kwargs, given, out = case["kwargs"], case["inputs"], case["outputs"]
    if case["id"].startswith("ou_input"):
        process = noise.OrnsteinUhlenbeckNoise(random_seed=1, mu=0.0)
        result = process(*given["args"])
        assert isinstance(result, type(out["result"]))
        np.testing.assert_array_equal(result, out["result"])
        return
    process = noise.OrnsteinUhlenbeckNoise(**kwargs)
    actions, convert = given["actions"], np.asarray
    if kind == "tensor":
        convert = tf.constant
    if "eps" in given:
        process._stream = Given(given["eps"])
        white.extend(given["eps"])
    elif kind == "tensor":
        stream = np.random.RandomState(kwargs["random_seed"])
        white.extend(stream.randn(*actions.shape))
    noisy = [process(convert(action)) for action in actions]
    assert all(isinstance(x, tf.Tensor) for x in noisy) == (kind == "tensor")
    np.testing.assert_allclose(noisy, out["noisy"], **case["tol"])
    if "eps" not in given:
        return
    assert {np.asarray(x).dtype.name for x in noisy} == {out["out_dtype"]}
    np.testing.assert_allclose(
        noisy[-1] - actions[-1], out["noise"][-1], atol=1e-12, rtol=0
    )
    process.reset()
    process._stream = Given(given["eps"])
    white.extend(given["eps"])
    again = [process(convert(action)) for action in actions[:2]]
    np.testing.assert_allclose(again, out["after_reset_first2"], **case["tol"])


@pytest.mark.parametrize("name", ["mu", "sigma", "theta", "min_value", "max_value"])
def test_settings_tell_what_they_are(name):
    text = inspect.getdoc(getattr(exploration.OrnsteinUhlenbeckNoise, name))
    assert text.endswith(".") and "\n" not in text


def test_arrays_repeat_numpy_s_stream_in_their_dtype():
    process = noise.OrnsteinUhlenbeckNoise(0.5, 0.3, 0.2, -1.0, [1.0, 0.6], 7)
    stream, x = np.random.RandomState(7), np.full([4, 2], 0.5, np.float32)
    for _ in range(5):
        white = stream.randn(4, 2).astype(np.float32)
        x = np.clip(x + 0.2 * (0.5 - x) + 0.3 * white, -1.0, np.float32([1.0, 0.6]))
        noisy = process(np.ones([4, 2], np.float32))
        assert noisy.dtype == np.float32
        np.testing.assert_allclose(noisy, 1.0 + x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_stationary_distribution_of_the_noise(kind):
    process = noise.OrnsteinUhlenbeckNoise(2.0, [0.5, 1.0], 0.4, random_seed=2)
    zeros = np.zeros([20_000, 2]) if kind == "array" else tf.zeros([20_000, 2])
    for _ in range(30):
        before = process(zeros)
    after = process(zeros)
    for k, deviation in enumerate(np.array([0.5, 1.0]) / np.sqrt(1 - 0.6**2)):
        confidence.assert_cdf(after[:, k], scipy.stats.norm(2.0, deviation).cdf)
        correlation = np.corrcoef(before[:, k], after[:, k])[0, 1]
        np.testing.assert_allclose(correlation, 0.6, atol=5 / np.sqrt(20_000))


def test_strength_follows_a_schedule_also_in_a_graph():
    sigma = schedules.LinearScheduler("env_steps", [(0, 1.0), (10, 0.0)])
    steps = tf.Variable(0)
    process = noise.OUProcess(tf.zeros([1000]), damping=1.0, stddev=sigma, seed=0)
    other = noise.OrnsteinUhlenbeckNoise(0.0, sigma, 1.0, random_seed=0)
    zeros = np.zeros([1000])
    with schedules.progress_context(schedules.Progress(env_steps=steps)):
        step = tf.function(lambda: (process(), other(tf.constant(zeros))))
        for done, expected in ((0, 1.0), (5, 0.5), (10, 0.0)):
            steps.assign(done)
            for value in (*step(), process(), other(zeros)):
                np.testing.assert_allclose(np.std(value), expected, rtol=0.2)


def test_reset_of_all_and_of_some():
    process = noise.OUProcess([[1.0, 2.0]] * 3, seed=0)
    process()
    before, done = process.value, tf.constant([True, False, True])
    tf.function(process.reset)(done)
    np.testing.assert_array_equal(process.value[1], before[1])
    np.testing.assert_array_equal(process.value[0::2], [[1, 2], [1, 2]])
    process.reset()
    np.testing.assert_array_equal(process.value, [[1, 2]] * 3)
    with pytest.raises(ValueError, match="expected the first axes"):
        process.reset([True, False])


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_reset_of_noise_of_all_and_of_some(kind):
    # Almost without randomness X comes half way to 1 in each step.
    process = noise.OrnsteinUhlenbeckNoise([1.0, 1.0], 1e-9, 0.5, max_value=0.5)
    zeros = np.zeros([3, 2]) if kind == "array" else tf.zeros([3, 2], tf.float64)
    process.reset()
    np.testing.assert_allclose(process(zeros), np.full([3, 2], 0.5), atol=1e-7)
    process.mu = [0.0, 0.25]
    tf.function(process.reset)(tf.constant([True, False, True]))
    expected = [[0, 0.25], [0.25, 0.375], [0, 0.25]]
    np.testing.assert_allclose(process(zeros), expected, atol=1e-7)
    process.reset()
    np.testing.assert_allclose(process(zeros), [[0, 0.25]] * 3, atol=1e-7)


EVERY_PROCESS = pytest.mark.parametrize(
    "make",
    [
        lambda seed: noise.OUProcess(tf.zeros([3, 2]), seed=seed),
        lambda seed: noise.OrnsteinUhlenbeckNoise(random_seed=seed),
    ],
    ids=["process", "noise"],
)


@EVERY_PROCESS
def test_checkpoint_of_variables_and_copy_go_on(make, tmp_path):
    process = make(1)
    np.testing.assert_array_equal(moved_on(process), moved_on(make(1)))
    path = tf.train.Checkpoint(state=list(process.variables)).write(str(tmp_path / "c"))
    tracked = tf.train.Checkpoint(process=process).write(str(tmp_path / "t"))
    twin = copy.deepcopy(process)
    expected = moved_on(process)
    np.testing.assert_array_equal(moved_on(twin), expected)
    other = make(2)
    assert np.any(moved_on(other) != expected)
    listed = tf.train.Checkpoint(state=list(other.variables)).read(path)
    listed.assert_consumed()
    np.testing.assert_array_equal(moved_on(other), expected)
    fresh = make(3)  # restored where its variables are not made yet
    status = tf.train.Checkpoint(process=fresh).read(tracked)
    np.testing.assert_array_equal(moved_on(fresh), expected)
    status.assert_consumed()


@pytest.mark.parametrize("order", ["restore_reset", "reset_restore"])
def test_the_last_of_restoring_and_resetting_decides(order, tmp_path):
    process = noise.OrnsteinUhlenbeckNoise(3.0, random_seed=1)
    moved_on(process)
    path = tf.train.Checkpoint(process=process).write(str(tmp_path / "c"))
    other = noise.OrnsteinUhlenbeckNoise(3.0, random_seed=1)
    if order == "reset_restore":
        other.reset()
    tf.train.Checkpoint(process=other).read(path)
    if order == "restore_reset":
        other.reset()
        process.reset()
    expected = moved_on(process)
    np.testing.assert_array_equal(moved_on(other), expected)
    assert not np.any(other._is_reset)


@EVERY_PROCESS
def test_saved_model_goes_on(make, tmp_path):
    process = make(1)
    moved_on(process)
    args = []
    if not isinstance(process, noise.OUProcess):
        args = [tf.constant(np.zeros([3, 2]))]
    process.served = tf.function(
        process.__call__,
        input_signature=[tf.TensorSpec(x.shape, x.dtype) for x in args],
    )
    process.again = tf.function(process.reset, input_signature=[])
    tf.saved_model.save(process, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for _ in range(3):
        np.testing.assert_allclose(loaded.served(*args), process(*args), rtol=1e-6)
    loaded.again(), process.reset()
    np.testing.assert_allclose(loaded.served(*args), process(*args), rtol=1e-6)


def test_nests_spaces_and_batches():
    space = gym.spaces.Dict(
        a=gym.spaces.Box(-1, 1, [2], np.float32),
        b=gym.spaces.Box(0, 1, [1], np.float64),
    )
    made = exploration.create_ou_process(space, 0.2, 0.15, outer_dims=[4], seed=0)
    values = {name: process() for name, process in made.items()}
    assert {name: (v.shape, v.dtype) for name, v in values.items()} == {
        "a": ((4, 2), tf.float32),
        "b": ((4, 1), tf.float64),
    }
    assert (
        len(np.unique(np.concatenate([v.numpy().ravel() for v in values.values()])))
        == 12
    )
    module = tf.Module()
    module.noise = made
    assert len(module.variables) == 4
    assert exploration.create_ou_process({}, 0.2, 0.15) == {}


def test_settings_broadcast_to_the_action():
    action = np.zeros([3, 2])
    for sigma in (1.0, [1.0, 2.0], np.ones([3, 1]), tf.ones([3, 2])):
        assert noise.OrnsteinUhlenbeckNoise(sigma=sigma)(action).shape == (3, 2)
    for sigma in (np.ones([3]), np.ones([1, 3, 2]), tf.ones([4, 2])):
        with pytest.raises(ValueError, match="`sigma` expected a number or an array"):
            noise.OrnsteinUhlenbeckNoise(sigma=sigma)(action)


def test_other_shapes_and_dtypes_are_refused():
    process = noise.OrnsteinUhlenbeckNoise(mu=np.zeros([2]))
    with pytest.raises(ValueError, match=r"`mu` expected a number or an array that"):
        process(np.zeros([3]))
    with pytest.raises(
        ValueError, match=r"expected known dimensions at the first call"
    ):
        tf.function(process, input_signature=[tf.TensorSpec([None, 2])])(
            np.zeros([1, 2])
        )
    for reset in (lambda: process.reset([True]), tf.function(process.reset)):
        with pytest.raises(ValueError, match=r"expected a process that has begun"):
            reset()
    for zeros in (np.zeros([2]), tf.zeros([2], tf.float64)):
        process(zeros)
        with pytest.raises(ValueError, match=r"`a` expected the shape of the first"):
            process([zeros] * 5 if isinstance(zeros, np.ndarray) else zeros[None])
    with pytest.raises(TypeError, match=r"`a` expected the dtype of the first call"):
        process(tf.zeros([2]))
    with pytest.raises(TypeError, match=r"`a` expected a floating-point dtype"):
        process(tf.constant([1, 2]))


make_noise = noise.OrnsteinUhlenbeckNoise
BAD = {
    "sigma": (ValueError, lambda: make_noise(sigma=-0.1), "sigma"),
    "infinite": (ValueError, lambda: make_noise(sigma=np.inf), "sigma"),
    "theta": (ValueError, lambda: make_noise(theta=-0.1), "theta"),
    "mu": (ValueError, lambda: make_noise(mu=np.nan), "mu"),
    "text": (TypeError, lambda: make_noise(mu="0"), "mu"),
    "bounds": (ValueError, lambda: make_noise(min_value=1, max_value=0), "min_value"),
    "nan_bound": (ValueError, lambda: make_noise(max_value=np.nan), "max_value"),
    "damping": (ValueError, lambda: noise.OUProcess([0.0], 1.5), "damping"),
    "stddev": (ValueError, lambda: noise.OUProcess([0.0], 0.5, -1.0), "stddev"),
    "integers": (TypeError, lambda: noise.OUProcess([0]), "initial_value"),
    "seed": (TypeError, lambda: make_noise(random_seed="x"), "random_seed"),
    "long_seed": (ValueError, lambda: make_noise(random_seed=2**64), "random_seed"),
    "no_action": (TypeError, lambda: make_noise()(None), "a"),
    "word": (TypeError, lambda: make_noise()("a"), "a"),
    "object": (TypeError, lambda: make_noise()(object()), "a"),
    "traced": (TypeError, lambda: tf.function(make_noise())(None), "a"),
    "discrete": (
        TypeError,
        lambda: noise.create_ou_process(gym.spaces.Discrete(2), 0.1, 0.1),
        "action_spec",
    ),
}


@pytest.mark.parametrize(("error", "make", "name"), BAD.values(), ids=BAD)
def test_bad_arguments(error, make, name):
    with pytest.raises(error, match=rf"`: `{name}` expected"):
        make()


# Settings that are assigned.


@pytest.mark.parametrize("kind", ["array", "eager", "xla"])
def test_what_is_assigned_counts_from_the_next_call(kind):
    process = noise.OrnsteinUhlenbeckNoise(mu=1.0, sigma=0.0, theta=1.0)
    step = tf.function(process, jit_compile=True) if kind == "xla" else process
    zeros = np.zeros([2]) if kind == "array" else tf.zeros([2])
    np.testing.assert_array_equal(step(zeros), [1.0, 1.0])
    process.mu *= 3.0
    np.testing.assert_array_equal(step(zeros), [3.0, 3.0])
    process.theta = 0.5
    process.mu = 1.0
    np.testing.assert_array_equal(step(zeros), [2.0, 2.0])
    process.max_value = 1.25
    np.testing.assert_array_equal(step(zeros), [1.25, 1.25])
    process.max_value = None
    process.min_value = 4.0
    np.testing.assert_array_equal(step(zeros), [4.0, 4.0])
    process.min_value = None
    process.sigma = 1.0
    assert np.std([step(zeros) for _ in range(20)]) > 0.0


def test_settings_are_read_as_they_were_given():
    process = noise.OrnsteinUhlenbeckNoise(sigma=[0.5, 1.0], random_seed=7)
    found = process.mu, process.theta, process.min_value, process.max_value
    assert found == (0.0, 0.15, None, None)
    assert process.random_seed == 7
    process.sigma *= 0.5
    np.testing.assert_array_equal(process.sigma, [0.25, 0.5])
    process.sigma = 2
    np.testing.assert_array_equal(process.sigma, [2.0, 2.0])
    schedule = schedules.ConstantScheduler(0.0)
    process.sigma = schedule
    assert process.sigma is schedule
    variable = tf.Variable(3.0)
    process.mu = variable
    assert process.mu is variable
    np.testing.assert_allclose(process(np.zeros(2)), [3.0, 3.0])
    variable.assign(5.0)
    np.testing.assert_allclose(process(np.zeros(2)), [3.3, 3.3])


def test_sigma_is_halved_inside_a_graph():
    process = noise.OrnsteinUhlenbeckNoise(sigma=4.0)

    @tf.function
    def halve():
        process.sigma *= 0.5

    halve(), halve()
    assert process.sigma == 1.0


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("sigma", -1.0, ValueError, r"`sigma` expected numbers in \[0.0, inf\]"),
        ("sigma", [1.0, 2.0], ValueError, r"`sigma` expected a number or an array"),
        ("theta", 0.0, ValueError, "`theta` expected numbers > 0"),
        ("mu", None, TypeError, "`mu` expected numbers"),
        ("mu", np.nan, ValueError, "`mu` expected finite numbers"),
        ("max_value", -2.0, ValueError, "`max_value` expected at least `min_value`"),
        ("min_value", 2.0, ValueError, "`min_value` expected at most `max_value`"),
    ],
)
def test_what_cannot_be_assigned_changes_nothing(name, value, error, message):
    process = noise.OrnsteinUhlenbeckNoise(min_value=-1.0, max_value=1.0)
    before = getattr(process, name)
    with pytest.raises(error, match=message):
        setattr(process, name, value)
    assert getattr(process, name) == before


def test_settings_go_into_checkpoints_copies_and_exports(tmp_path):
    process = noise.OrnsteinUhlenbeckNoise(sigma=1.0, random_seed=1)
    zeros = tf.zeros([3, 2], tf.float64)
    moved_on(process)
    process.sigma, process.mu, process.min_value = 0.0, 2.0, -1.0
    path = tf.train.Checkpoint(process=process).write(str(tmp_path / "c"))
    other = noise.OrnsteinUhlenbeckNoise(sigma=1.0, random_seed=2)
    status = tf.train.Checkpoint(process=other).read(path)
    expected = moved_on(process)
    np.testing.assert_array_equal(moved_on(other), expected)
    status.assert_consumed()
    found = other.sigma, other.mu, other.min_value, other.max_value, other.random_seed
    assert found == (0.0, 2.0, -1.0, None, 1)
    twin = copy.deepcopy(process)
    twin.sigma = 3.0
    assert process.sigma == 0.0
    process.served = tf.function(
        process.__call__, input_signature=[tf.TensorSpec(zeros.shape, zeros.dtype)]
    )
    tf.saved_model.save(process, str(tmp_path / "m"))
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    np.testing.assert_allclose(loaded.served(zeros), process(zeros), rtol=1e-6)


def test_an_assigned_seed_starts_both_streams_anew(tmp_path):
    process = noise.OrnsteinUhlenbeckNoise(random_seed=1)
    moved_on(process)
    path = tf.train.Checkpoint(process=process).write(str(tmp_path / "c"))
    expected = moved_on(noise.OrnsteinUhlenbeckNoise(random_seed=5))
    for _ in range(2):  # the same seed starts them anew, too
        process.random_seed = 5
        process.reset()
        np.testing.assert_array_equal(moved_on(process), expected)
    assert process.random_seed == 5
    fresh = noise.OrnsteinUhlenbeckNoise(random_seed=2)
    tf.train.Checkpoint(process=fresh).read(path)
    fresh.random_seed = 5  # after reading, before the variables are made
    fresh.reset()
    np.testing.assert_array_equal(moved_on(fresh), expected)
    process.random_seed = None
    assert process.random_seed != 5
    with pytest.raises(TypeError, match="`random_seed` expected an int"):
        process.random_seed = "x"


# One step of the recursion.


def test_steps_by_hand(white):
    white.extend([[1.0, -1.0], [0.0, 4.0]])
    variable = tf.Variable([0.0, 2.0])
    first = noise._step(variable, tf.constant([0, 0]), 1.0, 0.5, 0.1)
    np.testing.assert_allclose(first, [0.6, 1.4], rtol=1e-6)
    second = noise._step(variable, tf.constant([0, 0]), 1.0, 0.5, 1.0, None, 2.0)
    np.testing.assert_allclose(second, [0.8, 2.0], rtol=1e-6)
    np.testing.assert_array_equal(variable, second)
    np.testing.assert_allclose(first, [0.6, 1.4], rtol=1e-6)  # not overwritten


def test_narrow_dtypes_and_gradients():
    action = tf.constant([1.0, 2.0], tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(action)
        noisy = noise.OrnsteinUhlenbeckNoise(max_value=0.5)(action)
    assert noisy.dtype == tf.bfloat16
    assert np.all(noisy.numpy() <= action.numpy() + 0.5)
    np.testing.assert_array_equal(tape.gradient(noisy, action), [1.0, 1.0])


def test_each_replica_of_a_strategy_has_a_process_of_its_own():
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        process = noise.OUProcess(tf.zeros([3]), damping=0.5, stddev=1.0, seed=0)
        noisy = noise.OrnsteinUhlenbeckNoise(random_seed=0)
        noisy(tf.zeros([3]))
    run = tf.function(lambda: strategy.run(lambda: (process(), noisy(tf.zeros([3])))))
    for _ in range(3):
        for results in map(strategy.experimental_local_results, run()):
            assert np.all(results[0] != results[1])
