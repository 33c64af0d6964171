"""Tests of `tfrl.environments.sampling`."""

import golden_io
import golden_spaces
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from tfrl.environments import sampling

SAMPLES = golden_spaces.cases("safe_sample")
BATCHES = golden_spaces.cases("get_transition_batch")


@pytest.mark.parametrize("case", SAMPLES, ids=golden_io.ids(SAMPLES))
def test_recorded_samples(case):
    expected = case["outputs"]["result"]
    if isinstance(expected, golden_io.Raised):
        with pytest.raises(TypeError, match=r"`space` expected a gymnasium\.Space"):
            sampling.safe_sample(*case["inputs"]["args"])
    elif case["id"] == "safe_sample_fallback_sequence":
        drawn = sampling.safe_sample(spaces.Sequence(spaces.Discrete(2)))
        assert type(drawn).__name__ == expected
    else:
        # The original counts from 0 whatever the start.
        space = golden_spaces.named(case["space"])
        drawn = sampling.safe_sample(space, case["seed"], from_start=False)
        golden_spaces.assert_same(drawn, expected, case["tol"])


@pytest.mark.parametrize("case", BATCHES, ids=golden_io.ids(BATCHES))
def test_recorded_batches(case):
    expected = case["outputs"]["result"]
    if isinstance(expected, golden_io.Raised):
        env = golden_spaces.Shown(spaces.Discrete(2), spaces.Discrete(2))
        with pytest.raises((TypeError, ValueError), match="`get_transition_batch`"):
            sampling.get_transition_batch(env, **case["kwargs"])
        return
    env = golden_spaces.Shown(
        golden_spaces.named(case["obs_space"]), golden_spaces.named(case["act_space"])
    )
    batch = sampling.get_transition_batch(env, **case["kwargs"])
    if "start=2" in case["act_space"]:
        batch = batch._replace(
            actions=batch.actions - 2, next_actions=batch.next_actions - 2
        )
    assert list(expected)[-1] == "extra_info" and batch.extra_info is None
    golden_spaces.assert_same(
        tuple(batch[:-1]), tuple(expected.values())[:-1], case["tol"]
    )
    assert batch.indices.dtype == np.int32


def test_all_recordings_are_here():
    assert (len(SAMPLES), len(BATCHES)) == (18, 6)


@pytest.mark.parametrize(
    ("low", "high", "nearest"),
    [
        *[(3.0, 500.0, 3.0), (-500.0, -3.0, -3.0), (0.0, np.inf, 0.0), (7.0, 7.0, 7.0)],
        *[(2e9, 3e9, 2e9), (-3e9, -2e9, -2e9), (2e9, np.inf, 2e9)],
    ],
)
def test_boxes_keep_their_bounds(low, high, nearest):
    space = spaces.Box(low, high, (50,), np.float64)
    drawn = sampling.safe_sample(space, seed=1)
    assert np.all((drawn >= low) & (drawn <= high))
    assert np.all(np.abs(drawn - nearest) <= np.log1p(min(high - low, 3e9)))
    assert len(np.unique(drawn)) == (1 if low == high else 50)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float16])
def test_box_of_full_range_does_not_overflow(dtype):
    limits = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else np.finfo(dtype)
    space = spaces.Box(limits.min, limits.max, (100,), dtype)
    drawn = sampling.safe_sample(space, seed=2)
    assert np.all(np.isfinite(drawn))
    # Evenly drawn, a half lies on each side of the middle.
    middle = 0.0 if limits.min < 0 else np.log1p(0.5 * limits.max)
    assert 30 <= np.sum(drawn > middle) <= 70


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Box(0, 1, (2,))),
        spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
        spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
    ],
    ids=["text", "sequence", "graph", "one_of"],
)
def test_other_spaces_are_seeded_and_left_alone(space):
    space.seed(5)
    before = repr(space.np_random.bit_generator.state)
    one, two = (repr(sampling.safe_sample(space, seed=3)) for _ in range(2))
    assert one == two
    assert repr(space.np_random.bit_generator.state) == before
    assert space.contains(sampling.safe_sample(space, seed=3))


