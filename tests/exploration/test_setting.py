"""Settings of the noise that are assigned, and the attribute that keeps them."""

import copy

import numpy as np
import pytest
import tensorflow as tf

from tfrl import schedules
from tfrl.exploration import _setting, noise

MODES = {
    "eager": lambda f: f,
    "graph": tf.function,
    "xla": lambda f: tf.function(f, jit_compile=True),
}


def moved_on(process, n=2):
    zeros = np.zeros([3, 2])
    pairs = [(process(tf.constant(zeros)), process(zeros)) for _ in range(n)]
    return np.stack([x for pair in pairs for x in pair])


class Range(tf.Module):
    low = _setting.Setting(least=0.0, absent=-np.inf, at_most="high")
    high = _setting.Setting(least=0.0, is_open=True, is_scheduled=True)


def test_a_setting_is_kept_in_a_variable():
    made = Range()
    with pytest.raises(AttributeError, match="low"):
        _ = made.low
    made.high, made.low = 2, None
    assert (made.low, made.high, len(made.variables)) == (None, 2.0, 2)
    made.low = np.float32(0.5)
    assert isinstance(made.low, float)
    with pytest.raises(ValueError, match="`Range`: `low` expected at most `high` 2.0"):
        made.low = 3.0
    with pytest.raises(ValueError, match="`Range`: `high` expected numbers > 0"):
        made.high = 0.0
    assert (made.low, made.high) == (0.5, 2.0)
    made.high = made.low.__abs__
    assert made.high() == 0.5


@pytest.mark.parametrize("kind", ["array", "eager", "graph", "xla"])
def test_what_is_assigned_counts_from_the_next_call(kind):
    process = noise.OrnsteinUhlenbeckNoise(mu=1.0, sigma=0.0, theta=1.0)
    step = process if kind == "array" else MODES[kind](process)
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
