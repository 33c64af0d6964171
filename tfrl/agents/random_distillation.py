"""Random network distillation: bonuses for observations that were seldom seen."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from tfrl._internal import checks, gym_checks, keras_seeds
from tfrl.agents import (
    _distillation_steps,
    gradient_transforms,
    replicated,
    train_state,
)
from tfrl.core import pytree, random, spaces
from tfrl.policies import feedforward, networks
from tfrl.stats import moments

# The encoder of images divides by it, which is of no use to whitened ones.
_PIXEL = 255.0
# Seeds of the two networks, apart from those of an agent's.
_SEEDS = 1_000, 2_000
_NETWORK = "a function of the observation space that returns a pair of Keras models"


class Settings(NamedTuple):
    """How a predictor learns.

    Attributes:
        learning_rate: of Adam.
        gamma: discount factor of the return that bonuses are scaled by.
        share: of the rows of an update that the predictor learns from.
        n_epochs: passes over as many rows, drawn anew for each.
        n_minibatches: gradient steps of a pass.
        scales: what whitened leaves are multiplied by for the networks.
    """

    learning_rate: float
    gamma: float
    share: float
    n_epochs: int
    n_minibatches: int
    scales: tuple[float, ...]

    def n_rows(self, where: str, n_steps: int, n_envs: int) -> int:
        """Returns the rows of a minibatch.

        Args:
            where: the asking function, for messages.
            n_steps: of an update, T.
            n_envs: of an update, N.

        Raises:
            ValueError: if there are none, or replicas cannot share them evenly.
        """
        n_learned = round(self.share * n_steps * n_envs)
        if n_learned < self.n_minibatches:
            raise ValueError(
                f"`{where}`: `n_minibatches` expected at most share * steps * "
                f"environments = {n_learned}; got {self.n_minibatches}; take fewer, or "
                "more steps"
            )
        size, count = n_learned // self.n_minibatches, replicated.n_replicas()
        if size % count:
            fit = [x for x in range(1, n_learned + 1) if n_learned // x % count == 0]
            near = sorted(fit, key=lambda x: abs(x - self.n_minibatches))[:4]
            todo = f"take one of {sorted(near)} for `n_minibatches`"
            raise ValueError(
                f"`{where}`: `share * steps * environments / n_minibatches` expected "
                f"rows that {count} replicas share evenly; got {size}; "
                f"{todo if near else 'take fewer replicas'}"
            )
        return size


class RandomNetworkDistillation(pytree.PyTreeNode):
    """Bonuses for what was seldom seen: errors of a predictor of a random network.

        o' = clip((o - mean) / sqrt(variance + 1e-8), -5, 5)
        e(o) = mean over features of (g(o') - f(o'))^2
        bonus(o) = min(e(o) / sqrt(Var[R] + 1e-8), 10)
        R[t] = e(o[t]) + gamma * (1 - ended[t - 1]) * R[t - 1]

    The target f has random weights that stay; the predictor g learns by Adam to do what
    f does, on what is observed, where its errors therefore vanish. Numbers are whitened
    by running moments of all observations, those of images pixel by pixel; choices
    become one-hot as they are. Errors are divided by the spread of the returns R that
    they add up to.

    Observations with a NaN or an infinite number in any part are passed over like
    invalid ones: they get no bonus, nothing is learned from them, and R goes on as if
    they had not been, but for an end of the episode there.

    Make one with `create`. It needs no agent: whatever collects trajectories can add
    its bonuses to rewards. `tfrl.agents.RND` does so for agents that learn from
    trajectories.

    Unlike in the paper, the moments learn from each trajectory before its bonuses are
    computed, which takes the place of random steps before the first; and R is 0 at the
    beginning of each episode, as the returns of values that learn from the sum of both
    rewards are. The paper lets it go on, for a value of its own.

    Attributes:
        target: `TrainState` of f, without an optimizer.
        predictor: `TrainState` of g.
        observation_moments: one `RunningMoments` for each leaf of an observation in
            `tf.nest` order, `()` for choices.
        return_scale: `tfrl.stats.ReturnScale` of R.
        rng: int32 `[2]`, seed of the minibatches to come.
        observation_space: of one environment.
        settings: how the predictor learns.

    Example:
        >>> box = gym.spaces.Box(-np.inf, np.inf, (3,))
        >>> distillation = RandomNetworkDistillation.create(
        ...     box, n_envs=2, n_minibatches=1, learning_rate=1e-2)
        >>> seen = np.random.default_rng(0).normal(size=(8, 2, 3))
        >>> ended = np.zeros((8, 2), bool)
        >>> distillation, first = distillation.update(seen, ended)
        >>> for _ in range(20):
        ...     distillation, last = distillation.update(seen, ended)
        >>> first["bonuses"].shape, bool(last["bonus_mean"] < first["bonus_mean"])
        (TensorShape([8, 2]), True)
        >>> seldom = distillation.bonuses(seen[0] + 5.0)
        >>> bool(np.mean(seldom) > last["bonus_mean"])
        True

    References:
        Burda, Edwards, Storkey, Klimov, 2018, Exploration by Random Network
        Distillation, arXiv 1810.12894, sections 2.2 to 2.4 and algorithm 1.
    """

    target: train_state.TrainState
    predictor: train_state.TrainState
    observation_moments: tuple[Any, ...]
    return_scale: moments.ReturnScale
    rng: tf.Tensor
    observation_space: gym.Space = pytree.nonpytree_field()
    settings: Settings = pytree.nonpytree_field()

    @classmethod
    def create(
        cls,
        observation_space: gym.Space,
        *,
        n_envs: int,
        network: Callable[[gym.Space], Any] | None = None,
        n_features: int = 64,
        hidden_units: Sequence[int] = (64, 64),
        activation: str = "relu",
        learning_rate: float = 1e-4,
        gamma: float = 0.99,
        share: float = 1.0,
        n_epochs: int = 1,
        n_minibatches: int = 4,
        seed: int = 0,
    ) -> Self:
        """Returns target and predictor for a space, before they have seen anything.

        Args:
            observation_space: of one environment; see `SpaceEncoder` for the kinds.
            n_envs: environments that are followed side by side, N.
            network: your own function of the space that returns a pair of Keras models,
                target and predictor, called as in inference. From whitened observations
                `[B, *shape]` (numbers and images as float32, choices as int64) each
                returns `[B, n_features]`. None for tfrl's networks.
            n_features: numbers that the target makes of an observation.
            hidden_units: of the target; the predictor has two layers more, of the last
                width. Like `activation`, used only without `network`. Images are
                encoded as by `conv_encoder` first.
            activation: of both.
            learning_rate: of Adam.
            gamma: discount factor of R.
            share: of the rows of an update that the predictor learns from, drawn anew
                for each pass.
            n_epochs: passes over them.
            n_minibatches: gradient steps of a pass, each of as many rows; the few that
                are left over, other ones in each pass, are not learned from in it.
            seed: of weights and minibatches.

        Returns:
            An untrained `RandomNetworkDistillation`.

        Raises:
            TypeError: if the space is of an unsupported kind, or `network` returns no
                pair of models.
            ValueError: if a number is out of range, or the outputs of `network` do not
                fit.
        """
        where = f"{cls.__name__}.create"
        kind = "a Gymnasium space"
        checks.check_type(
            where, "observation_space", observation_space, gym.Space, kind
        )
        counts = {"n_features": n_features, "n_epochs": n_epochs}
        counts |= {"n_minibatches": n_minibatches, "n_envs": n_envs}
        for name, count in counts.items():
            checks.check_whole_number(where, name, count, low=1)
        checks.check_positive(where, "learning_rate", learning_rate)
        checks.check_within(where, "gamma", gamma, 0.0, 1.0)
        checks.check_within(where, "share", share, 0.0, 1.0)
        checks.check_positive(where, "share", share)
        units = checks.check_whole_numbers(where, "hidden_units", hidden_units, low=1)
        feedforward.check_activation(where, activation)
        return_scale = moments.ReturnScale.create(n_envs)
        rng = random.checked_seed(where, seed)
        if network is None:
            networks.check_space(where, observation_space)
            made = [
                networks.ActionValues.for_space(
                    *(observation_space, n_features, False, each, activation),
                    seed=seed + apart,
                )
                for each, apart in zip(
                    (units, (*units, *units[-1:], *units[-1:])), _SEEDS, strict=True
                )
            ]
        else:
            made = _given(where, network, observation_space, n_features, seed)
        leaves = _leaves_of(observation_space)
        scales = [
            _PIXEL if network is None and _is_image(leaf) else 1.0 for leaf in leaves
        ]
        return cls(
            target=train_state.TrainState.create(made[0]),
            predictor=train_state.TrainState.create(
                made[1], tx=gradient_transforms.adam(learning_rate)
            ),
            observation_moments=tuple(
                () if _is_choice(x) else moments.RunningMoments.create(x.shape)
                for x in leaves
            ),
            return_scale=return_scale,
            rng=random.split_seed(rng, 2)[1],
            observation_space=observation_space,
            settings=Settings(
                *(float(learning_rate), float(gamma), float(share)),
                *(n_epochs, n_minibatches),
                tuple(scales),
            ),
        )

    def bonuses(self, observations: Any) -> tf.Tensor:
        """Returns the bonuses of observations by what is known now.

        Args:
            observations: nest of `[..., *shape]`.

        Returns:
            float32 `[...]`, between 0 and 10; 0 for those that are not finite.

        Raises:
            TypeError: if choices are no integers.
            ValueError: if the parts are not those of the space, or choices that are
                known are outside of it.
        """
        place = f"{type(self).__name__}.bonuses"
        observations, outer = self._checked(place, observations)
        self._check_choices(place, observations)
        rows = _distillation_steps.folded(observations, len(outer))
        found = replicated.run_alone(
            _distillation_steps.compiled_bonuses, self._lent(), rows
        )
        return tf.reshape(found, outer)

    def update(
        self, observations: Any, ended: Any, valid: Any = None
    ) -> tuple[Self, dict[str, tf.Tensor]]:
        """Learns from what was observed, after it has said what bonuses that deserves.

        Moments come first, then bonuses, then the gradient steps of the predictor. Like
        the update of an agent, it is one compiled call, or several where that would
        take long, and the replicas of the strategy in scope share the gradient steps.

        Args:
            observations: nest of `[T, N, *shape]`, those to which the actions of T
                steps led: the `next_observations` of a `tfrl.core.Trajectory`.
            ended: `[T, N]` bool, whether the episode ended there, by a true end or by a
                time limit.
            valid: `[T, N]` bool; rows where it is False are learned nothing from, and
                get no bonus, whatever they hold. None for all. Rows that are not finite
                are treated so, too.

        Returns:
            The new node, and an info: the `bonuses` float32 `[T, N]`, their
            `bonus_mean` over valid rows, and the `predictor_loss`, a mean over the
            gradient steps.

        Raises:
            TypeError: if choices are no integers.
            ValueError: if shapes do not fit; if choices that are known are outside of
                the space; if there are fewer rows than `n_minibatches`, or the replicas
                cannot share a minibatch evenly.
        """
        where = f"{type(self).__name__}.update"
        observations, outer = self._checked(where, observations)
        ended = checks.as_tensor(where, "ended", ended, tf.bool)
        valid = tf.ones_like(ended) if valid is None else valid
        valid = checks.as_tensor(where, "valid", valid, tf.bool)
        checks.check_same_shape(where, ended=ended, valid=valid)
        n_envs = self.return_scale.running_returns.shape[0]
        if len(outer) != 2 or outer[1] != n_envs or [*ended.shape] != outer:
            raise ValueError(
                f"`{where}`: `observations` and `ended` expected [T, {n_envs}] outer "
                f"axes, a column for each environment of `create`; got {outer} and "
                f"{[*ended.shape]}"
            )
        size = self.settings.n_rows(where, *outer)
        self._check_choices(where, observations, valid)
        learned, given = self._lent(), (observations, ended, valid)
        n_steps = self.settings.n_epochs * self.settings.n_minibatches
        work = replicated.Work((learned.target, learned.predictor), n_steps, size)
        learned, info = _distillation_steps.update(work, learned, *given)
        return learned._returned(self), info

    def whiten(self, observations: Any) -> Any:
        """Returns observations as networks of one's own are shown them.

        Those of tfrl are shown the pixels of images times 255, by which their encoder
        divides.

        Args:
            observations: nest of `[..., *shape]`.

        Returns:
            Numbers and images as float32 in [-5, 5], choices as they are.

        Raises:
            TypeError: if choices are no integers.
            ValueError: if the parts are not those of the space.
        """
        observations, _ = self._checked(f"{type(self).__name__}.whiten", observations)
        return _distillation_steps.whitened(self, observations)

    def _checked(self, where: str, observations: Any) -> tuple[Any, list[int]]:
        """Observations as tensors, and their axes in front of those of the space."""
        observations = _nest_of(where, self.observation_space, observations)
        leaves = tf.nest.flatten(observations)
        found = [[*x.shape] for x in leaves]
        spaces = _leaves_of(self.observation_space)
        shapes = [each.shape for each in spaces]
        outer = found[0][: len(found[0]) - len(shapes[0])]
        if found != [[*outer, *shape] for shape in shapes]:
            raise ValueError(
                f"`{where}`: `observations` expected parts of the shapes "
                f"{[['...', *shape] for shape in shapes]}, those of the "
                f"observation space; got {found}"
            )
        for space, leaf in zip(spaces, leaves, strict=True):
            if _is_choice(space) and not leaf.dtype.is_integer:
                kind = f"integers, as elements of {space}"
                got = leaf.dtype.name
                raise TypeError(
                    f"`{where}`: `observations` expected {kind}; got {got}; cast them"
                )
        return observations, outer

    def _check_choices(self, where: str, observations: Any, valid: Any = None) -> None:
        """Raises a ValueError for choices in valid rows that the space lacks."""
        leaves = tf.nest.flatten(observations)
        if any(map(tf.is_symbolic_tensor, [*leaves, valid])):
            return
        for (place, space), leaf in zip(
            gym_checks.parts_of(self.observation_space), leaves, strict=True
        ):
            if not _is_choice(space):
                continue
            values = leaf.numpy()
            wrong = gym_checks.outside(space, values)
            n_axes = values.ndim - len(space.shape)
            wrong = np.any(wrong, axis=tuple(range(n_axes, values.ndim)))
            if valid is not None:
                wrong &= valid.numpy()
            for row in np.argwhere(wrong)[:1]:
                place_in = f" in row {row.tolist()}" if row.size else ""
                got = f"{values[tuple(row)]}{place_in}"
                raise ValueError(
                    f"`{where}`: `observations{place}` expected elements of {space}; "
                    f"got {got}; give what the space can hold"
                )

    def _lent(self) -> Self:
        """This on the networks that compiled functions know it by."""
        return self.replace(target=self.target.lent(), predictor=self.predictor.lent())

    def _returned(self, owner: Self) -> Self:
        predictor = self.predictor.returned(owner.predictor)
        return self.replace(target=owner.target, predictor=predictor)


def check_network(where: str, network: Any) -> None:
    """Raises a TypeError unless something can be called with a space alone.

    Args:
        where: the asking function, for messages.
        network: what is given for `network`.
    """
    is_fit = callable(network) and not isinstance(network, keras.layers.Layer)
    if is_fit and not isinstance(network, type):
        try:
            inspect.signature(network).bind(None)
        except ValueError:  # one of C, which does not tell
            pass
        except TypeError:
            is_fit = False
    if not is_fit:
        raise checks.wrong_type(where, "network", network, _NETWORK)


def _nest_of(where: str, space: gym.Space, given: Any, place: str = "") -> Any:
    """What is given, as a nest of tensors in the structure of a space."""
    name = f"observations{place}"
    if isinstance(space, gym.spaces.Dict):
        keys, is_dict = [*space], isinstance(given, Mapping)
        if not is_dict or {*given} != {*keys}:
            got = f"a dict of {[*given]}" if is_dict else gym_checks.described(given)
            raise ValueError(
                f"`{where}`: `{name}` expected a dict of {keys}; got {got}"
            )
        return {
            key: _nest_of(where, space[key], given[key], f"{place}[{key!r}]")
            for key in keys
        }
    if isinstance(space, gym.spaces.Tuple):
        if not isinstance(given, tuple | list) or len(given) != len(space):
            raise ValueError(
                f"`{where}`: `{name}` expected a tuple of {len(space)} parts; got "
                f"{gym_checks.described(given)}"
            )
        pairs = enumerate(zip(space, given, strict=True))
        return tuple(_nest_of(where, *pair, f"{place}[{i}]") for i, pair in pairs)
    if isinstance(given, Mapping):
        raise ValueError(
            f"`{where}`: `{name}` expected one array, of {space}; got a dict of "
            f"{[*given]}"
        )
    return checks.as_tensor(where, name, given)


def _leaves_of(space: gym.Space) -> list[Any]:
    """The spaces without parts in one, in the order of `tf.nest`."""
    return [leaf for _, leaf in gym_checks.parts_of(space)]


def _is_choice(space: gym.Space) -> bool:
    return isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete)


def _is_image(space: gym.Space) -> bool:
    is_bytes = isinstance(space, gym.spaces.Box) and space.dtype == np.uint8
    return is_bytes and len(space.shape) in (3, 4)


def _given(
    where: str, network: Any, space: gym.Space, n_features: int, seed: int
) -> list[keras.layers.Layer]:
    """The user's target and predictor, built and tried."""

    def shown(spec: Any, leaf: gym.Space) -> tf.Tensor:
        rows = [2, *spec.shape]
        if _is_choice(leaf):
            return tf.constant(np.broadcast_to(spec.minimum, rows), tf.int64)
        return tf.zeros(rows)

    check_network(where, network)
    try:
        specs = spaces.spec_from_space(space)
    except TypeError as error:
        kinds = "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of those"
        raise checks.wrong_type(where, "observation_space", space, kinds) from error
    leaves = map(shown, tf.nest.flatten(specs), _leaves_of(space))
    probe = tf.nest.pack_sequence_as(specs, list(leaves))
    with keras_seeds.seeded(seed):
        made = network(space)
        is_pair = isinstance(made, tuple | list) and len(made) == 2
        if not is_pair or not all(isinstance(x, keras.layers.Layer) for x in made):
            raise checks.wrong_type(where, "network", made, _NETWORK)
        if made[0] is made[1]:
            raise ValueError(
                f"`{where}`: `network` expected a target and a predictor; got one "
                "model twice; make another one"
            )
        for model in made:
            try:
                outputs = model(probe, training=False)
            except Exception as error:
                raise ValueError(
                    f"`{where}`: `network` expected models of observations of {space}; "
                    "got a call that fails on two rows of zeros and lowest choices: "
                    f"{error!s:.300}"
                ) from error
            if [*np.shape(outputs)] != [2, n_features] or model.losses:
                got = tf.nest.map_structure(lambda x: list(np.shape(x)), outputs)
                raise ValueError(
                    f"`{where}`: `network` expected models to [B, {n_features}], as "
                    "`n_features` says, without regularizers; got shape "
                    f"{got} of two rows of observations"
                )
    return list(made)
