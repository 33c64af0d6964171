"""Gradient steps on the replicas of a strategy, in calls short enough for Ctrl-C.

The strategy is the one in whose scope an agent learns:

    with strategy.scope():
        agent, info = agent.update(trajectory)

Every worker passes the same global batch. Each gradient step splits its rows evenly
over the replicas, and the mean of their gradients moves all of them alike, so that N
replicas learn what one would learn from the same batch, up to rounding.

TensorFlow hands nothing back to Python, neither Ctrl-C nor SIGTERM, while a call of a
compiled function lasts. A brief update is therefore one call; a long one is several,
of which each takes as many gradient steps as fit into a fraction of a second. However
they are split, the steps are those of one compiled loop, so the results are the same to
the bit.
"""

import functools
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import keras
import tensorflow as tf

from tfrl.agents import _packed, train_state
from tfrl.core import compile, pytree
from tfrl.distribute import replicas

LossFn = Callable[[train_state.TrainState, Any, Any], tuple[tf.Tensor, Any]]

# Floating-point operations that no processor takes a second for, and what a step costs
# besides those of its network.
_BRIEF_WORK = 1e10
_STEP_WORK = 1e6
_PIECE_SECONDS = 0.3
# The fewest rows of a call that only looks; so many images take some 50 milliseconds.
_FORWARD_ROWS = 128
# Looking through the layers takes longer than many an update should wait.
_known_work: weakref.WeakKeyDictionary[keras.layers.Layer, "_LayerWork"] = (
    weakref.WeakKeyDictionary()
)


class _LayerWork(NamedTuple):
    """Multiplications per row, forwards, of a built layer, or infinity if unknown."""

    of_a_row: float
    convolves: bool


def n_replicas() -> int:
    """Returns the number of replicas of the strategy in scope; 1 without one.

    Returns:
        An int.

    Raises:
        ValueError: if called within a replica, which cannot share its work any further.

    Example:
        >>> n_replicas()
        1
    """
    strategy = tf.distribute.get_strategy()
    count = strategy.num_replicas_in_sync
    if count > 1 and not tf.distribute.in_cross_replica_context():
        raise ValueError(
            "`update`: expected the scope of the strategy, where the replicas share "
            f"one global batch; got one of {count} replicas; call it in `with "
            "strategy.scope()` and outside of `strategy.run`"
        )
    return count


