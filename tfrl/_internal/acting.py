"""What an actor does: it plays environments, in pieces, and sends what happened.

No TensorFlow is needed for a network that has a copy in NumPy. The learner's side is
`tfrl.training.Actors` and the trainer's collector "actors".
"""

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from tfrl._internal import gym_checks, packed_nests, process_events
from tfrl.host import networks, shared_rows, stepping

# Enough to wait out a pause of the learner, little beside the actor itself.
_QUEUE_BYTES = 2 << 20
_QUEUE_STEPS = 8, 1024


class ActorFailed(RuntimeError):
    """What an actor raised; the message ends with the traceback that it had there.

    Example:
        >>> issubclass(ActorFailed, RuntimeError)
        True
    """


class Choice(NamedTuple):
    """What is done in N environments, as `tfrl.policies.Acted` has it.

    Attributes:
        actions: nest of `[N, ...]`, what the environments take.
        raw_actions: nest of `[N, ...]`, what is learned from.
        log_probs: `[N]`, or None.
        state: nest of `[N, ...]`, for the next step.
        outputs: `[N, n]`, of which log-probabilities are told for all steps of a piece
            at once; None where there are none.

    Example:
        >>> Choice([1], [1], None, ()).log_probs
    """

    actions: Any
    raw_actions: Any
    log_probs: Any
    state: Any
    outputs: Any = None


@dataclasses.dataclass
class NetworkActing:
    """Acts by a NumPy network, without TensorFlow.

        raw_actions = draw(outputs(observations), rng, **settings)

    An actor asks what acts to `begin`, for `arrays` that it overwrites with newer
    weights, and to `act`; see `Choice`.

    Attributes:
        network: what acts, with any weights.
        draw: from the outputs `[N, n]`, a generator and the settings to raw actions.
        to_env: from these to what the environments take, None where they are that.
        settings: numbers, or arrays of them, by name.
        masked: from the outputs and the mask in the observations to what `draw` gets;
            None where there is no mask.
        log_prob: from the outputs and raw actions to log-probabilities; None for none.

    Example:
        >>> network = networks.NumpyNetwork(
        ...     [np.ones((4, 2), "f")], [np.zeros(2, "f")], ["linear"])
        >>> greedy = NetworkActing(network, lambda outputs, rng: outputs.argmax(-1))
        >>> zeros, rng = np.zeros((3, 4), np.float32), np.random.default_rng(0)
        >>> greedy.begin().act(zeros, (), rng).actions.tolist()
        [0, 0, 0]
    """

    network: networks.NumpyNetwork
    draw: Callable[..., Any]
    to_env: Callable[[Any], Any] | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    masked: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    log_prob: Callable[[np.ndarray, Any], np.ndarray] | None = None
    _values: list[np.ndarray] = dataclasses.field(default_factory=list, init=False)
    _given: dict[str, Any] = dataclasses.field(default_factory=dict, init=False)

    def begin(self) -> Self:
        """Returns one with arrays of its own."""
        own = dataclasses.replace(self, network=self.network.copy())
        own._values = [np.array(x, np.float64) for x in self.settings.values()]
        own.renew()
        return own

    def arrays(self) -> list[np.ndarray]:
        """Returns the numbers that it acts by, to be overwritten."""
        return [*self.network.arrays(), *self._values]

    def renew(self) -> None:
        """Takes notice of arrays that were overwritten."""
        values = (x if x.ndim else x.item() for x in self._values)
        self._given = dict(zip(self.settings, values, strict=True))

    def initial_state(self, n_envs: int) -> Any:  # noqa: ARG002
        """Returns `()`: nothing is remembered."""
        return ()

    def check(self, observations: Any) -> None:
        """Raises unless the network takes these observations.

        Raises:
            TypeError: if they are a nest other than of a mask and one array.
            ValueError: if they are of another width.
        """
        seen = self._parted(observations)[0]
        if not isinstance(seen, np.ndarray):
            raise TypeError(
                "`Actors`: `make_env` expected observations that are one array; got a "
                f"{type(seen).__name__}; wrap it in "
                "gymnasium.wrappers.FlattenObservation"
            )
        width = math.prod(seen.shape[1:])
        expected = self.network.kernels[0].shape[0]
        if width != expected:
            raise ValueError(
                f"`Actors`: `make_env` expected observations of {expected} numbers, as "
                f"`policy` takes; got {width}, of shape {list(seen.shape[1:])}; make "
                "the environment that the policy is for"
            )

    def act(self, observations: Any, state: Any, rng: np.random.Generator) -> Choice:
        """Chooses actions."""
        seen, mask = self._parted(observations)
        outputs = self.network(seen)
        if self.masked is not None:
            outputs = self.masked(outputs, mask != 0)
        raw = gym_checks.mapped(np.asarray, self.draw(outputs, rng, **self._given))
        actions = raw if self.to_env is None else self.to_env(raw)
        return Choice(
            actions, raw, None, state, None if self.log_prob is None else outputs
        )

    def _parted(self, seen: Any) -> tuple[Any, Any]:
        """What the network sees, and the mask if there is one."""
        name = gym_checks.MASK
        if self.masked is None or not isinstance(seen, dict) or name not in seen:
            return seen, None
        rest = [part for key, part in seen.items() if key != name]
        return rest[0] if len(rest) == 1 else seen, seen[name]


