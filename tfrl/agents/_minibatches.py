"""How agents learn from minibatches: those of a replay, and those of a data set."""

import math
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from tfrl.agents import _raw_actions, agent, replicated, train_state
from tfrl.core import pytree, records
from tfrl.replay.sampling import transitions
from tfrl.schedules import progress as progresses

_MADE_OF_ROWS = (
    "of rows make one by `tfrl.replay.Sample(tfrl.core.Transition(...), None, weights, "
    "weights)`, its actions raw, or train by `Trainer` and `FromDataset`, which do so"
)
# Numbers of each row, or of each step of it, in whichever record has them.
_COLUMNS = ("rewards", "discounts", "terminated", "truncated", "valid")


class MinibatchAgent(pytree.PyTreeNode):
    """Base class of agents that take a gradient step on each of K minibatches.

    A subclass says what a step is:

        carry = agent._begin(hyper)
        for k in range(K):
            carry, info, errors = agent._step(carry, rows[k], weights[k])
        agent = agent._end(carry, hyper)

    all within one compiled function. The carry is a nest, its `ReplicatedState`s the
    networks that learn; `rows` and `weights` are those of the global batch. Draws of a
    step are made of the global batch too, from a seed of the agent and the number of
    the step, so that neither the replicas nor the calls that share the steps count.

    Attributes:
        policy: what acts, a policy of `tfrl.policies`.
        config: the hyper-parameters.
    """

    policy: Any
    config: Any = pytree.nonpytree_field()

    # Settings that may be schedules; means over the steps that the info has beside.
    _scheduled: ClassVar[tuple[str, ...]] = ("learning_rate",)
    _measured: ClassVar[tuple[str, ...]] = ("loss",)
    # Whether `_step` returns errors `[B]`, the priorities of its rows.
    _has_priorities: ClassVar[bool] = True
    # What a sample is of: transitions, or sequences of steps.
    _record: ClassVar[type[records.Transition | records.Trajectory]] = (
        records.Transition
    )

    def update(
        self,
        sample: transitions.Sample,
        *,
        progress: progresses.Progress | None = None,
    ) -> tuple[Self, dict]:
        """Takes a gradient step on each of K minibatches, in one compiled call.

        What takes longer than a fraction of a second is several calls alike, between
        which Python takes notice of signals.

        Args:
            sample: of `tfrl.core.Transition`s, `[K, B, ...]` or `[B, ...]`, or, where
                sequences are learned from, of `tfrl.core.Trajectory`s of T steps each,
                `[K, B, T, ...]` or `[B, T, ...]`; actions are the raw ones of the
                policy's head. Keep these sizes, since others are compiled anew.
            progress: what hyper-parameters that are schedules follow; that in context
                if None.

        Returns:
            The new agent, and an info: float32 scalars, means over the steps, and
            `priorities`, absolute errors `[K, B]` (or `[B]`) before each step, of
            agents that know any.

        Raises:
            TypeError: if `sample` is something else, or choices are no integers.
            ValueError: if its parts differ in K or B, one of these is 0, or the
                replicas cannot share B rows evenly; if an action is none of the choices
                0, 1, ... that there are (of arrays on the host).
        """
        where = f"{type(self.config).__name__}.update"
        data, weights = self._given(where, sample)
        _raw_actions.check(where, "sample", self.policy.head, data.actions)
        replicated.check_rows(where, "batch_size", weights.shape[-1])
        step = self.policy.state.step
        hyper = agent.settings_at(self.config, progress, self._scheduled, step)
        rank = len(weights.shape)
        if rank == 1:
            data, weights = tf.nest.map_structure(lambda x: x[None], (data, weights))
        learned = self._lent()
        if self.policy.observation_moments:
            counts = getattr(data, "valid", np.ones(weights.shape, np.float32))
            seen = data.observations, counts
            learned = replicated.run_update(_compiled_seeing, learned, *seen)
        n_steps = weights.shape[0]
        work = replicated.Work(learned, n_steps, math.prod(data.rewards.shape[1:]))
        size = work.n_piece_steps if tf.executing_eagerly() else n_steps
        infos, priorities = [], []
        for start in range(0, n_steps, size):
            part = tf.nest.map_structure(
                lambda x, start=start: x[start : start + size], (data, weights)
            )
            learned, info, errors = replicated.run_update(
                _compiled_update, learned, *part, hyper
            )
            infos.append(info)
            priorities.append(errors)
        info = {name: sum(x[name] for x in infos) / len(infos) for name in infos[0]}
        info |= hyper
        if self._has_priorities:
            errors = priorities[0] if len(infos) == 1 else tf.concat(priorities, 0)
            info["priorities"] = errors if rank == 2 else errors[0]
        return learned._returned(self), info

    def _given(self, where: str, sample: Any) -> tuple[Any, Any]:
        """Returns what is learned from of a sample, checked, and its weights."""
        return checked(where, sample, self._record)

    def _begin(self, hyper: dict[str, tf.Tensor]) -> Any:
        """Returns what the steps carry."""
        raise NotImplementedError

    def _step(
        self, carry: Any, rows: Any, weights: tf.Tensor
    ) -> tuple[Any, dict[str, tf.Tensor], Any]:
        """Takes one step; returns the carry, what `_measured` names, and errors."""
        raise NotImplementedError

    def _end(self, carry: Any, hyper: dict[str, tf.Tensor]) -> Self:
        """Returns the agent after the last step."""
        raise NotImplementedError

    def _lent(self) -> Self:
        """The agent on the networks that compiled functions know."""
        return self.replace(**{name: x.lent() for name, x in self._networks().items()})

    def _returned(self, owner: Self) -> Self:
        """What was `_lent`, on the networks of its owner."""
        before = owner._networks()
        return self.replace(
            **{name: x.returned(before[name]) for name, x in self._networks().items()}
        )

    def _networks(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if hasattr(x, "lent")}


