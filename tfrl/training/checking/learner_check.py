"""Whether wrappers, buffer and loss of a learner agree on what a value is.

Values of a small chain are known in closed form, also those that a learner with a
certain bug takes for right. The values at which its loss vanishes show which bug it
has.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks
from tfrl.training.checking import _known_chain

_BATCH_SIZE = 256
_BATCHES = 5
_ZERO = 1e-5
_MARK = 77
_KEPT = 16
_ADVICE = {
    "gamma_twice": "values are discounted by gamma squared: `discounts` hold gamma "
    "already, or it is in the loss a second time",
    "gamma_missing": "values are not discounted: multiply them by gamma, after n steps "
    "by gamma ** n",
    "terminal_bootstrap": "the value after a true end is learned from: it is 0 there, "
    "mask it by `terminated`",
    "done_only_mask": "a time limit is taken for a true end: mask by `terminated`, "
    "never by `terminated | truncated`",
    "reset_observation": "after a time limit the next observation is a reset's: keep "
    "the last one, as `tfrl.host.Stepper` does",
    "leak_across_episodes": "what follows an end is taken from the next episode: stop "
    "there, and mask it by `terminated`",
    "reset_rows": "steps in which the environment only reset itself are learned from: "
    "leave them out, as `tfrl.host.Stepper` marks them in `valid`",
    "reward_off_by_one": "rewards are those of the step before or after: keep with an "
    "action the reward that `step` returned for it",
    "short_windows": "what is bootstrapped from is discounted by gamma ** n even after "
    "fewer than n steps: use gamma ** m after m of them",
    "steps_left_out": "from some states of an episode that ends truly no step is ever "
    "sampled: store all steps, the last one as well",
    "overwritten_observations": "the environment writes into the arrays it returned, "
    "and the buffer keeps these: copy them when they are added",
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
    env: Callable[[Callable[..., gym.Env]], Any],
    buffer: Any,
    loss: Callable[[Any, Callable[[Any], tf.Tensor]], Any],
    gamma: float = 0.9,
) -> LearnerReport:
    """Drives a chain of known values through a learner and names its bug.

    Episodes of five steps end alternately in a true end and by a time limit. The loss
    must vanish at the values

        v(s) = r(s) + gamma * v(s + 1),   v = 0 after a true end,

    and every step of an episode that ends truly must be learned from. If it does not
    vanish there, the values at which it does show why: `gamma_twice`, `gamma_missing`,
    `terminal_bootstrap` (no mask at true ends), `done_only_mask` (a mask at time limits
    as well), `reset_observation` (in the place of the last one), `leak_across_episodes`
    (the next episode continues this one at both ends, or within n steps, or in a trace
    of later errors, seen if losses are squares or one for each step), `reset_rows`
    (steps that only reset), `reward_off_by_one`, `short_windows`; several at once are
    all named, unless one hides another. Returns of up to five steps are recognized.
    Further bugs are `steps_left_out`, `overwritten_observations`,
    `unknown_observations` and `unexplained`.

    Actions have no effect and are not checked.

    Args:
        env: takes a function that makes the chain (observations `[12]` float32 in
            [0, 1]) and returns what the learner plays: the chain in wrappers, a
            Gymnasium vector of such, or a `Stepper` of one. The function takes an
            action space, two actions by default.
        buffer: has `add(observations, actions, rewards, terminated, truncated,
            next_observations)` for rows `[N, ...]`, the last of them as the environment
            returned them and may overwrite them in the next step, and
            `sample(batch_size)`, called again while a batch does not show all steps; or
            a function that makes it from what `env` returned.
        loss: takes a batch as `buffer.sample` returned it and the function to learn,
            observations `[..., *shape]` to values `[...]`; returns losses or errors of
            any shape that are 0 where its target is met, such as squared temporal
            differences, and nothing else.
        gamma: discount of the learner; in (0, 1), far enough from both to tell powers
            of it apart.

    Returns:
        The report.

    Raises:
        TypeError: if an argument is not what it should be, or returns what it should
            not.
        ValueError: if `gamma` is out of its bounds, wrappers hide states, ends or
            steps of the chain or give one step two rewards, or the loss does not depend
            on the values.

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
    for name, value in (("env", env), ("loss", loss)):
        checks.check_type(where, name, value, Callable, "a function")
    played = env(_known_chain.Chain)
    kept = _buffer(where, buffer, played)
    seen = _known_chain.Seen(where)
    for row in _known_chain.rows(played, seen):
        kept.add(*row)
    seen.check_ends()
    judge = _Judge(where, loss, seen, float(gamma))
    rule: _known_chain.Rule | None = None
    left_out: set[int] | None = None
    for _ in range(_BATCHES):
        judge.show(kept.sample(_BATCH_SIZE))
        before, rule = left_out, judge.rule()
        left_out = set() if rule is None else judge.left_out(rule)
        if left_out in (set(), before):
            break
    if rule is None or left_out is None:
        return _report((_unnamed(judge, kept, seen),))
    bugs = list(rule.bugs())
    if not rule.shows_next() and judge.mixes_episodes(rule):
        bugs.append("leak_across_episodes")
    # Where a time limit cut, one may leave out steps, and learn from others.
    if any(state < _known_chain.TRUE_END for state in left_out):
        bugs.append("steps_left_out")
    return _report(tuple(bugs))


