"""Tests of action heads of Dict and Tuple spaces."""

import pickle

import default_rows
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.core import spaces
from tfrl.distributions import action_heads, heads_of_spaces, product

tfd = tfp.distributions
S = gym.spaces
SEED = np.array([3, 7], np.int32)

BOX = S.Box(np.float32([-1.0, 0.0]), np.float32([1.0, 4.0]))
HALF = S.Box(np.array([0.0, -np.inf], "f"), np.array([np.inf, 0.3], "f"))
SPACES = {
    "choices": S.Dict(b=S.Discrete(2), a=S.MultiBinary([2, 2])),
    "tuple": S.Tuple([BOX, S.MultiDiscrete([2, 3], start=[5, -2]), HALF]),
    "nested": S.Dict(
        z=S.Tuple([S.Discrete(2), BOX]),
        b=S.Dict(y=S.Tuple([S.Box(-1.0, 1.0, (1,))]), x=S.Discrete(3)),
    ),
}
PAIR = S.Dict(steer=BOX, press=S.Discrete(3, start=-1))
HEADS = {name: (space, False) for name, space in SPACES.items()}
HEADS["nested squashed"] = (SPACES["nested"], True)
HEADS["pair squashed"] = (PAIR, True)
EVERY_HEAD = pytest.mark.parametrize(("space", "squash"), HEADS.values(), ids=HEADS)


def parameters_of(head, n_rows):
    values = np.random.default_rng(0).normal(size=[n_rows, head.n_outputs])
    return values.astype(np.float32)


def leaves_of(head):
    """Heads of the leaves, in the order of the nest."""
    if not isinstance(head, action_heads.CompositeHead):
        return [head]
    return [leaf for part in head.parts for leaf in leaves_of(part)]


def split(head, parameters):
    """Parameters of each leaf: what is no deviation by parts, then all deviations."""
    leaves = leaves_of(head)
    free = np.cumsum([leaf.n_outputs - leaf.n_log_stds for leaf in leaves])
    last = np.cumsum([leaf.n_log_stds for leaf in leaves]) + free[-1]
    pieces = np.split(np.asarray(parameters), [*free, *last][:-1], axis=-1)
    pairs = zip(pieces, pieces[len(leaves) :], strict=False)
    return [np.concatenate(pair, axis=-1) for pair in pairs]


def rows_of(actions, n_rows):
    return [
        tf.nest.map_structure(lambda x, row=row: np.asarray(x)[row], actions)
        for row in range(n_rows)
    ]


@EVERY_HEAD
def test_actions_lie_in_the_space(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)
    parameters = parameters_of(head, 20)
    for raw in (
        head.sample(parameters, SEED),
        head.mode(parameters),
        head.host_sample(parameters, np.random.default_rng(0)),
        head.host_mode(parameters),
    ):
        for actions in (
            head.to_env(tf.nest.map_structure(tf.constant, raw)),
            head.host_to_env(tf.nest.map_structure(np.asarray, raw)),
        ):
            tf.nest.assert_same_structure(actions, spaces.spec_from_space(space))
            for action in rows_of(actions, 20):
                assert space.contains(tf.nest.map_structure(np.asarray, action))


@EVERY_HEAD
def test_all_is_the_sum_of_the_leaves(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)
    leaves = leaves_of(head)
    parameters = parameters_of(head, 7)
    each = split(head, parameters)
    raw = head.sample(parameters, SEED)
    flat = tf.nest.flatten(raw)
    log_prob = sum(x.log_prob(*y) for x, *y in zip(leaves, each, flat, strict=True))
    entropy = sum(x.entropy(y) for x, y in zip(leaves, each, strict=True))
    np.testing.assert_allclose(head.log_prob(parameters, raw), log_prob, rtol=1e-5)
    np.testing.assert_allclose(head.entropy(parameters), entropy, rtol=1e-5)
    modes = tf.nest.flatten(head.mode(parameters))
    for leaf, given, mode in zip(leaves, each, modes, strict=True):
        np.testing.assert_array_equal(mode, leaf.mode(given))
    widths = [(leaf.n_outputs, leaf.n_log_stds, leaf.n_options) for leaf in leaves]
    sums = np.sum(widths, axis=0).tolist()
    assert [head.n_outputs, head.n_log_stds, head.n_options] == sums
    assert head.has_log_std == (head.n_log_stds > 0)
    assert head.squash == squash


