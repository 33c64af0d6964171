"""Whether wrappers, buffer and loss of a learner agree on what a value is.

Values of a small chain are known in closed form, also those that a learner with a
certain bug takes for right. The values at which its loss vanishes tell which it has.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl.core import checks
from tfrl.environments import stepping, vector

_LENGTH = 5
_FINAL_VALUES = (11.0, 7.0)
_EPISODES = 12
_BATCH_SIZE = 512
_ZERO = 1e-5
_ADVICE = {
    "gamma_twice": "values are discounted by gamma squared: `discounts` hold gamma "
    "already, or it is in the loss a second time",
    "gamma_missing": "values are not discounted: multiply them by gamma",
    "terminal_bootstrap": "the value after a true end is learned from: it is 0 there, "
    "mask it by `terminated`",
    "done_only_mask": "a time limit is taken for a true end: mask by `terminated`, "
    "never by `terminated | truncated`",
    "reset_observation": "after a time limit the next observation is a reset's: keep "
    "the last one, as `tfrl.environments.Stepper` does",
    "leak_across_episodes": "what follows an end is taken from the next episode: stop "
    "there, and mask it by `terminated`",
    "reset_rows": "steps in which the environment only reset itself are learned from: "
    "leave them out, as `tfrl.environments.Stepper` marks them in `valid`",
    "unknown_observations": "the batch shows observations that the environment never "
    "did: look at how they are stored and sampled",
    "unexplained": "the loss vanishes neither at the right values nor at those of a "
    "bug known here",
}


class LearnerReport(NamedTuple):
    """What `check_learner` found.

    Attributes:
        bugs: names of the bugs, in the order of `check_learner`; `()` if all is well.
        text: what each of them is and what to do.

    Example:
        >>> LearnerReport((), "no bug found").bugs
        ()
    """

    bugs: tuple[str, ...]
    text: str


def check_learner(
    env: Callable[[Callable[[], gym.Env]], Any],
    buffer: Any,
    loss: Callable[[Any, Callable[[Any], tf.Tensor]], Any],
    gamma: float = 0.9,
) -> LearnerReport:
    """Drives a chain of known values through a learner and names its bug.

    Episodes of five steps end by turns truly and by a time limit. The loss must vanish
    at the values

        v(s) = r(s) + gamma * v(s + 1),   v = 0 after a true end,

    and nowhere else. If it does not, the values at which it does vanish tell why:
    `gamma_twice`, `gamma_missing`, `terminal_bootstrap` (no mask at true ends),
    `done_only_mask` (a mask at time limits as well), `reset_observation` (in the place
    of the last one), `leak_across_episodes` (at both ends the next episode goes on),
    `reset_rows` (steps that only reset); several of them at once are all named. Also
    `unknown_observations` and `unexplained`.

    Args:
        env: takes a function that makes the chain (observations `[12]` float32 in
            [0, 1], two actions without effect) and returns what the learner plays: the
            chain in wrappers, a Gymnasium vector of such, or a `Stepper` of one.
        buffer: has `add(observations, actions, rewards, terminated, truncated,
            next_observations)` for rows `[N, ...]` as the environment returned them,
            and `sample(batch_size)`; or a function that makes it from what `env`
            returned.
        loss: takes a batch as `buffer.sample` returned it and the function to learn,
            observations to values `[B]`; returns losses or errors of any shape that
            are 0 where its target is met, such as squared temporal differences.
        gamma: discount of the learner; in (0, 1), far enough from both to tell powers
            of it apart.

    Returns:
        The report.

    Raises:
        ValueError: if `gamma` is out of its bounds, wrappers show two states by one
            observation or give one step two rewards, or the loss does not depend on
            the values.

    Example:
        >>> class Steps(list):
        ...     def add(self, *columns):
        ...         self.extend(zip(*columns, strict=True))
        ...     def sample(self, batch_size):
        ...         return [np.stack(column) for column in zip(*self)]
        >>> def loss(batch, values):
        ...     seen, _, rewards, terminated, truncated, following = batch
        ...     alive = 1.0 - (terminated | truncated)
        ...     return values(seen) - (rewards + 0.9 * alive * values(following))
        >>> check_learner(lambda make: make(), Steps(), loss).bugs
        ('done_only_mask',)

    References:
        Pardo et al., "Time limits in reinforcement learning", 2018.
    """
    where = "check_learner"
    checks.check_within(where, "gamma", gamma, 0.01, 0.999)
    played = env(_Chain)
    keeps = hasattr(buffer, "add") and hasattr(buffer, "sample")
    kept = buffer if keeps else buffer(played)
    seen = _Seen(where)
    for row in _rows(played, seen):
        kept.add(*row)
    judge = _Judge(kept.sample(_BATCH_SIZE), loss, seen)
    rewards = seen.rewards()
    right = _values(_RULES[0], gamma, rewards)
    # What a loss is where it does not vanish.
    unit = judge(right + np.where(np.arange(len(right)) % 3, 1.0, -1.0))
    if not unit > 0.0:
        raise ValueError(
            f"`{where}`: `loss` expected finite numbers that depend on the values; got "
            f"{unit} where they are wrong; make it of the function it is given"
        )
    for rule in _RULES:
        values = _values(rule, gamma, rewards)
        if values is not None and judge(values) <= _ZERO * unit:
            return _report(rule.bugs())
    depends = judge(right, unknown=0.0) != judge(right, unknown=1000.0)
    return _report(("unknown_observations" if depends else "unexplained",))


def _report(bugs: tuple[str, ...]) -> LearnerReport:
    lines = [f"{bug}: {_ADVICE[bug]}" for bug in bugs]
    return LearnerReport(bugs, "\n".join(lines) if lines else "no bug found")


class _Chain(gym.Env):
    """States 0, ..., 5 end truly, 6, ..., 11 by a time limit, by turns."""

    observation_space = gym.spaces.Box(0.0, 1.0, (2 * _LENGTH + 2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self._kind, self._at = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._at = 0
        return self._shown()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        reward = 1.0 + 0.37 * self._at - 0.61 * self._kind
        self._at += 1
        ended, kind = self._at == _LENGTH, self._kind
        observation, info = self._shown()
        if ended:  # only a played episode makes it the other's turn
            self._kind = 1 - kind
        return observation, reward, ended and kind == 0, ended and kind == 1, info

    def _shown(self) -> tuple[np.ndarray, dict[str, Any]]:
        state = self._kind * (_LENGTH + 1) + self._at
        observation = np.zeros(self.observation_space.shape, np.float32)
        observation[state] = 1.0
        return observation, {"chain_state": state}


class _Rule(NamedTuple):
    """What a learner takes for a value; the defaults are right.

    Attributes:
        power: of gamma.
        at_true_end: what is bootstrapped from: nothing, the last or the next state.
        at_time_limit: the same.
        through_resets: whether the last state leads on to the next episode's first.
    """

    power: int = 1
    at_true_end: str = "nothing"
    at_time_limit: str = "last"
    through_resets: bool = False

    def bugs(self) -> tuple[str, ...]:
        ends = (self.at_true_end, self.at_time_limit)
        found = {
            "gamma_twice": self.power == 2,
            "gamma_missing": self.power == 0,
            "terminal_bootstrap": self.at_true_end == "last",
            "done_only_mask": self.at_time_limit == "nothing",
            "reset_observation": self.at_time_limit == "next" and ends[0] != "next",
            "leak_across_episodes": self.at_true_end == "next",
            "reset_rows": self.through_resets,
        }
        return tuple(bug for bug, is_there in found.items() if is_there)


_ENDS = ("nothing", "last", "next")
# Fewer bugs first: where a bug changes nothing, it is not named.
_RULES = sorted(
    itertools.starmap(_Rule, itertools.product((1, 2, 0), _ENDS, _ENDS, (False, True))),
    key=lambda rule: len(rule.bugs()),
)


def _values(rule: _Rule, gamma: float, rewards: np.ndarray) -> Any:
    """The fixed point of a rule, `[12]`; None where there is none."""
    discount = gamma**rule.power
    size = len(rewards)
    onward, constant = np.zeros([size, size]), np.array(rewards, np.float64)
    for kind, end in enumerate((rule.at_true_end, rule.at_time_limit)):
        first = kind * (_LENGTH + 1)
        last, following = first + _LENGTH, (1 - kind) * (_LENGTH + 1)
        for state in range(first, last - 1):
            onward[state, state + 1] = discount
        if end != "nothing":
            onward[last - 1, last if end == "last" else following] = discount
        if rule.through_resets:
            onward[last, following], constant[last] = discount, 0.0
        else:
            constant[last] = _FINAL_VALUES[kind]
    matrix = np.eye(size) - onward
    return np.linalg.solve(matrix, constant) if np.linalg.det(matrix) > 1e-9 else None


class _Seen:
    """Which observations stood for which states, and what their steps brought."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._states: dict[bytes, int] = {}
        self._rows: list[np.ndarray] = []
        self._rewards: dict[int, float] = {}

    def show(self, observations: Any, states: Any) -> None:
        rows = _flat(observations)
        for row, state in zip(rows, np.reshape(states, -1).tolist(), strict=True):
            if self._states.setdefault(row.tobytes(), state) != state:
                raise ValueError(
                    f"`{self._where}`: `env` expected another observation for every "
                    "state; got one for two; leave out the wrapper that hides it"
                )
            self._rows.append(row)

    def step(self, observations: Any, states: Any, rewards: Any) -> None:
        self.show(observations, states)
        pairs = zip(np.reshape(states, -1).tolist(), np.ravel(rewards), strict=True)
        for state, reward in pairs:
            if not np.isclose(self._rewards.setdefault(state, reward), reward):
                raise ValueError(
                    f"`{self._where}`: `env` expected one reward for every step; got "
                    f"{self._rewards[state]} and {reward} for one; leave out the "
                    "wrapper that normalises them"
                )

    def rewards(self) -> np.ndarray:
        states = range(2 * _LENGTH + 2)
        return np.array([self._rewards.get(state, 0.0) for state in states])

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """The observations `[K, n]` and their states `[K]`."""
        rows = np.unique(np.stack(self._rows), axis=0)
        return rows, np.array([self._states[row.tobytes()] for row in rows])


