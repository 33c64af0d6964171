"""The paths by which checkpoints know arrays: attributes, keys, indices, layer names.

Keras names a layer itself if the user did not, and does not say which. Here a name
counts as given by the user only if Keras cannot have made it in this process: it is not
the class's name with a number, or not one of the numbers that Keras has counted so far.
All other layers are known by their place alone.

In checkpoints of format 1 every word that might be a name that Keras gave was counted
anew, also one that the user gave. So those names do not always tell which of several
layers was meant: `renumbered`, `of_parts`, `matched_of_old`.
"""

import collections
import dataclasses
import functools
import itertools
import re
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras

# Says of an object that checkpoints are not to look into it.
SWITCH = "_checkpoint_enabled"
_COUNT = re.compile(r"_[0-9]+(?=\.|$)")
_SPECIAL = re.compile(
    r"(?:^|[._])(optimizer|opt_state|replay_buffer|data_transformer)s?_*(?:\.|$)"
)
_UNNAMED = re.compile(r"variable(_[0-9]+)?")
_OWN = "tfrl_checkpoint"
_SHOWN = 5
_KERAS = (keras.layers.Layer, keras.metrics.Metric, keras.random.SeedGenerator)
# Which numbers Keras gave to names, the first that is not known, and what was told.
_made: dict[str, set[int]] = collections.defaultdict(set)
_next: collections.Counter = collections.Counter()
_told: weakref.WeakKeyDictionary[Any, tuple[str, bool]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a path, from an object to a part of it.

    Attributes:
        token: attribute, key or index; for a layer in a list or model, the name that
            the user gave to it, if any.
        layer: name of the layer to which it leads; None for other objects.
        given: whether the user gave that name.
        index: of a layer in a list or model, where names tell layers; else None.
    """

    token: str
    layer: str | None = None
    given: bool = False
    index: int | None = None

    def is_same(self, other: "Step") -> bool:
        """Whether two processes mean the same part.

        Example:
            >>> Step("a", "left", True).is_same(Step("a", "right", True))
            False
        """
        if self.given and other.given and self.layer != other.layer:
            return False
        if self.index is None or other.index is None or self.given == other.given:
            return self.token == other.token
        return self.layer == other.layer or self.index == other.index


Path = tuple[Step, ...]


def joined(path: Path) -> str:
    """Returns the name of what is at a path.

    Example:
        >>> joined((Step("net"), Step("0", "dense"), Step("kernel")))
        'net.0.kernel'
    """
    return ".".join(step.token for step in path)


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths, of two processes, mean the same part.

    Example:
        >>> is_same((Step("net"),), (Step("net"), Step("kernel")))
        False
    """
    return len(one) == len(other) and all(map(Step.is_same, one, other))


def matched(
    here: Mapping[str, Path], there: Mapping[str, Path], counted: Collection[str] = ()
) -> dict[str, str]:
    """Finds names of one process among those of another.

    Where names of layers that Keras may have made say otherwise than their places,
    nothing of these is found; but it is if all places are there, and Keras only has
    counted on from another number.

    Args:
        here: paths by name.
        there: likewise.
        counted: what Keras calls layers here, in keys too; not where a path has a
            layer that the user named so.

    Returns:
        Names here, and names there.

    Example:
        >>> matched({"a.b": (Step("a"), Step("b"))}, {"a.b": (Step("a"), Step("b"))})
        {'a.b': 'a.b'}
    """
    found = {
        name: name
        for name, path in here.items()
        if name in there and is_same(path, there[name])
    }
    # Keys such as "dense_7/kernel", which a nest without a layer has.
    texts = [
        [n for n, path in each.items() if _is_text(path)] for each in (here, there)
    ]
    if not found.keys() >= {*texts[0]}:
        known = itertools.chain(*here.values(), *there.values())
        given = {_COUNT.sub("", str(x.layer)) for x in known if x.given}
        found |= matched_texts(texts[0], texts[1], {*counted} - given)
    taken = {*found.values()}
    left = {name: path for name, path in there.items() if name not in taken}
    for name in [name for name in here if name not in found]:
        for saved, path in left.items():
            if is_same(here[name], path):
                found[name] = saved
                del left[saved]
                break
    letters = collections.defaultdict[tuple[str, ...], set[str]](set)
    for name, path in there.items():
        letters[_letters(path)].add(name)
    doubtful = {
        name
        for name, saved in found.items()
        if saved not in letters.get(_letters(here[name]), {saved})
    }
    pairs = [(*here[name], *there[found[name]]) for name in doubtful]
    is_certain = any(x.given and x.index is not None for pair in pairs for x in pair)
    is_shifted = letters.keys() != {_letters(path) for path in here.values()}
    if is_shifted and not is_certain and len(found) == len(here) == len(there):
        return found
    return {name: saved for name, saved in found.items() if name not in doubtful}


def matched_texts(
    here: Sequence[str], there: Sequence[str], counted: Collection[str] = ()
) -> dict[str, str]:
    """Finds names among others if only numbers differ that Keras gave to layers.

    Args:
        here: words joined by dots.
        there: likewise.
        counted: as of `matched`.

    Returns:
        Names here, and names there; none if others differ too.

    Example:
        >>> matched_texts(["net.dense_7.bias"], ["net.dense.bias"])
        {'net.dense_7.bias': 'net.dense.bias'}
    """
    bases = {*counted} | _automatic_names(own=False)
    one, other = (renumbered(names, bases) for names in (here, there))
    known = dict(zip(other, there, strict=True))
    if {*one} != {*other} or len(known) < len(here):
        return {}
    return {name: known[each] for name, each in zip(here, one, strict=True)}


def named(paths: Iterable[Path]) -> str:
    """Tells the names that the user gave to layers on paths, for an error message.

    Example:
        >>> named([(Step("net"), Step("a", "left", True), Step("kernel"))])
        " (of layers named 'left')"
    """
    # The last step leads to an array.
    layers = {repr(x.layer): None for path in paths for x in path[:-1] if x.given}
    return f" (of layers named {listed(list(layers))})" if layers else ""


def listed(names: Sequence[str]) -> str:
    """Lists the first names for an error message.

    Example:
        >>> listed(["a", "b", "c", "d", "e", "f"]), listed([])
        ('a, b, c, d, e and 1 more', 'nothing')
    """
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more


def _is_text(path: Path) -> bool:
    return any("." in x.token for x in path) and not any(x.layer for x in path)


def _letters(path: Path) -> tuple[str, ...]:
    return tuple(step.token if step.index is None else str(step.layer) for step in path)


def to_json(path: Path) -> list[Any]:
    """Returns a path as JSON can hold it.

    Example:
        >>> to_json((Step("net"), Step("fc", "fc", True, 0)))
        ['net', ['fc', 'fc', True, 0]]
    """
    return [
        step.token if step.layer is None else list(dataclasses.astuple(step))
        for step in path
    ]


def from_json(steps: Sequence[Any]) -> Path:
    """Returns what `to_json` was given.

    Example:
        >>> from_json(["net", ["0", "dense", False, 0]])[1].layer
        'dense'
    """
    return tuple(Step(step) if isinstance(step, str) else Step(*step) for step in steps)


def steps(
    parts: Iterable[tuple[Any, Any]], listed: bool, named: bool = True
) -> Iterator[tuple[Step, Any]]:
    """Turns keys into steps.

    Args:
        parts: keys, attributes or indices, and what is there.
        listed: whether the parts are those of a list or model.
        named: whether the user may have named layers among them.

    Yields:
        Steps and what is there.

    Example:
        >>> layers = [keras.layers.Dense(1, name="actor"), keras.layers.Dense(1)]
        >>> [step.token for step, _ in steps(enumerate(layers), True)]
        ['actor', '1']
    """
    parts = list(parts)
    counts = collections.Counter(
        part.name for _, part in parts if isinstance(part, keras.layers.Layer)
    )
    for k, (key, part) in enumerate(parts):
        if not isinstance(part, keras.layers.Layer):
            yield Step(str(key)), part
            continue
        given = named and is_given(part) and not (listed and counts[part.name] > 1)
        token = part.name if listed and given else str(key)
        yield Step(token, part.name, given, k if listed else None), part


def variable_paths(item: Any, disabled: bool = True) -> dict[int, Path | None]:
    """Finds the paths of the variables of a Keras layer or metric.

    Args:
        item: which is built.
        disabled: whether also those in layers that a checkpoint is not to look into;
            else they have None.

    Returns:
        Paths from the item by the `id` of its variables.

    Example:
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        >>> paths = variable_paths(model)
        >>> [joined(paths[id(variable)]) for variable in model.variables]
        ['dense.kernel', 'dense.bias']
    """
    found: dict[int, Path | None] = {}
    seen: set[int] = set()

    def enter(item: Any, path: Path) -> None:
        if id(item) in seen:
            return
        seen.add(id(item))
        is_seed = isinstance(item, keras.random.SeedGenerator)
        variables = [item.state] if is_seed else item.variables
        if not (disabled or is_enabled(item)):
            for variable in variables:
                found.setdefault(id(variable))
            return
        for inner, part in _children(item):
            enter(part, (*path, *inner))
        own = [each for each in variables if id(each) not in found]
        for name, variable in zip(_variable_names(item, own), own, strict=True):
            found.setdefault(id(variable), (*path, Step(name)))

    enter(item, ())
    return found


def of_slots(
    arrays: Mapping[str, Any], paths: Mapping[str, Path], slots: Collection[str]
) -> dict[str, Path]:
    """Finds which variables those of an optimizer belong to.

    Keras calls the momentum of `actor/dense/kernel` `actor_dense_kernel_momentum`.

    Args:
        arrays: variables by name, of optimizers and of what they train.
        paths: to them.
        slots: names of those of optimizers.

    Returns:
        Paths to these whose last step also tells the variable.

    Example:
        >>> layer, sgd = keras.layers.Dense(1), keras.optimizers.SGD(momentum=0.9)
        >>> layer.build((None, 1))
        >>> sgd.build([layer.kernel])
        >>> arrays = {"w": layer.kernel, "sgd.2": sgd.variables[2]}
        >>> paths = {name: (Step(name),) for name in arrays}
        >>> of_slots(arrays, paths, {"sgd.2"})["sgd.2"][0].layer
        'w'
    """
    owners: dict[str, list[str]] = collections.defaultdict(list)
    for name, variable in arrays.items():
        if name not in slots and isinstance(variable, keras.Variable):
            owners[variable.path.replace("/", "_")].append(name)
    found = {}
    for name in slots:
        words = arrays[name].name.split("_")
        parts = ("_".join(words[:k]) for k in range(len(words) - 1, 0, -1))
        owner = next((owners[part] for part in parts if part in owners), [])
        if len(owner) == 1:
            *path, last = paths[name]
            last = dataclasses.replace(last, layer=owner[0], given=True)
            found[name] = (*path, last)
    return found


def _children(item: Any) -> Iterator[tuple[Path, Any]]:
    """Yields the paths to the layers, metrics and seed generators of one, and these."""
    attributes = [pair for pair in vars(item).items() if pair[0] not in _bookkeeping()]
    # Keras' own layers name their parts after themselves.
    is_keras = type(item).__module__.partition(".")[0] == "keras"
    yield from _nested(attributes, named=not is_keras)
    layers = item.layers if isinstance(item, keras.Model) else []
    layers = [layer for layer in layers if layer.variables]
    for step, layer in steps(zip(_places(layers), layers, strict=True), listed=True):
        yield (step,), layer


def _places(layers: Sequence[Any]) -> list[str]:
    """Names layers after their classes, as Keras would if it counted from here."""
    taken = {layer.name for layer in layers if is_given(layer)}
    places = []
    for layer in layers:
        base, place = snake_case(type(layer).__name__), layer.name
        if not is_given(layer):
            names = (f"{base}_{k}" if k else base for k in itertools.count())
            place = next(name for name in names if name not in taken)
            taken.add(place)
        places.append(place)
    return places


def _nested(
    parts: Iterable[tuple[Any, Any]], named: bool, listed: bool = False
) -> Iterator[tuple[Path, Any]]:
    """Yields what is known to Keras of parts, also in lists and dictionaries."""
    for step, part in steps(parts, listed, named):
        if isinstance(part, _KERAS):
            yield (step,), part
        elif isinstance(part, Mapping | list | tuple):
            inner = part.items() if isinstance(part, Mapping) else enumerate(part)
            for path, each in _nested(inner, named, not isinstance(part, Mapping)):
                yield (step, *path), each


def _variable_names(item: Any, own: Sequence[Any]) -> list[str]:
    """Names an object's own variables; attributes tell those without a name."""
    keys = {id(part): key for key, part in vars(item).items()}
    names = [
        keys.get(id(each), "variable") if _UNNAMED.fullmatch(each.name) else each.name
        for each in own
    ]
    return told_apart(names)


def is_enabled(item: Any) -> bool:
    """Tells what `enable_checkpoint` said of an object; True if nothing.

    Example:
        >>> is_enabled([])
        True
    """
    return bool(getattr(item, SWITCH, True))


def told_apart(names: Sequence[str]) -> list[str]:
    """Adds a number to names that were there before.

    Example:
        >>> told_apart(["a", "b", "a"])
        ['a', 'b', 'a:1']
    """
    before = [names[:k].count(name) for k, name in enumerate(names)]
    pairs = zip(names, before, strict=True)
    return [f"{name}:{k}" if k else name for name, k in pairs]


@functools.cache
def _bookkeeping() -> frozenset[str]:
    """Returns the attributes in which Keras' models keep what they know of layers."""
    inputs = keras.Input((1,), name="input")
    outputs = keras.layers.Identity(name="identity")(inputs)
    model = keras.Model(inputs, outputs, name="model")
    return frozenset({*vars(model), *vars(keras.Sequential([model], name="models"))})


def snake_case(name: str) -> str:
    """Returns what Keras makes of a class's name.

    Example:
        >>> snake_case("MyDense2D")
        'my_dense2d'
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def is_given(layer: Any) -> bool:
    """Tells, once for all, whether the user named a layer, as far as that is certain.

    Args:
        layer: a layer.

    Returns:
        False for names that Keras may have made.

    Example:
        >>> is_given(keras.layers.Dense(1)), is_given(keras.layers.Dense(1, name="a"))
        (False, True)
    """
    name, told = _told.get(layer, ("", False))
    if name != layer.name:
        base = snake_case(type(layer).__name__)
        match = re.fullmatch(f"{base}(?:_([0-9]+))?", layer.name)
        told = match is None or not _may_have_made(base, int(match[1] or 0))
        _told[layer] = (layer.name, told)
    return told


def _may_have_made(base: str, number: int) -> bool:
    """Whether Keras has given a number to a name, asked of its own counter.

    Asking uses up a number. `keras.utils.clear_session` lets Keras count anew.
    """
    if keras.backend.get_uid(_OWN) == 1:
        _next.clear()
    if number >= _next[base]:
        # Keras counts from 0, `get_uid` from 1.
        asked = keras.backend.get_uid(base) - 1
        _made[base].update(range(_next[base], asked))
        _next[base] = asked + 1
    return number in _made[base]


def renumbered(names: Sequence[str], counted: Any = None) -> list[str]:
    """Counts anew where Keras may have counted.

    `dense_7` and `dense_10` become `dense` and `dense_1`, beside each other only.

    Args:
        names: words joined by dots.
        counted: words that Keras may have put a number to; None for those of all
            classes that this process happens to know.

    Returns:
        The names, in the same order.

    Example:
        >>> renumbered(["net.dense_7.kernel", "net.dense_10.kernel"])
        ['net.dense.kernel', 'net.dense_1.kernel']
    """
    known = _automatic_names() if counted is None else counted
    bases = "|".join(sorted(map(re.escape, known), reverse=True))
    pattern = re.compile(f"({bases})(?:_([0-9]+))?")
    split = [name.split(".") for name in names]
    numbers: dict[tuple[str, ...], set[int]] = collections.defaultdict(set)
    for parts in split:
        for k, match in enumerate(map(pattern.fullmatch, parts)):
            if match:
                numbers[*parts[:k], match[1]].add(int(match[2] or 0))

    def renamed(parts: Sequence[str]) -> Iterator[str]:
        for k, match in enumerate(map(pattern.fullmatch, parts)):
            if match:
                found = sorted(numbers[*parts[:k], match[1]])
                rank = found.index(int(match[2] or 0))
                yield f"{match[1]}_{rank}" if rank else match[1]
            else:
                yield parts[k]

    return [".".join(renamed(parts)) for parts in split]


def of_parts(parts: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Tells what parts are called in format 1.

    Args:
        parts: of objects.

    Returns:
        The old names by the names; and the layers that the user named, by the names of
        parts whose old names do not tell which of these was meant.
    """
    old: dict[str, str] = {}
    lost: dict[str, str] = {}
    for path, names, places in parts.keras_names:
        given = {step.layer for place in places for step in place if step.given}
        start = [_place(step) for step in path]
        found = renumbered(names)
        pairs = zip(names, found, strict=True)
        for place, (one, other), new in zip(
            places, pairs, told_apart(found), strict=True
        ):
            name = joined(place)
            if name not in old:
                old[name] = ".".join([*start, new])
                words = zip(one.split("."), other.split("."), strict=True)
                lost.update((name, x) for x, y in words if x != y and x in given)
    others = {n: ".".join(map(_place, path)) for n, path in parts.paths.items()}
    return {**others, **old}, lost


def _place(step: Step) -> str:
    return step.token if step.index is None else str(step.index)


def matched_of_old(here: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
    """Finds the names in a checkpoint of format 1.

    Where numbers were counted, and there are more or fewer layers than were saved,
    nobody knows which is which: of these nothing is found.

    Args:
        here: names, and what they are in that format.
        there: names on the disk.

    Returns:
        Names, and those on the disk.

    Example:
        >>> matched_of_old({"a.0.w": "a.dense.w"}, ["a.dense.w", "a.dense_1.w"])
        {}
    """
    counted = [
        collections.Counter(_COUNT.sub("", name) for name in names)
        for names in (here.values(), there)
    ]
    return {
        name: old
        for name, old in here.items()
        if old in there
        and counted[0][_COUNT.sub("", old)] == counted[1][_COUNT.sub("", old)]
    }


def _automatic_names(own: bool = True) -> set[str]:
    """Returns what Keras calls things that were given no name."""
    classes: list[Any] = [keras.layers.Layer, keras.random.SeedGenerator]
    for cls in classes:
        classes += cls.__subclasses__()
    known = [cls for cls in classes if own or cls.__module__.startswith("keras.")]
    return {snake_case(cls.__name__) for cls in known}


def special_kind(name: str, item: Any = None) -> str | None:
    """Tells whether a name belongs to a part that loads may leave out.

    Args:
        name: a name in `Parts`.
        item: the item it is of, if known.

    Returns:
        "optimizer", "replay_buffer" or "data_transformer", or None.

    Example:
        >>> special_kind("agent.state.opt_state.0"), special_kind("agent.net.kernel")
        ('optimizer', None)
    """
    if isinstance(item, keras.optimizers.Optimizer):
        return "optimizer"
    found = _SPECIAL.search(name)
    return found and ("optimizer" if found[1] == "opt_state" else found[1])
