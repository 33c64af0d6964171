"""What samples are, against lists of episodes from which all of them are listed."""

import confidence
import hypothesis
import numpy as np
import pytest
import replay_episodes
import tensorflow as tf
from hypothesis import strategies as st

from tfrl import ops
from tfrl.replay.episodes import EpisodeStore
from tfrl.replay.sampling.transitions import Hindsight, Sequences, Transitions
from tfrl.replay.sampling.uniform import UniformReplay

# Half of all steps go on: else hardly an episode had two.
CODES = st.sampled_from([*[replay_episodes.ON] * 5, *range(replay_episodes.CUT + 1)])
TRANSITIONS = [
    {},
    {"n_step": 3, "discount": 0.5},
    {"frame_stack": 3},
    {"n_step": 2, "discount": 0.9, "frame_stack": 2},
]
SEQUENCES = [
    {"length": 1},
    {"length": 2},
    {"length": 2, "burn_in": 2},
    {"length": 3, "frame_stack": 2},
    {"length": 4, "pad_end": True},
    {"length": 2, "burn_in": 1, "frame_stack": 2, "pad_end": True},
]


@st.composite
def streams(draw):
    """Two or three steps of each environment at random, ending in all ways."""
    n, length = draw(st.integers(1, 3)), draw(st.integers(5, 8))
    codes = draw(st.lists(st.tuples(*[CODES] * n), max_size=24))
    looks = draw(st.integers(1, 12))
    return n, length, codes, looks


@pytest.mark.slow
@hypothesis.settings(max_examples=40)
@hypothesis.given(streams())
def test_all_and_only_what_there_is_is_drawn(stream):
    n, length, codes, looks = stream
    both = replay_episodes.Stream(n, length)
    store, model = both.store, both.model
    checks = []
    for kwargs in TRANSITIONS:
        replay = UniformReplay(store, Transitions(**kwargs), seed=0)
        checks.append((replay, model.transitions, kwargs, False))
    for k, kwargs in enumerate(SEQUENCES):
        kind = Sequences(**kwargs, time_major=k % 2 == 1)
        replay = UniformReplay(store, kind, seed=0)
        checks.append((replay, model.sequences, kwargs, kind.time_major))
    for k, code in enumerate(codes):
        both.advance(code)
        if k % looks == 0 or k == len(codes) - 1:
            for replay, listed, kwargs, transposed in checks:
                replay_episodes.assert_draws(
                    replay, listed(**kwargs), transposed=transposed
                )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [{"length": 5}, {"length": 3, "burn_in": 2}], ids=str)
def test_padded_sequences_come_and_go(kind, seed):
    both, time_major = replay_episodes.Stream(1 + seed % 3, 12), seed % 2 == 1
    kind = Sequences(**kind, time_major=time_major, pad_end=True)
    replay = UniformReplay(both.store, kind, seed=0)
    for k in range(20):
        both.run(100 * seed + k, 2, ends=0.3)
        replay_episodes.assert_draws(
            replay, both.model.listed(kind), transposed=time_major
        )


def test_behind_the_end_is_padding_by_hand():
    # An episode of two steps that terminates, and one that goes on.
    store = EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([], tf.int32), 20)
    for t in (0, 1, 10, 11):
        store.add([t], [t], [t + 1.0], [t == 1], [False], [t + 1])
    replay = UniformReplay(store, Sequences(3, pad_end=True), seed=0)
    data, indices = replay.sample(50)[:2]
    assert {*indices.tolist()} == {0, 1}
    whole, last = (
        data.__class__(*(x[indices == k][0] for x in data[:7])) for k in (0, 1)
    )
    np.testing.assert_array_equal(whole.observations, [0, 1, 1])
    np.testing.assert_array_equal(whole.next_observations, [1, 2, 2])
    np.testing.assert_array_equal(whole.terminated, [False, True, True])
    np.testing.assert_array_equal(whole.valid, [True, True, False])
    np.testing.assert_array_equal(last.actions, [1, 1, 1])
    np.testing.assert_array_equal(last.valid, [True, False, False])
    store.cut()
    data, indices = replay.sample(50)[:2]
    assert {*indices.tolist()} == {0, 1, 3, 4}
    np.testing.assert_array_equal(data.truncated[indices == 4][0], [True] * 3)


