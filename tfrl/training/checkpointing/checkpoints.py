"""The state of one training run on disk: saved atomically, checked before it is used.

A run directory holds `run.lock` (who works here) and one folder per saved step:

    <directory>/checkpoints/step-<N>/state.index, state.data-00000-of-00001
                                     metadata.json
                                     manifest.json

`state.*` is a TensorFlow checkpoint with one entry per array, named by its place in
the nest (`_named_arrays`). `metadata.json` is `_typed_json` text. `manifest.json` comes
last and holds the SHA-256 digests of the others. A folder is written under another
name, flushed to disk and then renamed (`tfrl.core.durable`), so that a process killed
at any moment leaves the steps that were complete before.
"""

import contextlib
import os
import pathlib
import re
import socket
import warnings
from collections.abc import Mapping
from typing import Any, Self

import tensorflow as tf

from tfrl.core import checks, durable, file_locks, regular_files
from tfrl.training.checkpointing import (
    _keras_names,
    _named_arrays,
    _refusals,
    _sealed_folder,
)
from tfrl.training.serializing import _typed_json

_FORMAT = 1
_MANIFEST = "manifest.json"
_METADATA = "metadata.json"
_STATE = "state"
_LIKE = {"step": int, "arrays": {str: ([str, [(int, None)]], [str, None], None)}}
_PART = re.compile(r"/|~1")
_STEP_FOLDER = re.compile(r"step-(0|[1-9][0-9]*)")


def save_run(
    directory: durable.Path,
    step: int,
    state: Any,
    metadata: Mapping[str, Any],
    keep: int = 3,
) -> pathlib.Path:
    """Saves a run's state so that a kill at any moment loses nothing saved before.

    When the function returns, the step is on the disk, not only in its cache. Then
    the oldest steps beyond `keep` are removed. What a killed save left behind is
    removed first.

    Args:
        directory: folder of the run; created if missing.
        step: number of the step, >= 0 and greater than every step saved before.
        state: nest of tensors, variables or numpy arrays (dictionaries, tuples,
            `PyTreeNode`s) of any dtype; `None` leaves are kept.
        metadata: everything else, as nests of Python numbers, strings, bytes and numpy
            arrays: counters, states of random generators, names.
        keep: how many steps stay, >= 1.

    Returns:
        The folder of the saved step.

    Raises:
        TypeError: if a leaf of `state` is no array or `metadata` holds a foreign type.
        ValueError: if `step` or `keep` is out of range or `step` is not the newest.
        OSError: if the disk refuses; the steps saved before stay as they are.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> save_run(folder, 10, {"w": tf.ones([2])}, {"episodes": 3}).name
        'step-10'
        >>> load_run(folder, {"w": tf.zeros([2])})[1:]
        ({'episodes': 3}, 10)
    """
    step = checks.check_whole_number("save_run", "step", step, low=0)
    checks.check_whole_number("save_run", "keep", keep, low=1)
    _refusals.check_eager("save_run")
    if not isinstance(metadata, Mapping):
        raise TypeError(
            f"`save_run`: `metadata` expected a dictionary; got {metadata!r}; put it "
            "into one"
        )
    leaves = _named_arrays.name_arrays(state)
    text = _typed_json.to_json(dict(metadata))
    run = _refusals.as_path("save_run", "directory", directory)
    folder = run / "checkpoints"
    with _refusals.explained("save_run", "directory", run):
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            durable.flush_to_disk(folder.parent)
        _save_step(folder, step, leaves, text, keep)
    return folder / f"step-{step}"


def save_best(
    directory: durable.Path, step: int, state: Any, metadata: Mapping[str, Any]
) -> pathlib.Path:
    """Saves a state in the place of all that were saved there before.

    A run that was resumed may come by a step once more, or by an earlier one.

    Args:
        directory: as of `save_run`, with nothing else in it.
        step: as of `save_run`.
        state: as of `save_run`.
        metadata: as of `save_run`.

    Returns:
        As `save_run`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = save_best(folder, 10, {"w": tf.ones([2])}, {})
        >>> save_best(folder, 10, {"w": tf.ones([2])}, {}).name
        'step-10'
    """
    folder = pathlib.Path(directory) / "checkpoints"
    for old in _steps_in(folder) if folder.is_dir() else []:
        if old >= step:
            durable.remove_folder(folder / f"step-{old}")
    return save_run(directory, step, state, metadata, keep=1)


def _save_step(
    folder: pathlib.Path, step: int, leaves: dict[str, Any], text: str, keep: int
) -> None:
    with durable.shared_folder(folder):
        _make_newest(folder, step)
        with durable.new_folder(folder / f"step-{step}") as temporary:
            _write_step(temporary, step, leaves, text)
        for old in _steps_in(folder)[:-keep]:
            durable.remove_folder(folder / f"step-{old}")


