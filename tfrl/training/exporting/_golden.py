"""What an exported model said when it was made, kept inside it to be said again."""

import contextlib
import hashlib
import pathlib
import platform
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl.core import specs
from tfrl.training.serializing import _typed_json

_FORMAT = 1
_MEMBER = "tfrl_golden.json"
_ROWS, _STEPS = 8, 5
_MOST_BYTES = 1 << 28
_KINDS = {"tolerance": float, "xla_ops": list, "digests": dict, "endpoints": dict}
_PACKAGES = ("tfrl", "keras", "tensorflow_probability", "numpy")


def example(spec: tf.TensorSpec, rng: np.random.Generator) -> np.ndarray:
    """Returns an array within a spec, its first free axis 8 long and the others 5.

    Args:
        spec: of numbers, bounded or not.
        rng: what draws.

    Returns:
        The array. Without bounds, or between wide ones, floats are standard normal
        and integers 0 or 1; the first row has the numbers nearest to 0.

    Example:
        >>> spec = specs.BoundedTensorSpec([None, 2], tf.int64, 3, 4)
        >>> array = example(spec, np.random.default_rng(0))
        >>> array.shape, array.min(), array.max()
        ((8, 2), np.int64(3), np.int64(4))
    """
    free = [_ROWS, *[_STEPS] * spec.shape.rank]
    shape = [
        free[axis] if size is None else size for axis, size in enumerate(spec.shape)
    ]
    dtype = spec.dtype.as_numpy_dtype
    low: Any = np.float64(-np.inf)
    high: Any = np.float64(np.inf)
    if not spec.dtype.is_floating:
        low, high = np.int64(0), np.int64(1)
    if isinstance(spec, specs.BoundedTensorSpec):
        low, high = spec.minimum, spec.maximum
    if not spec.dtype.is_floating:
        first, last = (x.astype(object) for x in (low, high))
        counts = np.minimum(last - first, 1000).astype(np.int64) + 1
        offsets = rng.integers(0, np.broadcast_to(counts, shape))
        return np.asarray(np.broadcast_to(first, shape) + offsets).astype(dtype)
    low, high = (np.broadcast_to(x, shape).astype(np.float64) for x in (low, high))
    with np.errstate(all="ignore"):
        is_narrow = high - low < 1e3
        uniform = low + (high - low) * rng.random(shape)
    drawn = np.where(is_narrow, uniform, rng.standard_normal(shape))
    if spec.shape.rank and spec.shape[0] is None:
        drawn[0] = 0.0
    return np.clip(drawn, low, high).astype(dtype)


def examples(
    where: str,
    specifications: Mapping[str, tf.TensorSpec],
    given: Mapping[str, Any] | None,
) -> dict[str, np.ndarray]:
    """Returns what to call a function with: `given`, or drawn within its specs.

    Args:
        where: name of the function that exports.
        specifications: by the names of the inputs.
        given: arrays by name, or None.

    Returns:
        Arrays by name.

    Raises:
        ValueError: if names or shapes of `given` are others than those of the specs.

    Example:
        >>> list(examples("export", {"seed": tf.TensorSpec([2], tf.int32)}, None))
        ['seed']
    """
    if given is None:
        rng = np.random.default_rng(0)
        found = {}
        for name, spec in specifications.items():
            if name == "seed" and spec.dtype == tf.int32:
                bound = 2**31
                spec = specs.BoundedTensorSpec(
                    spec.shape, spec.dtype, -bound, bound - 1
                )
            found[name] = example(spec, rng)
        return found
    if set(given) != set(specifications):
        raise ValueError(
            f"`{where}`: `examples` expected an array for each of "
            f"{sorted(specifications)}; got {sorted(given)}; give all, or none"
        )
    arrays = {
        name: np.asarray(given[name], spec.dtype.as_numpy_dtype)
        for name, spec in specifications.items()
    }
    for name, spec in specifications.items():
        if not spec.shape.is_compatible_with(arrays[name].shape):
            raise ValueError(
                f"`{where}`: `examples` expected shape {spec.shape} of {name!r}; got "
                f"{list(arrays[name].shape)}; reshape it"
            )
    return arrays


def answers(
    function: Callable[..., Any], inputs: Mapping[str, Any], variables: Sequence[Any]
) -> dict[str, np.ndarray]:
    """Returns what a function says, and puts back the variables it changed.

    Args:
        function: from named tensors to named tensors.
        inputs: nests of arrays by name.
        variables: those that it may change.

    Returns:
        The outputs by name.

    Example:
        >>> count = tf.Variable(1.0)
        >>> answers(lambda x: {"y": count.assign_add(x)}, {"x": np.float32(2)}, [count])
        {'y': array(3., dtype=float32)}
        >>> float(count)
        1.0
    """
    before = [np.array(variable.numpy()) for variable in variables]
    try:
        outputs = function(**tf.nest.map_structure(tf.constant, dict(inputs)))
        return {
            name: np.array(tf.convert_to_tensor(value).numpy())
            for name, value in outputs.items()
        }
    finally:
        for variable, value in zip(variables, before, strict=True):
            if variable.numpy().tobytes() != value.tobytes():
                variable.assign(value)