def returns(data, count):
    """Returns of several kinds from the first steps `[T, B]` of sequences."""
    data = tf.nest.map_structure(lambda x: x[:count], data)
    values, later = np.sin(data.observations), np.sin(data.next_observations)
    discounts = (0.9 * ~data.terminated).astype("f")
    lambdas = (0.8 * ~data.truncated).astype("f")
    ratios = (1 + 0.5 * np.cos(data.actions)).astype("f")
    steps = data.rewards, discounts
    return np.stack(
        [
            ops.n_step_return(*steps, later, 2, np.ceil(lambdas)),
            ops.td_lambda_return(*steps, later, lambdas),
            ops.retrace(values, later, *steps, ratios, lambdas),
            *ops.vtrace(values, later, *steps, ratios, lambdas)[:2],
        ]
    )


def test_no_return_goes_over_an_end_into_padding():
    both = replay_episodes.Stream(2, 40).run(3, 70, ends=0.3)
    kind = Sequences(6, time_major=True, pad_end=True)
    data = UniformReplay(both.store, kind, seed=0).sample(40).data
    counts = data.valid.sum(axis=0)
    assert {*counts.tolist()} == {*range(1, 7)}
    found = returns(data, 6)
    for k, count in enumerate(counts):
        alone = tf.nest.map_structure(lambda x, k=k: x[:, k : k + 1], data)
        expected = returns(alone, count)
        np.testing.assert_allclose(
            found[:, :count, k], expected[..., 0], rtol=1e-5, atol=1e-5
        )


def test_steps_by_hand():
    # An episode of three steps that terminates, and one of two that is cut off.
    store = EpisodeStore(tf.TensorSpec([]), tf.TensorSpec([], tf.int32), 20)
    for t, terminated, truncated in [(0, 0, 0), (1, 0, 0), (2, 1, 1), (10, 0, 0)]:
        store.add([t], [t], [t + 1.0], [bool(terminated)], [bool(truncated)], [t + 1])
    store.add([11], [11], [12.0], [False], [True], [12])
    replay = UniformReplay(store, Transitions(n_step=2, discount=0.5), seed=0)
    data, index = replay.sample(200)[:2]
    found = {
        int(i): tuple(map(float, row)) for i, *row in zip(index, *data, strict=True)
    }
    assert found == {
        0: (0.0, 0.0, 1 + 0.5 * 2, 0.25, 2.0),
        1: (1.0, 1.0, 2 + 0.5 * 3, 0.0, 3.0),
        2: (2.0, 2.0, 3.0, 0.0, 3.0),
        4: (10.0, 10.0, 11 + 0.5 * 12, 0.25, 12.0),
        5: (11.0, 11.0, 12.0, 0.5, 12.0),
    }
    assert data.rewards.dtype == data.discounts.dtype == np.float32


def test_frames_are_the_last_axis():
    store = EpisodeStore(tf.TensorSpec([2, 1], tf.uint8), tf.TensorSpec([]), 20)
    for t in range(3):
        now, then = np.full([1, 2, 1], t, np.uint8), np.full([1, 2, 1], t + 1, np.uint8)
        store.add(now, [0.0], [0.0], [False], [False], then)
    replay = UniformReplay(store, Transitions(frame_stack=3), seed=0)
    data, indices = replay.sample(50)[:2]
    stacks = dict(zip(indices.tolist(), data.observations, strict=True))
    assert stacks[1].dtype == np.uint8
    expected = [[0, 0, 0], [0, 0, 1], [0, 1, 2]]
    assert [stacks[k][1, 0].tolist() for k in range(3)] == expected
    then = dict(zip(indices.tolist(), data.next_observations, strict=True))
    assert then[2][0, 0].tolist() == [1, 2, 3]


