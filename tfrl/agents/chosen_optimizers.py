"""The optimizer that the settings of an agent choose in place of its own."""

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from tfrl.agents import gradient_transforms, keras_optimizers, train_state

# Whether the agent of a run on disk is made, which goes on as it began.
_goes_on: contextvars.ContextVar[bool] = contextvars.ContextVar("on", default=False)


def check(config: Any, optimizer: Any) -> None:
    """Raises a TypeError unless settings could choose an optimizer.

    Args:
        config: the settings.
        optimizer: what they have for it.
    """
    if not callable(optimizer) or not takes(optimizer, learning_rate=0.0):
        raise _no_optimizer(config, optimizer)
    if isinstance(optimizer, functools.partial) and "learning_rate" in (
        given := optimizer.keywords
    ):
        usual = inspect.signature(optimizer.func).parameters.get("learning_rate")
        # What a run keeps of a partial has the defaults too.
        if usual is None or usual.default != given["learning_rate"]:
            raise _no_optimizer(config, optimizer)


def takes(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Whether a function can be called so, as far as its signature is known.

    Args:
        function: which may be a partial.
        *args: of the call.
        **kwargs: likewise.

    Example:
        >>> takes(len, [1]), takes(len, [1], [2])
        (True, False)
    """
    if isinstance(function, functools.partial):  # which has none if it cannot
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        function = function.func
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except ValueError:
        return True
    except TypeError:
        return False
    return True


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """Within it, agents of runs on disk are made, also with what is refused by now.

    Example:
        >>> with going_on():
        ...     agent = tfrl.agents.DQN().create(
        ...         gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2))
    """
    token = _goes_on.set(True)
    try:
        yield
    finally:
        _goes_on.reset(token)


def made(config: Any, rate: float) -> gradient_transforms.GradientTransform:
    """Returns the gradient transform that settings choose.

    Args:
        config: settings with an `optimizer`.
        rate: at which it learns.

    Raises:
        TypeError: if their `optimizer` makes none.
        ValueError: if what it makes cannot be translated.

    Example:
        >>> made(tfrl.agents.DQN(optimizer=tfrl.agents.sgd), 0.5).parts
        (ScaleByLearningRate(learning_rate=0.5),)
    """
    tx = config.optimizer(learning_rate=rate)
    if isinstance(tx, keras.optimizers.Optimizer):
        tx = keras_optimizers.from_keras(tx)
    if not isinstance(tx, gradient_transforms.GradientTransform):
        raise _no_optimizer(config, tx, "one that returns ")
    return tx


def check_follows(config: Any, state: train_state.TrainState, rate: float) -> None:
    """Raises a ValueError unless all rates of the optimizer are those given to it.

    Agents of runs on disk go on as they began; see `going_on`.

    Args:
        config: settings with an `optimizer`.
        state: of a network that it is to train.
        rate: at which it learns.
    """
    if _goes_on.get():
        return
    asked = 2.0 * rate or 0.5  # which it hardly has of its own
    begun = made(config, asked).init(state.params)
    rates = [float(x) for x in gradient_transforms.learning_rates(begun)]
    if not rates or not np.allclose(rates, asked, rtol=1e-6, atol=0.0):
        found = f", {sorted(set(rates))} for {asked:g}" if rates else ""
        raise ValueError(
            f"`{type(config).__name__}`: `optimizer` expected to take the rate that is "
            f"given to it as it is; got one with a rate of its own{found}; give the "
            "rate as `learning_rate`, which may be a schedule, and slow some weights "
            "down by `scale_by_schedule(lambda step: 0.01)` in a `chain` within "
            "`partitioned`"
        )


def _no_optimizer(config: Any, given: Any, how: str = "") -> TypeError:
    return TypeError(
        f"`{type(config).__name__}`: `optimizer` expected a function of "
        "`learning_rate`, such as `tfrl.agents.adamw`, or a class of "
        f"`keras.optimizers`; got {how}{given!r:.80}; give options by "
        "`functools.partial`, and the rate as a setting of the agent"
    )
