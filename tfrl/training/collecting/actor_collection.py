"""Collection by actors that play on while the agent learns."""

import collections
import dataclasses
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl._internal import acting, checks
from tfrl.core import records
from tfrl.training import _processes
from tfrl.training.collecting import _actor_processes, _ray_actors, collection

# Epochs over which lag and idle time are averaged.
_EPOCHS_OF_FACTS = 100
# How long an epoch may go on in a run that is to end.
_PATIENCE_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class ActorPool:
    """Actors that play for a `Trainer` in separate processes.

    Each plays `n_envs / n_actors` environments, and begins its next trajectory while
    the agent learns from the last ones. For a small network over flat observations it
    acts with a NumPy copy, without TensorFlow; any other policy is made anew in each
    actor. New weights reach an actor before its next trajectory, and nothing waits for
    that.

    An agent that learns from trajectories gets them with a lag, which it must correct
    for, as `IMPALA` and `PPO(vtrace=True)` do with the log-probabilities of the policy
    that acted. The lag is bounded: each actor has at most `max_lag` trajectories
    unfinished or waiting, and one that is nevertheless older than `max_lag` updates is
    discarded. A replay accepts all.

    An actor that is killed is replaced by another, which begins new episodes; its
    finished trajectories are used, unfinished ones are lost. An error in an environment
    ends the run. Warnings name an actor that is replaced for the first time, and those
    that have sent nothing for a minute.

    With Ray (extra `[ray]`) the actors run on the machines of its cluster, one
    processor each, and trajectories come through its object store. Other nodes make up
    for a lost one, and actors for which there is no room wait for nodes that join. tfrl
    must be installed on each machine.

    Attributes:
        n_actors: number of actors; divides `n_envs`.
        max_lag: maximum lag of a trajectory, in updates.
        engine: "processes" of this machine, or "ray".
        address: of the Ray cluster, such as "auto" or "10.0.0.1:6379"; None for the one
            that `RAY_ADDRESS` names, else a new one on this machine.

    Example:
        >>> ActorPool(n_actors=2).max_lag
        1

    References:
        Espeholt et al., 2018, IMPALA: Scalable Distributed Deep-RL with Importance
        Weighted Actor-Learner Architectures.
    """

    n_actors: int = 4
    max_lag: int = 1
    engine: str = "processes"
    address: str | None = None

    def __post_init__(self) -> None:
        where = "ActorPool"
        for name in ("n_actors", "max_lag"):
            checks.check_whole_number(where, name, getattr(self, name), low=1)
        checks.check_one_of(where, "engine", self.engine, ("processes", "ray"))
        checks.check_type(where, "address", self.address, str | None, "a str or None")
        if self.address is not None and self.engine != "ray":
            raise ValueError(
                f"`{where}`: `address` expected None unless the engine is 'ray'; got "
                f"{self.address!r}"
            )


