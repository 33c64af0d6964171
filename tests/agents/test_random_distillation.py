"""Tests of `tfrl.agents.random_distillation`: the formulas, and all it is shown."""

import re

import default_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, NEST, assert_close, batch_of, two_replicas

from tfrl._internal import dtype_policies
from tfrl.agents import random_distillation
from tfrl.saving import checkpoints

S = gym.spaces
T, N, K = 6, 3, 4
RATE, GAMMA = 0.01, 0.9
IMAGES = S.Box(0, 255, (36, 36, 1), np.uint8)
OPTIONS = {"n_envs": N, "n_features": K, "hidden_units": (8,), "seed": 3}


def create(space=BOX, **options):
    create = random_distillation.RandomNetworkDistillation.create
    return create(space, **{**OPTIONS, **options})


def linear(space):
    """Target and predictor of which everything can be worked out by hand."""
    del space
    layers = [keras.layers.Dense(K, bias_initializer="normal") for _ in range(2)]
    return [keras.Sequential([keras.layers.Flatten(), layer]) for layer in layers]


def seen(seed=0, space=BOX, n_steps=T):
    rng = np.random.default_rng(seed)
    outer = n_steps, N
    observations, ended = batch_of(space, *outer, seed=seed), rng.random(outer) < 0.3
    if isinstance(space, S.Discrete):
        observations += space.start
    return observations, ended


class Twin:
    """The same of linear networks in NumPy, row by row."""

    def __init__(self, node):
        self.f, self.g = (
            [np.array(x) for x in state.params.values()] for state in node
        )
        self.g = [x.astype(np.float64) for x in self.g]
        self.rows, self.returns = [], []
        self.running = np.zeros(N)
        self.moments = [np.zeros_like(x) for x in self.g * 2]
        self.count = 0

    def update(self, observations, ended, valid):
        self.rows += [*observations[valid]]
        known = np.array(self.rows, np.float64)
        shown = (observations - known.mean(0)) / np.sqrt(known.var(0) + 1e-8)
        shown = np.clip(np.where(valid[..., None], shown, 0.0), -5.0, 5.0)
        (w, b), (v, c) = self.f, self.g
        gaps = (shown @ v + c) - (shown @ w + b)
        errors = (gaps**2).mean(-1)
        for t, n in np.argwhere(valid):
            self.running[n] = GAMMA * self.running[n] + errors[t, n]
            self.returns.append(self.running[n])
            self.running[n] *= not ended[t, n]
        bonuses = np.minimum(errors / np.sqrt(np.var(self.returns) + 1e-8), 10.0)
        bonuses = np.where(valid, bonuses, 0.0)
        loss = errors[valid].mean()
        gaps = np.where(valid[..., None], gaps, 0.0) * 2.0 / K / valid.sum()
        grads = [np.einsum("tni,tnk->ik", shown, gaps), gaps.sum((0, 1))]
        self.count += 1
        for i, grad in enumerate(grads):
            first, second = self.moments[i], self.moments[i + 2]
            first += 0.1 * (grad - first)
            second += 0.001 * (grad**2 - second)
            step = first / (1 - 0.9**self.count)
            step /= np.sqrt(second / (1 - 0.999**self.count)) + 1e-8
            self.g[i] -= RATE * step
        return bonuses, loss


def test_two_updates_are_what_the_formulas_say():
    options = {"n_minibatches": 1, "learning_rate": RATE, "gamma": GAMMA}
    node = create(network=linear, **options)
    twin = Twin((node.target, node.predictor))
    for seed in range(2):
        observations, ended = seen(seed)
        valid = np.random.default_rng(10 + seed).random((T, N)) < 0.8
        assert (ended & valid)[:-1].any() and not valid.all()
        # Nothing may come of what they hold.
        given = np.where(valid[..., None], observations, np.nan)
        node, info = node.update(given, ended, valid)
        bonuses, loss = twin.update(observations, ended, valid)
        np.testing.assert_allclose(info["bonuses"], bonuses, rtol=1e-4, atol=1e-6)
        assert (info["bonuses"].numpy()[~valid] == 0.0).all()
        np.testing.assert_allclose(info["bonus_mean"], bonuses[valid].mean(), rtol=1e-4)
        np.testing.assert_allclose(info["predictor_loss"], loss, rtol=1e-4)
        found = [*node.predictor.params.values()]
        assert_close(found, twin.g, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        node.return_scale.running_returns, twin.running, rtol=1e-4
    )
    # What is asked for afterwards is scaled by what is known then.
    rows = np.array(twin.rows)
    shown = np.clip((rows - rows.mean(0)) / rows.std(0), -5.0, 5.0)
    errors = ((shown @ (twin.g[0] - twin.f[0]) + twin.g[1] - twin.f[1]) ** 2).mean(-1)
    expected = np.minimum(errors / np.std(twin.returns), 10.0)
    np.testing.assert_allclose(node.bonuses(rows), expected, rtol=1e-3, atol=1e-5)


