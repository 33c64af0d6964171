"""One policy made of several; one of them plays each episode."""

from typing import Any

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

    Where the member that plays a row is no longer among those of a newer version of the
    policy, the current one goes on, from the beginning of its memory.

    Attributes:
        current: the policy that learns.
        members: tuple of policies.
        chances: `[1 + M]`, of the current one and of the first M members to be drawn.
        seed: `[S]` uint32, of the draws.
        n_agents: players of a copy; None to draw for all rows.
        numbers: of each member, 1 or more, by which the state names who plays a row,
            and 0 the current one; `()` for their places from 1 on.
        parts_are_alike: whether members are of the architecture of the current one; if
            not, each remembers for itself.

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
    numbers: Any = ()
    # If they are, one compiled function plays them all.
    parts_are_alike: bool = pytree.nonpytree_field(default=True)

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
        played_by = np.array(self._names(), np.int32)[drawn]
        memory = self.current.initial_state(batch_size)
        state = {"memory": memory, "played_by": played_by}
        if not self.parts_are_alike:
            others = (member.initial_state(batch_size) for member in self.members)
            state["memory_of_members"] = tuple(others)
        return state

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
        parts = {name: i for i, name in enumerate(self._names())}
        played_by = np.asarray(state["played_by"])
        memories = [state["memory"], *state.get("memory_of_members", ())]
        for name in {*played_by.tolist()}.difference(parts):
            gone = np.flatnonzero(played_by == name)
            played_by = np.where(played_by == name, np.int32(0), played_by)
            own = tf.nest.map_structure(np.array, memories[0])
            first = self.current.initial_state(len(gone))
            memories[0] = _rows.put(own, gone, first, n_rows)
        rows = {
            parts[x]: np.flatnonzero(played_by == x)
            for x in sorted({*played_by.tolist()})
        }
        kept_in = {i: 0 if self.parts_are_alike else i for i in rows}
        given = [
            (
                actors[i],
                mine,
                _rows.picked(observations, mine),
                _rows.remembered(memories[kept_in[i]], mine),
            )
            for i, mine in rows.items()
        ]
        done = _rows.acted(given, seed, temperature, mask)
        whole: list[Any] = [None] * 3
        # Of others, rows that another plays keep what they had.
        after: list[Any] = [None]
        if not self.parts_are_alike:
            after = [tf.nest.map_structure(np.array, x) for x in memories]
        for (i, mine), (*decided, memory) in zip(rows.items(), done, strict=True):
            for k, part in enumerate(decided):
                if part is not None:
                    whole[k] = _rows.put(whole[k], mine, part, n_rows)
            k = kept_in[i]
            after[k] = _rows.put(after[k], mine, memory, n_rows)
        actions, raw, log_probs = whole
        state = {"memory": after[0], "played_by": played_by}
        if not self.parts_are_alike:
            state["memory_of_members"] = tuple(after[1:])
        return policies.Acted(actions, raw, log_probs, state)

    def _names(self) -> list[int]:
        """Who plays, as states name them."""
        numbers = np.asarray(self.numbers).tolist() or range(1, 1 + len(self.members))
        return [0, *numbers]
