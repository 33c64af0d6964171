"""What a trainer records of its arguments, and holds against those that go on."""

import dataclasses
import functools
import types
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from default_rows import slow
from tiny_agents import (
    MAKE,
    Tiny,
    assert_same,
    assert_same_rows,
    build,
    stop_in,
    train,
)

import tfrl
from tfrl._internal import sealed_folder
from tfrl.agents.on_policy import a2c, ppo
from tfrl.environments import vector
from tfrl.environments.compiled import vector_env
from tfrl.saving import checkpoints
from tfrl.training import _run_checkpoints, _run_record, cadence, experience, saved_run

PPO = ppo.PPO(
    n_epochs=2, minibatch_size=16, hidden_units=(8,), normalize_observations=True
)


def record_of(folder):
    return _run_record.read("test", folder)


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory):
    """Of a run of one epoch, that nobody may change."""
    folder = tmp_path_factory.mktemp("run")
    train(folder, n_epochs=1)
    return folder


def test_folders_are_not_mixed_up(folder, tmp_path):
    with pytest.raises(ValueError, match="expected a checkpoint to resume from; got"):
        train(tmp_path, resume=True)
    with pytest.raises(
        ValueError, match=r"with one at 32 environment steps; resume it"
    ):
        train(folder)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("agent", Tiny(0.2), r"agent.rate = 0.2 \(was 0.1\)"),
        ("make_envs", functools.partial(MAKE, max_episode_steps=9), "max_episode_st"),
        ("experience", experience.Trajectories(8), r".n_steps = 8 \(was 16\)"),
        ("experience", experience.Replayed(), "experience = .*Replayed"),
        ("n_envs", 1, r"n_envs = 1 \(was 2\)"),
        ("seed", 3, r"seed = 3 \(was 0\)"),
    ],
)
def test_other_arguments_are_refused(name, value, words, folder):
    before = (folder / "run.json").read_bytes()
    with pytest.raises(ValueError, match=rf"`Trainer`: `resume` expected .*{words}"):
        train(folder, n_epochs=2, resume=True, **{name: value})
    assert (folder / "run.json").read_bytes() == before


def test_the_versions_that_a_run_was_made_with_are_kept(folder, monkeypatch):
    def kept():
        body = sealed_folder.unsealed((folder / "run.json").read_bytes())
        return body, body["made_with"]

    _, (first,) = kept()
    assert [*first] == ["python", "tfrl", "tensorflow", "keras", "numpy", "gymnasium"]
    assert first["numpy"] == np.__version__ and first["keras"] == keras.__version__
    train(folder, n_epochs=2, resume=True)
    assert kept()[1] == [first]
    monkeypatch.setattr(tfrl, "__version__", "9.9")
    train(folder, n_epochs=3, resume=True)
    body, found = kept()
    assert found == [first, {**first, "tfrl": "9.9"}]
    # A run of old kept none.
    del body["made_with"]
    (folder / "run.json").write_bytes(sealed_folder.sealed(body))
    train(folder, n_epochs=4, resume=True)
    assert kept()[1] == [{}, found[1]]


def test_other_spaces_are_no_matter_of_overriding(folder):
    other = functools.partial(vector.make_vec, "Acrobot-v1", vectorization="sync")
    message = r"env_id = 'Acrobot-v1' .*spaces differ, observations Box.* \(was"
    with pytest.raises(ValueError, match=message) as error:
        train(folder, n_epochs=2, resume=True, make_envs=other)
    assert "verride" not in str(error.value) and "output_dir" in str(error.value)


@pytest.mark.parametrize("kind", [experience.Trajectories, experience.Replayed])
def test_the_number_of_environments_is_no_matter_of_overriding(tmp_path, kind):
    settings = {"experience": kind(n_steps=4), "n_epochs": 2}
    train(tmp_path, **{**settings, "n_epochs": 1})
    with pytest.raises(ValueError, match=r"n_envs = 4 \(was 2\)") as error:
        train(tmp_path, resume=True, n_envs=4, **settings)
    assert "verride" not in str(error.value) and "train anew" in str(error.value)
    with pytest.raises(ValueError, match="got n_envs from 2 to 4: .*train anew"):
        train(tmp_path, resume=True, override=True, n_envs=4, **settings)


@pytest.mark.parametrize("changed", [{"capacity": 64}, {"sampler": "prioritized"}])
def test_overrides_that_do_not_load_are_named(tmp_path, changed):
    given = {"n_steps": 4, "capacity": 32, "learning_starts": 8, "batch_size": 4}
    train(tmp_path, experience=experience.Replayed(**given), n_epochs=1)
    (name,) = changed
    other = experience.Replayed(**{**given, **changed})
    message = f"`override` expected changes .* got experience.{name} from .* train anew"
    with pytest.raises(ValueError, match=message):
        train(tmp_path, experience=other, n_epochs=2, resume=True, override=True)
    train(tmp_path, experience=experience.Replayed(**given), n_epochs=2, resume=True)


