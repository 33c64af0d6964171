"""Objects of any kind, saved under the number of a step and loaded in place.

A checkpoint is a folder that appears when it is complete:

    <ckpt_dir>/ckpt-<N>/arrays.index, arrays.data-00000-of-00001   as TensorFlow writes
                        metadata.json                              of `typed_json`
                        replay/                                    of `tfrl.replay.save`
                        structure.json

`structure.json` names every part, its path through layers, every array with dtype and
shape, and holds the SHA-256 of the files beside it, of the manifest of `replay` and its
own. The bytes of `replay` that did not change since the checkpoint before are shared
with it. The steps of a training run are such folders, too: see `checkpoints`.
"""

import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl._internal import (
    adapted_layers,
    checks,
    durable,
    named_arrays,
    sealed_folder,
)
from tfrl.replay.disk import saving
from tfrl.saving import (
    _checkpoint_files,
    _checkpointed,
    _layer_paths,
    checkpoints,
    typed_json,
)

# Format 1 has no paths, and names that only `_layer_paths.of_parts` knows.
_LIKE = {**_checkpoint_files.LIKE, "score": (float, None)}
_OF_OLD = {name: like for name, like in _LIKE.items() if name != "paths"}
_FOLDERS = sealed_folder.StepFolders("ckpt-", "structure.json", {1: _OF_OLD, 2: _LIKE})


