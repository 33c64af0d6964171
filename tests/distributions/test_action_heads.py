"""Tests of `tfrl.distributions.action_heads`; of nests in the file beside."""

import math

import confidence
import gymnasium as gym
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl.core import spaces, specs
from tfrl.distributions import heads_of_spaces, squashed

S = gym.spaces
tfd = tfp.distributions
SEED = np.array([3, 7], np.int32)

CHOICES = {
    "discrete from -3": S.Discrete(4, start=-3),
    "multi discrete from": S.MultiDiscrete([3, 2], start=[5, -2]),
    "multi discrete int8": S.MultiDiscrete([120, 2], dtype=np.int8, start=[-100, 0]),
    "one binary": S.MultiBinary(1),
    "table of choices": S.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 0]]),
    "table of binaries": S.MultiBinary([2, 3]),
    "integers": S.Box(np.int8([-3, 100]), np.int8([2, 101]), dtype=np.int8),
    "one integer": S.Box(1, 4, (), np.uint8),
}
BOXES = {
    "scalar box": S.Box(-1.0, 3.0, ()),
    "two axes": S.Box(
        np.array([[-0.1, -1, 0]] * 2, "f"), np.array([[0.3, 5, 1e-3]] * 2, "f")
    ),
    "float64": S.Box(-0.1, 0.3, (3,), np.float64),
    "float16": S.Box(-0.7, 0.1, (2,), np.float16),
}
UNBOUNDED = {
    "unbounded": S.Box(-np.inf, np.inf, (2,)),
    "half bounded": S.Box(np.array([0.0, -np.inf], "f"), np.array([np.inf, 0.3], "f")),
}
HEADS = {
    **{name: (space, False) for name, space in (CHOICES | BOXES | UNBOUNDED).items()},
    **{f"{name} squashed": (space, True) for name, space in BOXES.items()},
}
every_head = pytest.mark.parametrize(("space", "squash"), HEADS.values(), ids=HEADS)


def parameters_of(head, n_rows, scale=1.5):
    rng = np.random.default_rng(0)
    width = head.n_outputs // (1 + head.has_log_std)
    outputs = scale * rng.standard_normal((n_rows, width))
    if head.has_log_std:
        log_std = np.broadcast_to(rng.uniform(-1.0, 0.5, width), outputs.shape)
        outputs = np.concatenate([outputs, log_std], -1)
    return outputs.astype(np.float32)


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def log_choices(head, parameters):
    """Log-probabilities of each option, a list of `[B, n]` per choice."""
    edges = np.cumsum(head.n_choices)[:-1]
    return [log_softmax(part) for part in np.split(parameters, edges, -1)]


def log_density(head, parameters, raw):
    """Log-density of raw actions by numerically differentiating the squashing."""
    loc, log_std = np.split(parameters.astype(np.float64), 2, -1)
    raw = raw.astype(np.float64)
    z = (raw - loc) / np.exp(log_std)
    total = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
    if head.squash:
        half = (np.array(head.high) - np.array(head.low)) / 2
        step = 1e-5
        slope = (np.tanh(raw + step) - np.tanh(raw - step)) / (2 * step)
        total -= np.log(half * slope).sum(-1)
    return total


def squashed_entropy(loc, log_std, half):
    """Entropies of half * tanh(u) by integrating over u on a fine grid."""
    z = np.linspace(-10.0, 10.0, 20_001)[:, None]
    u = loc + np.exp(log_std) * z
    mass = np.exp(-0.5 * z**2)
    mass /= mass.sum()
    log_pdf = -0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)
    # 1 - tanh(u)^2 = 4 e^(-2|u|) / (1 + e^(-2|u|))^2
    tail = np.exp(-2 * np.abs(u))
    log_slope = np.log(4.0) - 2 * np.abs(u) - 2 * np.log1p(tail)
    return -(mass * (log_pdf - np.log(half) - log_slope)).sum(0)


# What is drawn, and what environments take.


@every_head
def test_actions_lie_in_the_space_and_repeat(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)
    parameters = parameters_of(head, 50, scale=8.0)
    rngs = [np.random.default_rng(i) for i in (0, 0, 1)]
    drawn = [head.sample(parameters, SEED + i).numpy() for i in (0, 0, 1)]
    hosts = [head.host_sample(parameters, rng) for rng in rngs]
    for once, again, other in (drawn, hosts):
        np.testing.assert_array_equal(once, again)
        assert np.any(once != other)
    assert hosts[0].dtype == drawn[0].dtype
    for raw in (drawn[0], hosts[0], head.mode(parameters)):
        for actions in (
            head.to_env(tf.constant(raw)).numpy(),
            head.host_to_env(np.array(raw)),
        ):
            assert actions.dtype == space.dtype
            assert actions.shape == (50, *space.shape)
            assert all(space.contains(np.asarray(action)) for action in actions)


