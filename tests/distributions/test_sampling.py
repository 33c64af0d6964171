"""Tests of `tfrl.distributions.sampling`."""

import confidence
import golden_io
import golden_policies
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfrl import bijectors, distributions
from tfrl.distributions import affine, product, sampling, squashed

tfd, tfb = tfp.distributions, tfp.bijectors

COUNTS = {
    "compute_log_probability": 2,
    "epsilon_greedy_sample": 2,
    "rsample_action_distribution": 1,
    "sample_action_distribution": 1,
}
CASES = {symbol: golden_policies.load(symbol) for symbol in COUNTS}
SEED = tf.constant([3, 8])


def golden(symbol):
    return pytest.mark.parametrize(
        "case", CASES[symbol], ids=golden_io.ids(CASES[symbol])
    )


def transformed(base, *parts):
    return tfd.TransformedDistribution(base, tfb.Chain(parts[::-1]))


def policy():
    # What TensorFlow Probability draws is other under XLA, what tfrl draws is not.
    every = np.ones(3, bool)
    normal = distributions.Normal([0.0, 1.0], 1.0)
    return {
        "move": transformed(normal, bijectors.StableTanh()),
        "jump": (distributions.MaskedCategorical([[0.0, 1.0, 2.0]] * 2, every),),
    }


def test_every_case_runs():
    assert {symbol: len(cases) for symbol, cases in CASES.items()} == COUNTS


@golden("compute_log_probability")
def test_compute_log_probability_golden(case):
    arguments = golden_policies.build(case["args"])
    log_prob = sampling.compute_log_probability(*arguments)
    np.testing.assert_allclose(log_prob, case["out"], **case["tol"])


@golden("epsilon_greedy_sample")
@pytest.mark.parametrize("kind", ["number", "tensor"])
def test_epsilon_greedy_sample_golden(case, kind):
    nest = golden_policies.build(case["args"][0])
    eps = case["kwargs"]["eps"]
    eps = tf.constant(eps) if kind == "tensor" else eps
    actions = sampling.epsilon_greedy_sample(nest, eps, SEED)
    tf.nest.map_structure(
        lambda *pair: np.testing.assert_allclose(*pair, **case["tol"]),
        actions,
        case["out"],
    )


@golden("rsample_action_distribution")
def test_rsample_action_distribution_golden(case):
    nest = golden_policies.build(case["args"][0])
    assert case["kind"] == "raises"
    with pytest.raises(ValueError, match="fully reparameterized; got Categorical"):
        sampling.rsample_action_distribution(nest)


@golden("sample_action_distribution")
def test_sample_action_distribution_golden(case):
    assert "no gradient through the sample" in case["note"]
    loc = tf.constant([0.5, 1.0])
    with tf.GradientTape() as tape:
        tape.watch(loc)
        nest = [tfd.Normal(loc, 1.0), transformed(tfd.Normal(loc, 2.0), tfb.Tanh())]
        actions, total = sampling.sample_action_distribution(nest, True, seed=1)
    expected = [d.log_prob(a) for d, a in zip(nest, actions, strict=True)]
    np.testing.assert_allclose(total, tf.add_n(expected), rtol=1e-3)
    assert tape.gradient(actions, loc) is None


def test_log_probability_by_hand():
    nest = {"a": tfd.Categorical(probs=[[0.25, 0.75]]), "b": (tfd.Uniform(0.0, [4.0]),)}
    actions = {"a": tf.constant([1]), "b": (tf.constant([3.0]),)}
    result = sampling.compute_log_probability(nest, actions)
    np.testing.assert_allclose(result, [np.log(0.75 / 4)], rtol=1e-6)
    pair = product.Product(nest)
    np.testing.assert_allclose(
        sampling.compute_log_probability([pair], [actions]), result
    )


