"""How agents learn by another optimizer than that of their algorithm."""

import functools

import agent_rows
import gymnasium as gym
import keras
import numpy as np
import pytest
from agent_examples import BOX, params_of
from agent_rows import experience_of, made

import tfrl
from tfrl.agents import _gradient_parts as parts
from tfrl.agents import (
    chosen_optimizers,
    gradient_transforms,
    train_state,
    transform_wrappers,
)
from tfrl.configuring import configs
from tfrl.training import _kept_arguments, configurables

RATE = 0.01
# The algorithm that it wraps has an optimizer; that of its predictor is its own.
KINDS = [x for x in agent_rows.CONFIGS if x != "rnd"]
OWN = {
    "adamw": (gradient_transforms.adamw, (parts.ScaleByAdam, parts.AddDecayedWeights)),
    "partial": (functools.partial(gradient_transforms.sgd, momentum=0.5), parts.Trace),
    "keras": (functools.partial(keras.optimizers.RMSprop, rho=0.8), parts.ScaleByRms),
}


def learning(agent):
    """The states of an agent that an optimizer steps, by name."""
    fields = {**vars(agent), "policy": agent.policy.state}
    states = {k: x for k, x in fields.items() if isinstance(x, train_state.TrainState)}
    return {name: state for name, state in states.items() if state.tx is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_all_networks_have_the_optimizer_of_the_settings(kind):
    usual = learning(made(kind))
    found = learning(made(kind, optimizer=gradient_transforms.lion))
    assert found and found.keys() == usual.keys()
    for name, state in found.items():
        scales = [type(x) for x in state.tx.parts if type(x).__name__.startswith("Sca")]
        if name == "log_temperature":
            assert state.tx == usual[name].tx
        else:
            assert scales == [parts.ScaleByLion, parts.ScaleByLearningRate]


@pytest.mark.parametrize("name", OWN)
def test_an_optimizer_is_one_of_tfrl_or_of_keras(name):
    given, kinds = OWN[name]
    agent = made("ppo", optimizer=given, learning_rate=0.25)
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    found = agent.policy.state.tx.parts
    assert isinstance(found[0], parts.Clip)
    assert set(kinds) <= {type(x) for x in found}
    (rate,) = [x for x in found if isinstance(x, parts.ScaleByLearningRate)]
    assert rate.learning_rate == 0.25


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(x, marks=[] if x in ("ppo", "dqn", "td3") else [pytest.mark.slow])
        for x in KINDS
    ],
)
def test_steps_are_those_of_the_optimizer(kind):
    """By Lion every parameter moves by the rate, up or down, or not at all."""
    lion = functools.partial(gradient_transforms.lion, weight_decay=0.0)
    agent = made(kind, optimizer=lion, learning_rate=RATE, max_gradient_norm=None)
    before = params_of(agent)
    learned, _ = agent.update(experience_of(kind))
    after = params_of(learned)
    moved = np.concatenate([np.ravel(after[x] - before[x]) / RATE for x in before])
    np.testing.assert_allclose(moved, np.round(moved), atol=1e-3)
    assert np.abs(moved).max() >= 1


def test_parts_of_a_network_can_have_another_optimizer():
    def is_bias(params):
        return {name: name.endswith("bias") for name in params}

    def biases_alone(learning_rate):
        lion = gradient_transforms.lion(learning_rate, weight_decay=0.0)
        return transform_wrappers.partitioned({True: lion, False: None}, is_bias)

    agent = made("bc", optimizer=biases_alone)
    before = params_of(agent)
    after = params_of(agent.update(experience_of("bc"))[0])
    moved = {name for name, old in before.items() if np.any(after[name] != old)}
    assert moved == {x for x in before if "actor/" in x and x.endswith("bias")}


