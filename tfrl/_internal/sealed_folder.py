"""Texts and folders that are known by their digests, so that damage shows.

`sealed` texts and `digested` ones carry their SHA-256. A folder of a checkpoint is
filled under another name, sealed by a manifest that holds the digests of its files,
flushed to disk and then renamed (`durable`). So a process killed at any moment leaves
the steps that were complete before. `StepFolders` is what checkpoints of runs and of
objects have in common.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrl._internal import durable

_WORDS = "# SHA-256 of the lines below: "


class DamageError(ValueError):
    """Says what of a saved folder is not as it was written."""


# What a folder that was read in part raises if the disk did not keep it.
DAMAGE = (DamageError, OSError)


def sealed(body: Mapping[str, Any]) -> bytes:
    """Returns the text of a manifest in which a changed bit shows.

        {"sha256": digest of the JSON text of body, "manifest": body}

    Args:
        body: what JSON can hold.

    Returns:
        A line of ASCII; `unsealed` reads it.

    Raises:
        TypeError: if JSON cannot hold `body`.

    Example:
        >>> sealed({"format": 1})[-25:-1]
        b'"manifest":{"format":1}}'
    """
    text = json.dumps(body, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    return f'{{"sha256":"{digest}","manifest":{text}}}\n'.encode("ascii")


def unsealed(data: bytes, like: Any = None) -> Any:
    """Returns what `sealed` was given.

    Args:
        data: what `sealed` returned.
        like: what the body must look like, as nested types: `{"key": int}` for an
            object with that key, `{str: int}` for one of any keys, `[int]` for a list,
            `[int, str]` for one of two, `(int, None)` where one of several fits.

    Returns:
        The body, with the types that JSON has.

    Raises:
        ValueError: if the data is not, bit for bit, what `sealed` returned, or the body
            is not like that.

    Example:
        >>> unsealed(sealed({"format": 1}), {"format": int})
        {'format': 1}
    """
    body = None
    with contextlib.suppress(KeyError, RecursionError, TypeError, ValueError):
        body = json.loads(data)["manifest"]
    is_fit = like is None or fits(body, like)
    if body is None or not is_fit or sealed(body) != data:
        raise ValueError(
            f"`unsealed`: `data` expected as `sealed` wrote it; got {data[:40]!r}; "
            "take another copy"
        )
    return body


def fits(value: Any, like: Any) -> bool:
    """Tells whether a nest is like a pattern.

    Args:
        value: what `json.loads` returned.
        like: a type, of which ints are those from 0 to 2**63; None for null; a tuple
            of patterns of which one fits; `[item]` for a list of any length, `[first,
            second]` for one of that length; `{str: value}` for any object, `{"key":
            value}` for one with that key and maybe others.

    Returns:
        Whether it fits.

    Example:
        >>> fits({"step": 3, "score": None}, {"step": int, "score": (float, None)})
        True
        >>> fits({"step": -3}, {"step": int})
        False
    """
    if isinstance(like, tuple):
        return any(fits(value, each) for each in like)
    if isinstance(like, list) and isinstance(value, list):
        likes = like * len(value) if len(like) == 1 else like
        return len(value) == len(likes) and all(map(fits, value, likes))
    if isinstance(like, dict) and isinstance(value, dict):
        if str in like:
            return all(fits(each, like[str]) for each in value.values())
        return all(key in value and fits(value[key], like[key]) for key in like)
    if like is int:
        return type(value) is int and 0 <= value < 2**63
    return value is like is None or type(value) is like


def digested(text: str) -> bytes:
    """Returns the content of a file: the text below a comment with its digest."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{_WORDS}{digest}\n{text}".encode()


def has_digest(data: bytes) -> bool:
    """Whether a file begins with a digest, be it a wrong one."""
    return data.startswith(_WORDS.encode())


def is_intact(data: bytes) -> bool:
    """Whether a file is, bit for bit, what `digested` returned."""
    first, _, text = data.partition(b"\n")
    return first == f"{_WORDS}{hashlib.sha256(text).hexdigest()}".encode()


def _digests(folder: pathlib.Path, inner: Sequence[str]) -> dict[str, str]:
    """Computes the SHA-256 of the files of a folder, and of some in its folders."""
    names = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    return {name: _digest(folder / name) for name in (*names, *inner)}


