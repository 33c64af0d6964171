"""What one call of a run in a graph computes, kept for the runs that follow."""

import functools
import types
from collections.abc import Callable, Hashable
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl.agents import carrying, replicated
from tfrl.core import pytree, random
from tfrl.environments.compiled import protocol, wrappers
from tfrl.policies import feedforward
from tfrl.schedules import progress as progresses
from tfrl.training import _minibatches, cadence
from tfrl.training import experience as experiences
from tfrl.training.collecting import _device_goals, _rollouts

# Rewards of so many steps are brought back by one call at most, of so many epochs.
_STEPS_PER_CALL, _EPOCHS_PER_CALL = 2**20, 64
# Numbers that an update informs about, at most.
_N_FACTS = 64
# Programs that are kept, of those used last.
_N_KEPT = 16
_kept: dict[Hashable, Any] = {}
# Whose classes and functions compute the same at any time.
_OURS = ("builtins", "functools", "gymnasium", "keras", "numpy", "tensorflow", "tfrl")


class Facts(pytree.PyTreeNode):
    """What updates informed about.

    Attributes:
        numbers: `[M, 64]`, of M epochs; the first ones have names.
        names: of the columns.
    """

    numbers: Any
    names: tuple[str, ...] = pytree.nonpytree_field()


class Program:
    """Plays and learns within a graph. It holds nothing of a run.

    Args:
        env: which resets itself.
        learned: `Trajectories` or `Replayed`.
        n_envs: copies that are played.
        where: whose run it is, for messages.

    Attributes:
        most_epochs: of one call.
        specs: of what `played` returns of the epochs.
        play: `played`, compiled; of several replicas in scope, who cannot meet within
            XLA, a `tf.function`.
    """

    def __init__(
        self,
        env: protocol.CompiledEnv,
        learned: Any,
        n_envs: int,
        where: str,
    ) -> None:
        self._env, self._learned, self._n_envs = env, learned, n_envs
        self._where, self._relabelling = where, None
        if getattr(learned, "relabel", None) is not None:
            self._relabelling = _device_goals.Relabelling(
                env.compute_reward, learned.relabel_ratio, learned.relabel
            )
        self.shape = learned.n_steps, n_envs
        most = _STEPS_PER_CALL // (learned.n_steps * n_envs)
        self.most_epochs = max(1, min(_EPOCHS_PER_CALL, most))
        rows = self.most_epochs, *self.shape
        kinds = self.most_epochs, len(_rollouts.kinds_of(env)), *self.shape
        self.specs = [tf.TensorSpec(kinds, tf.float32), tf.TensorSpec(rows, tf.bool)]
        self.specs += [tf.TensorSpec([self.most_epochs, _N_FACTS], tf.float32)]
        self.play: Callable[..., Any]
        if replicated.n_replicas() > 1:
            self.play = tf.function(self.played, autograph=False)
        else:
            self.play = replicated.compiled_update(self.played)

    @functools.cached_property
    def play_members(self) -> Callable[..., Any]:
        """What `played` does for each of several agents in turn, compiled.

        Agents, episodes, keys and settings have a leading axis, as has what is returned
        beside the names of facts.
        """

        def played(
            members: Any,
            episodes: Any,
            keys: Any,
            settings: dict[str, tf.Tensor],
            first: tf.Tensor,
            end: tf.Tensor,
            total: tf.Tensor,
        ) -> tuple:
            stacked = members, episodes, keys, settings
            forms: list[tuple] = []

            def one(i: Any) -> Any:
                agent, begun, key, own = tf.nest.map_structure(lambda x: x[i], stacked)
                given = agent, begun, key, first, end, total, own or None
                packed, *found = self.played(*given)
                forms[:] = [(carrying.unpacked(packed), *found)]
                return tf.nest.flatten(forms[0])

            begun = tf.nest.flatten((members, episodes))
            specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in begun] + self.specs
            scope = tf.compat.v1.get_variable_scope()
            device = scope.caching_device
            try:
                each = tf.range(keys.shape[0])
                leaves = tf.map_fn(one, each, fn_output_signature=specs)
            finally:  # `map_fn` forgets to, and strategies refuse to begin
                scope.set_caching_device(device)
            made: tuple = tf.nest.pack_sequence_as(forms[0], leaves)
            return made

        return replicated.compiled_update(played)

    def played(
        self,
        agent: Any,
        begun: _rollouts.Episodes,
        key: Any,
        first: Any,
        end: Any,
        total: Any,
        settings: dict[str, tf.Tensor] | None = None,
        read: set[str] | None = None,
    ) -> tuple:
        """Plays and learns, in a graph.

        Args:
            agent: what learns, also as `carrying.packed` returns it.
            begun: the episodes that go on.
            key: int32 `[2]`, of all draws of the run.
            first: number of the first epoch.
            end: number after the last one.
            total: of epochs of the run.
            settings: numbers by name, in the place of those of the agent's `config`.
            read: with them, gets the names of the settings that updates read.

        Returns:
            The agent, packed, and episodes after them; of each epoch the numbers
            `[M, K, T, N]` of `_rollouts.numbers_of`, ends `[M, T, N]`, and `Facts`.
        """
        shape, steps = self.shape, self.shape[0] * self.shape[1]
        names: list[str] = []

        def epoch(
            i: Any, carried: Any, begun: _rollouts.Episodes, *columns: Any
        ) -> tuple:
            agent = carrying.unpacked(carried)
            seeds = random.split_seed(key + tf.stack([0, i]), 2)
            done = progresses.Progress(
                tf.cast(i, tf.float32) / total, i, *[i * steps] * 2
            )
            begun, trajectory = _rollouts.shared_rollout(
                agent.policy, self._env, begun, seeds[0], shape[0]
            )

            def update(agent: Any, experience: Any) -> tuple[Any, dict[str, Any]]:
                learner = _with(agent, settings, read)
                learned, info = _rollouts.traced_update(
                    learner, experience, self._where
                )
                if settings is not None:
                    learned = learned.replace(config=agent.config)
                names[:] = [name for name in info if name != "priorities"]
                return carrying.packed(learned), info

            with progresses.progress_context(done):
                if isinstance(self._learned, experiences.Trajectories):
                    carried, info = update(agent, trajectory)
                    facts = self._row(info)
                else:
                    carried, begun, facts = self._learned_from_replay(
                        carried, begun, trajectory, seeds[1], update
                    )
            ended = trajectory.terminated | trajectory.truncated
            found = _rollouts.numbers_of(trajectory, self._env), ended, facts
            written = [
                column.write(i - first, x)
                for column, x in zip(columns, found, strict=True)
            ]
            return i + 1, carried, begun, *written

        columns = [
            tf.TensorArray(x.dtype, self.most_epochs, element_shape=x.shape[1:])
            for x in self.specs
        ]
        _, agent, begun, *columns = tf.while_loop(
            lambda i, *_: i < end,
            epoch,
            (first, carrying.packed(agent), _rollouts.shared(begun), *columns),
        )
        found, ended, facts = (column.stack() for column in columns)
        begun = _rollouts.gathered(begun)
        return agent, begun, found, ended, Facts(facts, tuple(names))

    def _learned_from_replay(
        self,
        carried: Any,
        begun: _rollouts.Episodes,
        trajectory: Any,
        seed: Any,
        update: Any,
    ) -> tuple[Any, _rollouts.Episodes, tf.Tensor]:
        """One update by draws of the replay, to which is added what was collected."""
        learned, n_envs = self._learned, self.shape[1]
        replay = begun.replay.extended(trajectory, learned.alpha)

        def learn() -> tuple[Any, tf.Tensor, Any]:
            count = learned.n_gradient_steps(n_envs)
            drawn = replay.drawn(seed, count, learned, self._relabelling)
            # What is unpacked where it is packed again costs nothing.
            after, info = update(carrying.unpacked(carried), drawn)
            return after, self._row(info), self._prioritized(replay, drawn, info)

        after, facts, priorities = tf.cond(
            replay.count * n_envs >= learned.learning_starts,
            learn,
            lambda: (carried, tf.fill([_N_FACTS], np.nan), replay.priorities),
        )
        replay = replay._replace(priorities=priorities)
        return after, begun.replace(replay=replay), facts

    def _prioritized(self, replay: Any, drawn: Any, info: dict[str, Any]) -> Any:
        """The priorities after an update, as the agent says; `()` if there are none."""
        if not replay.priorities:
            return ()
        where, found = f"`{self._where}`: `experience`", info.get("priorities")
        _minibatches.check_priorities(where, found, drawn.indices.shape)
        rows, found = (tf.reshape(x, [-1]) for x in (drawn.indices, found))
        return replay.priorities.updated(rows, found, self._learned.alpha)

    def _row(self, info: dict[str, Any]) -> tf.Tensor:
        """The scalars of an info, `[64]`."""
        scalars = {name: x for name, x in info.items() if name != "priorities"}
        if len(scalars) > _N_FACTS:
            raise ValueError(
                f"`{self._where}`: `agent` expected updates that inform of {_N_FACTS} "
                f"numbers at most, to be collected in a graph; got {[*scalars]}"
            )
        for name, x in scalars.items():
            cadence.check_scalar(self._where, name, x)
        numbers = [tf.cast(x, tf.float32) for x in scalars.values()]
        return tf.stack([*numbers, *[0.0] * (_N_FACTS - len(scalars))])