def checked(where: str, sample: Any, record: Any = records.Transition) -> Any:
    """Returns the data and weights of a sample.

    Args:
        where: the asking function, for the message.
        sample: what an agent was given.
        record: what it is to be of, `Transition` or `Trajectory`.

    Raises: as of `MinibatchAgent.update`.
    """
    data = getattr(sample, "data", None)
    if not isinstance(sample, transitions.Sample) or not isinstance(data, record):
        kind, cure = "Trajectories", ""
        if record is records.Transition:
            kind, cure = "Transitions", f"; {_MADE_OF_ROWS}"
        raise TypeError(
            f"`{where}`: `sample` expected a Sample of {kind}, such as a replay "
            f"draws; got {type(sample).__name__}"
            + ("" if data is None else f" of {type(data).__name__}")
            + cure
        )
    given = {name: getattr(data, name) for name in _COLUMNS if hasattr(data, name)}
    given["weights"] = sample.weights
    columns = {
        name: x if tf.is_tensor(x) else np.asarray(x) for name, x in given.items()
    }
    shapes = {name: tuple(x.shape) for name, x in columns.items()}
    whole = outer = shapes["rewards"]
    sizes = "[B] or [K, B]"
    if record is records.Trajectory:
        outer, sizes = whole[:-1], f"{sizes} with T behind, but for weights"
    for x in tf.nest.flatten(data.actions):
        shapes.setdefault("actions", tuple(np.shape(x))[: len(whole)])
    weights = columns.pop("weights")
    fits = all(shapes[name] == whole for name in ("actions", *columns))
    if not fits or shapes["weights"] != outer or len(outer) not in (1, 2):
        told = ", ".join(("actions", *columns))
        raise ValueError(
            f"`{where}`: `sample` expected {told} and weights of one shape, {sizes}; "
            f"got {shapes}"
        )
    if 0 in whole:
        raise ValueError(
            f"`{where}`: `sample` expected a row at least; got {shapes['weights']}"
        )
    return data._replace(**columns), weights


def begun(state: train_state.TrainState, rate: Any) -> replicated.ReplicatedState:
    """Returns a network that learns at a rate, for the carry of the steps."""
    state = train_state.with_rate(state, rate)
    return replicated.ReplicatedState.create(state, fused=True)


def step_seed(rng: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Returns the int32 `[2]` seed of a gradient step, by its number."""
    return tf.random.fold_in(rng, step, alg="philox")


def moved(target: Any, params: Any, tau: Any) -> Any:
    """Returns `target + tau * (params - target)`, leaf by leaf."""
    return tf.nest.map_structure(
        lambda old, new: old + tau * (new - old), target, params
    )


def _seeing(agent: Any, observations: Any, weights: Any) -> Any:
    """Returns the agent with the moments of all observations of an update."""
    arguments = tf.nest.map_structure(tf.convert_to_tensor, (observations, weights))
    return agent.replace(policy=agent.policy.update_moments(*arguments))


def _update(
    agent: Any,
    data: Any,
    weights: tf.Tensor,
    hyper: dict[str, tf.Tensor],
) -> tuple[Any, dict, Any]:
    """Takes K gradient steps; returns the agent, means of the info, and errors."""
    data, weights = tf.nest.map_structure(tf.convert_to_tensor, (data, weights))
    normalize = agent.policy.normalize
    data = data._replace(
        observations=normalize(data.observations),
        next_observations=normalize(data.next_observations),
    )

    def body(k: tf.Tensor, carry: Any, sums: dict, errors: Any) -> tuple:
        rows, their_weights = tf.nest.map_structure(lambda x: x[k], (data, weights))
        carry, info, found = agent._step(carry, rows, their_weights)
        if agent._has_priorities:
            errors = errors.write(k, tf.abs(found))
        return k + 1, carry, tf.nest.map_structure(tf.add, sums, info), errors

    n_steps, n_rows = weights.shape
    sums = dict.fromkeys(agent._measured, tf.zeros([]))
    errors: Any = ()
    if agent._has_priorities:
        errors = tf.TensorArray(tf.float32, n_steps, element_shape=[n_rows])
    _, carry, sums, errors = tf.while_loop(
        lambda k, *_: k < n_steps,
        body,
        (tf.constant(0), agent._begin(hyper), sums, errors),
    )
    info = {name: total / n_steps for name, total in sums.items()}
    return agent._end(carry, hyper), info, errors.stack() if errors != () else ()


_compiled_seeing = replicated.compiled_update(_seeing)
_compiled_update = replicated.compiled_update(_update)
