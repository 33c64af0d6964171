"""A policy and its values: what on-policy agents share."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import gymnasium as gym
import keras
import tensorflow as tf

from tfrl.agents import (
    _keras_policy,
    _observation_kinds,
    _outputs,
    _shared_networks,
    gradient_transforms,
    networks,
    train_state,
)
from tfrl.core import pytree, random, records, spaces
from tfrl.distributions import action_heads
from tfrl.ops import value
from tfrl.stats import moments


class ActorCriticPolicy(pytree.PyTreeNode):
    """An `ActorCritic` network with its optimizer, observation moments and action head.

    Attributes:
        state: `TrainState` of the network.
        observation_moments: one `RunningMoments` per float observation in `tf.nest`
            order, `()` for the others; `()` altogether without normalization.
        head: from the network's outputs to actions.

    Example:
        >>> policy = ActorCriticPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2),
        ...     tx=tfrl.agents.sgd(0.1))
        >>> policy.sample_actions(np.zeros((5, 3), np.float32), seed=0).shape
        TensorShape([5])
    """

    state: train_state.TrainState
    observation_moments: Any
    head: Any = pytree.nonpytree_field()

    @classmethod
    def create(
        cls,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        tx: gradient_transforms.GradientTransform,
        hidden_units: Sequence[int] = (64, 64),
        activation: str = "tanh",
        squash: bool = False,
        log_std: float = 0.0,
        normalize_observations: bool = False,
        seed: int = 0,
    ) -> Self:
        """Builds the network for the spaces of one environment.

        Args:
            observation_space: see `SpaceEncoder` for the kinds.
            action_space: see `action_head` for the kinds.
            tx: the optimizer.
            hidden_units: of actor and critic.
            activation: of actor and critic.
            squash: see `action_head`.
            log_std: initial log standard deviation of continuous raw actions.
            normalize_observations: keep moments of the float observations.
            seed: of the initial weights.

        Returns:
            A policy that learned nothing yet.

        Raises:
            TypeError: if a space is of an unsupported kind.
            ValueError: if `squash` does not fit the action space.
        """
        head = action_heads.action_head(action_space, squash=squash)
        network = networks.ActorCritic(
            networks.SpaceEncoder.describe(observation_space),
            # The other half are log standard deviations, a vector of their own.
            head.n_outputs // 2 if head.has_log_std else head.n_outputs,
            log_std if head.has_log_std else None,
            hidden_units,
            activation,
            seed,
            # Names of weights are what checkpoints know them by.
            name="actor_critic",
        )
        specs = spaces.spec_from_space(observation_space)
        network.build(tf.nest.map_structure(lambda x: (None, *x.shape), specs))
        kept: Any = ()
        if normalize_observations:
            kept = tuple(
                moments.RunningMoments.create(spec.shape)
                if spec.dtype.is_floating
                else ()
                for spec in tf.nest.flatten(specs)
            )
        state = train_state.TrainState.create(network, tx=tx)
        return cls(state=state, observation_moments=kept, head=head)

    def normalize(self, observations: Any) -> Any:
        """Returns a nest `[..., *shape]` of observations, the float ones normalized."""
        if not self.observation_moments:
            return observations
        leaves = [
            kept.normalize(leaf) if kept else leaf
            for kept, leaf in zip(
                self.observation_moments, tf.nest.flatten(observations), strict=True
            )
        ]
        return tf.nest.pack_sequence_as(observations, leaves)

    def update_moments(self, observations: Any, valid: tf.Tensor) -> Self:
        """Returns the policy with moments that know the `valid` observations too."""
        updated = tuple(
            kept.update(leaf, tf.cast(valid, tf.float64)) if kept else kept
            for kept, leaf in zip(
                self.observation_moments, tf.nest.flatten(observations), strict=True
            )
        )
        return self.replace(observation_moments=updated)

    def parameters(self, observations: Any) -> tf.Tensor:
        """Returns the head's parameters `[B, n]` for a nest of `[B, *shape]`.

        Compiled when called eagerly, once per batch size.
        """
        if tf.inside_function():
            return _parameters(self, observations)
        return _compiled_parameters(self.without_optimizer().lent(), observations)

    def last_parameters(self, trajectory: records.Trajectory) -> tf.Tensor:
        """Returns the head's parameters `[N, n]` for the last row of observations."""
        last = tf.nest.map_structure(lambda leaf: leaf[-1], trajectory.observations)
        return self.parameters(last)

    def without_optimizer(self) -> Self:
        """Returns the policy without its optimizer state: cheaper to pass around."""
        return self.replace(state=self.state.replace(opt_state=()))

    def to_keras(self, name: str | None = None) -> keras.Model:
        """Returns a functional Keras model of the policy, with its trained weights.

            parameters, values = model(observations)

        It takes raw observations, a nest of `[B, *shape]` as the space has it, images
        as uint8, choices as int64 and numbers as float32; the normalizer, if there is
        one, is part of it and stays as it is. `parameters` are those of `head`: logits
        of choices, or means and log standard deviations.

        The model is apart from the policy: train it, save it as `.keras`, or give it to
        `export_model`. Where a file of it is loaded, tfrl must have been imported.

        Args:
            name: of the model, such as where several go into one; "policy" if None.

        Returns:
            The model.

        Raises:
            TypeError: if `name` is no text.
            ValueError: in a graph, where no variables can be made.

        Example:
            >>> policy = ActorCriticPolicy.create(
            ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2),
            ...     tx=tfrl.agents.sgd(0.1))
            >>> observations = np.ones((4, 3), np.float32)
            >>> parameters, values = policy.to_keras()(observations)
            >>> np.allclose(parameters, policy.parameters(observations))
            True
        """
        # The network keeps its name, by which its weights go.
        if not isinstance(name, str | None):
            raise TypeError(
                f"`to_keras`: `name` expected a str or None; got {name!r:.80}"
            )
        return _keras_policy.keras_policy(
            self.state.to_keras(), self.observation_moments, name
        )

    def lent(self) -> Self:
        """Returns the policy on the network that compiled functions know it by."""
        return self.replace(state=_shared_networks.lent(self.state))

    def returned(self, owner: Self) -> Self:
        """Returns a policy that was `lent` a network on that of `owner`."""
        return self.replace(state=_shared_networks.returned(self.state, owner.state))

    def sample_actions(
        self,
        observations: Any,
        *,
        seed: int | tf.Tensor | None = None,
        temperature: float = 1.0,
    ) -> tf.Tensor:
        """Draws actions for the environment.

        Args:
            observations: nest of `[B, *shape]`; lists of numbers are made arrays.
            seed: int or int32 `[2]`; None draws one from TensorFlow's generator.
            temperature: 1 samples, 0 takes the most probable action.

        Returns:
            Actions `[B, ...]` in the environment's dtype and bounds.

        Raises:
            TypeError: if an observation is no array and no list of numbers.
            ValueError: if an observation is of another shape or, eagerly, NaN, or
                infinite without normalization; if `temperature` is neither 0 nor 1.
        """
        encoder = self.state.model_def.encoder
        observations = encoder.as_batch(observations, "sample_actions")
        _observation_kinds.check_finite(
            "sample_actions", observations, clipped=bool(self.observation_moments)
        )
        if temperature not in (0.0, 1.0):
            raise ValueError(
                "`sample_actions`: `temperature` expected 0 (greedy) or 1 (sampled); "
                f"got {temperature}; scale the logits yourself for others"
            )
        parameters = self.parameters(observations)
        if temperature == 0.0:
            return self.head.to_env(self.head.mode(parameters))
        return self.head.to_env(self.head.sample(parameters, random.new_seed(seed)))

    def actor_layers(self) -> list[tuple[tf.Tensor, tf.Tensor, str]] | None:
        """Returns (kernel, bias, activation) of each actor layer, first to last.

        None where the observations are more than one flat Box: the actor is then more
        than its dense layers.
        """
        network = self.state.model_def
        if network.encoder.kinds[0] != "flat":
            return None
        params = self.state.params
        return [
            (params[x.kernel.path], params[x.bias.path], x.activation.__name__)
            for x in network.actor_network.dense
        ]

    def log_std(self) -> tf.Tensor | None:
        """Returns the learned log standard deviation, or None where there is none."""
        variable = self.state.model_def.log_std
        return None if variable is None else self.state.params[variable.path]


