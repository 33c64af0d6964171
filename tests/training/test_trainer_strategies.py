"""A trainer on several replicas, and workers: what they give each other."""

import numpy as np
import pytest
import tensorflow as tf
import training_workers
from tiny_agents import assert_same, assert_same_rows
from training_workers import make_trainer

from tfrl.agents.on_policy import policy_gradient
from tfrl.core import records
from tfrl.saving import checkpoints
from tfrl.summaries import run_log
from tfrl.training import _processes, cadence, experience, trainer

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


@pytest.mark.slow
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
        assert_same(resumed.agent, shared.agent)
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
    assert_same(first, second)
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
        expected = training_workers.weights(whole, 0)
        assert_same(training_workers.weights(folder, rank), expected)
    assert_same_rows(folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["chief", "worker"])
def test_a_killed_worker_ends_the_run_and_all_resume(tmp_path, whole, victim):
    folder = tmp_path / "run"
    settings = {"victim": victim, "signal": "SIGKILL", "at_epoch": 3}
    codes, texts = training_workers.together(
        folder, n_epochs=6, resume=False, **settings
    )
    assert codes[victim] == -9 and codes[1 - victim] == 1
    assert "ConnectionError: `Trainer`: expected all 2 workers" in texts[1 - victim]
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


@pytest.mark.slow
def test_two_workers_share_a_replay(tmp_path):
    settings = {"n_epochs": 6, "replayed": True}
    codes, texts = training_workers.together(
        tmp_path / "whole", resume=False, **settings
    )
    assert codes == [0, 0], texts
    first, second = (training_workers.weights(tmp_path / "whole", x) for x in range(2))
    assert_same(first, second)
    stopped = {"victim": 1, "signal": "SIGINT", "at_epoch": 3}
    folder = tmp_path / "cut"
    codes, texts = training_workers.together(
        folder, resume=False, **settings, **stopped
    )
    assert codes == [0, 0], texts
    codes, texts = training_workers.together(folder, resume=True, **settings)
    assert codes == [0, 0], texts
    assert_same(training_workers.weights(folder, 0), first)


def test_one_worker_has_its_own():
    for strategy in (None, tf.distribute.MultiWorkerMirroredStrategy()):
        workers = _processes.Workers(strategy)
        assert (workers.count, workers.rank, workers.is_chief) == (1, 0, True)
        assert workers.gather(b"ab") == [b"ab"]
        assert workers.gather_values({"a": (1, 2)}) == [{"a": (1, 2)}]
        own = records.Trajectory(*[np.zeros((2, 1))] * 7)
        assert workers.join(own) is own
        workers.check_alike({"seed": 3})
        asked = [False]
        workers.stop_when(lambda asked=asked: asked[0])
        assert not workers.stopped
        asked[0] = True
        assert workers.stopped


def test_the_strategy_in_scope_is_taken():
    strategy = tf.distribute.OneDeviceStrategy("CPU:1")
    with strategy.scope():
        workers = _processes.Workers()
    assert not tf.distribute.has_strategy()
    with workers.scope():
        assert tf.distribute.get_strategy() is strategy
    with _processes.Workers().scope():
        assert not tf.distribute.has_strategy()


def test_strategies_that_do_not_fit():
    with pytest.raises(TypeError, match="`strategy` expected a tf.distribute.Strategy"):
        _processes.Workers("mirrored")
    one, other = (tf.distribute.OneDeviceStrategy(f"CPU:{i}") for i in range(2))
    with one.scope():
        assert _processes.Workers(one).count == 1
        with pytest.raises(ValueError, match="`strategy` expected that in scope"):
            _processes.Workers(other)


class _Several(_processes.Workers):
    """Two workers, as the rest of the class sees them; the other one gives `other`."""

    def __init__(self, other):
        super().__init__()
        self.count, self.other = 2, other

    def gather(self, data):
        return [data, self.other(data)]