class ActorCollector(collection.Collector):
    """Collects what actors play.

    Args:
        envs: of the same spaces; they are not played.
        n_steps: rows per trajectory, T.
        seed: of environments and draws.
        pool: the actors.
        n_envs: environments of this worker, of all its actors together.
        make_env: makes the vector environment of one actor.
        workers: who train.
        make_acting: returns what acts and what makes its numbers of a policy.
        is_on_policy: whether what is older than the greatest lag is discarded.
    """

    def __init__(
        self,
        envs: VectorEnv,
        n_steps: int,
        seed: int,
        *,
        pool: ActorPool,
        n_envs: int,
        make_env: Callable[[], Any],
        workers: _processes.Workers,
        make_acting: Callable[[], tuple[Any, Callable[[Any], list[np.ndarray]]]],
        is_on_policy: bool,
    ) -> None:
        super().__init__(envs, n_steps, seed)
        if pool.engine == "ray":
            _ray_actors.check_installed()
        self._pool, self._workers = pool, workers
        self._n_envs, self._width = n_envs, n_envs // pool.n_actors
        self._seed, self._make_env = seed, make_env
        self._make_acting, self._is_on_policy = make_acting, is_on_policy
        self._engine: Any = None
        self._published: Any = None
        # What came of an epoch that was interrupted is learned from in the next.
        self._found: _Pieces | None = None
        self._wanted_until = 0.0  # until when the run was not to end
        self._version = 0
        # Of each part of the last trajectory, as they came: its actor, whether that
        # began anew, and which part it is.
        self._origins: list[tuple[int, bool, int]] = []
        self._facts: collections.deque[tuple[float, ...]] = collections.deque(
            maxlen=_EPOCHS_OF_FACTS
        )
        self._n_discarded, self._left = 0, time.perf_counter()

    def close(self) -> None:
        """Ends the actors."""
        if self._engine is not None:
            self._finalizer()

    def reset(self, seed: int) -> None:
        """Lets actors that are not started yet begin by another seed."""
        super().reset(seed)
        self._seed = seed

    def snapshot(self) -> None:
        """Returns None: actors are nowhere in particular when a run is saved."""

    def restored(self, snapshot: Any) -> bool:  # noqa: ARG002
        """Returns False: actors begin new episodes, whoever played before."""
        return False

    def uncapturable(self) -> str | None:
        """Tells that actors play on by themselves."""
        return "actors play on while a run is saved"

    def collect(
        self,
        policy: Any,
        seed: np.random.Generator | None = None,
        temperature: float = 1.0,
    ) -> records.Trajectory:
        """Waits for `n_steps` steps in as many environments as all actors have.

        Args:
            policy: a `HostPolicy`, of which actors get what is new.
            seed: not looked at: actors have their own.
            temperature: 1.

        Returns:
            A `Trajectory` of NumPy arrays `[T, N]`, of any of the actors.

        Raises:
            ConnectionError: if an actor ends again and again before it has played, or
                nobody answers at the address of a Ray cluster.
            Interrupted: if the run is to end; nothing has been collected then.
            RuntimeError: if an environment raises.
            ValueError: as in `Collector.collect`, or if "auto" finds no Ray cluster.
        """
        del seed, temperature
        began = time.perf_counter()
        self._publish(policy.policy)
        found = self._found or _Pieces(self._pool.n_actors, self._width)
        self._found, self._wanted_until = found, time.monotonic()
        self.is_playing = True
        while not found.is_full:
            self._engine.take(lambda *taken: self._place(found, *taken), self._go_on)
        self._found, self.is_playing = None, False
        self._origins = found.origins
        trajectory = found.trajectory()
        self._check(trajectory)
        self.episode_returns.extend(found.returns)
        self.episode_lengths.extend(found.lengths)
        self.env_steps += int(trajectory.valid.sum())
        now = time.perf_counter()
        idle, busy = map(float, np.sum(found.seconds, axis=0))
        lags = float(np.mean(found.lags)), float(np.max(found.lags))
        self._facts.append((*lags, now - began, now - self._left, idle, busy))
        self._left = now
        return trajectory

    def facts(self) -> dict[str, float]:
        """Returns lag and idle time of the last epochs, by name."""
        if not self._facts:
            return {}
        lags, most, waited, all_time, stalled, played = zip(*self._facts, strict=True)
        return {
            "actor_lag": float(np.mean(lags)),
            "actor_lag_max": float(np.max(most)),
            "learner_idle": float(sum(waited) / max(sum(all_time), 1e-9)),
            "actors_idle": float(sum(stalled) / max(sum((*stalled, *played)), 1e-9)),
            "actors_replaced": float(self._engine.n_replaced),
            "trajectories_discarded": float(self._n_discarded),
        }

    def parts(
        self, trajectory: records.Trajectory
    ) -> Iterator[tuple[records.Trajectory, np.ndarray | None, bool]]:
        """Yields the parts that actors played; see `Collector.parts`."""
        origins = self._workers.gather_values([list(x) for x in self._origins])
        own = np.arange(self._width)
        for rank, parts in enumerate(origins):
            for actor, is_new, place in parts:
                first = rank * self._n_envs + place * self._width
                rows = slice(first, first + self._width)
                part = tf.nest.map_structure(
                    lambda x, rows=rows: x[:, rows], trajectory
                )
                yield part, rank * self._n_envs + actor * self._width + own, is_new

    def _publish(self, policy: Any) -> None:
        """Gives the actors a policy, unless they have it; starts them at first."""
        if self._engine is None:
            played, self._numbers_of = self._make_acting()
            task = _actor_processes.Task(
                self._make_env,
                played,
                self._seed,
                self.n_steps,
                self._pool.max_lag,
            )
            numbers = self._numbers_of(policy)
            given = task, self._pool.n_actors, numbers
            if self._pool.engine == "ray":
                self._engine = _ray_actors.RayActors(*given, self._pool.address)
            else:
                self._engine = _actor_processes.Processes(*given)
            self._finalizer = weakref.finalize(self, self._engine.close)
        elif policy is not self._published:
            self._version = self._engine.publish(self._numbers_of(policy))
        self._published = policy

    def _go_on(self) -> None:
        """Raises Interrupted if the run is to end; several workers end together."""
        now = time.monotonic()
        if not self._workers.stopped:
            self._wanted_until = now
        elif now - self._wanted_until > _PATIENCE_SECONDS:
            raise _processes.Interrupted

    def _place(
        self, found: "_Pieces", piece: acting.Piece, actor: int, is_new: bool
    ) -> None:
        lag = self._version - int(piece.version)
        if self._is_on_policy and lag > self._pool.max_lag:
            self._n_discarded += 1
        else:
            found.add(piece, actor, is_new, lag)


