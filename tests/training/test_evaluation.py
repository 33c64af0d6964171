"""Policies judged by episodes; predictions of data sets, and scores."""

import golden_io
import gymnasium as gym
import keras
import numpy as np
import pytest
import refusals
import tensorflow as tf
from gymnasium.vector import AutoresetMode
from refusals import bad
from toy_envs import MODES, Walk, act, vector

from tfrl.environments import parallel_vector
from tfrl.environments import vector as vectors
from tfrl.training import evaluation
from tfrl.training.collecting import recording

ROWS, WALKS = np.ones([2, 3]), vector(AutoresetMode.DISABLED)
predict = evaluation.predict_dataset


def episodes_slowly(seed, n):
    """Returns and lengths of the first `n` episodes of one walk."""
    env, found = Walk(), []
    observation, _ = env.reset(seed=seed)
    total = 0.0
    while len(found) < n:
        action = act(observation[None])[0]
        observation, reward, terminated, truncated, _ = env.step(int(action))
        total += reward
        if terminated or truncated:
            found.append((total, env.steps))
            observation, _ = env.reset()
            total = 0.0
    return found


def play(mode, n_envs, n_episodes, layout="box"):
    return evaluation.evaluate(
        lambda observations: act(observations).astype(np.int64),
        vector(mode, n_envs, layout),
        n_episodes,
        seed=11,
    )


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("n_envs", "n_episodes", "quota"),
    [(3, 9, [3, 3, 3]), (3, 7, [3, 2, 2]), (4, 2, [1, 1, 0, 0]), (1, 5, [5])],
)
def test_first_episodes_of_each_environment(mode, n_envs, n_episodes, quota):
    played = play(mode, n_envs, n_episodes)
    expected = [
        episode
        for env, n in enumerate(quota)
        for episode in episodes_slowly(11 + env, n)
    ]
    returns, lengths = zip(*expected, strict=True)
    np.testing.assert_allclose(played.returns, returns, rtol=1e-12)
    np.testing.assert_array_equal(played.lengths, lengths)
    assert played.returns.dtype == np.float64
    assert played.lengths.dtype == np.int64


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_long_episodes_count_as_much_as_short_ones(mode):
    lengths = play(mode, 50, 500).lengths
    # Lengths 1 to 5 are equally likely; counting what ends first would favour 1.
    np.testing.assert_allclose(lengths.mean(), 3.0, atol=4 * np.sqrt(2.0 / 500))


class Told(gym.Wrapper):
    """Tells a success where an episode truly ends, or nothing at all."""

    def __init__(self, env, tells=True):
        super().__init__(env)
        self.tells = tells

    def step(self, action):
        *outcome, terminated, truncated, info = self.env.step(action)
        info = {"is_success": terminated} if self.tells else info
        return *outcome, terminated, truncated, info