@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_graphs_draw_as_eager_calls_do(jit_compile):
    def act(seed):
        nest = policy()
        actions, log_prob = sampling.sample_action_distribution(nest, True, seed)
        others = sampling.epsilon_greedy_sample(nest, tf.constant(0.5), seed)
        return actions, others, log_prob

    actions, others, log_prob = tf.function(act, jit_compile=jit_compile)(SEED)
    total = sampling.compute_log_probability(policy(), actions)
    np.testing.assert_allclose(log_prob, total, rtol=1e-4)
    eager_actions, eager_others, _ = act(SEED)
    tf.nest.map_structure(
        lambda *pair: np.testing.assert_allclose(*pair, rtol=1e-5),
        (actions, others),
        (eager_actions, eager_others),
    )
    other = sampling.sample_action_distribution(policy(), seed=[3, 9])
    assert np.any(other["move"] != eager_actions["move"])
    again = sampling.sample_action_distribution(policy(), seed=SEED)
    np.testing.assert_array_equal(again["move"], eager_actions["move"])


SATURATED = {
    "tanh": lambda loc: transformed(tfd.Normal(loc, 1.0), bijectors.StableTanh()),
    "tanh of TFP": lambda loc: transformed(tfd.Normal(loc, 1.0), tfb.Tanh()),
    "negative": lambda loc: transformed(
        tfd.Normal(loc, 1.0), tfb.Tanh(), tfb.Scale(-3.0)
    ),
    "event": lambda loc: transformed(
        distributions.DiagMultivariateNormal(loc[:, None], tf.ones([2, 1])),
        bijectors.StableTanh(),
        bijectors.AffineTransform([1.0], [2.0]),
    ),
    "independent": lambda loc: tfd.Independent(
        transformed(tfd.Normal(loc[:, None], 1.0), tfb.Tanh()), 1
    ),
    "squashed": lambda loc: squashed.SquashedNormal(loc, 1.0, -3.0, 4.0),
    "product": lambda loc: product.Product(
        [transformed(tfd.Normal(loc, 1.0), tfb.Tanh())]
    ),
}


@pytest.mark.parametrize("make", SATURATED.values(), ids=SATURATED)
@pytest.mark.parametrize("draw", ["sample", "rsample"])
def test_draws_at_the_bounds_have_finite_log_probs(make, draw):
    loc = tf.constant([0.3, 40.0])
    function = getattr(sampling, f"{draw}_action_distribution")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(loc)
        action, log_prob = function(make(loc), True, seed=SEED)
    gradient = tape.gradient(log_prob, loc)
    assert np.isfinite(log_prob).all()
    assert np.isfinite(gradient).all()
    # log tanh' at 40 is about -80 + log 4; the normal adds some -2.
    assert 70.0 < log_prob[1] < 90.0
    if draw == "sample":
        assert tape.gradient(action, loc) is None
        assert abs(gradient[1]) < 6.0  # the score of a normal is a z value
        again = sampling.sample_action_distribution(make(loc), seed=SEED)
        tf.nest.map_structure(np.testing.assert_array_equal, action, again)


