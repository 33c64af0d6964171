"""TD3 and its kin written out: policy, critics and copies after an update."""

import continuous_examples as examples
import numpy as np
import tensorflow as tf
import written_out

from tfrl._internal import draws
from tfrl.agents import _minibatches
from tfrl.agents.off_policy import td3

K, B = 4, 6


def make_agent(kind=td3.TD3, space=examples.BOX, seed=0, **settings):
    given = {"hidden_units": (4,), "activation": "tanh", "learning_rate": 0.01}
    agent = kind(**{**given, **settings}).create(space, examples.ACTIONS, seed=seed)
    actor = agent.policy.state
    actor = actor.replace(params=examples.shaken(actor.params, 3))
    return agent.replace(
        policy=agent.policy.replace(state=actor),
        target_policy=examples.shaken(agent.target_policy, 1),
        target_critics=examples.shaken(agent.target_critics, 2),
    )


def action(params, x):
    hidden = np.tanh(written_out.dense(params, "hidden/hidden_0", x))
    return np.tanh(written_out.dense(params, "actions", hidden))


def target_noise(agent, k):
    """Of the step, as the agent draws it."""
    seed = _minibatches.step_seed(agent.rng, tf.constant(k + 1))
    drawn = draws.normal([B, 2], seed, tf.float32).numpy().astype(np.float64)
    limit = agent.config.target_noise_clip
    return np.clip(agent.config.target_noise * drawn, -limit, limit)


def learned(agent, sample, policy_loss):
    """Policy, critics and copies after all steps, and sizes of errors."""
    config = agent.config
    actor = written_out.Adam(agent.policy.state.params, 0.01)
    critics = written_out.Adam(agent.critics.params, 0.01)
    target_actor = written_out.doubles(agent.target_policy)
    target = written_out.doubles(agent.target_critics)
    sizes = []
    for k in range(K):
        data, weights = examples.row_of(sample, k)
        chosen = action(target_actor, data.next_observations) + target_noise(agent, k)
        later = written_out.q_values(
            target, data.next_observations, np.clip(chosen, -1.0, 1.0)
        )
        y = data.rewards + data.discounts * later.min(0)
        taken = examples.scaled(data.actions)

        def critic_loss(params, data=data, weights=weights, y=y, taken=taken):
            found = written_out.q_values(params, data.observations, taken)
            return (weights * (y - found) ** 2).mean(1).sum()

        before = written_out.q_values(critics.params, data.observations, taken)
        sizes.append(np.abs(y - before).mean(0))
        critics.step(critic_loss)
        if (k + 1) % config.policy_delay:
            continue
        actor.step(policy_loss(critics.params, actor.params, data, taken))
        target_actor = written_out.moved(target_actor, actor.params, config.tau)
        target = written_out.moved(target, critics.params, config.tau)
    return actor.params, critics.params, target_actor, target, np.stack(sizes)


def uphill(critics, actor, data, taken):
    del actor, taken

    def loss(params):
        chosen = action(params, data.observations)
        return -written_out.q_values(critics, data.observations, chosen)[0].mean()

    return loss


def assert_learned(agent, sample, policy_loss):
    actor, critics, target_actor, target, sizes = learned(agent, sample, policy_loss)
    new, info = agent.update(sample)
    written_out.assert_params(new.policy.state.params, actor)
    written_out.assert_params(new.critics.params, critics)
    written_out.assert_params(new.target_policy, target_actor)
    written_out.assert_params(new.target_critics, target)
    np.testing.assert_allclose(info["priorities"], sizes, rtol=1e-3, atol=1e-4)
    return new, info
