"""Processes that play environments without TensorFlow, and feed a replay buffer."""

import functools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import gymnasium as gym
import keras
import numpy as np

from tfrl._internal import acting, checks, gym_checks, registered_envs
from tfrl.core import records
from tfrl.host import networks, shared_rows
from tfrl.policies import host_policy, network_policy
from tfrl.replay import episodes, ring_buffer
from tfrl.training.collecting import _actor_policies, _actor_processes, _delivery

# Few large pieces cost less than many small ones; half a queue is soon enough.
_PAUSES = 5e-4, 1e-2
_BETWEEN_CHECKS = 0.05


class _Source(NamedTuple):
    """One actor, as the learner sees it.

    Attributes:
        actor: an `ActorProcess` that plays.
        env_ids: `[N]`, the numbers of its environments among all.
    """

    actor: Any
    env_ids: np.ndarray


class _Intake:
    """A thread that takes rows from actors and hands them on.

    Args:
        sources: the actors.
        deliver: called with a `Trajectory` `[T, N, ...]` of one actor, which is
            overwritten afterwards, and with the numbers of its environments.

    Attributes:
        env_steps: `[n_actors]` steps of experience so far.
        versions: `[n_actors]` versions of the weights in the last rows.
        episode_returns: of the last 100 finished episodes.
        episode_lengths: their lengths in steps.
        changed: notified when rows came or all is over; hold it to read the numbers.
    """

    def __init__(self, sources: list[_Source], deliver: _delivery.Deliver) -> None:
        self._sources, self._deliver = sources, deliver
        self.env_steps = np.zeros(len(sources), np.int64)
        self.versions = np.zeros(len(sources), np.int64)
        self.episode_returns: deque[float] = deque(maxlen=100)
        self.episode_lengths: deque[int] = deque(maxlen=100)
        self.changed = threading.Condition()
        self._fill = 0.0  # of the fullest queue, when it was last emptied
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="tfrl-actors", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raises what went wrong, in an actor or with its rows, if anything did."""
        if isinstance(self._failure, acting.ActorFailed):
            raise acting.ActorFailed(str(self._failure))
        if self._failure is not None:
            raise RuntimeError(str(self._failure)) from self._failure

    def stop(self) -> None:
        """Ends the actors and takes what they still sent."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:  # as a finalizer may be
            self._thread.join()
        self._end_all()
        try:
            while self._failure is None and self._take_all():
                pass
        except Exception as error:  # as in the thread: for `check`
            self._failure = error

    def _run(self) -> None:
        try:
            checked, pause = time.monotonic(), _PAUSES[0]
            while not self._stopping.wait(pause):
                self._take_all()
                pause *= 0.5 if self._fill > 0.5 else 1.25
                pause = min(max(pause, _PAUSES[0]), _PAUSES[1])
                if time.monotonic() - checked > _BETWEEN_CHECKS:
                    self._check_processes()
                    checked = time.monotonic()
        except BaseException as error:
            self._failure = error
            self._end_all(patience=0.0)
        with self.changed:
            self.changed.notify_all()

    def _end_all(self, patience: float = _actor_processes.PATIENCE_SECONDS) -> None:
        _actor_processes.stop_all([source.actor for source in self._sources], patience)

    def _check_processes(self) -> None:
        for number, source in enumerate(self._sources):
            try:
                source.actor.check()
            except RuntimeError:
                # What it wrote before is as good as ever.
                while self._take(number):
                    pass
                raise

    def _take_all(self) -> int:
        self._fill = 0.0
        return sum(self._take(number) for number in range(len(self._sources)))

    def _take(self, number: int) -> int:
        source = self._sources[number]
        ring = source.actor.ring
        first, count = ring.waiting()
        if not count:
            return 0
        self._fill = max(self._fill, count / ring.slots)
        # Pieces of one step each.
        given = [x[first : first + count] for x in ring.arrays]
        *steps, versions, seconds = given
        rows = source.actor.layout.unpacked(
            [*(x[:, 0] for x in steps), versions, seconds]
        )
        where = f"Actors`: actor {number}: `make_env"
        for name in ("next_observations", "observations", "rewards"):
            gym_checks.check_numbers(where, name, getattr(rows, name), np.float32)
        known = {*records.Trajectory._fields} & {*rows._fields}
        trajectory = records.Trajectory(**{name: getattr(rows, name) for name in known})
        self._deliver(trajectory, source.env_ids)
        ended = (rows.terminated | rows.truncated) & rows.valid
        with self.changed:
            self.env_steps[number] += int(rows.valid.sum())
            self.versions[number] = rows.version[-1]
            self.episode_returns.extend(rows.returns[ended].tolist())
            self.episode_lengths.extend(rows.lengths[ended].tolist())
            self.changed.notify_all()
        ring.release(count)
        return count