def load_run(
    directory: durable.Path, template: Any, step: int | None = None
) -> tuple[Any, dict[str, Any], int]:
    """Reads a saved state back, after checking every byte and every shape of it.

    Without `step` the newest undamaged step is read; each damaged one passed over is
    reported by a `UserWarning`. A step of another agent or shape is never passed over.

    Args:
        directory: folder of the run.
        template: nest of the structure that was saved; only names, shapes and dtypes
            of its leaves are used, so `tf.TensorSpec` leaves do. Of names that Keras
            gave to layers the numbers may differ, not the order.
        step: the one step to read, or `None` for the newest.

    Returns:
        `(state, metadata, step)`; `state` has the structure of `template`, with numpy
        arrays where `template` has them and tensors elsewhere.

    Raises:
        ValueError: if there is no such step, if it (or every step) is damaged, or if
            its names, shapes or dtypes differ from the template's.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = save_run(folder, 1, (np.arange(3),), {})
        >>> load_run(folder, (np.zeros(3, int),))
        ((array([0, 1, 2]),), {}, 1)
    """
    if step is not None:
        step = checks.check_whole_number("load_run", "step", step, low=0)
    _refusals.check_eager("load_run")
    leaves = _named_arrays.name_arrays(template)
    folder = _refusals.as_path("load_run", "directory", directory) / "checkpoints"
    with durable.shared_folder(folder, reading=True):
        if step is None:
            step, manifest = _newest_undamaged(folder)
        else:
            manifest = _requested(folder, step)
        chosen = folder / f"step-{step}"
        leaves = _as_saved(leaves, manifest["arrays"])
        found = _named_arrays.array_differences(
            manifest["arrays"], _named_arrays.describe_arrays(leaves)
        )
        if found:
            raise ValueError(
                f"`load_run`: `template` expected the arrays saved in {chosen}; got a "
                f"checkpoint of another agent or shape: {found}; build the agent as "
                "it was when it was saved"
            )
        values = _named_arrays.read_arrays(str(chosen / _STATE), leaves)
        text = regular_files.read_file(chosen / _METADATA)
    state = tf.nest.pack_sequence_as(template, list(values.values()))
    return state, _metadata(chosen, text), step


