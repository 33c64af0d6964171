"""The replay of collection in one graph: what is drawn, how often, with which goals."""

import default_rows
import numpy as np
import pytest
import tensorflow as tf

from tfrl.core import records
from tfrl.training import experience
from tfrl.training.collecting import _device_goals, _device_priorities, _device_replay

N, T, CAPACITY, STEPS = 3, 2, 6, 14


def history(seed=0, with_goals=False):
    """Steps `[STEPS, N]` of episodes of all lengths, each of its own number."""
    rng = np.random.default_rng(seed)
    t = np.arange(STEPS)[:, None] * 10.0 + np.arange(N)
    ends = rng.random((2, STEPS, N)) < [[[0.25]], [[0.15]]]
    seen, after = t.astype("f"), (t + 0.5).astype("f")
    if with_goals:
        seen, after = (
            {"achieved_goal": x, "desired_goal": np.full_like(x, -1)}
            for x in (seen, after)
        )
    rewards = (t / 7).astype("f")
    valid = np.ones([STEPS, N], bool)
    return records.Trajectory(seen, t.astype("f"), rewards, *ends, after, valid)


def filled(rows, learned, n_steps=STEPS, mode=tf.function):
    """A replay of pieces of T steps, to which all of them were added."""
    pieces = [
        tf.nest.map_structure(lambda x, t=t: tf.constant(x[t : t + T]), rows)
        for t in range(0, n_steps, T)
    ]
    replay = _device_replay.DeviceReplay.of(pieces[0], learned)
    add = mode(lambda replay, piece: replay.extended(piece, learned.alpha))
    for piece in pieces:
        replay = add(replay, piece)
    return replay


def replayed(**options):
    given = {"capacity": CAPACITY * N, "batch_size": 8, "learning_starts": 0}
    return experience.Replayed(**{**given, "gamma": 0.9, **options})


def drawn(replay, learned, n_batches=100, relabelling=None, mode=tf.function):
    """Columns `[n]` of transitions, and indices, weights, probabilities."""
    sample = mode(lambda seed: replay.drawn(seed, n_batches, learned, relabelling))(
        tf.constant([3, 4])
    )
    assert sample.weights.shape == (n_batches, 8)
    flat = tf.nest.map_structure(lambda x: x.numpy().ravel(), sample)
    return flat.data, flat.indices, flat.weights, flat.probabilities