def _parameters(policy: ActorCriticPolicy, observations: Any) -> tf.Tensor:
    return policy.state(policy.normalize(observations), method="actor")


_compiled_parameters = tf.function(_parameters, autograph=False)


class Experience(NamedTuple):
    """Rows of experience with what they say about the policy that made them.

    Attributes:
        observations: nest of `[R, *shape]`, normalized.
        actions: `[R, ...]`, raw.
        weights: `[R]`, 1 for experience and 0 for rows that carry none.
        log_probs: `[R]`, of the actions taken.
        values: `[R]`.
        returns: `[R]`, targets of the values.
        advantages: `[R]`, returns - values.

    Example:
        >>> zero, one = tf.constant([0.0, 0.0]), tf.constant([1.0, 3.0])
        >>> rows = Experience(zero, zero, tf.constant([1.0, 0.0]), zero, zero, one, one)
        >>> float(rows.mean(rows.returns))
        1.0
    """

    observations: Any
    actions: tf.Tensor
    weights: tf.Tensor
    log_probs: tf.Tensor
    values: tf.Tensor
    returns: tf.Tensor
    advantages: tf.Tensor

    def total(self) -> tf.Tensor:
        """Returns the sum of the weights, 1 at least: what `mean` divides by."""
        return tf.maximum(tf.reduce_sum(self.weights), 1.0)

    def mean(self, values: tf.Tensor, total: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the weighted mean of `[R]`; 0 where all weights are 0.

        Args:
            values: `[R]`.
            total: what to divide by instead, as of a batch of which the rows are a
                part.
        """
        total = self.total() if total is None else total
        return tf.reduce_sum(values * self.weights) / total

    def variance(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the weighted variance of `[R]`."""
        return self.mean((values - self.mean(values)) ** 2)

    def explained_variance(self) -> tf.Tensor:
        """Returns `1 - Var[returns - values] / Var[returns]`; 0 for equal returns."""
        spread = self.variance(self.returns)
        unexplained = self.variance(self.returns - self.values)
        ratio = unexplained / tf.where(spread > 0, spread, tf.ones_like(spread))
        return tf.where(spread > 0, 1.0 - ratio, tf.zeros_like(ratio))


def estimate_advantages(
    policy: ActorCriticPolicy,
    trajectory: records.Trajectory,
    rewards: tf.Tensor,
    *,
    gamma: float,
    lambda_: float,
    outputs: _outputs.Outputs | None = None,
) -> Experience:
    """Computes values, log-probabilities and generalized advantages of a trajectory.

        discounts[t] = gamma * (1 - terminated[t])
        G[t] = rewards[t] + discounts[t] * ((1 - l[t]) * V(next[t]) + l[t] * G[t + 1])
        l[t] = lambda_ * (1 - truncated[t])
        advantages = G - V(observations)

    Truncated episodes bootstrap from the value of their last observation.

    Args:
        policy: the one that acted.
        trajectory: what it met, `[T, N]`.
        rewards: `[T, N]`, those of the trajectory or scaled ones.
        gamma: discount factor.
        lambda_: 0 trusts the values, 1 the rewards.
        outputs: what the network says to the observations, where that is known; then
            `next_observations` are not looked at.

    Returns:
        `Experience` of `R = T * N` rows, time outermost.

    Raises:
        ValueError: if the shapes do not fit each other.

    Example:
        >>> policy = ActorCriticPolicy.create(
        ...     gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2),
        ...     tx=tfrl.agents.sgd(0.1))
        >>> flags = tf.constant([[False]])
        >>> trajectory = tfrl.core.Trajectory(
        ...     tf.zeros([1, 1, 1]), tf.constant([[0]]), tf.ones([1, 1]), ~flags, flags,
        ...     tf.zeros([1, 1, 1]), ~flags)
        >>> rows = estimate_advantages(
        ...     policy, trajectory, trajectory.rewards, gamma=0.9, lambda_=0.95)
        >>> rows.returns.numpy().tolist()
        [1.0]

    References:
        Schulman et al., 2016, High-Dimensional Continuous Control Using Generalized
        Advantage Estimation, eq. 16.
    """
    outer = trajectory.rewards.shape

    def fold(leaf: tf.Tensor) -> tf.Tensor:
        return tf.reshape(leaf, [-1, *leaf.shape[2:]])

    trajectory = tf.nest.map_structure(tf.convert_to_tensor, trajectory)
    observations = tf.nest.map_structure(
        fold, policy.normalize(trajectory.observations)
    )
    if outputs is None:
        successors = tf.nest.map_structure(
            fold, policy.normalize(trajectory.next_observations)
        )
        next_values = policy.state(successors, method="critic")
        parameters, values = policy.state(observations)
    else:
        parameters, values, next_values = outputs
    actions = fold(trajectory.actions)
    dtype = values.dtype
    returns = value.td_lambda_return(
        tf.cast(rewards, dtype),
        gamma * (1 - tf.cast(trajectory.terminated, dtype)),
        tf.reshape(next_values, outer),
        lambda_ * (1 - tf.cast(trajectory.truncated, dtype)),
    )
    return Experience(
        observations=observations,
        actions=actions,
        weights=tf.cast(fold(trajectory.valid), dtype),
        log_probs=policy.head.log_prob(parameters, actions),
        values=values,
        returns=fold(returns),
        advantages=fold(returns) - values,
    )
