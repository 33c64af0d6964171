"""Compiled environments as vectors: resets, snapshots, what trainers do with them."""

import functools

import default_rows
import gymnasium as gym
import numpy as np
import pytest
import refusals
import tensorflow as tf
import tiny_agents
from gymnasium.vector import AutoresetMode

from tfrl import rl_trainer
from tfrl.agents.on_policy import ppo
from tfrl.configuring import configs
from tfrl.core import compile
from tfrl.environments import snapshots
from tfrl.environments.compiled import (
    _names,
    cartpole,
    compiled_check,
    mountain_car,
    pendulum,
    protocol,
    vector_env,
    wrappers,
)
from tfrl.host import stepping
from tfrl.training import _kept_arguments, cadence, evaluation, experience, trainer


@pytest.fixture(autouse=True)
def xla(monkeypatch):
    """Plain graphs for most: XLA takes a second for each."""
    jit = compile.jit

    def chosen(function, **options):
        return jit(function, xla=chosen.xla, **options)

    chosen.xla = False
    monkeypatch.setattr(vector_env.compile, "jit", chosen)
    return chosen


class Corridor(protocol.CompiledEnv):
    """Walks right from 0 to 3 by noise; what is seen is a Dict, so are actions."""

    observation_space = gym.spaces.Dict(
        {"place": gym.spaces.Box(0.0, 9.0, (1,)), "ends": gym.spaces.Discrete(2)}
    )
    action_space = gym.spaces.Dict(
        {"go": gym.spaces.Discrete(2), "far": gym.spaces.Box(0.0, 1.0, (1,))}
    )
    n_noise = 1

    def _seen(self, place):
        return {"place": place, "ends": tf.cast(place[:, 0] >= 3.0, tf.int64)}

    def initial(self, noise):
        place = tf.zeros([noise.shape[0], 1])
        return place, self._seen(place)

    def step(self, state, actions, noise):
        go = tf.cast(actions["go"], tf.float32)[:, None]
        state += go * (1.0 + tf.round(noise * actions["far"]))
        ended, seen = state[:, 0] >= 3.0, self._seen(state)
        never = tf.zeros_like(ended)
        return protocol.CompiledStep(state, seen, state[:, 0], ended, never, seen)

    def frame(self, state):
        return np.full((4, 4, 3), state[0], np.uint8)


def make(reset=True, n_envs=3, limit=4, seed=0, env=None, **options):
    env = wrappers.TimeLimit(env or cartpole.CartPole(), limit)
    env = wrappers.AutoReset(env) if reset else env
    return vector_env.as_vector_env(env, n_envs, seed, **options)


def actions_of(n_steps, n_envs=3):
    return np.random.default_rng(0).integers(0, 2, (n_steps, n_envs))


@pytest.mark.parametrize("n_envs", [1, 3])
def test_steps_are_those_of_the_environment(n_envs, xla):
    xla.xla = n_envs == 1
    envs = make(n_envs=n_envs)
    env = envs.compiled
    seen, info = envs.reset(seed=5)
    assert info == {} and seen.dtype == np.float32
    np.testing.assert_array_equal(envs.state.env, seen)
    for t, actions in enumerate(actions_of(6, n_envs)):
        state = tf.nest.map_structure(tf.constant, envs.state)
        seen, rewards, terminated, truncated, info = envs.step(actions)
        step = env.step(state, tf.constant(actions), env.draw(0, [n_envs]))
        assert truncated.all() == (t == 3)
        np.testing.assert_array_equal(rewards, step.rewards)
        np.testing.assert_array_equal(terminated, step.terminated)
        if not truncated.any():
            assert info == {}
            np.testing.assert_allclose(seen, step.observations, rtol=1e-6)
            continue
        assert info["_final_obs"].all()
        final = np.stack(info["final_obs"])
        np.testing.assert_allclose(final, step.final_observations, rtol=1e-6)
        assert np.all(np.abs(seen) <= 0.05)
        assert np.any(seen != final)


def test_seeds():
    envs = make()
    first = envs.reset(seed=1)[0]
    second = envs.reset()[0]
    assert np.any(first != second)
    np.testing.assert_array_equal(envs.reset(seed=1)[0], first)
    np.testing.assert_array_equal(envs.reset()[0], second)
    np.testing.assert_array_equal(make(seed=1).reset()[0], first)
    assert np.any(envs.reset(seed=2)[0] != first)
    assert len(np.unique(first[:, 0])) == 3


