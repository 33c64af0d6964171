"""How agents of choices act, are compiled and set; see also `test_agent_battery`."""

import dataclasses
import functools
import gc
import weakref

import agent_rows
import default_rows
import gymnasium as gym
import keras
import numpy as np
import own_networks
import pytest
import tensorflow as tf
from agent_examples import BOX, assert_close, params_of
from agent_rows import ON_POLICY, Q_LEARNING, experience_of, made

from tfrl.agents import agent as agents
from tfrl.agents.off_policy import dqn, td3
from tfrl.agents.on_policy import a2c, ppo
from tfrl.core import compile, pytree
from tfrl.schedules import progress, schedulers

S = gym.spaces
IMAGE = S.Box(0, 255, (36, 36, 1), np.uint8)
CONFIGS = ON_POLICY | Q_LEARNING | {"bc": agent_rows.CONFIGS["bc"]}
LONG = ("ppo_memory",)
kinds = pytest.mark.parametrize(
    "kind",
    [pytest.param(x, marks=[pytest.mark.slow] if x in LONG else []) for x in CONFIGS],
)


@kinds
def test_an_agent_acts_for_its_spaces_alike_from_one_seed(kind):
    agent = made(kind, seed=3)
    assert isinstance(agent, pytree.PyTreeNode)
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    known = agent.policy.initial_state(64)
    act = functools.partial(agent.policy.act, x, known)
    first = act(seed=1, temperature=1.0).actions
    assert first.dtype == np.int64 and set(first) <= {5, 6, 7}
    np.testing.assert_array_equal(first, act(seed=1).actions)
    assert not np.array_equal(first, act(seed=2).actions)
    greedy, parameters = act(temperature=0.0).actions, agent.policy.outputs(x, known)[0]
    np.testing.assert_array_equal(greedy, np.argmax(parameters, -1) + 5)
    assert_close(agent, made(kind, seed=3))
    other = tf.nest.flatten(made(kind, seed=4))
    pairs = zip(tf.nest.flatten(agent), other, strict=True)
    assert any(not np.array_equal(a, b) for a, b in pairs)


def test_compiled_functions_know_one_network_of_each_architecture():
    states = [made("ppo", seed=seed).policy.state for seed in range(2)]
    shared = states[0].lent()
    assert shared.model_def is states[1].lent().model_def
    assert shared.model_def not in [state.model_def for state in states]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(shared(x)[0], states[0](x)[0], rtol=1e-6)
    back = shared.returned(states[0])
    assert back.model_def is states[0].model_def
    assert back.apply_fn == states[0].apply_fn
    for other in ({"hidden_units": (6,)}, {"activation": "relu"}):
        assert made("ppo", **other).policy.state.lent().model_def != shared.model_def
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert made("ppo").policy.state.lent().model_def is not shared.model_def
    found = tf.function(lambda: tf.constant(states[0].lent() is states[0]))()
    assert found, "in a graph networks are used as they are"


def test_networks_go_with_the_last_who_uses_them():
    shared = made("bc", hidden_units=(11,)).model.lent()
    network = weakref.ref(shared.model_def)
    del shared
    gc.collect()
    assert network() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "space"),
    [
        *[
            pytest.param(
                *(kind, BOX),
                id=f"{kind}-numbers",
                marks=[] if kind in ("ppo", "dqn", "bc") else [pytest.mark.slow],
            )
            for kind in CONFIGS
        ],
        pytest.param("ppo", IMAGE, marks=pytest.mark.slow),
        pytest.param("policy_gradient", IMAGE, marks=pytest.mark.slow),
        pytest.param("dqn", IMAGE, id="dqn-images"),
        pytest.param("bc", IMAGE, marks=pytest.mark.slow),
    ],
)
def test_an_update_is_compiled_as_its_network_wants(by_xla, monkeypatch, kind, space):
    trace, compiled_by_xla = compile._traces.trace, []

    def spied(function, *args):
        if function.__module__.startswith("tfrl.agents"):
            compiled_by_xla.append(args[-1])
        return trace(function, *args[:-1], False)

    monkeypatch.setattr(compile._traces, "trace", spied)
    agent = made(kind, space=space, hidden_units=(7,))
    _, info = agent.update(experience_of(kind, space=space))
    assert all(np.isfinite(x).all() for x in info.values())
    assert set(compiled_by_xla) == {space is BOX}


