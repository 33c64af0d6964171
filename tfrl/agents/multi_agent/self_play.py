"""Self-play: an agent that learns against policies of its own past."""

import dataclasses
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np

from tfrl._internal import arguments, checks
from tfrl.agents.multi_agent import _rows, league_policy
from tfrl.agents.on_policy import ppo
from tfrl.core import pytree, records
from tfrl.policies import policy as policies

# Share of what was known of win rates that is left after an update.
_LEFT = 0.98


@dataclasses.dataclass(frozen=True)
class SelfPlay:
    """Hyper-parameters of self-play against a league of past policies.

    One player of each copy of an environment learns, each in turn over the copies; the
    others are played by policies of the league, drawn anew for the episodes that begin
    in each trajectory, or by the learner's current policy. Environments are those of
    `tfrl.environments.ParallelEnvVector` whose agents have equal spaces.

    Every `snapshot_updates` updates the policy joins the league, which begins with the
    untrained one. A full league keeps each policy that ever joined with the same
    probability. The one that left last ends the episodes that it plays, without
    credit; the current policy takes over those that last until the next one leaves.
    The share of games played against member m, which the learner beats with
    probability `w[m]`, is

        (1 - current_share) * f[m] / sum(f),    f[m] = (1 - w[m]) ** priority

    With a priority of 0 all members are alike, which is fictitious self-play, whose
    `average_policy` approaches an equilibrium of zero-sum games for two players. A
    greater priority prefers members that still win (prioritized fictitious self-play).

    The league is a part of the agent: it is saved and resumed with the run.

    Attributes:
        agent: hyper-parameters of an agent that learns from trajectories; None for
            `PPO()`. Its trajectories have `n_envs / n_agents` rows; `minibatch_size`
            must divide that times the steps.
        n_agents: players of the environment, 2 or more.
        snapshot_updates: updates from one snapshot to the next.
        capacity: maximum members of the league. Each takes the memory of the policy's
            weights, also in every checkpoint, as does the one that left last.
        current_share: share of games played against the current policy.
        priority: exponent of the above.

    Example:
        >>> config = SelfPlay(tfrl.agents.A2C(), snapshot_updates=5)
        >>> box = gym.spaces.Box(-1.0, 1.0, (3,))
        >>> agent = config.create(box, gym.spaces.Discrete(2), n_envs=4, seed=0)
        >>> agent.n_members, agent.win_rates().tolist()
        (1, [0.5])

    References:
        Heinrich, Lanctot, Silver, 2015, Fictitious Self-Play in Extensive-Form Games.
        Vinyals et al., 2019, Grandmaster level in StarCraft II using multi-agent
        reinforcement learning, methods.
    """

    learns_from: ClassVar[str] = "trajectories"

    agent: Any = None
    n_agents: int = 2
    snapshot_updates: int = 10
    capacity: int = 20
    current_share: float = 0.2
    priority: float = 0.0

    def __post_init__(self) -> None:
        where = "SelfPlay"
        if self.agent is None:
            object.__setattr__(self, "agent", ppo.PPO())
        _rows.check_config(where, "agent", self.agent)
        checks.check_whole_number(where, "n_agents", self.n_agents, low=2)
        for name in ("snapshot_updates", "capacity"):
            checks.check_whole_number(where, name, getattr(self, name), low=1)
        arguments.check_number(where, "current_share", self.current_share, 0.0, 1.0)
        arguments.check_number(where, "priority", self.priority, 0.0, 100.0)

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        seed: int = 0,
        network: Any = None,
        n_envs: int | None = None,
        n_steps: int | None = None,
        n_agents: int | None = None,
    ) -> "SelfPlayAgent":
        """Returns an agent for the spaces of a row.

        Args:
            observation_space: of one player.
            action_space: of one player.
            seed: of weights and draws.
            network: as in the `create` of `agent`.
            n_envs: rows of a trajectory, N.
            n_steps: steps of a trajectory, T.
            n_agents: of the environment; None if unknown. `Trainer` passes 1 where a
                vector names no `agents`.

        Returns:
            An untrained `SelfPlayAgent`.

        Raises:
            TypeError: if a space is of a kind that the agent does not support.
            ValueError: if `n_envs` is not given or no multiple of `n_agents`, the
                environment has another number of agents, or hyper-parameters do not
                fit.
        """
        where = "SelfPlay.create"
        if n_envs is None:
            raise ValueError(
                f"`{where}`: `n_envs` expected the number of rows of trajectories, as "
                "the returns of games are followed; got None"
            )
        n_rows = checks.check_whole_number(where, "n_envs", n_envs, low=1)
        if n_agents not in (None, self.n_agents):
            remedy = f"set `SelfPlay(n_agents={n_agents})`"
            if n_agents == 1:
                remedy = "make a `ParallelEnvVector`, or a vector that has `agents`"
            raise ValueError(
                f"`{where}`: `n_agents` expected {self.n_agents}, the players of "
                f"`SelfPlay.n_agents`; got an environment of {n_agents}; {remedy}"
            )
        if n_rows % self.n_agents:
            raise ValueError(
                f"`{where}`: `n_envs` expected a multiple of `n_agents`, "
                f"{self.n_agents}; got {n_rows}"
            )
        spaces = observation_space, action_space
        numbers = n_rows, self.n_agents, n_steps
        learner = _rows.created(self.agent, spaces, seed, *numbers, network)
        member = policies.without_optimizer(learner.policy)
        return SelfPlayAgent(
            learner=learner,
            members=(member,) * self.capacity,
            former=member,
            numbers=np.append(np.arange(1, self.capacity + 1), -1),
            games=np.zeros(self.capacity, np.float32),
            points=np.zeros(self.capacity, np.float32),
            returns=np.zeros(n_rows),
            ended_by=np.full(n_rows, -1),
            counts=np.array([0, 1]),
            seed=np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32),
            config=self,
        )


