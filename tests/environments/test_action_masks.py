"""Tests of `tfrl.environments.action_masks`, and of steps with masks."""

import functools

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tfrl._internal import gym_checks
from tfrl.environments import action_masks, snapshots, vector
from tfrl.host import stepping
from tfrl.training.collecting import collection

S = gym.spaces


class Gated(gym.Env):
    """Shows its step; allows all but the option `t % 3`, and at the end nothing."""

    def __init__(self, observation_space=None, n_steps=4, forbids_at=None):
        self.observation_space = observation_space or S.Box(0.0, 9.0, (1,))
        self.action_space = S.Discrete(3)
        self.n_steps, self.forbids_at = n_steps, forbids_at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.taken = 0, []
        return self.shown(), {"action_mask": self.mask()}

    def step(self, action):
        self.taken.append(self.mask()[action])
        self.t += 1
        ended = self.t == self.n_steps
        return self.shown(), 1.0, ended, False, {"action_mask": self.mask()}

    def shown(self):
        step = np.array([self.t], np.float32)
        return {"t": step} if isinstance(self.observation_space, S.Dict) else step

    def mask(self):
        nothing = self.t in (self.n_steps, self.forbids_at)
        return np.arange(3) != self.t % 3 if not nothing else np.zeros(3, bool)


class Asked(Gated):
    """The same by a method."""

    action_masks = Gated.mask

    def step(self, action):
        return (*super().step(action)[:-1], {})

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0], {}


@pytest.mark.parametrize("kind", [Gated, Asked])
def test_masks_are_a_part_of_what_is_seen(kind):
    env = action_masks.ActionMasks(kind())
    assert env.observation_space["action_mask"] == S.MultiBinary(3)
    seen, _ = env.reset(seed=0)
    for t in range(4):
        assert env.observation_space.contains(seen)
        assert seen["observation"].tolist() == [t]
        assert seen["action_mask"].tolist() == [int(i != t % 3) for i in range(3)]
        seen = env.step((t + 1) % 3)[0]
    assert not seen["action_mask"].any()
    several = S.Dict(t=S.Box(0.0, 9.0, (1,)))
    env = action_masks.ActionMasks(kind(several))
    assert [*env.reset()[0]] == ["action_mask", "t"]
    assert snapshots.uncapturable(env) is None


@pytest.mark.filterwarnings("ignore:.*unwrapped version:UserWarning")
def test_wrapped_environments_are_as_gymnasium_wants_them():
    env = action_masks.ActionMasks(gym.make("Taxi-v4"))
    check_env(env, skip_render_check=True)
    seen, info = env.reset(seed=0)
    np.testing.assert_array_equal(seen["action_mask"], info["action_mask"])
    assert cloudpickle.loads(cloudpickle.dumps(env.spec)).make().spec == env.spec


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("around", ["each", "all"])
def test_vectors_of_all_modes_give_the_same_steps(mode, around):
    makers = [functools.partial(Gated, n_steps=n) for n in (4, 7)]
    if around == "each":
        makers = [lambda make=make: action_masks.ActionMasks(make()) for make in makers]
    envs = SyncVectorEnv(makers, autoreset_mode=mode)
    if around == "all":
        envs = action_masks.VectorActionMasks(envs)
    stepper = stepping.Stepper(envs, seed=0)
    space = envs.single_observation_space
    found = [[] for _ in makers]
    for _ in range(20):
        seen = gym_checks.mapped(np.copy, stepper.observations)
        masks = seen["action_mask"]
        assert masks.any(-1).all()
        outcome = stepper.step(masks.argmax(-1))
        after = outcome.next_observations
        for n in np.flatnonzero(outcome.valid):
            assert space.contains({key: x[n] for key, x in seen.items()})
            t, then = seen["observation"][n, 0], after["observation"][n, 0]
            assert masks[n].tolist() == [i != t % 3 for i in range(3)]
            assert (
                then == t + 1 and after["action_mask"][n].any() != outcome.terminated[n]
            )
            found[n].append(int(t))
    assert found[0][:6] == [0, 1, 2, 3, 0, 1] and len(found[1]) > 16


def test_a_mask_that_forbids_everything_is_told_with_step_and_environment():
    makers = [
        lambda forbids_at=forbids_at: action_masks.ActionMasks(
            Gated(forbids_at=forbids_at, n_steps=9)
        )
        for forbids_at in (None, 2)
    ]
    envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)
    collector = collection.Collector(envs, n_steps=5, seed=0)
    expected = "none of 3 of choice 0 from environment 1 .Gated. at step 2"
    with pytest.raises(ValueError, match=expected):
        collector.collect(lambda seen: seen["action_mask"].argmax(-1))
    envs = SyncVectorEnv([lambda: action_masks.ActionMasks(Gated(forbids_at=0))])
    with pytest.raises(ValueError, match="environment 0 .Gated. at step 0"):
        stepping.Stepper(envs, seed=0)


def test_choices_are_counted_in_the_order_of_masks():
    space = S.Dict(
        b=S.MultiBinary(2),
        a=S.Tuple((S.Discrete(3), S.Box(-1.0, 1.0), S.MultiDiscrete([2, 5]))),
        c=S.Box(-1, 2, (1,), np.int32),
    )
    assert gym_checks.option_counts(space) == [3, 2, 5, 2, 2, 4]


def test_make_vec_asks_for_masks():
    for how in ("sync", "auto"):
        envs = vector.make_vec("Taxi-v4", 2, how, action_masks=True)
        seen, info = envs.reset(seed=0)
        np.testing.assert_array_equal(seen["action_mask"], info["action_mask"])
        assert envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED
        again = envs.remake(n_envs=3)
        assert again.single_observation_space == envs.single_observation_space
        assert again.num_envs == 3 and again.remake.keywords == envs.remake.keywords
        again.close()
        envs.close()
    own = functools.partial(SyncVectorEnv, autoreset_mode=AutoresetMode.DISABLED)
    gym.register(
        "Allowed-v0", vector_entry_point=lambda num_envs: own([Gated] * num_envs)
    )
    envs = vector.make_vec("Allowed-v0", 2, action_masks=True)
    assert isinstance(envs.remake(n_envs=3), action_masks.VectorActionMasks)
    del gym.registry["Allowed-v0"]
    with pytest.raises(TypeError, match="`action_masks`"):
        vector.make_vec("Taxi-v4", 2, action_masks=1)
    reported = r"\[2, 2\] in info.* got None, as .* reports no masks; .* leave out"
    with pytest.raises(ValueError, match=reported):
        vector.make_vec("CartPole-v1", 2, action_masks=True).reset()


def test_environments_without_masks_or_choices_are_refused():
    class Silent(Gated):
        def mask(self):
            return None

    with pytest.raises(ValueError, match=r"info\['action_mask'\].*got None"):
        action_masks.ActionMasks(Silent()).reset()
    with pytest.raises(ValueError, match="expected actions that are choices"):
        action_masks.ActionMasks(gym.make("Pendulum-v1"))
    with pytest.raises(ValueError, match="without a part 'action_mask'"):
        action_masks.ActionMasks(action_masks.ActionMasks(Gated()))
    with pytest.raises(TypeError, match="`env`"):
        action_masks.ActionMasks(3)
    with pytest.raises(TypeError, match="`env`"):
        action_masks.VectorActionMasks(Gated())
