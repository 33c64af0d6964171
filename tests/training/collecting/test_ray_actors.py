"""Actors of a Ray cluster: on a stand-in for Ray, and (slow) on nodes that are lost."""

import collections
import contextlib
import functools
import importlib
import random
import signal
import socket
import sys
import time
import types

import actor_envs
import counted_rows
import numpy as np
import pytest

from tfrl._internal import acting
from tfrl.core import records
from tfrl.host import networks
from tfrl.training.collecting import (
    _actor_processes,
    _ray_actors,
    _silent_actors,
    actor_collection,
)

N_ENVS, N_STEPS = 2, 5


def task(make_env=None, slots=2):
    network = networks.NumpyNetwork(
        [np.zeros((4, 3), "f")], [np.zeros(3, "f")], ["linear"]
    )
    played = acting.NetworkActing(network, actor_envs.drawn)
    make_env = make_env or functools.partial(actor_envs.vector, N_ENVS)
    numbers = [x.copy() for x in played.begin().arrays()]
    return _actor_processes.Task(make_env, played, 3, N_STEPS, slots), numbers


class Rows:
    """Keeps pieces by actor and start; `check` compares all with what they must be."""

    def __init__(self):
        self.starts = collections.defaultdict(list)

    def __call__(self, piece, number, is_new):
        if is_new:
            self.starts[number].append([])
        fields = [np.array(getattr(piece, x)) for x in records.Trajectory._fields[:7]]
        self.starts[number][-1].append(fields)

    @property
    def count(self):
        return sum(len(pieces) for starts in self.starts.values() for pieces in starts)

    def check(self):
        for starts in self.starts.values():
            for pieces in starts:
                whole = map(np.concatenate, zip(*pieces, strict=True))
                rows = records.Trajectory(*whole)
                for n in range(N_ENVS):
                    valid = rows.valid[:, n]
                    counted_rows.check(
                        n, records.Trajectory(*(x[:, n][valid] for x in rows[:7]))
                    )


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class Call:
    def __init__(self, function):
        self.function = function


class StandIn(types.ModuleType):
    """Runs calls when their results are asked for; loses those of killed actors."""

    def __init__(self):
        super().__init__("ray")
        self.exceptions = types.SimpleNamespace(
            RayError=RayError, RayTaskError=RayTaskError
        )
        self.alive = self.on = False
        self.actors, self.in_flight, self.most = [], 0, 0

    def is_initialized(self):
        return self.on

    def init(self, address, **options):
        self.on, self.address, self.options = True, address, options

    def shutdown(self):
        self.on = False

    def put(self, value):
        return Call(lambda: value)

    def remote(self, **options):
        assert options["max_restarts"] == -1
        return lambda kind: types.SimpleNamespace(
            remote=lambda *args: self.made(kind, args)
        )

    def made(self, kind, args):
        actor = types.SimpleNamespace(make=lambda: kind(*args), lost=0)
        actor.body = actor.make()
        actor.play = types.SimpleNamespace(remote=lambda *a: self.called(actor, a))
        self.actors.append(actor)
        return actor

    def called(self, actor, args):
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        call = Call(lambda: self.played(actor, args))
        actor.waiting = [*getattr(actor, "waiting", []), call]
        return call

    def played(self, actor, args):
        weights, tasks = args
        return actor.body.play(self.get(weights), tasks)

    def lose(self, actor):
        """Kills an actor with all calls that wait for it, and starts it anew."""
        for call in actor.waiting:
            call.function = self.lost
        actor.waiting, actor.body = [], actor.make()

    def lost(self):
        raise RayError("actor died")

    def wait(self, calls, timeout):
        return calls[:1], calls[1:]

    def get(self, call):
        is_play = call.function.__closure__ and any(
            call in getattr(x, "waiting", []) for x in self.actors
        )
        self.in_flight -= bool(is_play) or call.function == self.lost
        try:
            return call.function()
        except RayError:
            raise
        except Exception as error:
            raise RayTaskError(repr(error)) from error

    def kill(self, actor):
        actor.body = None


@pytest.fixture
def ray(monkeypatch):
    found = StandIn()
    monkeypatch.setitem(sys.modules, "ray", found)
    monkeypatch.setattr(_ray_actors, "_PAUSE_SECONDS", 0.0)
    return found


@contextlib.contextmanager
def bound(listens=True, family=socket.AF_INET):
    """A port of this machine, and whether somebody listens there."""
    with socket.socket(family) as found:
        found.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        if listens:
            found.listen()
        yield found.getsockname()[1]


