"""The constructor and the constants of a distribution, apart from its tensors.

TFP's distributions and bijectors know the arguments they were constructed with
(`.parameters`) and what each of them means (`.parameter_properties()`). `taken_apart`
splits these into tensors and a `Recipe` with all the rest; calling the recipe puts both
together again. Nothing here knows any single class of distributions.
"""

import collections
import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

# What knows its own `parameters`.
_COMPONENTS = (
    tfp.distributions.Distribution,
    tfp.bijectors.Bijector,
    tf.linalg.LinearOperator,
)
_TENSORS = (tf.Tensor, tf.Variable, keras.Variable, tfp.util.DeferredTensor)
_NOTHING: Any = ()  # the parameters of what has none: an empty nest


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """Stands where a tensor goes."""


@dataclasses.dataclass(frozen=True)
class _Composite:
    """Stands where another composite tensor goes, like a kernel of TFP."""

    spec: Any


@dataclasses.dataclass(frozen=True, eq=False)
class _Nest:
    """Stands where a list, tuple or mapping with tensors in it goes."""

    parts: dict[Any, Any]
    like: Any  # the class of the list, tuple or mapping


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where an argument stands among batch axes.

    Attributes:
        is_known: whether TFP says what an array here means.
        ndims: how many of its last axes one distribution takes; of a bijector, the
            rank of what it maps; None of what cannot have batch axes.
        root: the distribution whose batch axes tensors shall have, None if they stay
            as they are.
        inner_ndims: number of batch axes behind those of `root`.
    """

    is_known: bool = False
    ndims: Any = None
    root: Any = None
    inner_ndims: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """A distribution, bijector or linear operator without its tensors.

    Equal where class and constants are; the name does not matter.

    Attributes:
        kind: its class.
        arguments: by name: constants, nested recipes and marks where tensors go.
        sole: name of the component whose parameters are all there are, or None.
    """

    kind: type
    arguments: dict[str, Any]
    sole: str | None

    def __call__(self, parameters: Any) -> Any:
        """Constructs it from a nest of tensors like the one it came with."""
        if self.sole is not None:
            parameters = {self.sole: parameters}
        return self.kind(**_made_each(self.arguments, parameters))

    def __eq__(self, other: object) -> bool:
        return type(other) is Recipe and _key(self) == _key(other)

    def __hash__(self) -> int:
        return hash(_key(self))

    def __repr__(self) -> str:
        given = (f"{k}={v!r}" for k, v in self.arguments.items() if v is not None)
        return f"{self.kind.__name__}({', '.join(given)})"


def taken_apart(distribution: tfp.distributions.Distribution) -> tuple[Recipe, Any]:
    """Splits a distribution into its recipe and its parameters.

    Args:
        distribution: of TFP.

    Returns:
        `(recipe, parameters)`. The parameters are a dict of the arguments given as
        tensors, with those of component distributions nested in it; where all tensors
        are a single component's, they are that component's parameters. Tensors have
        the batch axes of `distribution` wherever TFP tells how.
    """
    recipe, parameters = _component_apart(distribution, _Place())
    return recipe, {} if parameters is _NOTHING else parameters


def _apart(value: Any, place: _Place) -> tuple[Any, Any]:
    """What remains of a value without its tensors, and these or `_NOTHING`."""
    if isinstance(value, _COMPONENTS):
        return _component_apart(value, place)
    if isinstance(value, list | tuple | Mapping):
        return _nest_apart(value, place)
    if isinstance(value, _TENSORS):
        tensor = tf.convert_to_tensor(value)
        if place.is_known and place.ndims is None:
            known = tf.get_static_value(tensor)
            if known is not None:
                return known, _NOTHING
        return _Tensor(), _with_batch(tensor, place)
    flat = tf.nest.flatten(value, expand_composites=True)
    if len(flat) != 1 or flat[0] is not value:
        return _Composite(tf.type_spec_from_value(value)), flat or _NOTHING
    return value, _NOTHING


def _component_apart(component: Any, place: _Place) -> tuple[Recipe, Any]:
    is_distribution = isinstance(component, tfp.distributions.Distribution)
    own = _own_place(component, place) if is_distribution else place
    dtype = component.dtype
    hint = dtype if getattr(dtype, "is_floating", False) else tf.float32
    try:
        properties = type(component).parameter_properties(dtype=hint)
    except (AttributeError, NotImplementedError):
        properties = {}
    arguments, parameters = {}, {}
    for name, value in component.parameters.items():
        inside = _inside(component, properties.get(name), own, place.ndims)
        if is_distribution and _ndims(inside) is not None and _is_array(value):
            value = tf.convert_to_tensor(value, dtype_hint=hint)
        arguments[name], tensors = _apart(value, inside)
        if tensors is not _NOTHING:
            parameters[name] = tensors
    names = list(parameters)
    if len(names) == 1 and isinstance(arguments[names[0]], Recipe):
        return Recipe(type(component), arguments, names[0]), parameters[names[0]]
    return Recipe(type(component), arguments, None), parameters or _NOTHING


def _nest_apart(nest: Any, place: _Place) -> tuple[Any, Any]:
    parts = _by_key(nest)
    nested = isinstance(place.ndims, list | tuple | Mapping)
    ndims = _by_key(place.ndims) if nested else {}
    templates: dict[Any, Any] = {}
    found: dict[Any, Any] = {}
    for key, part in parts.items():
        inside = dataclasses.replace(place, ndims=ndims.get(key, place.ndims))
        templates[key], tensors = _apart(part, inside)
        if tensors is not _NOTHING:
            found[key] = tensors
    if all(templates[key] is parts[key] for key in parts):
        return nest, _NOTHING
    template = _Nest(templates, _plain_type(nest))
    if isinstance(nest, Mapping) or not found:
        return template, found or _NOTHING
    return template, [found.get(key, _NOTHING) for key in parts]


def _made(template: Any, parameters: Any) -> Any:
    if isinstance(template, Recipe):
        return template(parameters)
    if isinstance(template, _Tensor):
        return parameters
    if isinstance(template, _Composite):
        return tf.nest.pack_sequence_as(
            template.spec, parameters, expand_composites=True
        )
    if isinstance(template, _Nest):
        parts = _made_each(template.parts, _by_key(parameters))
        if issubclass(template.like, Mapping):
            return template.like(parts)
        make = getattr(template.like, "_make", template.like)
        return make(list(parts.values()))
    return template


def _made_each(templates: Mapping[Any, Any], parameters: Any) -> dict[Any, Any]:
    return {
        key: _made(template, parameters[key] if key in parameters else _NOTHING)
        for key, template in templates.items()
    }


def _plain_type(nest: Any) -> Any:
    """The class of a container without TensorFlow's wrapper for tracking."""
    plain = (list, collections.OrderedDict, dict)
    return next((kind for kind in plain if isinstance(nest, kind)), type(nest))


