"""What settings of on-policy algorithms have in common, and their checks."""

from typing import Any, ClassVar

import gymnasium as gym

from tfrl._internal import checks
from tfrl.agents import agent, replicated


class OneStep:
    """Settings of an algorithm that takes one gradient step on each trajectory.

    In the terms of PPO that is one pass over all rows at once, clipped by nothing. The
    base of dataclasses with such settings.
    """

    learns_from: ClassVar[str] = "trajectories"
    initial_settings: ClassVar[tuple[str, ...]] = ("log_std",)
    n_epochs: ClassVar[int] = 1
    minibatch_size: ClassVar[None] = None
    value_clip: ClassVar[None] = None
    target_kl: ClassVar[None] = None
    normalize_advantages: ClassVar[bool] = False
    normalize_rewards: ClassVar[bool] = False

    def create(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        n_envs: int | None = None,
        n_steps: int | None = None,
        seed: int = 0,
        network: Any = None,
    ) -> Any:
        """Returns an agent for the spaces of one environment.

        Args:
            observation_space: of one environment.
            action_space: of one environment.
            n_envs: environments per trajectory, N.
            n_steps: steps per environment and trajectory, T; with it and `n_envs`,
                replicas that cannot share the rows are found before the first update.
            seed: of the weights.
            network: your own Keras model, or a function of both spaces that returns
                one: from observations to a pair of the head's parameters and values;
                see `ActorCriticPolicy.create`, and `RecurrentPolicy.create` where there
                is a memory.

        Returns:
            An untrained agent.

        Raises:
            TypeError: if a space is of an unsupported kind, or `network` no model.
            ValueError: if the outputs of `network` do not fit, or the replicas cannot
                share the rows evenly.
        """
        check_counts(self, n_envs, n_steps)
        policy = agent.actor_critic_of(
            self, observation_space, action_space, network, seed, **self._learner()
        )
        return self._agent(policy)

    def _learner(self) -> dict[str, Any]:
        """Options of `learner`: the optimizer, and what it is given."""
        return {}

    def _agent(self, policy: Any) -> Any:
        raise NotImplementedError


def check_counts(config: Any, n_envs: int | None, n_steps: int | None) -> None:
    """Raises unless trajectories of these sizes can be learned from.

    Args:
        config: settings with `minibatch_size`.
        n_envs: environments per trajectory, N; None if it is not known.
        n_steps: steps per environment and trajectory, T; None if it is not known.

    Raises:
        ValueError: as of `check_rows`, or if a count is less than 1.
        TypeError: if a count is no int.
    """
    where = type(config).__name__
    for name, count in (("n_envs", n_envs), ("n_steps", n_steps)):
        if count is not None:
            checks.check_whole_number(where, name, count, low=1)
    if n_envs is not None and n_steps is not None:
        check_rows(where, config, n_steps, n_envs, "n_steps * n_envs")


def check_rows(where: str, config: Any, n_steps: int, n_envs: int, name: str) -> None:
    """Raises unless trajectories of a size can be learned from.

    Args:
        where: the asking function, for the message.
        config: settings with `minibatch_size`, None for all rows.
        n_steps: steps per environment, T.
        n_envs: environments, N.
        name: of the argument that they come from.

    Raises:
        ValueError: if `minibatch_size` does not divide `n_steps * n_envs`, or is, of a
            network with a memory, not that of whole environments; or if the replicas
            cannot share a minibatch evenly.
    """
    size, n_rows = config.minibatch_size, n_steps * n_envs
    has_memory = getattr(config, "memory", None) is not None
    unit = n_steps if has_memory else 1
    if size is None:
        replicated.check_rows(where, "n_envs" if has_memory else name, n_rows // unit)
        return
    if n_rows % size or size % unit:
        found = f"steps * environments = {n_rows}; got {size}; choose a divisor"
        if has_memory:
            fitting = [n_steps * n for n in range(1, n_envs + 1) if n_envs % n == 0]
            found = (
                f"{found} that is of whole environments, {n_steps} steps each, as the "
                f"network has a memory: one of {fitting}"
            )
        raise ValueError(f"`{where}`: `minibatch_size` expected to divide {found}")
    if has_memory and replicated.n_replicas() > 1:
        replicated.check_rows(where, "minibatch_size / n_steps", size // unit, n_envs)
    elif not has_memory:
        replicated.check_rows(where, "minibatch_size", size, divides=n_rows)