@pytest.mark.parametrize("reset", [True, False])
def test_transitions_are_the_same_by_either_mode(reset):
    envs = make(reset, env=Corridor())
    mode = AutoresetMode.SAME_STEP if reset else AutoresetMode.DISABLED
    assert stepping.autoreset_mode(envs) == mode
    stepper = stepping.Stepper(envs, seed=0)
    place, count = np.zeros(3), np.zeros(3)
    for go in actions_of(30):
        far = np.ones((3, 1), np.float32)
        outcome = stepper.step({"go": go, "far": far})
        after = outcome.next_observations["place"][:, 0]
        assert set(after - place) <= {0, 1, 2} and np.all((after > place) == (go == 1))
        count += 1
        np.testing.assert_array_equal(outcome.rewards, after)
        np.testing.assert_array_equal(outcome.terminated, after >= 3)
        np.testing.assert_array_equal(outcome.truncated, count >= 4)
        ended = outcome.terminated | outcome.truncated
        place, count = np.where(ended, 0, after), np.where(ended, 0, count)
        np.testing.assert_array_equal(stepper.observations["place"][:, 0], place)
    assert outcome.next_observations["ends"].dtype == np.int64


@pytest.mark.slow
@pytest.mark.parametrize("reset", [True, False])
def test_snapshots_go_on_to_the_bit(reset):
    def made():
        env = wrappers.TimeLimit(mountain_car.MountainCar(), 5)
        if reset:
            env = wrappers.EpisodeStatistics(wrappers.AutoReset(env))
            env = wrappers.NormalizeObservations(wrappers.NormalizeRewards(env, 0.9))
        return vector_env.as_vector_env(env, 3)

    def play(envs):
        return [tf.nest.flatten(envs.step(a)[:4]) for a in actions_of(4)]

    envs, other = made(), made()
    envs.reset(seed=3)
    play(envs)
    assert snapshots.uncapturable(envs) is None
    snapshot = snapshots.capture(envs)
    expected = play(envs)
    snapshots.restore(other, snapshot)
    for one, two in zip(expected, play(other), strict=True):
        for x, y in zip(one, two, strict=True):
            np.testing.assert_array_equal(x, y)


def test_state_can_be_set():
    envs = make(limit=9)
    envs.reset(seed=0)
    state = envs.state
    expected = envs.step(np.zeros(3, int))[0]
    envs.state = state
    np.testing.assert_array_equal(envs.step(np.zeros(3, int))[0], expected)
    with pytest.raises(ValueError, match="`CompiledVectorEnv`: `state` expected"):
        envs.state = state._replace(own=np.zeros(4, np.int32))


@pytest.mark.slow
def test_pictures():
    envs = make(env=Corridor(), render_mode="rgb_array")
    assert envs.metadata["render_modes"] == ["rgb_array"]
    envs.reset()
    go = {"go": np.array([0, 1, 1]), "far": np.zeros((3, 1), np.float32)}
    envs.step(go)
    assert [x.max() for x in envs.render()] == [0, 1, 1]
    assert make().render() is None
    one = envs.drawable()
    seen, _ = one.reset(seed=0)
    assert seen["place"].tolist() == [0.0]
    for t in range(4):
        action = {"go": np.int64(t < 2), "far": np.zeros(1, np.float32)}
        seen, reward, terminated, truncated, _ = one.step(action)
        assert one.render().max() == (min(t + 1, 2) if t < 3 else 0)
    assert (seen["place"].item(), reward, terminated, truncated) == (2, 2, False, True)


@pytest.mark.parametrize(
    "name",
    default_rows.params(
        {name: (name,) for name in _names.REGISTERED},
        ["MountainCarContinuous-v0", "BitFlipping-v0"],
    ),
)
def test_names(name):
    envs = vector_env.make_compiled(name, 2)
    seen, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(seen)
    spec = gym.registry.get(name)
    if spec is not None:
        assert _names.REGISTERED[name][1] == spec.max_episode_steps
    envs.step(envs.action_space.sample())
    compiled_check.check_compiled(envs.compiled)


