"""Algorithms written out in NumPy, float64: networks, slopes, and steps of Adam.

A loss is a function of parameters, by name. Its slope comes from differences, so that
what a test says of an algorithm is its losses alone. Networks have tanh, without kinks.
"""

import numpy as np


def doubles(params):
    """Copies of parameters, their first names left out."""
    return {
        name.partition("/")[2]: np.array(value, np.float64)
        for name, value in params.items()
    }


def slope(loss, params, step=1e-5):
    """The gradient of a loss, by central differences."""
    grads = {}
    for name, value in params.items():
        grad = np.zeros_like(value)
        for place in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[place] += sign * step
                ends.append(loss({**params, name: moved}))
            grad[place] = (ends[0] - ends[1]) / (2 * step)
        grads[name] = grad
    return grads


class Adam:
    """Parameters that move by Adam."""

    def __init__(self, params, rate):
        self.params, self.rate, self.count = doubles(params), rate, 0
        self.moments = {name: (0.0, 0.0) for name in self.params}

    def step(self, loss):
        grads, self.count = slope(loss, self.params), self.count + 1
        for name, grad in grads.items():
            first, second = self.moments[name]
            first = 0.9 * first + 0.1 * grad
            second = 0.999 * second + 0.001 * grad**2
            self.moments[name] = first, second
            up = first / (1 - 0.9**self.count)
            down = np.sqrt(second / (1 - 0.999**self.count)) + 1e-8
            self.params[name] = self.params[name] - self.rate * up / down


def dense(params, place, x):
    return x @ params[f"{place}/kernel"] + params[f"{place}/bias"]


def mlp(params, place, x):
    return dense(
        params, f"{place}/output", np.tanh(dense(params, f"{place}/hidden_0", x))
    )


def q_values(params, x, features):
    """Of N critics, `[N, B]`."""
    hidden = np.concatenate([x, features], axis=-1)
    hidden = np.tanh(dense(params, "hidden_0", hidden[None]))
    return dense(params, "output", hidden)[..., 0]


def moved(target, params, tau):
    return {name: tau * params[name] + (1 - tau) * old for name, old in target.items()}


def assert_params(found, expected, rtol=2e-3, atol=2e-5):
    found = doubles(found)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=rtol, atol=atol, err_msg=name
        )
