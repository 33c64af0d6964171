"""What a sample of an episode store is, transitions or sequences, and how it is read.

Readers are prepared once for a store and work on flat lists of leaves. `rows` are rows
of steps that can be drawn.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.core import records
from tfrl.replay import _episode_rows

# Which of the goals achieved in an episode `Hindsight` takes.
STRATEGIES = ("future", "episode", "final")
# Arrays to read into, or None for new ones.
Targets: TypeAlias = list[np.ndarray] | None


class Sample(NamedTuple):
    """What a sampler drew.

    Attributes:
        data: a `tfrl.core.Transition` `[B, ...]` or a `tfrl.core.Trajectory`
            `[B, T, ...]`, depending on the sampler.
        indices: `[B]` int64, the steps they begin with; see `EpisodeStore`.
        weights: `[B]` float32, by which losses are multiplied; 1 if drawn uniformly.
        probabilities: `[B]` float32, with which each was drawn.
        extra: nest of what else the store keeps, `[B, ...]` or `[B, T, ...]`.

    Example:
        >>> Sample(data=[0.5], indices=[7], weights=[1.0], probabilities=[0.1]).extra
        ()
    """

    data: Any
    indices: Any
    weights: Any
    probabilities: Any
    extra: Any = ()


@dataclasses.dataclass(frozen=True)
class Hindsight:
    """Replaces desired goals of samples by goals that were achieved.

    Observations are dicts with "achieved_goal" and "desired_goal", as in
    Gymnasium-Robotics. With probability `ratio`, independently for each sample, the
    desired goal in `observations` and `next_observations` becomes the goal achieved at
    an observation of the same episode, uniformly chosen from

        "future"     those after the step drawn, up to the last one stored
        "episode"    all stored but the first
        "final"      the last one stored

    and the rewards are computed anew. Discounts stay as they were.

    Args:
        reward_fn: function of achieved goals and desired goals, both
            `[n, *goal_shape]`, that returns finite rewards `[n]`. The achieved goal is
            that of the observation after the step.
        ratio: probability in [0, 1]; for k relabelled samples per original one it is k
            / (k + 1).
        strategy: "future", "episode" or "final".

    Raises:
        TypeError: if `reward_fn` cannot be called.
        ValueError: if `ratio` or `strategy` is none of these.

    Example:
        >>> def reward_fn(achieved, desired):
        ...     return -np.linalg.norm(achieved - desired, axis=-1)
        >>> Transitions(relabel=Hindsight(reward_fn)).relabel.ratio
        0.8

    References:
        M. Andrychowicz et al., 2017, Hindsight Experience Replay, section 4.5.
    """

    reward_fn: Callable[[Any, Any], Any]
    ratio: float = 0.8
    strategy: str = "future"

    def __post_init__(self) -> None:
        if not callable(self.reward_fn):
            raise TypeError(
                "`Hindsight`: `reward_fn` expected a function of achieved and desired "
                f"goals; got {self.reward_fn!r}; pass one"
            )
        checks.check_within("Hindsight", "ratio", self.ratio, 0, 1)
        checks.check_one_of("Hindsight", "strategy", self.strategy, STRATEGIES)


class _Frames:
    """Reads observations, with those before them in their episode if that is asked.

    Args:
        steps: rows of the store.
        count: how many observations are stacked on a new last axis; None for one,
            without that axis. Before the first of an episode it is repeated.
    """

    def __init__(self, steps: _episode_rows.EpisodeRows, count: int | None) -> None:
        self._steps, self._count = steps, count

    def read(
        self,
        columns: _episode_rows.Columns,
        rows: np.ndarray,
        out: Iterator[Any],
    ) -> list[np.ndarray]:
        """Returns the leaves `[*rows.shape, *shape]` or `[*rows.shape, *shape, k]`."""
        seen = columns.observations
        if self._count is None:
            return [array.take(rows, 0, next(out), "clip") for array in seen]
        stride, capacity = self._steps.num_environments, self._steps.capacity
        age = columns.indices.take(rows) - columns.first.take(rows)
        frames = [
            (rows - np.minimum(age, stride * back)) % capacity
            for back in range(self._count - 1, -1, -1)
        ]
        found = []
        for array in seen:
            target = next(out)
            if target is None:
                shape = (*rows.shape, *array.shape[1:], self._count)
                target = np.empty(shape, array.dtype)
            for k, frame in enumerate(frames):
                target[..., k] = array.take(frame, 0, mode="clip")
            found.append(target)
        return found


class _Goals:
    """Replaces goals by what was achieved later, and rewards what that earns.

    Args:
        steps: rows of the store.
        hindsight: the `Hindsight` asked for.
    """

    def __init__(self, steps: _episode_rows.EpisodeRows, hindsight: Any) -> None:
        spec = steps.rows.data_spec.observations
        keys = ("achieved_goal", "desired_goal")
        if not isinstance(spec, Mapping) or not {*keys} <= {*spec}:
            raise ValueError(
                "`Hindsight`: `observation_spec` of the store expected a dict with "
                f"{list(keys)}; got {spec}; store goals with the observations"
            )
        numbers = tf.nest.pack_sequence_as(spec, range(len(tf.nest.flatten(spec))))
        self._achieved, self._desired = (numbers[key] for key in keys)
        self._steps, self._hindsight = steps, hindsight

    def relabel(
        self,
        columns: _episode_rows.Columns,
        rows: np.ndarray,
        random: np.random.Generator,
        steps: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draws samples and other goals for them, and replaces their rewards.

        Args:
            columns: arrays of the store.
            rows: rows of the samples.
            random: what is drawn by.
            steps: of each sample the rows of its steps, whether they belong to it, and
                their rewards, which are overwritten.

        Returns:
            Numbers of the samples, and their goals.
        """
        chosen = np.flatnonzero(random.random(rows.size) < self._hindsight.ratio)
        goals = self._drawn(columns, rows[chosen], random)
        along, taken, rewards = steps
        if chosen.size:
            inside, part = taken[chosen], rewards[chosen]
            wanted = np.repeat(goals, inside.sum(axis=1), axis=0)
            part[inside] = self.rewards(columns, along[chosen][inside], wanted)
            rewards[chosen] = part
        return chosen, goals

    def replace(
        self, observations: list[np.ndarray], chosen: np.ndarray, goals: np.ndarray
    ) -> None:
        """Writes goals into the leaves of observations, over all frames."""
        leaf = observations[self._desired]
        frames = (1,) * (leaf.ndim - goals.ndim)
        leaf[chosen] = goals.reshape(goals.shape + frames)

    def rewards(
        self, columns: _episode_rows.Columns, rows: np.ndarray, goals: np.ndarray
    ) -> np.ndarray:
        """Returns what the steps in `rows` earn with these goals."""
        after = self._steps.following(rows)
        achieved = columns.observations[self._achieved][after]
        rewards = np.asarray(self._hindsight.reward_fn(achieved, goals))
        if rewards.shape != rows.shape or rewards.dtype.kind not in "biuf":
            raise ValueError(
                f"`Hindsight`: `reward_fn` expected to return {list(rows.shape)} "
                f"numbers; got {rewards.dtype} of shape {list(rewards.shape)}; compute "
                "a reward for each row"
            )
        if not np.isfinite(rewards).all():
            row = np.argmin(np.isfinite(rewards))
            raise ValueError(
                "`Hindsight`: `reward_fn` expected to return finite numbers; got "
                f"{rewards[row]} of achieved goal {achieved[row]} and desired goal "
                f"{goals[row]}; return a finite reward"
            )
        return rewards

    def _drawn(
        self,
        columns: _episode_rows.Columns,
        rows: np.ndarray,
        random: np.random.Generator,
    ) -> np.ndarray:
        steps, stride = self._steps, self._steps.num_environments
        before, goal = columns.indices[rows], steps.ends(rows)
        if self._hindsight.strategy == "episode":
            before = np.maximum(columns.first[rows], steps.oldest()[before % stride])
        if self._hindsight.strategy != "final":
            later = (goal - before) // stride
            goal = before + stride * random.integers(1, later + 1)
        return columns.observations[self._achieved][goal % steps.capacity]


