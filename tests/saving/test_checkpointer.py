"""Tests of `tfrl.saving.checkpointer`."""

import json
import os

import golden_io
import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrl import agents, replay
from tfrl._internal import durable
from tfrl.core import pytree
from tfrl.saving import checkpointer, checkpoints


class Node(pytree.PyTreeNode):
    params: dict
    opt_state: tuple
    step: int
    rate: float = pytree.nonpytree_field(default=0.1)


class Agent(tf.Module):
    """Layers where `tf.train.Checkpoint` loses them, and all else that has a state."""

    def __init__(self, seed, data_seed=None):
        super().__init__()
        keras.utils.set_random_seed(seed)
        self._critics = [made_layer(3), made_layer(3)]
        self.heads = {"a": made_layer(2), "b": (made_layer(4),)}
        self.net = keras.Sequential(
            [keras.Input([3]), keras.layers.Dense(2), keras.layers.BatchNormalization()]
        )
        self.scale = tf.Variable(float(seed))
        self.optimizer = keras.optimizers.Adam(0.1)
        self.optimizer.build(self.net.trainable_variables)
        self.optimizer.apply(
            [tf.ones(v.shape) * seed for v in self.net.trainable_variables]
        )
        self.rng = np.random.default_rng(seed)
        self.draws = tf.random.Generator.from_seed(seed)
        self._data_transformer = tf.Module()
        self._data_transformer.mean = tf.Variable([float(seed)] * 3)
        self._replay_buffer = replay.DataBuffer(tf.TensorSpec([2]), capacity=8, seed=0)
        self._replay_buffer.add_batch(np.full([seed, 2], seed, np.float32))

    def values(self):
        layers = [*self._critics, self.heads["a"], *self.heads["b"], self.net]
        variables = [v for x in layers for v in x.variables] + self.optimizer.variables
        return [np.asarray(v) for v in [*variables, self.scale, *self.variables]]


def made_layer(size):
    layer = keras.layers.Dense(size)
    layer.build((None, size))
    return layer


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def state_of(agent):
    return [
        *agent.values(),
        *map(np.asarray, [agent._replay_buffer.current_size, agent.draws.state]),
        np.frombuffer(json.dumps(agent.rng.bit_generator.state).encode(), np.uint8),
    ]


def test_everything_comes_back_in_objects_made_anew(tmp_path):
    saved = Agent(1)
    checkpointer.Checkpointer(tmp_path, agent=saved).save(100)
    draw = saved.rng.normal(), saved.draws.normal([2]).numpy()
    other = Agent(2)
    manager = checkpointer.Checkpointer(tmp_path, agent=other)
    assert not same(other.values(), saved.values())
    assert manager.load() == 100
    assert same(other.values(), saved.values())
    assert int(other._replay_buffer.current_size) == 1
    assert other.rng.normal() == draw[0]
    np.testing.assert_array_equal(other.draws.normal([2]), draw[1])
    assert (manager.missing, manager.unexpected) == ((), ())


def test_the_structure_tells_names_dtypes_and_shapes(tmp_path):
    path = checkpointer.Checkpointer(tmp_path, agent=Agent(1)).save(3)
    body = json.loads((path / "structure.json").read_text())["manifest"]
    assert body["arrays"]["agent._critics.1.kernel"] == ["float32", [3, 3]]
    assert body["arrays"]["agent.heads.b.0.bias"] == ["float32", [4]]
    assert body["arrays"]["agent.net.dense.kernel"] == ["float32", [3, 2]]
    assert body["kinds"]["agent.optimizer.0"] == "optimizer"
    assert body["kinds"]["agent._data_transformer.mean"] == "data_transformer"
    assert body["replays"] == ["agent._replay_buffer"]
    assert list(body["generators"]) == ["agent.rng"]


