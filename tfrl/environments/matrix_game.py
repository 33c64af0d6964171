"""Two-player games of one move, given by their matrix of payoffs."""

from typing import Any

import numpy as np
from gymnasium import spaces

from tfrl._internal import arguments
from tfrl.environments import _two_players

_WHERE = "MatrixGame"
# Rock, paper, scissors.
_RPS = ((0.0, -1.0, 1.0), (1.0, 0.0, -1.0), (-1.0, 1.0, 0.0))


class MatrixGame(_two_players.TwoPlayers):
    """A game of two players who choose at once, as a parallel environment.

    Row and column are chosen without knowing the other's choice; the first player gets
    `payoffs[row, column]`, the second its negative, and the game is over. The
    observation is a constant 1.

    Rock-paper-scissors has its only equilibrium where all three are equally likely. In
    general, mixes `p` of rows and `q` of columns are an equilibrium if no response to
    them gains anything:

        exploitability = (max(payoffs @ q) - min(p @ payoffs)) / 2 = 0

    Args:
        payoffs: `[R, R]`, finite. By default those of rock-paper-scissors.

    Attributes:
        payoffs: `[R, R]` float64.

    Raises:
        TypeError: if `payoffs` are not numbers.
        ValueError: if they are not finite or not square.

    Example:
        >>> game = MatrixGame([[0, 3], [-3, 1]])
        >>> seen, _ = game.reset(seed=0)
        >>> game.step({"player_0": 0, "player_1": 1})[1]
        {'player_0': 3.0, 'player_1': -3.0}
    """

    def __init__(self, payoffs: Any = _RPS) -> None:
        try:
            self.payoffs = np.array(payoffs, np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`{_WHERE}`: `payoffs` expected a matrix of numbers; got "
                f"{payoffs!r:.80}"
            ) from error
        shape = self.payoffs.shape
        is_square = len(shape) == 2 and shape[0] == shape[1] > 1
        if not is_square or not np.isfinite(self.payoffs).all():
            raise ValueError(
                f"`{_WHERE}`: `payoffs` expected a square matrix of finite numbers, "
                f"at least 2 by 2; got {arguments.shown(self.payoffs)}"
            )
        box = spaces.Box(0.0, 1.0, (2,), np.float32)
        super().__init__(box, spaces.Discrete(shape[0]))

    def reset(
        self,
        seed: int | None = None,  # noqa: ARG002
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins a game; nothing is random."""
        self.agents = [*self.possible_agents]
        return self._shown(), {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Plays the game.

        Args:
            actions: row and column, by player.

        Returns:
            Observations, rewards, terminated, truncated and infos, by player.
        """
        first, second = (int(actions[name]) for name in self.possible_agents)
        payoff = float(self.payoffs[first, second])
        return self.outcome(self._shown(), payoff, is_over=True)

    def _shown(self) -> dict[str, Any]:
        seen = np.eye(2, dtype=np.float32)
        return dict(zip(self.possible_agents, seen, strict=True))
