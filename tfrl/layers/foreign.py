"""Functions and TensorFlow modules as layers that `AsKeras` takes."""

import copy
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import keras
import tensorflow as tf

from tfrl.core import nest, random
from tfrl.layers import _configs, _foreign

_INIT_ARGUMENTS = ("rng", "inputs")
_APPLY_ARGUMENTS = ("params", "state", "rng", "inputs", "training")


@keras.saving.register_keras_serializable("tfrl")
class FunctionLayer:
    """A layer for `AsKeras`, made of two functions.

    Both are called by keywords, with those of the named arguments that they have:

    - `init(rng, inputs)` returns `params`, or `(params, state)` if `apply` has a
      parameter `state`.
    - `apply(params, state, rng, inputs, training)` returns the outputs, or
      `(outputs, new_state)` if it has a parameter `state`.

    `params` and `state` are nests of arrays, `rng` is an int32 `[2]` seed for the
    stateless ops of TensorFlow, `inputs` is a nest of tensors (for `init` of zeros) and
    `training` a bool. These are the names that `keras.layers.JaxLayer` knows as well.

    A model with it saves as `.keras` and clones if both functions stand at the top of a
    module, which must be imported where the model is loaded. Of others (lambdas,
    functions within functions) that is refused when it is tried.

    Args:
        init: makes the weights.
        apply: computes by TensorFlow ops.

    Raises:
        TypeError: if `inputs` is missing or another parameter has no default.

    Example:
        >>> layer = FunctionLayer(
        ...     lambda inputs: tf.ones([inputs.shape[-1], 2]),
        ...     lambda params, inputs: inputs @ params,
        ... )
        >>> tfrl.layers.AsKeras(layer)(tf.constant([[1.0, 2.0]])).numpy()
        array([[3., 3.]], dtype=float32)
    """

    def __init__(self, init: Callable[..., Any], apply: Callable[..., Any]) -> None:
        self._init, self._apply = init, apply
        self._init_names = _names("init", init, _INIT_ARGUMENTS)
        self._apply_names = _names("apply", apply, _APPLY_ARGUMENTS)

    def get_config(self) -> dict[str, Any]:
        """Returns the names of both functions.

        Raises:
            ValueError: if one has none.
        """
        given = {"init": self._init, "apply": self._apply}
        where = "FunctionLayer"
        return {name: _configs.described(where, x) for name, x in given.items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FunctionLayer":
        """Makes the layer that `get_config` described."""
        given = {k: _configs.made("FunctionLayer", x) for k, x in config.items()}
        return cls(**given)

    def init(self, signature: Any, rng: Any) -> tuple[Any, Any]:
        """Returns weights and state for inputs of a signature."""
        return self.start(random.new_seed(rng), _zeros(signature))

    def pure_fn(
        self, x: Any, weights: Any, state: Any, rng: Any, training: bool
    ) -> tuple[Any, Any]:
        """Returns outputs and new state."""
        return self.run(weights, state, random.new_seed(rng), x, training)

    def start(self, rng: Any, inputs: Any) -> tuple[Any, Any]:
        """Returns what `init` makes, with `()` for the state if it makes none."""
        given = {"rng": rng, "inputs": inputs}
        result = self._init(**{name: given[name] for name in self._init_names})
        return result if "state" in self._apply_names else (result, ())

    def run(
        self, params: Any, state: Any, rng: Any, inputs: Any, training: bool
    ) -> tuple[Any, Any]:
        """Returns what `apply` does, with the state as it was if it has none."""
        given = dict(
            zip(_APPLY_ARGUMENTS, (params, state, rng, inputs, training), strict=True)
        )
        result = self._apply(**{name: given[name] for name in self._apply_names})
        return result if "state" in self._apply_names else (result, state)


class ModuleLayer:
    """A layer for `AsKeras`, made of a `tf.Module` that is called with one argument.

    The variables that train are its weights, the others its state, with the values
    that they have. As modules may make theirs at the first call (Sonnet's do), it is
    called once on zeros, not training; this changes none that it had. Each call of the
    layer runs a copy of the module, with tensors in
    the place of the variables: the module itself does not change.

    Inside it a variable is whatever converts to a tensor, has the operators of one,
    `value`, `read_value`, `assign`, `assign_add` and `assign_sub`. A module that asks
    more of its variables, or keeps some where `tfrl.core.get_all_parameters` does not
    find them, is no such layer.

    Args:
        module: the module.
        training_argument: name of the argument of its `__call__` that is whether it
            trains, if there is one.

    Raises:
        TypeError: if `module` is no `tf.Module`, or cannot be called.

    Example:
        >>> class Scale(tf.Module):
        ...     def __init__(self):
        ...         self.scale = tf.Variable(2.0)
        ...     def __call__(self, x):
        ...         return self.scale * x
        >>> layer = tfrl.layers.AsKeras(ModuleLayer(Scale()))
        >>> layer(tf.constant([1.0, 2.0])).numpy(), len(layer.trainable_weights)
        (array([2., 4.], dtype=float32), 1)
    """

    def __init__(self, module: tf.Module, training_argument: str | None = None) -> None:
        if not isinstance(module, tf.Module) or not callable(module):
            raise TypeError(
                "`ModuleLayer`: `module` expected a tf.Module with `__call__`; "
                f"got {type(module).__name__}; use `FunctionLayer` for functions"
            )
        self._module = module
        self._training_argument = training_argument

    def init(self, signature: Any, rng: Any) -> tuple[Any, Any]:  # noqa: ARG002
        """Returns the values of the variables, made for inputs of a signature."""
        before = [
            (variable, tf.identity(variable)) for variable in self._module.variables
        ]
        self._module(
            _zeros(signature), **_foreign.flags(self._training_argument, False)
        )
        for variable, value in before:
            variable.assign(value)
        trained, other = self._variables()
        return tuple(map(tf.identity, trained)), tuple(map(tf.identity, other))

    def pure_fn(
        self,
        x: Any,
        weights: Any,
        state: Any,
        rng: Any,  # noqa: ARG002
        training: bool,
    ) -> tuple[Any, Any]:
        """Returns outputs and new state."""
        variables, values = self._variables(), (weights, state)
        held = [[_Held(value) for value in part] for part in values]
        pairs = zip(tf.nest.flatten(variables), tf.nest.flatten(held), strict=True)
        # The copy is made anew each time: functions that it has traced hold tensors.
        module = copy.deepcopy(
            self._module, {id(variable): stand_in for variable, stand_in in pairs}
        )
        outputs = module(x, **_foreign.flags(self._training_argument, training))
        if _variables_of(module):
            self._refuse("has made all its variables when it was called once", "makes")
        if any(h.tensor is not w for h, w in zip(held[0], weights, strict=True)):
            self._refuse("assigns only variables of trainable=False", "assigns other")
        return outputs, tuple(stand_in.tensor for stand_in in held[1])

    def _refuse(self, expected: str, got: str) -> NoReturn:
        raise ValueError(
            f"`ModuleLayer`: `module` expected one that {expected}; "
            f"got {type(self._module).__name__}, which {got} variables in a later "
            "call; change that, or pass `FunctionLayer` its functions"
        )

    def _variables(self) -> tuple[list[tf.Variable], list[tf.Variable]]:
        variables = _variables_of(self._module)
        return (
            [variable for variable in variables if variable.trainable],
            [variable for variable in variables if not variable.trainable],
        )


def _variables_of(module: tf.Module) -> list[tf.Variable]:
    # Sonnet's own `variables` raises where there are none.
    variables = [variable for _, variable in nest.get_all_parameters(module)]
    if any(isinstance(variable, keras.Variable) for variable in variables):
        raise ValueError(
            "`ModuleLayer`: `module` expected variables of TensorFlow; got "
            f"{type(module).__name__} with Keras layers inside; write a Keras layer"
        )
    return variables


def _zeros(signature: Any) -> Any:
    return tf.nest.map_structure(
        lambda leaf: tf.zeros(leaf.shape, leaf.dtype), signature
    )


class _Held:
    """Holds a tensor where a module expects a variable."""

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor

    def __tf_tensor__(
        self, dtype: tf.DType | None = None, name: str | None = None
    ) -> tf.Tensor:
        return tf.convert_to_tensor(self.tensor, dtype=dtype, name=name)

    def __getattr__(self, name: str) -> Any:
        if name == "tensor":  # Not yet there: a copy is being made.
            raise AttributeError(name)
        return getattr(self.tensor, name)

    def value(self) -> tf.Tensor:
        return self.tensor

    read_value = value

    def assign(self, value: Any, *_: Any, **__: Any) -> "_Held":
        new = tf.convert_to_tensor(value, dtype=self.tensor.dtype)
        self.tensor = tf.ensure_shape(new, self.tensor.shape)
        return self

    def assign_add(self, delta: Any, *_: Any, **__: Any) -> "_Held":
        return self.assign(self.tensor + delta)

    def assign_sub(self, delta: Any, *_: Any, **__: Any) -> "_Held":
        return self.assign(self.tensor - delta)


def _operator(name: str) -> Callable[..., Any]:
    def operate(self: _Held, *operands: Any) -> Any:
        return getattr(self.tensor, name)(*map(_plain, operands))

    return operate


# Python looks for operators in the class alone.
for _name in (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__pow__"),
    *("__rpow__", "__truediv__", "__rtruediv__", "__matmul__", "__rmatmul__"),
    *("__neg__", "__abs__", "__getitem__", "__lt__", "__le__", "__gt__", "__ge__"),
):
    setattr(_Held, _name, _operator(_name))


def _plain(operand: Any) -> Any:
    return operand.tensor if isinstance(operand, _Held) else operand


def _names(argument: str, function: Callable[..., Any], known: Any) -> list[str]:
    signature = inspect.signature(function)
    parameters = signature.parameters
    needed = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if "inputs" not in parameters or not set(needed) <= set(known):
        raise TypeError(
            f"`FunctionLayer`: `{argument}` expected a function of `inputs`, and "
            f"otherwise of parameters among {known}; got {signature}; "
            "wrap it in one that has these names"
        )
    return [name for name in known if name in parameters]