def told(mode, tells):
    envs = [lambda each=each: Told(Walk(), each) for each in tells]
    envs = gym.vector.SyncVectorEnv(envs, autoreset_mode=mode)
    return evaluation.evaluate(
        lambda observations: act(observations).astype(np.int64), envs, 9, seed=11
    ).successes


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_infos_tell_successes(mode):
    expected = []
    for seed in (11, 12, 13):
        env = Walk()
        env.reset(seed=seed)
        for _ in range(3):
            expected.append(env.true_end)
            env.reset()
    assert 0 < sum(expected) < 9
    assert told(mode, [True] * 3).tolist() == expected
    # Who says nothing had none, where others say something.
    assert told(mode, [True, False, True]).tolist() == [
        success and not 3 <= i < 6 for i, success in enumerate(expected)
    ]
    assert told(mode, [False] * 3).shape == (0,)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        (np.True_, True),
        (np.float32(0.0), False),
        (np.ones(1, np.float32), True),
        (np.nan, False),
        ("yes", None),
        (np.ones(2), None),
        ([[1], [1, 2]], None),
        (np.array(["yes"], object), None),
        (None, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_kinds_of_flags(flag, expected, mode):
    class Flagged(gym.Wrapper):
        def step(self, action):
            *outcome, info = self.env.step(action)
            return *outcome, {**info, "is_success": flag}

    envs = gym.vector.SyncVectorEnv([lambda: Flagged(Walk())] * 2, autoreset_mode=mode)
    played = evaluation.evaluate(act, envs, 4, seed=1)
    assert played.successes.tolist() == [expected] * 4 * (expected is not None)


@pytest.mark.parametrize("kind", [list, lambda x: np.array(x, object)])
@pytest.mark.parametrize("flag", [True, None])
def test_infos_of_each_environment_as_they_were_before_gymnasium_1(kind, flag):
    class Old(gym.vector.VectorWrapper):
        def step(self, actions):
            *outcome, terminated, truncated, info = self.env.step(actions)
            ended = terminated | truncated
            own = {"other": 1} if flag is None else {"is_success": flag}
            info["final_info"] = kind([own if end else None for end in ended])
            return *outcome, terminated, truncated, info

    envs = Old(vector(AutoresetMode.SAME_STEP, 3))
    played = evaluation.evaluate(act, envs, 6, seed=1)
    assert played.successes.tolist() == [True] * 6 * (flag is not None)


class PaidResets(gym.vector.VectorWrapper):
    """Gives rewards for the steps of a NEXT_STEP vector that only reset."""

    ended = np.zeros(1, bool)

    def step(self, actions):
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        rewards, self.ended = rewards + 100.0 * self.ended, terminated | truncated
        return observations, rewards, terminated, truncated, info


def test_what_resets_bring_does_not_count():
    envs = PaidResets(vector(AutoresetMode.NEXT_STEP, 2))
    paid = evaluation.evaluate(act, envs, 6, seed=11)
    np.testing.assert_allclose(paid.returns, play(MODES[0], 2, 6).returns, rtol=1e-12)


@pytest.mark.parametrize("layout", ["dict", "tuple"])
def test_nested_observations(layout):
    played, flat = (
        play(AutoresetMode.SAME_STEP, 2, 6, kind) for kind in (layout, "box")
    )
    np.testing.assert_array_equal(played.returns, flat.returns)


class Worth:
    """Three agents whose only step is worth 3, 10 and 8."""

    possible_agents = ("a", "b", "c")

    def observation_space(self, agent):
        return gym.spaces.Box(0.0, 1.0, (1,))

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {x: np.zeros(1, np.float32) for x in "abc"}, {x: {} for x in "abc"}

    def step(self, actions):
        self.agents = []
        seen = {x: np.zeros(1, np.float32) for x in "abc"}
        rewards = {"a": 3.0, "b": 10.0, "c": 8.0}
        ends, no = dict.fromkeys("abc", True), dict.fromkeys("abc", False)
        return seen, rewards, ends, no, {x: {} for x in "abc"}


@pytest.mark.parametrize("n_envs", [3, 6])
def test_agents_count_as_many_episodes_each(n_envs):
    envs = parallel_vector.ParallelEnvVector(Worth, n_envs)

    def policy(seen):
        return np.zeros(len(seen), np.int64)

    for n_episodes in (3, 6, 9):
        played = evaluation.evaluate(policy, envs, n_episodes, seed=0)
        assert played.returns.mean() == 7.0
        by_agent = {x: y.tolist() for x, y in played.returns_by_agent().items()}
        n = n_episodes // 3
        assert by_agent == {"a": [3.0] * n, "b": [10.0] * n, "c": [8.0] * n}
    wrapped = gym.vector.VectorWrapper(envs)
    for n_episodes, near in ((1, 3), (4, 6)):
        message = (
            f"`n_episodes` expected a multiple of 3.*got {n_episodes}; take {near}"
        )
        with pytest.raises(ValueError, match=message):
            evaluation.evaluate(policy, wrapped, n_episodes, seed=0)
    assert play(AutoresetMode.DISABLED, 2, 3).returns_by_agent() == {}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (["a", "b", "c"], ("a", "b", "c")),
        (("a", "b", "c"), ("a", "b", "c")),
        ("abc", ()),
        ([1, 2, 3], ()),
        ((), ()),
    ],
)
def test_agents_of_a_vector_are_any_sequence_of_names(named, expected):
    envs = vector(AutoresetMode.DISABLED, 3)
    envs.agents = named
    assert evaluation.agents_of(envs) == expected
    played = evaluation.evaluate(lambda seen: np.zeros(3), envs, 3, seed=0)
    assert played.agents == expected