STEP = keras.optimizers.schedules.PiecewiseConstantDecay([3], [0.5, 0.25])
BY_STEPS = schedulers.LinearScheduler("env_steps", ((0, 0.1), (100, 0.2)))
BY_SHARE = schedulers.LinearScheduler("percent", ((0.0, 0.4), (1.0, 0.0)))
HALFWAY = progress.Progress(percent=0.5, iterations=4, env_steps=50)


@pytest.mark.parametrize(
    ("rate", "line", "expected"),
    [
        (0.3, "constant", (0.3, 0.3)),
        (0.3, "linear", (0.3, 0.15)),
        (BY_STEPS, "constant", (0.1, 0.15)),
        (BY_SHARE, "constant", (0.4, 0.2)),
        (STEP, "constant", (0.5, 0.25)),
    ],
    ids=["number", "line", "steps", "share", "Keras"],
)
def test_a_schedule_follows_its_own_progress(rate, line, expected):
    config = ppo.PPO(learning_rate=rate, learning_rate_schedule=line)
    found = [
        agents.settings_at(config, told, ["learning_rate"])["learning_rate"]
        for told in (progress.Progress(), HALFWAY, progress.Progress(percent=1.0))
    ]
    with progress.progress_context(HALFWAY):
        found[2:] = [
            agents.settings_at(config, None, ["learning_rate"])["learning_rate"]
        ]
    assert all(x.dtype == tf.float32 and x.shape == () for x in found)
    np.testing.assert_allclose(found, [*expected, expected[1]], rtol=1e-6)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(x, marks=pytest.mark.slow) for x in ("ppo", "policy_gradient")]
    + ["dqn", "bc"],
)
def test_the_progress_alone_says_the_rate_of_an_update(kind):
    """So a resumed run, which knows its progress, goes on where it was."""
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([6], [1e-2, 1e-3])
    whole = {"target_kl": None, "n_epochs": 1} if kind == "ppo" else {}
    agent = made(kind, learning_rate=schedule, **whole)
    start, moves = params_of(agent), []
    for count in (6, 7):
        told = progress.Progress(iterations=count)
        learned, info = agent.update(experience_of(kind), progress=told)
        if kind != "bc":
            assert float(info["learning_rate"]) == pytest.approx(10.0 ** (4 - count))
        moves.append(
            max(np.abs(x - start[name]).max() for name, x in params_of(learned).items())
        )
    assert moves[1] == pytest.approx(moves[0] / 10, rel=0.3)


@pytest.mark.parametrize(
    "kind", ["policy_gradient", pytest.param("ppo", marks=pytest.mark.slow)]
)
def test_the_weight_of_the_entropy_may_follow_a_schedule(kind):
    told = {"progress": progress.Progress(percent=0.5)}
    found = [
        params_of(
            made(kind, entropy_coefficient=x).update(experience_of(kind), **told)[0]
        )
        for x in (BY_SHARE, 0.2, 0.4)
    ]
    for name, value in found[0].items():
        np.testing.assert_allclose(value, found[1][name], rtol=1e-6)
    assert any((value != found[2][name]).any() for name, value in found[0].items())


@pytest.mark.parametrize(
    ("kind", "config", "expected"),
    default_rows.params(
        {
            "entropy": (
                "policy_gradient",
                {"entropy_coefficient": BY_SHARE},
                {"entropy_coefficient"},
            ),
            "clip": ("ppo", {"clip": BY_SHARE}, {"clip"}),
            "linear": ("ppo", {"clip": 0.4, "clip_schedule": "linear"}, {"clip"}),
            "numbers": ("ppo", {"clip": 0.2, "entropy_coefficient": 0.1}, set()),
        },
        ["entropy", "clip"],
    ),
)
def test_the_info_tells_what_follows_a_schedule(kind, config, expected):
    told = {"progress": progress.Progress(percent=0.5)}
    _, info = made(kind, **config).update(experience_of(kind), **told)
    assert {*info} & {"clip", "entropy_coefficient"} == expected
    assert all(float(info[name]) == pytest.approx(0.2) for name in expected)


