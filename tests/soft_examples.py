"""What soft actor-critics learn from, and their algorithm written out in float64."""

import agent_examples
import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl.core import records
from tfrl.replay.sampling import transitions

S = gym.spaces
BOX = S.Box(-np.inf, np.inf, (3,))
STEER = S.Box(np.array([-2.0, 0.0], "f"), np.array([2.0, 1.0], "f"))
MIXED = S.Dict(press=S.Discrete(2), steer=STEER, turn=S.MultiDiscrete([2, 3]))


def sample_of(agent, space, n_steps, n_rows, seed=0):
    """K minibatches `[K, B]` of what the agent might have played."""
    rng, outer = np.random.default_rng(seed), (n_steps, n_rows)
    shown = [
        agent_examples.batch_of(space, *outer, seed=seed + i, center=0.0)
        for i in (0, 90)
    ]
    flat = tf.nest.map_structure(lambda x: x.reshape(-1, *x.shape[2:]), shown[0])
    raw = agent.policy.act(flat, seed=seed).raw_actions
    raw = tf.nest.map_structure(
        lambda x: np.asarray(x).reshape(*outer, *x.shape[1:]), raw
    )
    weights = rng.uniform(0.2, 1.0, outer).astype(np.float32)
    discounts = np.where(rng.random(outer) < 0.3, 0.0, 0.97).astype(np.float32)
    rewards = rng.normal(0.0, 2.0, outer).astype(np.float32)
    rows = records.Transition(shown[0], raw, rewards, discounts, shown[1])
    return transitions.Sample(rows, np.zeros(outer, np.int64), weights, weights)


def doubles(params):
    return {name: np.asarray(value, np.float64) for name, value in params.items()}


def dense(params, layer, x):
    return x @ params[f"{layer}/kernel"] + params[f"{layer}/bias"]


def actor(params, x):
    """Outputs of an actor of one hidden layer."""
    hidden = tf.nn.relu(dense(params, "actor/parameters/hidden_0", x))
    return dense(params, "actor/parameters/output", hidden)


def critics(params, x):
    """Outputs `[N, B, n]` of critics of one hidden layer."""
    n_critics = params["critics/output/bias"].shape[0]
    parts = [
        {name: value[i] for name, value in params.items()} for i in range(n_critics)
    ]
    hidden = [tf.nn.relu(dense(part, "critics/hidden_0", x)) for part in parts]
    pairs = zip(parts, hidden, strict=True)
    return tf.stack([dense(part, "critics/output", y) for part, y in pairs])


def squashed(parameters, noise):
    """Actions within (-1, 1), and their log-densities."""
    mean, log_std = tf.split(parameters, 2, axis=-1)
    log_std = tf.clip_by_value(log_std, -20.0, 2.0)
    action = tf.tanh(mean + tf.exp(log_std) * noise)
    each = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return action, tf.reduce_sum(each - tf.math.log(1.0 - action**2), axis=-1)


class Adam:
    """Adam of a dictionary."""

    def __init__(self, rate):
        self.rate, self.count, self.moments = rate, 0, {}

    def step(self, params, loss_fn):
        """Returns parameters after a step, and the loss before."""
        given = {name: tf.constant(value) for name, value in params.items()}
        with tf.GradientTape() as tape:
            tape.watch(given)
            loss = loss_fn(given)
        grads, self.count = tape.gradient(loss, given), self.count + 1
        new = {}
        for name, grad in grads.items():
            first, second = self.moments.get(name, (0.0, 0.0))
            first, second = 0.9 * first + 0.1 * grad, 0.999 * second + 0.001 * grad**2
            self.moments[name] = first, second
            step = first / (1 - 0.9**self.count)
            step /= tf.sqrt(second / (1 - 0.999**self.count)) + 1e-8
            new[name] = (params[name] - self.rate * step).numpy()
        return new, float(loss)


def written_out(agent, sample, noise, target_of, losses_of, raised_of):
    """All steps of an update of an agent of Box actions.

    Args:
        agent: of one hidden layer.
        sample: of `sample_of`.
        noise: `[B, D]`, of every draw.
        target_of: from rewards, discounts, outputs of the copies at (s', a') and
            alpha * log pi(a' | s') to targets.
        losses_of: from outputs of the critics at (s, a) and targets to losses `[B]`.
        raised_of: from outputs of the critics at (s, pi(s)) to values `[B]`.

    Returns:
        Parameters of actor, critics and their copies, log alpha, critics' losses, and
        the actor's, of its steps.
    """
    config, data = agent.config, sample.data
    policy, own = doubles(agent.policy.state.params), doubles(agent.critics.params)
    target = doubles(agent.target_params)
    log_alpha = {"": np.log(np.float64(config.temperature))}
    wanted = -float(noise.shape[-1])
    adams = [
        Adam(config.learning_rate),
        Adam(config.critic_learning_rate),
        Adam(config.temperature_learning_rate),
    ]
    found, of_actor = [], []
    for k in range(len(sample.weights)):
        x, raw, later = (
            leaf[k].astype(np.float64)
            for leaf in (data.observations, data.actions, data.next_observations)
        )
        alpha = np.exp(log_alpha[""])
        action, log_prob = squashed(actor(policy, later), noise)
        values = critics(target, tf.concat([later, action], -1))
        y = target_of(data.rewards[k], data.discounts[k], values, alpha * log_prob)

        def loss_of(params, x=x, raw=raw, y=y, k=k):
            values = critics(params, np.concatenate([x, np.tanh(raw)], -1))
            return tf.reduce_mean(sample.weights[k] * losses_of(values, y))

        own, loss = adams[1].step(own, loss_of)
        found.append(loss)
        if (k + 1) % config.policy_delay == 0:
            entropies = []

            def actor_loss(params, x=x, own=own, alpha=alpha, kept=entropies):
                action, log_prob = squashed(actor(params, x), noise)
                values = critics(own, tf.concat([x, action], -1))
                kept.append(-tf.reduce_mean(log_prob))
                return tf.reduce_mean(alpha * log_prob - raised_of(values))

            policy, loss = adams[0].step(policy, actor_loss)
            of_actor.append(loss)
            gap = entropies[0].numpy() - wanted
            log_alpha, _ = adams[2].step(log_alpha, lambda x, gap=gap: x[""] * gap)
        target = {
            name: config.tau * own[name] + (1 - config.tau) * old
            for name, old in target.items()
        }
    return policy, own, target, log_alpha[""], found, of_actor


def assert_written_out(agent, sample, noise, close, *rules):
    """Compares an update with what `written_out` says."""
    *found, losses, of_actor = written_out(agent, sample, noise, *rules)
    policy, own, target, log_alpha = found
    learned, info = agent.update(sample)
    pairs = (
        (learned.policy.state.params, policy),
        (learned.critics.params, own),
        (learned.target_params, target),
        ({"log alpha": learned.log_temperature.params}, {"log alpha": log_alpha}),
    )
    for found, expected in pairs:
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, err_msg=name, **close)
    np.testing.assert_allclose(info["critic_loss"], np.mean(losses), rtol=1e-4)
    mean = agent.config.policy_delay * np.sum(of_actor) / len(losses)
    np.testing.assert_allclose(info["policy_loss"], mean, rtol=1e-4)
    return learned, info
