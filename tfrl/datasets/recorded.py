"""Experience on disk, which offline learners read: Minari sets, and NumPy archives."""

import dataclasses
import io
import operator
import os
import pathlib
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tfrl._internal import arguments, durable, gym_checks, row_checks
from tfrl.datasets import _minari_folders, _row_columns, recorded_rows

_LEARNED = ("observations", "actions", "rewards", "terminated", "truncated")


@dataclasses.dataclass(frozen=True)
class MinariDataset:
    """A Minari set as rows of transitions, read when it is called.

    Minari keeps episodes of T actions and T + 1 observations. Row t is the transition
    of action t; `next_observations` of an episode's last row is its last observation.
    That row is truncated, also where a set does not mark it, unless it is terminated.

    Attributes:
        name: of the set, such as "mujoco/hopper/expert-v0". It lies in the folder that
            the environment variable MINARI_DATASETS_PATH names, by default
            `~/.minari/datasets`.
        download: fetch a set that is not there.

    Raises:
        TypeError: if `name` is no text.

    Example:
        >>> learned = tfrl.training.FromDataset(MinariDataset("pendulum/mixed-v0"))

    References:
        Younis et al., 2024, Minari. The sets of Fu et al., 2020, D4RL, are among those
        it offers.
    """

    name: str
    download: bool = False

    def __post_init__(self) -> None:
        arguments.check_type("MinariDataset", "name", self.name, str, "that of a set")

    def __call__(self) -> dict[str, Any]:
        """Returns nests of arrays `[rows, ...]` by name.

        They are observations, actions, rewards (as float32), terminated, truncated and
        next_observations.

        Raises:
            ImportError: without the package `minari` (extra `tfrl[minari]`).
            ValueError: if there is no such set, or it is empty.
        """
        minari = arguments.imported("MinariDataset", "minari", "minari", "minari")
        try:
            found = minari.load_dataset(self.name, self.download)
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(
                f"`MinariDataset`: `name` expected that of a set on this machine; got "
                f"{self.name!r}: {error}"
            ) from error
        episodes = [_rows_of(episode) for episode in found.iterate_episodes()]
        if not episodes:
            raise ValueError(
                "`MinariDataset`: `name` expected a set of episodes; got "
                f"{self.name!r}, which has none"
            )
        return recorded_rows.join_rows(episodes)


@dataclasses.dataclass(frozen=True)
class NpzDataset:
    """Rows of a NumPy archive, such as `tfrl collect RUN --npz FILE` writes.

    Attributes:
        path: of the file. Parts of Dict and Tuple spaces have names such as
            `observations/goal`; of a key itself, "/" is "%2F" there.

    Example:
        >>> learned = tfrl.training.FromDataset(NpzDataset("rows.npz"))
    """

    path: str

    def __call__(self) -> dict[str, Any]:
        """Returns the nests of arrays `[rows, ...]`.

        Raises:
            ValueError: if the file is no archive of arrays.
        """
        if not zipfile.is_zipfile(self.path):
            is_file = pathlib.Path(self.path).is_file()
            raise self._refused("another file" if is_file else "no file")
        try:
            with np.load(self.path, allow_pickle=False) as file:
                flat = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise self._refused("objects or damaged arrays there") from error
        if not all(isinstance(array, np.ndarray) for array in flat.values()):
            raise self._refused("others than arrays there")
        return _row_columns.nested(flat)

    def _refused(self, what: str) -> ValueError:
        place = str(pathlib.Path(self.path).absolute())
        return ValueError(
            "`NpzDataset`: `path` expected a file of arrays that `np.savez` wrote; got "
            f"{what}, {place!r}"
        )


