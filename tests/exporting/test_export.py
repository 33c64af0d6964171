"""Tests of `tfrl.exporting.export`."""

import os

import default_rows
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from export_examples import BOX, NAMED, batch_of, named, trained

from tfrl.exporting import export, policies

S = gym.spaces
SIGNATURES = ["log_prob", "sample", "serving_default"]
ACTIONS = {
    "discrete": (S.Discrete(3, start=-1), {}),
    "multi discrete": (S.MultiDiscrete([3, 2]), {}),
    "clipped": (S.Box(-0.3, 0.3, (2,)), {}),
    "squashed": (S.Box(-2.0, 1.0, (2,)), {"squash": True}),
    "float64": (S.Box(-2.0, 1.0, (1, 2), np.float64), {"squash": True}),
}


@pytest.mark.parametrize(
    ("space", "kind"),
    default_rows.params(
        {
            **{kind: (BOX, kind) for kind in ACTIONS},
            **{f"dict to {kind}": (NAMED, kind) for kind in ("discrete", "squashed")},
        },
        ["multi discrete", "float64", "dict to squashed"],
    ),
)
def test_signatures_do_what_the_agent_does(tmp_path, space, kind):
    actions, kwargs = ACTIONS[kind]
    agent = trained(space, actions, **kwargs)
    policy, head = agent.policy, agent.policy.head
    export.export_policy(agent, tmp_path / "policy", space, actions)
    model = tf.saved_model.load(str(tmp_path / "policy"))
    assert sorted(model.signatures) == SIGNATURES
    greedy, sample, log_prob = (
        model.signatures[name] for name in ("serving_default", "sample", "log_prob")
    )
    for n_rows in (1, 7):
        observations = batch_of(space, n_rows, seed=n_rows)
        found = greedy(**named(observations))
        assert list(found) == ["actions"]
        expected = agent.policy.act(observations, temperature=0.0).actions
        np.testing.assert_allclose(found["actions"], expected, rtol=1e-5, atol=1e-6)
        assert found["actions"].dtype == actions.dtype

        seed = tf.constant([4, n_rows])
        drawn = sample(**named(observations), seed=seed)
        assert sorted(drawn) == ["actions", "log_probs"]
        # Of tensors: NumPy draws other numbers by one seed.
        rows = tf.nest.map_structure(tf.constant, observations)
        expected = agent.policy.act(rows, seed=seed).actions
        np.testing.assert_allclose(drawn["actions"], expected, rtol=1e-5, atol=1e-5)
        again = sample(**named(observations), seed=seed)["actions"]
        np.testing.assert_array_equal(again, drawn["actions"])
        assert drawn["actions"].shape == (n_rows, *actions.shape)
        rows = drawn["actions"].numpy()
        assert all(actions.contains(np.asarray(row)) for row in rows)

        given = log_prob(**named(observations), actions=drawn["actions"])
        assert given["log_probs"].shape == (n_rows,)
        np.testing.assert_allclose(given["log_probs"], drawn["log_probs"], atol=1e-4)
        raw = head.from_env(drawn["actions"])
        np.testing.assert_allclose(
            given["log_probs"],
            head.log_prob(policy.parameters(observations), raw),
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("space", [BOX, NAMED], ids=["box", "dict"])
def test_values(tmp_path, space):
    agent = trained(space, S.Discrete(2))
    content = {"value": policies.value_endpoint(agent, space)}
    export.export_model(content, tmp_path / "value")
    model = tf.saved_model.load(str(tmp_path / "value"))
    observations = batch_of(space, 7)
    found = model.signatures["value"](**named(observations))
    policy = agent.policy
    wanted = policy.state(policy.normalize(observations), method="critic")
    np.testing.assert_allclose(found["values"], wanted, rtol=1e-5, atol=1e-6)


def test_other_seeds_draw_otherwise(tmp_path):
    agent = trained(BOX, S.Box(-1.0, 1.0, (2,)))
    export.export_policy(agent, tmp_path / "policy", BOX, S.Box(-1.0, 1.0, (2,)))
    model = tf.saved_model.load(str(tmp_path / "policy"))
    given = named(batch_of(BOX, 7))
    draws = [
        model.signatures["sample"](**given, seed=tf.constant(seed))["actions"].numpy()
        for seed in ([0, 0], [0, 1], [1, 0])
    ]
    assert np.any(draws[0] != draws[1])
    assert np.any(draws[0] != draws[2])


def test_normalizer_is_inside(tmp_path):
    agent = trained(BOX, S.Discrete(3))
    export.export_policy(agent, tmp_path / "policy", BOX, S.Discrete(3))
    model = tf.saved_model.load(str(tmp_path / "policy"))
    observations = batch_of(BOX, 40, seed=9)
    actions = np.arange(40) % 3

    def log_probs(policy):
        parameters = policy.parameters(observations)
        return policy.head.log_prob(parameters, actions).numpy()

    found = model.signatures["log_prob"](
        observations=tf.constant(observations), actions=tf.constant(actions)
    )["log_probs"]
    np.testing.assert_allclose(found, log_probs(agent.policy), rtol=1e-4, atol=1e-5)
    raw = agent.policy.replace(observation_moments=())
    assert np.abs(found - log_probs(raw)).max() > 0.1


MASKED = {
    "discrete": (S.Discrete(3, start=-1), [[1, 0, 1], [0, 1, 0]]),
    "multi discrete": (S.MultiDiscrete([3, 2]), [[1, 0, 1, 0, 1], [0, 0, 1, 1, 1]]),
}


@pytest.mark.parametrize("kind", MASKED)
def test_masked_actions_are_never_taken(tmp_path, kind):
    actions, mask = MASKED[kind]
    mask = np.array(mask, bool)
    agent = trained(BOX, actions)
    export.export_policy(agent, tmp_path / "policy", BOX, actions, with_mask=True)
    model = tf.saved_model.load(str(tmp_path / "policy"))
    assert sorted(model.signatures) == SIGNATURES
    observations = batch_of(BOX, 200)
    rows = np.arange(200) % 2
    given = named(observations)
    masked = {**given, "action_mask": tf.constant(mask[rows])}
    drawn = model.signatures["sample"](**masked, seed=tf.constant([1, 2]))
    greedy = model.signatures["serving_default"](**masked)["actions"]
    logits = agent.policy.parameters(observations).numpy()
    logits = np.where(mask[rows], logits, -np.inf)
    sizes = (3, 2) if kind == "multi discrete" else (3,)
    start, log_probs = 0, np.zeros(200)
    for choice, size in enumerate(sizes):
        part, allowed = logits[:, start : start + size], mask[:, start : start + size]
        start += size
        for found in (drawn["actions"], greedy):
            taken = found.numpy().reshape(200, -1)[:, choice]
            taken = taken - (-1 if kind == "discrete" else 0)
            assert allowed[rows, taken].all()
        assert np.array_equal(taken, part.argmax(-1))
        taken = drawn["actions"].numpy().reshape(200, -1)[:, choice]
        taken = taken - (-1 if kind == "discrete" else 0)
        scores = part - np.log(np.exp(part).sum(-1, keepdims=True))
        log_probs += scores[np.arange(200), taken]
    np.testing.assert_allclose(drawn["log_probs"], log_probs, atol=1e-5)
    found = model.signatures["log_prob"](**masked, actions=drawn["actions"])
    np.testing.assert_allclose(found["log_probs"], log_probs, atol=1e-5)


def test_a_mask_that_allows_nothing_and_one_of_all(tmp_path):
    agent = trained(BOX, S.Discrete(3))
    export.export_policy(agent, tmp_path / "m", BOX, S.Discrete(3), with_mask=True)
    model = tf.saved_model.load(str(tmp_path / "m"))
    observations = batch_of(BOX, 3)
    for allowed in (True, False):
        found = model.signatures["log_prob"](
            **named(observations),
            action_mask=tf.fill([3, 3], allowed),
            actions=tf.constant([0, 1, 2], tf.int64),
        )["log_probs"]
        parameters = agent.policy.parameters(observations)
        wanted = agent.policy.head.log_prob(parameters, [0, 1, 2])
        if not allowed:
            wanted = np.full(3, -np.log(3.0))
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_masks_that_do_not_fit(tmp_path):
    actions = S.Box(-1.0, 1.0, (2,))
    agent = trained(BOX, actions)
    with pytest.raises(ValueError, match="`with_mask` expected actions that are choic"):
        policies.policy_endpoints(agent, BOX, actions, with_mask=True)
    space = S.Dict(action_mask=S.MultiBinary(2), x=BOX)
    agent = trained(space, S.Discrete(2))
    found = policies.policy_endpoints(agent, space, S.Discrete(2))
    assert list(found["log_prob"].inputs) == ["action_mask", "x", "actions"]
    with pytest.raises(ValueError, match="expected no part 'action_mask' beside"):
        policies.policy_endpoints(agent, space, S.Discrete(2), with_mask=True)


def test_a_dict_with_the_single_part_observations(tmp_path):
    space = S.Dict(observations=BOX)
    agent = trained(space, S.Discrete(2))
    export.export_policy(agent, tmp_path / "policy", space, S.Discrete(2))
    model = tf.saved_model.load(str(tmp_path / "policy"))
    observations = batch_of(space, 7)
    found = model.signatures["serving_default"](**named(observations))["actions"]
    np.testing.assert_array_equal(
        found, agent.policy.act(observations, temperature=0.0).actions
    )


def test_nested_parts_have_joined_names(tmp_path):
    space = S.Tuple((BOX, S.Dict(b=S.Discrete(3), a=BOX)))
    assert list(policies.policy_inputs(space)) == [
        "observations_0",
        "observations_1_a",
        "observations_1_b",
    ]
    agent = trained(space, S.Discrete(2))
    export.export_policy(agent, tmp_path / "policy", space, S.Discrete(2))
    model = tf.saved_model.load(str(tmp_path / "policy"))
    first, second = observations = batch_of(space, 7)
    found = model.signatures["serving_default"](
        observations_0=tf.constant(first),
        observations_1_a=tf.constant(second["a"]),
        observations_1_b=tf.constant(second["b"]),
    )["actions"]
    np.testing.assert_array_equal(
        found, agent.policy.act(observations, temperature=0.0).actions
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_overwrite(tmp_path):
    path = tmp_path / "runs" / "policy"
    agent = trained(BOX, S.Discrete(2))
    export.export_policy(agent, path, BOX, S.Discrete(2))
    (path / "mine.txt").write_text("old")
    with pytest.raises(
        ValueError, match="`export_policy`: `path` expected a place where nothing"
    ):
        export.export_policy(agent, path, BOX, S.Discrete(2))
    assert (path / "mine.txt").exists()
    export.export_policy(agent, path, BOX, S.Discrete(2), overwrite=True)
    assert not (path / "mine.txt").exists()
    assert names(path.parent) == ["policy"]
    tf.saved_model.load(str(path))


@pytest.mark.parametrize("failing", ["save", "rename"])
@pytest.mark.parametrize("existing", [True, False], ids=["over old", "new"])
def test_failure_leaves_what_was_there(tmp_path, monkeypatch, failing, existing):
    path = tmp_path / "policy"
    agent = trained(BOX, S.Discrete(2))
    if existing:
        for name in ("assets", "assets.extra", "variables"):
            (path / name).mkdir(parents=True)
        for name in ("fingerprint.pb", "saved_model.pb", "mine.txt"):
            (path / name).write_text("old")
    if failing == "save":

        def save(module, folder, signatures):
            os.makedirs(folder)
            raise OSError("no space left")

        monkeypatch.setattr(tf.saved_model, "save", save)
    else:
        rename = os.rename

        def rename_back_only(source, target):
            if os.path.basename(source) == "new":
                raise OSError("no space left")
            rename(source, target)

        monkeypatch.setattr(os, "rename", rename_back_only)
    with pytest.raises(OSError, match="no space left"):
        export.export_policy(agent, path, BOX, S.Discrete(2), overwrite=True)
    assert names(tmp_path) == (["policy"] if existing else [])
    if existing:
        assert (path / "mine.txt").read_text() == "old"


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (S.Dict({"a_b": BOX, "a": S.Dict(b=BOX)}), "expected names .* got 'a_b'"),
        (S.Dict({"seed": BOX}), "expected names .* got 'seed'"),
        (S.Dict(actions=BOX), "expected names .* got 'actions'"),
        (S.Dict({"two words": BOX}), "expected names .* got 'two words'"),
    ],
    ids=["twice", "seed", "actions", "no identifier"],
)
def test_names_that_no_input_can_take(tmp_path, space, match):
    agent = trained(space, S.Discrete(2))
    with pytest.raises(ValueError, match=f"`policy_inputs`: .*{match}"):
        export.export_policy(agent, tmp_path / "policy", space, S.Discrete(2))
    assert names(tmp_path) == []


def test_what_is_no_path_and_no_space(tmp_path):
    agent = trained(BOX, S.Discrete(2))
    path = tmp_path / "policy"
    with pytest.raises(
        TypeError, match="`export_policy`: `path` expected .*; got None"
    ):
        export.export_policy(agent, None, BOX, S.Discrete(2))
    with pytest.raises(TypeError, match="`export_model`: `path` expected .*; got None"):
        export.export_model(tf.exp, None, tf.TensorSpec([None]))
    with pytest.raises(TypeError, match="`verify`: `path` expected .*; got None"):
        export.verify(None)
    with pytest.raises(TypeError, match="`observation_space` expected a Gymnasium sp"):
        export.export_policy(agent, path, None, None)
    with pytest.raises(TypeError, match="`action_space` expected a Gymnasium space"):
        export.export_policy(agent, path, BOX, None)
    assert not list(tmp_path.iterdir())