class SelfPlayAgent(pytree.PyTreeNode):
    """A learner and its league. Make one with `SelfPlay.create`.

    Attributes:
        learner: the agent that learns; `learner.policy` is what to play and to export.
        members: tuple of `capacity` policies, of which the first `n_members` count.
        former: the policy that left the league last, to end its episodes.
        numbers: `[capacity + 1]`, of the members and of `former`, from 1 on in the
            order in which they joined; -1 of nobody.
        games: `[capacity]`, games against each member, older ones counting less.
        points: `[capacity]`, from these games: 1 for a win, 1/2 for a draw.
        returns: `[N]`, of the running games.
        ended_by: `[N]`, where a row of a running game has ended, the number of who
            played it, 0 for the learner; else -1.
        counts: `[2]`, updates done and snapshots taken.
        seed: `[2]` uint32, of the draws.
        config: the hyper-parameters.

    Example:
        >>> box, config = gym.spaces.Box(-1.0, 1.0, (3,)), SelfPlay(tfrl.agents.A2C())
        >>> agent = config.create(box, box, n_envs=2)
        >>> agent.policy.current is agent.learner.policy
        True
    """

    learner: Any
    members: tuple[Any, ...]
    former: Any
    numbers: np.ndarray
    games: np.ndarray
    points: np.ndarray
    returns: np.ndarray
    ended_by: np.ndarray
    counts: np.ndarray
    seed: np.ndarray
    config: SelfPlay = pytree.nonpytree_field()

    @property
    def n_members(self) -> int:
        """How many policies the league has."""
        return int(min(self.counts[1], self.config.capacity))

    def win_rates(self) -> np.ndarray:
        """Returns how often the learner beats each member, `[n_members]`.

        A game counts once all of its players have ended, whoever leaves first or joins
        late; one that a player never joins does not. It is won against a member where
        the learner's return is above that of the member's row, and half won where it is
        equal. With three or more players each row of a member is a game of its own,
        whoever plays the rest. Results count less by 2 percent with each update; half a
        game won is the prior.
        """
        points, games = (np.asarray(x, np.float64) for x in (self.points, self.games))
        return ((points + 0.5) / (games + 1.0))[: self.n_members]

    @property
    def policy(self) -> league_policy.LeaguePolicy:
        """What plays all rows: the learner's, and those of the league."""
        config = self.config
        chances = np.zeros(1 + config.capacity)
        chances[0] = config.current_share
        chances[1 : 1 + self.n_members] = (1.0 - config.current_share) * _shares(
            self.win_rates(), config.priority
        )
        seed = np.append(self.seed, np.uint32(self.counts[0]))
        members = *self.members, self.former
        return league_policy.LeaguePolicy(
            self.learner.policy, members, chances, seed, config.n_agents, self.numbers
        )

    @property
    def average_policy(self) -> league_policy.LeaguePolicy:
        """The league as one policy: a member, drawn uniformly, plays each episode."""
        count = self.n_members
        chances = np.append(0.0, np.full(count, 1.0 / count))
        return league_policy.LeaguePolicy(
            self.learner.policy, self.members[:count], chances, self.seed
        )

    def against(self, opponent: Any) -> league_policy.LeaguePolicy:
        """Returns the learner's policy in games against another, for evaluation.

        Args:
            opponent: a `Policy`, or a function from observations to actions.

        Returns:
            A policy for all rows; those of the learner are its `rows_of_current`.

        Raises:
            TypeError: if `opponent` is neither.
        """
        other = policies.as_policy("SelfPlayAgent.against", "opponent", opponent)
        chances = np.array([0.0, 1.0])
        return league_policy.LeaguePolicy(
            *(self.learner.policy, (other,), chances, self.seed, self.config.n_agents),
            parts_are_alike=False,
        )

    @property
    def needs_log_probs(self) -> bool:
        """Whether trajectories must have log-probabilities."""
        return getattr(self.learner, "needs_log_probs", False)

    def update(self, trajectory: records.Trajectory) -> tuple[Self, dict]:
        """Learns from the rows of the learner, and from all who won.

        Args:
            trajectory: `[T, N]`, with the states of `policy`.

        Returns:
            The new agent, and the learner's info, with `league_size`, and
            `league_win_rate` and `league_win_rate_min` over the league's members.

        Raises:
            TypeError: if `trajectory` is not one.
            ValueError: if it has other rows than the agent was made for, or the learner
                raises it.
        """
        where, count = "SelfPlay.update", self.config.n_agents
        _rows.check_trajectory(where, trajectory, count)
        n_rows = trajectory.rewards.shape[1]
        if n_rows != len(self.returns) or not isinstance(trajectory.states, dict):
            raise ValueError(
                f"`{where}`: `trajectory` expected {len(self.returns)} rows, with the "
                f"states of `policy`; got {n_rows} rows and states "
                f"{trajectory.states!r:.80}"
            )
        rows = self.policy.rows_of_current(n_rows)
        own = trajectory._replace(states=trajectory.states["memory"])
        learner, info = self.learner.update(_rows.columns(own, rows))
        agent = self._judged(trajectory, rows).replace(learner=learner)
        updates = int(self.counts[0]) + 1
        agent = agent.replace(counts=np.array([updates, int(self.counts[1])]))
        if updates % self.config.snapshot_updates == 0:
            agent = agent._joined()
        known = agent.win_rates()
        found = {"size": agent.n_members, "win_rate": known.mean()}
        found["win_rate_min"] = known.min()
        return agent, {**info, **{f"league_{key}": x for key, x in found.items()}}

    def _judged(self, trajectory: records.Trajectory, rows: np.ndarray) -> Self:
        """Counts the games that are over."""
        count, numbers = self.config.n_agents, self.numbers[: self.n_members]
        games, points = self.games * np.float32(_LEFT), self.points * np.float32(_LEFT)
        returns, ended_by = np.array(self.returns), np.array(self.ended_by)
        rewards, valid = (np.asarray(x) for x in (trajectory.rewards, trajectory.valid))
        ended = np.asarray(trajectory.terminated) | np.asarray(trajectory.truncated)
        played_by = np.asarray(trajectory.states["played_by"])
        others = np.ones(len(returns), bool)
        others[rows] = False
        for t in range(len(rewards)):
            # Where a row that has ended plays again, its copy has begun anew.
            again = (valid[t] & (ended_by >= 0)).reshape(-1, count).any(1)
            is_new = np.repeat(again, count)
            returns = np.where(is_new, 0.0, returns) + rewards[t] * valid[t]
            ended_by = np.where(is_new, -1, ended_by)
            ended_by = np.where(ended[t] & valid[t], played_by[t], ended_by)
            is_over = np.repeat((ended_by >= 0).reshape(-1, count).all(1), count)
            if not is_over.any():
                continue
            mine = np.repeat(returns[rows], count)
            scores = np.where(mine > returns, 1.0, 0.5 * (mine == returns))
            counted = (is_over & others)[:, None] & (ended_by[:, None] == numbers)
            games[: len(numbers)] += counted.sum(0)
            points[: len(numbers)] += (counted * scores[:, None]).sum(0)
            returns = np.where(is_over, 0.0, returns)
            ended_by = np.where(is_over, -1, ended_by)
        return self.replace(
            games=games, points=points, returns=returns, ended_by=ended_by
        )

    def _joined(self) -> Self:
        """Lets the learner's policy join the league, if chance does not refuse it."""
        taken, capacity = int(self.counts[1]), self.config.capacity
        place = taken
        if taken >= capacity:
            chance = np.random.default_rng([*self.seed.tolist(), taken, 1])
            place = int(chance.integers(taken + 1))
        counts = np.array([int(self.counts[0]), taken + 1])
        if place >= capacity:
            return self.replace(counts=counts)
        members, numbers = list(self.members), self.numbers.copy()
        games, points = self.games.copy(), self.points.copy()
        former = self.former
        if taken >= capacity:
            former, numbers[-1] = members[place], numbers[place]
        members[place] = policies.without_optimizer(self.learner.policy)
        numbers[place] = taken + 1
        games[place] = points[place] = 0.0
        told = {"games": games, "points": points, "counts": counts}
        return self.replace(
            members=tuple(members), former=former, numbers=numbers, **told
        )


def _shares(win_rates: np.ndarray, priority: float) -> np.ndarray:
    """Returns `(1 - w) ** priority` over its sum, by logarithms: powers underflow."""
    # Of a member that is always beaten the logarithm would be that of 0.
    least = np.nextafter(0.0, 1.0)
    logits = priority * np.log(np.maximum(1.0 - win_rates, least))
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())
