"""How a policy is played by actors: by a NumPy copy, or else by TensorFlow there."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfrl._internal import acting
from tfrl.host import networks
from tfrl.policies import host_policy, network_policy


class TensorFlowActing:
    """Acts by a policy that is made anew where it acts; see `acting.NetworkActing`.

    Args:
        make_policy: makes a policy of the same architecture.
        log_probs: whether to tell log-probabilities.
    """

    def __init__(self, make_policy: Callable[[], Any], log_probs: bool) -> None:
        self._make_policy, self._log_probs = make_policy, log_probs

    def begin(self) -> Self:
        """Makes the policy."""
        self._policy = without_optimizer(self._make_policy())
        self._host = host_policy.HostPolicy(self._policy, self._log_probs)
        self._arrays = [np.array(x) for x in tf.nest.flatten(self._policy)]
        return self

    def arrays(self) -> list[np.ndarray]:
        """Returns the numbers that it acts by, to be overwritten."""
        return self._arrays

    def renew(self) -> None:
        """Takes over what they are now."""
        leaves = [tf.constant(x) for x in self._arrays]
        self._host.push(tf.nest.pack_sequence_as(self._policy, leaves))

    def initial_state(self, n_envs: int) -> Any:
        """Returns the state at the beginning of episodes."""
        return self._host.initial_state(n_envs)

    def check(self, observations: Any) -> None:
        """Does nothing: the policy itself checks what it is given."""

    def act(self, observations: Any, state: Any, rng: np.random.Generator) -> Any:
        """Chooses actions."""
        return self._host.act(observations, state, seed=rng)


def without_optimizer(policy: Any) -> Any:
    """Returns a policy without the state of its optimizer, if it has one."""
    lighten = getattr(policy, "without_optimizer", None)
    return policy if lighten is None else lighten()


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
    leaves = tf.nest.flatten(without_optimizer(policy))
    if not all(tf.is_tensor(x) or isinstance(x, np.ndarray) for x in leaves):
        raise TypeError(
            "`Trainer`: `agent` expected a policy that is a nest of arrays, such as a "
            "`tfrl.core.PyTreeNode`, which actors can be given; got "
            f"{type(policy).__name__}; take the collector 'host'"
        )

    def arrays(policy: Any) -> list[np.ndarray]:
        return [np.asarray(x) for x in tf.nest.flatten(without_optimizer(policy))]

    return TensorFlowActing(make_policy, log_probs), arrays


def _is_reshaped(policy: Any) -> bool:
    """Whether actions are drawn by something else than what the network makes."""
    plain = network_policy.NetworkPolicy.host_distributed
    return type(policy).host_distributed is not plain


def _copied(policy: Any) -> Any:
    """A NumPy copy of the network, None if there is none."""
    known = hasattr(policy, "dense_layers") and hasattr(policy, "host_draw")
    return host_policy.numpy_copy(policy) if known else None
