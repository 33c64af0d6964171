"""A model, its parameters, its optimizer and its step, in one immutable record."""

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from tfrl._internal import autograph, checks, operands
from tfrl.agents import (
    _gradient_parts,
    _layer_copies,
    _stateless,
    gradient_transforms,
    keras_optimizers,
)
from tfrl.core import pytree
from tfrl.distribute import replicas
from tfrl.policies import feedforward

# Networks that traces know, by architecture and strategy.
_networks: weakref.WeakValueDictionary[Any, keras.layers.Layer] = (
    weakref.WeakValueDictionary()
)


class TrainState(pytree.PyTreeNode):
    """A model with parameters apart from it, an optimizer and a step counter.

    Nothing changes in place: an update returns a new state, and the old one, like the
    variables of the model, stays as it was. A state can pass into and out of
    `tf.function`, also with `jit_compile=True`, and through `tf.while_loop`; repeated
    calls with states of one origin share a trace.

    The model is a built Keras layer, or a function `model_def(params, *args)`. For a
    layer, `params` and `extra_variables` are dictionaries from the path of a variable
    to its value (a second variable with the same path gets `path:1`), the latter for
    what is not trained: statistics, seeds. An attribute that the state lacks is looked
    up in the model: `state.encode(x)` is `state(x, method="encode")`.

    Attributes:
        step: scalar int32, 1 before the first update.
        apply_fn: `apply_fn(params, extra_variables, *args, method=None, **kwargs)`
            returns outputs and the extra variables after the call.
        model_def: the layer or function.
        params: nest of tensors, what is trained.
        extra_variables: the other variables of the model.
        tx: the `GradientTransform`, or None.
        opt_state: state of `tx`, `()` without one.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> state = TrainState.create(model, tx=gradient_transforms.adam(1e-2))
        >>> x = tf.constant([[1.0], [2.0]])
        >>> def loss_fn(params):
        ...     loss = tf.reduce_mean((state(x, params=params) - 2.0 * x) ** 2)
        ...     return loss, {"loss": loss}
        >>> new_state, info = state.apply_loss_fn(loss_fn=loss_fn, has_aux=True)
        >>> int(state.step), int(new_state.step)
        (1, 2)
    """

    step: tf.Tensor
    apply_fn: Callable[..., tuple[Any, Any]] = pytree.nonpytree_field()
    model_def: Any = pytree.nonpytree_field()
    params: Any
    extra_variables: Any
    tx: gradient_transforms.GradientTransform | None = pytree.nonpytree_field()
    opt_state: Any

    @classmethod
    def create(
        cls,
        model_def: Callable[..., Any],
        params: Any = None,
        tx: gradient_transforms.GradientTransform
        | keras.optimizers.Optimizer
        | None = None,
        extra_variables: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Returns the state before the first update.

        Args:
            model_def: a built Keras layer or model, or a function of parameters and
                further arguments.
            params: what is trained; for a layer, its present values by default.
            tx: the optimizer; a Keras one is translated. Without one the state only
                computes.
            extra_variables: for a layer, what is not trained; its present values by
                default.
            **kwargs: values of other fields.

        Returns:
            The state, with `step` 1 unless given.

        Raises:
            ValueError: if the layer is not built, or quantized and to be trained; if
                names or shapes of `params` or `extra_variables` are not the layer's; if
                a function comes without `params` or with `extra_variables`; if `tx` has
                nothing to train, or cannot do what a variable or a Keras optimizer asks
                for, such as a constraint or a regularizer.
            TypeError: if `model_def` or `tx` is something else.
        """
        if isinstance(model_def, keras.layers.Layer):
            names = _stateless.variable_names(model_def)
            apply_fn: Any = _stateless.LayerApply(model_def, names)
            params, extra_variables = _stateless.layer_values(
                model_def, params, extra_variables
            )
        elif callable(model_def):
            apply_fn = _stateless.FunctionApply(model_def)
            if params is None or extra_variables is not None:
                raise ValueError(
                    "`TrainState.create`: `params` expected, and no `extra_variables`, "
                    f"with a function as `model_def`; got {params!r:.80} and "
                    f"{extra_variables!r:.80}; pass all variables as `params`"
                )
            params = tf.nest.map_structure(tf.convert_to_tensor, params)
            extra_variables = {}
        else:
            expected = "a Keras layer or a function"
            raise checks.wrong_type(
                "TrainState.create", "model_def", model_def, expected
            )
        tx = _transform(tx, model_def)
        fields = {
            "step": tf.constant(1),
            "apply_fn": apply_fn,
            "model_def": model_def,
            "params": params,
            "extra_variables": extra_variables,
            "tx": tx,
            "opt_state": () if tx is None else tx.init(params),
        }
        return cls(**{**fields, **kwargs})

    def __call__(
        self,
        *args: Any,
        params: Any = None,
        extra_variables: Any = None,
        method: str | Callable[..., Any] | None = None,
        training: bool | None = None,
        mutable: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Runs the model with the state's variables, or others.

        Args:
            *args: of the model.
            params: instead of the state's.
            extra_variables: instead of the state's.
            method: name of a method of the layer to run in place of the layer itself;
                or a function, which gets the layer first; or a bound method or
                sublayer.
            training: handed on to the layer or method unless None.
            mutable: also returns the extra variables after the call. With False, a
                call that changes one is an error.
            **kwargs: of the model.

        Returns:
            The outputs; with `mutable` a pair `(outputs, extra_variables)`.

        Raises:
            ValueError: if the call changes extra variables and `mutable` is False;
                if names or shapes of the variables are not the layer's; if a function
                gets a `method` name.
        """
        if training is not None:
            kwargs["training"] = training
        given = self.extra_variables if extra_variables is None else extra_variables
        outputs, updated = self.apply_fn(
            self.params if params is None else params,
            given,
            *args,
            method=method,
            **kwargs,
        )
        if mutable:
            return outputs, updated
        changed = [key for key in updated if updated[key] is not given[key]]
        if changed:
            raise ValueError(
                "`TrainState.__call__`: `mutable` expected True, as the call changes "
                f"variables; got False, and new {changed}; take the pair `outputs, "
                "extra_variables`, or call with `training=False`"
            )
        return outputs

    def to_keras(self, name: str | None = None) -> keras.Model:
        """Returns a Keras model with the state's variables, apart from the state.

        The model is made anew from the configuration of `model_def`, so that nothing
        done to one changes the other: train it, save it, export it. Its outputs are
        compared with the state's on small random batches of the shape that the layer
        was built for.

        Args:
            name: of the model, for instance where several go into one; that of
                `model_def` if None.

        Returns:
            A model of the class of `model_def`; a functional one around a layer that
            is no model.

        Raises:
            TypeError: if `model_def` is a function, or `name` no text.
            ValueError: if the layer's configuration does not describe all of it, or
                that cannot be tried; in a graph, where no variables can be made.

        Example:
            >>> layer = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            >>> state = TrainState.create(layer)
            >>> double = tf.nest.map_structure(lambda x: 2.0 * x, state.params)
            >>> model = state.replace(params=double).to_keras()
            >>> np.allclose(model(np.ones((1, 2))), 2.0 * layer(np.ones((1, 2))))
            True
        """
        return _layer_copies.model_of(
            self.model_def, self.params, self.extra_variables, name
        )

    def lent(self) -> Self:
        """Returns the state on the network that compiled functions know it by.

        A trace is known by the network that it calls, not by the values of the weights.
        States of one architecture lend a compiled function the same network, which
        nobody else can reach, and take their own again afterwards; see `returned`.
        Networks that are not of tfrl alone, and those in a graph, are used as they are.
        """
        network = self.model_def
        architecture = feedforward.architecture_of(network)
        if architecture is None or not tf.executing_eagerly():
            return self
        # A strategy makes variables of its own.
        apply_fn: Any = self.apply_fn
        key = architecture, tf.distribute.get_strategy()
        shared = _networks.get(key)
        if shared is None:
            shared = _networks[key] = _stateless.rebuilt(network)
        apply_fn = _stateless.LayerApply(shared, apply_fn.names)
        return self.replace(model_def=shared, apply_fn=apply_fn)

    def returned(self, owner: Self) -> Self:
        """Returns a state that was `lent` a network on that of `owner`."""
        return self.replace(model_def=owner.model_def, apply_fn=owner.apply_fn)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Private names must fail at once: copy and pickle ask for them before there
        # are fields. Keras' own methods would act on the model, not on the state.
        model_def = self.__dict__.get("model_def")
        if (
            name.startswith("_")
            or hasattr(keras.Model, name)
            or not callable(getattr(model_def, name, None))
        ):
            raise AttributeError(
                f"{type(self).__name__!r} has no attribute {name!r}, nor has its model "
                "a method of its own so named"
            )
        return functools.partial(self, method=name)

    def apply_gradients(self, *, grads: Any, **kwargs: Any) -> Self:
        """Returns the state after one more update.

            updates, opt_state = tx.update(grads, opt_state, params)
            params = params + updates,    step = step + 1

        Args:
            grads: nest like `params`; None counts as zeros.
            **kwargs: new values of other fields.

        Returns:
            The new state.

        Raises:
            ValueError: if the state has no `tx`, or `grads` differs from `params`.
        """
        if self.tx is None:
            raise ValueError(
                "`TrainState.apply_gradients`: `tx` expected a gradient transform; got "
                "None; pass `tx=` to `TrainState.create`"
            )
        params, opt_state = self.tx.stepped(grads, self.opt_state, self.params)
        return self.replace(
            step=self.step + 1, params=params, opt_state=opt_state, **kwargs
        )

    def apply_loss_fn(
        self,
        *,
        loss_fn: Callable[[Any], Any],
        pmap_axis: str | None = None,
        has_aux: bool = False,
    ) -> Any:
        """Differentiates `loss_fn` at `params` and applies the gradient.

        A model in training may change its extra variables. For them to be kept,
        `loss_fn` returns them under the key `extra_variables` of its info, which is
        taken out of it:

            def loss_fn(params):
                y, extra = state(x, params=params, training=True, mutable=True)
                loss = ...
                return loss, {"loss": loss, "extra_variables": extra}

        Args:
            loss_fn: from `params` to a scalar, or with `has_aux` to a pair of it and
                an info, a nest of tensors.
            pmap_axis: any name, inside `strategy.run`: gradients, info and floating
                extra variables are averaged over the replicas before the update.
                Every replica must then get the same state. A `tf.while_loop` belongs
                around `strategy.run`: within it mirrored replicas cannot meet.
            has_aux: whether `loss_fn` returns an info.

        Returns:
            The new state; with `has_aux` a pair `(state, info)`.

        Raises:
            ValueError: if `loss_fn` returns something else; if `pmap_axis` is given
                where there is no replica; if the state has no `tx`.
        """
        loss_fn = autograph.as_the_caller(loss_fn)
        # Copies, so that a call with the state's own parameters is a constant.
        params = tf.nest.map_structure(tf.identity, self.params)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(params)
            with feedforward.differentiated():
                loss, info = _loss_and_info(loss_fn(params), has_aux)
        grads = tape.gradient(loss, params)
        if all(grad is None for grad in tf.nest.flatten(grads)):
            raise ValueError(
                "`TrainState.apply_loss_fn`: `loss_fn` expected to depend on its "
                "argument; got a loss without gradient; call the model with "
                "`params=params`"
            )
        grads = _gradient_parts.dense_gradients(grads, self.params)
        extra = self.extra_variables
        if isinstance(info, Mapping) and "extra_variables" in info:
            info = dict(info)
            extra = info.pop("extra_variables")
            operands.check_nest(
                "`TrainState.apply_loss_fn`: info's `extra_variables` expected the "
                "nest that `state(..., mutable=True)` returns",
                extra,
                self.extra_variables,
            )
        if pmap_axis is not None:
            grads, info, extra = _replica_means(grads, info, extra)
        state = self.apply_gradients(grads=grads, extra_variables=extra)
        return (state, info) if has_aux else state


def target_update(model: TrainState, target: TrainState, tau: Any) -> TrainState:
    """Moves the parameters of `target` towards those of `model`.

        target.params = tau * model.params + (1 - tau) * target.params

    Args:
        model: the state that learns.
        target: the state that follows; only its `params` change.
        tau: share of `model`, in [0, 1]; number or scalar tensor.

    Returns:
        The new target.

    Raises:
        ValueError: if `tau` is out of its range or the parameters differ in structure.
        TypeError: if an argument is not a state.

    Example:
        >>> model = TrainState.create(tf.multiply, params=tf.constant(4.0))
        >>> target = model.replace(params=tf.constant(0.0))
        >>> float(target_update(model, target, tau=0.25).params)
        1.0
    """
    for name, state in (("model", model), ("target", target)):
        checks.check_type("target_update", name, state, TrainState, "a TrainState")
    if not tf.is_tensor(tau) and not 0.0 <= tau <= 1.0:
        raise ValueError(
            f"`target_update`: `tau` expected a number in [0, 1]; got {tau!r}; "
            "1 copies the parameters"
        )
    operands.check_nest(
        "`target_update`: `target` expected the parameter names of `model`, as of "
        "states of one layer",
        target.params,
        model.params,
    )

    def mixed(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
        share = tf.cast(tau, old.dtype) if tf.is_tensor(tau) else tau
        return new * share + old * (1.0 - share)

    return target.replace(
        params=tf.nest.map_structure(mixed, model.params, target.params)
    )


def with_rate(state: TrainState, rate: Any) -> TrainState:
    """Returns a state with another learning rate for the gradient steps to come."""
    if state.tx is None:
        raise ValueError(
            "`update`: `tx` expected an optimizer in the state of the policy; got "
            "None; pass `tx=` to `TrainState.create`"
        )
    return state.replace(
        opt_state=gradient_transforms.with_learning_rate(state.opt_state, rate)
    )


def sync_shared_params(
    *params: Mapping[str, Any], weights: Sequence[float] | None = None
) -> tuple[dict[str, Any], ...]:
    """Averages the parameters that several models have in common.

        shared = sum(weights[i] * params[i]) / sum(weights[i])

    over the dictionaries i that hold the name; a name that only one holds stays.

    Args:
        *params: dictionaries, nested or not, from names to tensors; a name that
            occurs in two at the same place is shared.
        weights: one positive number for each of `params`; equal by default.

    Returns:
        As many dictionaries as `params`, with the averages in the shared places.

    Raises:
        ValueError: if `weights` are not positive or not as many as `params`, or the
            shapes or dtypes of a shared parameter differ.

    Example:
        >>> actor, critic = sync_shared_params(
        ...     {"body": tf.constant(1.0), "pi": tf.constant(7.0)},
        ...     {"body": tf.constant(5.0)}, weights=[3.0, 1.0])
        >>> float(actor["body"]), float(actor["pi"]), float(critic["body"])
        (2.0, 7.0, 2.0)
    """
    if weights is None:
        weights = [1.0] * len(params)
    if len(weights) != len(params) or not all(weight > 0.0 for weight in weights):
        raise ValueError(
            f"`sync_shared_params`: `weights` expected {len(params)} positive numbers, "
            f"one for each of `params`; got {weights!r}; leave it out for equal ones"
        )
    return tuple(_synced(list(params), list(weights)))


def _transform(tx: Any, model_def: Any) -> gradient_transforms.GradientTransform | None:
    if tx is None:
        return None
    if isinstance(model_def, keras.layers.Layer):
        _stateless.check_trainable(model_def)
    if isinstance(tx, keras.optimizers.Optimizer):
        return keras_optimizers.from_keras(tx)
    kind = gradient_transforms.GradientTransform
    expected = "a `GradientTransform` or a Keras optimizer"
    checks.check_type("TrainState.create", "tx", tx, kind, expected)
    return tx


def _synced(trees: list[Any], weights: list[float]) -> list[Any]:
    if len(trees) == 1:
        return trees
    if all(isinstance(tree, Mapping) for tree in trees):
        synced: list[dict[str, Any]] = [{} for _ in trees]
        for name in dict.fromkeys(name for tree in trees for name in tree):
            holders = [i for i, tree in enumerate(trees) if name in tree]
            branches = [trees[i][name] for i in holders]
            branches = _synced(branches, [weights[i] for i in holders])
            for i, branch in zip(holders, branches, strict=True):
                synced[i][name] = branch
        return synced
    kinds = [(getattr(x, "shape", None), getattr(x, "dtype", None)) for x in trees]
    if kinds.count(kinds[0]) != len(kinds) or None in kinds[0]:
        raise ValueError(
            "`sync_shared_params`: `params` expected tensors of one shape and dtype "
            f"under one name; got {kinds}; rename what is not shared"
        )
    shares = [x * (w / sum(weights)) for x, w in zip(trees, weights, strict=True)]
    return [tf.add_n(shares)] * len(trees)


def _loss_and_info(result: Any, has_aux: bool) -> tuple[tf.Tensor, Any]:
    """The scalar loss and the info, `()` without `has_aux`, of a loss function."""
    where = "`TrainState.apply_loss_fn`: `loss_fn` expected to return"
    info: Any = ()
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise ValueError(
                f"{where} a pair of loss and info, as `has_aux=True` says; got "
                f"{result!r:.80}; return `loss, info`"
            )
        result, info = result
    remedy = "take the mean, or pass `has_aux=True` for a pair"
    try:
        loss = tf.convert_to_tensor(result)
    except (TypeError, ValueError) as error:
        got = f"{result!r:.80}"
        raise ValueError(f"{where} a scalar loss; got {got}; {remedy}") from error
    if loss.shape.rank != 0:
        raise ValueError(f"{where} a scalar loss; got shape {loss.shape}; {remedy}")
    return loss, info


def _replica_means(grads: Any, info: Any, extra: Any) -> tuple[Any, Any, Any]:
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            "`TrainState.apply_loss_fn`: `pmap_axis` expected None outside "
            "`strategy.run`; got a name; call from the function that replicas run"
        )
    if context.num_replicas_in_sync == 1:
        return grads, info, extra

    # Seeds and counters move alike everywhere, and have no mean.
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(extra)]
    places = [i for i, leaf in enumerate(leaves) if leaf.dtype.is_floating]
    grads, info, means = replicas.mean((grads, info, [leaves[i] for i in places]))
    for place, mean in zip(places, means, strict=True):
        leaves[place] = mean
    return grads, info, tf.nest.pack_sequence_as(extra, leaves)
