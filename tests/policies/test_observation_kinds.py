"""Tests of `tfrl.policies._observation_kinds`."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents, exporting, policies
from tfrl.agents import train_state
from tfrl.policies import _observation_kinds

S = gym.spaces


def pixels(*shape):
    return S.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (S.Discrete(3, start=-1), ["one_hot", [3], [-1]]),
        (S.MultiDiscrete([3, 2]), ["one_hot", [3, 2], [0, 0]]),
        (S.MultiBinary([2, 2]), ["flat", [2, 2]]),
        (S.Box(-1.0, 1.0, (84, 84, 4)), ["flat", [84, 84, 4]]),
        (pixels(84, 84), ["flat", [84, 84]]),
        (S.Dict(b=S.MultiBinary(1)), ["dict", [["b", ["flat", [1]]]]]),
        (S.Tuple([S.MultiBinary(1)]), ["tuple", [[0, ["flat", [1]]]]]),
        (pixels(84, 84, 4), ["image", [84, 84, 4]]),
        (pixels(36, 40, 35), ["image", [36, 40, 35]]),
        (pixels(4, 84, 84), ["image", [4, 84, 84], 1]),
        (pixels(4, 84, 84, 1), ["image", [4, 84, 84, 1], 1]),
        (pixels(4, 210, 160, 3), ["image", [4, 210, 160, 3], 1]),
        (pixels(4, 3, 64, 64), ["image", [4, 3, 64, 64], 2]),
        (pixels(84, 84, 4, 3), ["image", [84, 84, 4, 3], 0]),
    ],
    ids=str,
)
def test_descriptions(space, kind):
    assert _observation_kinds.description(space) == kind


@pytest.mark.parametrize(
    ("kind", "axes", "shape"),
    [
        (["image", [84, 80, 4]], [0, 1, 2], [84, 80, 4]),
        (["image", [4, 84, 80], 1], [1, 2, 0], [84, 80, 4]),
        (["image", [4, 84, 80, 3], 1], [1, 2, 0, 3], [84, 80, 12]),
        (["image", [4, 3, 84, 80], 2], [2, 3, 0, 1], [84, 80, 12]),
        (["image", [84, 80, 4, 3], 0], [0, 1, 2, 3], [84, 80, 12]),
    ],
)
def test_images_are_turned_upright(kind, axes, shape):
    assert _observation_kinds.image_axes(kind) == axes
    assert _observation_kinds.image_shape(kind) == shape


@pytest.mark.parametrize(
    ("space", "error", "match"),
    [
        (S.Text(3), TypeError, "`space` expected Box, Discrete"),
        (S.MultiDiscrete([[2, 2]]), TypeError, "`space` expected Box, Discrete"),
        (S.Dict(a=S.Sequence(S.Discrete(2))), TypeError, "`space` expected Box"),
        (pixels(7, 7, 3), ValueError, r"36x36 .*\[7, 7, 3\]"),
        (pixels(4, 7, 7, 3), ValueError, r"36x36 .*\[4, 7, 7, 3\]"),
        (pixels(64, 64, 64), ValueError, r"\[64, 64, 64\]; .*StackChannels"),
        (pixels(84, 4, 84), ValueError, r"\[84, 4, 84\]; .*StackChannels"),
        (pixels(84, 84, 84, 3), ValueError, "StackChannels"),
        (S.Dict(), ValueError, "have a part at least"),
        (S.Dict(a=S.Discrete(2), b=S.Tuple([])), ValueError, "have a part at least"),
    ],
    ids=["text", "matrix", "nested", "small", "small stack", "cube", "apart", "four"]
    + ["empty", "empty part"],
)
def test_what_has_no_description(space, error, match):
    with pytest.raises(error, match=f"`SpaceEncoder.describe`: .*{match}"):
        _observation_kinds.description(space)


def rows(kind, nest):
    return _observation_kinds.checked_rows("Here", kind, nest, lambda shape: shape)


def test_rows():
    nest = ["dict", [["a", ["flat", [2]]], ["b", ["one_hot", [3], [0]]]]]
    assert rows(nest, {"a": (4, 2), "b": (None,)}) == 4
    assert rows(nest, {"a": (None, 2), "b": (None, 1)}) is None
    assert rows(["flat", [2]], None) is None
    assert rows(["tuple", [[0, ["flat", []]]]], ((5,),)) == 5
    assert rows(["image", [4, 36, 36], 1], (2, 4, 36, 36)) == 2


@pytest.mark.parametrize(
    ("kind", "nest", "match"),
    [
        (["flat", [2]], (4, 3), r"`inputs` must have shape \['B', 2\].*\(4, 3\)"),
        (["flat", [2]], (2,), "`inputs` must have shape"),
        (["one_hot", [3, 2], [0, 0]], (4,), r"`inputs` must have shape \['B', 2\]"),
        (["one_hot", [3], [0]], (4, 2), r"`inputs` must have shape \['B'\]"),
        (["image", [4, 36, 36], 1], (2, 36, 36, 4), "`inputs` must have shape"),
        (["dict", [["a", ["flat", []]]]], {"b": (1,)}, r"with 'a'; got \['b'\]"),
        (["dict", [["a", ["flat", []]]]], (), "must be a dict with 'a'; got tuple"),
        (["dict", [["a", ["flat", []]]]], {"a": (1, 2)}, r"`inputs\['a'\]` must have"),
        (
            ["tuple", [[0, ["flat", []]], [1, ["flat", []]]]],
            ((2,), (3,)),
            r"one number of rows; got \{'inputs\[0\]': 2, 'inputs\[1\]': 3\}",
        ),
    ],
    ids=["width", "rank", "choices", "choice", "image", "key", "nest", "part", "rows"],
)
def test_what_does_not_fit(kind, nest, match):
    with pytest.raises(ValueError, match=f"`Here`: .*{match}"):
        rows(kind, nest)


class Pictures(gym.Env):
    """Shows a square that moves."""

    action_space = S.Discrete(2)

    def __init__(self, *channels):
        self.observation_space = pixels(36, 40, *channels)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at = 0
        return self._seen(), {}

    def step(self, action):
        self._at += 1
        return self._seen(), 0.0, False, False, {}

    def _seen(self):
        seen = np.zeros(self.observation_space.shape, np.uint8)
        seen[self._at : self._at + 9, :9] = 255
        return seen


@pytest.mark.parametrize("nest", [{"a": np.ones(2)}, (np.ones(2),), {}])
def test_nests_in_the_place_of_an_array(nest):
    with pytest.raises(ValueError, match="`Here`: `inputs` must be one array; got"):
        _observation_kinds.checked_rows("Here", ["flat", []], nest, lambda x: x.shape)
    with pytest.raises(ValueError, match="`Here`: `inputs` must be one array; got"):
        rows(["flat", []], {"a": (2, 3)})


@pytest.mark.parametrize("channels", [(), (1,), (3,)], ids=str)
def test_stacks_of_gymnasium_reach_the_convolution(channels, tmp_path):
    env = gym.wrappers.FrameStackObservation(Pictures(*channels), 4)
    assert env.observation_space.shape == (4, 36, 40, *channels)
    policy = policies.ActorCriticPolicy.create(
        env.observation_space,
        env.action_space,
        learner=lambda network: train_state.TrainState.create(
            network, tx=agents.sgd(0.1)
        ),
    )
    env.reset(seed=0)
    seen = np.stack([env.step(0)[0] for _ in range(3)])
    assert policy.act(seen, seed=0).actions.shape == (3,)
    assert len(policy.state.model_def.encoder.images) == 1
    assert policy.dense_layers() is None, "no twin without TensorFlow"
    if channels == (3,):
        agent = agents.PPO(minibatch_size=8).create(
            env.observation_space,
            env.action_space,
            n_envs=2,
            n_steps=4,
            seed=0,
        )
        spaces = env.observation_space, env.action_space
        exporting.export_policy(agent, tmp_path / "policy", *spaces)
        loaded = tf.saved_model.load(str(tmp_path / "policy"))
        actions = loaded.signatures["serving_default"](observations=tf.constant(seen))
        right = agent.policy.act(seen, temperature=0.0).actions
        np.testing.assert_array_equal(actions["actions"], right)
