"""The state of one training run on disk: saved atomically, checked before it is used.

A run directory holds `run.lock` (who works here) and one folder per saved step:

    <directory>/checkpoints/step-<N>/arrays.index, arrays.data-00000-of-00001
                                     metadata.json
                                     manifest.json

It is that of a `Checkpointer` of one item, `state`, under other names.
"""

import contextlib
import os
import pathlib
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from tfrl._internal import checks, durable, named_arrays, sealed_folder
from tfrl.saving import _checkpoint_files, _checkpointed, _layer_paths, typed_json

# In format 1 arrays are called as `named_arrays` calls them, in files `state.*`.
_OF_OLD, _STATE = {"step": int, "arrays": _checkpoint_files.LIKE["arrays"]}, "state"
_FOLDERS = sealed_folder.StepFolders(
    "step-", "manifest.json", {1: _OF_OLD, 2: _checkpoint_files.LIKE}
)


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
    checks.check_whole_number("save_run", "keep", keep, low=1)
    return _save(directory, step, state, metadata, keep)


def _save(
    directory: durable.Path,
    step: int,
    state: Any,
    metadata: Mapping[str, Any],
    keep: int,
) -> pathlib.Path:
    where = "save_run"
    step = checks.check_whole_number(where, "step", step, low=0)
    checks.check_eager(where)
    checks.check_type(where, "metadata", metadata, Mapping, "a dictionary")
    parts = _checkpointed.Parts(where, {_STATE: state}, nests=[_STATE])
    text = typed_json.to_json(dict(metadata))
    run = checks.as_path(where, "directory", directory)
    folder = run / "checkpoints"

    def write(path: pathlib.Path, _: object) -> tuple[dict[str, Any], Sequence[str]]:
        return _checkpoint_files.write(parts, path, None, text)

    with durable.explain_refusals(where, "directory", run):
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            durable.flush_to_disk(folder.parent)
        return _FOLDERS.save(where, folder, step, keep, None, write)


def save_best(
    directory: durable.Path, step: int, state: Any, metadata: Mapping[str, Any]
) -> pathlib.Path:
    """Saves a state in the place of all that were saved there before.

    A run that was resumed may come by a step once more, or by an earlier one. One of
    the states is on the disk at any moment: of the step once more the new one, for as
    long as its place is cleared, under the step after the last.

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
    steps = _FOLDERS.steps(folder)
    if step in steps:
        _save(directory, steps[-1] + 1, state, metadata, keep=0)
    return _save(directory, step, state, metadata, keep=0)


def load_run(
    directory: durable.Path,
    template: Any,
    step: int | None = None,
    beside: Callable[[int], object] | None = None,
) -> tuple[Any, dict[str, Any], int]:
    """Reads a saved state back, after checking every byte and every shape of it.

    Without `step` the newest undamaged step is read; each damaged one passed over is
    reported by a `UserWarning`. A step of another agent or shape is never passed over.

    Args:
        directory: folder of the run.
        template: nest of the structure that was saved; only names, shapes and dtypes
            of its leaves are used, so `tf.TensorSpec` leaves do. Layers are known as
            `Checkpointer` knows them.
        step: the one step to read, or `None` for the newest.
        beside: takes a step and reads what was saved beside it; a step of which it
            raises an `OSError`, or that something is damaged, counts as damaged.

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
    where = "load_run"
    if step is not None:
        step = checks.check_whole_number(where, "step", step, low=0)
    checks.check_eager(where)
    parts = _checkpointed.Parts(where, {_STATE: template}, nests=[_STATE])
    folder = checks.as_path(where, "directory", directory) / "checkpoints"
    values: list[Any] = []
    metadata: dict[str, Any] = {}

    def read(path: pathlib.Path, body: Mapping[str, Any]) -> None:
        missing: Sequence[str] = ()
        if body["format"] == 1:
            leaves = named_arrays.name_arrays(template)
            old = named_as_saved(leaves, body["arrays"], template)
            chosen = dict(zip(parts.arrays, old, strict=True))
        else:
            chosen, missing, _ = _checkpoint_files.match(where, path, parts, body)
        here = {saved: name for name, saved in chosen.items()}
        found = named_arrays.array_differences(
            {here.get(name, name): facts for name, facts in body["arrays"].items()},
            named_arrays.describe_arrays(parts.arrays),
        )
        if missing and not found:  # though all names are there
            layers = _layer_paths.named(parts.paths[name] for name in missing)
            found = f"other layers at {_layer_paths.listed(missing)}{layers}"
        if found:
            raise ValueError(
                f"`{where}`: `template` expected the arrays saved in {path}; got a "
                f"checkpoint of another agent or shape: {found}; build the agent as "
                "it was when it was saved"
            )
        arrays = {saved: parts.arrays[name] for name, saved in chosen.items()}
        files = path / (_STATE if body["format"] == 1 else _checkpoint_files.ARRAYS)
        loaded = named_arrays.read_arrays(str(files), arrays)
        values[:] = [loaded[chosen[name]] for name in parts.immutable[_STATE]]
        metadata.clear()
        metadata.update(_checkpoint_files.read_metadata(path))
        if beside is not None:
            beside(body["step"])

    with durable.shared_folder(folder, reading=True):
        steps = _FOLDERS.steps(folder)
        chosen = steps[::-1] if step is None else [x for x in steps if x == step]
        if not chosen and step is None:
            raise ValueError(
                f"`{where}`: `directory` expected a folder with a saved step; got "
                f"none in {folder}"
            )
        if not chosen:
            raise ValueError(
                f"`{where}`: `step` expected one of {steps}, saved in {folder}; got "
                f"{step}"
            )
        paths = [_FOLDERS.path(folder, each) for each in chosen]
        step = _FOLDERS.use(where, paths, read)["step"]
    return tf.nest.pack_sequence_as(template, values), metadata, step


