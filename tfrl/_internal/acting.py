"""What an actor does: it plays environments without TensorFlow and sends what happened.

The learner's side is `tfrl.training.Actors`.
"""

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from tfrl._internal import gym_checks
from tfrl.host import heads, networks, shared_rows, stepping

# Enough to wait out a pause of the learner, little beside the actor itself.
_QUEUE_BYTES = 2 << 20
_QUEUE_STEPS = 8, 1024


def explore(
    head: heads.NumpyCategorical,
    values: np.ndarray,
    rng: np.random.Generator,
    epsilon: float,
) -> np.ndarray:
    """Draws choices epsilon-greedily.

    Args:
        head: of the choices.
        values: `[N, n]`, of all options; -inf of those that are not allowed.
        rng: what draws.
        epsilon: share of random choices.

    Returns:
        Raw actions `[N]`.

    Example:
        >>> head = heads.NumpyCategorical((2,), (0,), scalar=True, dtype="int64")
        >>> explore(head, np.array([[0.0, 1.0]]), np.random.default_rng(0), 0.0)
        array([1], dtype=int32)
    """
    allowed = values != -np.inf
    return head.host_sample(heads.epsilon_greedy_logits(values, epsilon, allowed), rng)


class Layout(NamedTuple):
    """What one step of all environments of an actor looks like.

    Attributes:
        observations: shape `[N, *shape]` and dtype; with a mask, `[N]` and a dtype of
            named parts.
        actions: shape `[N, ...]` and dtype.

    Example:
        >>> layout = Layout(((2, 3), np.dtype("float32")), ((2,), np.dtype("int64")))
        >>> layout.n_envs, layout.slots
        (2, 1024)
    """

    observations: tuple[tuple[int, ...], np.dtype]
    actions: tuple[tuple[int, ...], np.dtype]

    @property
    def n_envs(self) -> int:
        """Number of environments, N."""
        return self.observations[0][0]

    @property
    def columns(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """Shapes and dtypes of the columns of a `RowRing`, as `Columns` names them."""
        n = (self.n_envs,)
        return [
            self.observations,
            self.actions,
            (n, np.dtype(np.float32)),
            *[(n, np.dtype(bool))] * 3,
            self.observations,
            (n, np.dtype(np.float64)),
            (n, np.dtype(np.int64)),
            ((), np.dtype(np.int64)),
        ]

    @property
    def slots(self) -> int:
        """How many steps wait for the learner at most."""
        size = sum(math.prod(s) * dtype.itemsize for s, dtype in self.columns)
        low, high = _QUEUE_STEPS
        return min(max(_QUEUE_BYTES // size, low), high)


class Columns(NamedTuple):
    """The columns of a `RowRing` between an actor and its learner, `[slots, N, ...]`.

    Attributes:
        observations: what was seen before the action.
        actions: in the form the policy produced them.
        rewards: float32.
        terminated: bool, the episode truly ended.
        truncated: bool, the episode was cut off.
        valid: bool, False where an environment only reset itself.
        next_observations: the true successor.
        returns: float64, return of the episode so far.
        lengths: steps of the episode so far.
        versions: `[slots]`, of the weights that acted.

    Example:
        >>> layout = Layout(((2, 3), np.dtype("float32")), ((2,), np.dtype("int64")))
        >>> ring = shared_rows.RowRing(layout.columns, slots=4)
        >>> Columns(*ring.arrays).next_observations.shape
        (4, 2, 3)
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    next_observations: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    versions: np.ndarray


@dataclasses.dataclass
class Job:
    """What an actor is told.

    Attributes:
        make_env: a registered Gymnasium id, or a function that makes an environment or
            a vector of them.
        network: what acts, with any weights.
        act: function of the outputs `[N, n]`, a generator and the settings, that
            returns actions `[N, ...]`.
        to_env: from these to what the environments take, None where they are that.
        settings: names of the settings.
        weights: file descriptor of `SharedArrays`: the network's and the settings'.
        rows: file descriptor for a `RowRing`.
        seed: of the environments and the generator.
        masked: from the outputs and the mask in the observations to what `act` gets;
            None where there is no mask.

    Example:
        >>> network = networks.NumpyNetwork([], [], [])
        >>> job = Job("CartPole-v1", network, lambda outputs, rng: outputs.argmax(-1),
        ...           None, (), 3, 4, np.random.SeedSequence(0))
        >>> job.settings
        ()
    """

    make_env: str | Callable[[], Any]
    network: networks.NumpyNetwork
    act: Callable[..., Any]
    to_env: Callable[[Any], Any] | None
    settings: tuple[str, ...]
    weights: int
    rows: int
    seed: np.random.SeedSequence
    masked: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None


class Actor:
    """Plays the environments of a job, one step after the other.

    Args:
        job: what to do.

    Attributes:
        layout: of one step.

    Raises:
        TypeError: if the environment is none, or its observations are a nest other than
            of a mask and one array.
        ValueError: if the network takes other observations.

    Example:
        >>> network = networks.NumpyNetwork(
        ...     [np.ones((4, 2), "f")], [np.zeros(2, "f")], ["linear"])
        >>> weights = shared_rows.SharedArrays([*network.arrays(), np.zeros(0)])
        >>> memory = shared_rows.new_memory()
        >>> actor = Actor(Job(
        ...     "CartPole-v1", network, lambda outputs, rng: outputs.argmax(-1),
        ...     None, (), weights.fd, memory, np.random.SeedSequence(0)))
        >>> ring = actor.ring()
        >>> actor.step(ring), actor.step(ring), ring.waiting()
        (True, True, (0, 2))
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        seeds = job.seed.spawn(2)
        self._envs = _made(job.make_env)
        self._rng = np.random.default_rng(seeds[1])
        self._network = job.network.copy()
        self._settings = np.zeros(len(job.settings))
        self._mine = [*self._network.arrays(), self._settings]
        self._weights = shared_rows.SharedArrays(self._mine, fd=job.weights)
        self._version = self._weights.read(self._mine, known=-1)
        self._stepper = stepping.Stepper(self._envs, int(seeds[0].generate_state(1)[0]))
        _check_observations(self._seen()[0], self._network)
        seen = _packed(self._stepper.observations)
        actions = self._act(copy.deepcopy(self._rng))
        self.layout = Layout((seen.shape, seen.dtype), (actions.shape, actions.dtype))
        self._returns = np.zeros(len(seen))
        self._lengths = np.zeros(len(seen), np.int64)

    def ring(self) -> shared_rows.RowRing:
        """Returns the queue to the learner."""
        layout = self.layout
        return shared_rows.RowRing(layout.columns, layout.slots, fd=self._job.rows)

    def step(self, ring: shared_rows.RowRing) -> bool:
        """Plays one step in every environment, as soon as there is a free slot.

        Args:
            ring: where it is written.

        Returns:
            False if the ring is closed and nothing was played.
        """
        slot = ring.begin()
        if slot is None:
            return False
        row = Columns(*ring.arrays)
        self._version = self._weights.read(self._mine, self._version)
        actions = self._act(self._rng)
        row.versions[slot] = self._version
        # Before the step, which may overwrite what an environment has shown.
        row.observations[slot] = _packed(self._stepper.observations)
        row.actions[slot] = actions
        to_env = self._job.to_env
        outcome = self._stepper.step(actions if to_env is None else to_env(actions))
        for name, values in outcome._asdict().items():
            getattr(row, name)[slot] = _packed(values)
        self._returns += np.where(outcome.valid, outcome.rewards, 0.0)
        self._lengths += outcome.valid
        row.returns[slot] = self._returns
        row.lengths[slot] = self._lengths
        ended = outcome.terminated | outcome.truncated
        self._returns[ended] = self._lengths[ended] = 0
        ring.commit()
        return True

    def close(self) -> None:
        """Closes the environments."""
        self._envs.close()

    def _act(self, rng: np.random.Generator) -> np.ndarray:
        settings = dict(zip(self._job.settings, self._settings.tolist(), strict=True))
        seen, mask = self._seen()
        outputs = self._network(seen)
        if self._job.masked is not None:
            outputs = self._job.masked(outputs, mask != 0)
        return np.asarray(self._job.act(outputs, rng, **settings))

    def _seen(self) -> tuple[Any, Any]:
        """What the network sees, and the mask if there is one."""
        seen, name = self._stepper.observations, gym_checks.MASK
        if self._job.masked is None or not isinstance(seen, dict) or name not in seen:
            return seen, None
        rest = [part for key, part in seen.items() if key != name]
        return rest[0] if len(rest) == 1 else seen, seen[name]


def unpacked(rows: np.ndarray) -> Any:
    """Returns the parts of observations by name, or the one array they are.

    Args:
        rows: of a layout.

    Example:
        >>> unpacked(np.zeros(2, [("action_mask", "i1", (3,))]))["action_mask"].shape
        (2, 3)
    """
    names = rows.dtype.names
    return {name: rows[name] for name in names} if names else rows


def _packed(seen: Any) -> np.ndarray:
    """Observations as one array, parts of a dict as a dtype of names."""
    if not isinstance(seen, dict):
        return seen
    parts = [(key, part.dtype, part.shape[1:]) for key, part in sorted(seen.items())]
    rows = np.empty(len(next(iter(seen.values()))), parts)
    for key, part in seen.items():
        rows[key] = part
    return rows


def play(send: Callable[[Any], None], job: Job) -> None:
    """Does a job until the learner closes the queue.

    Args:
        send: gets the `Layout` first.
        job: what to do.

    Raises:
        ImportError: if something in the job wants TensorFlow.

    Example:
        >>> network = networks.NumpyNetwork(
        ...     [np.ones((4, 2), "f")], [np.zeros(2, "f")], ["linear"])
        >>> weights = shared_rows.SharedArrays([*network.arrays(), np.zeros(0)])
        >>> memory = shared_rows.new_memory()
        >>> def send(layout):
        ...     shared_rows.RowRing(layout.columns, layout.slots, memory).close()
        >>> play(send, Job(
        ...     "CartPole-v1", network, lambda outputs, rng: outputs.argmax(-1),
        ...     None, (), weights.fd, memory, np.random.SeedSequence(0)))
    """
    actor = Actor(job)
    ring = actor.ring()
    send(actor.layout)
    while actor.step(ring):
        pass
    actor.close()


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


def _check_observations(seen: Any, network: networks.NumpyNetwork) -> None:
    if not isinstance(seen, np.ndarray):
        raise TypeError(
            "`Actors`: `make_env` expected observations that are one array; got a "
            f"{type(seen).__name__}; wrap it in gymnasium.wrappers.FlattenObservation"
        )
    width, expected = math.prod(seen.shape[1:]), network.kernels[0].shape[0]
    if width != expected:
        raise ValueError(
            f"`Actors`: `make_env` expected observations of {expected} numbers, as "
            f"`policy` takes; got {width}, of shape {list(seen.shape[1:])}; make the "
            "environment that the policy is for"
        )
