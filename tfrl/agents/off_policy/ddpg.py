"""Deep deterministic policy gradients: TD3 with one critic and nothing delayed."""

import dataclasses

from tfrl.agents.off_policy import td3


@dataclasses.dataclass(frozen=True)
class DDPG(td3.TD3):
    """Hyper-parameters of deep deterministic policy gradients.

    Each gradient step minimises over a minibatch of transitions

        mean(weights * (y - Q(s, a))^2),  y = r + discount * Q'(s', pi'(s'))

    and then -mean(Q(s, pi(s))) for the policy, after which the copies pi' and Q' follow
    both. It is `TD3` with one critic, without delay and without noise in the targets;
    its attributes are those of `TD3`, with other defaults.

    Example:
        >>> agent = DDPG(hidden_units=(8,)).create(
        ...     gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Box(-2.0, 2.0, (1,)))
        >>> agent.policy.act(np.zeros((2, 3), np.float32), seed=0).actions.shape
        (2, 1)

    References:
        Lillicrap et al., 2016, Continuous Control with Deep Reinforcement Learning,
        algorithm 1.
    """

    target_noise: float = 0.0
    policy_delay: int = 1
    n_critics: int = 1
