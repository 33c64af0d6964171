"""Tests of `tfrl.environments.kuhn_poker`."""

import collections

import kuhn_oracle
import numpy as np
import pytest

from tfrl.environments import KuhnPoker

NAMES = ["player_0", "player_1"]


def played(game, strategies, chance, seed=None):
    """One game by strategies of the oracle: cards, moves and what the first won."""
    seen, _ = game.reset(seed=seed)
    cards = [int(np.argmax(seen[x]["observation"][2:5])) for x in NAMES]
    moves = ""
    while game.agents:
        mover = len(moves) % 2
        for player, name in enumerate(NAMES):
            shown = seen[name]["observation"]
            assert seen[name]["action_mask"].tolist() == [1, player == mover]
            assert shown[:2].tolist() == [player == 0, player == 1]
            assert shown[2 + cards[player]] == 1 == shown[2:5].sum()
            past = "".join("pb"[i % 2] for i in np.flatnonzero(shown[5:]))
            assert past == moves[:2]
        bets = chance.random() < strategies[mover](cards[mover], moves)
        moves += "pb"[bets]
        # What the other one says does not count.
        actions = {NAMES[mover]: bets, NAMES[1 - mover]: chance.integers(2)}
        seen, rewards, terminated, truncated, _ = game.step(actions)
        assert rewards[NAMES[0]] == -rewards[NAMES[1]]
        assert terminated[NAMES[0]] == terminated[NAMES[1]] == (not game.agents)
        assert not any(truncated.values())
    return tuple(cards), moves, rewards[NAMES[0]]


def test_all_games_pay_what_the_rules_say():
    game, chance = KuhnPoker(), np.random.default_rng(0)
    coin = [lambda card, moves: 0.5] * 2
    found = {}
    for _ in range(2_000):
        cards, moves, won = played(game, coin, chance)
        assert found.setdefault((cards, moves), won) == won
    assert len(found) == 6 * 5
    for (cards, moves), won in found.items():
        high = 1 if cards[0] > cards[1] else -1
        stake = {"pp": high, "bp": 1, "pbp": -1, "bb": 2 * high, "pbb": 2 * high}
        assert won == stake[moves]


def test_cards_are_dealt_evenly_by_the_seed():
    game = KuhnPoker()
    dealt = collections.Counter()
    for seed in range(3_000):
        seen, _ = game.reset(seed=seed)
        first = {x: seen[x]["observation"].tolist() for x in NAMES}
        again, _ = game.reset(seed=seed)
        assert first == {x: again[x]["observation"].tolist() for x in NAMES}
        dealt[tuple(int(np.argmax(first[x][2:5])) for x in NAMES)] += 1
    assert sorted(dealt) == sorted(kuhn_oracle.DEALS)
    assert min(dealt.values()) > 420


@pytest.mark.slow
def test_equilibrium_is_worth_what_kuhn_found():
    for a in (0.0, 0.2, 1 / 3):
        pair = kuhn_oracle.equilibrium(a)
        assert kuhn_oracle.value(*pair) == pytest.approx(-1 / 18)
        assert kuhn_oracle.exploitability([(1.0, *pair)]) == pytest.approx(0, abs=1e-12)
    game, chance = KuhnPoker(), np.random.default_rng(1)
    won = [played(game, pair, chance)[2] for _ in range(20_000)]
    assert np.mean(won) == pytest.approx(-1 / 18, abs=0.03)
