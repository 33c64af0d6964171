"""Layers of JAX's libraries at the top of a module, where they can be named."""

import pytest

eqx = pytest.importorskip("equinox")
hk = pytest.importorskip("haiku")
jax = pytest.importorskip("jax")
linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")


class Network(linen.Module):
    """Fields of every kind, one module within another."""

    units: int = 8
    sizes: tuple = (2,)
    activation: object = linen.relu
    last: object = None

    @linen.compact
    def __call__(self, x, train):
        x = self.activation(linen.Dense(self.units)(x))
        x = linen.Dropout(0.5, deterministic=not train)(x)
        x = linen.BatchNorm(use_running_average=not train)(x)
        return (self.last or linen.Dense(self.sizes[-1]))(x)


linen_network = Network(units=5, sizes=(3, 2), activation=linen.tanh)
linen_nested = Network(last=linen.Dense(2, use_bias=False))
nnx_network = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
haiku_network = hk.transform_with_state(lambda x: hk.Linear(2)(x))


def init(rng, inputs):
    return {"kernel": jax.random.normal(rng, [inputs.shape[-1], 2])}


def apply(params, inputs):
    return jax.numpy.tanh(inputs @ params["kernel"])


def init_equinox(rng, inputs):
    return eqx.nn.MLP(inputs.shape[-1], 2, 8, 2, jax.nn.tanh, key=rng)


def apply_equinox(params, inputs):
    return jax.vmap(params)(inputs)


class Counter(eqx.Module):
    count: jax.Array
    step: float = 2.0


def init_counter(rng, inputs):
    return init(rng, inputs), Counter(jax.numpy.zeros([]))


def apply_counter(params, state, inputs):
    after = Counter(state.count + state.step)
    return apply(params, inputs) + after.count, after