def test_extra_comes_along():
    both = replay_episodes.Stream(2, 10).run(0, 30, ends=0.1)
    sample = UniformReplay(both.store, seed=0).sample(50)
    np.testing.assert_array_equal(sample.extra["n"], sample.data.actions)
    for time_major in (False, True):
        kind = Sequences(3, burn_in=2, time_major=time_major)
        sample = UniformReplay(both.store, kind, seed=0).sample(50)
        np.testing.assert_array_equal(sample.extra["n"], sample.data.actions)


GOALS = {
    "observation": tf.TensorSpec([]),
    "achieved_goal": tf.TensorSpec([1]),
    "desired_goal": tf.TensorSpec([1]),
}


def goal_store(n=2, length=12, rounds=40, seed=0):
    """What is achieved at a step is a number of its own, the goal is -1.

    Returns the store and, by what was achieved first, episodes as lists of it.
    """
    store = EpisodeStore(GOALS, tf.TensorSpec([], tf.int64), n * length, n)
    rng, count = np.random.default_rng(seed), 0
    now, episodes = [None] * n, []
    history = [[] for _ in range(n)]

    def seen(numbers):
        numbers = np.array(numbers, np.float32)
        goals = numbers[:, None]
        return {
            "observation": numbers,
            "achieved_goal": goals,
            "desired_goal": np.full_like(goals, -1.0),
        }

    for _ in range(rounds):
        for env in range(n):
            if now[env] is None:
                count += 1
                now[env] = count
                episodes.append([count])
                history[env] = episodes[-1]
        then = [count + env + 1 for env in range(n)]
        count += n
        ended = rng.random(n) < 0.15
        store.add(
            seen(now), np.arange(n), np.full(n, 7.0), ended, ended ^ ended, seen(then)
        )
        for env in range(n):
            history[env].append(then[env])
            now[env] = None if ended[env] else then[env]
    return store, episodes


@pytest.mark.parametrize(
    "strategy, n_step", [("future", 3), ("final", 1), ("episode", 3)]
)
def test_hindsight(strategy, n_step):
    store, episodes = goal_store()

    def reward_fn(achieved, desired):
        return 1000.0 * achieved[:, 0] + desired[:, 0]

    hindsight = Hindsight(reward_fn, ratio=0.75, strategy=strategy)
    kind = Transitions(n_step, 0.5, relabel=hindsight)
    sample = UniformReplay(store, kind, seed=1).sample(4000)
    before, _, rewards, _, then = sample.data
    goals = before["desired_goal"][:, 0]
    np.testing.assert_array_equal(goals, then["desired_goal"][:, 0])
    relabelled = goals != -1
    assert abs(relabelled.mean() - 0.75) < 0.05  # seven standard deviations
    kept = {float(x) for x in store.steps.columns().observations[0][:, 0]}
    possible, drawn = {}, {}
    for k in range(4000):
        here, there = before["achieved_goal"][k, 0], then["achieved_goal"][k, 0]
        episode = next(e for e in episodes if here in e)
        at, to = episode.index(here), episode.index(there)
        assert to == min(at + n_step, len(episode) - 1)
        if not relabelled[k]:
            assert rewards[k] == sum(7.0 * 0.5**j for j in range(to - at))
            continue
        stored = [x for x in episode if x in kept]
        possible[here] = {
            "future": episode[at + 1 :],
            "final": episode[-1:],
            "episode": stored[1:],
        }[strategy]
        drawn.setdefault(here, set()).add(float(goals[k]))
        expected = sum(
            0.5**j * (1000.0 * episode[at + 1 + j] + goals[k]) for j in range(to - at)
        )
        np.testing.assert_allclose(rewards[k], expected, rtol=1e-6)
    assert drawn == {here: {*goals} for here, goals in possible.items()}


