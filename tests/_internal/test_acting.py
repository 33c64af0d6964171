"""Tests of `tfrl._internal.acting`, in this process."""

import functools

import actor_envs
import counted_rows
import gymnasium as gym
import numpy as np
import pytest

from tfrl._internal import acting, packed_nests
from tfrl.core import records
from tfrl.host import heads, networks, shared_rows

HEAD = heads.NumpyCategorical((3,), (0,), scalar=True, dtype="int64")


def new_network(seed=0, width=4):
    rng = np.random.default_rng(seed)
    kernel = rng.standard_normal((width, 3)).astype("f") / 100
    return networks.NumpyNetwork([kernel], [np.zeros(3, "f")], ["linear"])


def new_actor(make_env=actor_envs.vector, act=HEAD.host_sample, seed=0, **settings):
    network = new_network()
    to_env = HEAD.host_to_env if act == HEAD.host_sample else None
    played = acting.NetworkActing(network, act, to_env, settings)
    weights = shared_rows.SharedArrays(played.begin().arrays())
    stream = np.random.SeedSequence(seed)
    memory = shared_rows.new_memory()
    actor = acting.Actor(acting.Job(make_env, played, stream, weights.fd, memory))
    return actor, weights


def play(actor, n_steps):
    """Returns the columns `[n_steps, N, ...]` of what was played."""
    ring = actor.ring()
    for _ in range(n_steps):
        assert actor.step(ring)
    first, count = ring.waiting()
    assert (first, count) == (0, n_steps)
    return columns_of(actor, ring, slice(count))


@pytest.mark.parametrize("mode", ["disabled", "same", "next"])
def test_rows_are_those_of_the_environments(mode):
    actor, _ = new_actor(functools.partial(actor_envs.vector, 3, mode))
    columns = play(actor, 80)
    for n in range(3):
        valid = columns.valid[:, n]
        assert valid.all() == (mode != "next")
        fields = records.Trajectory._fields[:7]  # actors keep nothing else
        rows = [getattr(columns, name)[:, n][valid] for name in fields]
        counted_rows.check(n, records.Trajectory(*rows))
        ended = (columns.terminated | columns.truncated)[:, n]
        found = zip(columns.returns[ended, n], columns.lengths[ended, n], strict=True)
        actions = columns.actions[:, n][valid]
        assert list(found) == counted_rows.episodes(n, actions)
        assert len(set(actions.tolist())) == 3
    assert columns.rewards.dtype == np.float32


def test_actions_are_those_of_the_network():
    actor, weights = new_actor(seed=3)
    columns = play(actor, 30)
    _, stream = np.random.SeedSequence(3).spawn(2)
    rng, network = np.random.default_rng(stream), new_network()
    expected = [HEAD.host_sample(network(seen), rng) for seen in columns.observations]
    np.testing.assert_array_equal(columns.actions, expected)
    assert columns.actions.dtype == np.int32
    newer = new_network(seed=9)
    assert weights.write(newer.arrays()) == 1
    again = play_on(actor, 30, 30)
    expected = [HEAD.host_sample(newer(seen), rng) for seen in again.observations]
    np.testing.assert_array_equal(again.actions, expected)
    assert (columns.version == 0).all() and (again.version == 1).all()


def play_on(actor, played, n_steps):
    ring = actor.ring()
    for _ in range(n_steps):
        assert actor.step(ring)
    rows = slice(played, played + n_steps)
    return columns_of(actor, ring, rows)


def columns_of(actor, ring, rows):
    """Pieces of one step each as columns `[n_steps, N, ...]`."""
    *steps, versions, seconds = [array[rows].copy() for array in ring.arrays]
    return actor.layout.unpacked([*(x[:, 0] for x in steps), versions, seconds])


def test_settings_reach_act():
    network = new_network()
    actor, weights = new_actor(act=actor_envs.constant, action=2.0)
    assert (play(actor, 3).actions == 2).all()
    weights.write([*network.arrays(), np.array(1.0)])
    assert (play_on(actor, 3, 3).actions == 1).all()