def check_rows(where: str, name: str, n_rows: int, divides: int | None = None) -> None:
    """Raises a ValueError if `n_rows`, which `name` says, cannot be split evenly.

    Where they must divide another number too, `divides`, the message says which do.
    """
    count = n_replicas()
    if n_rows % count == 0:
        return
    if divides is None:
        sizes = [n_rows // count * count, (n_rows // count + 1) * count]
    else:
        sizes = [x for x in range(count, divides + 1, count) if divides % x == 0]
    sizes = [size for size in sizes if size > 0]
    advice = f"take one of {sizes}" if sizes else "no number fits: take fewer replicas"
    raise ValueError(
        f"`{where}`: `{name}` expected rows that {count} replicas share evenly; got "
        f"{n_rows}; {advice}"
    )


def compiled_update(function: Callable[..., Any]) -> compile.JittedFunc:
    """Compiles an update, or a part of one, by what is fastest for its networks.

    That is XLA, except for convolutions on a CPU, which a plain graph computes five to
    ten times as fast. It is not differentiable.

    Args:
        function: of nests of tensors, such as agents and experience.

    Returns:
        The compiled function, for `run_update`; each new structure or shape of its
        arguments is compiled anew.

    Example:
        >>> float(compiled_update(tf.square)(3.0))
        9.0
    """
    return compile.jit(function, differentiable=False, xla=_by_xla)


def run_update(update: compile.JittedFunc, *args: Any) -> Any:
    """Runs an update on the replicas of the strategy in scope.

    With a single replica the compiled function runs as it is, on the strategy's device
    if there is a strategy. Several replicas cannot meet inside XLA: they run in one
    `tf.function` per strategy, which calls compiled functions. Within a graph it
    becomes part of that graph: in branches of `tf.cond`, functions that reduce over
    replicas fail.

    Args:
        update: what `compiled_update` made of a function that steps with
            `ReplicatedState`.
        *args: its arguments.

    Returns:
        What `update` returns.

    Example:
        >>> float(run_update(compiled_update(tf.square), 3.0))
        9.0
    """
    if n_replicas() > 1:
        if not tf.executing_eagerly():
            return update.func(*args)
        return _function(tf.distribute.get_strategy(), update.func)(*args)
    return run_alone(update, *args)


def run_alone(function: Callable[..., Any], *args: Any) -> Any:
    """Runs what replicas do not share, on the first device of the strategy in scope."""
    if not tf.distribute.has_strategy():
        return function(*args)
    devices = tf.distribute.get_strategy().extended.worker_devices
    with tf.device(devices[0]):
        return function(*args)


@functools.lru_cache(maxsize=64)
def _function(strategy: tf.distribute.Strategy, update: Callable[..., Any]) -> Any:
    """The function behind `run_update`: TensorFlow's cache knows no strategies."""
    del strategy
    return tf.function(update, autograph=False)


class ReplicatedState(pytree.PyTreeNode):
    """A `TrainState` on every replica of the strategy in scope.

    It may be carried by a `tf.while_loop` whose body takes the steps: the loop is then
    around the replicas, which meet in it as often as it turns.

    Attributes:
        values: the state, its leaves per-replica values; without strategy the state.
            The parameters of a small network lie in one vector.
        packing: how they do, or how else steps are taken; None for as they are.

    Example:
        >>> state = train_state.TrainState.create(
        ...     lambda params, x: params * x, tf.constant(1.0),
        ...     tfrl.agents.sgd(0.5))
        >>> def loss_fn(state, params, rows):
        ...     loss = tf.reduce_mean(state(rows, params=params))
        ...     return loss, {"loss": loss}
        >>> states, info = ReplicatedState.create(state).apply_loss_fn(
        ...     loss_fn, tf.constant([1.0, 3.0]))
        >>> float(states.state.params), float(info["loss"])
        (0.0, 2.0)
    """

    values: train_state.TrainState
    packing: _packed.Packing | _packed.Fused | None = pytree.nonpytree_field(
        default=None
    )

    @classmethod
    def create(cls, state: train_state.TrainState, fused: bool = False) -> Self:
        """Returns the state on every replica.

        Args:
            state: before its steps.
            fused: whether XLA compiles the optimizer of a large network where the rest
                is a plain graph, see `compiled_update`. Rounding differs then.
        """
        packing: Any = _packed.Packing.of(state)
        if packing is None and fused and n_replicas() == 1 and not _by_xla(state):
            packing = _packed.Fused.of(state)
        if packing is not None:
            state = packing.pack(state)
        if n_replicas() == 1:
            return cls(state, packing)
        # Through the replicas, as every step goes: where a worker has but one of them,
        # what comes back is no per-replica value, and a loop wants one kind.
        leaves = tf.distribute.get_strategy().run(
            tf.nest.flatten, (replicas.replicate(state),)
        )
        return cls(tf.nest.pack_sequence_as(state, leaves), packing)

    @property
    def state(self) -> train_state.TrainState:
        """The state, the same on all replicas."""
        return self._nests(replicas.unreplicate(self.values))

    def _nests(self, state: train_state.TrainState) -> train_state.TrainState:
        return state if self.packing is None else self.packing.unpack(state)

    def apply_loss_fn(self, loss_fn: LossFn, rows: Any) -> tuple[Self, Any]:
        """Takes one gradient step, of which every replica computes an equal part.

        The loss and the info of the global batch are the means of those of the parts.
        A sum over all rows is therefore the number of replicas times that of a part,
        and a weighted mean is `sum(weights * values) / (total / n_replicas())` with
        the `total` weight of the global batch.

        Args:
            loss_fn: from a state, the parameters to differentiate with respect to and a
                part of the rows to a scalar loss and an info, a nest of scalars, in
                which `rows` may be of the part.
            rows: nest of `[B, ...]`, the global batch, alike on every worker.

        Returns:
            The new state, and the info of the global batch.

        Raises:
            ValueError: if the replicas do not divide B.
        """

        def step(
            state: train_state.TrainState, part: Any, axis: str | None, loss_fn: LossFn
        ) -> Any:
            seen = self._nests(state)

            def loss(params: Any) -> Any:
                params = params if self.packing is None else self.packing.nest(params)
                return _numbers(loss_fn(seen, params, part))

            return state.apply_loss_fn(loss_fn=loss, pmap_axis=axis, has_aux=True)

        if n_replicas() == 1:
            state, info = step(self.values, rows, None, loss_fn)
            return self.replace(values=state), info

        def replica(state: train_state.TrainState, part: Any) -> tuple[list, Any, Any]:
            kept: list[Any] = []

            def without_rows(*args: Any) -> tuple[Any, Any]:
                loss, info = loss_fn(*args)
                if isinstance(info, Mapping) and "rows" in info:
                    info = dict(info)
                    kept.append(info.pop("rows"))
                return loss, info

            state, info = step(state, part, "replicas", without_rows)
            return tf.nest.flatten(state), info, kept

        strategy, shares = tf.distribute.get_strategy(), replicas.shard_batch(rows)
        leaves, info, kept = strategy.run(replica, (self.values, shares))
        values = tf.nest.pack_sequence_as(self.values, leaves)
        info = replicas.unreplicate(info)
        for part in kept:
            info = {**info, "rows": replicas.gathered(part)}
        return self.replace(values=values), info


def _numbers(found: Any) -> Any:
    """What a loss function returned, its numbers as tensors."""
    try:
        return tf.nest.map_structure(tf.convert_to_tensor, found)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`apply_loss_fn`: `loss_fn` expected to return a loss and an info, a nest "
            f"of scalars; got {found!r:.80}"
        ) from error