def unknown(value, place, space=BOX):
    observations, ended = seen(space=space)
    leaf = observations if space is BOX else observations["place"]
    leaf[place][-1] = value
    ended[place] = False
    return observations, ended


@pytest.mark.parametrize("value", [np.nan, *default_rows.slow(np.inf, -np.inf)])
@pytest.mark.parametrize(
    "space", [BOX, *default_rows.slow(S.Dict(image=IMAGES, place=BOX))]
)
def test_what_is_not_finite_is_passed_over(value, space):
    start, place = create(space, n_minibatches=2), (2, 1)
    given, valid = unknown(value, place, space), np.ones((T, N), bool)
    valid[place] = False
    node, info = start.update(*given)
    # As if that row were invalid, in every part of it.
    assert_close((node, info), start.update(*given, valid))
    assert info["bonuses"][place] == 0.0 and info["bonus_mean"] > 0.0
    one = tf.nest.map_structure(lambda x: x[place], given[0])
    assert node.bonuses(one) == 0.0
    assert (np.delete(node.bonuses(given[0]), place[0] * N + place[1]) > 0.0).all()
    _, info = node.update(*seen(1, space))
    assert all(np.isfinite(x).all() for x in info.values())
    # A graph takes no pieces.
    update = tf.function(lambda *given: start.update(*given)[1])
    found = update(*tf.nest.map_structure(tf.constant, given))
    assert_close(found, start.update(*given)[1], rtol=1e-4, atol=1e-6)


def test_an_end_counts_where_what_was_observed_is_not_finite():
    observations, ended = unknown(np.nan, (T - 1, 1))
    ended[:] = False
    for end in (False, True):
        ended[T - 1, 1] = end
        node, _ = create().update(observations, ended)
        assert (node.return_scale.running_returns[1] == 0.0) == end


def test_the_target_stays_and_the_known_is_worth_less():
    node, start = create(learning_rate=1e-2), create()
    observations, ended = seen(n_steps=16)
    for _ in range(40):
        node, info = node.update(observations, ended)
    assert_close(node.target, start.target)
    known, new = node.bonuses(observations), node.bonuses(-2.0 * observations)
    assert np.mean(new) > 5.0 * np.mean(known)
    assert float(info["predictor_loss"]) < 0.1
    assert node.bonuses(observations[0, 0]).shape == ()


def test_a_share_of_the_rows_is_learned_from():
    node = create(n_minibatches=2, n_epochs=3, share=0.5, learning_rate=1e-9)
    observations, ended = seen()
    # So few rows that which are taken shows in the loss.
    learned, info = node.update(observations, ended)
    assert int(learned.predictor.step) == 1 + 2 * 3
    _, others = node.replace(rng=tf.constant([8, 9])).update(observations, ended)
    assert info["predictor_loss"] != others["predictor_loss"]
    np.testing.assert_array_equal(info["bonuses"], others["bonuses"])
    assert_close(node.update(observations, ended)[0], learned)


