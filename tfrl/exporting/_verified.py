"""Exported models called again, and held against what they said when made."""

import contextlib
import contextvars
import functools
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.exporting import _golden, _traced


def check(
    where: str, path: pathlib.Path, tolerance: float | None = None
) -> dict[str, float]:
    """Calls a model with its golden inputs and compares.

    Args:
        where: name of the function that asks.
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
        >>> _golden.write(pathlib.Path(folder), {}, 1e-5)
        >>> check("verify", pathlib.Path(folder))
        {}
    """
    record = _golden.read(where, path)
    present = _golden.digests(path)
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
                    outputs = _golden.answers(function, golden["inputs"], variables)
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
        tolerance: a float may differ from x by `tolerance * max(1, |x|)`; integers
            must be equal, and NaN is equal to itself.

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
            allowed = tolerance * np.maximum(1.0, np.abs(right))
        # An infinity, or NaN on one side, is no number to be near to.
        near = np.isfinite(gaps) & (gaps <= allowed) & (not is_whole)
        gap = float(gaps.max(initial=0.0))
        if not np.all(same | near):
            bound = (
                "exactly" if is_whole else f"within {tolerance:g} * max(1, |output|)"
            )
            raise ValueError(
                f"{fault} its golden outputs {bound}; got a difference of {gap:g} in "
                f"{name!r}; draw with a `seed` input, allow for other devices and "
                "libraries by `tolerance`, or export it again"
            )
        largest = max(largest, gap)
    return largest


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[dict[str, tuple[Any, Sequence[Any]]]]:
    """Functions of an exported model by endpoint, with the variables they may change.

    What was loaded lives as long as the block.
    """
    if path.is_dir():
        loaded = tf.saved_model.load(str(path))
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
    return lambda inputs: dict(_traced.output_leaves(layer(inputs, training=False)))