def test_override_takes_no_experience_of_another_kind(folder):
    asked = r"the kind of experience of the run .* got experience = .*Replayed"
    with pytest.raises(ValueError, match=asked):
        train(folder, experience=experience.Replayed(), resume=True, override=True)


def put_into(folder, agent, given):
    """Trains on with an agent that was made elsewhere, by other settings."""
    spaces = {"n_envs": 2, "n_steps": 16, "seed": 1}
    with build(folder, n_epochs=2, agent=agent) as running:
        at = running.observation_space, running.action_space
        running.agent = given.create(*at, **spaces)
        running.run(quiet=True)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (dataclasses.replace(PPO, learning_rate=0.5), r"rate = 0.5 \(was 0.0003\)"),
        pytest.param(
            *(a2c.A2C(hidden_units=(8,), normalize_observations=True), "A2C"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_agents_of_other_settings_take_no_place(tmp_path, other, words):
    with pytest.raises(ValueError, match=f"`agent` expected the settings .*{words}"):
        put_into(tmp_path, PPO, other)


@pytest.mark.parametrize(
    "change",
    [
        lambda: {"learning_rate": keras.optimizers.schedules.CosineDecay(1e-3, 100)},
        *slow(lambda: {"value_coefficient": 1.0, "hidden_units": [8]}),
    ],
)
def test_agents_of_equal_settings_take_their_place(tmp_path, change):
    first, second = (dataclasses.replace(PPO, **change()) for _ in range(2))
    if "value_coefficient" in change():
        first = dataclasses.replace(first, value_coefficient=1, hidden_units=(8,))
    put_into(tmp_path, first, second)
    assert checkpoints.latest_step(tmp_path) == 64


def test_settings_of_agents_within_agents_count():
    of, made = _run_checkpoints._settings_of, types.SimpleNamespace
    one, two = (made(agents={"a": made(config=Tiny(x))}) for x in (0.1, 0.2))
    assert of(one) == of(made(agents={"a": made(config=Tiny(0.1))})) != of(two)


def test_classes_that_moved_are_gone_on_with(tmp_path):
    moved = dataclasses.make_dataclass("Moved", [], bases=(Tiny,), frozen=True)
    train(tmp_path, n_epochs=1)
    train(tmp_path, n_epochs=2, agent=moved(), resume=True, override=True)
    assert checkpoints.latest_step(tmp_path) == 64


@pytest.mark.parametrize(
    ("asked", "epochs"),
    [
        ({}, 10_000),
        ({"total_env_steps": 10**7}, 312_500),
        ({"total_env_steps": 10**7, "n_epochs": 7}, 7),
        ({"total_env_steps": 33, "n_epochs": 7}, 2),
    ],
)
def test_epochs_are_as_many_as_steps_take(tmp_path, asked, epochs):
    given = {"n_epochs": None, **asked}
    running = build(tmp_path, **given)
    assert (running.n_epochs, running.total_env_steps) == (epochs, 32 * epochs)


def test_overrides_are_recorded(tmp_path):
    train(tmp_path, n_epochs=1)
    settings = {"n_epochs": 2, "resume": True, "agent": Tiny(0.2)}
    train(tmp_path, override=True, **settings)
    overrides = record_of(tmp_path).overrides
    assert overrides == ({"env_steps": 32, "changes": {"agent.rate": ["0.1", "0.2"]}},)
    assert _run_record.told(overrides[0]) == (
        "overridden after 32 environment steps: agent.rate from 0.1 to 0.2"
    )
    # From now on these are the arguments of the run.
    train(tmp_path, **{**settings, "n_epochs": 3})
    assert record_of(tmp_path).overrides == overrides
    settings = {"n_epochs": 4, "resume": True}
    with pytest.raises(ValueError, match=r"agent.rate = 0.1 \(was 0.2\)"):
        train(tmp_path, **settings)
    train(tmp_path, override=True, **settings)
    assert len(record_of(tmp_path).overrides) == 2


COMPILED = functools.partial(vector_env.make_compiled, "CartPole-v1")
PLAYED = {
    "trajectories": {"experience": experience.Trajectories(8)},
    "replayed": {
        "experience": experience.Replayed(200, 8, n_steps=8, learning_starts=8)
    },
    "compiled": {"agent": PPO, "make_envs": COMPILED, "collector": "compiled"},
}


@pytest.mark.parametrize(
    "kind", [*list(PLAYED)[:2], pytest.param("compiled", marks=pytest.mark.slow)]
)
def test_overridden_environments_begin_new_episodes(tmp_path, kind):
    settings = {"make_envs": MAKE, **PLAYED[kind]}
    train(tmp_path, n_epochs=2, **settings)
    short = functools.partial(settings["make_envs"], max_episode_steps=5)
    settings |= {"make_envs": short, "resume": True}
    with build(tmp_path, n_epochs=9, override=True, **settings) as running:
        assert "new episodes: these are other environments" in running.notice
        before = len(running._collector.episode_lengths)
        with pytest.warns(UserWarning, match="`Trainer.run`: resumed with new epis"):
            running.run(quiet=True)
    played = [*running._collector.episode_lengths][before:]
    assert played and max(played) <= 5
    with build(tmp_path, n_epochs=10, **settings) as again:
        assert again.notice is None


def test_who_cannot_be_made_again_is_told_of_once(tmp_path, capfd):
    given = {"make_envs": lambda n_envs: MAKE(n_envs=n_envs), "n_epochs": 1}
    words = "another process cannot make all of this run again"
    with pytest.warns(UserWarning, match=f"`Trainer.run`: {words}: got make_envs = "):
        train(tmp_path / "quiet", **given)
    assert words not in "".join(capfd.readouterr())
    with (
        warnings.catch_warnings(action="error"),
        build(tmp_path / "shown", **given) as running,
    ):
        running.run()
    assert "".join(capfd.readouterr()).count(words) == 1


def test_a_run_goes_on_in_another_kind_of_vector(tmp_path):
    train(tmp_path, n_epochs=1)
    other = functools.partial(MAKE, vectorization="vector_entry_point")
    with build(tmp_path, n_epochs=2, resume=True, make_envs=other) as running:
        assert "new episodes: these environments are built other" in running.notice
        with pytest.warns(UserWarning, match="`Trainer.run`: resumed with new epis"):
            running.run(quiet=True)
    assert running.env_steps == 64


def test_what_may_differ_freely(tmp_path):
    train(tmp_path, n_epochs=1)
    running, _ = train(
        tmp_path,
        n_epochs=9,
        resume=True,
        total_env_steps=64,
        stop_at_return=500.0,
        intervals=cadence.Intervals(eval_epochs=1, eval_episodes=1),
        strategy=tf.distribute.OneDeviceStrategy("CPU:0"),
    )
    record = record_of(tmp_path)
    assert record.overrides == () and record.arguments["total_env_steps"] == 64
    assert running.epoch == 2


@pytest.fixture
def precision():
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy("float32")


def test_a_run_goes_on_by_the_precision_that_it_was_made_by(tmp_path, precision):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    precision("mixed_bfloat16")
    through, _ = train(whole, n_epochs=3, agent=PPO)
    with build(cut, n_epochs=3, agent=PPO) as first:
        stop_in(first, 1)
        with pytest.raises(KeyboardInterrupt, match="asked to end; saved"):
            first.run(quiet=True)
    with saved_run.SavedRun.reopen(cut) as run:
        played = run.evaluate(2).returns
    precision("float32")
    with saved_run.SavedRun.reopen(cut) as run:
        assert run.policy.state.model_def.compute_dtype == "bfloat16"
        np.testing.assert_array_equal(run.evaluate(2).returns, played)
    resumed, _ = train(cut, n_epochs=3, agent=PPO, resume=True)
    assert keras.config.dtype_policy().name == "float32"
    assert record_of(cut).dtype_policy == "mixed_bfloat16"
    assert record_of(cut).overrides == ()
    assert_same(resumed.agent, through.agent)
    assert_same_rows(whole, cut)
    precision("mixed_float16")
    with pytest.raises(
        ValueError, match=r"policy = mixed_float16 \(was mixed_bfloat16"
    ):
        train(cut, n_epochs=4, agent=PPO, resume=True)
    train(cut, n_epochs=4, agent=PPO, resume=True, override=True)
    assert record_of(cut).dtype_policy == "mixed_float16"
    assert len(record_of(cut).overrides) == 1


def test_a_run_of_old_has_no_record_and_goes_on(tmp_path, capfd):
    train(tmp_path, n_epochs=1)
    (tmp_path / "run.json").unlink()
    told = "this run keeps no record of its arguments (neither run.json nor config.gin)"
    for n_epochs, count in ((2, 1), (3, 0)):
        with build(tmp_path, n_epochs, resume=True) as running:
            running.run()
        assert "".join(capfd.readouterr()).count(told) == count


def test_counts_may_be_those_of_numpy(tmp_path):
    given = {"seed": 3, "n_envs": 2, "n_epochs": 2, "total_env_steps": 64}
    train(tmp_path / "python", **given)
    train(tmp_path / "numpy", **{name: np.int64(x) for name, x in given.items()})
    assert_same_rows(tmp_path / "python", tmp_path / "numpy")
    records = [record_of(tmp_path / name) for name in ("python", "numpy")]
    assert records[1].arguments == records[0].arguments
    again, _ = train(tmp_path / "numpy", resume=True, **given)
    assert again.epoch == 2
