"""What parallel environments of two players with equal spaces have in common."""

from typing import Any, Self

from gymnasium import spaces


class TwoPlayers:
    """Has the methods of a `pettingzoo.ParallelEnv` that say who plays and how.

    Args:
        observation_space: of each player.
        action_space: of each player.
    """

    metadata: dict[str, Any] = {"render_modes": [], "is_parallelizable": True}
    render_mode = None

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space
    ) -> None:
        self.possible_agents = ["player_0", "player_1"]
        self.agents: list[str] = []
        self._spaces = observation_space, action_space

    @property
    def unwrapped(self) -> Self:
        """The environment itself."""
        return self

    @property
    def num_agents(self) -> int:
        """How many play now."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """2."""
        return len(self.possible_agents)

    def observation_space(self, agent: str) -> spaces.Space:  # noqa: ARG002
        """Returns the space of what a player sees."""
        return self._spaces[0]

    def action_space(self, agent: str) -> spaces.Space:  # noqa: ARG002
        """Returns the space of what a player does."""
        return self._spaces[1]

    def close(self) -> None:
        """Does nothing."""

    def outcome(self, seen: Any, won: float, is_over: bool) -> tuple[Any, ...]:
        """Returns what `step` does, where the second loses what the first wins."""
        if is_over:
            self.agents = []
        names = self.possible_agents
        rewards = dict(zip(names, (won, -won), strict=True))
        ends = dict.fromkeys(names, is_over), dict.fromkeys(names, False)
        return seen, rewards, *ends, {name: {} for name in names}
