"""Acting in JAX, for tools/benchmarks/acting.py to measure."""

import jax
import jax.numpy as jnp
import numpy as np


def actor(n_inputs, n_choices, hidden=(64, 64)):
    """A perceptron of observations whose logits are drawn by a seed, in one jit."""
    sizes, rng = (n_inputs, *hidden, n_choices), np.random.default_rng(0)
    weights = [
        (jnp.asarray(rng.normal(size=pair), jnp.float32), jnp.zeros(pair[1]))
        for pair in zip(sizes[:-1], sizes[1:], strict=True)
    ]

    @jax.jit
    def act(weights, observations, seed):
        values = observations
        for kernel, bias in weights[:-1]:
            values = jnp.tanh(values @ kernel + bias)
        logits = values @ weights[-1][0] + weights[-1][1]
        logits = jax.nn.log_softmax(logits)
        key = jax.random.wrap_key_data(seed.astype(jnp.uint32))
        actions = jax.random.categorical(key, logits)
        return actions, jnp.take_along_axis(logits, actions[:, None], -1)

    def called(observations, seed):
        return jax.block_until_ready(act(weights, observations, seed))

    return called
