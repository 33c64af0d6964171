"""Acting in torch from NumPy to NumPy, for tools/benchmarks/acting.py to measure."""

import numpy as np
import torch
from torch import nn


class WithMemory(nn.Module):
    """A GRU cell, a hidden layer, and logits of a choice that is drawn."""

    def __init__(self, n_inputs, n_choices, units):
        super().__init__()
        self.cell = nn.GRUCell(n_inputs, units)
        self.hidden, self.last = nn.Linear(units, 64), nn.Linear(64, n_choices)

    def forward(self, observations, memory):
        memory = self.cell(observations, memory)
        logits = self.last(torch.tanh(self.hidden(memory)))
        return torch.multinomial(torch.softmax(logits, -1), 1).squeeze(-1), memory


def with_memory(n_inputs, n_choices, memory):
    """A function of observations, whose memory is the one given."""
    model = WithMemory(n_inputs, n_choices, memory.shape[1])

    memory = np.array(memory)  # that of TensorFlow cannot be written to

    @torch.inference_mode()
    def act(observations):
        parts = map(torch.as_tensor, (observations, memory))
        return [part.numpy() for part in model(*parts)]

    return act


def networks(kernels, biases):
    """Name -> function of observations: a perceptron with these weights."""
    layers = []
    for kernel, bias in zip(kernels, biases, strict=True):
        layer = nn.Linear(*kernel.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.as_tensor(kernel.T.copy()))
            layer.bias.copy_(torch.as_tensor(bias))
        layers += [layer, nn.Tanh()]
    model = nn.Sequential(*layers[:-1])
    scripted = torch.jit.freeze(torch.jit.script(model.eval()))
    return {"torch": _called(model), "torch.jit": _called(scripted)}


def _called(model):
    @torch.inference_mode()
    def call(observations):
        return np.asarray(model(torch.as_tensor(observations)))

    return call