def test_seeds():
    space = spaces.Box(-1, 1, (4,))
    draw = sampling.safe_sample
    assert not np.array_equal(draw(space), draw(space))
    generator = np.random.RandomState(0)
    np.testing.assert_array_equal(draw(space, generator), draw(space, 0))
    assert not np.array_equal(draw(space, generator), draw(space, 0))


SHIFTED = [
    spaces.Discrete(3, start=5),
    spaces.Discrete(3, start=-7),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[3, -3], [0, 10]]),
    spaces.Dict(a=spaces.Tuple([spaces.Discrete(2, start=1)]), b=spaces.Discrete(4)),
]


@pytest.mark.parametrize("space", SHIFTED, ids=str)
def test_integers_lie_in_spaces_that_start_elsewhere(space):
    for seed in range(20):
        assert space.contains(sampling.safe_sample(space, seed))
    drawn = [sampling.safe_sample(space, k, from_start=False) for k in range(20)]
    assert not all(map(space.contains, drawn))


def test_batch_of_a_vector_has_the_shapes_of_one():
    envs = gym.make_vec("CartPole-v1", 3)
    batch = sampling.get_transition_batch(envs, batch_size=2, random_seed=0)
    assert batch.observations.shape == batch.next_observations.shape == (2, 4)
    assert batch.actions.shape == (2,)


def test_batch_of_nested_and_odd_spaces():
    text = spaces.Text(3)
    space = spaces.Tuple([text, spaces.Dict(a=spaces.Discrete(3))])
    env = golden_spaces.Shown(space, spaces.Discrete(2))
    batch = sampling.get_transition_batch(env, batch_size=4, random_seed=1)
    words, rest = batch.observations
    assert isinstance(words, tuple) and all(text.contains(word) for word in words)
    assert rest["a"].shape == (4,)


def test_batch_numbers_stay_in_their_bounds():
    env = gym.make("CartPole-v1")
    batch = sampling.get_transition_batch(env, 150, gamma=0.5, random_seed=0)
    assert set(batch.discounts.tolist()) == {0.0, 0.5}
    assert np.abs(batch.rewards).max() <= 5.0
    assert 0.01 <= batch.weights.min() and batch.weights.max() <= 100.0
    for logs in (batch.log_probs, batch.next_log_probs):
        assert np.log(0.01) <= logs.min() and logs.max() <= np.log(0.99)


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        *[({"batch_size": 0}, ValueError), ({"batch_size": 1.0}, TypeError)],
        *[({"batch_size": True}, TypeError), ({"gamma": 1.1}, ValueError)],
        *[({"gamma": float("nan")}, ValueError), ({"gamma": "1"}, TypeError)],
        *[({"random_seed": -1}, ValueError), ({"random_seed": "1"}, TypeError)],
        ({"env": "CartPole-v1"}, TypeError),
    ],
    ids=str,
)
def test_bad_batches(kwargs, error):
    (name,) = kwargs
    with pytest.raises(error, match=f"`get_transition_batch`: `{name}` expected"):
        sampling.get_transition_batch(**{"env": gym.make("CartPole-v1")} | kwargs)


def test_numbers_of_numpy():
    env = gym.make("CartPole-v1")
    numbers = np.int64(3), np.float32(0.5), np.uint8(1)
    batch = sampling.get_transition_batch(env, *numbers)
    same = sampling.get_transition_batch(env, 3, 0.5, 1)
    np.testing.assert_array_equal(batch.observations, same.observations)
    np.testing.assert_array_equal(batch.discounts, same.discounts)


def test_bad_seeds():
    for seed in (-1, 1 << 32, 1.5, "1"):
        error = ValueError if isinstance(seed, int) else TypeError
        with pytest.raises(error, match="`safe_sample`: `seed` expected an int in"):
            sampling.safe_sample(spaces.Discrete(3), seed)
