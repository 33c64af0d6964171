"""What can be exported: endpoints, models, functions and policies."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfrl.distributions import spec
from tfrl.exporting import endpoints
from tfrl.policies import network_policy
from tfrl.stats import normalizers

DEFAULT = "serving_default"


def endpoints_of(
    where: str, content: Any, inputs: Any, examples: Mapping[str, Any] | None
) -> dict[str, endpoints.Endpoint]:
    """Returns the endpoints of what is to be exported.

    Args:
        where: name of the function that exports.
        content: as of `export_model`.
        inputs: as of `export_model`.
        examples: as of `export_model`.

    Raises:
        ValueError: if inputs are not known, or given beside endpoints.
        TypeError: if `content` is of another kind.

    Example:
        >>> list(endpoints_of("export", tf.exp, tf.TensorSpec([None]), None))
        ['serving_default']
    """
    if isinstance(content, endpoints.Endpoint):
        content = {DEFAULT: content}
    elif isinstance(content, spec.DistributionSpec):
        content = endpoints.distribution_endpoints(content)
    if isinstance(content, Mapping):
        if inputs is not None or examples is not None:
            raise ValueError(
                f"`{where}`: `inputs` and `examples` expected None beside endpoints; "
                "got others; give them with each `Endpoint`"
            )
        for name, endpoint in content.items():
            if not (isinstance(name, str) and isinstance(endpoint, endpoints.Endpoint)):
                raise TypeError(
                    f"`{where}`: `content` expected an `Endpoint` for each name; got "
                    f"{endpoint!r:.80} for {name!r}; make one of it"
                )
        return dict(content)
    if not callable(content):
        raise TypeError(
            f"`{where}`: `content` expected endpoints, a DistributionSpec, a layer, a "
            f"normalizer or a function; got {content!r:.80}; wrap it in an `Endpoint`"
        )
    call: Callable[..., Any] = content
    if isinstance(content, keras.layers.Layer | normalizers.Normalizer):
        call = functools.partial(content, training=False)
    nest = layer_inputs(where, content, inputs)
    if isinstance(nest, Mapping):
        return {DEFAULT: endpoints.Endpoint(lambda **x: call(x), nest, examples)}
    named = {"inputs": nest}
    return {DEFAULT: endpoints.Endpoint(lambda inputs: call(inputs), named, examples)}


def layer_inputs(where: str, content: Any, inputs: Any) -> Any:
    """Returns the nest of specs that a layer or function is called with.

    Args:
        where: name of the function that exports.
        content: layer or function.
        inputs: nest of specs; None for those that a model knows itself.

    Raises:
        ValueError: if they are not known, or the layer is not built.

    Example:
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> layer_inputs("export", model, None).shape
        TensorShape([None, 3])
    """
    if isinstance(content, keras.layers.Layer) and not content.built:
        raise ValueError(
            f"`{where}`: `content` expected a built layer; got {content.name!r}, which "
            "has no weights yet; call it once, or its `build`"
        )
    if inputs is not None:
        return inputs
    # A `FitModel` is called as its network is.
    model = getattr(content, "network", content)
    if isinstance(model, keras.Sequential):
        inputs = model.inputs[0]
    elif isinstance(model, keras.Model) and getattr(model, "inputs", None):
        inputs = model.input
    else:
        raise ValueError(
            f"`{where}`: `inputs` expected the specs of what `content` is called with; "
            "got None; give for example tf.TensorSpec([None, 3])"
        )
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), inputs)


def policy_of(where: str, agent: Any) -> network_policy.NetworkPolicy:
    """Returns the policy of an agent or `AgentModel`, or the policy that was given.

    Args:
        where: name of the function that exports.
        agent: which of them it is.

    Raises:
        TypeError: if there is none of `tfrl.policies`.

    Example:
        >>> policy_of("export", None)
        Traceback (most recent call last):
        ...
        TypeError: `export`: `agent` expected a policy of `tfrl.policies`, or ...
    """
    policy = getattr(getattr(agent, "agent", agent), "policy", agent)
    if not isinstance(policy, network_policy.NetworkPolicy):
        got = f"{agent!r:.80}"
        if policy is not agent:
            got = f"a {type(agent).__name__} with a {type(policy).__name__}"
        raise TypeError(
            f"`{where}`: `agent` expected a policy of `tfrl.policies`, or an agent "
            f"with one, such as a PPOAgent; got {got}; for other components there is "
            "`export_model`"
        )
    return policy