@pytest.mark.parametrize("kind", ["optimizer", "replay_buffer", "data_transformers"])
def test_parts_can_be_left_out(tmp_path, kind):
    saved, other = Agent(1), Agent(2)
    checkpointer.Checkpointer(tmp_path, agent=saved).save(1)
    kept = {
        "optimizer": lambda agent: np.concatenate(
            [np.ravel(v) for v in agent.optimizer.variables]
        ),
        "replay_buffer": lambda agent: int(agent._replay_buffer.current_size),
        "data_transformers": lambda agent: agent._data_transformer.mean.numpy(),
    }
    before = {name: np.array(read(other)) for name, read in kept.items()}
    manager = checkpointer.Checkpointer(tmp_path, agent=other)
    assert manager.load(**{f"including_{kind}": False}) == 1
    for name, read in kept.items():
        expected = before[name] if name == kind else read(saved)
        np.testing.assert_array_equal(read(other), expected, err_msg=name)
    assert float(other.scale) == 1.0
    # Left out once, not for ever; and it may be missing then.
    manager.load()
    np.testing.assert_array_equal(other._data_transformer.mean, np.ones(3))
    left = {"net": made_layer(2), "optimizer": keras.optimizers.SGD()}
    checkpointer.Checkpointer(tmp_path / "net", net=left["net"]).save(1)
    manager = checkpointer.Checkpointer(tmp_path / "net", **left)
    with pytest.raises(ValueError, match=r"missing there: optimizer\.0"):
        manager.load()
    assert manager.load(including_optimizer=False) == 1


def module(**values):
    made = tf.Module()
    for name, value in values.items():
        setattr(made, name, tf.Variable(value))
    return made


def test_strict_names_what_is_missing_and_what_is_unexpected(tmp_path):
    checkpointer.Checkpointer(tmp_path, m=module(a=1.0, b=2.0)).save(1)
    other = module(b=0.0, c=3.0)
    manager = checkpointer.Checkpointer(tmp_path, m=other)
    with pytest.raises(
        ValueError, match=r"missing there: m\.c; unexpected there: m\.a; .*strict=False"
    ):
        manager.load()
    assert float(other.b) == 0.0
    assert manager.load(strict=False) == 1
    assert (float(other.b), float(other.c)) == (2.0, 3.0)
    assert (manager.missing, manager.unexpected) == (("m.c",), ("m.a",))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3, np.float32), r"m\.b is float32 \[2\] on disk but float32 \[3\]"),
        (np.zeros(2, np.float64), r"m\.b is float32 \[2\] on disk but float64 \[2\]"),
    ],
    ids=["shape", "dtype"],
)
def test_another_shape_is_an_error_and_nothing_changes(
    tmp_path, strict, value, message
):
    checkpointer.Checkpointer(tmp_path, m=module(a=1.0, b=np.ones(2, np.float32))).save(
        1
    )
    other = module(a=5.0, b=value)
    with pytest.raises(ValueError, match=message):
        checkpointer.Checkpointer(tmp_path, m=other).load(strict=strict)
    assert float(other.a) == 5.0


def test_another_kind_of_thing_is_an_error(tmp_path):
    checkpointer.Checkpointer(tmp_path, m=tf.Variable(1.0)).save(1)
    rng = np.random.Generator(np.random.PCG64(0))
    with pytest.raises(ValueError, match="m is float32 .* on disk but generator PCG64"):
        checkpointer.Checkpointer(tmp_path, m=rng).load()


def test_ignored_prefixes_are_whole_words(tmp_path):
    saved = {"fc": module(w=1.0), "fc2": module(w=1.0)}
    checkpointer.Checkpointer(tmp_path, net=saved).save(1)
    other = {"fc": module(w=0.0), "fc2": module(w=0.0)}
    manager = checkpointer.Checkpointer(tmp_path, net=other)
    assert manager.load(ignored_parameter_prefixes=["net.fc"]) == 1
    assert (float(other["fc"].w), float(other["fc2"].w)) == (0.0, 1.0)
    with pytest.raises(TypeError, match="expected a list of texts"):
        manager.load(ignored_parameter_prefixes="net.fc")


def test_ignored_parts_may_have_another_shape(tmp_path):
    checkpointer.Checkpointer(tmp_path, m=module(a=1.0, b=[1.0])).save(1)
    other = module(a=0.0, b=[5.0, 5.0])
    manager = checkpointer.Checkpointer(tmp_path, m=other)
    assert manager.load(ignored_parameter_prefixes=["m.b"]) == 1
    assert float(other.a) == 1.0


