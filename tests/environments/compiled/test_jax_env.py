"""Environments of JAX as compiled ones, against JAX itself; `tfrl[jax]` installs it."""

import collections
import dataclasses
import functools
import subprocess
import sys
from typing import NamedTuple

import default_rows
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents, training
from tfrl.environments import compiled
from tfrl.environments.compiled import jax_env

jax = pytest.importorskip("jax")
# JAX says what it will change.
pytestmark = pytest.mark.filterwarnings("ignore")
BOX = gym.spaces.Box(-np.inf, np.inf, (2,))
SPACES = {"observation_space": BOX, "action_space": gym.spaces.Discrete(3)}


def keys_of(noise):
    """Keys as the class says they are made: digits of three numbers."""
    whole = np.floor(np.asarray(noise, np.float64)[:, :3] * 2**23).astype(np.int64)
    high = whole[:, 0] * 512 + whole[:, 2] // 2**14
    low = whole[:, 1] * 512 + whole[:, 2] % 512
    return np.stack([high, low], 1).astype(np.uint32)


def reset(key):
    state = {"place": jax.random.normal(key, [2]), "steps": 0}
    return state, state["place"]


def step(key, state, action):
    move = 0.1 * (action - 1.0) + 0.1 * jax.random.normal(key, [2])
    place, steps = state["place"] + move, state["steps"] + 1
    state = {"place": place, "steps": steps}
    return state, place, -abs(place).sum(), abs(place).max() > 2.0, steps >= 50


def played(reset, step, space, n_steps, n=4):
    """What JAX makes of random actions: keys, states, actions and what came of them."""
    rng = np.random.default_rng(0)
    starts = jax.jit(jax.vmap(reset))
    state, _ = starts(rng.integers(0, 2**32, [n, 2], np.uint32))
    one = jax.jit(jax.vmap(step))
    space.seed(0)
    rows = []
    for _ in range(n_steps):
        noise = rng.uniform(1e-3, 0.999, [n, 3]).astype(np.float32)
        actions = np.stack([space.sample() for _ in range(n)])
        result = one(keys_of(noise), state, actions)
        rows.append((noise, jax.tree.leaves(state), actions, result))
        ended = np.asarray(result[3] | result[4])
        state = result[0]
        if ended.any():
            state = merged(ended, starts(keys_of(noise))[0], state)
    return jax.tree.map(lambda *x: np.concatenate(x), *rows)


def merged(ended, first, later):
    def chosen(x, y):
        return np.where(ended.reshape([-1] + [1] * (y.ndim - 1)), x, y)

    return jax.tree.map(chosen, first, later)


def check_equal(env, reset, step, n_steps=1000, exact=False, **tolerance):
    """Steps `env` once from each state that JAX came by."""
    noise, state, actions, expected = played(
        reset, step, env.action_space, n_steps // 4
    )
    went = env.step(tuple(state), actions, tf.constant(noise))
    compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
    after, seen, rewards, terminated, truncated = expected
    for ours, theirs in zip(went.state, jax.tree.leaves(after), strict=True):
        compare(ours, theirs, **tolerance)
    for ours, theirs in zip(
        tf.nest.flatten(went.observations), jax.tree.leaves(seen), strict=True
    ):
        compare(ours, theirs, **tolerance)
    compare(went.rewards, np.reshape(rewards, [-1]), **tolerance)
    np.testing.assert_array_equal(went.terminated, terminated)
    np.testing.assert_array_equal(went.truncated, truncated)
    state, seen = env.initial(tf.constant(noise))
    theirs, shown = jax.jit(jax.vmap(reset))(keys_of(noise))
    for one, other in zip(state, jax.tree.leaves(theirs), strict=True):
        compare(one, other, **tolerance)
    return terminated.any(), truncated.any()


def test_steps_of_functions_are_those_of_jax():
    env = jax_env.from_jax_env((reset, step), **SPACES)
    assert (env.n_noise, env.n_step_noise) == (3, 3)
    ends = check_equal(env, reset, step, rtol=1e-5, atol=1e-6)
    assert all(ends)