class _TransitionReader:
    """Reads transitions of one or several steps.

    Attributes:
        reach: how many steps an episode must have from the one drawn on.
        behind: how many steps before it must not be overwritten.
        record: the type of a sample.

    Args:
        steps: rows of the store.
        kind: the `Transitions` asked for.
    """

    def __init__(self, steps: _episode_rows.EpisodeRows, kind: Any) -> None:
        self.reach, self.behind = 1, (kind.frame_stack or 1) - 1
        self._steps = steps
        self._frames = _Frames(steps, kind.frame_stack)
        self._goals = None if kind.relabel is None else _Goals(steps, kind.relabel)
        self._one = kind.n_step == 1 and self._goals is None
        self._bootstrap = np.array([kind.discount, 0.0], np.float32)
        self._powers = float(kind.discount) ** np.arange(kind.n_step + 1)
        self._offsets = steps.num_environments * np.arange(kind.n_step)
        self.record: Any = records.Transition

    def outer(self, batch: int) -> tuple[int, ...]:
        """Returns the shape of the steps of a sample."""
        return (batch,)

    def rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns the rows whose extra belongs to the sample."""
        return rows

    def read(self, rows: np.ndarray, random: Any, targets: Targets) -> list[np.ndarray]:
        """Returns the leaves of a `Transition`, `[B, ...]`."""
        columns, out = self._steps.columns(), _cursor(targets)
        before = self._frames.read(columns, rows, out)
        actions = [array.take(rows, 0, next(out), "clip") for array in columns.actions]
        reward_out, discount_out = next(out), next(out)
        changed = None
        if self._one:
            after = self._steps.following(rows)
            rewards = columns.rewards.take(rows, 0, reward_out, "clip")
            ended = columns.terminated.take(rows, 0, None, "clip").view(np.int8)
            discounts = self._bootstrap.take(ended, 0, discount_out, "clip")
        else:
            stride, capacity = self._steps.num_environments, self._steps.capacity
            ahead = self._steps.ends(rows) - columns.indices.take(rows)
            ahead = np.minimum(ahead, stride * len(self._offsets))
            along = (rows[:, None] + self._offsets) % capacity
            taken = self._offsets < ahead[:, None]
            each = np.where(taken, columns.rewards.take(along), 0.0)
            if self._goals is not None:
                steps = along, taken, each
                changed = self._goals.relabel(columns, rows, random, steps)
            after = (rows + ahead) % capacity
            powers = self._powers.take(ahead // stride)
            powers[columns.terminated.take((after - stride) % capacity)] = 0.0
            rewards = _into(reward_out, each @ self._powers[:-1])
            discounts = _into(discount_out, powers)
        then = self._frames.read(columns, after, out)
        if self._goals is not None and changed is not None:
            self._goals.replace(before, *changed)
            self._goals.replace(then, *changed)
        return [*before, *actions, rewards, discounts, *then]


class _SequenceReader:
    """Reads steps that follow each other in an episode.

    Attributes:
        reach: how many steps an episode must have from the one drawn on.
        behind: how many steps before it must not be overwritten.
        pad_end: whether it may have fewer if it has ended.
        record: the type of a sample.

    Args:
        steps: rows of the store.
        kind: the `Sequences` asked for.
    """

    def __init__(self, steps: _episode_rows.EpisodeRows, kind: Any) -> None:
        self.reach = kind.length
        self.behind = kind.burn_in + (kind.frame_stack or 1) - 1
        if self.reach + self.behind >= steps.length:
            raise ValueError(
                "`Sequences`: `length` expected, with burn-in and frames before it, to "
                f"be less than the {steps.length} rows of each environment; got "
                f"{self.reach} and {self.behind}; shorten it or raise the capacity"
            )
        self.pad_end = kind.pad_end
        self._steps, self._time_major = steps, kind.time_major
        self._frames = _Frames(steps, kind.frame_stack)
        self._offsets = steps.num_environments * np.arange(-kind.burn_in, kind.length)
        self.record: Any = records.Trajectory

    def outer(self, batch: int) -> tuple[int, ...]:
        """Returns the shape of the steps of a sample."""
        outer = (batch, len(self._offsets))
        return outer[::-1] if self._time_major else outer

    def rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns the rows of all steps of samples, in the order of their axes."""
        return self._along(rows)[0]

    def read(self, rows: np.ndarray, random: Any, targets: Targets) -> list[np.ndarray]:
        """Returns the leaves of a `Trajectory`, `[B, T, ...]` or `[T, B, ...]`."""
        del random
        columns, out = self._steps.columns(), _cursor(targets)
        along, valid = self._along(rows)
        before = self._frames.read(columns, along, out)
        flags = columns.terminated, columns.truncated
        flat = [*columns.actions, columns.rewards, *flags]
        middle = [array.take(along, 0, next(out), "clip") for array in flat]
        then = self._frames.read(columns, self._steps.following(along), out)
        return [*before, *middle, *then, _into(next(out), valid)]

    def _along(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows of the steps of samples, and which of them there were."""
        columns, capacity = self._steps.columns(), self._steps.capacity
        # No step comes before the first of the episode, which stands for them.
        youth = columns.first.take(rows) - columns.indices.take(rows)
        offsets = np.maximum(self._offsets, youth[:, None])
        valid = self._offsets >= youth[:, None]
        if self.pad_end:  # nor after the last
            stride, ends = self._steps.num_environments, self._steps.ends(rows)
            ahead = (ends - columns.indices.take(rows) - stride)[:, None]
            offsets = np.minimum(offsets, ahead)
            valid &= self._offsets <= ahead
        along = (rows[:, None] + offsets) % capacity
        return (along.T, valid.T) if self._time_major else (along, valid)


def _cursor(targets: Targets) -> Iterator[Any]:
    """Goes through targets, or through as many times None as anybody wants."""
    return iter(lambda: None, 0) if targets is None else iter(targets)


def _into(target: np.ndarray | None, values: np.ndarray) -> np.ndarray:
    """Returns values, in the target if there is one; else numbers as float32."""
    if target is None:
        return values if values.dtype == bool else values.astype(np.float32)
    np.copyto(target, values, casting="same_kind")
    return target


@dataclasses.dataclass(frozen=True)
class Transitions:
    """Samples are transitions of up to `n_step` steps, from any stored step.

        m = min(n_step, steps left in the episode, itself included)
        rewards[i] = sum_{k < m} discount^k reward[i + k]
        discounts[i] = discount^m (1 - terminated[i + m - 1])
        next_observations[i] = observations[i + m]

    A sample is a `tfrl.core.Transition` `[B, ...]`. A truncated transition is not
    terminated: its discount is not 0, and its next observation is the final one.

    Args:
        n_step: maximum steps of a transition.
        discount: discount of one step, in [0, 1].
        frame_stack: how many observations, the last one included, are stacked on a new
            last axis: `[H, W]` becomes `[H, W, k]`, in the order of time. Before the
            first observation of an episode it is repeated; a step whose frames are
            partly overwritten is not drawn. None for no such axis.
        relabel: `Hindsight` for other goals, None for the goals as they were.

    Raises:
        TypeError: if a count is not an integer, or `relabel` no `Hindsight`.
        ValueError: if a number is out of range.

    Example:
        >>> store = tfrl.replay.EpisodeStore(
        ...     tf.TensorSpec([]), tf.TensorSpec([], tf.int32), capacity=100)
        >>> for t in range(3):
        ...     store.add([float(t)], [t], [1.0], [t == 2], [False], [t + 1.0])
        >>> pairs = tfrl.replay.UniformReplay(store, Transitions(2, 0.5), seed=0)
        >>> pairs.sample(4).data
        Transition(observations=array([2., 1., 1., 0.], dtype=float32),
                   actions=array([2, 1, 1, 0], dtype=int32),
                   rewards=array([1. , 1.5, 1.5, 1.5], dtype=float32),
                   discounts=array([0.  , 0.  , 0.  , 0.25], dtype=float32),
                   next_observations=array([3., 3., 3., 2.], dtype=float32))

    References:
        R. Sutton, A. Barto, 2018, Reinforcement Learning, equation 7.1.
    """

    n_step: int = 1
    discount: float = 0.99
    frame_stack: int | None = None
    relabel: Hindsight | None = None

    def __post_init__(self) -> None:
        where = "Transitions"
        checks.check_whole_number(where, "n_step", self.n_step, low=1)
        checks.check_within(where, "discount", self.discount, 0, 1)
        if self.frame_stack is not None:
            checks.check_whole_number(where, "frame_stack", self.frame_stack, low=1)
        if not isinstance(self.relabel, Hindsight | None):
            raise TypeError(
                f"`{where}`: `relabel` expected a Hindsight or None; got "
                f"{self.relabel!r}; make one"
            )

    def reader(self, steps: _episode_rows.EpisodeRows) -> _TransitionReader:
        """Returns what reads such samples from a store.

        Args:
            steps: `steps` of the store.

        Returns:
            A reader, prepared once for many samples.

        Raises:
            ValueError: if the observations have no goals that could be relabelled.
        """
        return _TransitionReader(steps, self)


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Samples are `length` steps that follow each other inside one episode.

        drawn: any step i with i .. i + length - 1 in its episode;
               with pad_end, any step of an episode that has ended, too
        sample: steps i - burn_in .. i + length - 1,  T = burn_in + length

    A sample is a `tfrl.core.Trajectory` `[B, T, ...]`, as recurrent Keras layers take
    it. Its first `burn_in` steps warm up a recurrent state; where the episode began
    later, they are copies of its first step with `valid` False, so leave them out of
    state and loss. A step whose burn-in is partly overwritten is not drawn.

    Without `pad_end` draws are biased where episodes are short: those shorter than
    `length` never come, and the last step of the others only in the one sample that
    begins `length - 1` steps before it. With it, the steps behind the end of an episode
    that terminated, was truncated or cut are copies of its last step with `valid`
    False. They repeat its `terminated` and `truncated`, so that returns of valid steps
    that mind these (`lambda_ * (1 - truncated)`, see `tfrl.ops.n_step_return`) are
    those of the episode alone. Step k of an episode, counted from 0, is then in
    min(k + 1, length) samples. An episode that goes on is not padded: its newest steps
    are drawn once it has ended or has become long enough.

    Args:
        length: how many steps from the one drawn on.
        burn_in: how many steps before it.
        frame_stack: as in `Transitions`.
        time_major: whether samples are `[T, B, ...]`.
        pad_end: whether samples may go beyond the end of an episode.

    Raises:
        TypeError: if a count is not an integer, or `pad_end` no bool.
        ValueError: if a count is out of range.

    Example:
        >>> store = tfrl.replay.EpisodeStore(
        ...     tf.TensorSpec([]), tf.TensorSpec([], tf.int32), capacity=100)
        >>> for t in range(3):
        ...     store.add([float(t)], [t], [1.0], [False], [t == 2], [t + 1.0])
        >>> pairs = tfrl.replay.UniformReplay(store, Sequences(2, burn_in=1), seed=0)
        >>> found = pairs.sample(3).data
        >>> found.observations
        array([[0., 1., 2.],
               [0., 1., 2.],
               [0., 0., 1.]], dtype=float32)
        >>> found.valid[2]
        array([False,  True,  True])

    References:
        S. Kapturowski et al., 2019, Recurrent Experience Replay in Distributed
        Reinforcement Learning, section 3.
    """

    length: int
    burn_in: int = 0
    frame_stack: int | None = None
    time_major: bool = False
    pad_end: bool = False

    def __post_init__(self) -> None:
        where = "Sequences"
        checks.check_type(where, "pad_end", self.pad_end, bool, "a bool")
        checks.check_whole_number(where, "length", self.length, low=1)
        checks.check_whole_number(where, "burn_in", self.burn_in, low=0)
        if self.frame_stack is not None:
            checks.check_whole_number(where, "frame_stack", self.frame_stack, low=1)

    def reader(self, steps: _episode_rows.EpisodeRows) -> _SequenceReader:
        """Returns what reads such samples from a store.

        Args:
            steps: `steps` of the store.

        Returns:
            A reader, prepared once for many samples.

        Raises:
            ValueError: if no sequence of that length fits into the store.
        """
        return _SequenceReader(steps, self)