def write(
    path: pathlib.Path,
    goldens: Mapping[str, Mapping[str, Any]],
    tolerance: float,
    xla_ops: Sequence[str] = (),
) -> None:
    """Puts inputs and outputs into an exported model, with digests of what is there.

    In a folder they are `assets.extra/tfrl_golden.json`, in a file a member of the zip
    archive that it is or that is appended to it.

    Args:
        path: folder or file.
        goldens: `inputs` and `outputs`, arrays by name, by endpoint.
        tolerance: that belongs to them.
        xla_ops: what only runs where XLA does.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> write(folder, {}, 1e-5)
        >>> read("verify", folder)["tolerance"]
        1e-05
    """
    text = _typed_json.to_json(
        {
            "format": _FORMAT,
            "versions": _versions(),
            "tolerance": float(tolerance),
            "xla_ops": list(xla_ops),
            "digests": digests(path),
            "endpoints": {name: dict(golden) for name, golden in goldens.items()},
        }
    )
    if path.is_dir():
        (path / "assets.extra").mkdir(exist_ok=True)
        (path / "assets.extra" / _MEMBER).write_text(text)
    else:
        with zipfile.ZipFile(path, "a") as archive:
            # Of the year 1980: no two exports differ by their time.
            member = zipfile.ZipInfo(_MEMBER)
            archive.writestr(member, text, zipfile.ZIP_DEFLATED)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "tensorflow": tf.__version__}
    for package in _PACKAGES:
        # A checkout on the path has no metadata.
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def read(where: str, path: pathlib.Path) -> dict[str, Any]:
    """Reads what `write` wrote.

    Args:
        where: name of the function that asks.
        path: folder or file.

    Returns:
        The record.

    Raises:
        ValueError: if there is none, or it is damaged or of a later format.

    Example:
        >>> read("verify", pathlib.Path("absent"))
        Traceback (most recent call last):
        ...
        ValueError: `verify`: `path` expected what `export_model` wrote; got 'absent';
        ...
    """
    try:
        if path.is_dir():
            file = path / "assets.extra" / _MEMBER
            _check_size(file.stat().st_size)
            text = file.read_bytes()
        else:
            with zipfile.ZipFile(path) as archive:
                _check_size(archive.getinfo(_MEMBER).file_size)
                text = archive.read(_MEMBER)
    except Exception as error:
        # Of a hostile file, anything may go wrong in any way.
        raise ValueError(
            f"`{where}`: `path` expected what `export_model` wrote; got {str(path)!r}; "
            f"export it again: {error}"
        ) from error
    try:
        record = _typed_json.from_json(text)
    except ValueError as error:
        raise ValueError(
            f"`{where}`: `path` expected undamaged golden outputs; got those of "
            f"{str(path)!r}, damaged ({error}); export it again"
        ) from error
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ValueError(
            f"`{where}`: `path` expected golden outputs of format {_FORMAT}; got those "
            f"of {str(path)!r}; verify it by the version of tfrl that wrote it"
        )
    if not all(isinstance(record.get(key), kind) for key, kind in _KINDS.items()):
        raise ValueError(
            f"`{where}`: `path` expected golden outputs with {list(_KINDS)}; got "
            f"{list(record)} in {str(path)!r}; export it again"
        )
    for name, golden in record["endpoints"].items():
        if not all(_is_arrays(golden, key) for key in ("inputs", "outputs")):
            raise ValueError(
                f"`{where}`: `path` expected golden inputs and outputs, by name, "
                f"of endpoint {name!r} in {str(path)!r}; got something else; export it "
                "again"
            )
    return record


def _is_arrays(golden: Any, key: str) -> bool:
    """Whether there is a mapping of arrays; an input may be a nest of them."""
    arrays = golden.get(key) if isinstance(golden, Mapping) else None
    if not isinstance(arrays, Mapping):
        return False
    leaves = list(arrays.values())
    if key == "inputs":
        leaves = tf.nest.flatten(leaves)
    return all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise ValueError(f"golden outputs of {size} bytes")


def digests(path: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of every part of a model but its golden outputs.

    Args:
        path: folder or file.

    Returns:
        Digests by the names of files or members; a `.tflite` file is one part, `model`.

    Raises:
        OSError: if it cannot be read.

    Example:
        >>> import tempfile
        >>> digests(pathlib.Path(tempfile.mkdtemp()))
        {}
    """
    if path.is_dir():
        files = sorted(x for x in path.rglob("*") if x.is_file() and x.name != _MEMBER)
        found = {}
        for file in files:
            with file.open("rb") as opened:
                found[file.relative_to(path).as_posix()] = _digest(opened)
        return found
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            found = {}
            for name in archive.namelist():
                if name != _MEMBER:
                    with archive.open(name) as member:
                        found[name] = _digest(member)
            return found
    data = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            data = data[: archive.getinfo(_MEMBER).header_offset]
    return {"model": hashlib.sha256(data).hexdigest()}


def _digest(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()
