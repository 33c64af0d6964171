"""Tests of `tfrl.training.checking._chain_rules`."""

import numpy as np
import pytest

from tfrl.training.checking import _known_chain

REWARDS = [1.0, 2, 3, 4, 5, None, 6, 7, 8, 9, 10, None]
STEPS = {s: (s + 1, r) for s, r in enumerate(REWARDS) if r is not None}
# Rewards this great are four times the chain's own.
LAST = 7.0 * 10.0 / _known_chain.MOST


def test_right_values_worked_by_hand():
    values = _known_chain.values(_known_chain.Rule(), 0.5, STEPS)
    expected = [1 + 0.5 * (2 + 0.5 * (3 + 0.5 * (4 + 0.5 * 5)))]
    expected.append(6 + 0.5 * (7 + 0.5 * (8 + 0.5 * (9 + 0.5 * (10 + 0.5 * LAST)))))
    np.testing.assert_allclose(values[[0, 6]], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("rule", "state", "expected"),
    [
        ({"exponent": "twice"}, 3, 4 + 0.25 * 5),
        ({"at_time_limit": "nothing"}, 10, 10.0),
        ({"at_true_end": "last"}, 4, 5 + 0.5 * 11 * 10 / _known_chain.MOST),
        ({"rewards": "previous"}, 6, 5 + 0.5 * (6 + 0.5 * (7 + 0.5 * (8 + 4.5)))),
        ({"rewards": "next or 0"}, 3, 5.0),
        ({"n_steps": 2, "exponent": "once"}, 8, 8 + 0.5 * 9 + 0.5 * (10 + LAST / 2)),
        ({"n_steps": 2, "exponent": "n"}, 10, 10 + 0.25 * LAST),
        ({"n_steps": 3, "exponent": "once more"}, 10, 10 + 0.25 * LAST),
    ],
    ids=lambda x: "-".join(map(str, x.values())) if isinstance(x, dict) else None,
)
def test_rules_worked_by_hand(rule, state, expected):
    rule = _known_chain.Rule(**rule)
    values = _known_chain.values(rule, 0.5, STEPS)
    if rule.rewards == "previous":  # its last step bootstraps as well
        expected += 0.5**5 * LAST
    np.testing.assert_allclose(values[state], expected, rtol=1e-12)


def test_windows_beyond_an_end():
    rule = _known_chain.Rule(2, through_ends=True)
    values = _known_chain.values(rule, 0.5, STEPS)
    # From 3 the window ends with the episode, from 4 it goes on.
    np.testing.assert_allclose(values[3], 4 + 0.5 * 5, rtol=1e-12)
    np.testing.assert_allclose(values[4], 5 + 0.5 * 6 + 0.25 * values[7], rtol=1e-12)


def test_without_an_end_there_are_no_values():
    leaking = _known_chain.Rule(1, "never", "next", "next")
    assert _known_chain.values(leaking, 0.5, STEPS) is None


def test_a_free_value_leads_to_those_before_it():
    right = _known_chain.values(_known_chain.Rule(), 0.5, STEPS)
    free = _known_chain.values(_known_chain.Rule(), 0.5, STEPS, {4: right[4] + 1.0})
    moved = np.zeros(12)
    moved[:5] = 0.5 ** np.arange(4, -1, -1)
    np.testing.assert_allclose(free - right, moved, rtol=1e-12, atol=1e-12)


def test_rules_of_one_value_hide_bugs_of_each_other():
    found = []
    for rule in _known_chain.RULES:
        values = _known_chain.values(rule, 0.9, STEPS)
        if values is None or rule.exponent == "never" and rule.through_resets:
            continue  # a loop without a discount leaves little to tell apart
        same = [r for r, v in found if np.allclose(v, values, rtol=1e-6)]
        for other in same[:1]:
            assert set(other.bugs()) <= set(rule.bugs()), (other, rule)
        found.append((rule, values))
    assert found[0][0] == _known_chain.Rule()
    names = {bug for rule, _ in found for bug in rule.bugs()}
    assert len(names) == 9
