"""What LiteRT takes: graphs of its own ops, without state and random numbers."""

import pathlib
import re
from collections.abc import Iterable
from typing import Any, Self

import tensorflow as tf

from tfrl.core import pytree
from tfrl.exporting import _traced

_LACKING = {
    "draws": re.compile("Random|Multinomial|StatefulUniform|StatefulTruncated"),
    "keeps a state, variables that a call changes": re.compile("^Assign|^Rng"),
}


def check_endpoint(where: str, name: str, traced: Any) -> None:
    """Raises if an endpoint keeps something between calls, or draws.

    Args:
        where: name of the function that exports.
        name: of the endpoint.
        traced: its concrete function.

    Raises:
        ValueError: if it does.

    Example:
        >>> traced = tf.function(tf.exp).get_concrete_function(tf.TensorSpec([]))
        >>> check_endpoint("export", "exp", traced)
    """
    for what, pattern in _LACKING.items():
        found = sorted(filter(pattern.search, _traced.ops_of(traced)))
        if found:
            raise ValueError(
                f"`{where}`: a .tflite file expected endpoints without state and "
                f"random numbers, which LiteRT cannot hold; got {name!r}, which "
                f"{what} ({', '.join(found)}); leave it out, or write a folder"
            )


def convert(where: str, folder: pathlib.Path, names: Iterable[str]) -> bytes:
    """Returns a SavedModel as a model of LiteRT.

    Args:
        where: name of the function that exports.
        folder: the SavedModel.
        names: of its signatures.

    Returns:
        What goes into a `.tflite` file.

    Raises:
        ValueError: if LiteRT lacks an op.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> exp = tf.function(tf.exp, [tf.TensorSpec([None], name="x")])
        >>> tf.saved_model.save(tf.Module(), str(folder), {"exp": exp})
        >>> convert("export", folder, ["exp"])[4:8]
        b'TFL3'
    """
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(folder), signature_keys=list(names)
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    try:
        return converter.convert()
    except Exception as error:
        # The converter's own class of errors is not public, and of others it may be.
        text = str(error)
        lacking = sorted(set(re.findall(r"'tf\.(\w+)' op", text)))
        fault = f"with {', '.join(lacking)}" if lacking else f"({text:.300})"
        fault += " of float64" if re.search(r"\btf\.\w+\(.*f64>", text) else ""
        remedy = "write it otherwise, or as a folder"
        if any(op.startswith("TensorList") for op in lacking):
            remedy = "make its recurrent layers with `unroll=True`, or write a folder"
        raise ValueError(
            f"`{where}`: a .tflite file expected a model of LiteRT's own ops; got one "
            f"that it cannot convert, {fault}; {remedy}"
        ) from error


class NarrowMoments(pytree.PyTreeNode):
    """Normalizes as `tfrl.stats.RunningMoments` does, in float32, as LiteRT must.

    The mean is the sum of two numbers, so that a large one keeps its last digits.
    """

    mean: tf.Tensor
    rest: tf.Tensor
    scale: tf.Tensor

    @classmethod
    def of(cls, wide: Any) -> Self:
        mean = tf.cast(wide.mean, tf.float32)
        rest = tf.cast(wide.mean - tf.cast(mean, tf.float64), tf.float32)
        scale = tf.cast(tf.math.rsqrt(wide.variance + 1e-8), tf.float32)
        return cls(mean=mean, rest=rest, scale=scale)

    def normalize(self, values: tf.Tensor) -> tf.Tensor:
        centred = tf.cast(values, tf.float32) - self.mean - self.rest
        return tf.clip_by_value(centred * self.scale, -10.0, 10.0)


def narrowed(policy: Any) -> Any:
    """Returns a policy that computes nothing in float64."""
    kept = tuple(each and NarrowMoments.of(each) for each in policy.observation_moments)
    return policy.replace(observation_moments=kept)