def score_by_differences(make, parameters, action):
    """Gradient of log p(action) at a fixed action, parameter by parameter."""
    result = []
    for index, value in enumerate(parameters):
        ends = []
        for step in (1e-5, -1e-5):
            moved = [*parameters[:index], value + step, *parameters[index + 1 :]]
            ends.append(tf.reduce_sum(make(*moved).log_prob(action)))
        result.append((ends[0] - ends[1]) / 2e-5)
    return result


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: transformed(tfd.Normal(a, 1.0), tfb.Tanh(), tfb.Shift(b)),
        lambda a, b: transformed(tfd.Normal(a, 1.0), tfb.Scale(b), tfb.Tanh()),
        lambda a, b: affine.AffineTransformedDistribution(tfd.Normal(a, 1.0), 2.0, -b),
        lambda a, b: tfd.Independent(
            transformed(tfd.Normal([[a, 1.0]], 1.0), bijectors.Softclip(b, 9.0)), 1
        ),
        lambda a, b: transformed(tfd.Normal([a], 1.0), tfb.Shift([[b]])),
        lambda a, b: transformed(
            tfd.MultivariateNormalDiag([a, b]), tfb.ScaleMatvecTriL([[b, 0.0], [a, b]])
        ),
        lambda a, b: squashed.SquashedNormal([a], b, -1.0, 2.0),
        lambda a, b: tfd.Gamma(a + 2.0, b),
    ],
    ids=["shift", "scale", "affine", "clip", "batch", "matrix", "squashed", "gamma"],
)
def test_log_prob_of_samples_has_the_gradient_of_the_score(make):
    parameters = [tf.constant(x, tf.float64) for x in (0.4, 1.3)]

    def built(a, b):
        # TFP takes lists of tensors for arguments only as tensors.
        with tf.name_scope("policy"):
            return make(a, b)

    with tf.GradientTape() as tape:
        tape.watch(parameters)
        dist = built(*parameters)
        action, log_prob = sampling.sample_action_distribution(dist, True, seed=2)
    np.testing.assert_allclose(log_prob, dist.log_prob(tf.identity(action)), rtol=1e-6)
    np.testing.assert_allclose(
        tape.gradient(log_prob, parameters),
        score_by_differences(built, parameters, action),
        rtol=1e-5,
        atol=1e-7,
    )


def test_rsample_gradients_go_through_the_action():
    loc = tf.constant([0.5, -0.5])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(loc)
        nest = {"a": transformed(tfd.Normal(loc, 1.0), bijectors.StableTanh())}
        action, log_prob = sampling.rsample_action_distribution(nest, True, seed=5)
        alone = sampling.rsample_action_distribution(nest, seed=5)
    np.testing.assert_allclose(
        tape.gradient(action["a"], loc), 1 - np.square(action["a"]), rtol=1e-4
    )
    # log p(tanh(loc + e)) = log N(e) - log(1 - tanh^2): its slope is 2 tanh.
    np.testing.assert_allclose(tape.gradient(log_prob, loc), 2 * action["a"], rtol=1e-4)
    np.testing.assert_allclose(alone["a"], action["a"])


def test_epsilon_is_a_share_of_rows():
    n = 20_000
    nest = [
        tfd.Categorical(logits=tf.tile([[0.0, 0.0, 1.0, 0.0]], [n, 1])),
        distributions.DiagMultivariateNormal(tf.zeros([n, 2]), tf.ones([n, 2])),
    ]
    choices, moves = sampling.epsilon_greedy_sample(nest, eps=0.3, seed=4)
    weights = np.exp([0.0, 0.0, 1.0, 0.0])
    probs = 0.3 * weights / weights.sum() + 0.7 * np.eye(4)[2]
    confidence.assert_frequencies(np.bincount(choices, minlength=4), probs)
    greedy = np.all(np.asarray(moves) == 0.0, axis=1)
    assert np.array_equal(greedy, np.any(np.asarray(moves) == 0.0, axis=1))
    confidence.assert_frequencies([greedy.sum(), n - greedy.sum()], [0.7, 0.3])
    # Parts decide on their own.
    both = (greedy & (np.asarray(choices) == 2)).sum()
    confidence.assert_frequencies(
        [both, n - both], [0.7 * probs[2], 1 - 0.7 * probs[2]]
    )


@pytest.mark.parametrize("eps", [0.0, 1.0], ids=["greedy", "random"])
def test_extreme_epsilons(eps):
    dist = tfd.Categorical(logits=tf.zeros([1000, 3]))
    for given in (eps, tf.constant(eps), np.float64(eps)):
        actions = sampling.epsilon_greedy_sample(dist, given, seed=6)
        assert np.all(actions == 0) == (eps == 0.0)
    # No mode is needed for draws alone.
    blocks = tfd.Blockwise([tfd.Normal(0.0, 1.0)])
    if eps == 1.0:
        assert sampling.epsilon_greedy_sample(blocks, eps, seed=6).shape == [1]
    else:
        with pytest.raises(NotImplementedError, match="`get_mode`"):
            sampling.epsilon_greedy_sample(blocks, eps)


