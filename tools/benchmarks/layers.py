"""A layer inside `AsKeras` and the same layer written in Keras: steps of `model.fit`.

Every contender fits the same network of three dense layers (tanh between them) by Adam
to the same batches, on one core and one thread; what is counted is an epoch of `fit`,
callbacks and progress included, divided by its steps. Before the clock starts all must
reach the same loss from the same weights. Contenders take turns, and each figure is the
median over the rounds: a machine shared with others then slows all of them alike.

    tools/bench layers
    tools/bench layers --rounds 51 --sizes 256x64
"""

import functools

from harness import one_core

one_core.start_again()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from harness import turns  # noqa: E402

from tfrl import layers  # noqa: E402

try:
    from flax import linen
except ImportError:
    linen = None

SIZES = ("32x64", "256x64", "256x256")
STEPS, INPUTS, OUTPUTS = 50, 17, 6
BASE = "Keras"


class Dense:
    """Three dense layers that keep their weights outside."""

    def __init__(self, width):
        self.widths = (INPUTS, width, width, OUTPUTS)

    def init(self, signature, rng):  # noqa: ARG002
        pairs = zip(self.widths, self.widths[1:], strict=False)
        return tuple(
            (np.zeros(p, np.float32), np.zeros(p[1:], np.float32)) for p in pairs
        ), ()

    def pure_fn(self, x, weights, state, rng):  # noqa: ARG002
        *hidden, (kernel, bias) = weights
        for w, b in hidden:
            x = tf.tanh(tf.matmul(x, w) + b)
        return tf.matmul(x, kernel) + bias, state


class KerasDense(keras.layers.Layer):
    """The same, written in Keras."""

    def __init__(self, width):
        super().__init__()
        self.widths = (INPUTS, width, width, OUTPUTS)

    def build(self, input_shape):  # noqa: ARG002
        for i, shape in enumerate(zip(self.widths, self.widths[1:], strict=False)):
            setattr(
                self, f"kernel_{i}", self.add_weight(shape=shape, name=f"kernel_{i}")
            )
            setattr(
                self, f"bias_{i}", self.add_weight(shape=shape[1:], name=f"bias_{i}")
            )

    def call(self, x):
        for i in range(3):
            x = tf.matmul(x, getattr(self, f"kernel_{i}")) + getattr(self, f"bias_{i}")
            x = tf.tanh(x) if i < 2 else x
        return x


def flax_module(width):
    return linen.Sequential(
        [
            linen.Dense(width),
            linen.tanh,
            linen.Dense(width),
            linen.tanh,
            linen.Dense(OUTPUTS),
        ]
    )


def contenders():
    """Name -> layer of a width, and whether XLA compiles the step."""
    found = {
        BASE: (KerasDense, False),
        "tfrl AsKeras": (lambda width: layers.AsKeras(Dense(width)), False),
        "Keras in XLA": (KerasDense, True),
        "tfrl AsKeras in XLA": (lambda width: layers.AsKeras(Dense(width)), True),
    }
    if linen:
        found["keras.layers.FlaxLayer"] = (
            lambda width: keras.layers.FlaxLayer(flax_module(width)),
            False,
        )
        found["tfrl AsKeras of from_flax"] = (
            lambda width: layers.AsKeras(layers.from_flax(flax_module(width))),
            False,
        )
    return found


def prepared(make, jit_compile, rows, width, steps_per_execution):
    """A function that fits an epoch, and the loss it starts with."""
    rng = np.random.default_rng(0)
    inputs = keras.Input([INPUTS])
    model = keras.Model(inputs, make(width)(inputs))
    for weight in model.trainable_weights:
        weight.assign(
            0.1 * np.random.default_rng(list(weight.shape)).normal(size=weight.shape)
        )
    x = rng.normal(size=[rows * STEPS, INPUTS]).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :OUTPUTS])).batch(
        rows, drop_remainder=True
    )
    model.compile(
        "adam", "mse", jit_compile=jit_compile, steps_per_execution=steps_per_execution
    )
    fit = functools.partial(model.fit, data.cache(), verbose=0)
    return fit, fit(epochs=2).history["loss"][-1]


def measure(size, rounds, steps_per_execution):
    """Name -> microseconds of a step of `fit`, one entry for each round."""
    rows, width = map(int, size.split("x"))
    runs, losses = {}, {}
    for name, (make, jit_compile) in contenders().items():
        fit, losses[name] = prepared(
            make, jit_compile, rows, width, steps_per_execution
        )
        runs[name] = functools.partial(fit, epochs=4), 4 * STEPS
    for name, loss in losses.items():
        if abs(loss / losses[BASE] - 1) > 1e-3:
            raise RuntimeError(f"{name} learns something else: {losses}")
    return turns.measure(runs, rounds)


def main():
    arguments = turns.parser(__doc__, SIZES, "BxWIDTH").parse_args()
    console = turns.console()
    packages = ("tensorflow-cpu", "keras", "jax", "flax")
    console.print(turns.versions(packages), highlight=False)
    if linen is None:
        console.print("flax left out: tfrl[jax] has it", markup=False)
    for together in (1, STEPS):
        results = {
            size: measure(size, arguments.rounds, together) for size in arguments.sizes
        }
        title = f"a step of fit, steps_per_execution={together}"
        console.print(turns.table(title, results, BASE))


if __name__ == "__main__":
    main()