@EVERY_HEAD
def test_host_equals_tensorflow(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)
    parameters = parameters_of(head, 7)
    raw = head.sample(parameters, SEED)
    plain = tf.nest.map_structure(lambda x: x.numpy(), raw)
    compare = np.testing.assert_allclose
    for here, there in [
        (head.host_mode(parameters), head.mode(parameters)),
        (head.host_to_env(plain), head.to_env(raw)),
        (head.host_log_prob(parameters, plain), head.log_prob(parameters, raw)),
        (head.host_tempered(parameters, 0.3), head.tempered(parameters, 0.3)),
    ]:
        tf.nest.map_structure(lambda x, y: compare(x, y, 1e-4, 1e-5), here, there)
        dtypes = tf.nest.map_structure(lambda x: tf.as_dtype(x.dtype), here)
        assert dtypes == tf.nest.map_structure(lambda x: x.dtype, there)
    drawn = head.host_sample(parameters, np.random.default_rng(0))
    for one, two in zip(tf.nest.flatten(drawn), tf.nest.flatten(raw), strict=True):
        assert (one.shape, one.dtype) == (two.shape, two.dtype.as_numpy_dtype)
    if head.n_options:
        mask = np.ones([7, head.n_options], bool)
        compare(head.host_masked(parameters, mask), parameters)
        compare(head.masked(parameters, mask), parameters)


@EVERY_HEAD
def test_plain_heads_act_alike_and_need_no_tensorflow(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)
    plain = pickle.loads(pickle.dumps(head.plain()))
    assert b"tfrl.distributions" not in pickle.dumps(plain)
    parameters = parameters_of(head, 5)
    raws = [x.host_sample(parameters, np.random.default_rng(1)) for x in (head, plain)]
    tf.nest.map_structure(np.testing.assert_array_equal, *raws)
    envs = [x.host_to_env(raws[0]) for x in (head, plain)]
    tf.nest.map_structure(np.testing.assert_array_equal, *envs)


# Each head takes seconds.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "squash"), default_rows.params(HEADS, ["pair squashed"])
)
def test_compiles(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)

    @tf.function(jit_compile=True)
    def everything(parameters, seed):
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            raw = head.sample(parameters, seed)
            log_prob = head.log_prob(parameters, tf.nest.map_structure(fixed, raw))
            entropy = head.entropy(parameters)
        tempered = head.tempered(parameters, 2.0)
        slope = tape.gradient([log_prob, entropy], parameters)
        back = head.from_env(head.to_env(raw))
        return raw, log_prob, entropy, slope, tempered, back

    def fixed(x):
        return tf.stop_gradient(x)

    parameters = tf.constant(parameters_of(head, 6))
    raw, log_prob, entropy, slope, tempered, back = everything(parameters, SEED)
    np.testing.assert_allclose(log_prob, head.log_prob(parameters, raw), 1e-4, 1e-4)
    np.testing.assert_allclose(entropy, head.entropy(parameters), 1e-4, 1e-4)
    np.testing.assert_allclose(tempered, head.tempered(parameters, 2.0), 1e-5, 1e-6)
    assert np.isfinite(slope).all()
    tf.nest.assert_same_structure(back, raw)
    for leaf, one, two in zip(
        leaves_of(head), *map(tf.nest.flatten, (back, raw)), strict=True
    ):
        if leaf.has_log_std and not squash:
            two = tf.clip_by_value(two, leaf.low, leaf.high)
        one, two = (np.asarray(x, np.float64) for x in (one, two))
        # A rounded action is so many raw ones.
        slope = 1 - np.tanh(two) ** 2 if leaf.has_log_std and squash else 1.0
        assert (abs(one - two) <= 1e-6 + 8 * 1.2e-7 / slope).all()


