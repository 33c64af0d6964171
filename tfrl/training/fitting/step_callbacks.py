"""Callbacks of any `keras.Model.fit` that set or update something at every step."""

from collections.abc import Callable
from typing import Any

from tfrl.layers import target
from tfrl.schedules import progress, schedulers
from tfrl.training.fitting import _fit_data


class UpdateTarget(_fit_data.StepCounter):
    """Calls a `TargetUpdater` once for each step of the optimizer.

    For models that are no `FitModel`: that updates its targets itself, inside the
    compiled step. With `steps_per_execution` of k the calls come k at a time.

    Args:
        updater: the `TargetUpdater`, or anything to be called without arguments, such
            as `Periodically`.

    Raises:
        TypeError: if `updater` cannot be called.

    Example:
        >>> model, copy = (keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        ...                for _ in range(2))
        >>> model.compile("sgd", "mse")
        >>> _ = model.fit(np.ones([8, 1]), np.ones([8]), verbose=0, callbacks=[
        ...     UpdateTarget(tfrl.layers.TargetUpdater(model, copy))])
        >>> bool((model.get_weights()[0] == copy.get_weights()[0]).all())
        True
    """

    def __init__(self, updater: target.TargetUpdater | Callable[[], Any]) -> None:
        super().__init__()
        if not callable(updater):
            raise TypeError(
                "`UpdateTarget`: `updater` expected a TargetUpdater; got "
                f"{updater!r}; make one"
            )
        self._updater = updater

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Updates."""
        for _ in range(self._steps_passed(batch)):
            self._updater()


class FollowSchedule(_fit_data.StepCounter):
    """Sets something to what a schedule says, before every batch.

    The schedule follows the training: "iterations" are those of the optimizer, and
    "percent" is the share of all `epochs` that is done; those before `initial_epoch`
    count as done. Of data of unknown length a `FitModel` stays at 0; other models stay
    so in the first epoch, and know its steps from then on. In a `FitModel` "env_steps"
    are what `Collect` or `Rollouts` played. With `steps_per_execution` of k it is set
    once for k steps.

    Args:
        schedule: of `tfrl.schedules`, or any function without arguments.
        variable: a Keras or TensorFlow variable, a function that takes the value, or
            "learning_rate" for that of the optimizer.
        name: under which the logs of epochs tell the last value; None for none.

    Raises:
        TypeError: if `variable` is none of these, or `schedule` no schedule.
        ValueError: in `fit`, if the schedule follows "env_steps" or "global_counter",
            and the model counts none.

    Example:
        >>> model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> rate = tfrl.schedules.StepScheduler("iterations", [(1, 0.5), (9, 0.25)])
        >>> follow = FollowSchedule(rate, "learning_rate", name="rate")
        >>> model.fit(np.ones([8, 1]), np.ones([8]), batch_size=4, verbose=0,
        ...           callbacks=[follow]).history["rate"]
        [0.25]
    """

    def __init__(self, schedule: Any, variable: Any, name: str | None = None) -> None:
        super().__init__()
        self._schedule = schedulers.as_scheduler(schedule)
        self.sets_rate = isinstance(variable, str) and variable == "learning_rate"
        self._set = getattr(variable, "assign", variable)
        if not self.sets_rate and not callable(self._set):
            raise TypeError(
                "`FollowSchedule`: `variable` expected a variable, a function or "
                f'"learning_rate"; got {variable!r}; pass what is to be set'
            )
        self._name, self._value = name, float("nan")

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Looks whether the model tells what the schedule follows."""
        kind = getattr(self._schedule, "progress_type", "iterations")
        known = hasattr(self.model, "progress") or kind in ("percent", "iterations")
        if not known:
            raise ValueError(
                "`FollowSchedule`: `schedule` expected 'percent' or 'iterations' in a "
                f"{type(self.model).__name__}, which counts nothing else; got "
                f"{type(self._schedule).__name__} of {kind!r}; train a "
                "`tfrl.training.FitModel`"
            )

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Sets the variable."""
        with progress.progress_context(self._progress()):
            value = self._schedule()
        self._value = float(value)
        if self.sets_rate:
            self.model.optimizer.learning_rate = value
        else:
            self._set(value)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Counts."""
        self._steps_passed(batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reports."""
        if logs is not None and self._name is not None:
            logs[self._name] = self._value