def test_trajectories_are_joined_side_by_side():
    rng = np.random.default_rng(0)
    mine = records.Trajectory(
        observations={"image": rng.integers(0, 255, (3, 2, 4)).astype(np.uint8)},
        actions=rng.integers(0, 5, (3, 2)),
        rewards=rng.normal(size=(3, 2)).astype(np.float32),
        terminated=rng.random((3, 2)) < 0.5,
        truncated=rng.random((3, 2)) < 0.5,
        next_observations={"image": rng.integers(0, 255, (3, 2, 4)).astype(np.uint8)},
        valid=rng.random((3, 2)) < 0.5,
    )
    workers = _Several(lambda data: data)
    workers.stop_when(lambda: False)
    joined = workers.join(mine)
    for one, both in zip(tf.nest.flatten(mine), tf.nest.flatten(joined), strict=True):
        assert both.dtype == one.dtype
        np.testing.assert_array_equal(both, np.concatenate([one, one], axis=1))
    assert not workers.stopped
    # The other one is asked to stop: its first byte says so.
    workers = _Several(lambda data: b"\1" + data[1:])
    workers.join(mine)
    assert workers.stopped


def test_workers_that_differ_are_told_in_what():
    workers = _Several(lambda data: data.replace(b"7", b"8"))
    workers.check_alike({"n_steps": 5})
    agent = {"=call": "tfrl.agents:PPO", "gamma": 0.9, "minibatch_size": 7}
    told = r"got agent.minibatch_size: 7 on worker 0, 8 on worker 1; start all with"
    with pytest.raises(ValueError, match=f"`Trainer`: .* alike on all workers; {told}"):
        workers.check_alike({"n_steps": 5, "agent": agent})


def test_a_lost_worker_is_put_in_words():
    workers = _Several(bytes)
    lost = tf.errors.UnavailableError(None, None, "Connection reset by peer")
    with pytest.raises(ConnectionError, match="expected all 2 workers to stay; got"):
        with workers.guarded():
            raise lost
    aborted = tf.errors.InternalError(None, None, "Collective ops is aborted by: x")
    with pytest.raises(ConnectionError), workers.guarded():
        raise aborted
    other = tf.errors.InternalError(None, None, "out of luck")
    with pytest.raises(tf.errors.InternalError), workers.guarded():
        raise other
    with pytest.raises(tf.errors.UnavailableError), _processes.Workers().guarded():
        raise lost


def test_a_worker_lost_while_the_agent_is_made_is_put_in_words(tmp_path, monkeypatch):
    def lose(*_, **__):
        raise tf.errors.UnavailableError(None, None, "Connection reset by peer")

    monkeypatch.setattr(_processes, "Workers", lambda _: _Several(bytes))
    monkeypatch.setattr(policy_gradient.PolicyGradient, "create", lose)
    with pytest.raises(ConnectionError, match="expected all 2 workers to stay; got"):
        make_small(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def cluster():
    """The address of a Ray cluster of two nodes on this machine."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    memory = {"object_store_memory": 80_000_000}
    found = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, **memory}
    )
    found.add_node(num_cpus=2, **memory)
    yield found.address
    found.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "replayed"),
    [("processes", False), ("processes", True), ("ray", False), ("ray", True)],
    ids=lambda value: {False: "trajectories", True: "replay"}.get(value, value),
)
def test_workers_have_actors_of_their_own(tmp_path, request, engine, replayed):
    pool = {"n_actors": 2, "engine": engine}
    if engine == "ray":
        pool["address"] = request.getfixturevalue("cluster")
    settings = {"replayed": replayed, "actors": pool, "n_epochs": 6}
    stopped = {"victim": 1, "signal": "SIGINT", "at_epoch": 3}
    folder = tmp_path / "run"
    for more in ({"resume": False, **stopped}, {"resume": True}):
        codes, texts = training_workers.together(folder, **settings, **more)
        assert codes == [0, 0], texts
    # All learn from what all have played.
    assert_same(*(training_workers.weights(folder, rank) for rank in range(2)))
    found = run_log.read_metrics(folder / "metrics.csv")
    assert found["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert (found["train/actor_lag_max"] <= 2).all() or replayed