def check_new(
    npz: str | os.PathLike[str] | None, minari: str, *, overwrite: bool = False
) -> None:
    """Raises unless `tfrl collect` may write a set, before it is played.

    Args:
        npz: the NumPy archive to write; None for a Minari set.
        minari: the name of this.
        overwrite: whether an archive that is there is to be replaced.

    Raises:
        ImportError: without the package `minari` (extra `tfrl[minari]`).
        ValueError: if the set is there, or cannot be written, or the name is none.
    """
    if npz is not None:
        durable.check_output_file("collect", "--npz", npz, [".npz"])
        if not overwrite and os.path.exists(npz):
            raise ValueError(
                f"`collect`: `--npz` expected a new file; got {os.fspath(npz)!r}, "
                "which is there; choose another, or give --overwrite"
            )
        return
    if overwrite:
        raise ValueError(
            "`collect`: `--overwrite` expected `--npz`; got a Minari set, which is not "
            "replaced; give another name, such as its next version"
        )
    if _minari_folders.folder_of("collect", "--minari", minari).exists():
        raise ValueError(
            f"`collect`: `--minari` expected the name of a new set; got {minari!r}, "
            "which is there; choose another, such as its next version"
        )


def write_npz(path: str | os.PathLike[str], rows: Mapping[str, Any]) -> None:
    """Writes rows as a compressed NumPy archive; replaces what is there.

    Args:
        path: of the file, ending in `.npz`.
        rows: nests of arrays `[rows, ...]` by name.

    Raises:
        ValueError: if `path` ends otherwise, or its folder is not there; if columns are
            not of the same length, or of Python objects.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_npz(f"{folder}/rows.npz", {"actions": np.arange(3)})
        ...     NpzDataset(f"{folder}/rows.npz")()
        {'actions': array([0, 1, 2])}
    """
    durable.check_output_file("write_npz", "path", path, [".npz"])
    columns: dict[str, Any] = _row_columns.check("write_npz", "rows", rows)
    data = io.BytesIO()
    np.savez_compressed(data, **columns)
    with durable.explain_refusals("write_npz", "path", path):
        durable.replace_file(path, data.getvalue())


def write_minari(
    name: str,
    rows: Mapping[str, Any],
    spaces: tuple[gym.Space, gym.Space],
    *,
    env_spec: Any = None,
    algorithm: str = "",
    description: str = "",
) -> pathlib.Path:
    """Writes rows as a Minari set, which `MinariDataset` and others read.

    Args:
        name: of the set, `[namespace/]dataset-vN`.
        rows: observations, actions, rewards, terminated, truncated, next_observations,
            nests of arrays `[rows, ...]`. Rows of an episode follow each other and end
            where it ends; after the last row an episode counts as truncated.
        spaces: of observations and actions.
        env_spec: of the environment, for who plays in it later; None for none. One that
            cannot be written, as of an environment that is registered by its class and
            not by "module:Class", is left out with a warning.
        algorithm: who acted, for the readers of the set.
        description: likewise.

    Returns:
        The folder of the set.

    Raises:
        ImportError: without the package `minari` (extra `tfrl[minari]`).
        ValueError: if there is a set of that name, or the name is none; if a column is
            missing, there are no rows, they are not finite or none of the spaces (but
            observations may exceed the bounds of a Box), or what follows a row within
            an episode is not its `next_observations`, or a key of a Dict has a "/",
            which would be lost.

    Example:
        >>> import tempfile, unittest.mock
        >>> column = np.zeros([2, 1], np.float32)
        >>> rows = {"observations": column, "actions": column, "rewards": column[:, 0],
        ...         "terminated": np.array([False, True]),
        ...         "truncated": np.zeros(2, bool), "next_observations": column}
        >>> spaces = gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Box(-1.0, 1.0, (1,))
        >>> with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(
        ...     os.environ, MINARI_DATASETS_PATH=folder):
        ...     _ = write_minari("still-v0", rows, spaces)
        ...     MinariDataset("still-v0")()["terminated"].tolist()
        [False, True]
    """
    _check_rows(rows, spaces)
    _check_keys(spaces)
    minari = arguments.imported("write_minari", "minari", "minari", "minari")
    folder = _minari_folders.folder_of("write_minari", "name", name)
    buffers = [
        minari.data_collector.EpisodeBuffer(id=i, **episode)
        for i, episode in enumerate(_episodes_of(rows))
    ]
    env_spec = _writable(env_spec)
    try:
        with _minari_folders.undone_if_it_fails(folder), warnings.catch_warnings():
            # It asks for an author, a link to code and the like.
            warnings.simplefilter("ignore", UserWarning)
            made = minari.create_dataset_from_buffers(
                name,
                buffers,
                eval_env=env_spec,
                observation_space=spaces[0],
                action_space=spaces[1],
                algorithm_name=algorithm or None,
                description=description or None,
                data_format="hdf5",
                jpeg_encoding=False,
            )
            if env_spec is not None:  # given as `env`, it would be made to be looked at
                made.storage.update_metadata({"env_spec": env_spec.to_json()})
    except ValueError as error:
        raise ValueError(
            f"`write_minari`: `name` expected one of a new set; got {name!r}: {error}"
        ) from error
    return pathlib.Path(made.storage.data_path).parent