def ends_of(rows):
    return rows.terminated | rows.truncated


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_replay_draws_what_was_collected(sampler):
    rows, m = history(), 3
    learned = replayed(n_step_returns=m, sampler=sampler)
    data, indices, weights, shares = drawn(filled(rows, learned), learned)
    begun = {*data.observations}
    assert begun == {
        10.0 * t + n for t in range(STEPS - CAPACITY, STEPS) for n in range(N)
    }
    np.testing.assert_array_equal(weights, 1.0)
    np.testing.assert_allclose(shares, 1 / (CAPACITY * N), rtol=1e-6)
    for row, seen, action, reward, discount, after in zip(indices, *data, strict=True):
        t, n = divmod(int(seen), 10)
        assert row == t % CAPACITY * N + n
        total, factor = 0.0, 1.0
        for last in range(t, min(t + m, STEPS)):
            total += factor * rows.rewards[last, n]
            factor *= 0.9 * (1 - rows.terminated[last, n])
            if ends_of(rows)[last, n]:
                break
        assert (action, after) == (seen, rows.next_observations[last, n])
        np.testing.assert_allclose([reward, discount], [total, factor], rtol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_rows_are_drawn_in_proportion_to_priorities(jit):
    n_pieces, width, alpha, beta = 5, 7, 0.6, 0.4
    given = np.random.default_rng(0).exponential(size=n_pieces * width) + 0.1
    priorities = _device_priorities.DevicePriorities.of(n_pieces, width)
    for i in range(4):
        priorities = priorities.added(i, alpha)
    some = np.arange(4 * width)
    # Of a row that comes twice the last priority counts.
    rows = np.concatenate([some, some[::2]])
    values = np.concatenate([given[some] + 3.0 * (some % 2 == 0), given[some[::2]]])
    priorities = tf.function(priorities.updated)(
        tf.constant(rows, tf.int32), tf.constant(values, tf.float32), alpha
    )
    assert float(priorities.highest) == pytest.approx(values.max())
    masses = (given + 1e-6) ** alpha
    masses[4 * width :] = 0.0
    np.testing.assert_allclose(np.ravel(priorities.masses), masses, rtol=1e-5)
    chance = tf.random.stateless_uniform([2, 200_000], [1, 2])
    rows, weights, shares = tf.function(priorities.drawn, jit_compile=jit)(
        chance, tf.constant(4), beta
    )
    expected = masses / masses.sum()
    np.testing.assert_allclose(shares, expected[rows], rtol=1e-5)
    np.testing.assert_allclose(
        weights, (expected[expected > 0].min() / expected[rows]) ** beta, rtol=1e-5
    )
    # Five standard deviations of a share of so many draws.
    found = np.bincount(rows, minlength=len(masses)) / 200_000
    assert not found[4 * width :].any()
    assert np.all(np.abs(found - expected) <= 5 * np.sqrt(expected / 200_000))


def test_numbers_at_the_edges_draw_rows_that_are_there():
    priorities = _device_priorities.DevicePriorities.of(3, 4).added(0, 1.0)
    below = np.nextafter(np.float32(1), np.float32(0))
    chance = tf.constant([[0.0, below], [0.0, below]], tf.float32)
    rows = priorities.drawn(chance, tf.constant(1), 0.4)[0]
    assert rows.numpy().tolist() == [0, 3]


def test_new_rows_have_the_highest_priority():
    learned = replayed(sampler="prioritized", alpha=1.0)
    replay = filled(history(), learned)
    priorities = replay.priorities.updated(
        tf.range(CAPACITY * N), tf.range(CAPACITY * N, dtype=tf.float32), 1.0
    )
    piece = tf.nest.map_structure(lambda x: tf.constant(x[:T]), history())
    replay = replay._replace(priorities=priorities).extended(piece, 1.0)
    start = STEPS // T % (CAPACITY // T)
    expected = np.arange(CAPACITY * N, dtype=np.float32).reshape(-1, T * N)
    expected[start] = CAPACITY * N - 1
    np.testing.assert_allclose(replay.priorities.masses, expected, rtol=1e-5, atol=2e-6)


def test_priorities_that_are_no_numbers_are_refused():
    priorities = _device_priorities.DevicePriorities.of(1, 2).added(0, 1.0)
    priorities.check()
    with pytest.raises(ValueError, match="priorities"):
        priorities.updated(tf.constant([1]), tf.constant([np.nan]), 1.0).check()


@pytest.mark.parametrize(
    "n_steps",
    [
        pytest.param(2, marks=pytest.mark.slow),
        4,
        pytest.param(STEPS, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("strategy", ["future", *default_rows.slow("episode", "final")])
def test_goals_are_those_achieved_in_the_episode(strategy, n_steps):
    rows = history(seed=1, with_goals=True)
    learned = replayed(relabel=strategy, n_step_returns=2, gamma=1.0)
    relabelling = _device_goals.Relabelling(
        lambda achieved, desired: 100 * achieved - desired, 0.5, strategy
    )
    replay = filled(rows, learned, n_steps)
    data, *_ = drawn(replay, learned, 500, relabelling)
    seen, after = data.observations, data.next_observations
    np.testing.assert_array_equal(seen["desired_goal"], after["desired_goal"])
    ended, reached = ends_of(rows), rows.next_observations["achieved_goal"]
    oldest, found, n_kept = max(0, n_steps - CAPACITY), {}, 0
    for i, begun in enumerate(seen["achieved_goal"]):
        t, n = divmod(int(begun), 10)
        taken = [t] if ended[t, n] or t + 1 == n_steps else [t, t + 1]
        goal = seen["desired_goal"][i]
        if goal == -1.0:
            n_kept += 1
            expected = rows.rewards[taken, n].sum()
        else:
            expected = (100 * reached[taken, n] - goal).sum()
            found.setdefault((t, n), set()).add(float(goal))
        np.testing.assert_allclose(data.rewards[i], expected, rtol=1e-5)
        assert after["achieved_goal"][i] == reached[taken[-1], n]
    assert abs(n_kept / 4000 - 0.5) < 0.05
    for (t, n), goals in found.items():
        first = last = t
        while last + 1 < n_steps and not ended[last, n]:
            last += 1
        while first > oldest and not ended[first - 1, n]:
            first -= 1
        start = {"future": t, "episode": first, "final": last}[strategy]
        assert goals == {float(reached[s, n]) for s in range(start, last + 1)}


@pytest.mark.slow
def test_a_graph_of_xla_draws_the_same_goals():
    rows = history(seed=1, with_goals=True)
    learned = replayed(relabel="episode", sampler="prioritized")
    relabelling = _device_goals.Relabelling(lambda x, y: x - y, 0.8, "episode")

    def mode(function):
        return tf.function(function, jit_compile=True)

    found = [
        drawn(filled(rows, learned, mode=m), learned, 20, relabelling, mode=m)
        for m in (tf.function, mode)
    ]
    for one, other in zip(*map(tf.nest.flatten, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
