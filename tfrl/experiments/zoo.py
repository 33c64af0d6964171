"""The zoo: configurations with what was measured of them, read from their headers.

A header is the comment at the top of a gin file: a sentence, then the fields below in
this order, each once, then notes in any number of paragraphs, or none. A value goes on
in the next line after `#` and three blanks.

    # Proximal policy optimization on CartPole-v1.
    #
    # Agent: PPO
    # Environment: CartPole-v1
    # Source: RL Baselines3 Zoo, hyperparams/ppo.yml, CartPole-v1.
    # Command: tfrl train configs/ppo_cartpole.gin --seeds 0-2
    # Steps: 100,000
    # Expected: mean >= 475, worst seed >= 400
    # Measured: 500.0, 500.0, 498.7
    # CPU time: 45 s
    # Curve: 10% 45.2 (38.1 to 52.0), 50% 301.0 (280.4 to 330.9), 100% 490.0 (480.2
    #   to 500.0)

After `Environment`, `Needs: tfrl[mujoco]` names the extra of tfrl that a configuration
needs, if it needs one. `Measured` has the mean return of the final evaluation of each
seed, `CPU time` the mean over the processes, `Curve` the mean (lowest to highest seed)
of the returns while it trained, at shares of `Steps`. Of what has not been measured
`Measured` says `not here, REASON.`, and `Expected`, `CPU time` and `Curve` are missing.
"""

import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import rich.table

from tfrl import entry
from tfrl._internal import arguments, zoo_files
from tfrl.experiments import _tables

_FIELDS = (
    *("Agent", "Environment", "Needs", "Source", "Command", "Steps", "Expected"),
    *("Measured", "CPU time", "Curve"),
)
_OF_MEASURED = {"Expected", "CPU time", "Curve"}
_FIELD = re.compile(r"# ([A-Z][A-Za-z ]*): (\S.*)")
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_EXPECTED = re.compile(rf"mean >= {_NUMBER}, worst seed >= {_NUMBER}")
_POINT = re.compile(rf"(\d+)% {_NUMBER} \({_NUMBER} to {_NUMBER}\)")
_COMMAND = re.compile(r"tfrl train configs/(\S+) --seeds (\S+)")
# Columns of a terminal that has room for them.
_WITH_SOURCES = 150


class Point(NamedTuple):
    """A point of a learning curve.

    Attributes:
        share: of the steps of the run, in (0, 1].
        mean: of the seeds' returns.
        low: the least of them.
        high: the greatest.
    """

    share: float
    mean: float
    low: float
    high: float


class Entry(NamedTuple):
    """What the header of a configuration says.

    Attributes:
        path: of the gin file.
        title: the first sentence.
        agent: what learns, and a variant in parentheses.
        environment: in which.
        source: of the settings.
        command: that trains it, all seeds of it.
        seeds: of the command.
        steps: of experience of a run.
        expected: least mean over the seeds and least return of a seed.
        measured: mean return of the final evaluation of each seed.
        cpu_seconds: of a seed.
        curve: of returns while training, by share.
        not_measured: why, where there are neither numbers nor a curve; else "".
        needs: what installs its environment or data, such as "tfrl[mujoco]"; "" where
            tfrl itself does.
    """

    path: pathlib.Path
    title: str
    agent: str
    environment: str
    source: str
    command: str
    seeds: tuple[int, ...]
    steps: int
    expected: tuple[float, float] | None
    measured: tuple[float, ...]
    cpu_seconds: float | None
    curve: tuple[Point, ...]
    not_measured: str
    needs: str = ""

    @property
    def mean(self) -> float | None:
        """Mean of what was measured; None where nothing was."""
        count = len(self.measured)
        return sum(self.measured) / count if count else None

    @property
    def words(self) -> str:
        """Name, agent, environment and extra in small letters, to look for words in."""
        return f"{self.path.stem} {self.agent} {self.environment} {self.needs}".lower()