def _check_rows(rows: Mapping[str, Any], spaces: tuple[gym.Space, gym.Space]) -> None:
    """Raises unless rows are what a set of Minari can hold."""
    expected = "`write_minari`: `rows` expected"
    row_checks.check_names(expected, rows, (*_LEARNED, "next_observations"))
    _row_columns.check("write_minari", "rows", rows)
    n_rows = len(rows["rewards"])
    if not n_rows:
        raise ValueError(f"{expected} a row at least; got none")
    row_checks.check_played(expected, rows, spaces)
    row_checks.as_float32(expected, "rewards", np.asarray(rows["rewards"]))
    goes_on = ~np.asarray(rows["terminated"] | rows["truncated"])[:-1]
    pairs = (
        gym_checks.leaves_of(rows[x]) for x in ("next_observations", "observations")
    )
    for then, now in zip(*pairs, strict=True):
        differs = (then[:-1] != now[1:]).reshape(n_rows - 1, -1).any(-1)
        apart = goes_on & differs
        if apart.any():
            raise ValueError(
                f"{expected} `next_observations` of a row that are the observations of "
                "the next, unless an episode ends; got others in row "
                f"{np.flatnonzero(apart)[0]}; put rows in order, and mark as "
                "`truncated` where episodes are cut off"
            )


def _check_keys(spaces: Sequence[gym.Space]) -> None:
    """Raises unless Minari reads the keys of Dict spaces as they were."""
    for space in spaces:
        if not isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
            continue
        is_dict = isinstance(space, gym.spaces.Dict)
        for key in space if is_dict else ():
            if "/" in str(key):
                raise ValueError(
                    "`write_minari`: `spaces` expected keys without '/', at which "
                    f"Minari parts them; got {key!r}; rename it, or use `write_npz`"
                )
        _check_keys([*(space.values() if is_dict else space)])


def _writable(env_spec: Any) -> Any:
    """A spec that is written as JSON; None, with a warning, of another."""
    try:
        if env_spec is not None:
            env_spec.to_json()
    except (ValueError, TypeError) as error:
        warnings.warn(
            f"`write_minari`: `env_spec` expected one that can be written; got {error} "
            "The set is written without it; to have it there, register the environment "
            "by a text, 'module:Class'",
            stacklevel=3,
        )
        return None
    return env_spec


def _rows_of(episode: Any) -> dict[str, Any]:
    """The rows of one episode of Minari."""
    n_rows = len(episode.rewards)
    seen = gym_checks.mapped(np.asarray, episode.observations)
    return _row_columns.of_episode(
        gym_checks.mapped(lambda x: x[:n_rows], seen),
        gym_checks.mapped(lambda x: x[1 : n_rows + 1], seen),
        gym_checks.mapped(np.asarray, episode.actions),
        np.asarray(episode.rewards, np.float32),
        np.asarray(episode.terminations, bool),
        np.asarray(episode.truncations, bool),
    )


def _episodes_of(rows: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What Minari keeps of each episode."""
    ended = np.array(rows["terminated"] | rows["truncated"])
    ended[-1] = True
    start = 0
    for stop in (np.flatnonzero(ended) + 1).tolist():
        part = {
            name: gym_checks.mapped(operator.itemgetter(slice(start, stop)), rows[name])
            for name in (*_LEARNED, "next_observations")
        }
        last = gym_checks.mapped(lambda x: x[-1:], part["next_observations"])
        truncated = np.array(part["truncated"])
        truncated[-1] |= not part["terminated"][-1]
        yield {
            "observations": _row_columns.joined([part["observations"], last]),
            "actions": part["actions"],
            "rewards": part["rewards"].tolist(),
            "terminations": part["terminated"].tolist(),
            "truncations": truncated.tolist(),
        }
        start = stop
