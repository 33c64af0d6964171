"""Ornstein-Uhlenbeck noise, which disturbs continuous actions over many steps.

The processes are `tf.Module`s: their values and their streams of random numbers are
saved and restored with them. They run eagerly, in `tf.function` and under XLA.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, operands, precision
from tfrl.core import compile, random, spaces, specs
from tfrl.exploration import _state
from tfrl.ops import tensors

_NOISE = "OrnsteinUhlenbeckNoise"
_SETTINGS = ("mu", "theta", "sigma", "min_value", "max_value")
# How many numbers a restored array stream skips at once.
_MOST_AT_ONCE = 2**20


class OUProcess(_state.Seeded):
    """An Ornstein-Uhlenbeck process around zero.

    Every call takes a step and returns where it led:

        x <- (1 - damping) * x + stddev * N(0, 1)

    In the long run `x` has mean 0, standard deviation
    `stddev / sqrt(1 - (1 - damping)^2)`, and correlation `1 - damping` from one step to
    the next. The elements of `x` are independent.

    Args:
        initial_value: where the process starts, floating-point of any shape; with a
            leading axis `[N, ...]` there are `N` processes.
        damping: in [0, 1]: 0 is a random walk, 1 noise without memory. A number, or an
            array that broadcasts to `initial_value`.
        stddev: at least 0; a number, such an array, or a schedule (any function without
            arguments), called at each call.
        seed: int, int32 `[2]` tensor or None, see `tfrl.core.new_seed`.

    Raises:
        TypeError: if `initial_value` is not floating-point, or another not numeric.
        ValueError: if `damping` or `stddev` is outside its range.

    Example:
        >>> process = OUProcess(tf.ones([2]), damping=0.5, stddev=0.0)
        >>> process().numpy(), process().numpy()
        (array([0.5, 0.5], dtype=float32), array([0.25, 0.25], dtype=float32))
        >>> process.reset()
        >>> process.value.numpy()
        array([1., 1.], dtype=float32)

    References:
        Uhlenbeck, Ornstein, 1930, On the Theory of the Brownian Motion.
    """

    def __init__(
        self,
        initial_value: Any,
        damping: Any = 0.15,
        stddev: Any = 0.2,
        seed: Any = None,
    ) -> None:
        where = "OUProcess"
        initial_value = operands.floating(where, "initial_value", initial_value)
        _check_process(where, damping=damping, stddev=stddev)
        super().__init__(seed)
        self._start = initial_value.numpy()
        self._damping = damping
        self._stddev = stddev if callable(stddev) else lambda: stddev
        self._value = _variable(self._start)

    @property
    def value(self) -> tf.Tensor:
        """Where the process is now."""
        return tf.convert_to_tensor(self._value)

    def __call__(self, seed: Any = None) -> tf.Tensor:
        """Takes a step.

        Args:
            seed: what `new_seed` takes; None for the process's own stream.

        Returns:
            The new value, with shape and dtype of `initial_value`.
        """
        seed = self.next_seed(seed)
        return _step(self._value, seed, 0.0, self._damping, self._stddev())

    def reset(self, mask: Any = None) -> None:
        """Goes back to the initial value; the stream of random numbers goes on.

        Args:
            mask: bools with the first axes of `initial_value`, such as `[N]`: True
                where to reset. None resets all.

        Raises:
            ValueError: if its shape is another.
        """
        self._value.assign(_restarted(self.value, self._start, mask))


class OrnsteinUhlenbeckNoise(_state.Seeded):
    """Adds an Ornstein-Uhlenbeck process to continuous actions.

    Every call takes a step and adds where it led:

        X <- clip(X + theta * (mu - X) + sigma * N(0, 1), min_value, max_value)
        a -> a + X

    `X` starts at `mu` (not clipped) and gets the shape of the first action: one process
    per element, so actions `[N, ...]` of `N` environments have noise of their own. The
    bounds are those of `X`; `tfrl.core.clip_to_spec` keeps the sum within an action
    space.

    Tensors, and anything inside `tf.function`, are answered with tensors; arrays and
    Python numbers with arrays, by the draws of `numpy.random.RandomState(random_seed)`.
    Each of the two kinds has an `X` of its own. All state is in variables; those of `X`
    are made at the first call, so make one before exporting a SavedModel.

    The arguments are attributes, too, and may be assigned at any time, such as
    `noise.sigma *= 0.99`: what is assigned counts from the next call on, also in a
    `tf.function`, and goes into checkpoints. A setting keeps the shape it was made
    with. Assigning `random_seed` starts both streams anew, whatever it was before; `X`
    stays where it is until `reset`.

    Args:
        mu: where `X` is drawn to; a number, or an array that broadcasts to the action.
        sigma: at least 0; a number, such an array, or a schedule (any function without
            arguments), called at each call.
        theta: how strongly `X` is drawn, greater than 0; a number or such an array.
        min_value: least value of `X`, a number or such an array; None for none.
        max_value: greatest value of `X`, likewise.
        random_seed: int or None, the seed of both streams; None draws one from
            TensorFlow's global generator, which the attribute then tells.

    Raises:
        TypeError: if an argument is not numeric, or `random_seed` no integer.
        ValueError: if `sigma` is negative or `theta` not positive, a number is not
            finite, or the bounds are reversed; on assignment also if a shape is new.

    Example:
        >>> noise = OrnsteinUhlenbeckNoise(mu=1.0, sigma=1e-9, theta=0.5, random_seed=0)
        >>> noise(np.array([0.0, 2.0])).round(6)
        array([1., 3.])
        >>> noise(tf.constant([0.0, 2.0], tf.float64)).numpy().round(6)
        array([1., 3.])
        >>> noise.mu = 2.0
        >>> noise(np.array([0.0, 2.0])).round(6)
        array([1.5, 3.5])

    References:
        Lillicrap et al., 2016, Continuous control with deep reinforcement learning,
        section 3.
    """

    _stream_place: tuple[int, int]
    mu: Any = _state.Setting(doc="Where `X` is drawn to.")
    sigma: Any = _state.Setting(
        least=0.0, is_scheduled=True, doc="Deviation of each step, or its schedule."
    )
    theta: Any = _state.Setting(
        least=0.0, is_open=True, doc="How strongly `X` is drawn to `mu`."
    )
    min_value: Any = _state.Setting(
        absent=-np.inf, other="max_value", doc="Least value of `X`; None for none."
    )
    max_value: Any = _state.Setting(
        absent=np.inf, other="min_value", doc="Greatest value of `X`; None for none."
    )

    def __init__(
        self,
        mu: Any = 0.0,
        sigma: Any = 1.0,
        theta: Any = 0.15,
        min_value: Any = None,
        max_value: Any = None,
        random_seed: int | None = None,
    ) -> None:
        _check_seed(random_seed)
        super().__init__(random_seed)
        self.mu, self.sigma, self.theta = mu, sigma, theta
        self.max_value, self.min_value = max_value, min_value
        self._seed = tf.Variable(self.start, trainable=False, dtype=tf.int64)
        self._value: tf.Variable | None = None
        # For arrays: the seed of the stream, the number of its draws so far, and X.
        self._host: tf.Variable | None = None
        self._host_shape: tuple[int, ...] = ()
        self._start_stream()
        # Whether a reset came before the variables of X, for tensors and for arrays. A
        # variable too, so that it is known whether restoring came before or after it.
        self._is_reset = tf.Variable([False, False], trainable=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "random_seed":
            # TensorFlow passes over what is assigned to be what it is.
            object.__setattr__(self, name, value)
            return
        # TensorFlow would track a list as a part of the module.
        is_list = name in _SETTINGS and isinstance(value, list | tuple)
        super().__setattr__(name, np.asarray(value) if is_list else value)

    @property
    def random_seed(self) -> int:
        """The seed of both streams; assigning one, also the same, starts them anew.

        None becomes a seed drawn from TensorFlow's global generator.
        """
        return int(self._seed)

    @random_seed.setter
    def random_seed(self, seed: int | None) -> None:
        _check_seed(seed)
        self.restart(seed)
        self._seed.assign(self.start)
        self._start_stream()
        if self._host is not None:
            self._host.assign(np.append(self._stream_place, self._host[2:]))

    def __call__(self, a: Any, seed: Any = None) -> Any:
        """Takes a step and adds it to an action.

        Args:
            a: floating-point, of the same shape at every call and, for tensors, of the
                same dtype. An array of integers gets white noise cut to whole numbers.
            seed: for tensors, what `new_seed` takes; None for the own stream.

        Returns:
            The sum, with shape and dtype of `a` (float64 for integers): an array for an
            array or a number, a tensor for a tensor.

        Raises:
            TypeError: if `a` is not numeric, or a tensor not floating-point or of
                another dtype than the first.
            ValueError: if the shape is unknown or changes, or an argument of the
                constructor does not broadcast to it.
        """
        if tf.is_tensor(a) or not tf.executing_eagerly():
            return self._add_to_tensor(checks.as_tensor(_NOISE, "a", a), seed)
        array = np.asarray(a)
        if array.dtype.kind in "OSUmM":
            array = checks.as_tensor(_NOISE, "a", a).numpy()
        return self._add_to_array(array)

    def reset(self, mask: Any = None) -> None:
        """Starts the noise again at `mu`; the streams of random numbers go on.

        Args:
            mask: bools with the first axes of the actions, such as `[N]`: True where to
                reset. None resets all.

        Raises:
            ValueError: if its shape is another; if there was no call yet, and a mask is
                given or the reset is inside `tf.function`.
        """
        is_new = self._value is None and self._host is None
        if is_new and not (mask is None and tf.executing_eagerly()):
            raise ValueError(
                f"`{_NOISE}.reset`: expected a process that has begun; got one without "
                "a call; call it once, or reset all of it outside of `tf.function`"
            )
        if mask is None and tf.executing_eagerly():
            self._is_reset.assign([self._value is None, self._host is None])
        if self._value is not None:
            value = tf.convert_to_tensor(self._value)
            self._value.assign(_restarted(value, self.mu, mask))
        if self._host is not None:
            place, value = self._host[:2], tf.reshape(self._host[2:], self._host_shape)
            value = _restarted(value, self.mu, mask)
            self._host.assign(tf.concat([place, tf.reshape(value, [-1])], axis=0))

    def _add_to_tensor(self, action: tf.Tensor, seed: Any) -> tf.Tensor:
        checks.check_floating(_NOISE, "a", action)
        if self._value is None:
            start = self._start(action.shape).astype(action.dtype.as_numpy_dtype)
            with tf.init_scope():
                # If a checkpoint waits for this variable, it is restored here.
                self._value = _variable(start)
                if self._is_reset[0]:
                    self._value.assign(start)
                    self._is_reset.assign([False, self._is_reset[1]])
        _check_shape(action.shape, self._value.shape)
        if action.dtype != self._value.dtype:
            raise TypeError(
                f"`{_NOISE}`: `a` expected the dtype of the first call "
                f"{self._value.dtype.name}; got {action.dtype.name}; cast it"
            )
        seed = self.next_seed(seed)
        kind = type(self)
        settings = [getattr(kind, name).tensor_of(self) for name in _SETTINGS]
        settings = [x() if callable(x) else x for x in settings]
        return action + _step(self._value, seed, *settings)

    def _add_to_array(self, action: np.ndarray) -> Any:
        if self._host is None:
            start = self._start(tf.TensorShape(action.shape))
            self._host_shape = action.shape
            with tf.device("CPU:0"):
                first = np.append(self._stream_place, start)
                self._host = tf.Variable(first, trainable=False)
            seed = self.random_seed % 2**32
            if int(self._host[0]) != seed:  # assigned after a checkpoint was read
                self._host.assign(np.append([seed, 0], self._host[2:]))
            if self._is_reset[1]:
                place = self._host[:2].numpy()
                self._host.assign(np.append(place, start))
                self._is_reset.assign([self._is_reset[0], False])
        if action.shape != self._host_shape:
            _check_shape(tf.TensorShape(action.shape), tf.TensorShape(self._host_shape))
        state = self._host.numpy()
        seed, drawn = int(state[0]), int(state[1])
        white = self._stream_at(seed, drawn).randn(*action.shape)
        self._stream_place = seed, drawn + action.size
        old = state[2:].reshape(action.shape)
        if tf.as_dtype(action.dtype).is_floating:
            old = old.astype(action.dtype)
        mu, theta, sigma, least, most = self._settings()
        new = old + (theta * (mu - old) + sigma * np.asarray(white, action.dtype))
        new = new if least is None else np.maximum(new, least)
        new = np.asarray(new if most is None else np.minimum(new, most), old.dtype)
        state[1], state[2:] = drawn + action.size, new.ravel()
        self._host.assign(state, read_value=False)
        return action + new

    def _start_stream(self) -> None:
        self._stream_place = self.start % 2**32, 0
        self._stream = np.random.RandomState(self._stream_place[0])

    def _stream_at(self, seed: int, drawn: int) -> np.random.RandomState:
        """The array stream where the variable, which may be restored, says it is."""
        if (seed, drawn) != self._stream_place:
            self._stream = np.random.RandomState(seed)
            for rest in range(drawn, 0, -_MOST_AT_ONCE):
                self._stream.randn(min(rest, _MOST_AT_ONCE))
        return self._stream

    def _settings(self) -> tuple[Any, ...]:
        sigma = self.sigma() if callable(self.sigma) else self.sigma
        return self.mu, self.theta, sigma, self.min_value, self.max_value

    def _start(self, shape: tf.TensorShape) -> np.ndarray:
        """Where a process of that shape starts."""
        if not shape.is_fully_defined():
            raise ValueError(
                f"`{_NOISE}`: `a` expected known dimensions at the first call; "
                f"got shape {shape}"
            )
        for name, setting in zip(_SETTINGS, self._settings(), strict=True):
            operands.check_broadcasts(_NOISE, name, setting, shape)
        with tf.init_scope():
            return np.broadcast_to(np.asarray(self.mu, np.float64), shape)


def create_ou_process(
    action_spec: Any,
    ou_stddev: Any,
    ou_damping: Any,
    outer_dims: Sequence[int] = (),
    seed: Any = None,
) -> Any:
    """Creates a process of noise around zero for each leaf of an action spec.

        x <- (1 - ou_damping) * x + ou_stddev * N(0, 1),    x = 0 at first

    Bounds of the spec are not heeded: `clip_to_spec` keeps noisy actions within them.

    Args:
        action_spec: nest of floating-point specs, or a Gymnasium space of `Box`es.
        ou_stddev: standard deviation of the white noise, at least 0: a number, an array
            that broadcasts to each leaf, or a schedule.
        ou_damping: in [0, 1], a number or such an array.
        outer_dims: sizes put before those of each spec, such as `[N]` for `N`
            environments.
        seed: int, int32 `[2]` tensor or None, see `tfrl.core.new_seed`; each process
            gets a stream of its own.

    Returns:
        Nest of `OUProcess`, one for each leaf. As an attribute of a `tf.Module`, or
        given to `tf.train.Checkpoint`, all of it checkpoints.

    Raises:
        TypeError: if a spec is not floating-point.
        ValueError: if it has unknown dimensions, or a number is out of its range.

    Example:
        >>> spec = {"steer": tf.TensorSpec([2]), "gas": tf.TensorSpec([1])}
        >>> processes = create_ou_process(spec, 0.2, 0.15, outer_dims=[8], seed=0)
        >>> tf.nest.map_structure(lambda process: process().shape, processes)
        {'steer': TensorShape([8, 2]), 'gas': TensorShape([8, 1])}
    """
    if isinstance(action_spec, gym.Space):
        action_spec = spaces.spec_from_space(action_spec)
    where = "create_ou_process"
    leaves = tf.nest.flatten(action_spec)
    for leaf in leaves:
        specs.check_spec(where, "action_spec", leaf)
        checks.check_floating(where, "action_spec", leaf)
    _check_process(where, ou_damping=ou_damping, ou_stddev=ou_stddev)
    starts = tf.nest.flatten(specs.zeros_from_spec(action_spec, list(outer_dims)))
    seeds = random.split_seed(seed, len(leaves)) if leaves else []
    return tf.nest.pack_sequence_as(
        action_spec,
        [
            OUProcess(start, ou_damping, ou_stddev, own)
            for start, own in zip(starts, seeds, strict=True)
        ],
    )


def _variable(start: Any) -> tf.Variable:
    """The variable of a process; each replica of a strategy has a value of it."""
    return tf.Variable(
        start,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _step(variable: tf.Variable, seed: tf.Tensor, *settings: Any) -> tf.Tensor:
    """Moves the process in a variable on and returns its new value."""
    arrays = [np.asarray(x) if isinstance(x, list | tuple) else x for x in settings]
    value = _advanced(tf.convert_to_tensor(variable), seed, *arrays)
    variable.assign(value)
    return value


@compile.compiled
def _advanced(
    value: tf.Tensor,
    seed: tf.Tensor,
    mu: Any,
    theta: Any,
    sigma: Any,
    least: Any = None,
    most: Any = None,
) -> tf.Tensor:
    mu, theta, sigma, least, most = (
        setting if setting is None else precision.number(setting, value.dtype)
        for setting in (mu, theta, sigma, least, most)
    )
    white = tf.random.stateless_normal(tf.shape(value), seed, dtype=value.dtype)
    value = value + (theta * (mu - value) + sigma * white)
    value = value if least is None else tf.maximum(value, least)
    return value if most is None else tf.minimum(value, most)


def _restarted(value: tf.Tensor, start: Any, mask: Any) -> tf.Tensor:
    """Where a process starts; with a mask, where that is True."""
    start = tf.broadcast_to(precision.number(start, value.dtype), value.shape)
    if mask is None:
        return start
    mask = checks.as_tensor("reset", "mask", mask, tf.bool)
    mask = tensors.expand_dims_as(mask, value)
    return tf.where(mask, start, value)


def _check_process(where: str, **settings: Any) -> None:
    """Raises unless damping and standard deviation, in this order, are in range."""
    (damping, share), (stddev, size) = settings.items()
    checks.check_within(where, damping, share, 0, 1)
    if not callable(size):
        checks.check_within(where, stddev, size, 0, float("inf"))
        checks.check_finite(where, stddev, size)


def _check_seed(seed: Any) -> None:
    try:
        if seed is not None:
            random.new_seed(seed)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{_NOISE}`: `random_seed` expected an int of at most 64 bits or None; "
            f"got {checks.shown(seed)}"
        ) from error


def _check_shape(got: tf.TensorShape, first: tf.TensorShape) -> None:
    if not got.is_compatible_with(first):
        raise ValueError(
            f"`{_NOISE}`: `a` expected the shape of the first call {first.as_list()}; "
            f"got {got}"
        )
