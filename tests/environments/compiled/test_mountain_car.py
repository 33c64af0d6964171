"""Both mountain cars of tensors beside Gymnasium's."""

import compiled_oracle
import numpy as np
import pytest
import refusals
import tensorflow as tf

from tfrl.environments.compiled import mountain_car

CARS = [mountain_car.MountainCar, mountain_car.MountainCarContinuous]
LOW, NEAR, HIGH = (-1.2, -0.07), (0.3, -0.07), (0.6, 0.07)


@compiled_oracle.MODE
@pytest.mark.parametrize("car", CARS)
def test_steps(mode, car):
    env = car()
    expected = compiled_oracle.played(env.gymnasium_id, LOW, HIGH)
    at_wall = expected["observations"] == np.array([-1.2, 0.0], np.float32)
    assert np.any(np.all(at_wall, axis=1))
    compiled_oracle.check_steps(env, expected, mode)


@pytest.mark.parametrize("car", CARS)
def test_goal_velocity(car):
    env, options = car(0.03), {"goal_velocity": 0.03}
    expected = compiled_oracle.played(env.gymnasium_id, NEAR, HIGH, 2000, **options)
    slow = (expected["observations"][:, 0] > 0.5) & ~expected["terminated"]
    assert np.any(slow)
    compiled_oracle.check_steps(env, expected, "eager")


@pytest.mark.parametrize("car", CARS)
@compiled_oracle.EPISODES
def test_episodes(car, mode, n_rows):
    compiled_oracle.check_episodes(car(), 60, mode, n_rows)


@pytest.mark.parametrize("car", CARS)
def test_as_gymnasium(car):
    compiled_oracle.check_spaces(car())
    compiled_oracle.check_first_states(car(), [-0.6, 0.0], [-0.4, 0.0])


@refusals.table(
    *[
        (
            car.step,
            refusals.bad(ValueError, "actions", env, state, [wrong], env.draw(0, [1])),
        )
        for car, wrong in zip(CARS, [3, 0.5], strict=True)
        for env, state in [(car(), tf.zeros([1, 2]))]
    ],
    *[(car, refusals.bad(TypeError, "goal_velocity", "fast")) for car in CARS],
)
def test_refusals(row):
    row()
