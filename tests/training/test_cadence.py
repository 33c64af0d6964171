import pytest

from tfrl.training import cadence


def test_some_intervals_may_be_none():
    assert cadence.Intervals(eval_epochs=None).eval_epochs is None
    with pytest.raises(ValueError, match="`Intervals`: `log_epochs` expected an int"):
        cadence.Intervals(log_epochs=0)
    with pytest.raises(TypeError, match="`Intervals`: `eval_episodes` expected an int"):
        cadence.Intervals(eval_episodes=1.5)