@pytest.mark.parametrize(
    "kind", ["dqn", "bc", pytest.param("ppo", marks=pytest.mark.slow)]
)
def test_a_schedule_that_nobody_tells_how_far_it_is_is_warned_of(kind):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([6], [1e-2, 1e-3])
    agent, _ = made(kind, learning_rate=schedule).update(experience_of(kind))
    name = "`learning_rate` follows the progress of training"
    with pytest.warns(UserWarning, match=name):
        agent.update(experience_of(kind))
    with progress.progress_context(progress.Progress(iterations=1)):
        agent.update(experience_of(kind))


@dataclasses.dataclass(frozen=True)
class OwnPPO(ppo.PPO):
    share: int | float = 0.5
    mode: bool | str = "auto"
    limit: float = np.inf
    rate: float = keras.optimizers.schedules.PolynomialDecay(1.0, 9)
    late: int = dataclasses.field(init=False)


def test_settings_that_a_subclass_adds_are_its_own():
    assert OwnPPO(squash=np.bool_(False)).share == 0.5
    assert OwnPPO(learning_rate=BY_SHARE, limit="a").learning_rate is BY_SHARE
    with pytest.raises(
        TypeError, match="`OwnPPO`: `n_epochs` expected an int; got 1.5"
    ):
        OwnPPO(n_epochs=1.5)


def test_shares_may_be_tensors_of_a_graph():
    @tf.function
    def replaced(share):
        return a2c.A2C(decay=share).decay

    assert float(replaced(tf.constant(0.5))) == 0.5


BAD_SETTINGS = {
    "learning_rate": (0.0, ValueError),
    "max_gradient_norm": (-1.0, ValueError),
    "hidden_units": (8, TypeError),
}
BAD_OF_KINDS = {
    "ppo": [
        ("hidden_units", (0,), ValueError),
        ("learning_rate", "linear", TypeError),
        ("gamma", 1.5, ValueError),
        ("n_epochs", 0, ValueError),
        ("n_epochs", 1.5, TypeError),
        ("minibatch_size", 2.5, TypeError),
        ("value_coefficient", np.nan, ValueError),
        ("entropy_coefficient", "a", TypeError),
        ("clip_schedule", "cosine", ValueError),
        ("target_kl", -1.0, ValueError),
    ],
    "ppo_memory": [("memory", "rnn", ValueError), ("memory_units", 0, ValueError)],
    "policy_gradient": [("gamma", -0.1, ValueError)],
    "a2c": [
        ("decay", 1.5, ValueError),
        ("decay", 1.0, ValueError),
        ("eps", 0.0, ValueError),
    ],
    "impala": [
        ("clip_rho", 0.0, ValueError),
        ("clip_pg_rho", -1.0, ValueError),
        ("decay", 1.0, ValueError),
    ],
    "rnd": [("scale", -1.0, ValueError), ("agent", dqn.DQN(), TypeError)],
    "dqn": [
        ("epsilon", 1.5, ValueError),
        ("epsilon", -0.5, ValueError),
        ("target_period", 0, ValueError),
        ("target_period", 1.5, TypeError),
        ("tau", 2.0, ValueError),
        ("huber_delta", 0.0, ValueError),
        ("dueling", 1, TypeError),
        ("adam_epsilon", 0.0, ValueError),
    ],
    "c51": [
        ("n_atoms", 1, ValueError),
        ("v_min", 10.0, ValueError),
        ("v_min", np.nan, ValueError),
        ("double", 1, TypeError),
    ],
    "qr_dqn": [
        ("n_quantiles", 0, ValueError),
        ("huber_delta", -1.0, ValueError),
        ("huber_delta", None, TypeError),
    ],
    "iqn": [
        ("n_cosines", 0, ValueError),
        ("hidden_units", (), ValueError),
        ("huber_delta", None, TypeError),
    ],
    "rainbow": [("noise", 0.0, ValueError), ("epsilon", 2.0, ValueError)],
    "bc": [],
}


@kinds
def test_bad_settings_are_refused(kind):
    config = CONFIGS[kind]
    known = {field.name for field in dataclasses.fields(config)}
    common = [(name, *bad) for name, bad in BAD_SETTINGS.items() if name in known]
    for name, value, error in [*common, *BAD_OF_KINDS[kind]]:
        where = f"`{type(config).__name__}`: `{name}` expected"
        with pytest.raises(error, match=where):
            dataclasses.replace(config, **{name: value})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.learning_rate = 0.5


