"""What an exported model said when it was made, kept inside it to be compared again.

`where` is the name of the function that asks, for messages.
"""

import contextlib
import contextvars
import functools
import hashlib
import importlib
import importlib.metadata
import pathlib
import platform
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import plain_paths
from tfrl.core import specs
from tfrl.exporting import _graphs
from tfrl.saving import typed_json

_FORMAT = 1
_MEMBER = "tfrl_golden.json"
_ROWS, _STEPS = 8, 5
_MOST_BYTES = 1 << 28


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
    shape = [
        (_ROWS, _STEPS)[axis > 0] if size is None else size
        for axis, size in enumerate(spec.shape)
    ]
    is_float, dtype = spec.dtype.is_floating, spec.dtype.as_numpy_dtype
    low: Any = -np.inf if is_float else 0
    high: Any = np.inf if is_float else 1
    if isinstance(spec, specs.BoundedTensorSpec):
        low, high = spec.minimum, spec.maximum
    if not is_float:
        first, last = (np.asarray(x).astype(object) for x in (low, high))
        counts = np.asarray(np.minimum(last - first, 1000), np.int64) + 1
        drawn = first + rng.integers(0, np.broadcast_to(counts, shape))
        return np.asarray(drawn).astype(dtype)
    low, high = (np.broadcast_to(x, shape).astype(np.float64) for x in (low, high))
    with np.errstate(all="ignore"):
        uniform = low + (high - low) * rng.random(shape)
        drawn = np.where(high - low < 1e3, uniform, rng.standard_normal(shape))
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
        where: name of the function, for messages.
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
        return {name: example(spec, rng) for name, spec in specifications.items()}
    if set(given) != set(specifications):
        raise ValueError(
            f"`{where}`: `examples` expected an array for each of "
            f"{sorted(specifications)}; got {sorted(given)}"
        )
    arrays = {}
    for name, spec in specifications.items():
        arrays[name] = np.asarray(given[name], spec.dtype.as_numpy_dtype)
        if not spec.shape.is_compatible_with(arrays[name].shape):
            raise ValueError(
                f"`{where}`: `examples` expected shape {spec.shape} of {name!r}; got "
                f"{list(arrays[name].shape)}"
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
            k: np.array(tf.convert_to_tensor(x).numpy()) for k, x in outputs.items()
        }
    finally:
        for variable, value in zip(variables, before, strict=True):
            if variable.numpy().tobytes() != value.tobytes():  # A NaN is itself.
                variable.assign(value)


def recorded(
    where: str,
    name: str,
    function: Callable[..., Any],
    given: Mapping[str, Any],
    variables: Sequence[Any],
) -> dict[str, Any]:
    """Returns what is kept of an endpoint: golden inputs and outputs.

    Args:
        where: name of the function, for messages.
        name: of the endpoint.
        function: as of `answers`.
        given: as of `answers`.
        variables: as of `answers`.

    Raises:
        ValueError: if it cannot answer, or by NaN alone.

    Example:
        >>> given = {"x": np.float32(2)}
        >>> recorded("export", "call", lambda x: {"y": 2 * x}, given, [])["outputs"]
        {'y': array(4., dtype=float32)}
    """
    fault = f"`{where}`: endpoint {name!r} expected examples that it can answer; got"
    try:
        outputs = answers(function, given, variables)
    except tf.errors.OpError as error:
        # The last lines of the message tell what happened, and in which node.
        lines = error.message.split("\t [[")[0].split("\n\n")
        raise ValueError(
            f"{fault} {' '.join(lines[-1].split())[:300]}; give others, and look "
            "whether all weights are finite"
        ) from error
    for output, value in outputs.items():
        if value.size and np.all(value != value):
            raise ValueError(
                f"{fault} NaN alone as {output!r}; give others, and look whether all "
                "weights are finite and their products are"
            )
    return {"inputs": given, "outputs": outputs}


