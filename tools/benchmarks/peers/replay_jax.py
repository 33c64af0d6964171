"""Replay of flashbax, compiled, for the benchmarks of replays."""

import flashbax
import jax
import jax.numpy as jnp
import numpy as np


class Flashbax:
    """The flat buffer: time steps of environments, drawn as pairs.

    Its state goes into each compiled call and is changed in place. A turn is one call
    of all that it does, as in a training step compiled as a whole.
    """

    make = staticmethod(flashbax.make_flat_buffer)

    def __init__(self, case, width):
        buffer = self.make(case.capacity, 256, 256, add_batch_size=width)
        step = {
            "observations": jnp.zeros(case.shape, case.dtype),
            "actions": jnp.zeros([], jnp.int32),
            "rewards": jnp.zeros([]),
            "terminated": jnp.zeros([], bool),
            "truncated": jnp.zeros([], bool),
        }
        self.state = buffer.init(step)
        self.append = jax.jit(buffer.add, donate_argnums=0)
        self.drawn = jax.jit(self._split(buffer.sample))
        self.key = jax.random.key(0)
        if hasattr(buffer, "set_priorities"):
            self.change = jax.jit(buffer.set_priorities, donate_argnums=0)
        self.turned = jax.jit(self._turned(buffer), donate_argnums=0)

    def _split(self, sample):
        def drawn(state, key):
            key, here = jax.random.split(key)
            return key, sample(state, here)

        return drawn

    def _turned(self, buffer):
        drawn, ones = self._split(buffer.sample), jnp.ones(256)

        def turned(state, key, step):
            state = buffer.add(state, step)
            key, found = drawn(state, key)
            if hasattr(buffer, "set_priorities"):
                state = buffer.set_priorities(state, found.indices, ones)
            return state, key, found

        return turned

    def turn(self, step):
        self.state, self.key, found = self.turned(self.state, self.key, step)
        jax.block_until_ready((self.state, found))

    def ready(self, step):
        names = ("observations", "actions", "rewards", "terminated", "truncated")
        return ({name: jnp.asarray(getattr(step, name)) for name in names},)

    def add(self, step):
        self.state = self.append(self.state, step)
        jax.block_until_ready(self.state)

    def sample(self, n):
        del n
        self.key, found = self.drawn(self.state, self.key)
        return jax.block_until_ready(found)

    def read(self, found):
        first, second = found.experience.first, found.experience.second
        names = ("observations", "actions", "rewards", "terminated")
        leaves = [np.asarray(first[name]) for name in names]
        return *leaves, np.asarray(second["observations"])


class FlashbaxPrioritized(Flashbax):
    """The prioritised flat buffer; it gives no importance weights."""

    make = staticmethod(flashbax.make_prioritised_flat_buffer)

    def indices(self, found):
        return found.indices

    def priorities(self, numbers):
        return jnp.asarray(numbers)

    def set(self, indices, priorities):
        self.state = self.change(self.state, indices, priorities)
        jax.block_until_ready(self.state)
