"""Bit flipping: a small compiled environment with goals."""

from typing import Any, ClassVar, NamedTuple

import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import checks
from tfrl.environments.compiled import _actions, protocol


class BitFlippingState(NamedTuple):
    """State of `BitFlipping`.

    Attributes:
        bits: `[N, n_bits]` int8.
        goal: `[N, n_bits]` int8, the bits desired.
        n_steps: `[N]` int32, steps of the episode.

    Example:
        >>> BitFlippingState([[0, 1]], [[1, 1]], [3]).n_steps
        [3]
    """

    bits: Any
    goal: Any
    n_steps: Any


class BitFlipping(protocol.CompiledEnv):
    """Bits, of which each action flips one, until they match the desired ones.

    It is `tfrl.environments.goals:BitFlipping-v0` in tensors: every step pays -1,
    except one that reaches the desired bits, which pays 0 and ends the episode;
    `n_bits` steps cut it off. Observations are Dicts of "observation", "achieved_goal"
    and "desired_goal", each `[N, n_bits]` int8. Bits and goal are uniform over all
    pairs that differ.

    Args:
        n_bits: how many there are, at least 1.

    Raises:
        TypeError: if `n_bits` is no int.
        ValueError: if it is below 1.

    References:
        Andrychowicz et al., 2017, Hindsight Experience Replay, section 3.1.

    Example:
        >>> env = BitFlipping(n_bits=2)
        >>> state = BitFlippingState(
        ...     *tf.constant([[[0, 1]], [[1, 1]]], tf.int8), tf.constant([0]))
        >>> step = env.step(state, [0], env.draw(0, [1]))
        >>> step.rewards.numpy().tolist(), step.terminated.numpy().tolist()
        ([0.0], [True])
    """

    gymnasium_id: ClassVar[str] = "tfrl.environments.goals:BitFlipping-v0"
    n_step_noise = 0

    def __init__(self, n_bits: int = 8) -> None:
        self.n_bits = checks.check_whole_number("BitFlipping", "n_bits", n_bits, low=1)
        bits = spaces.MultiBinary(n_bits)
        self.observation_space = spaces.Dict(
            observation=bits, achieved_goal=bits, desired_goal=bits
        )
        self.action_space = spaces.Discrete(n_bits)
        self.n_noise = 2 * n_bits

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`."""
        n_bits = self.n_bits
        bits = tf.cast(noise[:, :n_bits] < 0.5, tf.int8)
        differs, some = [], tf.zeros([noise.shape[0]], tf.bool)
        for i in range(n_bits):
            # Of the patterns of the k bits left, and of those but the one of zeros.
            left = 2.0 ** (n_bits - i)
            chance = tf.where(some, 0.5, 0.5 * left / (left - 1.0))
            differs.append(noise[:, n_bits + i] < chance)
            some |= differs[-1]
        goal = tf.bitwise.bitwise_xor(bits, tf.cast(tf.stack(differs, 1), tf.int8))
        n_steps = tf.zeros([noise.shape[0]], tf.int32)
        state = BitFlippingState(bits, goal, n_steps)
        return state, _seen(state)

    def step(
        self, state: BitFlippingState, actions: Any, noise: tf.Tensor
    ) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`."""
        del noise
        actions = _actions.as_actions(self, actions, state.bits.shape[0])
        flipped = tf.one_hot(actions, self.n_bits, dtype=tf.int8)
        bits = tf.bitwise.bitwise_xor(state.bits, flipped)
        state = BitFlippingState(bits, state.goal, state.n_steps + 1)
        rewards, seen = self.compute_reward(bits, state.goal), _seen(state)
        found = tf.equal(rewards, 0.0)
        late = (state.n_steps >= self.n_bits) & ~found
        return protocol.CompiledStep(state, seen, rewards, found, late, seen)

    def compute_reward(self, achieved_goal: Any, desired_goal: Any) -> tf.Tensor:
        """Returns 0 where goals are alike, -1 elsewhere.

        Args:
            achieved_goal: `[n, n_bits]`.
            desired_goal: `[n, n_bits]`.
        """
        unlike = tf.reduce_any(tf.not_equal(achieved_goal, desired_goal), -1)
        return tf.where(unlike, -1.0, 0.0)


def _seen(state: BitFlippingState) -> dict[str, Any]:
    """Of both goals the bits themselves."""
    return {
        "observation": state.bits,
        "achieved_goal": state.bits,
        "desired_goal": state.goal,
    }