def _buffer(where: str, buffer: Any, played: Any) -> Any:
    is_made = hasattr(buffer, "sample") and not isinstance(buffer, type)
    made = buffer if is_made or not callable(buffer) else buffer(played)
    if not (hasattr(made, "add") and hasattr(made, "sample")):
        raise TypeError(
            f"`{where}`: `buffer` expected the methods `add` and `sample`, or a "
            f"function that makes what has them; got {made!r}"
        )
    return made


def _unnamed(judge: "_Judge", kept: Any, seen: _known_chain.Seen) -> str:
    if seen.overwrites:
        for leaf in seen.newest:
            if leaf.flags.writeable:
                leaf[...] = _MARK
        for leaf in map(np.asarray, tf.nest.flatten(kept.sample(_BATCH_SIZE))):
            rows = leaf.reshape(len(leaf), -1) if leaf.size and leaf.ndim else leaf
            if leaf.size and np.all(rows == _MARK, axis=-1).any():
                return "overwritten_observations"
    return "unknown_observations" if judge.sees_unknown() else "unexplained"


def _report(bugs: tuple[str, ...]) -> LearnerReport:
    lines = [f"{bug}: {_ADVICE[bug]}" for bug in bugs]
    return LearnerReport(bugs, "\n".join(lines) if lines else "no bug found")


