"""Many agents in one program: seeds, sweeps and population-based training."""

import concurrent.futures
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, cores
from tfrl.agents import agent as agents
from tfrl.agents import carrying
from tfrl.environments.compiled import protocol, vector_env, wrappers
from tfrl.policies import network_policy
from tfrl.summaries.plotting import mean_curve
from tfrl.training import (
    _environments,
    _parts,
    _plan,
    _settings_checks,
    _swept_settings,
)
from tfrl.training.collecting import _compiled_collection, _rollouts

_WHERE = "train_population"
# Of population-based training: the share that is replaced, and how far settings move.
_SHARE, _STEP = 4, 1.25


class Population(NamedTuple):
    """What `train_population` returns, of P members.

    Attributes:
        agents: as they are at the end.
        hyperparameters: `[P]` by name, at the end.
        env_steps: `[points]`, of each member.
        returns: `[P, points]`, mean return of the last 100 episodes, or of as many as
            there are environments if these are more; NaN before any.
        sources: `[P, points]`, the member whose copy each one became at that point; its
            own number where it was not replaced.

    Example:
        >>> Population([], {}, np.array([8]), np.ones([4, 1]), None).curve().y
        array([1.])
    """

    agents: list[Any]
    hyperparameters: dict[str, np.ndarray]
    env_steps: np.ndarray
    returns: np.ndarray
    sources: np.ndarray

    def curve(self, name: str = "population") -> mean_curve.MeanCurve:
        """Returns interquartile means with bootstrap intervals, to be plotted.

        Points at which a member has finished no episode are left out.

        Args:
            name: label in the legend.
        """
        known = np.isfinite(self.returns).all(0)
        scores = self.returns[:, None, known]
        regions = mean_curve.interquartile_mean(scores, seed=0)
        return mean_curve.MeanCurve(self.env_steps[known], *regions, name=name)