def _with(agent: Any, settings: Any, read: set[str] | None) -> Any:
    """The agent with tensors among its settings; notes which settings are read."""
    if settings is None:
        return agent
    noted = set() if read is None else read

    class Settings(type(agent.config)):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            noted.add(name)
            if name in settings:
                return settings[name]
            return super().__getattribute__(name)

    Settings.__name__ = type(agent.config).__name__
    config = object.__new__(Settings)
    config.__dict__.update(agent.config.__dict__)
    return agent.replace(config=config)


def kept(
    make: Callable[..., Any], whose: Any, env: protocol.CompiledEnv, *given: Any
) -> Any:
    """Returns `make(env, *given)`, of equal arguments the same one.

    So the runs of a process compile what they play and learn once. Agents, networks,
    environments and what else is given must be of tfrl, with plain settings: of others
    nobody knows what they read while they are traced. Several replicas share nothing.

    Args:
        make: a class or function of what holds nothing of a run.
        whose: the agent or policy that it is to be called with.
        env: the environment, which stays as it is.
        *given: hashable arguments; with one that is not, nothing is kept.
    """
    if replicated.n_replicas() > 1 or not _is_ours([whose, given], set()):
        return make(env, *given)
    try:
        key = make, _settings_of(env), *given
        hash(key)
    except TypeError:
        return make(env, *given)
    found = _kept.pop(key, None) or make(env, *given)
    _kept[key] = found
    while len(_kept) > _N_KEPT:
        del _kept[next(iter(_kept))]
    return found