def take_steps(
    state: train_state.TrainState, loss_fn: LossFn, batches: Any
) -> tuple[train_state.TrainState, Any]:
    """Takes one gradient step on each of K minibatches, shared by the replicas.

    Args:
        state: before the first step.
        loss_fn: as in `ReplicatedState.apply_loss_fn`.
        batches: nest of `[K, B, ...]`, alike on every worker.

    Returns:
        The state after K steps, and the means of the infos over them; an info's `rows`,
        such as errors `[B]`, are kept for all steps, `[K, B]`.

    Raises:
        ValueError: if the replicas do not divide B, or K is 0.

    Example:
        >>> state = train_state.TrainState.create(
        ...     lambda params, x: params * x, tf.constant(1.0),
        ...     tfrl.agents.sgd(0.5))
        >>> def loss_fn(state, params, rows):
        ...     errors = state(rows, params=params)
        ...     loss = tf.reduce_mean(errors)
        ...     return loss, {"loss": loss, "rows": errors}
        >>> state, info = take_steps(state, loss_fn, tf.ones([4, 2]))
        >>> float(state.params), float(info["loss"])
        (-1.0, 0.25)
        >>> info["rows"].numpy()[:, 0].tolist()
        [1.0, 0.5, 0.0, -0.5]
    """
    batches = tf.nest.map_structure(tf.convert_to_tensor, batches)
    n_steps = tf.nest.flatten(batches)[0].shape[0]
    if n_steps == 0:
        raise ValueError(
            "`take_steps`: `batches` expected at least one minibatch, [K, B, ...]; got "
            "K = 0"
        )

    def step(index: Any, states: ReplicatedState) -> tuple[ReplicatedState, Any, Any]:
        minibatch = tf.nest.map_structure(lambda leaf: leaf[index], batches)
        states, info = states.apply_loss_fn(loss_fn, minibatch)
        rows: Any = ()
        if isinstance(info, Mapping) and "rows" in info:
            info = dict(info)
            rows = info.pop("rows")
        return states, info, rows

    states, sums, first = step(0, ReplicatedState.create(state))
    written = [
        tf.TensorArray(x.dtype, n_steps, element_shape=x.shape).write(0, x)
        for x in tf.nest.flatten(first)
    ]

    def body(index: tf.Tensor, states: Any, sums: Any, written: Any) -> tuple:
        states, info, rows = step(index, states)
        pairs = zip(written, tf.nest.flatten(rows), strict=True)
        written = [array.write(index, x) for array, x in pairs]
        return index + 1, states, tf.nest.map_structure(tf.add, sums, info), written

    if n_steps > 1:
        _, states, sums, written = tf.while_loop(
            lambda index, *_: index < n_steps,
            body,
            (tf.constant(1), states, sums, written),
        )
    info = tf.nest.map_structure(lambda x: x / tf.cast(n_steps, x.dtype), sums)
    if written:
        rows = tf.nest.pack_sequence_as(first, [array.stack() for array in written])
        info = {**info, "rows": rows}
    return states.state, info