@pytest.mark.parametrize("compiled", [tf.function, *default_rows.slow("xla")])
def test_a_graph_computes_the_same(compiled):
    if compiled == "xla":
        compiled = tf.function(jit_compile=True)
    node = create()
    alone, info = node.update(*seen())

    @compiled
    def update(observations, ended):
        learned, info = node.update(observations, ended)
        return tf.nest.flatten(learned), info, learned.bonuses(observations)

    leaves, found, bonuses = update(*map(tf.constant, seen()))
    expected = {**info, "bonuses": info["bonuses"]}
    if compiled is tf.function:  # XLA draws other minibatches
        assert_close(leaves, tf.nest.flatten(alone), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(bonuses, alone.bonuses(seen()[0]), rtol=1e-4)
    np.testing.assert_allclose(found["bonuses"], expected["bonuses"], rtol=1e-4)


SPACES = {
    "nest": (NEST,),
    "choice": (S.Discrete(5, start=-2),),
    "choices": (S.MultiDiscrete([2, 3]),),
    "bits": (S.MultiBinary(4),),
    "numbers": (S.Box(-1.0, 1.0, (2, 3), np.float64),),
}


@pytest.mark.parametrize("space", default_rows.params(SPACES, ["nest"]))
def test_whatever_networks_accept_has_bonuses(space):
    node = create(space, learning_rate=1e-2)
    observations, ended = seen(space=space)
    node, first = node.update(observations, ended)
    for _ in range(20):
        node, last = node.update(observations, ended)
    assert first["bonuses"].shape == (T, N) and first["bonuses"].dtype == tf.float32
    assert 0.0 < float(last["predictor_loss"]) < float(first["predictor_loss"])
    one = tf.nest.map_structure(lambda x: x[0], observations)
    assert node.bonuses(one).shape == (N,)


@pytest.mark.slow
def test_images_are_whitened_by_pixels_and_learned_from_in_pieces():
    node = create(IMAGES, n_minibatches=2)
    observations, ended = seen(space=IMAGES)
    observations[..., 0, 0, 0] = 7  # a pixel that says nothing
    learned, info = node.update(observations, ended)
    shown = learned.whiten(observations).numpy()
    flat = observations.astype(np.float64)
    expected = (flat - flat.mean((0, 1))) / np.sqrt(flat.var((0, 1)) + 1e-8)
    np.testing.assert_allclose(shown, np.clip(expected, -5.0, 5.0), atol=1e-4)
    assert (shown[..., 0, 0, 0] == 0.0).all()
    bonuses = info["bonuses"].numpy()
    assert bonuses.std() > 0.01 * bonuses.mean() > 0.0
    # A graph takes no pieces.
    update = tf.function(lambda *given: node.update(*given)[1])
    given = [tf.constant(x) for x in (observations, ended)]
    assert_close(update(*given), info, rtol=1e-4, atol=1e-6)


def test_two_replicas_learn_what_one_learns():
    alone = shared = create(network=linear, n_minibatches=3)
    for seed in range(2):
        observations, ended = seen(seed)
        valid = np.random.default_rng(seed).random((T, N)) < 0.7
        alone, expected = alone.update(observations, ended, valid)
        with two_replicas().scope():
            shared, info = shared.update(observations, ended, valid)
        assert_close((shared, info), (alone, expected), rtol=1e-4, atol=2e-6)
    with two_replicas().scope():
        match = r"n_minibatches` expected rows that 2 replicas share evenly; got 9"
        match += r"; take one of \[1, 3, 4, 7\] for `n_minibatches`$"
        with pytest.raises(ValueError, match=match):
            create(n_minibatches=2).update(*seen())
        for count in (1, 3, 4, 7):
            create(n_minibatches=count).settings.n_rows("here", T, N)
        with pytest.raises(ValueError, match=r"got 1; take fewer replicas$"):
            create(n_minibatches=1).settings.n_rows("here", 1, 1)


def test_what_is_saved_goes_on(tmp_path):
    node, _ = create().update(*seen())
    checkpoints.save_run(tmp_path, 1, node, {})
    loaded, _, _ = checkpoints.load_run(tmp_path, create(seed=4))
    assert_close(loaded, node)
    assert_close(*(x.update(*seen(1))[0] for x in (loaded, node)))


@pytest.mark.parametrize("space", [BOX, *default_rows.slow(IMAGES)])
@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", *default_rows.slow("mixed_float16")]
)
def test_mixed_precision_keeps_float32(policy, space):
    with dtype_policies.used(policy):
        node = create(space, learning_rate=1e-3)
        for seed in range(3):
            node, info = node.update(*seen(seed, space))
        found = [*node.predictor.params.values(), *info.values()]
        assert all(np.isfinite(x).all() for x in found)
        assert {x.dtype for x in found} == {tf.float32}


