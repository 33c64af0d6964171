"""How a policy is played by actors: by a NumPy copy, or else by TensorFlow there."""

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import acting, named_arrays
from tfrl.host import networks
from tfrl.policies import host_policy, network_policy
from tfrl.policies import policy as policies

_COUNTED = re.compile(r"(.*?)(?:_(\d+))?", re.DOTALL)


class TensorFlowActing:
    """Acts by a policy that is made anew where it acts; see `acting.NetworkActing`.

    Args:
        make_policy: makes a policy of the same architecture.
        log_probs: whether to tell log-probabilities.
        kinds: shape and dtype of each array of the learner's policy, as `_ordered`.
    """

    def __init__(
        self, make_policy: Callable[[], Any], log_probs: bool, kinds: list[Any]
    ) -> None:
        self._make_policy, self._log_probs = make_policy, log_probs
        self._kinds = kinds
        self._dtype_policy = keras.config.dtype_policy().name

    def begin(self) -> Self:
        """Makes the policy.

        Raises:
            TypeError: if it is another than the learner's.
        """
        keras.config.set_dtype_policy(self._dtype_policy)
        self._policy = policies.without_optimizer(self._make_policy())
        self._host = host_policy.HostPolicy(self._policy, self._log_probs)
        self._order = _order(self._policy)
        self._arrays = [np.array(x) for x in _ordered(self._policy)]
        found = _kinds(self._arrays)
        if found != self._kinds:
            raise TypeError(
                "`Trainer`: `agent` expected one that makes the same policy in each "
                f"process; got arrays {found!s:.200} in an actor, and here "
                f"{self._kinds!s:.200}"
            )
        return self

    def arrays(self) -> list[np.ndarray]:
        """Returns the numbers that it acts by, to be overwritten."""
        return self._arrays

    def renew(self) -> None:
        """Takes over what they are now."""
        leaves: list[Any] = [None] * len(self._arrays)
        for place, array in zip(self._order, self._arrays, strict=True):
            leaves[place] = tf.constant(array)
        self._host.push(tf.nest.pack_sequence_as(self._policy, leaves))

    def initial_state(self, n_envs: int) -> Any:
        """Returns the state at the beginning of episodes."""
        return self._host.initial_state(n_envs)

    def check(self, observations: Any) -> None:
        """Does nothing: the policy itself checks what it is given."""

    def act(self, observations: Any, state: Any, rng: np.random.Generator) -> Any:
        """Chooses actions."""
        return acting.Choice(*self._host.act(observations, state, seed=rng))


class SentNetwork:
    """A Keras model of a user's own, to be made again in actors.

    Args:
        network: the model.

    Raises:
        TypeError: if its configuration does not say how it is made.
    """

    def __init__(self, network: keras.Model) -> None:
        kinds = map(type, _layers_of(network))
        own = [x for x in kinds if x.__module__.partition(".")[0] != "keras"]
        self._own = {x.__name__: x for x in own}
        try:
            self._config = keras.saving.serialize_keras_object(network)
            self(None, None)
        except (NotImplementedError, TypeError, ValueError) as error:
            lines = [type(error).__name__, *str(error).split("\n")]
            reason = ": ".join([x for x in map(str.strip, lines) if x][:2])
            raise TypeError(
                "`Trainer`: `network` expected a model that its configuration makes "
                f"again, as actors do; got {reason:.200}; give a function of both "
                "spaces that makes it"
            ) from error

    def __call__(self, observation_space: Any, action_space: Any) -> keras.Model:
        """Makes it, whatever the spaces."""
        del observation_space, action_space
        with keras.saving.custom_object_scope(self._own):
            config = copy.deepcopy(self._config)  # which Keras empties
            return keras.saving.deserialize_keras_object(config, safe_mode=False)


def _layers_of(layer: Any) -> Iterator[Any]:
    """A layer and all in it that its configuration names."""
    yield layer
    for inner in (*getattr(layer, "layers", ()), getattr(layer, "layer", None)):
        if inner is not None:
            yield from _layers_of(inner)


def numpy_acting(
    policy: Any, network: networks.NumpyNetwork, log_probs: bool = False
) -> acting.NetworkActing:
    """Returns what acts as a policy does, by a copy of its network.

    Args:
        policy: a `NetworkPolicy`.
        network: the copy.
        log_probs: whether to tell log-probabilities.
    """
    draw, settings = policy.host_draw()
    head = policy.head.plain()
    return acting.NetworkActing(
        network,
        draw,
        head.host_to_env,
        settings,
        head.host_masked if policy.is_masked else None,
        head.host_log_prob if log_probs else None,
    )


def acting_of(
    policy: Any, make_policy: Callable[[], Any], log_probs: bool
) -> tuple[Any, Callable[[Any], list[np.ndarray]]]:
    """Returns what acts, and what makes the numbers that it acts by of a policy.

    Args:
        policy: the learner's.
        make_policy: makes one of the same architecture where no copy can act.
        log_probs: whether to tell log-probabilities.

    Raises:
        TypeError: if the policy is no nest of arrays.
    """
    copied = _copied(policy)
    if log_probs and copied is not None and _is_reshaped(policy):
        copied = None
    if copied is not None:

        def numbers(policy: Any) -> list[np.ndarray]:
            network, (_, settings) = _copied(policy), policy.host_draw()
            values = (np.asarray(x, np.float64) for x in settings.values())
            return [*network.arrays(), *values]

        return numpy_acting(policy, copied, log_probs), numbers
    leaves = tf.nest.flatten(policies.without_optimizer(policy))
    if not all(tf.is_tensor(x) or isinstance(x, np.ndarray) for x in leaves):
        raise TypeError(
            "`Trainer`: `agent` expected a policy that is a nest of arrays, such as a "
            "`tfrl.core.PyTreeNode`, which actors can be given; got "
            f"{type(policy).__name__}; take the collector 'host'"
        )

    def arrays(policy: Any) -> list[np.ndarray]:
        return [np.asarray(x) for x in _ordered(policies.without_optimizer(policy))]

    return TensorFlowActing(make_policy, log_probs, _kinds(arrays(policy))), arrays


def _order(policy: Any) -> list[int]:
    """The leaves of a policy by place, in an order that is the same in each process.

    Keras counts names over all that a process ever made: what is `dense_9` and
    `dense_10` here is `dense` and `dense_1` there, and sorted the other way round.
    """

    def counted(name: str) -> list[tuple[str, int]]:
        parts = (_COUNTED.fullmatch(part) for part in re.split("/|~1", name))
        return [(part[1], int(part[2] or 0)) for part in parts if part]

    names = [*named_arrays.name_arrays(policy, "policy")]
    return sorted(range(len(names)), key=lambda place: counted(names[place]))


def _ordered(policy: Any) -> list[Any]:
    leaves = tf.nest.flatten(policy)
    return [leaves[place] for place in _order(policy)]


def _kinds(arrays: list[np.ndarray]) -> list[Any]:
    return [(x.shape, x.dtype) for x in arrays]


def _is_reshaped(policy: Any) -> bool:
    """Whether actions are drawn by something else than what the network makes."""
    plain = network_policy.NetworkPolicy.host_distributed
    return type(policy).host_distributed is not plain


def _copied(policy: Any) -> Any:
    """A NumPy copy of the network, None if there is none."""
    known = hasattr(policy, "dense_layers") and hasattr(policy, "host_draw")
    known = known and policy.head.is_mirrored
    return host_policy.unmasked_copy(policy) if known else None