def test_rows_without_batch_and_nested_draws():
    vector = distributions.DiagMultivariateNormal([1.0, 2.0], [1.0, 1.0])
    actions = [
        sampling.epsilon_greedy_sample(vector, tf.constant(0.5), seed=seed).numpy()
        for seed in range(8)
    ]
    greedy = {bool(np.all(action == [1.0, 2.0])) for action in actions}
    assert greedy == {True, False}
    pair = product.Product(
        {"a": tfd.Normal([0.0, 1.0], 1.0), "b": tfd.Poisson([3.5] * 2)}
    )
    action = sampling.epsilon_greedy_sample(pair, tf.constant(0.0), seed=1)
    np.testing.assert_array_equal(action["a"], [0.0, 1.0])
    np.testing.assert_array_equal(action["b"], [3.0, 3.0])


def test_no_trace_for_another_epsilon_and_unknown_sizes():
    @tf.function(
        input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([], tf.float32)]
    )
    def act(logits, eps):
        nest = [
            tfd.Categorical(logits=logits),
            distributions.DiagMultivariateNormal(logits, tf.ones_like(logits)),
        ]
        return sampling.epsilon_greedy_sample(nest, eps, SEED)

    for n, eps in ((2, 0.0), (3, 0.5), (5, 1.0)):
        choices, moves = act(tf.zeros([n, 3]), tf.constant(eps))
        assert (choices.shape, moves.shape) == ([n], [n, 3])
    assert act.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("empty", [{}, (), []], ids=["dict", "tuple", "list"])
def test_empty_nests(empty):
    assert sampling.sample_action_distribution(empty) == empty
    assert sampling.rsample_action_distribution(empty) == empty
    assert sampling.epsilon_greedy_sample(empty) == empty
    with pytest.raises(ValueError, match="expected a nest with a distribution"):
        sampling.sample_action_distribution(empty, return_log_prob=True)
    with pytest.raises(ValueError, match="expected a nest with a distribution"):
        sampling.compute_log_probability(empty, empty)


@pytest.mark.parametrize("eps", [-0.1, 1.5, tf.constant(2.0)], ids=["-", "+", "tensor"])
def test_errors_of_epsilon(eps):
    with pytest.raises(ValueError, match=r"`eps` expected numbers in \[0"):
        sampling.epsilon_greedy_sample(tfd.Normal(0.0, 1.0), eps)


def test_actions_are_structured_as_their_distributions():
    joint = tfd.JointDistributionNamed(
        {"x": tfd.Normal(0.0, 1.0), "y": tfd.Poisson(1.0)}
    )
    nest = {"b": (tfd.Normal(0.0, 1.0),), "a": joint}
    actions = {"b": (tf.constant(1.0),), "a": {"x": 2.0, "y": 3.0}}
    expected = joint.log_prob(actions["a"]) + nest["b"][0].log_prob(1.0)
    got = sampling.compute_log_probability(nest, actions)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    for wrong in ({"b": (1.0,)}, {"a": 1.0, "b": (1.0,)}, [1.0, 2.0]):
        with pytest.raises(ValueError, match="`actions` expected the structure of"):
            sampling.compute_log_probability(nest, wrong)
    with pytest.raises(ValueError, match="`log_prob of leaf 1` expected the shape of"):
        actions = [np.zeros(1, "f"), np.zeros([1, 1], "f")]
        sampling.compute_log_probability([tfd.Normal([0.0], 1.0)] * 2, actions)
    for function in (
        sampling.sample_action_distribution,
        sampling.rsample_action_distribution,
        sampling.epsilon_greedy_sample,
    ):
        with pytest.raises(TypeError, match="`nested_distributions` expected distrib"):
            function([tfd.Normal(0.0, 1.0), 3.0])