PARTS = gym.spaces.Dict(
    press=gym.spaces.Discrete(3), steer=gym.spaces.Box(-1.0, 1.0, (2,))
)


class Open(Walk):
    """Takes elements of a space and no others."""

    action_space = PARTS

    def step(self, action):
        assert self.action_space.contains(action), action
        return super().step(1)


@pytest.mark.parametrize("press", [[0, 2], [0.0, 2.0], tf.constant([0, 2])])
def test_functions_may_return_lists_and_whole_numbers(press):
    chosen = {"press": press, "steer": [[0, 1], [1, 0]]}
    played = []
    for play in (evaluation.evaluate, recording.record_transitions):
        envs = gym.vector.SyncVectorEnv([Open] * 2)
        played.append(play(lambda observations: chosen, envs, 6, seed=0))
    actions = played[1]["actions"]
    assert {*actions["press"].tolist()} == {0, 2}
    assert actions["press"].dtype.kind == "i" and actions["steer"].shape == (6, 2)


WRONG = {
    "one for all": (gym.spaces.Discrete(2), np.int64(1), r"shape \[3\] .*; got \[\]"),
    "a column": (gym.spaces.Discrete(2), np.ones([3, 1]), r"\[3\] .*; got \[3, 1\]"),
    "too wide": (PARTS["steer"], np.ones([3, 4]), r"\[3, 2\] .*; got \[3, 4\]"),
    "nan": (PARTS["steer"], np.full([3, 2], np.nan), "finite numbers; got .*nan nan"),
    "floats": (gym.spaces.Discrete(2), np.full(3, 0.5), "of Discrete.*got 0.5 among"),
    "no choice": (gym.spaces.Discrete(2), np.array([1, 0, 2]), "of Discrete.*got 2 a"),
    "below": (gym.spaces.Discrete(2, start=3), np.arange(2, 5), "start=3.*; got 2 a"),
    "a part of it": (PARTS, {"press": np.full(3, 3), "steer": 0}, "got 3 among them"),
    "no dict": (PARTS, np.ones(3), "a part 'press' for Dict.*; got array"),
    "ragged": (PARTS["steer"], [[0.0, 1.0], [1.0]], r"\[3, 2\] .*; got \[\[0.0, 1"),
    "a part": (PARTS, {"press": np.ones(3, int), "steer": np.ones(3)}, r"\[3, 2\]"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_actions_that_no_environment_takes(kind):
    space, actions, match = WRONG[kind]

    class Other(Open):
        action_space = space

    plays = {"evaluate": evaluation.evaluate}
    plays["record_transitions"] = recording.record_transitions
    for name, play in plays.items():
        envs = gym.vector.SyncVectorEnv([Other] * 3)
        message = f"(?s)`{name}`: `policy` expected to return actions .*{match}"
        with pytest.raises(ValueError, match=message):
            play(lambda observations: actions, envs, 3, seed=0)


def test_a_lost_process_is_told_as_of_an_evaluation():
    envs = vectors.make_vec("CartPole-v1", 1, "async")
    envs.processes[0].kill()
    message = r"in an evaluation: .* environment 0 \(exit code -9\) after 0 steps"
    with pytest.raises(ConnectionError, match=message):
        evaluation.evaluate(lambda seen: np.zeros(1, int), envs, 1, seed=0)


def test_episodes_that_never_end_are_told(monkeypatch):
    class Endless(Walk):
        def step(self, action):
            return *super().step(action)[:2], False, False, {}

    monkeypatch.setattr(evaluation, "_ENDLESS_STEPS", 50)
    envs = gym.vector.SyncVectorEnv([Endless] * 2)
    message = "`evaluate`: `envs` expected episodes that end; got one of 50 steps"
    with pytest.raises(ValueError, match=message):
        evaluation.evaluate(lambda observations: [0, 0], envs, 2, seed=0)


SCORES = golden_io.load("alf/sl_utils", symbol="auc_score")
PREDICTIONS = golden_io.load("alf/sl_utils", symbol="predict_dataset")


@pytest.mark.parametrize("case", SCORES, ids=golden_io.ids(SCORES))
def test_recorded_scores(case):
    actual = evaluation.auc_score(*case["args"], **case["kwargs"])
    np.testing.assert_allclose(actual, case["out"], **case["tol"])


@pytest.mark.parametrize("case", PREDICTIONS, ids=golden_io.ids(PREDICTIONS))
def test_recorded_predictions(case):
    given, out, tol = case["in"], case["out"], case["tol"]
    labels = np.zeros(len(given["x"]))
    data = tf.data.Dataset.from_tensor_slices((given["x"], labels))
    batches = data.batch(given["batch_size"])

    def ensemble(x):
        return tf.einsum("bi,nio->bno", x, given["w"]), ()

    def single(x):
        return x @ given["w"][0], ()

    for model, name in ((ensemble, "ensemble"), (single, "single")):
        actual = evaluation.predict_dataset(model, batches)
        np.testing.assert_allclose(actual, out[name], **tol)


def test_all_recordings_are_here():
    assert (len(SCORES), len(PREDICTIONS)) == (3, 1)


def test_a_keras_model_and_bare_inputs():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    x = np.random.default_rng(0).normal(size=[7, 3]).astype(np.float32)
    for batches in (tf.data.Dataset.from_tensor_slices(x).batch(3), [x[:3], x[3:]]):
        actual = evaluation.predict_dataset(model, batches)
        assert actual.shape == (1, 7, 2)
        np.testing.assert_allclose(actual[0], model(x), rtol=1e-6)


def test_predictions_keep_their_dtype():
    assert evaluation.predict_dataset(abs, [ROWS]).dtype == tf.float64


def slow_auc(inliers, outliers):
    """Every pair, counted."""
    pairs = [(i, o) for i in inliers for o in outliers]
    return sum((o > i) + 0.5 * (o == i) for i, o in pairs) / len(pairs)


@pytest.mark.parametrize("seed", range(5))
def test_score_counts_pairs(seed):
    rng = np.random.default_rng(seed)
    inliers, outliers = (rng.integers(0, 8, rng.integers(1, 30)) for _ in range(2))
    actual = evaluation.auc_score(inliers, outliers)
    np.testing.assert_allclose(actual, slow_auc(inliers, outliers), rtol=1e-12)
    turned = evaluation.auc_score(outliers, inliers)
    np.testing.assert_allclose(actual + turned, 1.0, rtol=1e-12)


def test_score_takes_tensors_of_any_shape():
    inliers = tf.constant([[0.0, 1.0], [2.0, np.inf]], tf.bfloat16)
    assert evaluation.auc_score(inliers, tf.constant(1.0)) == 0.375
    assert isinstance(evaluation.auc_score([0], [1]), float)


@refusals.table(
    (
        evaluation.auc_score,
        bad(ValueError, "inliers", [], [1.0]),
        bad(ValueError, "outliers", [1.0], []),
        bad(ValueError, "inliers", [1.0, np.nan], [1.0]),
        bad(TypeError, "inliers", ["a"], [1.0]),
        bad(TypeError, "outliers", [1.0], [None]),
        bad(TypeError, "inliers", [[1.0], [1.0, 2.0]], [3.0]),
    ),
    (
        predict,
        bad(ValueError, "testset", abs, []),
        bad(ValueError, "model", lambda x: x[:, 0], [ROWS]),
        bad(ValueError, "model", abs, [ROWS, np.ones([2, 4])]),
        bad(ValueError, "model", abs, [ROWS, ROWS.astype(np.float32)]),
        bad(TypeError, "model", None, [ROWS]),
        bad(TypeError, "testset", abs, None),
        bad(ValueError, "testset", abs, [()]),
        bad(ValueError, "model", lambda x: (), [ROWS]),
        bad(TypeError, "model", lambda x: None, [ROWS]),
    ),
    (
        evaluation.evaluate,
        bad(TypeError, "policy", None, WALKS, 1, seed=0),
        bad(TypeError, "envs", len, Walk(), 1, seed=0),
        bad(ValueError, "n_episodes", act, WALKS, 0, seed=0),
    ),
)
def test_refusals(row):
    row()
