"""What a SavedModel offers: functions of named tensors."""

import keyword
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple


class Endpoint(NamedTuple):
    """A function that an exported model offers, and what it is called with.

    Nests become tensors with joined names, as a signature needs them: `state` of
    `{"h": ..., "c": ...}` goes in as `state_c` and `state_h`, a tuple as `state_0` and
    so on. A dictionary that the function returns gives its names to the outputs; other
    outputs are `output_0`, `output_1`, ....

    A function that draws takes an int32 `[2]` input `seed` and passes it to stateless
    ops: only then are its outputs reproducible. A recurrent state is an input and an
    output.

    Attributes:
        function: takes `inputs` by their names; returns a nest of tensors. Neither a
            distribution nor anything else that only Python knows can be returned, and
            no Python runs when it is served. It is traced as it is: where `if` and
            `while` look at tensors, give a `tf.function`.
        inputs: nests of `tf.TensorSpec` by argument; None for free sizes, such as the
            batch axis. A `BoundedTensorSpec` also says which values make sense.
        examples: arrays by the names of the tensors, to call the function with when the
            export is verified; drawn within the specs by default.
        resources: what the function uses besides variables, such as lookup tables.
        for_litert: takes the name of what exports, for messages, and returns the
            function for a `.tflite` file, such as one that computes in float32 alone;
            None for `function`.

    Example:
        >>> cell = keras.layers.GRUCell(4)
        >>> cell.build([None, 3])
        >>> def step(observations, state):
        ...     outputs, (state,) = cell(observations, [state])
        ...     return {"outputs": outputs, "state": state}
        >>> endpoint = Endpoint(
        ...     step, {"observations": tf.TensorSpec([None, 3]),
        ...            "state": tf.TensorSpec([None, 4])})
        >>> list(endpoint.inputs)
        ['observations', 'state']
    """

    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    examples: Mapping[str, Any] | None = None
    resources: Sequence[Any] = ()
    for_litert: Callable[[str], Callable[..., Any]] | None = None


def check_name(place: str, name: str, taken: Collection[str]) -> None:
    """Raises unless TensorFlow takes a name of an input beside others.

    Args:
        place: function and argument, for the message.
        name: joined, where the input is a part of a nest.
        taken: other names.

    Raises:
        ValueError: if it does not.

    Example:
        >>> check_name("`export`: `inputs`", "Seed", ["seed"])
        Traceback (most recent call last):
        ...
        ValueError: `export`: `inputs` expected names that are Python identifiers ...
    """
    if (
        not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)
        or keyword.iskeyword(name)
        or name == "self"
        or name.lower() in {each.lower() for each in taken}
    ):
        raise ValueError(
            f"{place} expected names that are Python identifiers of letters a to z, "
            "digits and underscores, begin with a letter, are no keyword and not "
            f"'self', and differ in lower case, also from {list(taken)}; got {name!r}; "
            "rename it, a part of observations by a wrapper"
        )