def test_make_compiled_takes_limits_arguments_and_wrappers():
    stack = functools.partial(wrappers.FrameStack, n=2)
    around = [stack, wrappers.AutoReset, wrappers.EpisodeStatistics]
    envs = vector_env.make_compiled(
        "CartPole-v1", 2, 3, {"sutton_barto_reward": True}, around
    )
    assert envs.single_observation_space.shape == (8,)
    again = envs.remake(n_envs=3)
    assert again.num_envs == 3
    for made in (envs, again):
        made.reset(seed=0)
        played = [made.step(np.zeros(made.num_envs, int)) for _ in range(3)]
        assert [x[3].all() for x in played] == [False, False, True]
        assert played[0][1].tolist() == [0.0] * made.num_envs
        known = wrappers.EpisodeStatistics.of(made.state)
        assert known.last_lengths.tolist() == [3] * made.num_envs
    envs = vector_env.make_compiled(Corridor, 2)
    assert [type(x) for x in wrappers.layers(envs.compiled)] == [
        *[wrappers.AutoReset, Corridor],
    ]


@pytest.mark.slow
def test_a_trainer_resumes_to_the_bit_and_opens_from_its_folder(tmp_path):
    make_envs = functools.partial(vector_env.make_compiled, "CartPole-v1")
    whole, _ = tiny_agents.train(tmp_path / "whole", make_envs=make_envs)
    with tiny_agents.build(tmp_path / "cut", make_envs=make_envs) as first:
        tiny_agents.stop_in(first, 2)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            first.run(quiet=True)
    resumed, _ = tiny_agents.train(tmp_path / "cut", resume=True, make_envs=make_envs)
    assert resumed.notice is None
    tiny_agents.assert_same(resumed.agent, whole.agent)
    tiny_agents.assert_same_rows(tmp_path / "whole", tmp_path / "cut")
    with rl_trainer.open_run(tmp_path / "whole") as run:
        assert run.evaluate(3).lengths.shape == (3,)
        envs = run._like.eval_envs
        assert isinstance(envs, vector_env.CompiledVectorEnv)


def test_configurations_name_it(tmp_path):
    wrap = "make_compiled.wrappers = [@FrameStack, @AutoReset, @EpisodeStatistics]"
    configs.parse(
        bindings=["make_compiled.env_id = 'CartPole-v1'", "FrameStack.n = 2", wrap]
    )
    try:
        make_envs = configs.register({"make_compiled": vector_env.make_compiled})[
            "make_compiled"
        ]
        envs = make_envs(n_envs=2)
        names = [type(x).__name__ for x in wrappers.layers(envs.compiled)]
        assert names[:3] == ["EpisodeStatistics", "AutoReset", "FrameStack"]
        made = _kept_arguments.made(_kept_arguments.kept(make_envs))(n_envs=3)
        assert made.single_observation_space == envs.single_observation_space
        assert made.num_envs == 3
    finally:
        configs.clear()


@pytest.mark.parametrize("named", ["'own_walks:Walk'", "@Walk"])
def test_configurations_name_what_is_ones_own(named, tmp_path, monkeypatch):
    (tmp_path / "own_walks.py").write_text(
        "from tfrl.configuring import register\n"
        "from tfrl.environments.compiled import GridWorld\n"
        "class Walk(GridWorld):\n"
        "    pass\n"
        "register({'Walk': Walk}, module='own_walks')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own.gin").write_text(
        f"import own_walks\nmake_compiled.env_id = {named}\n"
        "make_compiled.max_episode_steps = 3\n"
    )
    registered = configs.register({"make_compiled": vector_env.make_compiled})
    configs.parse([tmp_path / "own.gin"])
    try:
        kept = _kept_arguments.kept(registered["make_compiled"])
    finally:
        configs.clear()
    envs = _kept_arguments.made(kept)(n_envs=2)
    again = envs.remake(n_envs=3)
    for each in (envs, again):
        walk = wrappers.layers(each.compiled)[-1]
        assert any(x.__module__ == "own_walks" for x in type(walk).__mro__)
        assert each.compiled.env.n_steps == 3
    assert again.num_envs == 3


def test_an_unknown_name_tells_how_to_name_ones_own():
    told = "expected one of .*'CartPole-v1'.*, or your own as 'module:Name'; got 'Walk'"
    with pytest.raises(ValueError, match=told):
        vector_env.make_compiled("Walk")
    with pytest.raises(ValueError, match="'module:Name'.* got 'math:pi', 3.14"):
        vector_env.make_compiled("math:pi")