class Checkpointer:
    """Saves and loads a set of named objects.

    Of a `tf.Module`, a Keras layer, model, metric or optimizer, a dictionary, list or
    tuple, or any other object, everything is found that is reached by attributes, keys
    and indices: variables, the generators of TensorFlow and NumPy, the buffers of
    `tfrl.replay`. A load assigns to them.

    A `PyTreeNode` (an agent, a `TrainState`) and a nest of tensors or NumPy arrays
    cannot be assigned to. `save` takes its present value, and `load` leaves the loaded
    one at `checkpointer[name]`.

    Names join attributes, keys and indices by dots and begin with that of the item:
    `agent.critics.0.kernel`. A layer in a list or model that has a name is known by it,
    as `agent.net.fc_2.kernel`; one without by its index, and in a model by its class
    and its place among those of that class, as `agent.net.dense_1.kernel`. Where both
    sides have named a layer, the names must be equal, letter by letter. Keras does not
    say which names it made: those count as made by it that it can have made in this
    process for a layer of this class, such as `dense_3` after three layers `Dense`.

    Whatever is named `optimizer`, `replay_buffer` or `data_transformer`, also in the
    plural or with something before it (`opt_state` counts, too), and every Keras
    optimizer and buffer, can be left out of a load.

    Optimizers have to be built, also for a load: their variables are there only then.

    The folder of a run, of `Trainer` or of `AgentModel.fit`, is read too: its agent, by
    an item like it, whatever its name.

    Args:
        ckpt_dir: folder of the checkpoints, created if missing; or that of a run.
        **kwargs: the objects by name.

    Attributes:
        metadata: of the checkpoint that was loaded last.
        missing: names that the last load expected and did not find.
        unexpected: names that it found and nothing took.

    Raises:
        TypeError: if there is nothing to save in an object, or it would be lost.
        ValueError: if the folder cannot be made, or a name is taken.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> module = tf.Module()
        >>> module.scale = tf.Variable(2.0)
        >>> Checkpointer(folder, net=module).save(10).name
        'ckpt-10'
        >>> _ = module.scale.assign(5.0)
        >>> Checkpointer(folder, net=module).load(), float(module.scale)
        (10, 2.0)
    """

    def __init__(self, ckpt_dir: durable.Path, **kwargs: Any) -> None:
        where = "Checkpointer"
        taken = sorted({"score", "keep", "global_step", "metadata"} & set(kwargs))
        if not kwargs or taken:
            raise ValueError(
                f"`{where}`: `kwargs` expected objects by names that `save` does not "
                f"have; got {taken or 'none'}; name them otherwise"
            )
        self._items = dict(kwargs)
        _checkpointed.Parts(where, self._items)
        self._folder = checks.as_path(where, "ckpt_dir", ckpt_dir)
        self._damaged: dict[pathlib.Path, str] = {}
        self.metadata: dict[str, Any] = {}
        self.missing: tuple[str, ...] = ()
        self.unexpected: tuple[str, ...] = ()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"`{where}`: `ckpt_dir` expected a folder that can be made; got "
                f"{self._folder} ({error.strerror}); choose another one"
            ) from error

    def __getitem__(self, name: str) -> Any:
        """Returns an object; an immutable one as it was last saved or loaded."""
        return self._items[name]

    def has_checkpoint(self, global_step: int | str = "latest") -> bool:
        """Tells whether there is a checkpoint.

        Args:
            global_step: number of a step; "latest" for any; "best" for any that was
                saved with a score.

        Returns:
            Whether there is one.
        """
        meant = self._meant("Checkpointer.has_checkpoint", global_step)
        return bool(meant or self._steps_of_run(global_step))

    def save(
        self,
        global_step: int,
        score: float | None = None,
        keep: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> pathlib.Path:
        """Saves everything; when it returns, all is on the disk.

        Of buffers, what changed since the checkpoint before is written; the rest is
        shared with it, by hard links (where the disk has none, all is written). So a
        damage of the disk can be one of several checkpoints.

        Args:
            global_step: number of training steps, greater than every one saved; if
                the last `load` found later ones damaged, they are removed.
            score: how good it is, more is better; for `load("best")`.
            keep: how many of the newest checkpoints stay, beside the best; None for
                all.
            metadata: whatever else belongs to the step, as nests of Python numbers,
                strings, bytes and NumPy arrays; `load` leaves it at `metadata`.
            **kwargs: the present value of every immutable item.

        Returns:
            The folder of the checkpoint.

        Raises:
            OSError: if the disk refuses; the checkpoints before stay as they are.
            TypeError: if an object has become something that cannot be saved, or
                `metadata` holds what it cannot.
            ValueError: if a number is out of range, an immutable item is left out, or
                the call is inside `tf.function`.
        """
        where = "Checkpointer.save"
        checks.check_eager(where)
        step = checks.check_whole_number(where, "global_step", global_step, low=0)
        if keep is not None:
            keep = checks.check_whole_number(where, "keep", keep, low=1)
        if score is not None:
            checks.check_rank(where, "score", score, exact=0)
            checks.check_finite(where, "score", score)
            score = float(score)
        facts = {} if metadata is None else metadata
        checks.check_type(where, "metadata", facts, Mapping, "a dictionary")
        text = typed_json.to_json(dict(facts))
        items = {**self._items, **kwargs}
        parts = _checkpointed.Parts(where, items)
        immutable = sorted(self._items.keys() & parts.immutable.keys())
        if sorted(kwargs) != immutable:
            example = ", ".join(["step", *(f"{name}={name}" for name in immutable)])
            raise ValueError(
                f"`{where}`: `kwargs` expected the present values of {immutable}, "
                f"which are replaced by new ones as they learn; got {sorted(kwargs)}; "
                f"call save({example})"
            )

        def write(
            path: pathlib.Path, before: pathlib.Path | None
        ) -> tuple[dict[str, Any], Sequence[str]]:
            body, inner = _checkpoint_files.write(parts, path, before, text)
            return {**body, "score": score}, inner

        with durable.explain_refusals(where, "ckpt_dir", self._folder):
            known = self._damaged
            path = _FOLDERS.save(where, self._folder, step, keep, known, write)
        self._items = items
        return path

    def load(
        self,
        global_step: int | str = "latest",
        ignored_parameter_prefixes: Sequence[str] = (),
        including_optimizer: bool = True,
        including_replay_buffer: bool = True,
        including_data_transformers: bool = True,
        strict: bool = True,
    ) -> int:
        """Loads a checkpoint into the objects, or changes none of them.

        All digests, names, dtypes and shapes are compared before anything is changed.
        "latest" passes over a damaged checkpoint, with a `UserWarning`, to an older.

        Args:
            global_step: number of a step, "latest" or "best".
            ignored_parameter_prefixes: names, or beginnings of names up to a dot, that
                are not loaded: "agent.net" stands for "agent.net.kernel", not for
                "agent.nets".
            including_optimizer: whether to load optimizers.
            including_replay_buffer: whether to load buffers.
            including_data_transformers: whether to load data transformers.
            strict: whether names that are missing in the checkpoint, or there in
                excess, are an error; if not, they are listed in `missing` and
                `unexpected`.

        Returns:
            The step loaded; -1, with a `UserWarning`, if there is no such checkpoint.

        Raises:
            ValueError: if the checkpoint is damaged, names, dtypes or shapes differ, or
                the call is inside `tf.function`.
        """
        where = "Checkpointer.load"
        checks.check_eager(where)
        ignored = ignored_parameter_prefixes
        checks.check_texts(where, "ignored_parameter_prefixes", ignored)
        included = {
            "optimizer": including_optimizer,
            "replay_buffer": including_replay_buffer,
            "data_transformer": including_data_transformers,
            None: True,
        }
        parts = _checkpointed.Parts(where, self._items)
        if self._steps_of_run(global_step):
            is_whole = all(included.values()) and not ignored
            return self._load_run(where, global_step, parts, is_whole)

        def is_wanted(name: str, kind: str | None) -> bool:
            return included[kind] and not any(_is_part(name, x) for x in ignored)

        def read(path: pathlib.Path, body: dict[str, Any]) -> None:
            chosen, missing, unexpected = _checkpoint_files.match(
                where, path, parts, body, is_wanted
            )
            if strict and (missing or unexpected):
                layers = _layer_paths.named(parts.paths[n] for n in missing)
                raise ValueError(
                    f"`{where}`: `strict` expected the names of {path}; got missing "
                    f"there: {_layer_paths.listed(missing)}{layers}; unexpected "
                    f"there: {_layer_paths.listed(unexpected)}; build, and call, the "
                    "objects as they were saved, or pass strict=False"
                )
            different = _checkpoint_files.differences(parts, body, chosen)
            if different:
                raise ValueError(
                    f"`{where}`: `global_step` expected objects of the shapes in "
                    f"{path}; got others: {different}"
                )
            metadata = _checkpoint_files.read_metadata(path)
            self._read(path, parts, body, chosen)
            self.missing, self.unexpected, self.metadata = missing, unexpected, metadata

        with durable.shared_folder(self._folder, reading=True):
            paths = self._meant(where, global_step)
            if paths:
                loaded = int(_FOLDERS.use(where, paths, read)["step"])
                passed = paths[: paths.index(_FOLDERS.path(self._folder, loaded))]
                self._damaged = dict.fromkeys(passed, "as the last load found")
                return loaded
        warnings.warn(
            f"`{where}`: `global_step` expected a checkpoint; got {global_step!r}, "
            f"none in {self._folder}; nothing is loaded",
            stacklevel=2,
        )
        return -1

    def _meant(self, where: str, global_step: int | str) -> list[pathlib.Path]:
        """Returns the checkpoints of which the first undamaged one is meant."""
        steps = _FOLDERS.steps(self._folder)[::-1]
        if not isinstance(global_step, str):
            step = checks.check_whole_number(where, "global_step", global_step, low=0)
            steps = [each for each in steps if each == step]
        elif global_step != "latest":
            checks.check_one_of(where, "global_step", global_step, ("latest", "best"))
            best = _FOLDERS.best(self._folder)
            steps = [] if best is None else [best]
        return [_FOLDERS.path(self._folder, step) for step in steps]

    def _steps_of_run(self, global_step: int | str) -> list[int]:
        """Returns the steps meant of a run of `Trainer` or `fit` in the folder."""
        if _FOLDERS.steps(self._folder):
            return []
        folder = self._folder / "best" if global_step == "best" else self._folder
        steps = checkpoints.list_steps(folder)
        return [x for x in steps if isinstance(global_step, str) or x == global_step]

    def _load_run(
        self,
        where: str,
        global_step: int | str,
        parts: _checkpointed.Parts,
        is_whole: bool,
    ) -> int:
        """Loads the agent of a run."""
        name, *others = self._items
        if others or name not in parts.immutable or not is_whole:
            raise ValueError(
                f"`{where}`: `kwargs` expected the agent alone, and nothing left out, "
                f"as {self._folder} is a run; load all of it; got "
                f"{sorted(self._items)}; give `agent=` the agent"
            )
        folder = self._folder / "best" if global_step == "best" else self._folder
        step = None if isinstance(global_step, str) else global_step
        loaded = checkpoints.load_run(folder, self._items[name], step)
        self._items[name], self.metadata, found = loaded
        self.missing = self.unexpected = ()
        return found

    def _read(
        self,
        path: pathlib.Path,
        parts: _checkpointed.Parts,
        body: Mapping[str, Any],
        chosen: Mapping[str, str],
    ) -> None:
        """Reads everything, and then changes the objects."""

        def those_chosen(group: Mapping[str, Any]) -> dict[str, Any]:
            return {saved: group[n] for n, saved in chosen.items() if n in group}

        arrays = those_chosen(parts.arrays)
        read = named_arrays.read_arrays(str(path / _checkpoint_files.ARRAYS), arrays)
        values = {name: read[saved] for name, saved in chosen.items() if saved in read}
        generators = those_chosen(parts.generators)
        states = {
            name: _checkpoint_files.generator_state(body["generators"][name], generator)
            for name, generator in generators.items()
        }
        replays = _checkpoint_files.without_slashes(those_chosen(parts.replays))
        # If it raises, nothing was changed; what follows does not raise.
        if replays:
            saving.load(path / _checkpoint_files.REPLAY, replays)
        new = {**parts.arrays, **values}
        for item, names in parts.immutable.items():
            leaves = [new[name] for name in names]
            self._items[item] = tf.nest.pack_sequence_as(self._items[item], leaves)
        replaced = {name for names in parts.immutable.values() for name in names}
        for name in values.keys() - replaced:
            parts.arrays[name].assign(values[name])
        for layer in parts.layers:
            adapted_layers.renew(layer)
        for name, state in states.items():
            generators[name].bit_generator.state = state


def enable_checkpoint(module: Any, flag: bool = True) -> None:
    """Says whether a `Checkpointer` saves an object; by default it does.

    Args:
        module: module, layer, optimizer, buffer or other object.
        flag: False to pass over it and all that is reached through it alone.

    Raises:
        TypeError: if the object is immutable.

    Example:
        >>> module = tf.Module()
        >>> enable_checkpoint(module, False)
        >>> is_checkpoint_enabled(module)
        False
    """
    try:
        setattr(module, _layer_paths.SWITCH, flag)
    except AttributeError as error:
        raise TypeError(
            "`enable_checkpoint`: `module` expected an object that takes attributes; "
            f"got {type(module).__name__}"
        ) from error


def is_checkpoint_enabled(module: Any) -> bool:
    """Tells what `enable_checkpoint` said of an object.

    Args:
        module: the object.

    Returns:
        Whether a `Checkpointer` saves it.

    Example:
        >>> is_checkpoint_enabled(tf.Module())
        True
    """
    return _layer_paths.is_enabled(module)


def immutable_items(where: str, items: Mapping[str, Any]) -> list[str]:
    """Names the objects that cannot be loaded in place.

    Of those `Checkpointer.load` returns new ones: nests of tensors and numbers.

    Args:
        where: name of the function that asks, for messages.
        items: objects by name.

    Returns:
        Their names, sorted.

    Raises:
        TypeError: if an object cannot be saved at all.
        ValueError: if layers in it are not built.

    Example:
        >>> immutable_items("f", {"rate": tf.Variable(0.1), "step": np.array(3)})
        ['step']
    """
    return sorted(_checkpointed.Parts(where, dict(items)).immutable)


def extract_sub_state_dict_from_checkpoint(
    checkpoint_prefix: str, checkpoint_path: durable.Path
) -> dict[str, np.ndarray]:
    """Reads the arrays of a part of a checkpoint, without the objects.

    Args:
        checkpoint_prefix: name of the part, such as "agent.critics.0"; "" for all.
        checkpoint_path: folder of the checkpoint, such as "run/ckpt-100".

    Returns:
        The arrays by the rest of their names. An array that has the name itself is
        under the last word of it.

    Raises:
        ValueError: if there is no checkpoint, if it is damaged, or has no such part.

    Example:
        >>> import tempfile
        >>> module = tf.Module()
        >>> module.scales = {"a": tf.Variable(2.0)}
        >>> path = Checkpointer(tempfile.mkdtemp(), net=module).save(1)
        >>> extract_sub_state_dict_from_checkpoint("net.scales", path)
        {'a': np.float32(2.0)}
    """
    where = "extract_sub_state_dict_from_checkpoint"
    checks.check_texts(where, "checkpoint_prefix", [checkpoint_prefix])
    path = checks.as_path(where, "checkpoint_path", checkpoint_path)
    values: dict[str, Any] = {}

    def read(path: pathlib.Path, body: dict[str, Any]) -> None:
        found = {
            name: tf.TensorSpec(facts[1], facts[0])
            for name, facts in body["arrays"].items()
            if facts and _is_part(name, checkpoint_prefix)
        }
        if not found:
            tops = sorted({name.split(".")[0] for name in body["arrays"]})
            raise ValueError(
                f"`{where}`: `checkpoint_prefix` expected a part of {path}; got "
                f"{checkpoint_prefix!r}; its items are {tops}"
            )
        values.update(
            named_arrays.read_arrays(str(path / _checkpoint_files.ARRAYS), found)
        )

    _FOLDERS.use(where, [path], read)
    prefix = checkpoint_prefix.removesuffix(".")
    return {
        name.removeprefix(prefix).removeprefix(".") or prefix.split(".")[-1]: x.numpy()
        for name, x in values.items()
    }


def _is_part(name: str, prefix: str) -> bool:
    """Tells whether a name begins with the words of a prefix."""
    return not prefix or f"{name}.".startswith(f"{prefix.removesuffix('.')}.")