class Piece(NamedTuple):
    """What an actor played in N environments: columns `[T, N, ...]`.

    Attributes:
        observations: nest, what was seen before the action.
        actions: nest, the raw ones.
        rewards: float32.
        terminated: bool, the episode truly ended.
        truncated: bool, the episode was cut off.
        valid: bool, False where an environment only reset itself.
        next_observations: nest, the true successor.
        log_probs: float32, of the actions; `()` where they are not asked for.
        states: nest, what was remembered before the action.
        returns: float64, return of the episode so far.
        lengths: steps of the episode so far.
        version: of the weights that acted, `[]`.
        seconds: `[2]`, how long was waited for room, and played.

    Example:
        >>> Piece._fields[:3]
        ('observations', 'actions', 'rewards')
    """

    observations: Any
    actions: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    next_observations: Any
    log_probs: Any
    states: Any
    returns: np.ndarray
    lengths: np.ndarray
    version: np.ndarray
    seconds: np.ndarray


class Layout(NamedTuple):
    """What a piece looks like.

    Attributes:
        observations: nest of arrays `[N, *shape]`, as those that come.
        actions: likewise.
        log_probs: likewise.
        states: likewise.
        n_steps: T.

    Example:
        >>> layout = Layout(np.zeros((2, 3), "f"), np.zeros(2, int), (), (), 1)
        >>> layout.n_envs, layout.slots
        (2, 1024)
    """

    observations: Any
    actions: Any
    log_probs: Any
    states: Any
    n_steps: int

    @property
    def n_envs(self) -> int:
        """Number of environments, N."""
        return len(gym_checks.leaves_of(self.observations)[0])

    @property
    def columns(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of each column of a `Piece`, nests as dtypes of parts."""
        n = (self.n_envs,)
        flags = (n, np.dtype(bool))
        steps = [
            packed_nests.column_of(self.observations),
            packed_nests.column_of(self.actions),
            (n, np.dtype(np.float32)),
            *[flags] * 3,
            packed_nests.column_of(self.observations),
            packed_nests.column_of(self.log_probs),
            packed_nests.column_of(self.states),
            (n, np.dtype(np.float64)),
            (n, np.dtype(np.int64)),
        ]
        each = [((self.n_steps, *shape), dtype) for shape, dtype in steps]
        return [*each, ((), np.dtype(np.int64)), ((2,), np.dtype(np.float64))]

    @property
    def slots(self) -> int:
        """How many pieces wait for the learner at most."""
        size = sum(math.prod(s) * dtype.itemsize for s, dtype in self.columns)
        low, high = _QUEUE_STEPS
        return min(max(_QUEUE_BYTES // size, low), high)

    def unpacked(self, columns: Sequence[np.ndarray]) -> Piece:
        """Returns columns, each of any axes in front, as the nests that they are."""
        piece, likes = Piece(*columns), self._asdict()
        likes["next_observations"] = likes["observations"]
        del likes["n_steps"]
        nests = {
            k: packed_nests.unpacked(getattr(piece, k), like)
            for k, like in likes.items()
        }
        return piece._replace(**nests)


class Player:
    """Plays a vector of environments, T steps at a time.

    Args:
        make_env: a registered Gymnasium id, or a function that makes an environment or
            a vector of them.
        acting: what acts, such as a `NetworkActing`.
        seed: of the environments and the generator.
        n_steps: of a piece, T.

    Attributes:
        layout: of a piece.

    Raises:
        TypeError: if the environment is none, or its observations are a nest that is
            not acted upon.
        ValueError: if they are others than are acted upon.

    Example:
        >>> network = networks.NumpyNetwork(
        ...     [np.ones((4, 2), "f")], [np.zeros(2, "f")], ["linear"])
        >>> greedy = NetworkActing(network, lambda outputs, rng: outputs.argmax(-1))
        >>> player = Player("CartPole-v1", greedy, np.random.SeedSequence(0), 5)
        >>> player.played().rewards.shape
        (5, 1)
    """

    def __init__(
        self,
        make_env: str | Callable[[], Any],
        acting: Any,
        seed: np.random.SeedSequence,
        n_steps: int = 1,
    ) -> None:
        seeds = seed.spawn(2)
        self._envs = _made(make_env)
        self._rng = np.random.default_rng(seeds[1])
        self._acting = acting.begin()
        self._version = 0
        self._stepper = stepping.Stepper(self._envs, int(seeds[0].generate_state(1)[0]))
        seen, n_envs = self._stepper.observations, self._envs.num_envs
        self._acting.check(seen)
        self._memory = self._initial = self._acting.initial_state(n_envs)
        self._remembers = bool(gym_checks.leaves_of(self._initial))
        first = self._acting.act(seen, self._initial, copy.deepcopy(self._rng))
        is_known = first.log_probs is not None or first.outputs is not None
        known: Any = np.zeros(n_envs, np.float32) if is_known else ()
        self._outputs: list[np.ndarray] = []
        self.layout = Layout(
            gym_checks.mapped(np.array, seen),
            gym_checks.mapped(np.array, first.raw_actions),
            known,
            gym_checks.mapped(np.array, self._initial),
            n_steps,
        )
        self._returns, self._lengths = np.zeros(n_envs), np.zeros(n_envs, np.int64)

    def arrays(self) -> list[np.ndarray]:
        """Returns the numbers that are acted by, to be overwritten before `renew`."""
        return list(self._acting.arrays())

    def renew(self, version: int) -> None:
        """Acts from now on by what was written to `arrays`."""
        self._version = version
        self._acting.renew()
        if self._remembers:
            # Who plays the next episodes may be drawn anew.
            self._initial = self._acting.initial_state(self._envs.num_envs)

    def play(self, piece: Piece, waited: float = 0.0) -> None:
        """Plays T steps in every environment.

        Args:
            piece: of the `columns` of the layout, overwritten.
            waited: seconds until there was room for it.
        """
        start = time.perf_counter()
        piece.version[...] = self._version
        for t in range(self.layout.n_steps):
            self._step(piece, t)
        if self._outputs:
            self._tell_log_probs(piece)
        self._tell_episodes(piece)
        piece.seconds[:] = waited, time.perf_counter() - start

    def played(self) -> Piece:
        """Returns a new piece."""
        arrays = [np.empty(shape, dtype) for shape, dtype in self.layout.columns]
        self.play(Piece(*arrays))
        return self.layout.unpacked(arrays)

    def close(self) -> None:
        """Closes the environments."""
        self._envs.close()

    def _tell_log_probs(self, piece: Piece) -> None:
        """Writes the log-probabilities of all steps, which one by one take long."""
        outputs, self._outputs = np.concatenate(self._outputs), []
        actions = gym_checks.mapped(
            lambda x: x.reshape(-1, *x.shape[2:]),
            packed_nests.unpacked(piece.actions, self.layout.actions),
        )
        known = self._acting.log_prob(outputs, actions)
        piece.log_probs[...] = known.reshape(piece.log_probs.shape)

    def _tell_episodes(self, piece: Piece) -> None:
        """Writes rewards, and how far each episode is, of all steps."""
        # `_step` leaves the rewards there, in float64.
        piece.rewards[...] = piece.returns
        piece.lengths[...] = piece.valid
        piece.returns[~piece.valid] = 0.0
        ended = piece.terminated | piece.truncated
        self._returns = _summed(piece.returns, ended, self._returns)
        self._lengths = _summed(piece.lengths, ended, self._lengths)

    def _step(self, piece: Piece, t: int) -> None:
        """Plays a step, and writes what is known of it before all are played."""
        seen, memory = self._stepper.observations, self._memory
        choice = self._acting.act(seen, memory, self._rng)
        # Before the step, which may overwrite what an environment has shown.
        packed_nests.put(piece.observations, t, seen)
        packed_nests.put(piece.actions, t, choice.raw_actions)
        if choice.outputs is not None:
            self._outputs.append(choice.outputs)
        elif choice.log_probs is not None:
            piece.log_probs[t] = choice.log_probs
        outcome = self._stepper.step(choice.actions)
        piece.returns[t] = outcome.rewards
        piece.terminated[t] = outcome.terminated
        piece.truncated[t] = outcome.truncated
        piece.valid[t] = outcome.valid
        packed_nests.put(piece.next_observations, t, outcome.next_observations)
        if self._remembers:
            packed_nests.put(piece.states, t, memory)
            self._memory = self._kept(choice.state, outcome)

    def _kept(self, state: Any, outcome: stepping.Outcome) -> Any:
        """What is remembered in the next step."""
        pairs = zip(
            gym_checks.leaves_of(state),
            gym_checks.leaves_of(self._initial),
            strict=True,
        )
        kept = (stepping.kept(last, first, outcome) for last, first in pairs)
        return packed_nests.packed_as(self._initial, kept)


@dataclasses.dataclass
class Job:
    """What an actor in a process of its own is told.

    Attributes:
        make_env: as of `Player`.
        acting: as of `Player`.
        seed: as of `Player`.
        weights: file descriptor of `SharedArrays`: what `acting` acts by.
        rows: file descriptor for a `RowRing` of pieces.
        n_steps: of a piece, T.
        slots: pieces that wait for the learner at most; None for what is little memory.
        written: file descriptors of a `ProcessEvent` that is set when a piece is
            complete; `()` for none.
        released: likewise, of one that the learner sets when there is room for another;
            `()` where it does not.

    Example:
        >>> Job("CartPole-v1", None, np.random.SeedSequence(0), 3, 4).n_steps
        1
    """

    make_env: str | Callable[[], Any]
    acting: Any
    seed: np.random.SeedSequence
    weights: int
    rows: int
    n_steps: int = 1
    slots: int | None = None
    written: tuple[int, ...] = ()
    released: tuple[int, ...] = ()


class Actor:
    """Plays into memory that is shared with the learner, by weights from there.

    Args:
        job: what to do.

    Attributes:
        layout: of a piece.
        slots: pieces that wait for the learner at most.

    Example:
        >>> network = networks.NumpyNetwork(
        ...     [np.ones((4, 2), "f")], [np.zeros(2, "f")], ["linear"])
        >>> greedy = NetworkActing(network, lambda outputs, rng: outputs.argmax(-1))
        >>> weights = shared_rows.SharedArrays(greedy.begin().arrays())
        >>> actor = Actor(Job("CartPole-v1", greedy, np.random.SeedSequence(0),
        ...                   weights.fd, shared_rows.new_memory()))
        >>> ring = actor.ring()
        >>> actor.step(ring), actor.step(ring), ring.waiting()
        (True, True, (0, 2))
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._player = Player(job.make_env, job.acting, job.seed, job.n_steps)
        self._mine, self._known = self._player.arrays(), -1
        self._weights = shared_rows.SharedArrays(self._mine, fd=job.weights)
        self._look()
        self._written = _event(job.written)
        self.layout = self._player.layout
        self.slots = self.layout.slots if job.slots is None else job.slots
        self.close = self._player.close

    def ring(self) -> shared_rows.RowRing:
        """Returns the queue to the learner."""
        return shared_rows.RowRing(
            self.layout.columns, self.slots, self._job.rows, _event(self._job.released)
        )

    def step(self, ring: shared_rows.RowRing) -> bool:
        """Plays a piece, as soon as there is a free slot.

        Args:
            ring: where it is written.

        Returns:
            False if the ring is closed and nothing was played.
        """
        start = time.perf_counter()
        slot = ring.begin()
        if slot is None:
            return False
        self._look()
        waited = time.perf_counter() - start
        self._player.play(Piece(*(x[slot, ...] for x in ring.arrays)), waited)
        ring.commit()
        if self._written is not None:
            self._written.set()
        return True

    def _look(self) -> None:
        """Takes over the newest weights."""
        version = self._weights.read(self._mine, self._known)
        if version != self._known:
            self._player.renew(version)
            self._known = version


def _event(fds: tuple[int, ...]) -> process_events.ProcessEvent | None:
    return process_events.ProcessEvent(fds) if fds else None


def play(send: Callable[[Any], None], job: Job) -> None:
    """Does a job until the learner closes the queue.

    Args:
        send: gets the `Layout` and the slots of the ring first.
        job: what to do.

    Raises:
        ImportError: if something in the job wants a module that is not there.

    Example:
        >>> network = networks.NumpyNetwork(
        ...     [np.ones((4, 2), "f")], [np.zeros(2, "f")], ["linear"])
        >>> greedy = NetworkActing(network, lambda outputs, rng: outputs.argmax(-1))
        >>> weights = shared_rows.SharedArrays(greedy.begin().arrays())
        >>> memory = shared_rows.new_memory()
        >>> def send(told):
        ...     layout, slots = told
        ...     shared_rows.RowRing(layout.columns, slots, memory).close()
        >>> play(send, Job("CartPole-v1", greedy, np.random.SeedSequence(0),
        ...                weights.fd, memory))
    """
    actor = Actor(job)
    ring = actor.ring()
    send((actor.layout, actor.slots))
    while actor.step(ring):
        pass
    actor.close()


def _summed(steps: np.ndarray, ended: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Sums steps `[T, N]` in place, anew after each end.

    Returns what is summed so far of the episodes that go on, which is `before` of the
    next steps.
    """
    first = 0
    for last in (*(np.flatnonzero(ended[:-1].any(-1)) + 1).tolist(), len(steps)):
        part = steps[first:last]
        part[0] += before
        np.cumsum(part, axis=0, out=part)
        before = np.where(ended[last - 1], 0, part[-1])
        first = last
    return before


def _made(make_env: str | Callable[[], Any]) -> VectorEnv:
    env = gym.make(make_env) if isinstance(make_env, str) else make_env()
    if isinstance(env, VectorEnv):
        return env
    if not isinstance(env, gym.Env):
        raise TypeError(
            "`Actors`: `make_env` expected to make a Gymnasium environment or a vector "
            f"of them; got {type(env).__name__}; return one"
        )
    return SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.DISABLED)