@every_head
def test_host_equals_tensorflow(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)
    parameters = parameters_of(head, 50)
    raw = head.mode(parameters)
    host = head.host_mode(parameters)
    np.testing.assert_array_equal(raw, host)
    assert host.dtype == raw.dtype.as_numpy_dtype
    drawn = head.sample(parameters, SEED).numpy()
    acting = head.to_env(tf.constant(drawn)).numpy().astype(np.float64)
    expected = head.host_to_env(drawn).astype(np.float64)
    rtol = 1e-3 if space.dtype == np.float16 else 1e-6
    # Near 0 the bounds, to which squashed numbers are stretched, say what rounding is.
    width = np.abs(expected).max(0)
    assert (np.abs(acting - expected) <= rtol * np.abs(expected) + 1e-7 * width).all()
    log_probs = head.host_log_prob(parameters, drawn)
    assert log_probs.dtype == np.float32
    np.testing.assert_allclose(
        log_probs, head.log_prob(parameters, drawn), rtol=1e-4, atol=1e-4
    )
    for temperature in (0.3, 2.0):
        np.testing.assert_allclose(
            head.host_tempered(parameters, temperature),
            head.tempered(parameters, temperature),
            rtol=1e-6,
        )
    mask = np.random.default_rng(1).random([50, head.n_options]) < 0.5
    starts = np.cumsum([0, *getattr(head, "n_choices", ())])[:-1]
    mask[:, starts] = True
    masked = head.host_masked(parameters, mask)
    np.testing.assert_array_equal(masked, head.masked(parameters, mask))
    assert masked.dtype == np.float32


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-4), ("float16", 0.03)])
@pytest.mark.parametrize(
    "space",
    [
        CHOICES["multi discrete from"],
        BOXES["two axes"],
        S.Tuple([S.Discrete(2), BOXES["float64"]]),
    ],
    ids=["choices", "box", "nest"],
)
def test_parameters_of_other_dtypes(space, dtype, error):
    head = heads_of_spaces.action_head(space)
    narrow = 0.3 * np.random.default_rng(0).normal(size=[5, head.n_outputs])
    wide = narrow.astype(dtype)
    narrow = wide.astype(np.float32)
    raw = head.mode(wide)
    known = head.log_prob(wide, raw)
    assert known.dtype == head.entropy(wide).dtype == dtype
    expected = head.log_prob(narrow, head.mode(narrow))
    np.testing.assert_allclose(known, expected, error, error)
    np.testing.assert_allclose(head.entropy(wide), head.entropy(narrow), error, error)
    host = head.host_log_prob(wide, tf.nest.map_structure(np.asarray, raw))
    assert host.dtype == dtype
    np.testing.assert_allclose(host, expected, error, error)
    for tempered in (head.tempered(wide, 2.0), head.host_tempered(wide, 2.0)):
        assert tempered.dtype == dtype
    sample = head.sample(wide, SEED)
    tf.nest.assert_same_structure(head.to_env(sample), head.from_env(head.to_env(raw)))


@every_head
def test_the_way_back_from_the_environment(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)
    raw = head.sample(parameters_of(head, 50, scale=0.3), SEED)
    if head.has_log_std and not squash:
        raw = tf.reshape(tf.cast(head.to_env(raw), tf.float32), [50, len(head.low)])
    elif squash:
        raw = tf.clip_by_value(raw, -1.5, 1.5)
    back = head.from_env(head.to_env(raw))
    assert back.dtype == raw.dtype
    tolerance = 2e-2 if space.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(back, raw, atol=tolerance)


@pytest.mark.slow
@every_head
def test_everything_compiles(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)

    def everything(parameters, seed):
        raw = head.sample(parameters, seed)
        env = head.to_env(raw)
        log_probs = [head.log_prob(parameters, x) for x in (raw, head.from_env(env))]
        return *log_probs, head.entropy(parameters), head.mode(parameters), env

    compiled = tf.function(everything, jit_compile=True)
    parameters = tf.constant(parameters_of(head, 6))
    log_probs, from_env, entropy, mode, env = compiled(parameters, tf.constant(SEED))
    for values in (log_probs, from_env, entropy):
        assert values.shape == [6]
        assert np.isfinite(values).all()
    np.testing.assert_array_equal(mode, head.mode(parameters))
    np.testing.assert_allclose(entropy, head.entropy(parameters), rtol=1e-4, atol=1e-5)
    assert env.dtype == space.dtype