def test_immutable_items_are_given_to_save_and_fetched_after_load(tmp_path):
    first = Node({"w": tf.ones([2])}, (tf.zeros([2]),), tf.constant(1))
    manager = checkpointer.Checkpointer(tmp_path, agent=first, scale=tf.Variable(1.0))
    with pytest.raises(ValueError, match=r"call save\(step, agent=agent\)"):
        manager.save(1)
    with pytest.raises(ValueError, match="present values of"):
        manager.save(1, agent=first, scale=tf.Variable(2.0))
    second = first.replace(params={"w": tf.constant([3.0, 4.0])}, step=tf.constant(2))
    manager.save(1, agent=second)
    other = checkpointer.Checkpointer(tmp_path, agent=first, scale=tf.Variable(5.0))
    assert other.load() == 1
    np.testing.assert_array_equal(other["agent"].params["w"], [3.0, 4.0])
    assert int(other["agent"].step) == 2
    np.testing.assert_array_equal(first.params["w"], [1.0, 1.0])
    changed = first.replace(opt_state=(tf.ones([2]),))
    third = checkpointer.Checkpointer(tmp_path, agent=changed, scale=tf.Variable(5.0))
    third.load(including_optimizer=False)
    np.testing.assert_array_equal(third["agent"].opt_state[0], [1.0, 1.0])


def test_missing_checkpoints(tmp_path):
    manager = checkpointer.Checkpointer(tmp_path / "new" / "folder", m=tf.Variable(1.0))
    for which in ("latest", "best", 3):
        assert not manager.has_checkpoint(which)
        with pytest.warns(UserWarning, match="none in .*; nothing is loaded"):
            assert manager.load(which) == -1
    manager.save(3)
    assert manager.has_checkpoint() and manager.has_checkpoint(3)
    assert not manager.has_checkpoint("best") and not manager.has_checkpoint(4)
    assert checkpoints.list_steps(tmp_path / "new" / "folder") == []


def test_latest_is_the_largest_number_and_best_the_highest_score(tmp_path):
    value = tf.Variable(0)
    manager = checkpointer.Checkpointer(tmp_path, m=value)
    for step, score in [(9, 1.0), (10, 5.0), (100, 5.0), (200, -2.0)]:
        value.assign(step)
        manager.save(step, score=score)
    assert manager.load() == 200 and int(value) == 200
    assert manager.load("best") == 100 and int(value) == 100
    assert manager.load(9) == 9 and int(value) == 9


def test_the_newest_and_the_best_are_kept(tmp_path):
    manager = checkpointer.Checkpointer(tmp_path, m=tf.Variable(0))
    for step in range(6):
        manager.save(step, score=-abs(step - 1.0), keep=2)
    assert sorted(path.name for path in tmp_path.glob("ckpt-*")) == [
        "ckpt-1",
        "ckpt-4",
        "ckpt-5",
    ]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name", ["arrays.data-00000-of-00001", "arrays.index", "structure.json"]
)
@pytest.mark.parametrize("how", ["flipped", "truncated", "gone"])
def test_damage_is_found_and_an_older_checkpoint_taken(tmp_path, name, how):
    value = tf.Variable(1)
    manager = checkpointer.Checkpointer(tmp_path, m=value)
    manager.save(1)
    value.assign(2)
    path = manager.save(2) / name
    value.assign(3)
    if how == "flipped":
        flip(path)
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    with pytest.raises(ValueError, match="expected an undamaged checkpoint"):
        manager.load(2)
    assert int(value) == 3
    with pytest.warns(UserWarning, match="is damaged .*; trying an older one"):
        assert manager.load() == 1
    assert int(value) == 1


def test_damage_of_a_buffer_changes_nothing(tmp_path):
    path = checkpointer.Checkpointer(tmp_path, agent=Agent(3)).save(1)
    segments = [p for p in (path / "replay").rglob("*") if p.is_file()]
    flip(max(segments, key=lambda p: p.stat().st_size))
    other = Agent(2)
    before = state_of(other)
    with pytest.raises(ValueError, match="not as it was|damaged|digest"):
        checkpointer.Checkpointer(tmp_path, agent=other).load()
    assert same(before, state_of(other))


def test_a_renamed_folder_is_not_another_step(tmp_path):
    manager = checkpointer.Checkpointer(tmp_path, m=tf.Variable(1))
    os.rename(manager.save(1), tmp_path / "ckpt-7")
    with pytest.raises(ValueError, match="it holds step 1"):
        manager.load(7)


def test_a_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    value = tf.Variable(1)
    manager = checkpointer.Checkpointer(tmp_path, m=value)
    manager.save(1)

    def refuse(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "flush_to_disk", refuse)
    with pytest.raises(OSError, match="No space"):
        manager.save(2)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir() if p.name != ".lock"] == ["ckpt-1"]
    assert manager.load() == 1


