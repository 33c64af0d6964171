"""The parts of this room in gin files."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl import exploration, rl_trainer, schedules
from tfrl.configuring import configs
from tfrl.core import specs


@pytest.fixture(autouse=True)
def _clean():
    yield
    configs.clear()


def test_gin_builds_every_class():
    made = configs.register(rl_trainer._CONFIGURABLES)
    classes = [name for name in exploration.__all__ if name[0].isupper()]
    assert sorted(set(classes) - set(made)) == []

    def explore(sampler=None, noise=None):
        return sampler, noise

    explore = configs.register({"explore": explore}, module="tests")["explore"]
    configs.parse(
        bindings=[
            "explore.sampler = @EpsilonGreedySampler()",
            "EpsilonGreedySampler.epsilon_greedy = @LinearScheduler()",
            "LinearScheduler.progress_type = 'env_steps'",
            "LinearScheduler.schedule = [(0, 0.0), (10, 1.0)]",
            "explore.noise = @OrnsteinUhlenbeckNoise()",
            "OrnsteinUhlenbeckNoise.sigma = 1e-9",
            "OrnsteinUhlenbeckNoise.mu = [1.0, 2.0]",
            "OrnsteinUhlenbeckNoise.max_value = 1.5",
            "OUProcess.damping = 1.0",
            "OUProcess.stddev = 0.0",
            "CategoricalSeedSampler.num_classes = 3",
            "MultinomialSampler.seed = 3",
            "ActionQuantizer.action_bins = 3",
            "ActionQuantizer.sampling_method = 'log'",
        ]
    )
    sampler, noise = explore()
    assert type(sampler) is exploration.EpsilonGreedySampler
    with schedules.progress_context(schedules.Progress(env_steps=0)):
        np.testing.assert_array_equal(sampler(tf.constant([[0.1, 0.9]] * 9)), [1] * 9)
    np.testing.assert_allclose(noise(np.zeros([2])), [1.0, 1.5], atol=1e-7)
    np.testing.assert_array_equal(made["OUProcess"]([5.0])(), [0.0])
    spec = specs.BoundedTensorSpec([1], tf.float32, -1.0, 1.0)
    assert made["ActionQuantizer"](spec).action_bins == 3
    assert made["CategoricalSeedSampler"]().state_spec.shape == [3]
    twin = exploration.MultinomialSampler(3)
    np.testing.assert_array_equal(
        made["MultinomialSampler"]().next_seed(), twin.next_seed()
    )
    configs.check_all_used()


def test_gin_refuses_what_a_sampler_does():
    made = configs.register(rl_trainer._CONFIGURABLES)
    with pytest.raises(ValueError, match=r"did you mean `concentration`\?"):
        configs.parse(bindings=["CategoricalSeedSampler.concentrations = 2"])
    configs.parse(bindings=["EpsilonGreedySampler.epsilon_greedy = 2"])
    with pytest.raises(
        ValueError, match=r"`epsilon_greedy` expected numbers in \[0, 1"
    ):
        made["EpsilonGreedySampler"]()