def seal(
    folder: pathlib.Path,
    manifest: str,
    body: Mapping[str, Any],
    inner: Sequence[str] = (),
) -> None:
    """Writes a folder's manifest: `body`, and the digests of its files.

    Args:
        folder: with its files, the manifest not yet among them.
        manifest: name of the manifest.
        body: what else it holds, of the types that JSON has.
        inner: files in folders of the folder that count too, such as "folder/file".

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a").write_bytes(b"content")
        >>> seal(folder, "manifest.json", {"step": 1})
        >>> body = unseal(folder, "manifest.json")
        >>> compare_files(folder, body)
        >>> body["step"], list(body["files"])
        (1, ['a'])
    """
    data = sealed({**body, "files": _digests(folder, inner)})
    (folder / manifest).write_bytes(data)


def unseal(
    folder: pathlib.Path, manifest: str, likes: Mapping[int, Any] | None = None
) -> dict[str, Any]:
    """Reads the manifest that `seal` wrote, not the files.

    Args:
        folder: the folder.
        manifest: name of the manifest.
        likes: by the number of a format what a body of it looks like, as for
            `unsealed`; the body has the number then.

    Returns:
        The body, with "files".

    Raises:
        DamageError: if it is not there or not as it was written.

    Example:
        >>> unseal(pathlib.Path("no/such"), "manifest.json")
        Traceback (most recent call last):
        ...
        tfrl...DamageError: manifest.json cannot be read
    """
    try:
        data = durable.read_file(folder / manifest)
        body: dict[str, Any] = unsealed(data, {"files": {str: str}})
        if likes is not None:
            unsealed(data, {"format": int})
            unsealed(data, likes.get(body["format"]))
        return body
    except OSError as error:
        raise DamageError(f"{manifest} cannot be read") from error
    except ValueError as error:
        raise DamageError(f"{manifest} is not as it was written") from error


def compare_files(folder: pathlib.Path, body: Mapping[str, Any]) -> None:
    """Compares every file with the manifest.

    Args:
        folder: the folder.
        body: what `unseal` returned.

    Raises:
        DamageError: if a file is missing or not as it was written.

    Example:
        >>> compare_files(pathlib.Path("no/such"), {"files": {"a": ""}})
        Traceback (most recent call last):
        ...
        tfrl._internal.sealed_folder.DamageError: a cannot be read
    """
    for name, digest in body["files"].items():
        if pathlib.PurePath(name).is_absolute() or ".." in pathlib.PurePath(name).parts:
            raise DamageError(f"{name} is no file of the folder")
        try:
            intact = _digest(folder / name) == digest
        except (OSError, ValueError) as error:
            raise DamageError(f"{name} cannot be read") from error
        if not intact:
            raise DamageError(f"{name} is not as it was written")


def _digest(path: pathlib.Path) -> str:
    with durable.open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclasses.dataclass(frozen=True)