class _Judge:
    """The greatest loss of some batches, at any values of the states."""

    def __init__(
        self,
        where: str,
        loss: Callable[..., Any],
        seen: _known_chain.Seen,
        gamma: float,
    ) -> None:
        rows, states = seen.table()
        self._where, self._loss, self._gamma = where, loss, gamma
        self._steps, self._shapes = seen.steps, seen.shapes
        self._batches: list[Any] = []
        self._known, self._states = tf.constant(rows), tf.constant(states)
        # One function of a variable, the same object: a loss is compiled once.
        self._values = self._looked_up
        self._table = tf.Variable(tf.zeros([_known_chain.SIZE + 1]), trainable=False)
        self._found: dict[int, tuple[Any, tf.Tensor]] = {}
        self._right = _known_chain.values(_known_chain.Rule(), gamma, seen.steps)
        self._scale = _known_chain.scale(seen.steps)
        self._unit, self._asked = 0.0, 0

    def show(self, batch: Any) -> None:
        """Takes one batch more into account."""
        self._batches.append(batch)
        # What a loss is where it does not vanish.
        signs = np.where(np.arange(_known_chain.SIZE) % 3, 1.0, -1.0)
        self._unit = self._at(self._right + self._scale * signs)
        if not 0.0 < self._unit < np.inf:
            raise ValueError(
                f"`{self._where}`: `loss` expected finite numbers that depend on the "
                f"values; got {self._unit} where they are wrong"
            )

    def rule(self) -> _known_chain.Rule | None:
        """Returns the rule of least bugs at whose values the losses vanish."""
        tried = set()
        for rule in _known_chain.RULES:
            values = _known_chain.values(rule, self._gamma, self._steps)
            if values is None:
                continue
            key = np.round(values / self._scale, 9).tobytes()
            if key not in tried and self._at(values) <= _ZERO * self._unit:
                return rule
            tried.add(key)
        return None

    def left_out(self, rule: _known_chain.Rule) -> set[int]:
        """Returns the states that may have any value, as no step is learned from.

        Those of episodes that end truly, and the last before a time limit.
        """
        values = _known_chain.values(rule, self._gamma, self._steps)

        def vanishes(state: int) -> bool:
            free = {state: values[state] + self._scale}
            moved = _known_chain.values(rule, self._gamma, self._steps, free)
            return moved is not None and self._at(moved) <= _ZERO * self._unit

        return {
            state
            for state, (after, _) in self._steps.items()
            if state < _known_chain.TRUE_END or after == _known_chain.TIME_LIMIT
            if vanishes(state)
        }

    def mixes_episodes(self, rule: _known_chain.Rule) -> bool:
        """Tells whether one loss depends on values of both kinds of episodes."""
        values = _known_chain.values(rule, self._gamma, self._steps)
        states = np.arange(_known_chain.SIZE)
        offsets = self._scale * np.cos(3.0 * states)
        ends_truly = states <= _known_chain.TRUE_END
        small = 1e-4 * self._unit
        for batch in self._batches:

            def losses(a: float, b: float, batch: Any = batch) -> np.ndarray:
                moved = values + offsets * np.where(ends_truly, a, b)
                self._table.assign(np.append(moved, 0.0))
                return self._numbers(self._loss(batch, self._values))

            none, one, other = losses(0.0, 0.0), losses(1.0, 0.0), losses(0.0, 1.0)
            if none.size > 0.5 * self._asked:  # a loss for each step
                moved = [np.abs(x - none) > small for x in (one, other)]
                if (moved[0] & moved[1]).any():
                    return True
            elif np.allclose(losses(2.0, 0.0), 4.0 * one, atol=small):  # squares
                if (np.abs(losses(1.0, 1.0) - one - other) > small).any():
                    return True
        return False

    def sees_unknown(self) -> bool:
        """Tells whether losses depend on observations that were never shown."""
        far = 1000.0 * self._scale
        return self._at(self._right, unknown=0.0) != self._at(self._right, far)

    def _at(self, values: np.ndarray, unknown: float = 0.0) -> float:
        self._table.assign(np.append(values, unknown))
        losses = (self._loss(batch, self._values) for batch in self._batches)
        return float(np.max([np.max(np.abs(self._numbers(loss))) for loss in losses]))

    def _numbers(self, loss: Any) -> np.ndarray:
        try:
            if loss is None or isinstance(loss, tuple | dict):
                raise TypeError(f"a {type(loss).__name__}")
            numbers = tf.cast(tf.convert_to_tensor(loss), tf.float64).numpy()
        except (TypeError, ValueError, tf.errors.OpError) as error:
            raise TypeError(
                f"`{self._where}`: `loss` expected to return a tensor of losses alone; "
                f"got {loss!r}; leave out what else it returns"
            ) from error
        if not numbers.size:
            raise ValueError(
                f"`{self._where}`: `loss` expected to return losses; got none"
            )
        return numbers

    def _looked_up(self, observations: Any) -> tf.Tensor:
        first = tf.nest.flatten(observations)[0]
        if not tf.executing_eagerly():
            return tf.gather(self._table, self._shown(observations))
        # Most losses ask again for the same arrays, which are kept: so is their id.
        if id(first) not in self._found:
            self._found[id(first)] = (first, self._shown(observations))
            if len(self._found) > _KEPT:
                del self._found[next(iter(self._found))]
        return tf.gather(self._table, self._found[id(first)][1])

    def _shown(self, observations: Any) -> tf.Tensor:
        """The states that observations show, `SIZE` where none."""
        leaves = [tf.convert_to_tensor(x) for x in tf.nest.flatten(observations)]
        lead = 1
        if len(leaves) == len(self._shapes):
            rank = leaves[0].shape.rank - len(self._shapes[0])
            own = [leaf.shape[rank:] for leaf in leaves]
            if rank >= 0 and own == [tf.TensorShape(x) for x in self._shapes]:
                lead = rank
        leading = tf.shape(leaves[0])[:lead]
        self._asked = max(self._asked, leaves[0].shape[:lead].num_elements() or 0)
        flat = [tf.reshape(x, [-1, np.prod(x.shape[lead:], dtype=int)]) for x in leaves]
        rows = tf.concat([tf.cast(x, tf.float32) for x in flat], axis=1)
        if not rows.shape[1:].is_compatible_with(self._known.shape[1:]):
            raise ValueError(
                f"`{self._where}`: `loss` expected to ask for the values of "
                f"observations as `env` showed them, {self._known.shape[1]} numbers "
                f"each; got {rows.shape[1]}; keep networks and features out of it"
            )
        return tf.reshape(_nearest(rows, self._known, self._states), leading)


@tf.function(reduce_retracing=True)
def _nearest(rows: tf.Tensor, known: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
    """The state of the known row that each row is."""
    distances = tf.reduce_max(tf.abs(rows[:, tf.newaxis] - known), axis=-1)
    nearest = tf.gather(states, tf.argmin(distances, axis=-1))
    is_known = tf.reduce_min(distances, axis=-1) <= 1e-3
    return tf.where(is_known, nearest, _known_chain.SIZE)