REFUSED = {
    "a name": "adamw",
    "an object of Keras": keras.optimizers.Adam(1e-3),
    "a transform": gradient_transforms.adam(1e-3),
    "a rate besides": functools.partial(gradient_transforms.adam, learning_rate=0.1),
    "no rate": lambda: gradient_transforms.adam(1e-3),
    "more than the rate": lambda learning_rate, other: None,
    "an unknown option": functools.partial(gradient_transforms.adam, decay=0.1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_optimizer_is_refused(name):
    match = "`DQN`: `optimizer` expected a function of `learning_rate`, .* `functools"
    with pytest.raises(TypeError, match=match):
        tfrl.agents.DQN(optimizer=REFUSED[name])


def test_an_optimizer_takes_its_rate_from_the_settings():
    def settled(learning_rate):
        return gradient_transforms.adam(lambda step: 1e-3)

    discrete = gym.spaces.Discrete(2)
    with pytest.raises(
        ValueError, match="`DQN`: `optimizer` .* with a rate of its own"
    ):
        tfrl.agents.DQN(optimizer=settled).create(BOX, discrete)
    with pytest.raises(TypeError, match="`DQN`: .* got one that returns None; give"):
        tfrl.agents.DQN(optimizer=lambda learning_rate: None).create(BOX, discrete)


def layerwise(learning_rate):
    rates = {"slow": 0.01 * learning_rate, "fast": learning_rate}
    transforms = {name: tfrl.agents.adam(x) for name, x in rates.items()}
    return tfrl.agents.partitioned(
        transforms,
        lambda params: {k: "slow" if "bias" in k else "fast" for k in params},
    )


@pytest.mark.parametrize(
    "optimizer",
    [
        layerwise,
        lambda learning_rate: tfrl.agents.adam(0.01 * learning_rate),
        lambda learning_rate: tfrl.agents.adam(0.001),
        lambda learning_rate: tfrl.agents.sgd(0.0 * learning_rate),
    ],
)
def test_rates_that_would_be_lost_are_refused(optimizer):
    config = tfrl.agents.DQN(learning_rate=1e-3, optimizer=optimizer)
    match = r"with a rate of its own, \[.*\] for 0.002; .* within `partitioned`"
    with pytest.raises(ValueError, match=match):
        config.create(BOX, gym.spaces.Discrete(2))


def slowed(learning_rate):
    adam = tfrl.agents.adam(learning_rate)
    slow = tfrl.agents.chain(adam, tfrl.agents.scale_by_schedule(lambda count: 0.01))
    return tfrl.agents.partitioned(
        {"slow": slow, "fast": adam},
        lambda params: {k: "slow" if "bias" in k else "fast" for k in params},
    )


def test_some_weights_are_slowed_down():
    envs = tfrl.environments.make_vec("CartPole-v1", n_envs=4)
    spaces = envs.single_observation_space, envs.single_action_space
    given = {"minibatch_size": 128, "n_epochs": 1, "hidden_units": (8,)}
    config = tfrl.agents.PPO(learning_rate=1e-3, optimizer=slowed, **given)
    agent = config.create(*spaces, seed=0)
    played = tfrl.training.Collector(envs, n_steps=32, seed=0).collect(
        tfrl.policies.HostPolicy(agent.policy), np.random.default_rng(0)
    )
    after = agent.update(played)[0].policy.state.params
    for name, before in agent.policy.state.params.items():
        expected = 1e-5 if "bias" in name else 1e-3
        moved = np.abs(after[name] - before).max()
        np.testing.assert_allclose(moved, expected, rtol=2e-2)


def half_of(learning_rate):
    return tfrl.agents.sgd(learning_rate / 2)


def test_an_old_run_whose_optimizer_changes_its_rate_opens(tmp_path, monkeypatch):
    def made(**options):
        return tfrl.training.Trainer(
            tmp_path,
            1,
            agent=tfrl.agents.A2C(optimizer=half_of),
            make_envs=functools.partial(tfrl.environments.make_vec, "CartPole-v1"),
            n_envs=1,
            experience=tfrl.training.Trajectories(8),
            intervals=tfrl.training.Intervals(eval_episodes=1),
            **options,
        )

    with monkeypatch.context() as patch:
        patch.setattr(chosen_optimizers, "check_follows", lambda *_: None)
        with made() as old:
            old.run(quiet=True)
    with tfrl.rl_trainer.open_run(tmp_path) as run:
        assert len(run.evaluate(1).returns) == 1
    with made(resume=True) as resumed:
        assert resumed.epoch == 1
    with pytest.raises(ValueError, match="with a rate of its own"):
        tfrl.agents.A2C(optimizer=half_of).create(BOX, gym.spaces.Discrete(2))


@pytest.mark.parametrize("name", OWN)
def test_runs_keep_the_optimizer(name):
    config = tfrl.agents.SAC(optimizer=OWN[name][0])
    kept = _kept_arguments.kept(config)
    assert not _kept_arguments.lost(kept, "agent")
    again = _kept_arguments.made(kept)
    assert _kept_arguments.kept(again) == kept
    assert again.optimizer(learning_rate=0.5) is not None


def test_gin_names_the_optimizer(request):
    request.addfinalizer(configs.clear)
    created = configs.register(configurables.CONFIGURABLES)
    configs.parse(bindings=["DQN.optimizer = @adamw", "adamw.weight_decay = 0.5"])
    config = created["DQN"]()
    kept = _kept_arguments.kept(config)
    assert kept["optimizer"]["weight_decay"] == 0.5
    configs.clear()
    agent = _kept_arguments.made(kept).create(BOX, gym.spaces.Discrete(2))
    assert parts.AddDecayedWeights(0.5) in agent.policy.state.tx.parts
