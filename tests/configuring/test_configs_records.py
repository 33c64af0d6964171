"""Tests of what `configuring.configs` records: texts, summaries, names."""

import functools
import types

import gin
import golden_io
import gymnasium as gym
import numpy as np
import pytest
import refusals
from event_files import last, writing
from refusals import bad

from tfrl.configuring import configs
from tfrl.environments import current


def make_recorded(size: int = 3, sizes=(), name: str = "net"):
    return size, sizes, name


def make_second(size: int = 3):
    return size


@pytest.fixture(autouse=True)
def made():
    configs.clear()
    yield configs.register(OBJECTS, module="records")
    configs.clear()


OBJECTS = {"make_recorded": make_recorded, "make_second": make_second}
LINES = [
    "fast = 2",
    "slow = 1",
    "make_recorded.size = %fast",
    "make_second.size = 4",
]


def test_inoperative_is_what_nothing_used(made):
    configs.parse(bindings=[*LINES, "eval/make_recorded.size = 9"])
    made["make_recorded"]()
    assert configs.inoperative_config_str().splitlines() == [
        "eval/make_recorded.size = 9",
        "make_second.size = 4",
        "slow = 1",
    ]
    with gin.config_scope("eval"):
        made["make_recorded"]()
    made["make_second"]()
    assert configs.inoperative_config_str() == "slow = 1\n"


def test_nothing_configured_is_nothing():
    assert configs.inoperative_config_str() == ""
    assert configs.get_gin_config_strs() == ("", "")


def test_what_a_call_passes_itself_is_not_used(made):
    configs.parse(bindings=["make_recorded.size = 2", "make_recorded.name = 'a'"])
    made["make_recorded"](size=5)
    assert "make_recorded.size = 2" in configs.inoperative_config_str()
    assert "name" not in configs.inoperative_config_str()


def test_bindings_made_by_hand_count():
    with gin.unlock_config():
        gin.bind_parameter("make_recorded.size", 7)
    assert configs.inoperative_config_str() == "make_recorded.size = 7\n"


def test_long_values_continue_on_further_lines():
    configs.parse(bindings=[f"make_recorded.sizes = {list(range(100, 130))}"])
    text = configs.inoperative_config_str(max_line_length=40, continuation_indent=3)
    first, *more = text.splitlines()
    assert first == "make_recorded.sizes = \\"
    assert more[0].startswith("   [100,") and max(map(len, more)) <= 40
    configs.parse(bindings=[text])
    assert configs.inoperative_config_str(200) == (
        f"make_recorded.sizes = {list(range(100, 130))}\n"
    )


def test_markdown(made):
    configs.parse(bindings=LINES)
    made["make_recorded"]()
    operative, inoperative = configs.get_gin_config_strs()
    assert "#### Macros:" in operative and "    make_recorded.size = %fast" in operative
    assert inoperative.splitlines() == ["    make_second.size = 4", "    slow = 1"]


@pytest.mark.parametrize(
    ("summarize", "prefix"),
    [(configs.summarize_config, "config"), (configs.summarize_gin_config, "gin")],
)
def test_summaries_are_texts(tmp_path, made, summarize, prefix):
    configs.parse(bindings=LINES)
    made["make_recorded"]()
    with writing(tmp_path):
        summarize()
    found = {
        tag: str(np.ravel(text)[0], "utf-8") for tag, text in last(tmp_path).items()
    }
    expected = dict(
        zip(
            (f"{prefix}/operative_config", f"{prefix}/inoperative_config"),
            configs.get_gin_config_strs(),
            strict=True,
        )
    )
    assert found == expected


def test_intervals_as_recorded():
    (case,) = golden_io.load("alf/common", symbol="compute_summary_or_eval_interval")
    for iterations, calls, interval in np.asarray(case["out"]["iters_calls_interval"]):
        config = types.SimpleNamespace(num_iterations=int(iterations))
        found = configs.compute_summary_or_eval_interval(config, int(calls))
        assert found == interval and isinstance(found, int)


def test_intervals_from_steps_of_environments():
    config = types.SimpleNamespace(
        num_iterations=0, num_env_steps=1001, unroll_length=5
    )
    assert (
        configs.compute_summary_or_eval_interval(
            types.SimpleNamespace(num_iterations=12345)
        )
        == 124
    )
    with current.environment_context(types.SimpleNamespace(num_envs=2)):
        assert configs.compute_summary_or_eval_interval(config, 10) == 11
    with current.environment_context(gym.make("CartPole-v1")):
        assert configs.compute_summary_or_eval_interval(config, 10) == 21


FRESH = {"fresh": make_second}
BY_BATCH = {"num_iterations": 5, "update_counter_every_mini_batch": True}
config = types.SimpleNamespace


@refusals.table(
    (
        configs.compute_summary_or_eval_interval,
        bad(ValueError, "summary_or_eval_calls", config(num_iterations=5), 0),
        bad(ValueError, "config", config(), 5),
        bad(ValueError, "config", config(num_iterations=-5), 5),
        bad(ValueError, "config", config(**BY_BATCH), 5),
    ),
    (
        configs.register,
        bad(ValueError, "objects", {**FRESH, "make_recorded": make_second}, "records"),
        bad(TypeError, "objects", {**FRESH, "none": None}, "records"),
        bad(TypeError, "objects", {**FRESH, "a b": make_recorded}, "records"),
        bad(TypeError, "objects", FRESH, "two words"),
    ),
    (
        configs.inoperative_config_str,
        bad(ValueError, "continuation_indent", 80, -1),
        bad(ValueError, "max_line_length", 4, 4),
    ),
)
def test_refusals(row):
    row()
    with pytest.raises(ValueError, match="fresh"):  # All are registered or none.
        gin.get_configurable("fresh")


def test_callables_without_a_name_are_registered_again():
    for steps in (1, 2):
        partial = functools.partial(make_second, steps)
        registered = configs.register({"partial": partial}, module="records")
    assert registered["partial"]() == 2
