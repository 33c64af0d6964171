"""Positions in a `metrics.csv`: its columns, and the rows that a resumed run keeps."""

import hashlib
import itertools
import operator
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

STEPS, DIGEST, COLUMNS = "env_steps", "csv_sha256", "columns"


def header_of(columns: tuple[str, ...], asked: str) -> bytes:
    bad = [
        name
        for name in columns
        if not isinstance(name, str)
        or name.splitlines() != [name]
        or set(name) & set(',"')
    ]
    if bad or STEPS in columns or len(set(columns)) < len(columns):
        raise ValueError(
            f"{asked} expected distinct names without commas, quotes and "
            f"line ends, not {STEPS!r}; got {list(columns)}"
        )
    return (",".join([STEPS, *columns]) + "\n").encode()


def first_line(text: bytes) -> bytes:
    return text[: text.find(b"\n") + 1]


def names_in(text: bytes) -> tuple[str, ...]:
    return tuple(first_line(text).decode("utf-8", "replace")[:-1].split(",")[1:])


def checked_position(
    path: pathlib.Path,
    header: bytes,
    resume_at: Mapping[str, Any] | None,
    start: Mapping[str, Any],
) -> tuple[Mapping[str, Any], bytes]:
    """Returns the position, and what stays of the file: wide, where it was widened."""
    if resume_at is None:
        if path.exists():
            raise ValueError(
                f"`RunLog`: `directory` expected one without metrics.csv; got {path}; "
                "choose a new directory or resume with `resume_at`"
            )
        return start, b""
    # Positions of old have no digest and no number of columns.
    if {*resume_at, DIGEST, COLUMNS} != {*start}:
        raise ValueError(
            "`RunLog`: `resume_at` expected what `position()` returned; "
            f"got {dict(resume_at)}"
        )
    offset = operator.index(resume_at["csv_bytes"])
    text = path.read_bytes() if path.exists() else b""
    kept = kept_of(text, resume_at)
    if not is_as_written(kept, resume_at):
        short = not _ends_a_row(kept, offset)
        found = f"{len(kept)} bytes up to there" if short else "something else"
        found = found if path.exists() else "no such file"
        raise ValueError(
            f"`RunLog`: `resume_at` expected {path} as it was written up to byte "
            f"{offset}, the end of a row ({STEPS} {resume_at[STEPS]}); got {found}; "
            "restore it from a copy, or see by `tfrl doctor` which earlier checkpoint "
            "it agrees with; or remove it and resume by `override=True` (--override), "
            "by which a new one begins"
        )
    if offset and header not in (first_line(kept), first_line(text)):
        raise ValueError(
            f"`RunLog`: `columns` expected those of {path}, "
            f"{[*names_in(text)]}; got {[*names_in(header)]}"
        )
    count = kept.count(b"\n")
    return resume_at, text[: len(text) - len(text.split(b"\n", count)[count])]


def kept_of(text: bytes, position: Mapping[str, Any]) -> bytes:
    """Returns a file up to a position, as it was then: without columns added later.

    If no number of columns makes it fit, the first one that may have been meant.
    """
    header, *rows = text.split(b"\n")[:-1] or [b""]
    width = header.count(b",")
    then = position.get(COLUMNS)
    found = (
        _narrowed(header, rows, max(width - columns, 0))[: position["csv_bytes"]]
        for columns in (range(width, -1, -1) if then is None else [then])
    )
    nearest = next(found)
    if is_as_written(nearest, position):
        return nearest
    return next((each for each in found if is_as_written(each, position)), nearest)


def _narrowed(header: bytes, rows: Sequence[bytes], further: int) -> bytes:
    """Returns the file without its last columns, up to a row that has them filled."""
    if not header:
        return b""
    empty = b"," * further
    before = itertools.takewhile(lambda row: row.endswith(empty), rows)
    lines = [header.rsplit(b",", further)[0], *(x[: len(x) - further] for x in before)]
    return b"".join(line + b"\n" for line in lines)


def _ends_a_row(kept: bytes, offset: int) -> bool:
    return len(kept) == offset and kept[-1:] in (b"", b"\n")


def is_as_written(kept: bytes, position: Mapping[str, Any]) -> bool:
    if not _ends_a_row(kept, position["csv_bytes"]):
        return False
    if DIGEST in position:
        return hashlib.sha256(kept).hexdigest() == position[DIGEST]
    steps = STEPS if position[STEPS] is None else str(position[STEPS])
    last = kept[:-1].rpartition(b"\n")[2]
    return not kept or last.split(b",")[0] == steps.encode()