# Numbers that are no number, by what settings are annotated with.
NO_BOOLS = (1, 0.0, "a", None)
NO_COUNTS = (np.nan, np.inf, -np.inf, "a", None, -1, 1.5, 2.0, True)
NO_NUMBERS = (np.nan, -np.inf, "a", None, True, [0.5], np.array([0.5, 0.5]), np.inf)
NO_KINDS = {
    bool: NO_BOOLS,
    int: NO_COUNTS,
    int | None: [x for x in NO_COUNTS if x is not None],
    float: NO_NUMBERS,
    float | None: [x for x in NO_NUMBERS if x is not None],
    agents.Scheduled: NO_NUMBERS,
}
# Infinite, these limit nothing.
LIMITS = ("clip", "value_clip", "target_kl", "clip_rho", "clip_pg_rho", "max_weight")
NO_NEGATIVES = ("value_coefficient", "eps", "clip", "temperature", "noise", "beta")


@pytest.mark.parametrize("kind", agent_rows.CONFIGS)
def test_numbers_that_no_update_could_use_are_refused(kind):
    config, count = agent_rows.CONFIGS[kind], 0
    for field in dataclasses.fields(config):
        wrong = NO_KINDS.get(field.type, ())
        if field.name in LIMITS:
            wrong = wrong[:-1]
            dataclasses.replace(config, **{field.name: np.inf})
        if field.name in NO_NEGATIVES:
            wrong = (*wrong, -1.0)
        for value in wrong:
            match = f"`{type(config).__name__}`: `{field.name}` expected"
            with pytest.raises((TypeError, ValueError), match=match):
                dataclasses.replace(config, **{field.name: value})
                pytest.fail(f"{field.name}={value!r} is taken")
            count += 1
    assert count > 20


@pytest.mark.parametrize("share", [np.float32(0.5), np.array(0.5), tf.constant(0.5), 1])
def test_what_is_a_number(share):
    assert ppo.PPO(gamma=share).gamma is share


@pytest.mark.parametrize("rate", [None, "0.1", [1e-3], keras.optimizers.Adam(1e-3)])
def test_what_is_no_rate(rate):
    with pytest.raises(TypeError, match="`PPO`: `learning_rate` .* number, or a sched"):
        ppo.PPO(learning_rate=rate)


@pytest.mark.parametrize("rate", [np.array(1e-3), np.float32(1e-3), tf.constant(1e-3)])
def test_what_is_a_rate(rate):
    assert ppo.PPO(learning_rate=rate).learning_rate is rate


def test_a_schedule_cannot_fall_besides():
    with pytest.raises(ValueError, match="`PPO`: `clip_schedule` expected 'constant'"):
        ppo.PPO(clip=BY_SHARE, clip_schedule="linear")


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (ppo.PPO, "learning_rate", (1e-3, -1e-3)),
        (ppo.PPO, "clip", (-0.1, 0.0)),
        (dqn.DQN, "epsilon", (1.5, 0.0)),
        (td3.TD3, "exploration_noise", (0.1, -0.1)),
    ],
)
def test_a_schedule_stays_in_range(kind, name, values):
    pairs = tuple(zip((0.0, 1.0), values, strict=True))
    with pytest.raises(ValueError, match=f"`{kind.__name__}`: `{name}` expected"):
        kind(**{name: schedulers.LinearScheduler("percent", pairs)})


def test_a_schedule_takes_one_argument():
    given = lambda: 1e-3, lambda one, two: 1e-3, schedulers.LinearScheduler
    for schedule in given:
        with pytest.raises(TypeError, match="`PPO`: `learning_rate` .* one argument; "):
            ppo.PPO(learning_rate=schedule)
    for known in (lambda *given: 1e-3, np.sqrt):
        assert ppo.PPO(learning_rate=known).learning_rate is known


def frozen(observation_space, action_space):
    network = own_networks.actor_critic(observation_space, action_space)
    network.trainable = False
    return network


def test_networks_of_which_nothing_is_trained_are_refused_at_once():
    with pytest.raises(ValueError, match="6 weights, none of which is trainable; unf"):
        ppo.PPO().create(BOX, gym.spaces.Discrete(3), network=frozen)