class Work(NamedTuple):
    """What an update costs, from sizes alone: every worker finds the same.

    Attributes:
        state: `TrainState` of the network, or an agent of several.
        n_steps: gradient steps.
        n_rows: of each.
    """

    state: Any
    n_steps: int
    n_rows: int

    @property
    def is_brief(self) -> bool:
        """Whether the update is over in much less than a second, in one call."""
        return self.n_steps <= self.n_brief_steps

    @property
    def n_brief_steps(self) -> int:
        """The most steps that are; 0 where there are convolutions."""
        works = _works(self.state)
        return 0 if any(x.convolves for x in works) else self._most_steps(works)

    @property
    def n_piece_steps(self) -> int:
        """The most steps of a call of which several alike are the update.

        Such calls are brief if any are.
        """
        most = max(1, min(self.n_steps, self._most_steps(_works(self.state))))
        return next(n for n in range(most, 0, -1) if self.n_steps % n == 0)

    @property
    def n_forward_rows(self) -> int:
        """Rows of which the outputs are computed in much less than a second."""
        works = _works(self.state)
        if any(x.convolves for x in works):
            return _FORWARD_ROWS
        return max(_FORWARD_ROWS, int(_BRIEF_WORK / (2 * self._row_work(works) + 1)))

    def _most_steps(self, works: list[_LayerWork]) -> int:
        row_work = self._row_work(works)
        return int(_BRIEF_WORK / (6 * row_work * self.n_rows + _STEP_WORK))

    def _row_work(self, works: list[_LayerWork]) -> float:
        if works:
            return sum(x.of_a_row for x in works)
        params = getattr(self.state, "params", self.state)
        return float(sum(math.prod(x.shape) for x in tf.nest.flatten(params)))


def in_pieces(
    work: Work, advance: Callable[[Any, tf.Tensor], Any], progress: Any
) -> Any:
    """Takes the steps of an update in calls of a fraction of a second each.

    How many steps a call takes is measured. Replicas may have to meet in every step, so
    that all workers must cut alike: there it follows from the sizes.

    Args:
        work: what the update costs.
        advance: from `progress` and a number of steps to the progress after as many
            steps, counted from the first, or when it has come to its end before.
        progress: record with `step`, the number of steps taken, and `stop`, whether no
            more are to be taken.

    Returns:
        The last progress.
    """
    measured = n_replicas() == 1
    size = 1 if measured else max(1, work.n_brief_steps)
    done = int(progress.step)
    while done < work.n_steps and not bool(progress.stop):
        start = time.perf_counter()
        progress = advance(progress, tf.constant(min(done + size, work.n_steps)))
        before, done = done, int(progress.step)
        if measured:
            seconds = (time.perf_counter() - start) / max(1, done - before)
            size = max(1, min(4 * size, int(_PIECE_SECONDS / seconds)))
    return progress


def _by_xla(*args: Any) -> bool:
    """Whether XLA makes the fastest code of a function of agents or `TrainState`s.

    It does of dense layers, and of everything on GPUs and TPUs. Its convolutions on a
    CPU take five to ten times as long as those of a plain graph.
    """
    if tf.distribute.has_strategy():
        devices = tf.distribute.get_strategy().extended.worker_devices
        kinds = {tf.DeviceSpec.from_string(devices[0]).device_type}
    else:
        kinds = {device.device_type for device in tf.config.list_logical_devices()}
    return kinds != {"CPU"} or not any(x.convolves for x in _works(args))


def _works(nest: Any) -> list[_LayerWork]:
    """What the networks of a nest cost."""
    return [_work_of(layer) for layer in _layers(nest, within=False)]


def _work_of(layer: keras.layers.Layer) -> _LayerWork:
    known = _known_work.get(layer)
    if known is None:
        # Convolutions of every kind have one.
        inner = _layers(layer, within=True)
        convolutions = [x for x in inner if hasattr(x, "kernel_size")]
        more = [(_n_places(x) - 1) * x.count_params() for x in convolutions if x.built]
        known = _LayerWork(layer.count_params() + sum(more), bool(convolutions))
        _known_work[layer] = known
    return known


def _n_places(convolution: keras.layers.Layer) -> float:
    """How often its kernel is applied to a row; infinity if that is not known."""
    output = getattr(convolution, "output", None)
    if output is None:
        return math.inf
    is_last = getattr(convolution, "data_format", "channels_last") == "channels_last"
    places = output.shape[1:-1] if is_last else output.shape[2:]
    return math.inf if None in places else math.prod(places)


def _layers(nest: Any, within: bool) -> Iterator[keras.layers.Layer]:
    """The layers of the states of a nest, or a layer and all that it is made of."""
    rest, seen = [nest], set()
    while rest:
        item = rest.pop()
        if isinstance(item, tf.Tensor) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, keras.layers.Layer):
            yield item
            rest.extend(vars(item).values() if within else ())
        elif isinstance(item, Mapping):
            rest.extend(item.values())
        elif isinstance(item, list | tuple):
            rest.extend(item)
        elif hasattr(item, "__tf_flatten__"):
            rest.extend(vars(item).values())