def test_no_row():
    head = heads_of_spaces.action_head(SPACES["nested"])
    parameters = np.zeros([0, head.n_outputs], np.float32)
    for raw, log_prob, to_env in [
        (head.sample(parameters, SEED), head.log_prob, head.to_env),
        (
            head.host_sample(parameters, np.random.default_rng(0)),
            head.host_log_prob,
            head.host_to_env,
        ),
    ]:
        assert log_prob(parameters, raw).shape == (0,)
        shapes = [action.shape for action in tf.nest.flatten(to_env(raw))]
        assert shapes == [(0,), (0, 1), (0,), (0, 2)]


def test_against_distributions_of_tfp():
    head = heads_of_spaces.action_head(PAIR)
    parameters = parameters_of(head, 4)
    logits, loc, log_std = np.split(parameters, [3, 5], axis=-1)
    oracle = tfd.JointDistributionNamed(
        {
            "press": tfd.Categorical(logits=logits),
            "steer": tfd.MultivariateNormalDiag(loc, np.exp(log_std)),
        }
    )
    raw = head.sample(parameters, SEED)
    expected = oracle.log_prob(raw)
    np.testing.assert_allclose(head.log_prob(parameters, raw), expected, rtol=1e-5)
    dist = head.distribution(parameters)
    assert isinstance(dist, product.Product)
    np.testing.assert_allclose(dist.log_prob(raw), expected, rtol=1e-5)
    np.testing.assert_array_equal(head.to_env(raw)["press"], raw["press"] - 1)


def test_parts_draw_independently():
    head = heads_of_spaces.action_head(S.Tuple([S.Discrete(2)] * 2))
    for raw in (
        head.sample(np.zeros([20_000, 4], np.float32), SEED),
        head.host_sample(np.zeros([20_000, 4], "f"), np.random.default_rng(0)),
    ):
        one, two = (np.asarray(part) for part in raw)
        shares = np.bincount(2 * one + two, minlength=4) / 20_000
        np.testing.assert_allclose(shares, 0.25, atol=5 * np.sqrt(0.1875 / 20_000))


def test_masks_and_temperature_by_hand():
    head = heads_of_spaces.action_head(SPACES["nested"])
    # The order of the nest: b.x, b.y, z[0], z[1]; deviations of b.y and z[1] at last.
    parameters = np.arange(1.0, 12.0, dtype=np.float32)[None]
    mask = np.array([[True, False, True, False, True]])
    inf = np.inf
    expected = [[1.0, -inf, 3.0, 4.0, -inf, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]]
    for masked in (head.masked, head.host_masked):
        np.testing.assert_array_equal(masked(parameters, mask), expected)
        with pytest.raises(ValueError, match=r"`mask` must have shape \[..., 5\]"):
            masked(parameters, mask[:, 1:])
        with pytest.raises(TypeError, match="CompositeHead`: `mask` expected bool"):
            masked(parameters, mask.astype(np.float32))
        with pytest.raises(ValueError, match="`mask`.* option"):
            masked(parameters, np.array([[True, True, True, False, False]]))
    grown = np.log(2.0)
    expected = [[0.5, 1, 1.5, 4, 2.5, 3, 7, 8, 9 + grown, 10 + grown, 11 + grown]]
    for tempered in (head.tempered, head.host_tempered):
        np.testing.assert_allclose(tempered(parameters, 2.0), expected, rtol=1e-6)
    raw = head.host_mode(head.host_masked(parameters, mask))
    assert raw["b"]["x"].tolist() == [2]
    assert raw["z"][0].tolist() == [1]