def named_as_saved(
    leaves: dict[str, Any], saved: Iterable[str], nest: Any
) -> dict[str, Any]:
    """Returns leaves by the names in a file, if only numbers of Keras differ.

    Keras numbers layers that were given no name, through all that a process makes.

    Args:
        leaves: by their names now.
        saved: names in the file.
        nest: whose leaves they are; its layers, also of one's own classes, are those
            that may have been given no name.

    Returns:
        The leaves in their order; by their own names if others differ too.

    Example:
        >>> named_as_saved({"net/dense_7/bias": 1}, ["net/dense/bias"], {})
        {'net/dense/bias': 1}
    """
    dotted = {re.sub("/|~1", ".", name): name for name in saved}
    if {*leaves} == {*dotted.values()}:
        return leaves
    words = [re.sub("/|~1", ".", name) for name in leaves]
    counted = _checkpointed.Parts("load", {_STATE: nest}, nests=[_STATE]).counted
    found = _layer_paths.matched_texts(words, [*dotted], counted)
    if not found:
        return leaves
    renamed = (dotted[found[name]] for name in words)
    return dict(zip(renamed, leaves.values(), strict=True))


def drop_step(directory: durable.Path, step: int) -> None:
    """Removes a saved step.

    Args:
        directory: folder of a run.
        step: its number; need not exist.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = save_run(folder, 10, {}, {})
        >>> drop_step(folder, 10)
        >>> list_steps(folder)
        []
    """
    folder = checks.as_path("drop_step", "directory", directory) / "checkpoints"
    with durable.shared_folder(folder):
        if step in _FOLDERS.steps(folder):
            durable.remove_folder(_FOLDERS.path(folder, step))


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
    folder = checks.as_path("list_steps", "directory", directory) / "checkpoints"
    return [
        step
        for step in _FOLDERS.steps(folder)
        if (_FOLDERS.path(folder, step) / _FOLDERS.manifest).is_file()
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
        self._directory = checks.as_path("RunLock", "directory", directory)
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
            durable.lock_file(file, wait=False)
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

    def check(self) -> None:
        """Makes sure that the folder is where it was locked, if this has the lock.

        Raises:
            ValueError: if it was moved or removed.
        """
        if self._file is None:
            return
        if not durable.is_at(self._directory / "run.lock", self._file):
            raise ValueError(
                f"`RunLock`: `directory` expected the folder of the run where it was; "
                f"got {self._directory}, moved or removed (or its run.lock) while it "
                "trained; go on where it is now by `tfrl --resume NEW`, from the last "
                "checkpoint in it"
            )

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """A context that writes to the folder; checks it, also if it goes meanwhile."""
        self.check()
        try:
            yield
        except FileNotFoundError:
            self.check()
            raise

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


durable.call_in_forked_children(RunLock._leave_to_parent)