# Choices.


@pytest.mark.parametrize("space", CHOICES.values(), ids=CHOICES)
def test_choices_against_plain_softmax(space):
    head = heads_of_spaces.action_head(space)
    parameters = parameters_of(head, 20)
    raw = head.sample(parameters, SEED).numpy()
    columns = raw.reshape(20, -1)
    logs = log_choices(head, parameters)
    log_probs = sum(log[np.arange(20), columns[:, i]] for i, log in enumerate(logs))
    entropy = -sum((np.exp(log) * log).sum(-1) for log in logs)
    np.testing.assert_allclose(
        head.log_prob(parameters, raw), log_probs, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(head.entropy(parameters), entropy, rtol=1e-4, atol=1e-5)
    modes = np.stack([log.argmax(-1) for log in logs], -1)
    np.testing.assert_array_equal(head.mode(parameters).numpy().reshape(20, -1), modes)


def test_frequencies_of_choices():
    head = heads_of_spaces.action_head(S.MultiDiscrete([2, 4]))
    row = np.array([0.5, -1.0, 0.2, 1.3, -0.4, 0.0], np.float32)
    raw = head.sample(np.tile(row, (20_000, 1)), SEED).numpy()
    for column, log in zip(raw.T, log_choices(head, row[None]), strict=True):
        counts = np.bincount(column, minlength=log.shape[-1])
        confidence.assert_frequencies(counts, np.exp(log[0]))


def test_padding_of_unequal_choices_gives_finite_gradients():
    head = heads_of_spaces.action_head(S.MultiDiscrete([2, 5]))
    parameters = tf.constant(parameters_of(head, 4))
    actions = tf.constant([[0, 0], [1, 4], [0, 2], [1, 1]])

    @tf.function
    def gradients(parameters):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(parameters)
            log_probs = head.log_prob(parameters, actions)
            entropy = head.entropy(parameters)
        return tape.gradient(log_probs, parameters), tape.gradient(entropy, parameters)

    of_log_prob, of_entropy = gradients(parameters)
    chosen = np.concatenate([np.eye(2)[[0, 1, 0, 1]], np.eye(5)[[0, 4, 2, 1]]], -1)
    logs = log_choices(head, parameters.numpy())
    probs = np.exp(np.concatenate(logs, -1))
    np.testing.assert_allclose(of_log_prob, chosen - probs, atol=1e-5)
    expected = [
        -np.exp(log) * (log - (np.exp(log) * log).sum(-1, keepdims=True))
        for log in logs
    ]
    np.testing.assert_allclose(of_entropy, np.concatenate(expected, -1), atol=1e-5)


# Boxes.


@pytest.mark.parametrize("squash", [False, True], ids=["clipped", "squashed"])
@pytest.mark.parametrize("space", BOXES.values(), ids=BOXES)
def test_log_density_of_boxes(space, squash):
    head = heads_of_spaces.action_head(space, squash=squash)
    parameters = parameters_of(head, 30, scale=1.0)
    raw = head.sample(parameters, SEED).numpy()
    expected = log_density(head, parameters, raw)
    np.testing.assert_allclose(
        head.log_prob(parameters, raw), expected, rtol=1e-4, atol=1e-3
    )


def test_mean_and_spread_of_draws():
    head = heads_of_spaces.action_head(S.Box(-1.0, 1.0, (2,)))
    parameters = np.tile(np.array([0.3, -2.0, -1.0, 0.5], np.float32), (40_000, 1))
    raw = head.sample(parameters, SEED).numpy()
    for column, (loc, log_std) in zip(raw.T, [(0.3, -1.0), (-2.0, 0.5)], strict=True):
        confidence.assert_cdf(column, scipy.stats.norm(loc, np.exp(log_std)).cdf)


def test_clipped_entropy_is_the_normals():
    head = heads_of_spaces.action_head(S.Box(-1.0, 1.0, (2,)))
    entropy = head.entropy(np.array([[5.0, 0.0, -1.0, 0.5]], np.float32))
    expected = np.log(2 * np.pi * np.e) - 0.5
    np.testing.assert_allclose(entropy, [expected], rtol=1e-6)


def test_squashed_entropy_against_integration():
    head = heads_of_spaces.action_head(S.Box(-1.0, 2.0, (1,)), squash=True)
    loc, log_std = np.meshgrid([-5.0, 0.0, 0.7, 5.0], [-5.0, -1.0, 0.0, 1.0, 2.0])
    loc, log_std = loc.ravel(), log_std.ravel()
    parameters = tf.constant(np.stack([loc, log_std], -1), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        entropy = head.entropy(parameters)
    expected = squashed_entropy(loc, log_std, 1.5)
    np.testing.assert_allclose(entropy, expected, atol=1e-3, rtol=1e-4)
    rises = [
        squashed_entropy(loc + a, log_std + b, 1.5)
        - squashed_entropy(loc - a, log_std - b, 1.5)
        for a, b in ((1e-3, 0.0), (0.0, 1e-3))
    ]
    slopes = tape.gradient(entropy, parameters)
    np.testing.assert_allclose(slopes, np.stack(rises, -1) / 2e-3, 5e-3, 5e-3)


@pytest.mark.parametrize("space", BOXES.values(), ids=BOXES)
def test_actions_at_the_bounds_are_finite(space):
    head = heads_of_spaces.action_head(space, squash=True)
    actions = tf.constant(np.stack([space.low, space.high]))
    parameters = tf.constant(parameters_of(head, 2))
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        raw = head.from_env(actions)
        log_probs = head.log_prob(parameters, raw)
    assert np.isfinite(raw).all()
    assert np.isfinite(log_probs).all()
    assert np.isfinite(tape.gradient(log_probs, parameters)).all()


def test_far_raw_actions_keep_a_finite_log_density():
    head = heads_of_spaces.action_head(S.Box(-1.0, 1.0, (1,)), squash=True)
    raw = tf.constant([[-50.0], [50.0]])
    parameters = tf.constant([[-50.0, 0.0], [50.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        log_probs = head.log_prob(parameters, raw)
    # -log(1 - tanh(u)^2) = 2 |u| - 2 log 2 far out.
    expected = -0.5 * np.log(2 * np.pi) + 100.0 - 2 * np.log(2.0)
    np.testing.assert_allclose(log_probs, [expected] * 2, rtol=1e-6)
    assert np.isfinite(tape.gradient(log_probs, parameters)).all()


# Distributions of the environment's actions.


def head_of(space, squash=None, init_scale=1.0, **options):
    """The head whose deviations go through softplus, squashed where bounds are."""
    return heads_of_spaces.action_head(
        space, squash=squash, init_scale=init_scale, **options
    )


ENV = {
    "multi discrete from": (S.MultiDiscrete([3, 2], start=[5, -2]), 5, 0),
    "table of choices": (S.MultiDiscrete([[2, 3], [4, 5]]), 14, 0),
    "box of one number": (S.Box(-2.0, 1.0, ()), 2, 1),
    "unbounded": (S.Box(-np.inf, np.inf, (2,)), 4, 2),
    "nested": (
        S.Dict(a=S.Tuple([S.Discrete(2), S.Box(0.0, 1.0, (1,))]), b=S.Discrete(3)),
        7,
        1,
    ),
}
EVERY_ENV = pytest.mark.parametrize(
    ("space", "n_parameters", "n_scales"), ENV.values(), ids=ENV
)


@EVERY_ENV
def test_draws_and_modes_lie_in_the_space(space, n_parameters, n_scales):
    head = head_of(space)
    assert (head.n_outputs, head.n_log_stds) == (n_parameters, n_scales)

    @tf.function(input_signature=[tf.TensorSpec([None, n_parameters])])
    def act(parameters):
        dist = head.env_distribution(parameters)
        actions, log_probs = dist.experimental_sample_and_log_prob(seed=SEED)
        return actions, log_probs, dist.log_prob(actions), dist.mode()

    parameters = np.random.default_rng(0).normal(size=[20, n_parameters])
    actions, log_probs, again, mode = act(parameters.astype(np.float32))
    assert log_probs.shape == [20]
    np.testing.assert_allclose(log_probs, again, rtol=1e-3, atol=1e-3)
    for nest in (actions, mode):
        for row in range(20):
            action = tf.nest.map_structure(lambda x: x.numpy()[row], nest)  # noqa: B023
            flat = tf.nest.map_structure(np.asarray, action)
            assert space.contains(flat)


@EVERY_ENV
def test_any_batch_axes(space, n_parameters, n_scales):
    head = head_of(space)
    for batch in ([], [3, 2]):
        dist = head.env_distribution(tf.zeros([*batch, n_parameters]))
        assert dist.batch_shape == batch
        assert dist.log_prob(dist.sample(seed=SEED)).shape == batch


def test_choices_by_hand():
    head = head_of(S.MultiDiscrete([2, 3], start=[1, -1]))
    logits = np.log(np.float32([0.25, 0.75, 0.5, 0.2, 0.3]))
    dist = head.env_distribution(logits)
    np.testing.assert_allclose(dist.prob([1, -1]), 0.25 * 0.5, rtol=1e-5)
    np.testing.assert_allclose(dist.prob([2, 1]), 0.75 * 0.3, rtol=1e-5)
    np.testing.assert_array_equal(dist.prob([0, 0]), 0.0)
    np.testing.assert_array_equal(dist.mode(), [2, -1])


def test_scales_by_hand():
    head = head_of(S.Box(-1.0, 1.0, (3,)), init_scale=0.5, min_scale=0.1)
    dist = head.env_distribution(tf.constant([1.0, 2.0, 3.0, 0.0, -200.0, 1.0]))
    assert isinstance(dist, squashed.SquashedNormal)
    np.testing.assert_array_equal(dist.loc, [1.0, 2.0, 3.0])
    grown = 0.1 + 0.4 * math.log1p(math.e * (math.e - 1))
    np.testing.assert_allclose(dist.scale, [0.5, 0.1, grown], rtol=1e-6)
    np.testing.assert_array_equal(dist.high, [1.0, 1.0, 1.0])


def test_bounds_say_what_floats_get():
    box, half = S.Box(-1.0, 1.0, (2,)), S.Box(0.0, np.inf, (2,))
    for space in (box, half):
        dist = head_of(space, False).env_distribution(tf.zeros(4))
        np.testing.assert_allclose(dist.stddev(), [1.0, 1.0], rtol=1e-6)
    for squash in (True, None):
        dist = head_of(box, squash).env_distribution(tf.zeros(4))
        assert isinstance(dist, squashed.SquashedNormal)
    assert head_of(box, None) == head_of(box, True)
    head = head_of(ENV["unbounded"][0])
    assert isinstance(head.env_distribution(tf.zeros(4)).distribution, tfd.Normal)
    for space in (half, tf.TensorSpec([2])):
        with pytest.raises(ValueError, match="`action_head`: `squash` expected a Box"):
            head_of(space, True)
    with pytest.raises(ValueError, match=r"`action_space` expected .*TransformAction"):
        head_of(half, None)


def test_specs_and_dtypes():
    spec = {"a": specs.BoundedTensorSpec([], tf.int32, 0, 2), "b": tf.TensorSpec([2])}
    dist = head_of(spec).env_distribution(tf.zeros([7], tf.float64))
    assert dist.dtype == {"a": tf.int32, "b": tf.float64}
    for space, *_ in ENV.values():
        assert head_of(spaces.spec_from_space(space)) == head_of(space)


@pytest.mark.parametrize("squash", [False, True])
def test_environments_density_is_that_of_raw_actions(squash):
    """Clipped heads have the normal's; squashed ones what tanh makes of it."""
    space = S.Box(np.float32([[-1, 0]]), np.float32([[1, 5]]))
    head = head_of(space, squash, 0.3, min_scale=0.01)
    parameters = np.random.default_rng(0).normal(size=[9, 4]).astype(np.float32)
    raw = head.sample(parameters, SEED)
    actions = head.to_env(raw) if squash else tf.reshape(raw, [9, 1, 2])
    for log_prob in (head.log_prob, head.host_log_prob):
        np.testing.assert_allclose(
            log_prob(parameters, raw.numpy()),
            head.env_distribution(parameters).log_prob(actions),
            *(1e-3, 1e-3),
        )
    deviations = 0.01 + 0.29 * np.log1p((np.e - 1) * np.exp(parameters[:, 2:]))
    normal = head.distribution(parameters)
    np.testing.assert_allclose(normal.stddev(), deviations, rtol=1e-4)
    for temperature in (0.5, 3.0):
        for tempered in (head.tempered, head.host_tempered):
            found = head.distribution(tempered(parameters, temperature)).stddev()
            expected = np.maximum(temperature * deviations, 0.01)
            np.testing.assert_allclose(found, expected, rtol=1e-4)
    for tempered in (head.tempered, head.host_tempered):
        found = np.asarray(tempered(parameters, 1e-3))
        assert np.isfinite(found).all()
        np.testing.assert_allclose(head.distribution(found).stddev(), 0.01, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tempered_deviations_of_narrow_dtypes(dtype):
    head = head_of(S.Box(-1.0, 1.0, (3,)), min_scale=0.1)
    free = tf.constant([0.5] * 3 + [-9.0, 0.0, 2.0], dtype)
    for temperature in (1e-3, 0.5, 2.0):
        found = head.tempered(free, temperature)
        assert found.dtype == dtype
        expected = head.tempered(tf.cast(free, tf.float32), temperature)
        deviations = [
            head.distribution(tf.cast(x, tf.float32)).stddev()
            for x in (found, expected)
        ]
        np.testing.assert_allclose(*deviations, rtol=0.05)


# What is refused.


@pytest.mark.parametrize("space", [S.Discrete(3), S.Box(-1.0, 1.0, (2,))], ids=str)
def test_parameters_are_floating(space):
    head = heads_of_spaces.action_head(space)
    for call in (head.distribution, head.env_distribution):
        with pytest.raises(TypeError, match="Head`: `parameters` expected a floating"):
            call(tf.zeros([1, head.n_outputs], tf.int32))
        with pytest.raises(ValueError, match="Head`: `parameters` must have shape"):
            call(tf.zeros([]))


STORED = {
    "discrete": (S.Discrete(3), np.zeros(4, np.int64)),
    "multi": (S.MultiDiscrete([3, 2]), np.zeros([4, 2], np.int64)),
    "binary": (S.MultiBinary(3), np.zeros([4, 3], np.int8)),
    "table": (S.MultiBinary((2, 2)), np.zeros([4, 2, 2], np.int8)),
    "box": (S.Box(-1.0, 1.0, (2,)), np.zeros([4, 2], np.float32)),
}


@pytest.mark.parametrize(("space", "actions"), STORED.values(), ids=STORED)
def test_stored_actions_are_one_for_each_row(space, actions):
    head = heads_of_spaces.action_head(space)
    parameters = np.zeros([4, head.n_outputs], np.float32)
    for log_prob in (head.log_prob, head.host_log_prob, tf.function(head.log_prob)):
        assert log_prob(parameters, actions).shape == (4,)
        for other in (actions[..., None], actions[:1], actions[:, None]):
            with pytest.raises(ValueError, match="Head`: `actions` must have shape"):
                log_prob(parameters, other)


@pytest.mark.parametrize("name", ["discrete", "multi", "binary", "table"])
def test_stored_choices_are_options(name):
    space, actions = STORED[name]
    head = heads_of_spaces.action_head(space)
    parameters = np.zeros([4, head.n_outputs], np.float32)
    for log_prob in (head.log_prob, head.host_log_prob):
        with pytest.raises(TypeError, match="`actions` expected integers"):
            log_prob(parameters, actions + 0.5)
        flags = log_prob(parameters, actions.astype(bool))
        np.testing.assert_array_equal(flags, log_prob(parameters, actions))
    for wrong in (actions - 1, actions + 5):
        with pytest.raises(ValueError, match="`actions` expected choices from 0 on"):
            head.host_log_prob(parameters, wrong)


def test_a_batch_of_unknown_rows_has_log_probs():
    head = heads_of_spaces.action_head(S.Discrete(3))
    specs = [tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int32)]
    log_prob = tf.function(head.log_prob, input_signature=specs)
    found = log_prob(np.zeros([4, 3], np.float32), np.zeros(4, np.int32))
    np.testing.assert_allclose(found, [-np.log(3)] * 4, rtol=1e-6)


@pytest.mark.parametrize("squash", [False, True])
def test_entropy_of_a_single_row(squash):
    head = heads_of_spaces.action_head(S.Dict(x=S.Box(-2.0, 2.0, (2,))), squash=squash)
    rows = tf.constant(np.random.default_rng(0).normal(size=[3, 4]), tf.float32)
    each = [head.entropy(row) for row in rows]
    assert {x.shape.rank for x in each} == {0}
    np.testing.assert_allclose(each, head.entropy(rows), rtol=1e-6)
    np.testing.assert_allclose(tf.vectorized_map(head.entropy, rows), each, rtol=1e-6)
