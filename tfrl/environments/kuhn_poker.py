"""Kuhn's poker, the smallest game with bluffing."""

from typing import Any

import numpy as np
from gymnasium import spaces

from tfrl.environments import _two_players

# Stakes of the showdown, or who gets 1 as the other folds, by all moves of the game.
_SHOWDOWNS = {"pp": 1.0, "bb": 2.0, "pbb": 2.0}
_FOLDS = {"bp": 0, "pbp": 1}


class KuhnPoker(_two_players.TwoPlayers):
    """Kuhn's poker for two players, as a parallel environment.

    Each gets one of the cards 0, 1 and 2, and puts down 1. The first passes (0) or bets
    1 more (1). After a pass the second may pass, for a showdown, or bet; after a bet
    one calls it (1), for a showdown, or folds (0) and loses what was put down. The
    higher card wins a showdown. Rewards come at the end: what was won or lost.

    Both players act in each step; the mask allows only 0 to the one who is not to move.
    They see

        {"action_mask": [2], "observation": [9]}

    the one-hots of player, own card, and the first and second move, zeros before it.

    If both play optimally, the first player gets -1/18 a game. In the equilibria it
    bets card 0 with a probability `a` up to 1/3, card 2 with `3 * a` and card 1 never,
    and calls with card 1 with `a + 1/3`; the second bets card 0, and calls with card 1,
    with a probability of 1/3, and always bets card 2. Both call with card 2 and fold
    card 0.

    Example:
        >>> game = KuhnPoker()
        >>> seen, _ = game.reset(seed=0)
        >>> seen["player_1"]["action_mask"].tolist()
        [1, 0]
        >>> seen, *_ = game.step({"player_0": 1, "player_1": 0})
        >>> seen["player_1"]["action_mask"].tolist()
        [1, 1]

    References:
        Kuhn, 1950, A Simplified Two-Person Poker.
    """

    def __init__(self) -> None:
        box = spaces.Box(0.0, 1.0, (9,), np.float32)
        seen = {"action_mask": spaces.MultiBinary(2), "observation": box}
        super().__init__(spaces.Dict(seen), spaces.Discrete(2))
        self._chance = np.random.default_rng()
        self._cards, self._moves = [0, 1], ""

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Deals the cards.

        Args:
            seed: of the cards; None continues.
            options: ignored.

        Returns:
            Observations and infos, by player.
        """
        if seed is not None:
            self._chance = np.random.default_rng(seed)
        self.agents = [*self.possible_agents]
        self._cards = self._chance.permutation(3)[:2].tolist()
        self._moves = ""
        return self._shown(is_over=False), {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Plays the move of the player on turn.

        Args:
            actions: 0 or 1, by player.

        Returns:
            Observations, rewards, terminated, truncated and infos, by player.
        """
        mover = self.possible_agents[len(self._moves) % 2]
        self._moves += "pb"[int(actions[mover])]
        won = 0.0
        is_over = self._moves in _SHOWDOWNS or self._moves in _FOLDS
        if self._moves in _SHOWDOWNS:
            is_first = self._cards[0] > self._cards[1]
            won = _SHOWDOWNS[self._moves] * (1.0 if is_first else -1.0)
        elif is_over:
            won = 1.0 if _FOLDS[self._moves] == 0 else -1.0
        return self.outcome(self._shown(is_over), won, is_over)

    def _shown(self, is_over: bool) -> dict[str, Any]:
        turn = None if is_over else len(self._moves) % 2
        shown = {}
        for player, name in enumerate(self.possible_agents):
            seen = np.zeros(9, np.float32)
            seen[[player, 2 + self._cards[player]]] = 1.0
            for i, move in enumerate(self._moves[:2]):
                seen[5 + 2 * i + "pb".index(move)] = 1.0
            mask = np.array([1, player == turn], np.int8)
            shown[name] = {"action_mask": mask, "observation": seen}
        return shown
