"""Rows of measurements in a file, from which one table of all benchmarks is made."""

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# Where it names a file, every table of a benchmark is written there as well.
VARIABLE = "TFRL_BENCH_RECORDS"


class Row(NamedTuple):
    """One peer beside tfrl.

    Attributes:
        work: what was measured, and its size.
        unit: of `ours` and `theirs`.
        ours: median of tfrl.
        peer: its name.
        theirs: median of the peer.
        faster: median of how many times as fast tfrl is, round by round.
        low: the lowest of them.
        high: the highest.
    """

    work: str
    unit: str
    ours: float
    peer: str
    theirs: float
    faster: float
    low: float
    high: float


def keep(
    work: str,
    unit: str,
    values: Mapping[str, Sequence[float]],
    base: str,
    more_is_better: bool = False,
) -> None:
    """Writes what contenders took, if a file is named by the environment.

    Args:
        work: what was measured, and its size.
        unit: of the values.
        values: `[rounds]` by contender.
        base: the contender whose times the table is relative to.
        more_is_better: whether they are speeds instead of times.
    """
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    given = {name: list(each) for name, each in values.items()}
    row = {"work": work, "unit": unit, "values": given, "base": base}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({**row, "more": more_is_better}) + "\n")


def rows(lines: Iterable[str]) -> list[Row]:
    """Returns what `keep` wrote, a row for each contender beside tfrl's own.

    Where tfrl has several ways, that of the table is tfrl, and the others are peers.

    Args:
        lines: of the file.
    """
    found = []
    for record in map(json.loads, lines):
        values = record["values"]
        own = [name for name in values if "tfrl" in name]
        ours = record["base"] if record["base"] in own else next(iter(own), None)
        if ours is not None:
            found += [
                _beside(record, values[ours], peer, theirs)
                for peer, theirs in values.items()
                if peer != ours
            ]
    return found


def _beside(record: Any, ours: list[float], peer: str, theirs: list[float]) -> Row:
    pairs = zip(ours, theirs, strict=True)
    ratios = [one / two if record["more"] else two / one for one, two in pairs]
    middle = statistics.median
    spread = min(ratios), max(ratios)
    return Row(
        *(record["work"], record["unit"], middle(ours), peer, middle(theirs)),
        *(middle(ratios), *spread),
    )