def _is_ours(value: Any, known: set[int]) -> bool:
    """Whether nothing in an agent, say, is of anybody but tfrl and its libraries."""
    if id(value) in known or tf.is_tensor(value):
        return True
    known.add(id(value))
    if isinstance(value, keras.layers.Layer):
        return feedforward.architecture_of(value) is not None
    is_named = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
    room = getattr(value if is_named else type(value), "__module__", None) or ""
    if room.partition(".")[0] not in _OURS:
        return False
    if isinstance(value, types.FunctionType):
        parts = [cell.cell_contents for cell in value.__closure__ or ()]
    elif isinstance(value, functools.partial):
        parts = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, dict):
        parts = [*value.values()]
    elif isinstance(value, list | tuple):
        parts = [*value]
    else:
        parts = [*vars(value).values()] if room.startswith("tfrl.") else []
    return all(_is_ours(part, known) for part in parts)


def _settings_of(env: protocol.CompiledEnv) -> Hashable:
    """What tells environments of tfrl apart; a TypeError if one within is another's."""
    settings = []
    for layer in wrappers.layers(env):
        if not type(layer).__module__.startswith("tfrl."):
            raise TypeError(f"{type(layer).__name__} is none of tfrl's")
        # Spaces follow from the rest, but for the generators that they draw by.
        apart = gym.Space, protocol.CompiledEnv
        own = {k: x for k, x in vars(layer).items() if not isinstance(x, apart)}
        settings.append((type(layer), _plain(own)))
    return tuple(settings)


def _plain(value: Any) -> Hashable:
    """Numbers, texts and nests of them, in a form to be compared; else a TypeError."""
    if isinstance(value, dict):
        return tuple([(name, _plain(x)) for name, x in value.items()])
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_plain, value))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype, value.shape, value.tobytes()
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return type(value), value
    raise TypeError(f"a {type(value).__name__} may be read in many ways")
