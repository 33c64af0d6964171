"""Which steps can be drawn, step by step and in one go."""

import numpy as np
import pytest
import replay_episodes

from tfrl.replay.sampling import _eligibility


def listed(model, reach, behind):
    """Returns rows of all steps that are eligible."""
    capacity = model.n * model.length
    return sorted(
        (position * model.n + env) % capacity
        for env, position in model.steps()
        if position + reach <= model.end(env, position)
        and model.complete(env, position, behind)
    )


@pytest.mark.parametrize("reach, behind", [(1, 0), (3, 0), (1, 2), (2, 3)])
@pytest.mark.parametrize("n, length, gap", [(1, 7, 1), (3, 6, 1), (3, 9, 4), (2, 5, 9)])
def test_following_a_store(reach, behind, n, length, gap):
    both = replay_episodes.Stream(n, length)
    follower = _eligibility.Eligibility(both.store.steps, reach, behind)
    owners = {}
    for k in range(60):
        both.run(seed=k, rounds=gap, ends=0.3)
        change = follower.update()
        expected = listed(both.model, reach, behind)
        assert np.flatnonzero(follower.flags).tolist() == expected
        assert follower.count == len(expected)
        if change is not None:
            index = both.store.steps.columns().indices
            assert len({*change.rows.tolist()}) == change.rows.size
            # A step that is in a change as eligible never was before.
            for row in change.rows[change.eligible].tolist():
                assert owners.get(row) != index[row]
                owners[row] = index[row]
        assert follower.update() is None
        fresh = _eligibility.Eligibility(both.store.steps, reach, behind)
        fresh.update()
        np.testing.assert_array_equal(fresh.flags, follower.flags)


def test_unequal_speeds():
    both = replay_episodes.Stream(2, 6)
    follower = _eligibility.Eligibility(both.store.steps, 2, 1)
    for k in range(80):
        on, out = replay_episodes.ON, replay_episodes.OUT
        end = replay_episodes.BOTH if k % 5 == 4 else on
        both.advance([end, on if k % 9 == 0 else out])
        follower.update()
        expected = listed(both.model, 2, 1)
        assert np.flatnonzero(follower.flags).tolist() == expected


def test_a_store_restored_is_looked_at_afresh():
    both = replay_episodes.Stream(2, 6).run(0, 8)
    follower = _eligibility.Eligibility(both.store.steps, 1, 0)
    follower.update()
    contents = both.store.steps.contents
    contents.deserialize(contents.serialize())
    change = follower.update()
    np.testing.assert_array_equal(change.rows, np.arange(12))
    np.testing.assert_array_equal(change.eligible, follower.flags)
    assert follower.flags.sum() == follower.count > 0
    # What was restored along with it counts.
    contents.deserialize(contents.serialize())
    follower.restore(follower.flags, follower.checked)
    change = follower.update()
    assert not change.eligible.any()
    assert follower.flags.sum() == follower.count > 0
