"""Policies judged by whole episodes, models by whole data sets."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium.vector import VectorEnv

from tfrl._internal import arguments, checks, gym_checks
from tfrl.environments import attributes
from tfrl.environments.compiled import wrappers
from tfrl.host import stepping
from tfrl.policies import policy as policies
from tfrl.training.collecting import _played_actions, collection

# Some ten times what any known task takes.
_ENDLESS_STEPS = 1_000_000


class Evaluation(NamedTuple):
    """Results of whole episodes.

    Attributes:
        returns: `[n_episodes]` float64, undiscounted sums of rewards.
        lengths: `[n_episodes]` int64, in steps.
        agents: the agent of each episode, `n_episodes` names, where environments have
            several agents; else empty.
        successes: `[n_episodes]` bool, `info["is_success"]` of the last steps, False
            for an episode that did not report it; empty if none did.

    Example:
        >>> Evaluation(np.array([1.0, 3.0]), np.array([5, 7])).returns.mean().item()
        2.0
    """

    returns: np.ndarray
    lengths: np.ndarray
    agents: tuple[str, ...] = ()
    successes: np.ndarray = np.empty(0, bool)

    def returns_by_agent(self) -> dict[str, np.ndarray]:
        """The returns of each agent by its name; empty where there is one agent.

        Example:
            >>> played = Evaluation(np.array([1.0, 3.0]), np.array([5, 7]), ("a", "b"))
            >>> played.returns_by_agent()["b"].tolist()
            [3.0]
        """
        names = np.array(self.agents)
        distinct = dict.fromkeys(self.agents)
        return {name: self.returns[names == name] for name in distinct}


def evaluate(
    policy: Any,
    envs: VectorEnv,
    n_episodes: int,
    *,
    seed: int,
    temperature: float = 0.0,
) -> Evaluation:
    """Plays `n_episodes` episodes, the same number in each environment.

    Only the first episodes of each environment count, `n_episodes / N` of them, rounded
    up for the first environments: long episodes are as likely to count as short ones.
    In a `ParallelEnvVector` each row is an environment; all agents count equally many
    episodes.

    Args:
        policy: a `tfrl.policies.Policy`, or a function from a nest of observations
            `[N, *shape]` to the environment's actions.
        envs: vector environment of N; it is reset here and left where it ends, so it
            must not be one that a `Collector` still plays.
        n_episodes: at least 1; with several agents, their total, a multiple of their
            number.
        seed: of the environments, and of draws.
        temperature: as in `Policy.act`; 0 takes the best actions.

    Returns:
        Returns and lengths of the counted episodes, environment by environment; and
        whether they succeeded, where `info["is_success"]` is reported.

    Raises:
        TypeError: if `policy` is neither a policy nor a function, `envs` no vector, or
            `n_episodes` no int.
        ValueError: if `n_episodes` is not positive or no multiple of the agents, an
            environment returns what it should not, or an episode has not ended after
            1,000,000 steps.
        ConnectionError: if a worker process of the environments is gone.

    Example:
        >>> envs = tfrl.environments.make_vec("CartPole-v1", 2, "sync")
        >>> played = evaluate(lambda obs: np.zeros(2, np.int64), envs, 4, seed=0)
        >>> played.returns.shape, bool((played.returns == played.lengths).all())
        ((4,), True)
    """
    where = "evaluate"
    acting = policies.as_policy(where, "policy", policy)
    gym_checks.check_vector(where, "envs", envs)
    arguments.check_whole_number(where, "n_episodes", n_episodes, low=1)
    n_envs, agents = envs.num_envs, agents_of(envs)
    wanted = rounded_up(n_episodes, agents)
    if n_episodes != wanted:
        raise ValueError(
            f"`{where}`: `n_episodes` expected a multiple of {len(agents)}, as many "
            f"for each of {agents}; got {n_episodes}; take {wanted}"
        )
    tally = Tally(n_envs, n_episodes, agents)
    with _told_as_an_evaluation():
        _play(acting, envs, tally, seed, temperature)
    return tally.evaluation()


@contextlib.contextmanager
def _told_as_an_evaluation() -> Iterator[None]:
    """Tells a lost process of the environments from one of those to train in."""
    try:
        yield
    except ConnectionError as error:
        raise ConnectionError(f"in an evaluation: {error}") from error


def _play(
    acting: Any, envs: VectorEnv, tally: Any, seed: int, temperature: float
) -> None:
    """Plays as long as the tally lacks episodes."""
    stepper = stepping.Stepper(envs, seed)
    initial = memory = acting.initial_state(envs.num_envs)
    rng = np.random.default_rng(seed)
    n_steps = 0
    while not tally.is_full():
        acted = acting.act(
            stepper.observations, memory, seed=rng, temperature=temperature
        )
        seen = _played_actions.Seen(stepper.observations, n_steps)
        actions = _played_actions.checked("evaluate", acted.actions, envs, seen)
        n_steps += 1
        outcome = stepper.step(actions)
        ended = outcome.terminated | outcome.truncated
        tally.add(outcome.rewards, ended, outcome.valid, outcome.successes)
        memory = collection.remembered(acted.state, initial, outcome)


def endless(collector: collection.Collector, judged: Any) -> str | None:
    """Tells that the first evaluation may not end, as no episode of training has.

    Args:
        collector: who plays in training. Where a time limit is known, episodes end.
        judged: what an evaluation before has brought; None before the first.
    """
    if judged is not None or not collector.env_steps or collector.episode_lengths:
        return None
    compiled = attributes.get_env_attr(collector.envs, "compiled", None)
    layers = [] if compiled is None else wrappers.layers(compiled)
    spec = getattr(collector.envs, "spec", None)
    is_limited = getattr(spec, "max_episode_steps", None) is not None
    if is_limited or any(isinstance(x, wrappers.TimeLimit) for x in layers):
        return None
    return (
        "an evaluation plays whole episodes, but in training none has ended in "
        f"{collector.env_steps:,} steps; if they have no end, limit them by "
        "`max_episode_steps` of `make_vec` or `make_compiled`"
    )


def agents_of(envs: VectorEnv) -> tuple[str, ...]:
    """Names of the agents that the rows of a vector are of in turn; else empty."""
    found = attributes.get_env_attr(envs, "agents", None)
    is_sequence = isinstance(found, Sequence) and not isinstance(found, str)
    is_named = is_sequence and all(isinstance(name, str) for name in found)
    return tuple(found) if is_named else ()


def rounded_up(n_episodes: int, agents: tuple[str, ...]) -> int:
    """The least number of episodes, as many for each agent, that is not below one."""
    return n_episodes + -n_episodes % max(len(agents), 1)


class Tally:
    """Counts episodes of a vector while they are played, as `evaluate` does.

    Args:
        n_envs: environments of the vector, N.
        n_episodes: how many are wanted.
        agents: whose the rows are in turn; empty where environments have one agent.
    """

    def __init__(
        self, n_envs: int, n_episodes: int, agents: tuple[str, ...] = ()
    ) -> None:
        self._agents = agents
        self._quota = (n_episodes + n_envs - 1 - np.arange(n_envs)) // n_envs
        self._returns: list[list[float]] = [[] for _ in range(n_envs)]
        self._lengths: list[list[int]] = [[] for _ in range(n_envs)]
        self._successes: list[list[bool | None]] = [[] for _ in range(n_envs)]
        self._running, self._steps = np.zeros(n_envs), np.zeros(n_envs, np.int64)

    def is_full(self) -> bool:
        """Whether all that are wanted were played."""
        pairs = zip(self._returns, self._quota, strict=True)
        return all(len(done) >= wanted for done, wanted in pairs)

    def add(
        self, rewards: np.ndarray, ended: np.ndarray, valid: Any, successes: Any = None
    ) -> None:
        """Counts a step.

        Args:
            rewards: `[N]`.
            ended: `[N]` bool, whether it ended an episode.
            valid: `[N]` bool, whether it was one; of a reset it was none.
            successes: `[N]` bool, of episodes that ended; None where nothing is said.

        Raises:
            ValueError: if a reward is NaN, or an episode does not end.
        """
        if np.isnan(rewards).any():
            raise ValueError(
                f"`evaluate`: `envs` expected rewards, not NaN; got {rewards}"
            )
        self._running += np.where(valid, rewards, 0.0)
        self._steps += valid
        told = [None] * len(ended) if successes is None else successes.tolist()
        for index in np.flatnonzero(ended):
            if len(self._returns[index]) < self._quota[index]:
                self._returns[index].append(float(self._running[index]))
                self._lengths[index].append(int(self._steps[index]))
                self._successes[index].append(told[index])
            self._running[index], self._steps[index] = 0.0, 0
        if self._steps.max() >= _ENDLESS_STEPS:
            raise ValueError(
                "`evaluate`: `envs` expected episodes that end; got one of "
                f"{_ENDLESS_STEPS:,} steps that goes on; limit them, as by "
                "`max_episode_steps` of `make_vec`"
            )

    def evaluation(self) -> Evaluation:
        """What was counted, environment by environment."""
        copies = len(self._returns) // max(len(self._agents), 1)
        names = zip(self._agents * copies, self._returns, strict=bool(self._agents))
        told = [value for done in self._successes for value in done]
        is_told = any(value is not None for value in told)
        return Evaluation(
            np.array([value for done in self._returns for value in done]),
            np.array([value for done in self._lengths for value in done], np.int64),
            tuple(name for name, done in names for _ in done),
            np.array(told if is_told else [], bool),
        )


def predict_dataset(model: Callable[[Any], Any], testset: Iterable[Any]) -> tf.Tensor:
    """Returns the outputs of one or several predictors for all examples of a set.

    Args:
        model: maps a batch of inputs to outputs `[B, D]`, or `[B, N, D]` for N
            predictors; if it returns a tuple or list, the first part is used.
        testset: batches such as a `tf.data.Dataset` gives; a tuple or list is a batch
            of (inputs, ...), anything else the inputs themselves.

    Returns:
        Outputs `[N, S, D]` for the S examples of the set in its order; N is 1 for a
        model that returns `[B, D]`.

    Raises:
        TypeError: if `model` is no function or returns no numbers, or `testset` cannot
            be read.
        ValueError: if the set or one of its batches is empty, or the outputs have other
            axes or change their shape or dtype from batch to batch.

    Example:
        >>> data = tf.data.Dataset.from_tensor_slices((tf.ones([5, 3]), tf.ones([5])))
        >>> predict_dataset(lambda x: 2.0 * x, data.batch(2)).shape
        TensorShape([1, 5, 3])
    """
    where = "predict_dataset"
    if not callable(model):
        raise arguments.wrong_type(where, "model", model, "a function")
    arguments.check_type(where, "testset", testset, Iterable, "a data set of batches")
    outputs: list[tf.Tensor] = []
    for batch in testset:
        output = _output(where, model(_first(where, "testset", batch)))
        kinds = [(x.shape[1:], x.dtype) for x in (output, *outputs[:1])]
        if kinds[0] != kinds[-1]:
            raise ValueError(
                f"`{where}`: `model` expected to return {outputs[0].shape} "
                f"{outputs[0].dtype.name} as before, up to the first axis; got "
                f"{output.shape} {output.dtype.name}"
            )
        outputs.append(output)
    if not outputs:
        raise ValueError(
            f"`{where}`: `testset` expected batches; got none: was it read already?"
        )
    return tf.transpose(tf.concat(outputs, axis=0), [1, 0, 2])


def auc_score(inliers: Any, outliers: Any) -> float:
    """Returns how well scores tell outliers from inliers.

        auc = P(outlier > inlier) + P(outlier = inlier) / 2

    for one of each drawn at random: the area under the curve of true against false
    alarms. 1 if every outlier has the greater score, 0.5 if scores carry no
    information.

    Args:
        inliers: scores of examples from the training set, any shape.
        outliers: scores of other examples, any shape.

    Returns:
        The area, in [0, 1].

    Raises:
        TypeError: if they are no numbers, or no array.
        ValueError: if one of them is empty or NaN.

    Example:
        >>> auc_score([0.1, 0.2, 0.3], [0.2, 0.9])
        0.75

    References:
        Fawcett, "An introduction to ROC analysis", 2006, section 7.
    """
    where, scores = "auc_score", {}
    for name, given in (("inliers", inliers), ("outliers", outliers)):
        try:
            tensor = checks.as_tensor(where, name, given, dtype_hint=tf.float64)
        except ValueError as error:
            raise TypeError(str(error)) from error
        array = np.ravel(tf.cast(tensor, tf.float64))
        if not array.size or np.isnan(array).any():
            raise ValueError(
                f"`{where}`: `{name}` expected scores, none of them NaN; got {given!r}"
            )
        scores[name] = np.sort(array)
    left, right = (
        np.searchsorted(scores["inliers"], scores["outliers"], side)
        for side in ("left", "right")
    )
    return float((left + right).mean() / (2.0 * scores["inliers"].size))


def _first(where: str, name: str, value: Any) -> Any:
    """The first part of a tuple or list, anything else as it is."""
    if not isinstance(value, tuple | list):
        return value
    if not value:
        raise ValueError(f"`{where}`: `{name}` expected parts; got {value!r}")
    return value[0]


def _output(where: str, told: Any) -> tf.Tensor:
    """What a model returned, `[B, N, D]`."""
    output = checks.as_tensor(where, "model", _first(where, "model", told))
    if output.shape.rank == 2:
        output = output[:, tf.newaxis]
    if output.shape.rank != 3:
        raise ValueError(
            f"`{where}`: `model` expected to return [B, D] or [B, N, D]; got shape "
            f"{output.shape}"
        )
    return output