class _Pieces:
    """What actors played for one epoch, side by side.

    Each is in the place of its actor, unless another has played more: what follows
    returns from epoch to epoch, `ReturnScale`, finds the same environment there.

    Args:
        count: how many pieces it takes, one for each actor.
        width: environments of each.

    Attributes:
        origins: of each piece, as they came, its actor, whether that began anew before
            it, and its place.
        lags: of each piece, in updates.
        seconds: of each piece, waited and played.
        returns: of the episodes that ended.
        lengths: of the same.
    """

    def __init__(self, count: int, width: int) -> None:
        self._count, self._width = count, width
        self._columns: Any = None
        self._free = list(range(count))
        self.origins: list[tuple[int, bool, int]] = []
        self.lags: list[int] = []
        self.seconds: list[np.ndarray] = []
        self.returns: list[float] = []
        self.lengths: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self.origins) == self._count

    def add(self, piece: acting.Piece, actor: int, is_new: bool, lag: int) -> None:
        """Copies a piece."""
        names = set(records.Trajectory._fields)
        given = records.Trajectory(
            **{k: x for k, x in piece._asdict().items() if k in names}
        )
        if self._columns is None:
            self._columns = tf.nest.map_structure(self._empty, given)
        place = actor if actor in self._free else self._free[0]
        self._free.remove(place)
        first = place * self._width
        for column, values in zip(
            tf.nest.flatten(self._columns), tf.nest.flatten(given), strict=True
        ):
            column[:, first : first + self._width] = values
        ended = (piece.terminated | piece.truncated) & piece.valid
        self.returns += piece.returns[ended].tolist()
        self.lengths += piece.lengths[ended].tolist()
        self.origins.append((actor, is_new, place))
        self.lags.append(lag)
        self.seconds.append(np.array(piece.seconds))

    def trajectory(self) -> records.Trajectory:
        """Returns all pieces."""
        return self._columns

    def _empty(self, values: np.ndarray) -> np.ndarray:
        n_steps, _, *shape = values.shape
        return np.empty((n_steps, self._count * self._width, *shape), values.dtype)