def train_population(
    agent: agents.AgentConfig,
    env: protocol.CompiledEnv,
    *,
    seeds: Sequence[int],
    hyperparameters: Mapping[str, Sequence[float]] | None = None,
    experience: Any = None,
    n_envs: int = 8,
    total_env_steps: int = 100_000,
    log_epochs: int = 10,
    exploit_epochs: int | None = None,
    network: Any = None,
) -> Population:
    """Trains P agents, each in its own environments, with one compiled program.

    Up to rounding, a member is what a `Trainer` with its seed, its settings and the
    collector "compiled" would have trained alone. The program is compiled once, and the
    members go through it one after the other, in as many threads as there are cores.

    With `exploit_epochs` it is population-based training: every so many epochs, the
    worst quarter by return takes over weights, optimizer and settings of the best
    quarter, and multiplies each setting by 1.25 or 1 / 1.25, unless it would leave its
    range, such as a `gamma` above 1. A setting of 0 stays 0. Nothing is copied until
    every member has finished an episode. Jaderberg et al. replace a fifth, of 10 or
    more members.

    Nothing is written, and nothing is resumed: keep a member's agent with
    `tfrl.saving.save_run`.

    Args:
        agent: hyper-parameters, such as `PPO()`, the same for all members except those
            below.
        env: compiled environment that resets itself, see `AutoReset`.
        seeds: `[P]`, one for each member: of weights, environments and draws.
        hyperparameters: `[P]` numbers by name, in place of those of `agent`, for
            settings that an update reads, such as `learning_rate`; not for those that
            determine how an agent is made, such as `max_gradient_norm`. Of an agent of
            one's own they are the floats that `update` reads as `agent.config.NAME`.
        experience: `Trajectories` or `Replayed`; None for what the agent prefers.
        n_envs: environments of a member.
        total_env_steps: of a member, which ends after the epoch that reaches them.
        log_epochs: epochs between points of the curves.
        exploit_epochs: see above; a multiple of `log_epochs`. Needs at least four
            members.
        network: a function of both spaces that returns a Keras model, for each member
            to learn with; or a model, with whose weights all begin.

    Returns:
        The agents, and their curves.

    Raises:
        TypeError: if the environment is not compiled, a setting is no number, or the
            agent plays on the host alone, as `Independent` and `SelfPlay` do, or learns
            from data alone.
        ValueError: in the scope of a strategy of several devices; if the environment
            does not reset itself; if `network` makes networks that differ in more than
            their weights; if a setting is unknown, or determines the program
            and so must be the same for all members; if there are fewer than four
            members with `exploit_epochs`; if the weights of a member, a reward or an
            observation are NaN or infinite, which ends all members.

    Example:
        >>> from tfrl.environments import compiled
        >>> env = compiled.AutoReset(compiled.TimeLimit(compiled.CartPole(), 20))
        >>> grown = train_population(
        ...     tfrl.agents.PPO(minibatch_size=8, n_epochs=1), env, seeds=[0, 1],
        ...     hyperparameters={"entropy_coefficient": [0.0, 0.01]},
        ...     experience=tfrl.training.Trajectories(16), n_envs=2,
        ...     total_env_steps=64, log_epochs=1)
        >>> grown.returns.shape, grown.env_steps.tolist()
        ((2, 2), [32, 64])

    References:
        Jaderberg et al., 2017, Population Based Training of Neural Networks.
        Lu et al., 2022, Discovered Policy Optimisation, on vectorised training.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise ValueError(
            f"`{_WHERE}`: expected no strategy of several devices, as members share "
            f"one; got {replicas} replicas; call it outside of `scope()`, and choose "
            "the device by tf.device"
        )
    kind = protocol.CompiledEnv
    checks.check_type(_WHERE, "env", env, kind, "a compiled environment")
    if not wrappers.resets_itself(env):
        raise ValueError(
            f"`{_WHERE}`: `env` expected an environment that begins new episodes by "
            f"itself; got {type(env).__name__}; wrap it in AutoReset"
        )
    config = _plan.checked_agent(agent, _WHERE)
    remedy = "train it by `Trainer`, with the collector 'host'"
    _plan.check_in_graph(f"`{_WHERE}`: `agent`", config, remedy)
    _plan.check_played(_WHERE, config, experience)
    learned = _plan.checked_experience(config, experience, _WHERE)
    _plan.check_read(learned)
    for settings in (config, learned):
        _settings_checks.check_shares(settings)
    values = _swept_settings.checked(_WHERE, config, seeds, hyperparameters or {})
    for name, value in {"n_envs": n_envs, "total_env_steps": total_env_steps}.items():
        checks.check_whole_number(_WHERE, name, value, low=1)
    checks.check_whole_number(_WHERE, "log_epochs", log_epochs, low=1)
    if exploit_epochs is not None:
        _check_exploits(exploit_epochs, log_epochs, len(seeds))
    members = _Members(config, env, learned, n_envs, [*seeds], values, network)
    total = -(-total_env_steps // (n_envs * learned.n_steps))
    rng = np.random.default_rng([seeds[0], 13])
    points, sources, done = [], [], 0
    while done < total:
        count = min(log_epochs, total - done)
        members.learn(done, count, total)
        done += count
        points.append(members.returns())
        chosen = np.arange(len(seeds))
        if exploit_epochs and not done % exploit_epochs and done < total:
            chosen = _chosen(points[-1], rng)
            members.copy(chosen, rng)
        sources.append(chosen)
    steps = np.array([*range(log_epochs, total, log_epochs), total])
    return Population(
        agents=members.agents(),
        hyperparameters=members.values,
        env_steps=steps * n_envs * learned.n_steps,
        returns=np.stack(points, 1),
        sources=np.stack(sources, 1),
    )


class _Members:
    """P agents side by side, their leaves stacked.

    Args:
        config: hyper-parameters that all have but for `values`.
        env: which they play.
        learned: from what they learn.
        n_envs: of each.
        seeds: `[P]`.
        values: `[P]` numbers by name.
        network: of all, or what makes each its own; None for the agent's.
    """

    def __init__(
        self,
        config: Any,
        env: protocol.CompiledEnv,
        learned: Any,
        n_envs: int,
        seeds: list[int],
        values: dict[str, np.ndarray],
        network: Any,
    ) -> None:
        self.values, self._env = values, env
        spaces = env.observation_space, env.action_space
        numbers = {"n_envs": n_envs, "n_steps": learned.n_steps}

        def made(i: int, config: Any) -> Any:
            own = {**numbers, "seed": seeds[i]}
            return _parts.made_agent(config, *spaces, own, network, _WHERE)

        self._like = made(0, config)
        envs = vector_env.as_vector_env(env, n_envs)
        _environments.check_learns_nothing(_WHERE, "env", envs)
        first = _compiled_collection.CompiledCollector(
            envs, learned, self._like, seeds[0], _WHERE
        )
        if values:
            _swept_settings.check_read(_WHERE, first, self._like, values)
        self._collectors = [first, *(first.copied() for _ in seeds[1:])]
        begun = [first.begun(seed) for seed in seeds]
        agents = [made(i, self._config(i)) for i in range(len(seeds))]
        if network is not None:
            agents = [self._alike(i, agent) for i, agent in enumerate(agents)]
        self._agents = _stacked(agents, carrying.lent(self._like))
        self._episodes = _stacked([x for x, _ in begun], begun[0][0])
        self._keys = tf.stack([key for _, key in begun])
        self._most_epochs = first.program.most_epochs
        self._play = first.program.play_members
        # Parts alike, of which each is a call of one program; in the last one the last
        # member may stand more than once.
        size = -(-len(seeds) // cores.n_cores())
        starts = np.arange(0, len(seeds), size)
        self._parts = np.minimum(starts[:, None] + np.arange(size), len(seeds) - 1)
        self._is_compiled = False

    def learn(self, done: int, n_epochs: int, total: int) -> None:
        """Lets all members play and learn for some epochs."""
        most = self._most_epochs
        for start in range(done, done + n_epochs, most):
            count = min(most, done + n_epochs - start)
            self._learn(start, count, total)

    def returns(self) -> np.ndarray:
        """The mean return of each member's last episodes, `[P]`."""
        return np.array(
            [
                np.mean(x.episode_returns) if x.episode_returns else np.nan
                for x in self._collectors
            ]
        )

    def copy(self, chosen: np.ndarray, rng: np.random.Generator) -> None:
        """Puts copies in the place of members, with settings that have moved.

        Args:
            chosen: `[P]`, whose copy each is to be.
            rng: by which settings move.
        """
        self._agents = tf.nest.map_structure(
            lambda x: tf.gather(x, chosen), self._agents
        )
        replaced = chosen != np.arange(len(chosen))
        for name, x in self.values.items():
            factors = _STEP ** rng.choice([-1.0, 1.0], len(chosen))
            for i in np.flatnonzero(replaced):
                factors[i] = self._possible(name, x[chosen[i]], factors[i])
            self.values[name] = np.where(replaced, x[chosen] * factors, x)

    def _possible(self, name: str, value: float, factor: float) -> float:
        """A factor, or 1 where the product would be none of the settings."""
        try:
            dataclasses.replace(self._like.config, **{name: float(value * factor)})
        except ValueError:
            return 1.0
        return factor

    def agents(self) -> list[Any]:
        """The agents, each with its own settings."""
        found = []
        for i in range(len(self._collectors)):
            leaves = [x[i] for x in tf.nest.flatten(self._agents)]
            member = tf.nest.pack_sequence_as(self._like, leaves)
            found.append(member.replace(config=self._config(i)))
        return found

    def _alike(self, i: int, agent: Any) -> Any:
        """The agent of a member, on the first one's networks."""
        try:
            return carrying.named_like(agent, self._like)
        except ValueError as error:
            told = "`network` expected to make networks that differ in weights alone"
            fault = f"got of the members 0 and {i} {error}; train what differs apart"
            raise ValueError(f"`{_WHERE}`: {told}; {fault}") from None

    def _config(self, i: int) -> Any:
        own = {name: float(x[i]) for name, x in self.values.items()}
        return dataclasses.replace(self._like.config, **own)

    def _learn(self, start: int, count: int, total: int) -> None:
        agents, episodes, *rest, facts = self._called(start, start + count, total)
        for i, (collector, *own) in enumerate(
            zip(self._collectors, *rest, strict=True)
        ):
            where, said = (
                f"{_WHERE}, member {i}",
                facts.replace(numbers=facts.numbers[i]),
            )
            try:
                collector.noted(count, *own, said, where=where)
            except ValueError as error:
                # Were the weights at fault, which played what is odd?
                if sound := self._n_sound(own[0], count):
                    acted = self._called(start, start + sound, total)[0]
                    raise self._divergence(acted, start + sound) or error from None
                raise
        if fault := self._divergence(agents, start + count):
            raise fault
        self._agents, self._episodes = agents, episodes

    def _called(self, start: int, end: int, total: int) -> list[Any]:
        """What the program returns of all members, who stay as they are."""
        numbers = [tf.constant(x) for x in (start, end, float(total))]
        settings = {k: tf.constant(x, tf.float32) for k, x in self.values.items()}
        given = self._agents, self._episodes, self._keys, settings
        device = tf.zeros([]).device

        def part(members: np.ndarray) -> Any:
            with tf.device(device):  # which threads do not know
                own = tf.nest.map_structure(lambda x: tf.gather(x, members), given)
                return self._play(*own, *numbers)

        found = []
        if not self._is_compiled:  # by one, for the others
            found, self._is_compiled = [part(self._parts[0])], True
        with concurrent.futures.ThreadPoolExecutor(len(self._parts)) as threads:
            found += threads.map(part, self._parts[len(found) :])
        whole: list[Any] = tf.nest.map_structure(
            lambda *x: tf.concat(x, 0)[: len(self._collectors)], *found
        )
        return whole

    def _n_sound(self, numbers: tf.Tensor, count: int) -> int:
        """How many epochs there were before what was played is odd."""
        kinds = _rollouts.kinds_of(self._env)
        for epoch, parts in enumerate(np.asarray(numbers)[:count]):
            for kind, x in zip(kinds, parts, strict=True):
                if x.any() if kind == "choices" else not np.isfinite(x).all():
                    return epoch
        return count

    def _divergence(self, agents: Any, done: int) -> ValueError | None:
        """The error of weights that are not finite, if any are."""
        if not isinstance(agents.policy, network_policy.NetworkPolicy):
            return None
        finite = np.ones(len(self._collectors), bool)
        for x in tf.nest.flatten(agents.policy.state.params):
            finite &= np.isfinite(np.asarray(x)).reshape(len(finite), -1).all(-1)
        for i in np.flatnonzero(~finite):
            own = {name: float(x[i]) for name, x in self.values.items()}
            settings = f", of {own}," if own else ""
            return ValueError(
                f"`{_WHERE}, member {i}`: `agent` expected weights that stay finite; "
                f"got NaN or infinite ones{settings} within {done} epoch(s); lower its "
                "learning rate, clip gradients, or leave the member out"
            )
        return None


def _stacked(nests: list[Any], like: Any) -> Any:
    leaves = zip(*map(tf.nest.flatten, nests), strict=True)
    return tf.nest.pack_sequence_as(like, [tf.stack(x) for x in leaves])


def _chosen(returns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whose copy each member is to be: of the worst quarter, one of the best."""
    chosen, count = np.arange(len(returns)), len(returns) // _SHARE
    if np.isfinite(returns).all():
        order = np.argsort(returns, kind="stable")
        chosen[order[:count]] = rng.choice(order[-count:], count)
    return chosen


def _check_exploits(exploit_epochs: int, log_epochs: int, n_members: int) -> None:
    checks.check_whole_number(_WHERE, "exploit_epochs", exploit_epochs, low=1)
    if exploit_epochs % log_epochs:
        raise ValueError(
            f"`{_WHERE}`: `exploit_epochs` expected a multiple of `log_epochs`, "
            f"{log_epochs}; got {exploit_epochs}"
        )
    if n_members < _SHARE:
        raise ValueError(
            f"`{_WHERE}`: `exploit_epochs` expected {_SHARE} members at least, of "
            f"which the worst quarter copies the best; got {n_members} seeds; give "
            "more, or None"
        )
