"""An algorithm of one's own: Q-learning whose target follows slowly.

`python -m tests.own_agent 8` rehearses it on eight virtual replicas.
"""

import dataclasses
import functools
import sys
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

import tfrl


@dataclasses.dataclass(frozen=True)
class SlowQ:
    learns_from: ClassVar[str] = "transitions"
    learning_rate: float = 1e-3
    tau: float = 0.05

    def create(self, observation_space, action_space, *, seed=0, network=None):
        optimizer = tfrl.agents.adam(self.learning_rate)
        policy = tfrl.policies.ActionValuePolicy.create(
            observation_space,
            action_space,
            learner=functools.partial(tfrl.agents.TrainState.create, tx=optimizer),
            network=network,
            hidden_units=(16,),
            seed=seed,
        )
        return SlowQAgent(policy, policy.state.params, self)


class SlowQAgent(tfrl.core.PyTreeNode):
    policy: Any
    target: Any
    config: SlowQ = tfrl.core.nonpytree_field()

    def update(self, sample):
        return tfrl.agents.run_update(learn, self, sample.data, sample.weights)


@tfrl.agents.compiled_update
def learn(agent, transitions, weights):
    def loss_fn(state, params, rows):
        data, weights = rows
        values = tfrl.losses.q_taken(
            state(data.observations, params=params), data.actions
        )
        later = state(data.next_observations, params=agent.target)
        wanted = data.rewards + data.discounts * tf.reduce_max(later, axis=-1)
        loss = tf.reduce_mean(weights * tf.square(wanted - values))
        return loss, {"bellman_error": loss}

    policy = agent.policy
    state, info = tfrl.agents.take_steps(policy.state, loss_fn, (transitions, weights))
    tau, policy = agent.config.tau, policy.replace(state=state)
    target = {k: (1 - tau) * v + tau * state.params[k] for k, v in agent.target.items()}
    return agent.replace(policy=policy, target=target), info


def rehearse(n_replicas):
    strategy = tfrl.distribute.strategy(f"rehearsal:{n_replicas}")
    spaces = tfrl.environments.make_vec("CartPole-v1", 2)
    space, actions = spaces.single_observation_space, spaces.single_action_space
    rng = np.random.default_rng(0)
    seen = [rng.normal(size=[3, 16, 4]).astype(np.float32) for _ in range(2)]
    ones = np.ones([3, 16], np.float32)
    taken = rng.integers(0, 2, [3, 16])
    data = tfrl.core.Transition(seen[0], taken, ones, 0.99 * ones, seen[1])
    sample = tfrl.replay.Sample(data, np.zeros([3, 16], np.int64), ones, ones)
    agent = SlowQ().create(space, actions)
    return tfrl.training.rehearse(agent, sample, seen[0][0], strategy=strategy)


if __name__ == "__main__":
    report = rehearse(int(sys.argv[1]))
    report.show()
    sys.exit(not report.passed)