def write(
    path: pathlib.Path,
    goldens: Mapping[str, Mapping[str, Any]],
    tolerance: float,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Puts inputs and outputs into an exported model, with digests of what is there.

    In a folder they are `assets.extra/tfrl_golden.json`, in a file a member of the zip
    archive that it is or that is appended to it.

    Args:
        path: folder or file.
        goldens: by endpoint what `recorded` returned.
        tolerance: that belongs to them.
        about: what else is to be known of the model, for people.

    Raises:
        OSError: if the disk refuses.
        TypeError: if `about` holds what JSON cannot.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> write(folder, {}, 1e-5)
        >>> read("verify", folder)["tolerance"]
        1e-05
    """
    versions = {each.__name__: each.__version__ for each in (keras, np, tf)}
    # Of TensorFlow Probability without loading it.
    name = "tensorflow_probability"
    versions[name] = importlib.metadata.version(name)
    versions["tfrl"] = importlib.import_module("tfrl").__version__
    text = typed_json.to_json(
        {
            "format": _FORMAT,
            "versions": {"python": platform.python_version(), **versions},
            "about": dict(about or {}),
            "tolerance": float(tolerance),
            "digests": digests(path),
            "endpoints": dict(goldens),
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


def read(where: str, path: pathlib.Path) -> dict[str, Any]:
    """Reads what `write` wrote.

    Args:
        where: name of the function, for messages.
        path: folder or file.

    Returns:
        The record.

    Raises:
        ValueError: if there is none, or it is damaged or of a later format.

    Example:
        >>> read("verify", pathlib.Path("absent"))
        Traceback (most recent call last):
        ...
        ValueError: `verify`: `path` expected what `export_model` wrote, with ...
    """
    try:
        record = typed_json.from_json(_text_of(path))
        _check_record(record)
    except Exception as error:
        # Of a hostile file, anything may go wrong in any way.
        raise ValueError(
            f"`{where}`: `path` expected what `export_model` wrote, with undamaged "
            f"golden outputs of format {_FORMAT}; got {str(path)!r} ({error}); export "
            "it again, or use the version of tfrl that wrote it"
        ) from error
    return record


def _text_of(path: pathlib.Path) -> bytes:
    if path.is_dir():
        with (path / "assets.extra" / _MEMBER).open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    else:
        with zipfile.ZipFile(path) as archive, archive.open(_MEMBER) as member:
            text = member.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"golden outputs of more than {_MOST_BYTES} bytes")
    return text


def _check_record(record: Any) -> None:
    """Raises unless a record is as `write` writes it; an input may be a nest."""
    if record["format"] != _FORMAT:
        raise ValueError(f"they are of format {record['format']}")
    is_whole = isinstance(record["digests"], dict)
    is_whole &= isinstance(record["tolerance"], float)
    for golden in record["endpoints"].values():
        arrays = tf.nest.flatten(dict(golden["inputs"]))
        arrays += dict(golden["outputs"]).values()
        is_whole &= all(isinstance(each, np.ndarray | np.generic) for each in arrays)
    if not is_whole:
        raise ValueError("they hold something else")


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
        return {x.relative_to(path).as_posix(): _digest(x.open("rb")) for x in files}
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name != _MEMBER]
            return {name: _digest(archive.open(name)) for name in names}
    data = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            data = data[: archive.getinfo(_MEMBER).header_offset]
    return {"model": hashlib.sha256(data).hexdigest()}


def _digest(file: Any) -> str:
    with file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(
    where: str, path: pathlib.Path, tolerance: float | None = None
) -> dict[str, float]:
    """Calls a model with its golden inputs and compares.

    Args:
        where: name of the function, for messages.
        path: folder or file.
        tolerance: None for that of the record.

    Returns:
        The largest difference by endpoint.

    Raises:
        ValueError: if there is no record, or a file or an output differs from it.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> tf.saved_model.save(tf.Module(), folder)
        >>> write(pathlib.Path(folder), {}, 1e-5)
        >>> check("verify", pathlib.Path(folder))
        {}
    """
    record = read(where, path)
    present = digests(path)
    for name, digest in record["digests"].items():
        if present.get(name) != digest:
            state = "other content" if name in present else "nothing"
            raise ValueError(
                f"`{where}`: `path` expected the {name!r} that was exported; got "
                f"{state} in {str(path)!r}; export it again"
            )
    limit = record["tolerance"] if tolerance is None else tolerance
    compare = functools.partial(_compared, where, path, record["endpoints"], limit)
    if not tf.distribute.has_strategy():
        return compare()
    # What is loaded within a strategy cannot be called there. Strategies belong to
    # threads: another one has this one's settings, and no strategy.
    with futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, compare).result()


def _compared(
    where: str, path: pathlib.Path, goldens: Mapping[str, Any], tolerance: float
) -> dict[str, float]:
    found = {}
    with _opened(path) as functions:
        for name, golden in goldens.items():
            if name not in functions:
                raise ValueError(
                    f"`{where}`: `path` expected an endpoint {name!r}; got "
                    f"{sorted(functions)} in {str(path)!r}; export it again"
                )
            function, variables = functions[name]
            fault, gaps = f"`{where}`: endpoint {name!r} expected", []
            # An operation that draws by a seed of its own repeats its first call alone.
            for _ in range(2):
                try:
                    outputs = answers(function, golden["inputs"], variables)
                except (TypeError, tf.errors.InvalidArgumentError) as error:
                    raise ValueError(
                        f"{fault} golden inputs that it takes; got others in "
                        f"{str(path)!r}; export it again: {error}"
                    ) from error
                wanted = golden["outputs"]
                gaps.append(largest_gap(fault, outputs, wanted, tolerance))
            found[name] = max(gaps)
    return found


def largest_gap(
    fault: str,
    found: Mapping[str, np.ndarray],
    wanted: Mapping[str, np.ndarray],
    tolerance: float,
) -> float:
    """Returns the largest difference between outputs, or raises if it is too large.

    Args:
        fault: begin of the message.
        found: outputs by name.
        wanted: what they are compared with.
        tolerance: a float may differ by `tolerance * max(1, |x|)`, where x is the
            largest finite number in its place of all rows: by luck a number is near 0
            where others are large, and is rounded as they are. Integers must be equal,
            and NaN is equal to itself.

    Returns:
        The largest absolute difference.

    Raises:
        ValueError: if names, dtypes, shapes or numbers differ.

    Example:
        >>> largest_gap("", {"y": np.array([1.0])}, {"y": np.array([1.5])}, 0.5)
        0.5
    """
    kinds = [
        {name: (x.dtype.name, list(x.shape)) for name, x in sorted(outputs.items())}
        for outputs in (wanted, found)
    ]
    if kinds[0] != kinds[1]:
        raise ValueError(f"{fault} outputs {kinds[0]}; got {kinds[1]}; export it again")
    largest = 0.0
    for name, right in wanted.items():
        is_whole, same = right.dtype.kind in "biu", found[name] == right
        value, right = found[name].astype(np.float64), right.astype(np.float64)
        same |= np.isnan(value) & np.isnan(right)
        with np.errstate(invalid="ignore", over="ignore"):
            gaps = np.where(same, 0.0, np.abs(value - right))
            sizes = np.where(np.isfinite(right), np.abs(right), 0.0)
            if sizes.ndim:
                sizes = sizes.max(axis=0, initial=0.0)
            allowed = tolerance * np.maximum(1.0, sizes)
        # An infinity, or NaN on one side, is no number to be near to.
        near = np.isfinite(gaps) & (gaps <= allowed) & (not is_whole)
        gap = float(gaps.max(initial=0.0))
        if not np.all(same | near):
            bound = "exactly" if is_whole else f"within {tolerance:g} * max(1, |x|)"
            raise ValueError(
                f"{fault} its golden outputs {bound}; got a difference of {gap:g} in "
                f"{name!r}; draw with a `seed` input, allow for other devices and "
                "libraries by `tolerance` (--tolerance), or export it again"
            )
        largest = max(largest, gap)
    return largest


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[dict[str, tuple[Any, Sequence[Any]]]]:
    """Functions of an exported model by endpoint, with the variables they may change.

    What was loaded lives as long as the block.
    """
    if path.is_dir():
        with plain_paths.plain(path) as plain:
            loaded = tf.saved_model.load(plain)
        yield {name: (f, f.variables) for name, f in loaded.signatures.items()}
        del loaded
    elif path.suffix == ".keras":
        model = keras.models.load_model(path, compile=False)
        yield {"call": (layer_answer(model), model.variables)}
    else:
        with warnings.catch_warnings():
            # It says that another package will have it one day.
            warnings.simplefilter("ignore")
            interpreter = tf.lite.Interpreter(str(path))
        runner = interpreter.get_signature_runner
        yield {name: (runner(name), ()) for name in interpreter.get_signature_list()}


def layer_answer(layer: Any) -> Callable[..., dict[str, Any]]:
    """Returns the function from `inputs` of a layer, outside training, to outputs.

    Example:
        >>> list(layer_answer(keras.layers.ReLU())(np.ones([1], "f")))
        ['output_0']
    """
    return lambda inputs: dict(_graphs.output_leaves(layer(inputs, training=False)))