class Actors:
    """Plays environments in separate processes and keeps what happens.

    Each actor is a Python process with NumPy and Gymnasium, of some 40 MB, that acts
    with a NumPy copy of the policy in its own environments. Its steps come through
    shared memory to a thread of this process, which adds them to `store`; `push` gives
    all actors new weights, as a whole or not at all. Actors play as fast as they can,
    and wait where the store does not keep up. What an actor plays until the next `push`
    depends only on `seed` and its number.

    An error in an actor, or its death, ends all actors and is raised by the next call
    to anything here, with the traceback of the actor. After `close`, a `with` block, an
    error or the end of this process, killed or not, neither processes nor shared memory
    are left.

    Actors do not run the main script, which needs no `if __name__ == "__main__":`.
    Functions of the main script or of a notebook are sent to them; others are imported
    by name, from files that do not import TensorFlow, such as `functools.partial` of
    `tfrl.environments.make_vec`.

    Args:
        make_env: a registered Gymnasium id, or a function without arguments that makes
            an environment or a vector environment, in any autoreset mode. Observations
            are one array, or a dict of an array and an `"action_mask"`.
        policy: a policy of `tfrl.policies` over flat observations, beside an
            `"action_mask"` or without one; or a built `keras.Sequential` of dense
            layers. Activations are tanh, relu or linear.
        store: where rows go. An `EpisodeStore`, from which `UniformReplay` and
            `PrioritizedReplay` draw, or a `RingBuffer`, with one environment for each
            of the `n_actors * N`; a `DataBuffer`; or a function of a `Trajectory`
            `[T, N, ...]` of NumPy arrays of one actor and of the numbers `[N]` of its
            environments. Rows of a buffer are a named tuple or a dict of some of the
            fields of a `Trajectory` and `discounts`, for instance a `Transition`.
        n_actors: number of processes.
        act: function of the network's outputs `[N, n]`, a `np.random.Generator` and
            the settings by name, that returns the actions `[N, ...]` for the
            environments. Needed for a Keras network; a policy draws from its head,
            epsilon-greedily for action values.
        settings: numbers for `act` that `push` can change. The `epsilon` or `noise`
            by which a policy explores is one, by that name.
        gamma: of `discounts`, `gamma * (1 - terminated)`.
        seed: of environments and generators; each actor has its own streams.

    Raises:
        RuntimeError: if an actor fails to start.
        TypeError: if an argument is none of these or cannot be pickled.
        ValueError: if a number is out of range, or policy, store and environment do
            not fit each other.

    Example:
        >>> network = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> spec = tfrl.core.Transition(
        ...     tf.TensorSpec([4]), tf.TensorSpec([], tf.int64), tf.TensorSpec([]),
        ...     tf.TensorSpec([]), tf.TensorSpec([4]))
        >>> replay = tfrl.replay.DataBuffer(spec, capacity=1000, seed=0)
        >>> def act(q_values, rng, epsilon):
        ...     chance = rng.random(len(q_values)) < epsilon
        ...     return np.where(chance, rng.integers(2, size=len(q_values)),
        ...                     q_values.argmax(-1))
        >>> optimizer = keras.optimizers.Adam(0.01)
        >>> with Actors("CartPole-v1", network, replay, n_actors=1, act=act,
        ...             settings={"epsilon": 1.0}) as actors:
        ...     arrived = actors.wait_for(100)
        ...     for _ in range(3):
        ...         batch = tf.nest.map_structure(
        ...             tf.convert_to_tensor, replay.get_batch(32))
        ...         best = tf.reduce_max(network(batch.next_observations), axis=-1)
        ...         with tf.GradientTape() as tape:
        ...             q_values = tf.gather(
        ...                 network(batch.observations), batch.actions, batch_dims=1)
        ...             errors = batch.rewards + batch.discounts * best - q_values
        ...             loss = tf.reduce_mean(errors ** 2)
        ...         variables = network.trainable_variables
        ...         optimizer.apply(tape.gradient(loss, variables), variables)
        ...         version = actors.push(network, epsilon=0.5)
        >>> version, int(replay.current_size) >= 100
        (3, True)
    """

    def __init__(
        self,
        make_env: str | Callable[[], Any],
        policy: network_policy.NetworkPolicy | keras.Sequential,
        store: Any,
        n_actors: int = 4,
        act: Callable[..., Any] | None = None,
        settings: Mapping[str, float] | None = None,
        gamma: float = 0.99,
        seed: int = 0,
    ) -> None:
        where = "Actors"
        _check_callables(make_env, store, act)
        checks.check_whole_number(where, "n_actors", n_actors, low=1)
        checks.check_whole_number(where, "seed", seed, low=0)
        checks.check_within(where, "gamma", gamma, 0, 1)
        network = _network(where, policy)
        self._is_own = act is None
        if act is None:
            _check_is_policy(policy)
            played = _actor_policies.numpy_acting(policy, network)
        else:
            played = acting.NetworkActing(network, act)
        played.settings = {**({} if settings is None else settings), **played.settings}
        for value in played.settings.values():
            checks.check_finite(where, "settings", value)
        self._settings = played.settings
        self._pushing = threading.Lock()
        self._weights = shared_rows.SharedArrays(self._numbers(network))
        streams = np.random.SeedSequence(seed).spawn(n_actors)
        if isinstance(make_env, str):
            known = registered_envs.registration(make_env)
            made = functools.partial(gym.make, make_env)
            make_env = functools.partial(registered_envs.made_after, [], known, made)
        sources = _started(
            [
                acting.Job(
                    make_env, played, x, self._weights.fd, shared_rows.new_memory()
                )
                for x in streams
            ]
        )
        try:
            n_envs = sum(len(source.env_ids) for source in sources)
            deliver = _delivery.deliver_to(store, n_envs, float(gamma))
            self._intake = _Intake(sources, deliver)
        except BaseException:
            _actor_processes.stop_all([source.actor for source in sources])
            raise
        # Also when this object is forgotten, and at the end of the process.
        self._stop = weakref.finalize(self, _stop, self._intake, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        self._stop()

    @property
    def env_steps(self) -> int:
        """Steps of experience so far that are in the store, over all actors."""
        return int(self.env_steps_by_actor.sum())

    @property
    def env_steps_by_actor(self) -> np.ndarray:
        """The same for each actor, int64 `[n_actors]`."""
        return self._read(lambda intake: intake.env_steps.copy())

    @property
    def versions(self) -> np.ndarray:
        """Versions of the weights in each actor's last step, int64 `[n_actors]`.

        0 at the start, then what `push` returned.
        """
        return self._read(lambda intake: intake.versions.copy())

    @property
    def episode_returns(self) -> list[float]:
        """Undiscounted returns of the last 100 finished episodes."""
        return self._read(lambda intake: [*intake.episode_returns])

    @property
    def episode_lengths(self) -> list[int]:
        """Their lengths in steps."""
        return self._read(lambda intake: [*intake.episode_lengths])

    def push(self, policy: Any, **settings: Any) -> int:
        """Gives the actors new weights, for their next steps.

        Args:
            policy: of the same architecture.
            **settings: those that change.

        Returns:
            The version of these weights, 1 for the first.

        Raises:
            RuntimeError: if an actor failed, or all is closed.
            TypeError: if `policy` is not one.
            ValueError: if a setting is not known, a number is not finite, or the
                architecture is another.
        """
        where = "Actors.push"
        self._check()
        network = _network(where, policy)
        unknown = sorted({*settings} - {*self._settings})
        if unknown:
            raise ValueError(
                f"`{where}`: `settings` expected among {sorted(self._settings)}; got "
                f"{unknown}; give them a value when the actors are made"
            )
        for name, value in settings.items():
            checks.check_finite(where, "settings", value)
            # Of what is one for each dimension, a number is all of them.
            settings[name] = np.broadcast_to(value, np.shape(self._settings[name]))
        for array in network.arrays():
            if not np.isfinite(array).all():
                raise ValueError(
                    f"`{where}`: `policy` expected finite weights; got NaN or "
                    "infinity; lower the learning rate"
                )
        own = policy.host_draw()[1] if self._is_own else {}
        with self._pushing:
            self._settings.update({**own, **settings})
            return self._weights.write(self._numbers(network))

    def wait_for(self, env_steps: int, timeout: float | None = None) -> bool:
        """Waits until that many steps are in the store.

        Args:
            env_steps: over all actors, since they started.
            timeout: seconds to wait; None for as long as it takes.

        Returns:
            Whether they are there.

        Raises:
            RuntimeError: if an actor failed, or all is closed.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.env_steps < env_steps:
            self._check()
            if end is not None and time.monotonic() > end:
                return False
            with self._intake.changed:
                self._intake.changed.wait(0.1)
        return True

    def close(self) -> None:
        """Ends the actors, and stores what they played until then.

        Actors that do not end within 2 seconds are killed.

        Raises:
            RuntimeError: if an actor failed before.
        """
        self._stop()
        self._intake.check()

    def _check(self) -> None:
        self._intake.check()
        if not self._stop.alive:
            raise RuntimeError("`Actors`: expected actors that play; got closed ones")

    def _read(self, reader: Callable[[_Intake], Any]) -> Any:
        self._intake.check()
        with self._intake.changed:
            return reader(self._intake)

    def _numbers(self, network: networks.NumpyNetwork) -> list[np.ndarray]:
        values = (np.array(x, np.float64) for x in self._settings.values())
        return [*network.arrays(), *values]


def _stop(intake: _Intake, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        intake.stop()


def _check_callables(make_env: Any, store: Any, act: Any) -> None:
    stores = episodes.EpisodeStore, ring_buffer.RingBuffer
    for name, value, other, wanted in (
        ("make_env", make_env, str, "a Gymnasium id or a function that makes an env"),
        ("store", store, stores, "an EpisodeStore, RingBuffer, DataBuffer or function"),
        ("act", act, type(None), "a function of outputs and a generator, or None"),
    ):
        if not (isinstance(value, other) or callable(value)):
            raise TypeError(
                f"`Actors`: `{name}` expected {wanted}; got {type(value).__name__}"
            )


def _network(where: str, policy: Any) -> networks.NumpyNetwork:
    network = host_policy.unmasked_copy(policy)
    if network is None:
        raise ValueError(
            f"`{where}`: `policy` expected float32 dense layers with tanh, relu or "
            "linear activations over one flat observation; got others; play them in "
            "this process, by a Collector"
        )
    return network


def _check_is_policy(policy: Any) -> None:
    """Raises a TypeError unless it knows how actions are drawn."""
    if not hasattr(policy, "host_draw"):
        raise TypeError(
            "`Actors`: `act` expected a function, which a network needs; got None"
        )


def _started(jobs: list[acting.Job]) -> list[_Source]:
    """Starts a process for each job and returns when all play."""
    actors: list[_actor_processes.ActorProcess] = []
    try:
        for number, job in enumerate(jobs):
            actors.append(
                _actor_processes.ActorProcess(number, job, without=["tensorflow"])
            )
        for actor in actors:
            actor.begun(timeout=None)
    except BaseException:
        for actor in actors:
            actor.stop(0.0)
        for job in jobs[len(actors) + 1 :]:
            os.close(job.rows)
        raise
    counts = [actor.layout.n_envs for actor in actors]
    ids = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    return [_Source(actor, own) for actor, own in zip(actors, ids, strict=True)]