@pytest.mark.slow  # XLA
def test_a_rollout_is_one_program_of_xla():
    env = compiled.AutoReset(jax_env.from_jax_env((reset, step), **SPACES))

    def rollout(noise):
        state, _ = env.initial(noise[0])

        def body(t, state, total):
            went = env.step(state, tf.ones([8], tf.int32), noise[t])
            return t + 1, went.state, total + went.rewards

        start = (0, state, tf.zeros([8]))
        return tf.while_loop(lambda t, *_: t < 20, body, start)[1:]

    noise = env.draw(0, (20, 8))
    results = [
        tf.function(rollout, jit_compile=x, autograph=False)(noise)
        for x in (True, None)
    ]
    for one, other in zip(*map(tf.nest.flatten, results), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


BLOCKED = """
import sys
sys.modules["jax"] = None
import numpy as np, tensorflow as tf
from tfrl.environments.compiled import jax_env
env = jax_env.load_jax_env(sys.argv[1])
assert "jax2tf" not in str(list(sys.modules))
saved = np.load(sys.argv[2])
state, seen = env.initial(tf.constant(saved["noise"]))
went = env.step(state, saved["actions"], tf.constant(saved["noise"]))
np.testing.assert_allclose(went.observations, saved["expected"], rtol=1e-5, atol=1e-6)
print(env.observation_space, env.action_space, env.n_noise, env.n_copies)
"""


@pytest.mark.slow
def test_a_saved_one_needs_no_jax(tmp_path):
    env = jax_env.from_jax_env((reset, step), **SPACES)
    env.save(tmp_path / "env")
    noise, actions = env.draw(0, [5]), np.array([0, 1, 2, 0, 1])
    went = env.step(env.initial(noise)[0], actions, noise)
    saved = {"noise": noise, "actions": actions, "expected": went.observations}
    np.savez(tmp_path / "expected.npz", **saved)
    paths = [str(tmp_path / name) for name in ("env", "expected.npz")]
    command = [sys.executable, "-c", BLOCKED, *paths]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == f"{BOX} Discrete(3) 3 None"


def test_a_saved_one_is_loaded_again_for_as_many_copies(tmp_path):
    env = jax_env.from_jax_env((reset, step), **SPACES)
    env.save(tmp_path / "env", 4)
    loaded = jax_env.load_jax_env(tmp_path / "env")
    assert loaded.observation_space == BOX and loaded.n_copies == 4
    for one, other in zip(loaded.reset(3, 4)[0], env.reset(3, 4)[0], strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(
        ValueError, match=r"`JaxEnv.initial`: `noise` expected 4 copies"
    ):
        loaded.reset(0, 5)
    with pytest.raises(ValueError, match=r"`JaxEnv.save`"):
        loaded.save(tmp_path / "other")
    with pytest.raises(FileExistsError, match=r"`JaxEnv.save`: `path`"):
        env.save(tmp_path / "env")
    with pytest.raises(FileNotFoundError, match=r"`load_jax_env`: `path`"):
        jax_env.load_jax_env(tmp_path / "none")


@pytest.mark.parametrize("kind", [None, *default_rows.slow("rbg")])
def test_typed_keys_are_kept_as_their_numbers(kind):
    def start(key):
        kept = jax.random.wrap_key_data(key)
        kept = kept if kind is None else jax.random.key(7, impl=kind)
        return {"kept": kept, "steps": 0}, jax.random.uniform(kept, [2])

    def go(key, state, action):
        kept, used = jax.random.split(state["kept"])
        seen = jax.random.uniform(used, [2]) + action
        state = {"kept": kept, "steps": state["steps"] + 1}
        return state, seen, seen.sum(), False, state["steps"] > 5

    env = jax_env.from_jax_env((start, go), **SPACES)
    noise, actions = env.draw(0, [2]), np.array([0, 2])
    state, seen = env.initial(noise)
    theirs, expected = jax.vmap(start)(keys_of(noise))
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    for _ in range(2):
        went = env.step(state, actions, noise)
        theirs, expected, *_ = jax.vmap(go)(keys_of(noise), theirs, actions)
        state = went.state
        np.testing.assert_allclose(went.observations, expected, rtol=1e-6)
        data = jax.random.key_data(theirs["kept"])
        np.testing.assert_array_equal(state[0], data)
        np.testing.assert_array_equal(state[1], theirs["steps"])


def counting(see):
    """Shows a count of its steps, and ends with the fifth."""

    def start(key):
        return jax.numpy.int32(0), see(jax.numpy.int32(0))

    def go(key, state, action):
        after = state + 1
        return after, see(after), 1.0, after == 5, False

    return start, go


def with_mask(kind):
    """What is seen as mappings of one kind, of two dtypes and two ranges."""

    def see(count):
        parts = {
            "observation": jax.numpy.stack([count / 10, 0.5]),
            "action_mask": jax.numpy.array([1, 0], np.int8),
            "other": jax.numpy.stack([100.0 + count, 100.0]),
        }
        return kind(parts)

    return see


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_parts_of_a_dict_go_by_their_keys_in_whatever_order_they_are_given(kind):
    space = gym.spaces.Dict(
        observation=gym.spaces.Box(0, 1, (2,)),
        other=gym.spaces.Box(100, 110, (2,)),
        action_mask=gym.spaces.Box(0, 1, (2,), np.int8),
    )
    assert list(space) != sorted(space)
    env = jax_env.from_jax_env(
        counting(with_mask(kind)),
        observation_space=space,
        action_space=gym.spaces.Discrete(2),
    )
    assert env.observation_space == space
    compiled.check_compiled(env)
    state, seen = env.reset(0, 1)
    assert seen["other"].numpy().tolist() == [[100.0, 100.0]]
    seen = env.step(state, [0], env.draw(0, [1])).observations
    assert seen["other"].numpy().tolist() == [[101.0, 100.0]]
    np.testing.assert_allclose(seen["observation"], [[0.1, 0.5]])
    assert seen["action_mask"].numpy().tolist() == [[1, 0]]


DISCRETE = {
    "alone": (lambda x: x, gym.spaces.Discrete(6)),
    "int32": (lambda x: x, gym.spaces.Discrete(6, dtype=np.int32)),
    "from_3": (lambda x: x + 3, gym.spaces.Discrete(6, start=3)),
    "in_dict": (
        lambda x: {"count": x, "a": x / 10},
        gym.spaces.Dict(count=gym.spaces.Discrete(6), a=gym.spaces.Box(0, 1, ())),
    ),
    "in_tuple": (
        lambda x: (x, x / 10),
        gym.spaces.Tuple([gym.spaces.Discrete(6), gym.spaces.Box(0, 1, ())]),
    ),
}


def discrete_envs(name, n_envs):
    see, space = DISCRETE[name]
    env = jax_env.from_jax_env(
        counting(see), observation_space=space, action_space=gym.spaces.Discrete(2)
    )
    return compiled.as_vector_env(compiled.AutoReset(env), n_envs)


@pytest.mark.parametrize(
    "name", default_rows.params({x: (x,) for x in DISCRETE}, ["from_3", "in_dict"])
)
def test_what_is_seen_may_be_discrete(name):
    envs = discrete_envs(name, 3)
    compiled.check_compiled(envs.compiled)
    space = gym.spaces.Discrete(6) if name == "int32" else DISCRETE[name][1]
    assert envs.single_observation_space == space
    first, _ = envs.reset(seed=0)
    for count in [*range(1, 5), 0]:
        seen, *_ = envs.step(np.zeros(3, np.int64))
        assert envs.observation_space.contains(seen)
        shown = DISCRETE[name][0](count)
        for one, other in zip(*map(tf.nest.flatten, (seen, shown)), strict=True):
            np.testing.assert_allclose(one, np.full(3, other), rtol=1e-6)
    tf.nest.map_structure(np.testing.assert_array_equal, seen, first)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alone", "from_3", "in_dict", "in_tuple"])
@pytest.mark.parametrize(("agent", "collector"), [("PPO", "compiled"), ("DQN", "host")])
def test_agents_learn_where_what_is_seen_is_discrete(agent, collector, name, tmp_path):
    make_envs = functools.partial(discrete_envs, name)
    experience = {
        "PPO": training.Trajectories(n_steps=16),
        "DQN": training.Replayed(capacity=64, learning_starts=16),
    }
    with training.Trainer(
        tmp_path / "run",
        agent=getattr(agents, agent)(),
        make_envs=make_envs,
        n_envs=4,
        collector=collector,
        total_env_steps=64,
        experience=experience[agent],
        intervals=training.Intervals(eval_episodes=2),
    ) as trainer:
        assert trainer.run(quiet=True).returns.tolist() == [5.0, 5.0]
        policy = trainer.agent.policy
    played = training.evaluate(policy, make_envs(2), n_episodes=2, seed=0)
    assert played.returns.tolist() == [5.0, 5.0]


def with_callback(key, state, action):
    jax.debug.print("{}", action)
    return step(key, state, action)


def with_dynamic_shape(key, state, action):
    far = state["place"][state["place"] > 0.0]
    return step(key, {**state, "place": state["place"] + far.sum()}, action)


def with_branch(key, state, action):
    return step(key, state, action) if action > 0 else step(key, state, 0)


def with_numpy(key, state, action):
    return step(key, {**state, "place": np.tanh(np.asarray(state["place"]))}, action)


def with_other_state(key, state, action):
    after, *rest = step(key, state, action)
    return {**after, "steps": after["steps"] * 1.0}, *rest


def with_inverse(key, state, action):
    after, *rest = step(key, state, action)
    inverse = jax.numpy.linalg.inv(jax.numpy.eye(2) + after["place"])
    return {**after, "place": inverse[0]}, *rest


def with_foreign_call(key, state, action):
    shape = jax.ShapeDtypeStruct((2,), np.float32)
    place = jax.ffi.ffi_call("another_library", shape)(state["place"])
    return step(key, {**state, "place": place}, action)


def with_two_results(key, state, action):
    return step(key, state, action)[:2]


class Game:
    """Has what gymnax's environments are known by."""

    def step_env(self, key, state, action, params):
        raise NotImplementedError


class Params(NamedTuple):
    gravity: float


class VmapWrapper:
    """Has what Brax's environments are known by, in one of its wrappers."""

    action_size = 1

    def reset(self, key):
        raise NotImplementedError

    step = reset
    __module__ = "brax.envs.wrappers.training"


class Limited(VmapWrapper):
    def __init__(self, env):
        self.env = env


@pytest.mark.parametrize(
    ("error", "message", "env", "options"),
    [
        (TypeError, "calls Python", (reset, with_callback), {}),
        (TypeError, "no value decides", (reset, with_dynamic_shape), {}),
        (TypeError, "no value decides", (reset, with_branch), {}),
        (TypeError, "no value decides", (reset, with_numpy), {}),
        (TypeError, "LAPACK", (reset, with_inverse), {}),
        (TypeError, "another library", (reset, with_foreign_call), {}),
        (ValueError, "returns the state in the form of", (reset, with_other_state), {}),
        (ValueError, "a step that returns", (reset, with_two_results), {}),
        (TypeError, "of gymnax", gym.make("CartPole-v1"), {}),
        (TypeError, '`make_compiled`, such as "gymnax/', "CartPole-v1", {}),
        (
            TypeError,
            "got a tuple of Game and Params; give both, as `*gymnax.make(...)`",
            (Game(), Params(1.0)),
            {},
        ),
        (TypeError, "`observation_space`", (reset, step), {"observation_space": None}),
        (TypeError, "`action_space`", (reset, step), {"action_space": None}),
        (
            ValueError,
            "`observation_space`",
            (reset, step),
            {"observation_space": gym.spaces.Discrete(3)},
        ),
        (
            ValueError,
            "`observation_space` expected one of what is shown, float32[]; got Disc",
            counting(lambda x: x / 10),
            {"observation_space": gym.spaces.Discrete(3)},
        ),
        (TypeError, "got one in VmapWrapper; take it off", Limited(VmapWrapper()), {}),
    ],
)
def test_what_is_refused(error, message, env, options):
    with pytest.raises(error, match=r"`from_jax_env`: ") as found:
        jax_env.from_jax_env(env, **{**SPACES, **options})
    assert message in str(found.value) and "\n" not in str(found.value)


def test_actions_and_states_of_others_are_refused():
    env = jax_env.from_jax_env((reset, step), **SPACES)
    noise, state = (
        env.draw(0, [2]),
        (np.zeros([2, 2], np.float32), np.zeros(2, np.int32)),
    )
    for error, actions in [
        (TypeError, [0.5, 1.0]),
        (ValueError, [0, 3]),
        (ValueError, [[0], [1]]),
    ]:
        with pytest.raises(error, match=r"`JaxEnv.step`: `actions` expected"):
            env.step(state, actions, noise)
    with pytest.raises(
        ValueError, match=r"`JaxEnv.step`: `state` expected a tuple of 2"
    ):
        env.step(state[:1], [0, 1], noise)
    unknown = tf.function(env.initial, input_signature=[tf.TensorSpec([None, 3])])
    with pytest.raises(
        ValueError, match=r"`JaxEnv.initial`: `noise` expected a number"
    ):
        unknown.get_concrete_function()


@dataclasses.dataclass(frozen=True)
class CounterParams:
    goal: int
    max_steps_in_episode: int

    replace = dataclasses.replace


class Counter:
    """As an environment of gymnax 1.0: its `step_env` knows no time limit."""

    def observation_space(self, params):
        return gym.spaces.Box(0.0, 9.0, ())

    def action_space(self, params):
        return gym.spaces.Discrete(2)

    def reset_env(self, key, params):
        return 0.0, {"place": 0.0, "time": 0}

    def step_env(self, key, state, action, params):
        place, time = state["place"] + action, state["time"] + 1
        state = {"place": place, "time": time}
        return place, state, 1.0, place >= params.goal, {}

    def is_truncated(self, state, params):
        return state["time"] >= params.max_steps_in_episode


class Whole(Counter):
    """Ends by its limit, as before, and has a method of that name too."""

    def step_env(self, key, state, action, params):
        seen, state, reward, done, info = super().step_env(key, state, action, params)
        return seen, state, reward, done | self.is_truncated(state, params), info


@pytest.mark.parametrize("kind", [Counter, Whole])
@pytest.mark.parametrize(("goal", "expected"), [(3, [True, False]), (9, [False] * 2)])
def test_time_limits_apart_from_the_step_truncate(goal, expected, kind):
    env = jax_env.from_jax_env(kind(), CounterParams(goal, 3))
    state, _ = env.reset(0, 2)
    ends = []
    for _ in range(3):
        # The first copy is three along after the last step, the other nowhere.
        went = env.step(state, [1, 0], env.draw(1, [2]))
        state = went.state
        ends.append([went.terminated.numpy().tolist(), went.truncated.numpy().tolist()])
    never, cut = [False, False], [not x for x in expected]
    assert ends == [[never, never], [never, never], [expected, cut]]


def of_gymnax(name):
    gymnax = pytest.importorskip("gymnax")
    env, params = gymnax.make(name)
    endless = params.replace(max_steps_in_episode=10**9)

    def start(key):
        seen, state = env.reset_env(key, params)
        return state, seen

    def go(key, state, action):
        seen, after, reward, done, _ = env.step_env(key, state, action, params)
        if hasattr(env, "is_truncated"):  # since gymnax 1.0
            cut = env.is_truncated(after, params) & ~done
            return after, seen, reward, done, cut
        ended = env.step_env(key, state, action, endless)[3]
        return after, seen, reward, ended, done & ~ended

    return jax_env.from_jax_env(env, params), start, go


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "Catch-bsuite", "Breakout-MinAtar"],
)
def test_steps_of_gymnax(name):
    env, start, go = of_gymnax(name)
    is_game = name in ("Catch-bsuite", "Breakout-MinAtar")
    tolerance = {} if is_game else {"rtol": 1e-4, "atol": 1e-5}
    terminated, truncated = check_equal(env, start, go, exact=is_game, **tolerance)
    if name != "Acrobot-v1":  # It is too far up for actions at random.
        assert truncated if name == "Pendulum-v1" else terminated


@pytest.mark.slow
def test_time_limits_of_gymnax_truncate():
    gymnax = pytest.importorskip("gymnax")
    env, params = gymnax.make("CartPole-v1")
    env = jax_env.from_jax_env(env, params.replace(max_steps_in_episode=3))
    state, _ = env.reset(0, 2)
    ends = []
    for _ in range(3):
        went = env.step(state, [0, 1], env.draw(1, [2]))
        state = went.state
        ends.append(went.truncated.numpy().tolist())
        assert not np.any(went.terminated)
    assert ends == [[False, False], [False, False], [True, True]]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["generalized", "spring"])
def test_steps_of_brax(backend):
    envs = pytest.importorskip("brax.envs")
    # "generalized" asks LAPACK, of which TensorFlow has none.
    cart = envs.create("inverted_pendulum", episode_length=20, backend=backend)
    env = jax_env.from_jax_env(cart)
    whole = cart.env

    def start(key):
        state = whole.reset(key)
        return state, state.obs

    def go(key, state, action):
        del key
        after = whole.step(state, action)
        cut = after.info["truncation"] > 0
        return after, after.obs, after.reward, (after.done > 0) & ~cut, cut

    assert any(check_equal(env, start, go, rtol=1e-3, atol=1e-4))