class StepFolders:
    """Checkpoints of one kind, each a folder that has its step in the name.

    Attributes:
        prefix: of the names of folders, before the step.
        manifest: name of the file that seals a folder.
        likes: by the number of a format what its manifests look like, as for
            `unsealed`; the last one is written.

    Example:
        >>> StepFolders("step-", "manifest.json", {1: {}}).steps(pathlib.Path("no"))
        []
    """

    prefix: str
    manifest: str
    likes: Mapping[int, Any]

    def path(self, folder: pathlib.Path, step: int) -> pathlib.Path:
        """Returns the folder of a step in the folder of all."""
        return folder / f"{self.prefix}{step}"

    def steps(self, folder: pathlib.Path) -> list[int]:
        """Lists the steps in a folder, ascending; it need not exist."""
        entries = folder.iterdir() if folder.is_dir() else ()
        found = map(self._step_of, entries)
        return sorted(step for step in found if step is not None)

    def best(self, folder: pathlib.Path) -> int | None:
        """Returns the step of the highest score, of equals the newest, if any has."""
        scores = []
        for step in self.steps(folder):
            with contextlib.suppress(DamageError):
                body = unseal(self.path(folder, step), self.manifest, self.likes)
                if body.get("score") is not None:
                    scores.append((body["score"], step))
        return max(scores)[1] if scores else None

    def checked(self, where: str, path: pathlib.Path) -> dict[str, Any]:
        """Reads the manifest of a step and compares every file with it.

        Those of buffers are compared when they are read.

        Args:
            where: name of the function that asks.
            path: of the step.

        Returns:
            What `write` of `save` returned, with "step" and "format".

        Raises:
            DamageError: if it is not as it was written.
            ValueError: if it is of another version.
        """
        body = unseal(path, self.manifest, self.likes)
        if body["format"] not in self.likes:
            raise ValueError(
                f"`{where}`: expected checkpoints of format {max(self.likes)}; got "
                f"format {body['format']} in {path}; use the tfrl that wrote it"
            )
        if self._step_of(path) not in (None, body["step"]):
            raise DamageError(f"it holds step {body['step']}")
        compare_files(path, body)
        return body

    def use(
        self,
        where: str,
        paths: Sequence[pathlib.Path],
        read: Callable[[pathlib.Path, dict[str, Any]], None],
    ) -> dict[str, Any]:
        """Passes the first step that is not damaged to a function.

        Args:
            where: name of the function that asks.
            paths: of steps, at least one.
            read: takes one of them and what `checked` returned.

        Returns:
            What `checked` returned of it.

        Raises:
            ValueError: if all are damaged, or one is of another version.
        """
        for path in paths:
            try:
                body = self.checked(where, path)
                read(path, body)
            except DAMAGE as damage:
                if len(paths) == 1:
                    raise ValueError(
                        f"`{where}`: expected an undamaged checkpoint; got {path}, "
                        f"damaged ({damage}); take another one"
                    ) from damage
                warnings.warn(
                    f"`{where}`: {path} is damaged ({damage}); trying an older one",
                    stacklevel=3,
                )
            else:
                return body
        raise ValueError(
            f"`{where}`: expected an undamaged checkpoint; got only damaged ones in "
            f"{paths[0].parent}"
        )

    def save(
        self,
        where: str,
        folder: pathlib.Path,
        step: int,
        keep: int | None,
        damaged: Mapping[pathlib.Path, str] | None,
        write: Callable[[pathlib.Path, pathlib.Path | None], tuple[Any, Sequence[str]]],
    ) -> pathlib.Path:
        """Saves a step; then removes the oldest, but the best.

        Args:
            where: name of the function that asks.
            folder: of all steps.
            step: greater than those in the folder, unless `keep` is 0.
            keep: how many of the newest stay; None for all; 0 for this one alone, which
                may be older than others.
            damaged: what is wrong with later steps, which are removed then; None to
                look at them.
            write: fills a folder; takes it, and that of the step before, if any;
                returns the body of the manifest and `inner` of `seal`.

        Returns:
            The folder of the step.

        Raises:
            ValueError: if there is a later step.
        """
        with durable.shared_folder(folder):
            if keep != 0:
                self._make_newest(where, folder, step, damaged)
            before = [self.path(folder, old) for old in self.steps(folder)[-1:]]
            path = self.path(folder, step)
            with durable.new_folder(path) as temporary:
                body, inner = write(temporary, before[0] if before else None)
                body = {"format": max(self.likes), "step": step, **body}
                seal(temporary, self.manifest, body, inner)
            if keep is not None:
                best = self.best(folder) if "score" in body else None
                steps = self.steps(folder)
                for old in steps[:-keep] if keep else steps:
                    if old not in (best, None if keep else step):
                        durable.remove_folder(self.path(folder, old))
                if keep == 0:  # or a later one may come back
                    durable.flush_to_disk(folder)
        return path

    def _make_newest(
        self,
        where: str,
        folder: pathlib.Path,
        step: int,
        damaged: Mapping[pathlib.Path, str] | None,
    ) -> None:
        """Makes sure that no step as late as `step` is in the way."""
        for late in [old for old in reversed(self.steps(folder)) if old >= step]:
            path = self.path(folder, late)
            found: object = None if damaged is None else damaged.get(path)
            if damaged is None:
                try:
                    self.checked(where, path)
                except DamageError as damage:
                    found = damage
            if found is None:
                raise ValueError(
                    f"`{where}`: expected a step after {late}, which is in {folder}; "
                    f"got {step}; remove that one first, or choose another folder"
                )
            warnings.warn(
                f"`{where}`: {path} is damaged ({found}) and not older than step "
                f"{step}; removing it",
                stacklevel=4,
            )
            durable.remove_folder(path)

    def _step_of(self, path: pathlib.Path) -> int | None:
        match = re.fullmatch(f"{self.prefix}(0|[1-9][0-9]*)", path.name)
        return int(match[1]) if match else None