def read_entry(path: str | os.PathLike[str]) -> Entry:
    """Reads the header of a configuration.

    Args:
        path: the gin file.

    Returns:
        What it says.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if the header has another form than that of this module.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "sac_pendulum.gin")
        >>> _ = path.write_text('''# Soft actor-critic on Pendulum-v1.
        ... #
        ... # Agent: SAC
        ... # Environment: Pendulum-v1
        ... # Source: own.
        ... # Command: tfrl train configs/sac_pendulum.gin --seeds 0-1
        ... # Steps: 10,000
        ... # Expected: mean >= -180, worst seed >= -200
        ... # Measured: -150.5, -151.5
        ... # CPU time: 80 s
        ... # Curve: 10% -1200.1 (-1300.0 to -1100.2)
        ... ''')
        >>> entry = read_entry(path)
        >>> entry.agent, entry.seeds, entry.mean, entry.expected
        ('SAC', (0, 1), -151.0, (-180.0, -200.0))
    """
    path = arguments.as_path("read_entry", "path", path)
    title, fields = _fields(path)
    reason = re.fullmatch(r"not here, (.+\.)", fields["Measured"])
    left_out = _OF_MEASURED if reason else set()
    left_out = left_out if "Needs" in fields else {*left_out, "Needs"}
    wanted = [name for name in _FIELDS if name not in left_out]
    if [*fields] != wanted:
        raise _fault(path, f"the fields {', '.join(wanted)}", ", ".join(fields))
    command = _COMMAND.fullmatch(fields["Command"])
    if command is None or command[1] != path.name:
        form = f"Command: tfrl train configs/{path.name} --seeds SEEDS"
        raise _fault(path, form, fields["Command"])
    needs = fields.get("Needs", "")
    if needs and not re.fullmatch(r"tfrl\[\w+\]", needs):
        raise _fault(path, "Needs: an extra, such as tfrl[mujoco]", needs)
    seeds = entry.seeds(command[2])
    plain = {name: fields[name] for name in ("Agent", "Environment", "Source")}
    known: dict[str, Any] = {
        "path": path,
        "title": title,
        "needs": needs,
        **{name.lower(): value for name, value in plain.items()},
        "command": fields["Command"],
        "seeds": seeds,
        "steps": int(_number(path, fields, "Steps", r"([\d,]+)")),
    }
    if reason:
        none: dict[str, Any] = {
            "expected": None,
            "measured": (),
            "cpu_seconds": None,
            "curve": (),
        }
        return Entry(**known, **none, not_measured=reason[1])
    numbers = fields["Measured"].split(", ")
    if len(numbers) != len(seeds) or not all(
        re.fullmatch(_NUMBER, each) for each in numbers
    ):
        form = f"Measured: {len(seeds)} numbers, one a seed, or 'not here, REASON.'"
        raise _fault(path, form, fields["Measured"])
    expected = _EXPECTED.fullmatch(fields["Expected"])
    if expected is None:
        form = "Expected: mean >= NUMBER, worst seed >= NUMBER"
        raise _fault(path, form, fields["Expected"])
    return Entry(
        **known,
        expected=(float(expected[1]), float(expected[2])),
        measured=tuple(map(float, numbers)),
        cpu_seconds=_number(path, fields, "CPU time", r"([\d,]+) s"),
        curve=_curve(path, fields["Curve"]),
        not_measured="",
    )


def zoo_folder() -> pathlib.Path:
    """Returns the folder of the zoo's configurations: of the clone, or as installed.

    Returns:
        The path.

    Raises:
        ValueError: if there is neither.

    Example:
        >>> (zoo_folder() / "ppo_cartpole.gin").is_file()
        True
    """
    place = zoo_files.folder()
    if place is None:
        raise ValueError(
            "`zoo_folder`: expected the configurations of tfrl; got none in "
            f"{' or '.join(map(str, zoo_files.places()))}; clone the repository"
        )
    return place


def list_zoo(folder: str | os.PathLike[str] | None = None) -> list[Entry]:
    """Returns what the configurations of a folder say of themselves.

    Args:
        folder: with gin files, those that train something; None for the zoo of tfrl.

    Returns:
        One entry per file that trains something, sorted by name.

    Raises:
        ValueError: if a header has another form; if there are no files.

    Example:
        >>> "ppo_cartpole" in [entry.path.stem for entry in list_zoo()]
        True
    """
    place = (
        zoo_folder()
        if folder is None
        else arguments.as_path("list_zoo", "folder", folder)
    )
    paths = [path for path in sorted(place.glob("*.gin")) if _trains(path)]
    if not paths:
        raise ValueError(
            f"`list_zoo`: `folder` expected gin files; got none in {place}"
        )
    return [read_entry(path) for path in paths]


