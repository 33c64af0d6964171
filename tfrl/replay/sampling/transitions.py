"""What a sample of an episode store is: transitions or sequences of steps."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from tfrl._internal import checks
from tfrl.replay import _episode_rows
from tfrl.replay.sampling import _reading


class Sample(NamedTuple):
    """What a sampler drew.

    Attributes:
        data: a `tfrl.core.Transition` `[B, ...]` or a `tfrl.core.Trajectory`
            `[B, T, ...]`, as the sampler was made for.
        indices: `[B]` int64, which steps they begin with; see `EpisodeStore`.
        weights: `[B]` float32, by which losses are multiplied; 1 if drawn uniformly.
        probabilities: `[B]` float32, with which each was drawn.
        extra: nest of what the store keeps besides, `[B, ...]` or `[B, T, ...]`.

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
    desired goal in `observations` and `next_observations` becomes what was achieved at
    some observation of the same episode, uniformly chosen from

        "future"     those after the step drawn, up to the last one stored
        "episode"    all stored but the first
        "final"      the last one stored

    and the rewards are computed anew. Discounts stay as they were.

    Args:
        reward_fn: function of achieved goals and desired goals, both
            `[n, *goal_shape]`, that returns rewards `[n]`. The achieved goal is that of
            the observation after the step.
        ratio: probability in [0, 1]; k relabelled samples for each original one are
            k / (k + 1).
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
        choices = ("future", "episode", "final")
        checks.check_one_of("Hindsight", "strategy", self.strategy, choices)


@dataclasses.dataclass(frozen=True)
class Transitions:
    """Samples are transitions of up to `n_step` steps, from any step that is stored.

        m = min(n_step, steps left in the episode, itself included)
        rewards[i] = sum_{k < m} discount^k reward[i + k]
        discounts[i] = discount^m (1 - terminated[i + m - 1])
        next_observations[i] = observations[i + m]

    A sample is a `tfrl.core.Transition` `[B, ...]`. What was cut off is not terminated:
    its discount is not 0, and its next observation is the final one.

    Args:
        n_step: the most steps a transition takes.
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

    def reader(self, steps: _episode_rows.EpisodeRows) -> _reading.TransitionReader:
        """Returns what reads such samples from a store.

        Args:
            steps: `steps` of the store.

        Returns:
            A reader, prepared once for many samples.

        Raises:
            ValueError: if the observations have no goals that could be relabelled.
        """
        return _reading.TransitionReader(steps, self)


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Samples are `length` steps that follow each other inside one episode.

        drawn: any step i with i .. i + length - 1 in its episode
        sample: steps i - burn_in .. i + length - 1,  T = burn_in + length

    A sample is a `tfrl.core.Trajectory` `[B, T, ...]`, as recurrent Keras layers take
    it. Its first `burn_in` steps are to warm up a recurrent state; where the episode
    began later, they are copies of its first step with `valid` False, so leave them
    out of state and loss. A step whose burn-in is partly overwritten is not drawn.

    Args:
        length: how many steps from the one drawn on.
        burn_in: how many steps before it.
        frame_stack: as of `Transitions`.
        time_major: whether samples are `[T, B, ...]`.

    Raises:
        TypeError: if a count is not an integer.
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

    def __post_init__(self) -> None:
        where = "Sequences"
        checks.check_whole_number(where, "length", self.length, low=1)
        if isinstance(self.burn_in, bool) or self.burn_in != 0:
            checks.check_whole_number(where, "burn_in", self.burn_in, low=1)
        if self.frame_stack is not None:
            checks.check_whole_number(where, "frame_stack", self.frame_stack, low=1)

    def reader(self, steps: _episode_rows.EpisodeRows) -> _reading.SequenceReader:
        """Returns what reads such samples from a store.

        Args:
            steps: `steps` of the store.

        Returns:
            A reader, prepared once for many samples.

        Raises:
            ValueError: if no sequence of that length fits into the store.
        """
        return _reading.SequenceReader(steps, self)
