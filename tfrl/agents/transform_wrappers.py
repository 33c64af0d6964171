"""Transforms of gradients around other transforms: of several steps, of some leaves."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfrl._internal import checks, operands
from tfrl.agents import gradient_transforms

_Transform = gradient_transforms.GradientTransform


def accumulated(transform: _Transform, n_steps: int) -> _Transform:
    """Applies a transform to the mean of the gradients of every `n_steps` updates.

        update = transform(mean of the last n_steps gradients)    every n_steps-th time
        update = 0                                                otherwise

    so that minibatches that do not fit into memory count as one. The transform counts
    its own updates, for instance for a schedule.

    Args:
        transform: what makes updates of the mean.
        n_steps: how many gradients are averaged, at least 1.

    Returns:
        The transform.

    Raises:
        TypeError: if `transform` is not one, or `n_steps` no whole number.
        ValueError: if `n_steps` is less than 1.

    Example:
        >>> transform = accumulated(tfrl.agents.sgd(1.0), 2)
        >>> grads = [tf.constant(3.0)]
        >>> updates, state = transform.update(grads, transform.init(grads))
        >>> float(updates[0])
        0.0
        >>> float(transform.update([tf.constant(5.0)], state)[0][0])
        -4.0
    """
    where = "accumulated"
    _check_transform(where, "transform", transform)
    count = checks.check_whole_number(where, "n_steps", n_steps, low=1)
    return _Transform((_Accumulated(transform, count),))


def masked(transform: _Transform, mask: Callable[[Any], Any]) -> _Transform:
    """Applies a transform to some parameters, and leaves the gradients of the others.

    Args:
        transform: for the parameters that `mask` names.
        mask: from the nest of parameters to a nest like it of bools: to which leaves
            the transform applies. It is called while tracing: it may look at names,
            shapes and dtypes, not at numbers.

    Returns:
        The transform, to be chained with others that treat all parameters.

    Raises:
        TypeError: if an argument is of another kind.

    Example:
        >>> params = {"kernel": tf.constant([3.0]), "bias": tf.constant([3.0])}
        >>> halved = masked(tfrl.agents.scale_by_schedule(lambda n: 0.5),
        ...                 lambda params: {name: name == "kernel" for name in params})
        >>> updates, _ = halved.update(params, halved.init(params), params)
        >>> float(updates["kernel"][0]), float(updates["bias"][0])
        (1.5, 3.0)
    """
    _check_transform("masked", "transform", transform)
    checks.check_type("masked", "mask", mask, Callable, "a function of the parameters")
    return _Transform(
        (_Partitioned("masked", mask, ((True, transform), (False, _Transform(())))),)
    )


def partitioned(
    transforms: Mapping[Any, _Transform | None], labels: Callable[[Any], Any]
) -> _Transform:
    """Applies a different transform to each group of parameters.

    Each sees only its own group: a `clip_by_global_norm` measures the gradients of one
    label.

    Args:
        transforms: by label; None for parameters that stay as they are.
        labels: from the nest of parameters to a nest like it of labels. It is called
            while tracing: it may look at names, shapes and dtypes, not at numbers.

    Returns:
        The transform.

    Raises:
        TypeError: if an argument is of another kind.
        ValueError: in `init` and `update`, if a label has no transform.

    Example:
        >>> params = {"actor": tf.constant([3.0]), "critic": tf.constant([3.0])}
        >>> apart = partitioned({"actor": tfrl.agents.sgd(0.1), "critic": None},
        ...                     lambda params: {name: name for name in params})
        >>> updates, _ = apart.update(params, apart.init(params), params)
        >>> round(float(updates["actor"][0]), 2), float(updates["critic"][0])
        (-0.3, 0.0)
    """
    where = "partitioned"
    checks.check_type(where, "transforms", transforms, Mapping, "transforms by label")
    checks.check_type(where, "labels", labels, Callable, "a function of the parameters")
    for transform in transforms.values():
        if transform is not None:
            _check_transform(where, "transforms", transform)
    return _Transform((_Partitioned(where, labels, tuple(transforms.items())),))


@dataclasses.dataclass(frozen=True)
class _Accumulated:
    """Means of gradients until there are enough of them."""

    transform: _Transform
    n_steps: int

    def init(self, params: Any) -> dict:
        """Returns the state: a sum, how many are in it, the state of the transform."""
        zeros = tf.nest.map_structure(tf.zeros_like, params)
        inner = (self.transform.init(params),)
        return {"count": tf.constant(0), "sum": zeros, "inner": inner}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        """Returns what the transform makes of the mean, or nothing yet."""
        total = tf.nest.map_structure(lambda x, y: x + y, state["sum"], grads)
        zeros = tf.nest.map_structure(tf.zeros_like, total)
        (inner,), count = state["inner"], state["count"] + 1

        def stepped() -> tuple[Any, Any, Any]:
            mean = tf.nest.map_structure(lambda x: x / self.n_steps, total)
            updates, following = self.transform.update(mean, inner, params)
            return updates, following, zeros

        if params is None:
            stepped()  # what needs them says so now, not in the n-th update
        done = count >= self.n_steps
        updates, inner, total = tf.cond(done, stepped, lambda: (zeros, inner, total))
        count = tf.where(done, 0, count)
        return updates, {"count": count, "sum": total, "inner": (inner,)}


@dataclasses.dataclass(frozen=True)
class _Partitioned:
    """A transform for the leaves of each label; None holds them."""

    where: str
    labels: Callable[[Any], Any]
    transforms: tuple[tuple[Any, _Transform | None], ...]

    def init(self, params: Any) -> dict:
        """Returns the states of all transforms."""
        places = self._places(params)
        leaves = tf.nest.flatten(params)
        inner = tuple(
            () if transform is None else transform.init([leaves[i] for i in places[k]])
            for k, (_, transform) in enumerate(self.transforms)
        )
        return {"inner": inner}

    def update(self, grads: Any, state: dict, params: Any) -> tuple[Any, dict]:
        """Returns what each transform makes of the leaves of its own."""
        places = self._places(grads if params is None else params)
        leaves = tf.nest.flatten(grads)
        known = None if params is None else tf.nest.flatten(params)
        updates, inner = [tf.zeros_like(leaf) for leaf in leaves], []
        for k, (_, transform) in enumerate(self.transforms):
            found: Any = []
            after = state["inner"][k]
            if transform is not None:
                own = None if known is None else [known[i] for i in places[k]]
                mine = [leaves[i] for i in places[k]]
                found, after = transform.update(mine, after, own)
            inner.append(after)
            for place, update in zip(places[k], found, strict=transform is not None):
                updates[place] = update
        return tf.nest.pack_sequence_as(grads, updates), {"inner": tuple(inner)}

    def _places(self, params: Any) -> list[list[int]]:
        """Which leaves, in the order of the nest, each transform treats."""
        found, name = (
            self.labels(params),
            "mask" if self.where == "masked" else "labels",
        )
        expected = (
            f"`{self.where}`: `{name}` expected to return a nest like the parameters"
        )
        operands.check_nest(expected, found, params)
        known = [label for label, _ in self.transforms]
        places: list[list[int]] = [[] for _ in known]
        for place, label in enumerate(tf.nest.flatten(found)):
            if label not in known:
                raise ValueError(
                    f"`{self.where}`: `{name}` expected to return one of {known} for "
                    f"each parameter; got {label!r}"
                )
            places[known.index(label)].append(place)
        return places


def _check_transform(where: str, name: str, value: Any) -> None:
    checks.check_type(where, name, value, _Transform, "a `GradientTransform`")