def test_networks_of_ones_own_repeat_and_are_shown_float32():
    shown = []

    class Noting(keras.layers.Layer):
        def call(self, inputs):
            shown.append(inputs.dtype)
            return inputs

    def network(space):
        del space
        made = []
        for _ in range(2):
            layers = [Noting(), keras.layers.BatchNormalization()]
            layers += [keras.layers.Flatten(), keras.layers.Dropout(0.5)]
            made.append(keras.Sequential([*layers, keras.layers.Dense(K)]))
        return tuple(made)

    node = create(IMAGES, network=network)
    assert_close(
        node.predictor.params, create(IMAGES, network=network).predictor.params
    )
    learned, _ = node.update(*seen(space=IMAGES))
    assert {*map(str, shown)} <= {"float32", "<dtype: 'float32'>"}
    assert_close(learned.predictor.extra_variables, node.predictor.extra_variables)
    assert np.abs(learned.whiten(seen(space=IMAGES)[0])).max() <= 5.0


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (
            TypeError,
            "`observation_space` expected a Gymnasium space; got 3",
            {"space": 3},
        ),
        (TypeError, "`observation_space` expected Box, Dis", {"space": S.Text(3)}),
        (
            TypeError,
            "`observation_space` expected Box, Dis",
            {"space": S.Text(3), "network": linear},
        ),
        (
            ValueError,
            "`observation_space` must have a number",
            {"space": S.Box(0.0, 1.0, (0,))},
        ),
        (TypeError, "`n_features` expected an int", {"n_features": 2.5}),
        (ValueError, "`n_minibatches` expected .*1", {"n_minibatches": 0}),
        (ValueError, "`n_epochs` expected .*1", {"n_epochs": 0}),
        (ValueError, "`learning_rate` expected", {"learning_rate": 0.0}),
        (ValueError, "`gamma` expected", {"gamma": 1.5}),
        (ValueError, "`share` expected", {"share": 0.0}),
        (ValueError, "`n_envs` expected", {"n_envs": 0}),
        (ValueError, "`hidden_units` expected", {"hidden_units": (0,)}),
        (ValueError, "`activation` expected", {"activation": "quick"}),
        (
            ValueError,
            "`network` .* Box.* got a call that fails on two rows",
            {"network": lambda _: [keras.layers.Conv2D(2, 3), keras.layers.Dense(K)]},
        ),
        (TypeError, "`network` expected a function of the obs", {"network": 3}),
        (
            TypeError,
            "`network` expected a function of the obs.* got <function",
            {"network": lambda space, more: linear(space)},
        ),
        (
            TypeError,
            "`network` expected a function of the obs.* got <Sequential",
            {"network": keras.Sequential([keras.layers.Dense(K)])},
        ),
        (TypeError, "returns a pair of Keras models; got", {"network": lambda _: 3}),
        (
            ValueError,
            "`network` expected a target and a predictor; got one model twice",
            {"network": lambda _: [keras.layers.Dense(K)] * 2},
        ),
        (
            ValueError,
            r"models to \[B, 5\], as `n_features` says, .* got shape \[2, 4\]",
            {"network": linear, "n_features": 5},
        ),
    ],
)
def test_what_it_is_not_made_of_is_refused(error, words, options):
    with pytest.raises(error, match="`RandomNetworkDistillation.create`: .*" + words):
        create(**options)