@pytest.mark.slow
def test_ppo_learns_cartpole(tmp_path):
    settings = {"gamma": 0.98, "lambda_": 0.8, "learning_rate": 1e-3}
    agent = ppo.PPO(**settings, n_epochs=20, learning_rate_schedule="linear")
    make_envs = functools.partial(vector_env.make_compiled, "CartPole-v1")
    with trainer.Trainer(
        tmp_path,
        agent=agent,
        make_envs=make_envs,
        n_envs=8,
        experience=experience.Trajectories(32),
        total_env_steps=50_000,
        intervals=cadence.Intervals(eval_episodes=20, eval_epochs=None),
    ) as running:
        assert running.run().returns.mean() > 300


def test_evaluate_plays_it():
    played = evaluation.evaluate(lambda _: np.zeros(3, int), make(), 5, seed=0)
    assert played.lengths.tolist() == [4] * 5


def bad(error, argument, *args, **kwargs):
    return refusals.bad(error, argument, *args, **kwargs)


def begun(**options):
    envs = make(**options)
    envs.reset(seed=0)
    return envs


def stepped(actions, **options):
    begun(**options).step(actions)


def reset(**options):
    begun(reset=options.pop("by_itself")).reset(**options)


stepped.__qualname__ = "CompiledVectorEnv.step"
reset.__qualname__ = "CompiledVectorEnv.reset"
CONTINUOUS = {"env": pendulum.Pendulum()}


@refusals.table(
    (
        stepped,
        bad(ValueError, "actions", [0, 1]),
        bad(ValueError, "actions", [0, 1, 2]),
        bad(ValueError, "actions", [0, 1, -1]),
        bad(ValueError, "actions", [0.0, 1.0, 1.0]),
        bad(ValueError, "actions", {"go": [0, 1, 1]}),
        bad(ValueError, "actions", [0.0, 1.0, 1.0], **CONTINUOUS),
        bad(ValueError, "actions", [[0.0], [np.nan], [1.0]], **CONTINUOUS),
    ),
    (
        reset,
        bad(ValueError, "seed", by_itself=True, seed=-1),
        bad(ValueError, "seed", by_itself=True, seed="one"),
        bad(ValueError, "options", by_itself=True, options={"reset_mask": [True] * 3}),
        bad(ValueError, "options", by_itself=False, options={"reset_mask": [True] * 2}),
        bad(ValueError, "options", by_itself=False, options={"reset_mask": [1] * 3}),
    ),
    (
        vector_env.as_vector_env,
        bad(ValueError, "n_envs", cartpole.CartPole(), 0),
        bad(ValueError, "render_mode", cartpole.CartPole(), 2, render_mode="human"),
    ),
    (
        vector_env.make_compiled,
        bad(ValueError, "env_id", "CartPole-v7"),
        bad(ValueError, "env_id", "own_compiled:Corridor"),
        bad(ValueError, "env_id", "math:sine"),
        bad(ValueError, "env_id", "math:pi"),
        bad(ValueError, "env_id", ":Corridor"),
        bad(TypeError, "env_id", 3),
        bad(ValueError, "env_id", "CartPole-v1", env_kwargs={"gravity": 3}),
        bad(TypeError, "wrappers", "CartPole-v1", wrappers=wrappers.AutoReset),
        bad(TypeError, "wrappers", "CartPole-v1", wrappers=[3]),
        bad(ValueError, "max_episode_steps", "CartPole-v1", max_episode_steps=0),
    ),
)
def test_refusals(row):
    row()


@pytest.mark.parametrize(
    "wrap", [wrappers.FrameStack, functools.partial(wrappers.FrameStack, many=2)]
)
def test_arguments_of_wrappers_are_given_by_partial(wrap):
    message = (
        "`make_compiled`: `wrappers` expected .* alone; got .*FrameStack.* argument.*; "
        "give it its other arguments by `functools.partial`"
    )
    with pytest.raises(TypeError, match=message):
        vector_env.make_compiled("CartPole-v1", 2, wrappers=[wrap])
    stack = functools.partial(wrappers.FrameStack, n=2)
    with pytest.raises(TypeError, match="^`FrameStack`: `env` expected observations"):
        vector_env.make_compiled(Corridor, 2, wrappers=[stack])


def test_nothing_goes_before_a_reset():
    for what in (lambda x: x.step([0, 0, 0]), lambda x: x.state):
        with pytest.raises(ValueError, match="expected a reset before"):
            what(make())
