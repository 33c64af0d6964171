"""Exact values of Kuhn's poker, by all deals and all pure answers.

Strategies are functions of own card and moves so far ("", "p", "b", "pb") to the
probability of betting. Written from the rules alone.
"""

import itertools

DEALS = list(itertools.permutations(range(3), 2))
SITUATIONS = {0: ("", "pb"), 1: ("p", "b")}


def value(first, second):
    """What the first player gets on average."""
    return sum(_played(first, second, cards, "") for cards in DEALS) / len(DEALS)


def _played(first, second, cards, moves):
    higher = 1 if cards[0] > cards[1] else -1
    ends = {"pp": higher, "bb": 2 * higher, "pbb": 2 * higher, "bp": 1, "pbp": -1}
    if moves in ends:
        return ends[moves]
    player = len(moves) % 2
    bets = (first, second)[player](cards[player], moves)
    return bets * _played(first, second, cards, moves + "b") + (1 - bets) * _played(
        first, second, cards, moves + "p"
    )


def answers(player):
    """All pure strategies of a player."""
    known = list(itertools.product(range(3), SITUATIONS[player]))
    for choices in itertools.product((0.0, 1.0), repeat=len(known)):
        table = dict(zip(known, choices, strict=True))
        yield lambda card, moves, table=table: table[card, moves]


def exploitability(mix):
    """What the best answers to a mix of (weight, first, second) gain, halved."""
    best = max(
        sum(w * value(answer, second) for w, _, second in mix) for answer in answers(0)
    )
    worst = min(
        sum(w * value(first, answer) for w, first, _ in mix) for answer in answers(1)
    )
    return (best - worst) / 2


def equilibrium(a=0.2):
    """A pair of strategies of which none gains by leaving it."""
    first = {(0, ""): a, (1, ""): 0.0, (2, ""): 3 * a}
    first |= {(0, "pb"): 0.0, (1, "pb"): a + 1 / 3, (2, "pb"): 1.0}
    second = {(0, "p"): 1 / 3, (1, "p"): 0.0, (2, "p"): 1.0}
    second |= {(0, "b"): 0.0, (1, "b"): 1 / 3, (2, "b"): 1.0}
    return (lambda c, m: first[c, m]), (lambda c, m: second[c, m])