class _Judge:
    """The greatest loss of a batch, at any values of the states."""

    def __init__(self, batch: Any, loss: Callable[..., Any], seen: _Seen) -> None:
        rows, states = seen.table()
        self._batch, self._loss = batch, loss
        self._known, self._states = tf.constant(rows), tf.constant(states)
        # One function of a variable, the same object: a loss is compiled once.
        self._values = self._looked_up
        self._table = tf.Variable(tf.zeros([2 * _LENGTH + 2]), trainable=False)
        self._unknown = tf.Variable(0.0, trainable=False)

    def __call__(self, values: np.ndarray, unknown: float = 0.0) -> float:
        self._table.assign(values)
        self._unknown.assign(unknown)
        return float(np.max(np.abs(np.asarray(self._loss(self._batch, self._values)))))

    def _looked_up(self, observations: Any) -> tf.Tensor:
        leaves = [tf.convert_to_tensor(x) for x in tf.nest.flatten(observations)]
        flat = [tf.reshape(x, [tf.shape(x)[0], -1]) for x in leaves]
        rows = tf.concat([tf.cast(x, tf.float32) for x in flat], axis=1)
        differences = tf.abs(rows[:, tf.newaxis] - self._known)
        distances = tf.reduce_max(differences, axis=-1)
        nearest = tf.gather(self._states, tf.argmin(distances, axis=-1))
        is_known = tf.reduce_min(distances, axis=-1) <= 1e-3
        return tf.where(is_known, tf.gather(self._table, nearest), self._unknown)


