"""Settings in which the members of a population differ: which may, and checks."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import checks


def checked(
    where: str,
    config: Any,
    seeds: Sequence[int],
    hyperparameters: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """Returns `[P]` numbers by name, each of which the hyper-parameters take."""
    checks.check_whole_numbers(where, "seeds", seeds, low=0)
    if not len(seeds):
        raise ValueError(f"`{where}`: `seeds` expected one at least; got none")
    checks.check_type(
        where, "hyperparameters", hyperparameters, Mapping, "numbers by name"
    )
    values = {}
    for name, given in hyperparameters.items():
        place = f"hyperparameters[{name!r}]"
        numbers = np.asarray(given)
        if numbers.shape != (len(seeds),) or numbers.dtype.kind not in "if":
            raise ValueError(
                f"`{where}`: `{place}` expected a number for each of {len(seeds)} "
                f"seeds; got {given!r:.80}"
            )
        values[name] = numbers.astype(np.float64)
    able = values.keys() & _numbers_of(config)  # the others are refused later
    for i in range(len(seeds)):
        dataclasses.replace(config, **{k: float(values[k][i]) for k in able})
    return values


def _numbers_of(config: Any) -> set[str]:
    """Names of settings that may be any number, whatever they are now."""

    def admits_floats(kind: Any) -> bool:
        is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
        parts = typing.get_args(kind) if is_union else ()
        return kind is float or any(map(admits_floats, parts))

    try:
        kinds = typing.get_type_hints(type(config))
    except NameError:  # which only type checkers know
        kinds = {}
    return {
        x.name
        for x in dataclasses.fields(config)
        if isinstance(getattr(config, x.name), float)
        or admits_floats(kinds.get(x.name))
    }


def check_read(
    where: str, collector: Any, agent: Any, values: Mapping[str, np.ndarray]
) -> None:
    """Raises a ValueError unless updates read the settings in which members differ."""
    able = _numbers_of(agent.config)
    own = {
        name: tf.constant(values[name][0], tf.float32)
        for name in values
        if name in able
    }
    episodes, key = collector.begun(0)
    read: set[str] = set()
    given = agent, episodes, key, *map(tf.constant, (0, 1, 1.0)), own, read
    tf.function(
        lambda: collector.program.played(*given), autograph=False
    ).get_concrete_function()
    able &= read
    for name in values.keys() - able:
        raise ValueError(
            f"`{where}`: `hyperparameters` expected floats that an update reads, as "
            f"`agent.config.NAME`, one or more of {sorted(able)}; got {name!r}: "
            "members that differ in another setting, such as one that only `create` "
            "reads, are other programs; train them apart"
        )