def test_enabling_as_recorded():
    (case,) = golden_io.load("alf/misc", symbol="enable_checkpoint")
    made = tf.Module()
    found = {"default": checkpointer.is_checkpoint_enabled(made)}
    checkpointer.enable_checkpoint(made, False)
    found["after_false"] = checkpointer.is_checkpoint_enabled(made)
    assert found == case["out"]
    checkpointer.enable_checkpoint(made)
    assert checkpointer.is_checkpoint_enabled(made)


def test_disabled_parts_are_neither_saved_nor_loaded(tmp_path):
    saved, other = Agent(1), Agent(2)
    for agent in (saved, other):
        for part in (agent._replay_buffer, agent.net.layers[0], agent.heads["a"]):
            checkpointer.enable_checkpoint(part, False)
    before = other.net.layers[0].kernel.numpy()
    path = checkpointer.Checkpointer(tmp_path, agent=saved).save(1)
    assert not (path / "replay").exists()
    checkpointer.Checkpointer(tmp_path, agent=other).load()
    np.testing.assert_array_equal(other.net.layers[0].kernel, before)
    np.testing.assert_array_equal(
        other.net.layers[1].moving_mean, saved.net.layers[1].moving_mean
    )
    assert int(other._replay_buffer.current_size) == 2


def test_immutable_objects_cannot_be_disabled():
    with pytest.raises(TypeError, match="an object that takes attributes; got Node"):
        checkpointer.enable_checkpoint(Node({}, (), 1), False)


def test_a_part_of_a_checkpoint(tmp_path):
    nets = {"fc": made_layer(2), "fc2": made_layer(2)}
    path = checkpointer.Checkpointer(tmp_path, net=nets, s=tf.Variable(4.0)).save(1)
    extract = checkpointer.extract_sub_state_dict_from_checkpoint
    part = extract("net.fc", path)
    assert sorted(part) == ["bias", "kernel"]
    np.testing.assert_array_equal(part["kernel"], nets["fc"].kernel)
    assert sorted(extract("", path)) == [
        "net.fc.bias",
        "net.fc.kernel",
        "net.fc2.bias",
        "net.fc2.kernel",
        "s",
    ]
    assert extract("s", str(path)) == {"s": 4.0}
    assert sorted(extract("net.fc.", path)) == ["bias", "kernel"]
    with pytest.raises(ValueError, match=r"got 'net.f'; its items are \['net', 's'\]"):
        extract("net.f", path)
    with pytest.raises(ValueError, match="damaged .structure.json cannot be read"):
        extract("", tmp_path)


def test_an_agent_comes_back_after_other_layers_were_made(tmp_path):
    def made(seed):
        space = gym.spaces.Box(-1.0, 1.0, [3])
        counts = dict(n_envs=2, n_steps=4, seed=seed)
        return agents.PPO(minibatch_size=4).create(
            space, gym.spaces.Discrete(2), **counts
        )

    first = made(1)
    checkpointer.Checkpointer(tmp_path, agent=first).save(1, agent=first)
    extract = checkpointer.extract_sub_state_dict_from_checkpoint
    assert len(extract("agent", tmp_path / "ckpt-1")) > 4
    for _ in range(12):
        keras.layers.Dense(1)
    manager = checkpointer.Checkpointer(tmp_path, agent=made(2))
    assert manager.load() == 1
    loaded = [np.asarray(x) for x in tf.nest.flatten(manager["agent"])]
    assert same(loaded, [np.asarray(x) for x in tf.nest.flatten(first)])


def test_metadata_comes_back(tmp_path):
    manager = checkpointer.Checkpointer(tmp_path, scale=tf.Variable(1.0))
    facts = {"steps": 3, "rng": np.random.default_rng(0).bit_generator.state}
    manager.save(1, metadata=facts)
    manager.save(2)
    other = checkpointer.Checkpointer(tmp_path, scale=tf.Variable(0.0))
    assert other.metadata == {}
    assert (other.load(1), other.metadata) == (1, facts)
    assert (other.load(2), other.metadata) == (2, {})
    with pytest.raises(TypeError, match="`Checkpointer.save`: `metadata` expected"):
        manager.save(3, metadata=[1])
    with pytest.raises(TypeError, match="got set"):
        manager.save(3, metadata={"a": {1}})
    assert not (tmp_path / "ckpt-3").exists()