def test_what_does_not_fit_is_refused():
    node, (observations, ended) = create(), seen()
    where = "`RandomNetworkDistillation.update`: "
    for given, words in (
        ((observations[:, :2], ended[:, :2]), r"expected \[T, 3\] outer axes"),
        ((observations[0], ended[0]), r"expected \[T, 3\] outer axes"),
        ((observations, ended[:2]), r"got \[6, 3\] and \[2, 3\]"),
        ((observations[..., :2], ended), "`observations` expected parts of the shapes"),
        ((observations, ended, ended[:1]), "`valid` expected the shape"),
        (
            (observations[:1], ended[:1]),
            "`n_minibatches` expected at most .* = 3; got 4",
        ),
    ):
        with pytest.raises(ValueError, match=where + f".*{words}"):
            node.update(*given)
    with pytest.raises(ValueError, match=r"bonuses`: `observations` expected parts"):
        node.bonuses(observations[..., :2])
    match = r"`RandomNetworkDistillation.bonuses`: `observations` expected one array, "
    with pytest.raises(ValueError, match=match + r"of Box.*; got a dict of \['x'\]"):
        node.bonuses({"x": observations})
    with pytest.raises(ValueError, match="`observations` expected a tensor"):
        node.bonuses([[0.0, 1.0, 2.0], [0.0, 1.0]])
    with pytest.raises(TypeError, match="`observations` expected a tensor"):
        node.bonuses("far")


def test_lists_are_observations_too():
    node, _ = create().update(*seen())
    rows = [[0.0, 1.0, 2.0], [3.0, 2.0, 1.0]]
    np.testing.assert_array_equal(node.bonuses(rows), node.bonuses(np.array(rows)))
    assert_close(node.whiten(rows), node.whiten(np.array(rows)))
    observations, ended = seen(1)
    given = observations.tolist(), ended.tolist()
    assert_close(node.update(*given), node.update(observations, ended), rtol=1e-5)
    node = create(S.Tuple([BOX, S.Discrete(2)]))
    assert node.bonuses([rows, [0, 1]]).shape == (2,)


NESTED = S.Dict(a=S.Tuple([BOX, S.Discrete(2)]), b=BOX)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": 1}, r"`observations` expected a dict of \['a', 'b'\]; got .* \['a'\]"),
        (3, r"`observations` expected a dict of \['a', 'b'\]; got 3"),
        ({"a": 1, "c": 2}, r"of \['a', 'b'\]; got a dict of \['a', 'c'\]"),
        (
            {"a": (1,), "b": 2},
            r"`observations\['a'\]` expected a tuple of 2 parts; got",
        ),
        ({"a": 1, "b": 2}, r"`observations\['a'\]` expected a tuple of 2 parts; got 1"),
        (
            {"a": ({"x": 1}, 1), "b": 2},
            r"`observations\['a'\]\[0\]` expected one array, of Box.* \['x'\]",
        ),
    ],
)
def test_other_parts_than_those_of_the_space_are_refused(given, words):
    node = create(NESTED)
    for name in ("bonuses", "whiten"):
        match = f"`RandomNetworkDistillation.{name}`: .*{words}"
        with pytest.raises(ValueError, match=match):
            getattr(node, name)(given)


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (S.Discrete(4, start=1), 0),
        (S.Discrete(4, start=1), 77),
        (S.MultiDiscrete([2, 3]), [1, 3]),
        (S.MultiDiscrete([2, 3]), [-1, 0]),
    ],
)
def test_choices_outside_of_the_space_are_refused(space, wrong):
    node, (observations, ended) = create(space), seen(space=space)
    node.update(observations, ended)
    observations[2, 1] = wrong
    match = rf"`observations` expected elements of {re.escape(str(space))}; got "
    match += rf"{re.escape(str(np.array(wrong)))} in row \[2, 1\]"
    with pytest.raises(ValueError, match=f"Distillation.update`: {match}"):
        node.update(observations, ended)
    with pytest.raises(ValueError, match=f"Distillation.bonuses`: {match}"):
        node.bonuses(observations)
    with pytest.raises(ValueError, match=r"elements of .*; got [^r]*; give"):
        node.bonuses(wrong)
    # Rows that are not learned from may hold anything.
    valid = np.ones((T, N), bool)
    valid[2, 1] = False
    assert node.update(observations, ended, valid)[1]["bonuses"][2, 1] == 0.0
    for kind in (np.float32, bool):
        match = rf"expected integers, as elements of .* got {np.dtype(kind).name}"
        with pytest.raises(TypeError, match=match):
            node.update(observations.astype(kind), ended)
