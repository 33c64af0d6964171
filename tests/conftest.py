"""What every test and every docstring example finds: two CPUs and short names.

`setup.cfg` loads this file as a plugin too (`-p conftest`), because the examples in
`tfrl/` lie outside this folder and would not see it otherwise.
"""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")

import gymnasium as gym  # noqa: E402
import hypothesis  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

import tfrl  # noqa: E402


def pytest_configure() -> None:
    """Splits the CPU in two for strategies; lets no clock or chance fail a test."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    hypothesis.settings.register_profile("tfrl", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("tfrl")
    # Thousands of traces live as long as the process: looked through ever again, they
    # cost a twentieth of its time.
    gc.set_threshold(200_000, 50, 1000)


# Rows of batteries: a default run takes one of so many, `tools/test --all` all of them.
_ONE_OF = {
    "test_action_heads.py::test_everything_compiles": 4,
    "test_as_keras_recordings.py": 2,
    "test_beta.py::test_draws_of_small_concentrations_have_finite_gradients": 2,
    "test_categorical.py::test_projection_onto_the_same_atoms_changes_nothing": 3,
    "test_discrete_regression.py::test_any_rank_and_unknown_sizes_in_graphs": 2,
    "test_export.py::test_signatures_do_what_the_agent_does": 3,
    "test_extremes.py": 6,
    "test_fit_callbacks.py::test_collect_plays_after_every_step": 3,
    "test_keras_classes.py": 3,
    "test_keras_losses.py::test_fit_learns_saves_and_goes_on": 2,
    "test_keras_optimizers.py::test_five_steps_equal_keras": 2,
    "test_keras_parts.py::test_losses_on_two_replicas": 4,
    "test_numerics.py": 6,
    "test_numpy_storage_model.py": 2,
    "test_one_hot.py::test_extreme_logits": 2,
    "test_ppo.py::test_every_kind_of_action_updates_finitely": 2,
    "test_quantizer.py::test_round_trip_is_exact_for_every_number_of_bins": 3,
    "test_recipe.py::test_round_trip": 2,
    "test_rl_trainer.py::test_every_config_trains": 2,
    "test_round_trips.py": 2,
    "test_saving_changes.py::test_stores_write_what_they_added": 3,
    "test_soft_bounds.py::test_far_out": 2,
    "test_soft_bounds.py::test_log_slope": 2,
    "test_squashing.py::test_far_out": 2,
    "test_squashing.py::test_slopes": 2,
    "test_truncation.py::test_float32_has_the_digits_of_float64_however_far_away": 2,
    "test_value.py::test_graph_equals_eager": 2,
    "test_written.py::test_recurrent_state_and_mask": 3,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Makes most rows of the longest batteries slow tests."""
    seen: dict[str, int] = {}
    for item in items:
        file = item.path.name
        name = f"{file}::{getattr(item, 'originalname', '')}"
        share = _ONE_OF.get(name, _ONE_OF.get(file, 1))
        if share > 1 and hasattr(item, "callspec"):
            seen[name] = seen.get(name, -1) + 1
            # Each test leaves out other rows.
            if (seen[name] + len(name)) % share:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _example_names(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("doctest_namespace").update(
            tf=tf, np=np, keras=keras, gym=gym, tfrl=tfrl
        )
