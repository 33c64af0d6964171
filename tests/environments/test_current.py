"""Tests of `tfrl.environments.current`."""

import collections
import threading

import golden_io
import golden_spaces
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from tfrl.core import specs
from tfrl.environments import current

SYMBOLS = [
    *["get_env", "get_action_spec", "get_initial_time_step", "get_observation_spec"],
    *["get_raw_observation_spec", "get_reward_spec", "get_states_shape"],
    *["get_vocab_size", "set_global_env", "set_transformed_observation_spec"],
]


def build_spec(content):
    shape, dtype = content["shape"], content["dtype"]
    if "minimum" not in content:
        return tf.TensorSpec(shape, dtype)
    return specs.BoundedTensorSpec(shape, dtype, content["minimum"], content["maximum"])


CASES = [
    case
    for symbol in SYMBOLS
    for case in golden_io.load("alf/common", {"spec": build_spec}, symbol)
]
Step = collections.namedtuple("Step", ["reward", "env_id"])


class Speaking:
    """An environment that tells its specs and its time step by methods."""

    def __init__(self, setup=None, step=None):
        self.setup, self.step = setup or {}, step

    def __getattr__(self, name):
        if name not in ("observation_spec", "action_spec", "reward_spec"):
            raise AttributeError(name)
        return lambda: self.setup[name]

    def current_time_step(self):
        return self.step


@pytest.mark.parametrize("case", CASES, ids=golden_io.ids(CASES))
def test_recorded(case):
    name = case["symbol"].rsplit(".", 1)[-1]
    function, setup = getattr(current, name), case.get("setup", {})
    if case["kind"] == "raises":
        with pytest.raises(
            ValueError, match=f"`{name}`: `(env|spec)` expected .*`set_"
        ):
            function(*case["args"], **case["kwargs"])
    elif case["kind"] == "property":
        function("anything")
        try:
            read = {"set_global_env": current.get_env}
            assert read.get(name, current.get_observation_spec)() == "anything"
        finally:
            function(None)
    elif case["kind"] == "table":
        env = Speaking(step=Step(reward=0, env_id=tf.constant(case["in"]["env_id"])))
        step = function(env, first_env_id=case["in"]["first_env_id"])
        np.testing.assert_array_equal(step.env_id, case["out"]["env_id"])
    else:
        transformed = setup.get("set_transformed_observation_spec")
        with current.environment_context(Speaking(setup), transformed):
            assert function(*case["args"], **case["kwargs"]) == case["out"]


def test_all_recordings_are_here():
    assert len(CASES) == 14


def test_environment_as_an_argument_wins():
    mine, yours = gym.make("CartPole-v1"), gym.make("Pendulum-v1")
    with current.environment_context(mine):
        assert current.get_env() is mine
        assert current.get_action_spec().dtype == tf.int64
        assert current.get_action_spec(yours).shape == [1]
        assert current.get_raw_observation_spec().shape == [4]
        assert current.get_raw_observation_spec(env=yours).shape == [3]
        assert current.get_reward_spec(env=yours) == tf.TensorSpec([], tf.float32)
    with pytest.raises(ValueError, match="`get_env`: `env` expected an environment"):
        current.get_env()


def test_vectors_show_the_specs_of_one():
    envs = gym.make_vec("CartPole-v1", 3)
    assert current.get_raw_observation_spec(env=envs).shape == [4]
    assert current.get_action_spec(envs).shape == []


def test_contexts_nest_and_survive_errors():
    with current.environment_context("outer", {"x": tf.TensorSpec([1])}):
        with pytest.raises(KeyError), current.environment_context("inner"):
            assert current.get_env() == "inner"
            with pytest.raises(ValueError, match="`spec` expected a nest of specs"):
                current.get_observation_spec()
            raise KeyError
        assert current.get_env() == "outer"
        assert current.get_observation_spec("x").shape == [1]


def test_threads_begin_without():
    seen = []

    def ask():
        try:
            current.get_env()
        except ValueError as error:
            seen.append(str(error))

    with current.environment_context("mine"):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert "none is current" in seen[0]


def test_fields():
    Pair = collections.namedtuple("Pair", ["left", "right"])
    spec = {"a": Pair(tf.TensorSpec([1]), [tf.TensorSpec([2]), tf.TensorSpec([3])])}

    def find(field):
        return current.get_observation_spec(field, spec=spec)

    assert find(None) is spec
    assert find("a.left").shape == [1]
    assert find("a.right.1").shape == [3]
    for field in ("b", "a.middle", "a.right.2", "a.left.shape", "", "a.", "a.count"):
        with pytest.raises(ValueError, match="`field` expected names of parts joined"):
            find(field)


def shown(**parts):
    return golden_spaces.Shown(spaces.Dict(parts), spaces.Discrete(2))


def test_states_and_sentences_of_gymnasium():
    env = shown(states=spaces.Box(0, 1, (5, 2)), sentence=spaces.Box(0, 9, (7,), int))
    assert current.get_states_shape(env) == (5, 2)
    assert current.get_vocab_size(env) == 10
    other = shown(x=spaces.Discrete(2))
    assert (current.get_states_shape(other), current.get_vocab_size(other)) == (0, 0)


def test_initial_time_step_of_gymnasium():
    envs = gym.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    step = current.get_initial_time_step(envs, seed=4)
    np.testing.assert_array_equal(step.observations, envs.reset(seed=4)[0])
    for part, value, dtype in (
        (step.step_types, 0, np.int32),
        (step.rewards, 0.0, np.float32),
        (step.discounts, 1.0, np.float32),
    ):
        assert part.dtype == dtype
        np.testing.assert_array_equal(part, [value] * 3)
    single = current.get_initial_time_step(gym.make("CartPole-v1"))
    assert single.observations.shape == (4,) and single.rewards.shape == ()


def test_bad_initial_time_steps():
    pole, own = gym.make("CartPole-v1"), Speaking(step="no field")
    for env, first, error, argument in (
        (pole, 2, ValueError, "first_env_id"),
        (own, 2, ValueError, "first_env_id"),
        (own, -1, ValueError, "first_env_id"),
        (own, 0.5, TypeError, "first_env_id"),
        (None, 0, ValueError, "env"),
        ("CartPole-v1", 0, ValueError, "env"),
    ):
        where = "get_initial_time_step"
        with pytest.raises(error, match=f"`{where}`: `{argument}` expected"):
            current.get_initial_time_step(env, first)


def test_own_time_step_without_numbers():
    assert current.get_initial_time_step(Speaking(step="mine")) == "mine"


def test_what_is_no_environment():
    with pytest.raises(ValueError, match="`get_action_spec`: `env` expected a Gymnasi"):
        current.get_action_spec("pole")
    with pytest.raises(TypeError, match="`get_observation_spec`: `field` expected"):
        current.get_observation_spec(0, spec={"a": 1})


def test_fields_that_tell_nothing():
    nested = shown(states=spaces.Dict(a=spaces.Discrete(2)))
    with pytest.raises(
        ValueError, match='states_shape`: `env` .*one array for "states'
    ):
        current.get_states_shape(nested)
    open_ended = shown(sentence=spaces.Box(0.0, np.inf, (2,)))
    unbounded = Speaking({"observation_spec": {"sentence": tf.TensorSpec([7])}})
    for env in (open_ended, unbounded):
        with pytest.raises(
            ValueError, match="vocab_size`: `env` expected a bounded sp"
        ):
            current.get_vocab_size(env)
