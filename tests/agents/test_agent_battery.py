"""What every agent promises: to learn alike anywhere, to be saved, served and fitted.

By default one agent of each family; the others, which share its update, are slow.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import agent_rows
import keras
import numpy as np
import pytest
import tensorflow as tf
from agent_examples import BOX, assert_close, two_replicas
from agent_rows import CONFIGS, actions_of, experience_of, made, update_of

import tfrl
from tfrl.agents import replicated
from tfrl.agents.on_policy import _on_policy
from tfrl.exporting import export
from tfrl.policies import host_policy
from tfrl.saving import checkpoints
from tfrl.training.fitting import agent_model

# What runs as one compiled function on the host too: memories, and distributions.
NO_TWIN = ("ppo_memory", "r2d2", "c51", "qr_dqn", "iqn", "rainbow")


# Of which `create` asks for nothing besides.
FEW = {"ppo": {"normalize_rewards": False}}


def kinds(*default):
    """Parameters: all kinds, of which a few are tested by default."""
    return pytest.mark.parametrize(
        "kind",
        [
            pytest.param(x, marks=[] if x in default else [pytest.mark.slow])
            for x in CONFIGS
        ],
    )


def test_every_agent_has_a_row():
    public = [getattr(tfrl.agents, name) for name in tfrl.agents.__all__]
    configs = {x for x in public if dataclasses.is_dataclass(x)}
    configs = {x for x in configs if hasattr(x, "learns_from")}
    # Made of agents that have rows; tested in `multi_agent`.
    configs -= {tfrl.agents.Independent, tfrl.agents.SelfPlay}
    assert configs == {type(config) for config in CONFIGS.values()}


def with_actions(experience, actions):
    """What agents learn from, with other actions."""
    if hasattr(experience, "data"):
        data = experience.data._replace(actions=actions)
        return experience._replace(data=data)
    return experience._replace(actions=actions)


@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("kind", ["ppo", "ppo_memory", "dqn", "r2d2", "sac_choices"])
def test_an_update_refuses_what_is_no_raw_choice(kind, as_tensors):
    given = experience_of(kind)
    record = getattr(given, "data", given)
    given = with_actions(given, actions := np.array(record.actions))
    # Of rows that do not count, too: their losses would be NaN, even times 0.
    valid = getattr(record, "valid", np.ones(actions.shape, bool))
    place = tuple(np.argwhere(~valid if not valid.all() else valid)[0])
    name = f"{type(CONFIGS[kind]).__name__}.update"
    wrapped = tf.constant if as_tensors else np.asarray
    for odd in (-1, actions_of(kind).n):
        actions[place] = odd
        row = re.escape(str([*map(int, place)]))
        told = f"`{name}`: .* in \\[0, 2\\]; got {odd} in row {row}; turn .*from_env"
        with pytest.raises(ValueError, match=told):
            made(kind).update(with_actions(given, wrapped(actions)))
    with pytest.raises(TypeError, match=f"`{name}`: .* integers, .* got float32; cast"):
        made(kind).update(with_actions(given, wrapped(actions.astype("f"))))


def test_an_update_refuses_what_is_no_raw_choice_of_a_part():
    given = experience_of("sac_mixed")
    for part, told in (("press", r"\[0, 1\]; got 2"), ("turn", r"\[0, 2\]; got 3")):
        actions = {key: np.array(x) for key, x in given.data.actions.items()}
        actions[part][2, 1, ...] = [1, 3] if part == "turn" else 2
        told += r" in row \[2, 1\]"
        with pytest.raises(ValueError, match=f"`SAC.update`: .* choices in {told}"):
            made("sac_mixed").update(with_actions(given, actions))


def test_who_gives_rows_is_told_what_to_make_of_them():
    match = "`IQL.update`: `sample` .*; got dict; of rows make one by .*Transition"
    with pytest.raises(TypeError, match=match):
        made("iql").update({"observations": np.zeros((4, 3))})


@kinds("ppo", "dqn", "bc")
def test_an_update_repeats_leaves_the_old_agent_and_needs_one_trace(kind):
    agents = [made(kind, seed=seed) for seed in range(2)]
    networks = [agent.policy.state.model_def for agent in agents]
    before = [np.array(x) for x in tf.nest.flatten(agents[0])]
    first, _ = agents[0].update(experience_of(kind))
    n_traces = update_of(kind).trace_count()
    learned = [first, agents[1].update(experience_of(kind))[0]]
    again, info = made(kind).update(experience_of(kind))
    assert_close(again, learned[0])
    assert_close(agents[0], before)
    again, _ = again.update(experience_of(kind, seed=1))
    assert 0 < n_traces == update_of(kind).trace_count()
    rows = (3, 4) if kind not in agent_rows.ON_POLICY else ()
    for name, value in info.items():
        assert np.shape(value) == (rows if name == "priorities" else ())
        assert np.isfinite(value).all()
    # What is compiled is shared, the network that a user reaches each agent's own.
    x = np.full((2, 3), 0.3, np.float32)
    known = agents[0].policy.initial_state(2)
    given = (tf.constant(x), known) if tf.is_tensor(known) else x
    for agent, network in zip(learned, networks, strict=True):
        assert agent.policy.state.model_def is network
        found = tf.nest.flatten(agent.policy.to_keras()(given))[0]
        expected = agent.policy.outputs(x, known)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    outputs = [tf.nest.flatten(network(given))[0] for network in networks]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-4


@kinds("ppo", "dqn", "bc")
def test_layers_are_called_alike_whatever_was_made_before(kind):
    """Names go into programs, and XLA finds those it has kept by all of them."""

    def names(item):
        parts = vars(item).values()
        layers = [x for x in parts if isinstance(x, keras.layers.Layer)]
        found = [x.name for layer in layers for x in layer._flatten_layers()]
        inner = [x for x in parts if dataclasses.is_dataclass(x)]
        return found + [name for x in inner for name in names(x)]

    found = names(made(kind))
    assert found
    assert names(made(kind, seed=1)) == found


@kinds("ppo", "dqn", "bc")
def test_the_host_twin_acts_as_the_policy(kind):
    policy = made(kind).update(experience_of(kind))[0].policy
    host = host_policy.HostPolicy(policy)
    assert host.mirrored == (kind not in NO_TWIN)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    host.push(policy, probe=x)
    known = policy.initial_state(5)
    rng = np.random.default_rng(0)
    found = host.act(x, known, seed=rng, temperature=0.0)
    expected = policy.act(tf.constant(x), known, temperature=0.0)
    assert_close(found.actions, expected.actions, rtol=1e-4, atol=1e-5)
    assert_close(found.state, expected.state, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@kinds("ppo", "dqn", "bc")
def test_two_replicas_learn_what_one_learns(kind):
    alone, shared, counts = made(kind), made(kind), []
    # Critics of several layers add up roundings.
    is_deep = kind in {**agent_rows.OFF_POLICY, **agent_rows.OFFLINE} and kind != "bc"
    close = {"rtol": 1e-3, "atol": 2e-5} if is_deep else {"rtol": 1e-4, "atol": 2e-6}
    # Other kinds may have had it traced.
    function = replicated._function(two_replicas(), _on_policy._update)
    before = function.experimental_get_tracing_count()
    for seed in range(3):
        alone, expected = alone.update(experience_of(kind, seed))
        with two_replicas().scope():
            shared, info = shared.update(experience_of(kind, seed))
        assert_close((shared, info), (alone, expected), **close)
        counts.append(float(info.get("gradient_steps", 0)))
    if kind == "ppo":
        found = function.experimental_get_tracing_count()
        assert 1 <= found <= before + 1
        # The divergence stops both after the same steps, some before the last.
        assert 0 < min(counts) < 6


@pytest.mark.slow
@pytest.mark.parametrize("family", agent_rows.FAMILIES)
def test_eight_replicas_learn_what_one_learns(family):
    tests = pathlib.Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), str(tests.parent)])
    done = subprocess.run(
        [sys.executable, "-m", "eight_replicas", *agent_rows.FAMILIES[family]],
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [*agent_rows.FAMILIES[family]]


@kinds("ppo", "dqn", "bc")
def test_what_is_saved_goes_on(kind, tmp_path):
    agent, _ = made(kind).update(experience_of(kind))
    checkpoints.save_run(tmp_path, 7, agent, {})
    loaded, _, step = checkpoints.load_run(tmp_path, made(kind, seed=5))
    assert step == 7
    assert_close(loaded, agent)
    both = [x.update(experience_of(kind, 1))[0] for x in (loaded, agent)]
    assert_close(*both)


@pytest.mark.slow
@kinds("sac")
def test_what_is_exported_is_the_policy(kind, tmp_path):
    export.export_policy(made(kind), tmp_path / "policy", BOX, actions_of(kind))
    assert max(export.verify(tmp_path / "policy").values()) <= 1e-4


@kinds("ppo", "dqn", "bc")
def test_a_fit_is_an_update(kind):
    given = experience_of(kind)
    model = agent_model.AgentModel(made(kind))
    is_whole = kind in agent_rows.ON_POLICY
    rows = tf.data.Dataset.from_tensors if is_whole else None
    rows = (rows or tf.data.Dataset.from_tensor_slices)(given)
    model.compile(steps_per_execution=1 if is_whole else 3)
    model.fit(rows, epochs=1, verbose=0)
    assert_close(model.agent, made(kind).update(given)[0])


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_is_no_space_is_told_in_the_name_of_the_agent(kind):
    config = dataclasses.replace(CONFIGS[kind], **FEW.get(kind, {}))
    where = f"`{type(config).__name__}.create`"
    for seen in (3, None, [BOX]):
        match = f"{where}: `observation_space` expected a Gymnasium space; got "
        with pytest.raises(TypeError, match=match):
            config.create(seen, actions_of(kind))
    for acts in (3, None, "Discrete(2)"):
        with pytest.raises(TypeError, match=f"{where}: `action_space` expected a"):
            config.create(BOX, acts)


@kinds("ppo", "a2c", "dqn", "sac", "iql", "bc")
def test_rows_that_replicas_cannot_share_are_refused(kind):
    name, agent, odd = "batch_size", made(kind), experience_of(kind)
    if kind in ("ppo", "ppo_memory"):
        size, name = (3, "minibatch_size") if kind == "ppo" else (6, "minibatch_size")
        name += " / n_steps" if kind == "ppo_memory" else ""
        agent = made(kind, minibatch_size=size)
    elif kind == "rnd":
        agent, name = made(kind, n_minibatches=4), "share .* n_minibatches"
    elif kind in agent_rows.ON_POLICY:
        name, odd = "trajectory", tf.nest.map_structure(lambda x: x[:3, :1], odd)
    else:
        name = "batch" if kind == "bc" else name
        odd = tf.nest.map_structure(lambda x: x[:, :3], odd)
    with two_replicas().scope():
        match = f"`{name}` expected .* 2 replicas .*[13]"
        with pytest.raises(ValueError, match=match):
            agent.update(odd)