def test_hindsight_with_frames_and_never():
    store, _ = goal_store()

    def reward_fn(achieved, desired):
        return achieved[:, 0] - desired[:, 0]

    kind = Transitions(frame_stack=2, relabel=Hindsight(reward_fn, 1.0, "final"))
    data = UniformReplay(store, kind, seed=0).sample(64).data
    goal = data.observations["desired_goal"]
    assert goal.shape == (64, 1, 2)
    np.testing.assert_array_equal(goal[..., 0], goal[..., 1])
    reached = data.next_observations["achieved_goal"][..., -1]
    np.testing.assert_allclose(data.rewards, (reached - goal[..., 0])[:, 0])
    kind = Transitions(relabel=Hindsight(reward_fn, 0.0))
    data = UniformReplay(store, kind, seed=0).sample(64).data
    assert (data.observations["desired_goal"] == -1).all()
    assert (data.rewards == 7.0).all()


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: Transitions(0), ValueError, "`n_step` expected an int of at least 1"),
        (lambda: Transitions(1.5), TypeError, "`n_step` expected an int"),
        (lambda: Transitions(discount=1.1), ValueError, "`discount` expected"),
        (lambda: Transitions(frame_stack=0), ValueError, "`frame_stack` expected"),
        (lambda: Transitions(relabel="future"), TypeError, "`relabel` expected a Hin"),
        (lambda: Sequences(0), ValueError, "`length` expected"),
        (lambda: Sequences(2, burn_in=-1), ValueError, "`burn_in` expected"),
        (lambda: Sequences(2, burn_in=True), TypeError, "`burn_in` expected"),
        (lambda: Sequences(2, frame_stack=0), ValueError, "`frame_stack` expected"),
        (lambda: Sequences(2, pad_end=1), TypeError, "`pad_end` expected a bool"),
        (lambda: Hindsight(3), TypeError, "`reward_fn` expected a function"),
        (lambda: Hindsight(max, ratio=1.5), ValueError, "`ratio` expected"),
        (lambda: Hindsight(max, strategy="past"), ValueError, "`strategy` expected"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_store_without_goals_and_too_long_sequences_are_refused():
    store = replay_episodes.Stream(1, 5).store
    with pytest.raises(ValueError, match="a dict with .*achieved_goal.*; got Tensor"):
        Transitions(relabel=Hindsight(max)).reader(store.steps)
    with pytest.raises(ValueError, match="less than the 5 rows.*got 4 and 1"):
        Sequences(4, burn_in=1).reader(store.steps)
    assert Sequences(4).reader(store.steps).reach == 4


@pytest.mark.parametrize(
    ("reward_fn", "match"),
    [
        (lambda achieved, _: achieved, r"\[8\] numbers"),
        (
            lambda achieved, _: np.full(len(achieved), np.nan),
            "finite .*; got nan of ac",
        ),
        (lambda achieved, _: 1 / np.zeros(len(achieved)), "finite numbers; got inf of"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_wrong_reward_function_is_reported(reward_fn, match):
    store, _ = goal_store()
    kind = Transitions(relabel=Hindsight(reward_fn, 1.0))
    replay = UniformReplay(store, kind, seed=0)
    match = f"`Hindsight`: `reward_fn` expected to return {match}"
    with pytest.raises(ValueError, match=match):
        replay.sample(8)


@pytest.mark.parametrize(
    "strategy, counts", [("future", [0, 0, 1, 1, 1]), ("episode", [0, 1, 1, 1, 1])]
)
def test_goals_are_drawn_uniformly(strategy, counts):
    store = EpisodeStore(GOALS, tf.TensorSpec([]), 20)
    for t in range(4):
        seen, after = (
            {key: np.full([1, *GOALS[key].shape], t + k, np.float32) for key in GOALS}
            for k in (0, 1)
        )
        store.add(seen, [0.0], [0.0], [t == 3], [False], after)
    hindsight = Hindsight(lambda achieved, _: achieved[:, 0], 1.0, strategy)
    reader = Transitions(relabel=hindsight).reader(store.steps)
    read = reader.read(np.full(6000, 1), np.random.default_rng(0), None)
    goals = np.bincount(read[1][:, 0].astype(int), minlength=5)
    confidence.assert_frequencies(goals, np.array(counts))