def _flat(observations: Any) -> np.ndarray:
    leaves = [np.asarray(leaf) for leaf in stepping.leaves_of(observations)]
    return np.concatenate(
        [leaf.reshape(len(leaf), -1).astype(np.float32) for leaf in leaves], axis=1
    )


def _rows(played: Any, seen: _Seen) -> Iterator[list[Any]]:
    """What goes into the buffer; `seen` learns what it is."""
    if isinstance(played, stepping.Stepper):
        return _stepper_rows(played, seen)
    if isinstance(played, gym.vector.VectorEnv):
        return _vector_rows(played, seen)
    return _single_rows(played, seen)


def _single_rows(env: gym.Env, seen: _Seen) -> Iterator[list[Any]]:
    def row(leaf: Any) -> np.ndarray:
        return np.array(leaf)[np.newaxis]

    for _ in range(_EPISODES):
        shown, info = env.reset()
        observations, ended = stepping.mapped(row, shown), False
        while not ended:
            action, state = env.action_space.sample(), info["chain_state"]
            shown, reward, terminated, truncated, info = env.step(action)
            following = stepping.mapped(row, shown)
            seen.step(observations, state, reward)
            seen.show(following, info["chain_state"])
            nests = (action, reward, terminated, truncated)
            yield [observations, *(stepping.mapped(row, x) for x in nests), following]
            observations, ended = following, terminated or truncated


def _vector_rows(envs: gym.vector.VectorEnv, seen: _Seen) -> Iterator[list[Any]]:
    """Rows just as the vector returns them."""
    mode = vector.autoreset_mode(envs)
    shown, info = envs.reset()
    for _ in range(_EPISODES * (_LENGTH + 1)):
        # Some vectors write into the arrays they return.
        observations = stepping.mapped(np.array, shown)
        actions, states = envs.action_space.sample(), info["chain_state"]
        shown, rewards, terminated, truncated, info = envs.step(actions)
        following = stepping.mapped(np.array, shown)
        seen.step(observations, states, rewards)
        seen.show(following, info["chain_state"])
        for index in np.flatnonzero(info.get("_final_obs", ())):
            last = info["final_obs"][index]
            state = info["final_info"]["chain_state"][index]
            seen.show(stepping.mapped(lambda leaf: leaf[np.newaxis], last), state)
        yield [observations, actions, rewards, terminated, truncated, following]
        ended = terminated | truncated
        if mode == gym.vector.AutoresetMode.DISABLED and ended.any():
            shown, info = envs.reset(options={"reset_mask": ended})


def _stepper_rows(stepper: stepping.Stepper, seen: _Seen) -> Iterator[list[Any]]:
    n_envs = stepper.envs.num_envs
    state = np.zeros(n_envs, np.int64)
    for _ in range(_EPISODES * (_LENGTH + 1)):
        observations = stepping.mapped(np.array, stepper.observations)
        actions = stepper.envs.action_space.sample()
        outcome = stepper.step(actions)
        if not outcome.valid.all():  # the chains end together
            continue
        following = stepping.mapped(np.array, outcome.next_observations)
        ended = outcome.terminated | outcome.truncated
        seen.step(observations, state, outcome.rewards)
        seen.show(following, state + 1)
        yield [observations, actions, *outcome[:3], following]
        state = np.where(ended, (state + 2) % (2 * _LENGTH + 2), state + 1)
