"""Wrappers of compiled environments: time limits, resets, statistics, scales.

Wrappers for one episode go inside `AutoReset`, those that outlive episodes around it:

    NormalizeRewards(EpisodeStatistics(AutoReset(TimeLimit(CartPole(), 500))), 0.99)
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import arguments, checks, gym_checks
from tfrl.environments.compiled import protocol
from tfrl.stats import moments


class WrappedState(NamedTuple):
    """State of a wrapper.

    Attributes:
        env: the state of the environment inside.
        own: what the wrapper keeps.

    Example:
        >>> WrappedState(env=(), own=3).own
        3
    """

    env: Any
    own: Any


class Wrapper(protocol.CompiledEnv):
    """Base class of wrappers of compiled environments, which changes nothing.

    A subclass overrides what it changes. Its state is that of `env`, or, where it keeps
    something of its own, a `WrappedState`: then it has both `initial` and `step`. One
    that has an `initial` and keeps nothing also has `frame`, which is that of `env`.

    Args:
        env: the environment inside.

    Attributes:
        env: the same.

    Raises:
        TypeError: if it is no `CompiledEnv`.
        ValueError: if its `n_noise` or `n_step_noise` is invalid.

    Example:
        >>> class Negated(Wrapper):
        ...     def step(self, state, actions, noise):
        ...         step = self.env.step(state, actions, noise)
        ...         return step._replace(rewards=-step.rewards)
        >>> env = Negated(tfrl.environments.compiled.CartPole())
        >>> state, _ = env.reset(0, 1)
        >>> env.step(state, [1], env.draw(1, [1])).rewards.numpy()
        array([-1.], dtype=float32)
    """

    def __init__(self, env: protocol.CompiledEnv) -> None:
        kind, where = protocol.CompiledEnv, type(self).__name__
        checks.check_type(where, "env", env, kind, "a CompiledEnv")
        protocol.noise_counts(where, env)
        self.env = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.n_noise, self.n_step_noise = env.n_noise, env.n_step_noise

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        return self.env.initial(noise)

    def step(self, state: Any, actions: Any, noise: tf.Tensor) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        return self.env.step(state, actions, noise)

    def frame(self, state: Any) -> np.ndarray:
        """Returns the picture of the environment inside, see `CompiledEnv.frame`."""
        # Who begins as `env` does keeps nothing: a WrappedState is one of further in.
        begins = type(self).initial is not Wrapper.initial
        is_own = begins and isinstance(state, WrappedState)
        return self.env.frame(state.env if is_own else state)

    def compute_reward(self, achieved_goal: Any, desired_goal: Any) -> tf.Tensor:
        """Returns that of the environment inside, see `CompiledEnv.compute_reward`."""
        return self.env.compute_reward(achieved_goal, desired_goal)


class TimeLimit(Wrapper):
    """Cuts episodes off after `n_steps` steps: they are `truncated`, not `terminated`.

    Like Gymnasium's, it also reports this for an episode that truly ended in its last
    step. The state keeps the steps of the running episode, `[N]` int32.

    Args:
        env: an environment not yet in `AutoReset`.
        n_steps: most steps of an episode, at least 1.

    Raises:
        TypeError: if an argument is of another kind.
        ValueError: if `n_steps` is below 1, or `env` resets itself.

    Example:
        >>> env = TimeLimit(tfrl.environments.compiled.CartPole(), 1)
        >>> state, _ = env.reset(0, 2)
        >>> env.step(state, [0, 1], env.draw(1, [2])).truncated.numpy()
        array([ True,  True])
    """

    def __init__(self, env: protocol.CompiledEnv, n_steps: int) -> None:
        super().__init__(env)
        _check_belongs_inside(self)
        where = type(self).__name__
        self.n_steps = checks.check_whole_number(where, "n_steps", n_steps, low=1)

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        state, observations = self.env.initial(noise)
        return WrappedState(state, tf.zeros([noise.shape[0]], tf.int32)), observations

    def step(
        self, state: WrappedState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        step = self.env.step(state.env, actions, noise)
        n_steps = state.own + 1
        return step._replace(
            state=WrappedState(step.state, n_steps),
            truncated=step.truncated | (n_steps >= self.n_steps),
        )


class FrameStack(Wrapper):
    """Shows the last `n` observations side by side along the channels, oldest first.

    `[H, W, C]` becomes `[H, W, C * n]`, a vector `[D]` becomes `[D * n]`, and an image
    of uint8 `[C, H, W]` becomes `[C * n, H, W]`, as in
    `tfrl.environments.StackChannels`. At the start of an episode its first observation
    fills the earlier places.

    Args:
        env: an environment not yet in `AutoReset`, whose observations are a Box.
        n: how many, at least 1.

    Raises:
        TypeError: if an argument is of another kind, or observations are no Box.
        ValueError: if `n` is below 1, the Box has no axis, or `env` resets itself.

    Example:
        >>> env = FrameStack(tfrl.environments.compiled.CartPole(), 3)
        >>> env.reset(0, 2)[1].shape
        TensorShape([2, 12])
    """

    def __init__(self, env: protocol.CompiledEnv, n: int) -> None:
        super().__init__(env)
        _check_belongs_inside(self)
        where = type(self).__name__
        space = _box_of(self)
        self.n = checks.check_whole_number(where, "n", n, low=1)
        if not space.shape:
            raise ValueError(
                f"`{where}`: `env` expected observations of at least one axis; got "
                "scalars"
            )
        self._axis = gym_checks.stacking_axis(space)
        bounds = space.low, space.high
        low, high = (np.concatenate([x] * n, self._axis) for x in bounds)
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)
        size = space.shape[self._axis]
        self._sizes = size, size * (n - 1)

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        state, observations = self.env.initial(noise)
        stack = tf.concat([observations] * self.n, self._axis)
        return WrappedState(state, stack), stack

    def step(
        self, state: WrappedState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        step = self.env.step(state.env, actions, noise)
        known = tf.split(state.own, self._sizes, self._axis)[1]
        stack = tf.concat([known, step.observations], self._axis)
        return step._replace(
            state=WrappedState(step.state, stack),
            observations=stack,
            final_observations=tf.concat([known, step.final_observations], self._axis),
        )


class AutoReset(Wrapper):
    """Begins a new episode in every copy whose episode has ended, within the step.

    There the state and `observations` are those of the new episode, `rewards`,
    `terminated` and `truncated` those of the step that ended the old one, and
    `final_observations` what that step led to. The state has the form of `env`'s state.

    Noise is taken for a step and for a beginning, one after the other: `n_noise` is
    `env.n_step_noise + env.n_noise`.

    Args:
        env: an environment that does not reset itself.

    Raises:
        TypeError: if it is no `CompiledEnv`.
        ValueError: if it resets itself.

    Example:
        >>> env = AutoReset(TimeLimit(tfrl.environments.compiled.CartPole(), 1))
        >>> state, _ = env.reset(0, 2)
        >>> step = env.step(state, [0, 0], env.draw(1, [2]))
        >>> step.truncated.numpy().tolist(), step.state.own.numpy().tolist()
        ([True, True], [0, 0])
    """

    def __init__(self, env: protocol.CompiledEnv) -> None:
        super().__init__(env)
        _check_belongs_inside(self)
        whole, self._n_taken = protocol.noise_counts(type(self).__name__, env)
        self.n_noise = self._n_taken + whole
        self.n_step_noise = self.n_noise

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        return self.env.initial(noise[:, self._n_taken :])

    def step(self, state: Any, actions: Any, noise: tf.Tensor) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        step = self.env.step(state, actions, noise[:, : self._n_taken])
        first = self.env.initial(noise[:, self._n_taken :])
        ended = step.terminated | step.truncated
        state, observations = chosen(ended, first, (step.state, step.observations))
        return step._replace(state=state, observations=observations)

    def frame(self, state: Any) -> np.ndarray:
        """Returns the picture of the environment inside, see `CompiledEnv.frame`."""
        return self.env.frame(state)


class Episodes(NamedTuple):
    """What `EpisodeStatistics` keeps for each copy, all `[N]`.

    Attributes:
        returns: float32, sum of the rewards of the running episode.
        lengths: int32, its steps so far.
        last_returns: float32, of the last episode that ended; 0 before.
        last_lengths: int32, likewise.
        n_ended: int32, number of episodes that ended.

    Example:
        >>> Episodes([0.0], [0], [500.0], [500], [1]).last_returns
        [500.0]
    """

    returns: Any
    lengths: Any
    last_returns: Any
    last_lengths: Any
    n_ended: Any


class EpisodeStatistics(Wrapper):
    """Keeps returns and lengths of episodes in the state, see `Episodes`.

    Args:
        env: an environment in `AutoReset`, inside of which ends would be forgotten.
            Inside `NormalizeRewards`, statistics sum the original rewards.

    Raises:
        TypeError: if it is no `CompiledEnv`.
        ValueError: if it is not in `AutoReset`.

    Example:
        >>> limited = TimeLimit(tfrl.environments.compiled.CartPole(), 2)
        >>> env = EpisodeStatistics(AutoReset(limited))
        >>> state, _ = env.reset(0, 1)
        >>> for noise in env.draw(1, [3, 1]):
        ...     state = env.step(state, [0], noise).state
        >>> [float(x[0]) for x in EpisodeStatistics.of(state)]
        [1.0, 1.0, 2.0, 2.0, 1.0]
    """

    def __init__(self, env: protocol.CompiledEnv) -> None:
        super().__init__(env)
        _check_belongs_around(self)

    @staticmethod
    def of(state: Any) -> Episodes:
        """Returns the statistics in a state, whatever is around.

        Args:
            state: of this environment or one around it.

        Raises:
            ValueError: if there are none.
        """
        inner = state
        while isinstance(inner, WrappedState):
            if isinstance(inner.own, Episodes):
                return inner.own
            inner = inner.env
        raise ValueError(
            "`EpisodeStatistics.of`: `state` expected that of an environment in "
            f"EpisodeStatistics; got {checks.shown(state)}"
        )

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        state, observations = self.env.initial(noise)
        n = noise.shape[0]
        sums, counts = tf.zeros([n]), tf.zeros([n], tf.int32)
        own = Episodes(sums, counts, sums, counts, counts)
        return WrappedState(state, own), observations

    def step(
        self, state: WrappedState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        step = self.env.step(state.env, actions, noise)
        old: Episodes = state.own
        running: Any = (old.returns + step.rewards, old.lengths + 1)
        ended = step.terminated | step.truncated
        last: Any = chosen(ended, running, (old.last_returns, old.last_lengths))
        running = chosen(ended, tf.nest.map_structure(tf.zeros_like, running), running)
        n_ended = old.n_ended + tf.cast(ended, tf.int32)
        own = Episodes(running[0], running[1], last[0], last[1], n_ended)
        return step._replace(state=WrappedState(step.state, own))


class NormalizeObservations(Wrapper):
    """Shows observations less their running mean, over their standard deviation.

        y = clip((x - mean) / sqrt(variance + 1e-8))

    The moments are those of all observations shown so far, including these:
    `tfrl.stats.RunningMoments` in the state, shared by all copies and kept across
    episodes. `final_observations` are normalised by the same.

    Args:
        env: an environment in `AutoReset`, whose observations are a Box.
        clip: bound on the absolute result.

    Raises:
        TypeError: if an argument is of another kind, or observations are no Box.
        ValueError: if `env` is not in `AutoReset`, or `clip` not positive.

    Example:
        >>> inside = AutoReset(tfrl.environments.compiled.CartPole())
        >>> env = NormalizeObservations(inside)
        >>> state, observations = env.reset(0, 1000)
        >>> bool(abs(np.std(observations) - 1) < 0.01), float(state.own.count)
        (True, 1000.0)
    """

    def __init__(self, env: protocol.CompiledEnv, clip: float = 10.0) -> None:
        super().__init__(env)
        _check_belongs_around(self)
        space, where = _box_of(self), type(self).__name__
        checks.check_positive(where, "clip", clip)
        self.clip = clip
        self.observation_space = spaces.Box(-clip, clip, space.shape, np.float32)

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        state, observations = self.env.initial(noise)
        known = moments.RunningMoments.create(observations.shape[1:])
        known = known.update(observations)
        return WrappedState(state, known), self._normalized(known, observations)

    def step(
        self, state: WrappedState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        step = self.env.step(state.env, actions, noise)
        known = state.own.update(step.observations)
        return step._replace(
            state=WrappedState(step.state, known),
            observations=self._normalized(known, step.observations),
            final_observations=self._normalized(known, step.final_observations),
        )

    def _normalized(self, known: moments.RunningMoments, values: tf.Tensor) -> Any:
        return tf.cast(known.normalize(values, self.clip), tf.float32)


class RewardScale(NamedTuple):
    """What `NormalizeRewards` keeps.

    Attributes:
        moments: `tfrl.stats.RunningMoments` of the discounted returns of all copies.
        returns: `[N]` float64, the discounted return of each running episode.

    Example:
        >>> RewardScale((), [0.0]).returns
        [0.0]
    """

    moments: Any
    returns: Any


class NormalizeRewards(Wrapper):
    """Divides rewards by the standard deviation of the returns they add up to.

        R[t] = rewards[t] + gamma * R[t - 1], anew in each episode
        scaled[t] = clip(rewards[t] / sqrt(Var[R] + 1e-8))

    as `tfrl.stats.ReturnScale` does, with the variance of all R of all copies so far.
    It is shared by the copies and kept across episodes.

    Args:
        env: an environment in `AutoReset`.
        gamma: discount of the returns, in [0, 1].
        clip: bound on the absolute result.

    Raises:
        TypeError: if an argument is of another kind.
        ValueError: if `env` is not in `AutoReset`, or a number outside its range.

    Example:
        >>> inside = AutoReset(TimeLimit(tfrl.environments.compiled.CartPole(), 2))
        >>> env = NormalizeRewards(inside, gamma=0.5)
        >>> state, _ = env.reset(0, 1)
        >>> for noise in env.draw(1, [2, 1]):  # the returns are 1 and 1.5
        ...     step = env.step(state, [0], noise)
        ...     state = step.state
        >>> step.rewards.numpy().round(3)
        array([4.], dtype=float32)

    References:
        Engstrom et al., 2020, Implementation Matters in Deep Policy Gradients,
        section 2, "reward scaling".
    """

    def __init__(
        self, env: protocol.CompiledEnv, gamma: float, clip: float = 10.0
    ) -> None:
        super().__init__(env)
        _check_belongs_around(self)
        where = type(self).__name__
        arguments.check_number(where, "gamma", gamma, low=0, high=1)
        checks.check_positive(where, "clip", clip)
        self.gamma, self.clip = gamma, clip

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        state, observations = self.env.initial(noise)
        returns = tf.zeros([noise.shape[0]], tf.float64)
        own = RewardScale(moments.RunningMoments.create([]), returns)
        return WrappedState(state, own), observations

    def step(
        self, state: WrappedState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        step = self.env.step(state.env, actions, noise)
        wide = tf.cast(step.rewards, tf.float64)
        returns = self.gamma * state.own.returns + wide
        known = state.own.moments.update(returns)
        scaled = wide * tf.math.rsqrt(known.variance + 1e-8)
        scaled = tf.clip_by_value(scaled, -self.clip, self.clip)
        ended = step.terminated | step.truncated
        own = RewardScale(known, tf.where(ended, tf.zeros_like(returns), returns))
        return step._replace(
            state=WrappedState(step.state, own), rewards=tf.cast(scaled, tf.float32)
        )

    def compute_reward(self, achieved_goal: Any, desired_goal: Any) -> tf.Tensor:
        """Raises a NotImplementedError: the scale is known only within a step."""
        raise NotImplementedError("NormalizeRewards does not reward goals")


def layers(env: protocol.CompiledEnv) -> list[protocol.CompiledEnv]:
    """Returns an environment and all inside it, the innermost last."""
    found = [env]
    while isinstance(found[-1], Wrapper):
        found.append(found[-1].env)
    return found


def resets_itself(env: protocol.CompiledEnv) -> bool:
    """Whether ended episodes are followed by new ones, that is by `AutoReset`."""
    return any(isinstance(layer, AutoReset) for layer in layers(env))


def chosen(mask: tf.Tensor, new: Any, old: Any) -> Any:
    """Returns the copies of `new` where `mask` says so, else those of `old`.

    Args:
        mask: `[N]` bool.
        new: nest of `[N, ...]`.
        old: likewise.
    """

    def leaf(one: Any, other: Any) -> tf.Tensor:
        wide = tf.reshape(mask, [-1, *[1] * (len(other.shape) - 1)])
        return tf.where(wide, one, other)

    return tf.nest.map_structure(leaf, new, old)


def _shown(env: protocol.CompiledEnv) -> str:
    return " in ".join(type(layer).__name__ for layer in layers(env)[::-1])


def _check_belongs_inside(wrapper: Wrapper) -> None:
    if resets_itself(wrapper.env):
        name = type(wrapper).__name__
        raise ValueError(
            f"`{name}`: `env` expected an environment that does not reset by itself; "
            f"got {_shown(wrapper.env)}; put {name} inside of one AutoReset"
        )


def _check_belongs_around(wrapper: Wrapper) -> None:
    if not resets_itself(wrapper.env):
        name = type(wrapper).__name__
        raise ValueError(
            f"`{name}`: `env` expected an environment in AutoReset, which would begin "
            f"anew what {name} keeps; got {_shown(wrapper.env)}; put it around"
        )


def _box_of(wrapper: Wrapper) -> spaces.Box:
    space, where = wrapper.env.observation_space, type(wrapper).__name__
    checks.check_type(where, "env", space, spaces.Box, "observations in a Box")
    return space