def test_heads_are_hashable_configuration():
    space = SPACES["nested"]
    one, other = heads_of_spaces.action_head(space), heads_of_spaces.action_head(space)
    one.host_mode(parameters_of(one, 1))
    assert (one, hash(one)) == (other, hash(other))
    assert one != heads_of_spaces.action_head(space, squash=True)
    assert one == heads_of_spaces.action_head(spaces.spec_from_space(space))


def test_nests_that_do_not_fit():
    head = heads_of_spaces.action_head(PAIR)
    pair = heads_of_spaces.action_head(S.Tuple([BOX, HALF]))
    for call in (head.to_env, head.from_env, head.host_to_env):
        with pytest.raises(ValueError, match="`actions` expected a dict of"):
            call({"press": np.zeros(2, np.int32)})
        with pytest.raises(ValueError, match="`actions` expected a dict of"):
            call((np.zeros(2, np.int32), np.zeros([2, 2], np.float32)))
    for call in (pair.to_env, pair.from_env, pair.host_to_env):
        with pytest.raises(ValueError, match="`actions` expected a tuple of 2"):
            call((np.zeros([2, 2], np.float32),))
    for call in (
        *(head.distribution, head.env_distribution, head.mode, head.host_mode),
        lambda x: head.sample(x, SEED),
    ):
        with pytest.raises(
            ValueError, match=r"`parameters` must have shape \[..., 7\]"
        ):
            call(np.zeros([2, 6], np.float32))


def test_parts_in_the_order_of_the_nest_scales_last():
    space = S.Dict(a=S.Tuple([S.Discrete(2), S.Box(0.0, 1.0, (1,))]), b=S.Discrete(3))
    head = heads_of_spaces.action_head(space, squash=None, init_scale=1.0)
    dist = head.env_distribution(tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0]))
    assert isinstance(dist, product.Product)
    choice, normal = dist.distributions["a"]
    np.testing.assert_array_equal(choice.logits, [1.0, 2.0])
    np.testing.assert_array_equal(normal.loc, [3.0])
    np.testing.assert_allclose(normal.scale, [1.0], rtol=1e-6)
    np.testing.assert_array_equal(dist.distributions["b"].logits, [4.0, 5.0, 6.0])


SMALL = S.Dict(
    binary=S.MultiBinary(2),
    pair=S.Tuple([S.MultiDiscrete([3, 2], np.int8), S.Box(1, 3, (), np.uint8)]),
    table=S.Box(-2, 3, (2, 2), np.int16),
    wide=S.Box(0, 3, (), np.uint32),
)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_actions_of_all_integers_are_scored(jit):
    head = heads_of_spaces.action_head(SMALL)
    parameters = parameters_of(head, 6)
    raw = head.sample(parameters, SEED)
    actions = head.to_env(raw)
    dtypes = [action.dtype.name for action in tf.nest.flatten(actions)]
    assert dtypes == ["int8", "int8", "uint8", "int16", "uint32"]

    def score(parameters, actions):
        return head.env_distribution(parameters).log_prob(actions)

    expected = head.host_log_prob(parameters, tf.nest.map_structure(np.array, raw))
    for found in (score, tf.function(score, jit_compile=jit)):
        np.testing.assert_allclose(found(parameters, actions), expected, rtol=1e-5)


def test_numbered_choices_of_all_integers():
    head = heads_of_spaces.action_head(S.Box(-2, 1, (), np.int8))
    dist = head.env_distribution(np.log(np.float32([0.1, 0.2, 0.3, 0.4])))
    values = tf.constant([-3, -2, 0, 1, 2], tf.int8)
    np.testing.assert_allclose(dist.prob(values), [0, 0.1, 0.3, 0.4, 0], rtol=1e-5)
    np.testing.assert_allclose(dist.cdf(values), [0, 0.1, 0.6, 1, 1], rtol=1e-5)
