"""A trainer on several replicas and on two workers."""

import numpy as np
import pytest
import tensorflow as tf
import training_workers
from training_workers import make_trainer

from tfrl.agents import policy_gradient
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import cadence, experience, trainer

SMALL = policy_gradient.PolicyGradient(hidden_units=(8,))


def make_small(folder, **settings):
    return trainer.Trainer(
        folder,
        n_epochs=3,
        agent=SMALL,
        make_envs=training_workers.make_envs,
        n_envs=2,
        experience=experience.Trajectories(8),
        intervals=cadence.Intervals(eval_episodes=1, checkpoint_epochs=2),
        **settings,
    )


def arrays(agent):
    return [np.asarray(leaf) for leaf in tf.nest.flatten(agent)]


def test_two_replicas_train_what_one_does(tmp_path):
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    with make_small(tmp_path / "one") as alone:
        alone.run(quiet=True)
    with make_small(tmp_path / "two", strategy=strategy) as shared:
        shared.run(quiet=True)
    assert shared.is_chief and shared.env_steps == alone.env_steps == 3 * 16
    for value, expected in zip(arrays(shared.agent), arrays(alone.agent), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    # One device goes on with what several have saved.
    with make_small(tmp_path / "two", resume=True) as resumed:
        assert resumed.epoch == 3
        for value, saved in zip(
            arrays(resumed.agent), arrays(shared.agent), strict=True
        ):
            np.testing.assert_array_equal(value, saved)
    match = "`PolicyGradient`: `n_steps \\* n_envs` expected .* got 15; take"
    with pytest.raises(ValueError, match=match):
        trainer.Trainer(
            tmp_path / "odd",
            agent=SMALL,
            make_envs=training_workers.make_envs,
            n_envs=3,
            experience=experience.Trajectories(5),
            strategy=strategy,
        )
    assert not (tmp_path / "odd").exists()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "bc"])
def test_two_workers_learn_what_one_process_does(tmp_path, algorithm):
    codes, texts = training_workers.together(
        tmp_path / "run", algorithm=algorithm, n_updates=50
    )
    assert codes == [0, 0], texts
    first, second = (training_workers.weights(tmp_path / "run", x) for x in range(2))
    for mine, yours in zip(first, second, strict=True):
        np.testing.assert_array_equal(mine, yours)
    alone = arrays(training_workers.learned(algorithm, 50))
    for value, expected in zip(first, alone, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6)


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    codes, texts = training_workers.together(folder, n_epochs=6, resume=False)
    assert codes == [0, 0], texts
    return folder


def assert_same_runs(folder, whole):
    for rank in range(2):
        weights = training_workers.weights(folder, rank)
        for value, expected in zip(
            weights, training_workers.weights(whole, 0), strict=True
        ):
            np.testing.assert_array_equal(value, expected)
    metrics, expected = (
        run_log.read_metrics(run / "metrics.csv") for run in (folder, whole)
    )
    for name, values in expected.items():
        if "second" not in name:
            np.testing.assert_array_equal(metrics[name], values, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["chief", "worker"])
def test_a_killed_worker_ends_the_run_and_all_resume(tmp_path, whole, victim):
    folder = tmp_path / "run"
    settings = {"victim": victim, "signal": "SIGKILL", "at_epoch": 3}
    codes, texts = training_workers.together(
        folder, n_epochs=6, resume=False, **settings
    )
    assert codes[victim] == -9 and codes[1 - victim] == 1
    assert "ConnectionError: `Trainer.run`: expected all 2 workers" in texts[1 - victim]
    assert checkpoints.list_steps(folder) == [128]
    codes, texts = training_workers.together(folder, n_epochs=6, resume=True)
    assert codes == [0, 0], texts
    assert_same_runs(folder, whole)


@pytest.mark.slow
def test_one_interrupted_worker_ends_all_after_the_same_epoch(tmp_path, whole):
    folder = tmp_path / "run"
    settings = {"victim": 1, "signal": "SIGINT", "at_epoch": 2}
    codes, texts = training_workers.together(
        folder, n_epochs=6, resume=False, **settings
    )
    assert codes == [0, 0], texts
    # Were they in different epochs, they would still wait for each other.
    assert checkpoints.list_steps(folder) == [128, 192]
    with pytest.raises(ValueError, match="expected the 2 worker.* that saved .* got 1"):
        make_trainer(folder, 6, n_envs=4, resume=True, override=True).__enter__()
    codes, texts = training_workers.together(folder, n_epochs=6, resume=True)
    assert codes == [0, 0], texts
    assert_same_runs(folder, whole)