def _as_saved(leaves: dict[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Returns leaves by the names on the disk, if only numbers of Keras differ.

    Keras numbers layers that were given no name, through all that a process makes.
    """
    if leaves.keys() == saved.keys():
        return leaves
    here, there = (
        _keras_names.renumbered([_PART.sub(".", name) for name in names], own=False)
        for names in (leaves, saved)
    )
    known = dict(zip(there, saved, strict=True))
    if {*here} != {*there} or len(known) < max(len(leaves), len(saved)):
        return leaves
    return {known[name]: leaf for name, leaf in zip(here, leaves.values(), strict=True)}


def list_steps(directory: durable.Path) -> list[int]:
    """Lists the steps that were saved to their end, oldest first.

    Whether they are undamaged is only found out by `load_run`.

    Args:
        directory: folder of a run; need not exist.

    Returns:
        The step numbers, ascending.

    Example:
        >>> list_steps("no/such/run")
        []
    """
    folder = pathlib.Path(directory) / "checkpoints"
    return [
        step
        for step in _steps_in(folder)
        if (folder / f"step-{step}" / _MANIFEST).is_file()
    ]


def latest_step(directory: durable.Path) -> int | None:
    """Returns the newest of `list_steps`, or `None` if nothing was saved.

    Args:
        directory: folder of a run; need not exist.

    Returns:
        A step number or `None`.

    Example:
        >>> latest_step("no/such/run") is None
        True
    """
    return max(list_steps(directory), default=None)


class RunLock:
    """Keeps a second process out of a run directory.

    The lock is the operating system's lock on the file `run.lock`, so it ends with
    its process, however that ends; the file itself stays and names the last holder.
    Children forked by the holder do not inherit the lock.

    Args:
        directory: folder of the run; created on entry if missing.

    Example:
        >>> import tempfile
        >>> with RunLock(tempfile.mkdtemp()):
        ...     pass
    """

    _held: set[int] = set()

    def __init__(self, directory: durable.Path) -> None:
        self._directory = _refusals.as_path("RunLock", "directory", directory)
        self._file: int | None = None

    def __enter__(self) -> Self:
        """Takes the lock.

        Raises:
            ValueError: if another holder has it (the message names its process and
                host) or if the directory cannot be written.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            file = os.open(self._directory / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ValueError(
                f"`RunLock`: `directory` expected a folder that can be written; got "
                f"{self._directory} ({error.strerror}); choose another one"
            ) from error
        try:
            file_locks.lock_file(file, wait=False)
        except BlockingIOError as error:
            holder = os.read(file, 4096).decode("utf-8", "replace").strip()
            os.close(file)
            raise ValueError(
                f"`RunLock`: `directory` expected no other run at work in it; got "
                f"{self._directory}, held by {holder}; stop that process or choose "
                "another directory"
            ) from error
        os.ftruncate(file, 0)
        os.write(file, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
        self._file = file
        self._held.add(file)
        return self

    def __exit__(self, *exception: object) -> None:
        """Gives the lock back."""
        if self._file in self._held:
            self._held.discard(self._file)
            os.close(self._file)
        self._file = None

    @classmethod
    def _leave_to_parent(cls) -> None:
        # A forked environment worker can outlive a killed trainer; a copy of the
        # file in its hands would keep the run locked.
        for file in cls._held:
            os.close(file)
        cls._held.clear()


file_locks.call_in_forked_children(RunLock._leave_to_parent)


def _steps_in(folder: pathlib.Path) -> list[int]:
    if not folder.is_dir():
        return []
    matches = (_STEP_FOLDER.fullmatch(entry.name) for entry in folder.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def _make_newest(folder: pathlib.Path, step: int) -> None:
    """Makes sure that no step as late as `step` is in the way."""
    for later in [saved for saved in reversed(_steps_in(folder)) if saved >= step]:
        try:
            _checked_manifest(folder / f"step-{later}")
        except _sealed_folder.DamageError as damage:
            warnings.warn(
                f"`save_run`: {folder / f'step-{later}'} is damaged ({damage}) and "
                f"not older than step {step}; removing it",
                stacklevel=4,
            )
            durable.remove_folder(folder / f"step-{later}")
        else:
            raise ValueError(
                f"`save_run`: `step` expected a step after {later}, which is saved in "
                f"{folder}; got {step}; resume from step {later} or remove its folder"
            )


def _write_step(
    folder: pathlib.Path, step: int, leaves: dict[str, Any], metadata: str
) -> None:
    _named_arrays.write_arrays(str(folder / _STATE), leaves)
    (folder / _METADATA).write_bytes(metadata.encode("ascii"))
    body = {
        "format": _FORMAT,
        "step": step,
        "arrays": _named_arrays.describe_arrays(leaves),
    }
    _sealed_folder.seal(folder, _MANIFEST, body)


def _checked_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """Reads a step's manifest and compares every file with it."""
    body = _sealed_folder.unseal(folder, _MANIFEST, {_FORMAT: _LIKE})
    if body["format"] != _FORMAT:
        raise ValueError(
            f"`load_run`: `directory` expected checkpoints of format {_FORMAT}; got "
            f"format {body['format']} in {folder}; use the tfrl that wrote it"
        )
    if folder.name != f"step-{body['step']}":
        raise _sealed_folder.DamageError(f"it holds step {body['step']}")
    _sealed_folder.compare_files(folder, body)
    return body


def _metadata(folder: pathlib.Path, text: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        metadata = _typed_json.from_json(text)
        if isinstance(metadata, dict):
            return metadata
    raise ValueError(
        f"`load_run`: `directory` expected metadata as `save_run` writes them; got "
        f"others in {folder / _METADATA}; pass another step"
    )


def _newest_undamaged(folder: pathlib.Path) -> tuple[int, dict[str, Any]]:
    steps = _steps_in(folder)
    for step in reversed(steps):
        try:
            return step, _checked_manifest(folder / f"step-{step}")
        except _sealed_folder.DamageError as damage:
            warnings.warn(
                f"`load_run`: {folder / f'step-{step}'} is damaged ({damage}); "
                "trying the next older step",
                stacklevel=3,
            )
    raise ValueError(
        f"`load_run`: `directory` expected an undamaged checkpoint; got "
        f"{'only damaged ones' if steps else 'none'} in {folder}; start the run anew"
    )


def _requested(folder: pathlib.Path, step: int) -> dict[str, Any]:
    if step not in _steps_in(folder):
        raise ValueError(
            f"`load_run`: `step` expected one of {_steps_in(folder)}; got {step!r}; "
            f"these are the steps in {folder}"
        )
    try:
        return _checked_manifest(folder / f"step-{step}")
    except _sealed_folder.DamageError as damage:
        raise ValueError(
            f"`load_run`: `step` expected an undamaged checkpoint; got {step} of "
            f"{folder}, damaged ({damage}); pass another step, or None for the newest"
        ) from damage