def show(entries: Sequence[Entry]) -> None:
    """Prints entries as a table; on a narrow terminal without their sources.

    Args:
        entries: of the zoo.
    """
    console = _tables.Tables()
    if not console.is_terminal:
        console.width = 200
    is_wide = console.width >= _WITH_SOURCES
    table = rich.table.Table(box=None, header_style="bold", pad_edge=False)
    for name in ("config", "agent", "environment"):
        table.add_column(name, no_wrap=is_wide, overflow="fold")
    for name in ("return", "worst", "seeds", "steps", "CPU time"):
        table.add_column(name, justify="right", no_wrap=True)
    if is_wide:
        table.add_column("source", overflow="fold")
    for each in entries:
        numbers = ["-", "-", "-"]
        if each.cpu_seconds is not None:
            seconds = round(each.cpu_seconds)
            clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            numbers = [f"{each.mean:,.1f}", f"{min(each.measured):,.1f}", clock]
        source = each.source
        if each.not_measured:
            source += f" Not measured: {each.not_measured}"
        table.add_row(
            *(each.path.stem, each.agent, _place(each), *numbers[:2]),
            *(str(len(each.seeds)), f"{each.steps:,}", numbers[2]),
            *([source] if is_wide else []),
        )
    console.print(table)


def _place(entry: Entry) -> str:
    return " needs ".join(filter(None, (entry.environment, entry.needs)))


def as_json(entries: Sequence[Entry]) -> str:
    """Returns entries as JSON text, for programs.

    Args:
        entries: of the zoo.
    """
    rows: list[dict[str, Any]] = [
        {
            **each._asdict(),
            "path": str(each.path),
            "mean": each.mean,
            "curve": [point._asdict() for point in each.curve],
        }
        for each in entries
    ]
    return json.dumps(rows, indent=1)


def _trains(path: pathlib.Path) -> bool:
    """Whether a file binds a trainer, beside those that tune or are included."""
    return "train_rl.light_rl_trainer" in path.read_text("utf-8")


def _fields(path: pathlib.Path) -> tuple[str, dict[str, str]]:
    """The title and the fields by name, continued lines joined."""
    lines = []
    for line in path.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line)
    end = lines.index("#") if "#" in lines else len(lines)
    title = " ".join(line.removeprefix("#").strip() for line in lines[:end])
    if not title.endswith("."):
        raise _fault(path, "a sentence, then an empty comment", title)
    fields: dict[str, str] = {}
    for line in lines[end + 1 :]:
        found = _FIELD.fullmatch(line)
        if found and found[1] not in fields:
            fields[found[1]] = found[2]
        elif line.startswith("#   ") and fields:
            fields[[*fields][-1]] += " " + line[4:].strip()
        elif line == "#" and fields:
            break
        else:
            raise _fault(path, "`# Name: value`, each name once", line)
    if "Measured" not in fields:
        raise _fault(path, f"the fields {', '.join(_FIELDS)}", ", ".join(fields))
    return title, fields


def _curve(path: pathlib.Path, text: str) -> tuple[Point, ...]:
    numbers = _POINT.findall(text)
    points = [
        Point(int(share) / 100, float(mean), float(low), float(high))
        for share, mean, low, high in numbers
    ]
    again = [f"{share}% {mean} ({low} to {high})" for share, mean, low, high in numbers]
    shares = [point.share for point in points]
    if (
        not points
        or ", ".join(again) != text
        or shares != sorted({*shares})
        or not 0 < shares[0] <= shares[-1] <= 1
    ):
        form = "Curve: SHARE% MEAN (LOWEST to HIGHEST), ..., shares increasing"
        raise _fault(path, form, text)
    return tuple(points)


def _number(path: pathlib.Path, fields: dict[str, str], name: str, form: str) -> float:
    found = re.fullmatch(form, fields[name])
    if found is None:
        raise _fault(path, f"{name}: a whole number, such as 100,000", fields[name])
    return float(found[1].replace(",", ""))


def _fault(path: pathlib.Path, expected: str, got: str) -> ValueError:
    return ValueError(
        f"`read_entry`: `path` expected a header with {expected}; got {got!r} in {path}"
    )