def test_pieces_go_on_and_lost_calls_begin_anew(ray):
    given, numbers = task()
    with bound() as port:
        engine = _ray_actors.RayActors(given, 3, numbers, f"127.0.0.1:{port}")
    rows, chance = Rows(), random.Random(0)
    assert ray.address == f"127.0.0.1:{port}"
    for index in range(90):
        engine.take(rows)
        if index % 10 == 9:
            ray.lose(chance.choice(ray.actors))
    rows.check()
    assert rows.count == 90
    assert engine.n_replaced == sum(len(starts) - 1 for starts in rows.starts.values())
    assert 5 <= engine.n_replaced <= 9
    assert ray.most <= 3 * given.slots, "so many pieces wait at most"
    engine.close()
    assert not ray.on


def test_a_new_cluster_has_room_for_all(ray, monkeypatch):
    given, numbers = task()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    _ray_actors.RayActors(given, 300, numbers, None).close()
    assert ray.options["num_cpus"] == 300 and ray.address == "local"
    _ray_actors.RayActors(given, 300, numbers, "auto").close()
    assert "num_cpus" not in ray.options


ADDRESSES = ("127.0.0.1:{}", "ray://127.0.0.1:{}", "localhost:{}")


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("given", [None, "auto", "itself"])
def test_where_nobody_listens_is_told_at_once(ray, monkeypatch, address, given):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    what, numbers = task()
    with bound(listens=False) as port:
        address = address.format(port)
        if given != "itself":
            monkeypatch.setenv("RAY_ADDRESS", address)
        match = rf"`ActorPool`: `address` expected a Ray .*got '{address}'.*\(.*refused"
        start = time.monotonic()
        with pytest.raises(ConnectionError, match=match) as told:
            _ray_actors.RayActors(
                what, 1, numbers, address if given == "itself" else given
            )
    assert time.monotonic() - start < 5.0
    assert ("RAY_ADDRESS" in str(told.value)) == (given != "itself")
    assert "ray start --head" in str(told.value) and not ray.on


@pytest.mark.parametrize("address", [*ADDRESSES, "[::1]:{}", "ray://[::1]:{}"])
def test_where_somebody_listens_ray_begins(ray, monkeypatch, address):
    # An address that is given goes before.
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    family = socket.AF_INET6 if "::1" in address else socket.AF_INET
    what, numbers = task()
    with contextlib.ExitStack() as stack:
        try:
            port = stack.enter_context(bound(family=family))
        except OSError:
            pytest.skip("no IPv6 here")
        _ray_actors.RayActors(what, 1, numbers, address.format(port)).close()
    assert ray.address == address.format(port)


@pytest.mark.parametrize("address", ["auto", "local", "ray://cluster", None])
def test_what_only_ray_can_find_is_left_to_it(ray, monkeypatch, address):
    monkeypatch.setenv("RAY_ADDRESS", "")
    what, numbers = task()
    _ray_actors.RayActors(what, 1, numbers, address).close()
    assert ray.address == (address or "local")


@pytest.mark.parametrize("address", ["127.0.0.1:66666", "cluster..example:6379"])
def test_what_nobody_can_be_at(ray, address):
    what, numbers = task()
    with pytest.raises(ConnectionError, match=rf"got '{address}' \("):
        _ray_actors.RayActors(what, 1, numbers, address)


