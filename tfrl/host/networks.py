"""A small multilayer perceptron in NumPy, for where the environments are."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "linear": lambda x: x,
}


@dataclasses.dataclass
class NumpyNetwork:
    """Dense layers over flat observations, as plain data.

        x = clip((observations - mean) * scale, -10, 10)      with `moments`
        x = activation(x @ kernel + bias)                     for each layer
        outputs = [x, log_std]                                with `log_std`

    Attributes:
        kernels: `[n_in, n_out]` float32 of each layer.
        biases: `[n_out]` float32 of each layer.
        activations: "tanh", "relu" or "linear" of each layer.
        moments: mean and 1 / standard deviation of the observations, or `()`.
        log_std: `[n]`, what is appended to each row of outputs, or None.

    Example:
        >>> network = NumpyNetwork([2 * np.eye(2, dtype="f")], [np.zeros(2, "f")],
        ...                        ["relu"])
        >>> network(np.array([[1.0, -1.0]], np.float32)).tolist()
        [[2.0, 0.0]]
    """

    kernels: list[np.ndarray]
    biases: list[np.ndarray]
    activations: list[str]
    moments: tuple[np.ndarray, ...] = ()
    log_std: np.ndarray | None = None

    def arrays(self) -> list[np.ndarray]:
        """Returns all numbers, not copied; what is written to them counts."""
        last = [] if self.log_std is None else [self.log_std]
        return [*self.kernels, *self.biases, *self.moments, *last]

    def copy(self) -> "NumpyNetwork":
        """Returns a network with arrays of its own."""
        return NumpyNetwork(
            [np.array(kernel) for kernel in self.kernels],
            [np.array(bias) for bias in self.biases],
            list(self.activations),
            tuple(np.array(moment) for moment in self.moments),
            None if self.log_std is None else np.array(self.log_std),
        )

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Returns outputs `[B, n]` for observations `[B, *shape]`."""
        values = observations
        if values.ndim != 2:
            # Not -1, which no rows leave open.
            values = values.reshape(len(values), math.prod(values.shape[1:]))
        if self.moments:
            mean, scale = self.moments
            values = (values - mean.ravel()) * scale.ravel()
            # As the network sees them: rounded to the dtype of floating observations.
            # Two ufuncs take a third of the time of `np.clip` on a few rows.
            values = np.minimum(np.maximum(values, -10.0), 10.0)
            if observations.dtype.kind == "f":
                values = values.astype(observations.dtype, copy=False)
        values = values.astype(np.float32, copy=False)
        for kernel, bias, activation in zip(
            self.kernels, self.biases, self.activations, strict=True
        ):
            values = values @ kernel
            values += bias
            values = ACTIVATIONS[activation](values)
        if self.log_std is None:
            return values
        n_rows, n = values.shape
        outputs = np.empty((n_rows, n + len(self.log_std)), np.float32)
        outputs[:, :n], outputs[:, n:] = values, self.log_std
        return outputs