def test_streams_are_reproducible_and_differ():
    cart_pole = functools.partial(gym.make, "CartPole-v1")
    runs = [
        play(new_actor(cart_pole, actor_envs.either, seed)[0], 20) for seed in (0, 0, 1)
    ]
    for one, two in zip(runs[0][:-1], runs[1][:-1], strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(runs[0].actions, runs[2].actions)
    assert not np.array_equal(runs[0].observations[0], runs[2].observations[0])


@pytest.mark.parametrize("mode", ["disabled", "same", "next"])
def test_returns_go_on_from_piece_to_piece(mode):
    played = acting.NetworkActing(new_network(), HEAD.host_sample, HEAD.host_to_env)
    make = functools.partial(actor_envs.vector, 3, mode)
    player = acting.Player(make, played, np.random.SeedSequence(0), 25)
    returns, lengths, n_ended = np.zeros(3), np.zeros(3, int), 0
    for piece in (player.played() for _ in range(6)):
        ended = piece.terminated | piece.truncated
        n_ended += ended.sum()
        for t in range(25):
            returns += np.where(piece.valid[t], piece.rewards[t], 0.0)
            lengths += piece.valid[t]
            np.testing.assert_array_equal(piece.returns[t], returns)
            np.testing.assert_array_equal(piece.lengths[t], lengths)
            returns[ended[t]] = lengths[ended[t]] = 0
    assert n_ended > 6


def test_single_environments_and_ids():
    columns = play(new_actor(actor_envs.Counting)[0], 10)
    assert columns.observations.shape == (10, 1, 4)
    columns = play(new_actor("CartPole-v1", actor_envs.either)[0], 3)
    assert columns.rewards.tolist() == [[1.0]] * 3


def test_closed_ring_ends_it():
    actor, _ = new_actor()
    ring = actor.ring()
    ring.close()
    assert not actor.step(ring)
    actor.close()


def layout(observations, n_steps=1):
    actions = np.zeros(len(observations), np.int32)
    return acting.Layout(observations, actions, (), (), n_steps)


def test_slots_fit_into_a_budget():
    small, image = np.zeros((1, 4), "f"), np.zeros((1, 210, 160, 3), np.uint8)
    assert layout(small).slots == 1024
    assert layout(small, n_steps=1024).slots == 34
    assert layout(image).slots == 10
    assert layout(np.zeros((8, 999, 999), "f")).slots == 8


def test_nests_are_packed_into_columns_and_back():
    kinds = {"b": np.zeros((3, 2), "f"), "a": (np.zeros(3, np.int8), np.zeros((3, 0)))}
    shape, dtype = packed_nests.column_of(kinds)
    column = np.zeros((2, *shape), dtype)
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 3, 2)), rng.integers(0, 9, (2, 3))
    for t in range(2):
        row = {"a": (second[t], np.zeros((3, 0))), "b": first[t]}
        packed_nests.put(column, t, row)
    found = packed_nests.unpacked(column, kinds)
    assert [*found] == ["b", "a"]
    np.testing.assert_array_equal(found["b"], first.astype("f"))
    np.testing.assert_array_equal(found["a"][0], second)
    assert found["a"][1].shape == (2, 3, 0)


class Remembering:
    """Acts by how many steps it remembers of the episode; see `NetworkActing`."""

    def begin(self):
        self.weights = [np.zeros(1)]
        return self

    def arrays(self):
        return self.weights

    def renew(self):
        pass

    def check(self, observations):
        pass

    def initial_state(self, n_envs):
        return {"steps": np.zeros(n_envs, np.int64)}

    def act(self, observations, state, rng):
        actions = state["steps"] % 3
        later = {"steps": state["steps"] + 1}
        return acting.Choice(actions, {"one": actions}, -actions.astype("f"), later)


def test_episodes_begin_by_what_was_written_last():
    class Drawing(Remembering):
        number = 0

        def renew(self):
            self.number += 10

        def initial_state(self, n_envs):
            return {"steps": np.full(n_envs, self.number)}

    envs = functools.partial(actor_envs.vector, 3, "same")
    player = acting.Player(envs, Drawing(), np.random.SeedSequence(0), n_steps=9)
    begun = [player.played().states["steps"][0]]
    for version in (1, 2):
        player.renew(version)
        piece = player.played()
        ended = (piece.terminated | piece.truncated)[:-1]
        begun.append(np.unique(piece.states["steps"][1:][ended]))
    player.close()
    assert [x.tolist() for x in begun] == [[0, 0, 0], [10], [20]]


@pytest.mark.parametrize("mode", ["disabled", "same", "next"])
def test_pieces_go_on_where_the_last_ended(mode):
    envs = functools.partial(actor_envs.vector, 3, mode)
    player = acting.Player(envs, Remembering(), np.random.SeedSequence(0), n_steps=7)
    pieces = [player.played() for _ in range(9)]
    player.close()
    names = [
        name for name in acting.Piece._fields if name not in ("version", "seconds")
    ]
    whole = {name: [getattr(x, name) for x in pieces] for name in names}
    steps = np.concatenate([x["steps"] for x in whole.pop("states")])
    chosen = np.concatenate([x["one"] for x in whole.pop("actions")])
    whole = {name: np.concatenate(columns) for name, columns in whole.items()}
    np.testing.assert_array_equal(chosen, steps % 3)
    np.testing.assert_array_equal(whole["log_probs"], -(steps % 3))
    known = [name for name in whole if name in records.Trajectory._fields[:7]]
    for n in range(3):
        valid = whole["valid"][:, n]
        columns = {name: whole[name][:, n][valid] for name in known}
        rows = records.Trajectory(actions=chosen[:, n][valid], **columns)
        counted_rows.check(n, rows)
        # What is remembered begins anew with each episode.
        begins = np.r_[True, (rows.terminated | rows.truncated)[:-1]]
        assert begins.sum() > 1
        assert (steps[:, n][valid][begins] == 0).all()
        assert (np.diff(steps[:, n][valid])[~begins[1:]] == 1).all()


@pytest.mark.parametrize(
    ("make_env", "error", "match"),
    [
        (actor_envs.Nameless, TypeError, "`make_env` expected to make .* Nameless"),
        (actor_envs.Nested, TypeError, "`make_env` expected .* one array; got a dict"),
        (
            functools.partial(gym.make, "Pendulum-v1"),
            ValueError,
            "`make_env` expected observations of 4 numbers.* got 3, of shape",
        ),
    ],
    ids=["none", "nest", "width"],
)
def test_other_environments_are_refused(make_env, error, match):
    with pytest.raises(error, match=match):
        new_actor(make_env)