@pytest.mark.parametrize("address", ["auto", "ray://cluster"])
def test_where_ray_finds_nothing_is_told_alike(ray, monkeypatch, address):
    def init(**_):
        raise ConnectionError("Could not find any. Please set `RAY_ADDRESS`.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    what, numbers = task()
    # To try again helps only where a cluster may begin to answer.
    kind = ValueError if address == "auto" else ConnectionError
    match = rf"^`ActorPool`: .* got '{address}' \(Could not find any\); start one with"
    with pytest.raises(kind, match=match):
        _ray_actors.RayActors(what, 1, numbers, address)


def test_weights_reach_calls_that_are_made_afterwards(ray):
    given, numbers = task(slots=1)
    engine = _ray_actors.RayActors(given, 1, numbers, None)
    versions = []
    for version in (1, 2, 3):
        assert engine.publish([x + version for x in numbers]) == version
        engine.take(lambda piece, *_: versions.append(int(piece.version)))
    assert versions == [0, 1, 2]


def test_what_an_environment_raises_is_told(ray):
    given, numbers = task(functools.partial(actor_envs.Failing, "error"))
    engine = _ray_actors.RayActors(given, 1, numbers, None)
    engine.take(lambda *_: None)
    with pytest.raises(RuntimeError, match=r"actor 0 expected to play on.*\n.*wheel"):
        engine.take(lambda *_: None)


def test_actors_that_are_waited_for_are_told_of(ray, monkeypatch, caplog):
    given, numbers = task()
    engine = _ray_actors.RayActors(given, 2, numbers, None)
    monkeypatch.setattr(_silent_actors, "SECONDS", 0.0)
    monkeypatch.setattr(ray, "wait", lambda calls, timeout: ([], calls))
    rounds = iter(range(3))
    with pytest.raises(StopIteration):
        engine.take(lambda *_: None, lambda: next(rounds))
    [told] = (x.getMessage() for x in caplog.records)
    assert "got nothing from actor 0, actor 1 for" in told


def test_a_lost_actor_is_told_of_once(ray, caplog):
    given, numbers = task()
    engine = _ray_actors.RayActors(given, 1, numbers, None)
    for _ in range(2):
        ray.lose(ray.actors[0])
        engine.take(lambda *_: None)
    [told] = (x.getMessage() for x in caplog.records)
    assert told.startswith("`Trainer`: actor 0 expected to play on; got: actor died;")
    assert told.endswith("not logged, but counted in train/actors_replaced")


def test_a_signal_keeps_its_handler(ray, monkeypatch):
    before, handler = signal.getsignal(signal.SIGTERM), lambda *_: None
    own = ray.init

    def init(*args, **kwargs):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        own(*args, **kwargs)

    monkeypatch.setattr(ray, "init", init)
    given, numbers = task()
    try:
        signal.signal(signal.SIGTERM, handler)
        _ray_actors.RayActors(given, 1, numbers, None).close()
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_cluster_that_is_there_is_left_alone(ray):
    ray.on = True
    given, numbers = task()
    _ray_actors.RayActors(given, 1, numbers, None).close()
    assert ray.on and not hasattr(ray, "address")


def test_bad_settings(monkeypatch):
    for settings, error, match in (
        ({"engine": "mpi"}, ValueError, "`engine` expected"),
        ({"address": "auto"}, ValueError, "`address` expected None"),
        ({"engine": "ray", "address": 3}, TypeError, "`address` expected"),
    ):
        with pytest.raises(error, match=f"`ActorPool`: {match}"):
            actor_collection.ActorPool(**settings)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="not installed; .* pip install ray"):
        _ray_actors.check_installed()


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of a head without room and three nodes, on this machine."""
    ray = pytest.importorskip("ray")
    from ray import cluster_utils  # noqa: PLC0415

    memory = {"object_store_memory": 80_000_000}
    found = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, **memory}
    )
    nodes = [found.add_node(num_cpus=2, **memory) for _ in range(3)]
    ray.init(address=found.address, log_to_driver=False)
    yield found, nodes, functools.partial(found.add_node, num_cpus=2, **memory)
    ray.shutdown()
    found.shutdown()


@pytest.mark.slow
def test_nodes_that_are_lost_and_join(cluster):
    found, nodes, join = cluster
    given, numbers = task(
        functools.partial(actor_envs.vector, N_ENVS, kind=actor_envs.Sleeping)
    )
    engine = _ray_actors.RayActors(given, 4, numbers, None)
    rows, chance = Rows(), random.Random(0)
    for _ in range(4):
        until = rows.count + 200
        while rows.count < until:
            engine.take(rows)
        found.remove_node(nodes.pop(chance.randrange(len(nodes))))
        until = rows.count + 50
        while rows.count < until:  # the others go on
            engine.take(rows)
        nodes.append(join())
    end = time.monotonic() + 120
    while engine.n_replaced < 4 and time.monotonic() < end:
        engine.take(rows)
    rows.check()
    assert engine.n_replaced >= 4
    assert len(rows.starts) == 4
    engine.close()


@pytest.mark.slow
def test_actors_that_are_killed_at_random(cluster):
    ray = importlib.import_module("ray")
    given, numbers = task()
    engine = _ray_actors.RayActors(given, 3, numbers, None)
    rows, chance = Rows(), random.Random(1)
    while len(rows.starts) < 3:
        engine.take(rows)
    for killed in range(8):
        for _ in range(chance.randint(1, 10)):
            engine.take(rows)
        ray.kill(chance.choice(engine._actors), no_restart=False)
        while engine.n_replaced == killed:  # the others go on until it plays again
            engine.take(rows)
    engine.close()
    rows.check()
    assert engine.n_replaced == 8
