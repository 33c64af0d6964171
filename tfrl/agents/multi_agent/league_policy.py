"""One policy made of several; one of them plays each episode."""

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from tfrl.agents.multi_agent import _rows
from tfrl.core import pytree
from tfrl.policies import policy as policies


class LeaguePolicy(_rows.ActsByParts, pytree.PyTreeNode):
    """A current policy and those of its past; one of them plays each episode of a row.

    The result of `initial_state` determines who plays the episodes that begin with it,
    drawn by `chances`. Where `n_agents` is given, rows belong to players, `n_agents`
    for each copy of the environment, and the current policy plays player `i % n_agents`
    of copy i: each player in turn.

    Attributes:
        current: the policy that learns.
        members: tuple of policies of the same architecture.
        chances: `[1 + M]`, of the current one and of each member to be drawn.
        seed: `[S]` uint32, of the draws.
        n_agents: players of a copy; None to draw for all rows.

    Example:
        >>> space = gym.spaces.Box(-1.0, 1.0, (3,))
        >>> policy = tfrl.agents.PPO().create(space, gym.spaces.Discrete(2)).policy
        >>> chances, seed = np.array([0.0, 1.0]), np.array([0], np.uint32)
        >>> league = LeaguePolicy(policy, (policy,), chances, seed, n_agents=2)
        >>> league.initial_state(4)["played_by"].tolist()
        [0, 1, 1, 0]
    """

    current: Any
    members: tuple[Any, ...]
    chances: np.ndarray
    seed: np.ndarray
    n_agents: int | None = pytree.nonpytree_field(default=None)

    # One compiled function plays them all.
    parts_are_alike: ClassVar[bool] = True

    @property
    def parts(self) -> tuple[Any, ...]:
        """The current policy and the members."""
        return self.current, *self.members

    def seen_by_parts(self, observations: Any) -> list[Any]:
        """Returns what each part may be shown: anything."""
        return [observations] * len(self.parts)

    def rows_of_current(self, n_rows: int) -> np.ndarray:
        """Returns the rows that the current policy always plays, one of each copy.

        Args:
            n_rows: of the vector.
        """
        if self.n_agents is None:
            return np.zeros(0, np.int64)
        copies = np.arange(-(-n_rows // self.n_agents))
        rows = copies * self.n_agents + copies % self.n_agents
        return rows[rows < n_rows]

    def initial_state(self, batch_size: int) -> Any:
        """Returns who plays each row, and what it remembers at the beginning."""
        chances = np.asarray(self.chances, np.float64)
        drawn = np.random.default_rng(np.asarray(self.seed)).choice(
            len(chances), batch_size, p=chances / chances.sum()
        )
        if self.n_agents is not None:
            drawn[self.rows_of_current(batch_size)] = 0
        memory = self.current.initial_state(batch_size)
        return {"memory": memory, "played_by": drawn.astype(np.int32)}

    def act_by(
        self,
        actors: Any,
        observations: Any,
        state: Any,
        seed: Any,
        temperature: float,
        mask: Any,
    ) -> policies.Acted:
        """Chooses actions by functions that replace the `act` of each part."""
        n_rows = len(tf.nest.flatten(observations)[0])
        state = state or self.initial_state(n_rows)
        played_by = np.asarray(state["played_by"])
        rows = {int(i): np.flatnonzero(played_by == i) for i in np.unique(played_by)}
        given = [
            (
                actors[i],
                mine,
                _rows.picked(observations, mine),
                _rows.picked(state["memory"], mine),
            )
            for i, mine in rows.items()
        ]
        done = _rows.acted(given, seed, temperature, mask)
        whole: list[Any] = [None] * 4
        for mine, each in zip(rows.values(), done, strict=True):
            for i, part in enumerate(each):
                if part is not None:
                    whole[i] = _rows.put(whole[i], mine, part, n_rows)
        actions, raw, log_probs, memory = whole
        after = {"memory": memory, "played_by": played_by}
        return policies.Acted(actions, raw, log_probs, after)
