"""What `check_compiled` says of environments that break the contract."""

import operator

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl.environments.compiled import compiled_check, pendulum, protocol, wrappers

HIDDEN = tf.Variable(0.0)


class Line(protocol.CompiledEnv):
    """Moves along a line; what a row of the table below says is broken."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Discrete(2)
    n_noise = 1

    def initial(self, noise):
        return noise, noise

    def step(self, state, actions, noise):
        state = self.moved(state, actions)
        ended = state[:, 0] > 3.0
        rewards = self.rewards(state)
        return protocol.CompiledStep(
            state, self.seen(state), rewards, ended, tf.zeros_like(ended), state
        )

    def moved(self, state, actions):
        return state + tf.cast(actions, tf.float32)[:, None]

    def rewards(self, state):
        return state[:, 0]

    def seen(self, state):
        return state


def broken(**methods):
    functions = {k: staticmethod(v) if callable(v) else v for k, v in methods.items()}
    return type("Broken", (Line,), functions)()


def test_what_is_sound_passes():
    inside = wrappers.AutoReset(wrappers.TimeLimit(pendulum.Pendulum(), 3))
    compiled_check.check_compiled(inside)
    compiled_check.check_compiled(wrappers.NormalizeObservations(inside))
    compiled_check.check_compiled(broken())


def others_last(x):
    return tf.concat([x[-1:], x[:-1]], 0)


MIXED = {
    "means": ({"rewards": lambda x: x[:, 0] * 0 + tf.reduce_mean(x)}, "rewards"),
    "a first row": ({"rewards": lambda x: x[:, 0] * 0 + x[0, 0]}, "rewards"),
    "neighbours": ({"seen": others_last}, "observations"),
    "actions": (
        {"moved": lambda x, a: x + tf.reduce_sum(tf.cast(a, tf.float32))},
        "state",
    ),
}


@pytest.mark.parametrize("around", [lambda x: x, wrappers.AutoReset])
@pytest.mark.parametrize("case", MIXED)
def test_copies_that_depend_on_others_are_told(case, around):
    methods, part = MIXED[case]
    told = (
        rf"`Broken.step` .*; got {part} of copy \d in step \d+ that change with those"
    )
    with pytest.raises(ValueError, match=told):
        compiled_check.check_compiled(around(broken(**methods)))


class Ranked(wrappers.Wrapper):
    def step(self, state, actions, noise):
        step = self.env.step(state, actions, noise)
        best = tf.reduce_max(step.rewards)
        return step._replace(rewards=step.rewards - best)


def test_a_wrapper_that_mixes_copies_is_told():
    with pytest.raises(ValueError, match="`Ranked.step` to step .*; got rewards of c"):
        compiled_check.check_compiled(Ranked(pendulum.Pendulum()))


def test_bulk_draws_by_the_noise_of_all_copies_pass():
    class Drawn(Line):
        def initial(self, noise):
            seed = tf.cast(noise[0, 0] * 1e6, tf.int32)
            drawn = tf.random.stateless_uniform(noise.shape, [seed, 0])
            return drawn, drawn

        def step(self, state, actions, noise):
            step = super().step(state, actions, noise)
            again, _ = self.initial(noise)
            state = wrappers.chosen(step.terminated, again, step.state)
            return step._replace(state=state, observations=state)

    compiled_check.check_compiled(Drawn())


ROWS = {
    "host": (
        {"rewards": lambda x: tf.numpy_function(np.sum, [x], tf.float32)},
        "step` to ask nothing of the host; got the op PyFunc",
    ),
    "text": (
        {"rewards": lambda x: tf.strings.to_number(tf.strings.as_string(x[:, 0]))},
        "step` to ask nothing of the host; got the op AsString",
    ),
    "chance": (
        {"rewards": lambda x: x[:, 0] + tf.random.uniform(x.shape[:1])},
        "step` to draw by its noise alone; got the op RandomUniform",
    ),
    "variable": (
        {"rewards": lambda x: x[:, 0] + HIDDEN},
        "step` to keep nothing; got the variable Variable",
    ),
    "dynamic": (
        {"rewards": lambda x: tf.boolean_mask(x[:, 0], x[:, 0] > 0.5)},
        r"step` static shapes; got rewards of shape \(None,\)",
    ),
    "dtype": (
        {"rewards": lambda x: tf.cast(x[:, 0], tf.float64)},
        r"step` rewards \[N\] float32; got float64 of shape \(3,\)",
    ),
    "python": (
        {"rewards": lambda x: float(x[0, 0])},
        "step` to be a function of tensors; got TypeError: float.*; use TensorFlow's",
    ),
    "numpy": (
        {"rewards": lambda x: np.sum(x, 1)},
        "step` to be .*; got NotImplementedError: .* numpy array; use TensorFlow's",
    ),
    "value": (
        {"rewards": lambda x: x.numpy()[:, 0]},
        "step` to be .*; got AttributeError: .* 'numpy'; use TensorFlow's",
    ),
    "branch": (
        {"rewards": lambda x: x[:, 0] if x[0, 0] > 0.0 else -x[:, 0]},
        "step` to be .* is not allowed; choose by `tf.where`, join conditions by `&`",
    ),
    "and": (
        {"rewards": lambda x: tf.cast((x > 0.0) and (x < 1.0), tf.float32)[:, 0]},
        "step` to be .* is not allowed; choose by `tf.where`, join conditions by `&`",
    ),
    "long": (
        {"rewards": lambda _: operator.getitem({}, "far " * 100)},
        r"step` to be a function of tensors; got KeyError: '(far )+\.\.\.$",
    ),
    "unpacked": (
        {"step": lambda state, actions, noise: (state, actions, noise)},
        r"step` to return a CompiledStep\(state, observations, rewards, terminated, "
        r"truncated, final_observations\); got tuple",
    ),
    "fewer": (
        {"initial": lambda: None},
        r"initial` to be `initial\(self, noise\)`; got initial\(\)$",
    ),
    "more": (
        {"step": lambda key, state, actions, noise: (key, state, actions, noise)},
        r"step` to be `step\(self, state, actions, noise\)`; got step\(key, state",
    ),
    "uncallable": (
        {"initial": 3},
        r"initial` to be `initial\(self, noise\)`; got 3$",
    ),
    "space": (
        {"seen": lambda x: tf.concat([x, x], 1)},
        r"step` observations float32\[3, 1\], of Box.*; got float32\[3, 2\]",
    ),
    "state": (
        {"moved": lambda state, _: state[:, :, None][:, 0]},
        None,
    ),
    "grown": (
        {"seen": lambda x: x[:, :1], "moved": lambda x, _: tf.concat([x, x], 1)},
        "step` observations|step` to return states as `initial` does",
    ),
    "nothing": (
        {"seen": lambda _: None},
        "step` tensors; got None as observations",
    ),
    "tuple": (
        {"initial": lambda noise: noise},
        "initial` to return the state and observations; got",
    ),
}


@pytest.mark.parametrize("case", ROWS)
def test_faults(case):
    methods, message = ROWS[case]
    env = broken(**methods)
    if message is None:
        compiled_check.check_compiled(env)
        return
    expected = f"`check_compiled`: `env` expected `Broken.({message})"
    with pytest.raises(ValueError, match=expected) as caught:
        compiled_check.check_compiled(env)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [[4], [], [1, 2]])
def test_states_have_the_axis_of_the_copies(shape):
    class Shared(Line):
        def initial(self, noise):
            return (noise, tf.zeros(shape)), noise

        def step(self, state, actions, noise):
            step = super().step(state[0], actions, noise)
            return step._replace(state=(step.state, state[1]))

    alone = Shared()
    inside = wrappers.AutoReset(wrappers.TimeLimit(alone, 3))
    around = wrappers.NormalizeObservations(inside)
    for env in (alone, inside, around):
        message = r"`env` expected `Shared.initial` .* \[N, ...\], .*; got \(float32"
        with pytest.raises(ValueError, match=message):
            compiled_check.check_compiled(env)


def test_faults_within_wrappers_are_those_of_the_environment_inside():
    env = wrappers.AutoReset(broken(rewards=lambda x: tf.cast(x[:, 0], tf.float64)))
    with pytest.raises(ValueError, match="expected `Broken.step` rewards"):
        compiled_check.check_compiled(env)

    class Strange(wrappers.Wrapper):
        def step(self, state, actions, noise):
            return self.env.step(state, actions, noise)._replace(rewards=state)

    with pytest.raises(ValueError, match="expected `Strange.step` rewards"):
        compiled_check.check_compiled(Strange(Line()))


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_spaces_are_such(name):
    expected = f"`env` expected `Spaceless.{name}` to be a space of Gymnasium; got None"
    with pytest.raises(ValueError, match=expected):
        compiled_check.check_compiled(type("Spaceless", (Line,), {name: None})())


def test_what_is_none():
    with pytest.raises(TypeError, match="`check_compiled`: `env` expected"):
        compiled_check.check_compiled(gym.make("CartPole-v1"))


@pytest.mark.parametrize("wrap", [compiled_check.check_compiled, wrappers.AutoReset])
@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"n_noise": -1}, "n_noise` to be an int of at least 0; got -1"),
        ({"n_noise": 1.0}, "n_noise` to be an int of at least 0; got 1.0"),
        ({"n_noise": None}, "n_noise` to be an int of at least 0; got None"),
        ({"n_step_noise": 3}, "n_step_noise` to be .* 0 to `n_noise`, here 1; got 3"),
        ({"n_step_noise": -1}, "n_step_noise` to be None or an int from 0 .*; got -1"),
    ],
)
def test_numbers_of_noise(wrap, numbers, message):
    env = type("Noisy", (Line,), numbers)()
    expected = f"`{wrap.__name__}`: `env` expected `Noisy.{message}"
    with pytest.raises(ValueError, match=expected):
        wrap(env)


class Shown(Line):
    """A Line of which its function `seen` shows something else."""

    def initial(self, noise):
        return noise, self.seen(noise)

    def step(self, state, actions, noise):
        step = super().step(state, actions, noise)
        return step._replace(final_observations=self.last(step.state))

    def last(self, state):
        return self.seen(state)


def whole(state):
    return tf.cast(state[:, 0], tf.int64)


def clipped(state):
    return tf.minimum(whole(state), 1)


def late(state):
    return tf.where(state > 2.0, 7.0, 0.0)


def shown(space, seen=whole, **methods):
    functions = {k: staticmethod(v) for k, v in {"seen": seen, **methods}.items()}
    return type("Shown", (Shown,), {"observation_space": space, **functions})()


PLACES = gym.spaces.Dict({"place": gym.spaces.Box(-1.0, 1.0, (1,))})
CONTENTS = {
    "discrete": (
        shown(gym.spaces.Discrete(3)),
        r"step` observations to be an int in \[0, 2\]; got .*3.* of copy \d in step",
    ),
    "start": (
        shown(gym.spaces.Discrete(4, start=1)),
        r"initial` observations to be an int in \[1, 4\]; got .*0.* copy 0 in step 0",
    ),
    "box": (
        shown(gym.spaces.Box(-1.0, 1.0, (1,)), late),
        r"step` observations\[0\] to be a number in \[-1.0, 1.0\]; got 7.0 of copy",
    ),
    "dict": (
        shown(PLACES, lambda x: {"place": late(x)}),
        r"step` observations\['place'\]\[0\] to be a number in .*; got 7.0 of copy",
    ),
    "last": (
        shown(gym.spaces.Discrete(3), clipped, last=whole),
        r"step` final_observations to be an int in .*; got .*3.* of copy",
    ),
    "anew": (
        shown(
            gym.spaces.Discrete(3),
            clipped,
            initial=lambda x: (
                x,
                tf.where(x[:, 0] > 0.9, tf.constant(3, tf.int64), whole(x)),
            ),
        ),
        r"initial` observations to be .*; got .*3.* of copy \d in step [1-9]",
    ),
    "infinite": (
        shown(Line.observation_space, lambda x: 1.0 / (2.0 - late(x)) + np.inf),
        r"initial` observations\[0\] to be a finite number; got inf .*; look for",
    ),
    "rewards": (
        shown(gym.spaces.Discrete(9), rewards=lambda x: 0.0 / late(x)[:, 0]),
        r"step` rewards that are finite; got \[.*nan.*\] in step 1$",
    ),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_what_is_shown_is_of_its_space(case):
    env, message = CONTENTS[case]
    with pytest.raises(ValueError, match=f"`env` expected `Shown.{message}"):
        compiled_check.check_compiled(env)
    with pytest.raises(ValueError, match="`env` expected `Shown."):
        compiled_check.check_compiled(wrappers.AutoReset(env))
    compiled_check.check_compiled(env, n_steps=0)
    if case == "discrete":
        compiled_check.check_compiled(env, n_steps=2)


def test_what_ended_is_not_played_on():
    # The state ends beyond 3, and would go on to 4.
    compiled_check.check_compiled(shown(gym.spaces.Discrete(4)))


def test_actions_of_any_space_are_played():
    def moved(state, actions):
        flags, (place, option) = actions["flags"], actions["pair"]
        moves = tf.cast(flags[:, 0], tf.float32) + place[:, 0]
        return state + (moves + tf.cast(option, tf.float32) - 2.0)[:, None]

    pair = gym.spaces.Tuple(
        [gym.spaces.Box(-np.inf, np.inf, (2,)), gym.spaces.Discrete(2, start=2)]
    )
    space = gym.spaces.Dict({"pair": pair, "flags": gym.spaces.MultiBinary(2)})
    env = broken(moved=moved)
    env.action_space = space
    compiled_check.check_compiled(env)


@pytest.mark.parametrize("name", ["n_steps", "seed"])
def test_numbers_are_checked(name):
    for error, value in ((TypeError, 1.0), (ValueError, -1)):
        with pytest.raises(error, match=f"`check_compiled`: `{name}` expected an int"):
            compiled_check.check_compiled(Line(), **{name: value})