def _by_key(nest: Any) -> dict[Any, Any]:
    return dict(nest) if isinstance(nest, Mapping) else dict(enumerate(nest))


def _own_place(distribution: Any, place: _Place) -> _Place:
    """Where the batch axes of a distribution's arguments begin."""
    ndims = _ndims(place)
    if place.root is not None and ndims is not None:
        return dataclasses.replace(place, inner_ndims=place.inner_ndims + ndims)
    is_joint = tf.nest.is_nested(distribution.batch_shape)
    return _Place(root=None if is_joint else distribution)


def _inside(component: Any, properties: Any, own: _Place, x_event_ndims: Any) -> _Place:
    """The place of the component's argument with these properties."""
    if properties is None:
        return _Place()
    try:
        if isinstance(component, tfp.bijectors.Bijector):
            ndims = properties.bijector_instance_event_ndims(
                component, x_event_ndims, require_static=True
            )
        else:
            ndims = properties.instance_event_ndims(component, require_static=True)
    except (NotImplementedError, TypeError, ValueError):
        return _Place()  # TFP cannot tell for this combination
    if ndims == properties.NO_EVENT_NDIMS:
        ndims = None
    return _Place(True, ndims, own.root, own.inner_ndims)


def _ndims(place: _Place) -> int | None:
    is_int = isinstance(place.ndims, int | np.integer)
    return int(place.ndims) if is_int else None


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    if not isinstance(value, list | tuple):
        return False
    return all(
        isinstance(leaf, int | float | np.number) for leaf in tf.nest.flatten(value)
    )


def _with_batch(tensor: tf.Tensor, place: _Place) -> tf.Tensor:
    """Gives a tensor the batch axes of the root."""
    ndims = _ndims(place)
    if place.root is None or ndims is None or tensor.shape.rank is None:
        return tensor
    batch = place.root.batch_shape
    inner_ndims = place.inner_ndims + ndims
    n_outer = tensor.shape.rank - inner_ndims
    is_known = batch.is_fully_defined() and tensor.shape.is_fully_defined()
    if batch.rank is None or (
        is_known and n_outer >= 0 and tensor.shape[:n_outer] == batch
    ):
        return tensor
    ones = [1] * max(0, -n_outer)
    n_outer = max(0, n_outer)
    if is_known:
        tensor = tf.reshape(tensor, [*ones, *tensor.shape])
        return tf.broadcast_to(tensor, [*batch, *tensor.shape[n_outer:]])
    inner = [1] * len(ones) + tensor.shape[n_outer:]
    shape = tf.concat([ones, tf.shape(tensor)], axis=0)
    tensor = tf.reshape(tensor, shape)
    outer = place.root.batch_shape_tensor()
    wide = tf.broadcast_to(tensor, tf.concat([outer, shape[n_outer:]], axis=0))
    return tf.ensure_shape(wide, batch.concatenate(inner))


def _key(value: Any) -> Any:
    """Something hashable that tells constants apart."""
    if isinstance(value, Recipe):
        arguments = {k: v for k, v in value.arguments.items() if k != "name"}
        return value.kind, value.sole, _key(arguments)
    if isinstance(value, _Nest):
        return value.like, _key(value.parts)
    if isinstance(value, Mapping):
        return frozenset((key, _key(part)) for key, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return value if isinstance(value, Hashable) else id(value)
