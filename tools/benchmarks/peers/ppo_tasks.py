"""What the contenders of tools/benchmarks/ppo.py learn, and by which settings."""

from typing import NamedTuple


class Task(NamedTuple):
    """The defaults are those of Stable-Baselines3's PPO.

    `is_python` has tfrl play the Python environments that its peers play, where it
    would choose vectorized ones; `falls` lets learning rate and clip fall to 0.
    `warm_up` is how many environment steps everybody makes before the clock starts.
    """

    env: str
    steps: int
    warm_up: int
    n_envs: int = 1
    n_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    gamma: float = 0.99
    lambda_: float = 0.95
    learning_rate: float = 3e-4
    clip: float = 0.2
    falls: bool = False
    is_python: bool = True
    log_epochs: int = 1
    target: float | None = None

    def bindings(self) -> list[str]:
        """The settings as bindings of a configuration of tfrl's PPO."""
        schedule = "linear" if self.falls else "constant"
        how = "sync" if self.is_python else "auto"
        return [
            f"make_vec.env_id = {self.env!r}",
            f"make_vec.vectorization = {how!r}",
            f"Trainer.n_envs = {self.n_envs}",
            f"Trajectories.n_steps = {self.n_steps}",
            f"PPO.minibatch_size = {self.batch_size}",
            f"PPO.n_epochs = {self.n_epochs}",
            f"PPO.gamma = {self.gamma}",
            f"PPO.lambda_ = {self.lambda_}",
            f"PPO.learning_rate = {self.learning_rate}",
            f"PPO.learning_rate_schedule = {schedule!r}",
            f"PPO.clip = {self.clip}",
            f"PPO.clip_schedule = {schedule!r}",
            # The others weigh the squared error by 0.5; tfrl halves the error itself.
            "PPO.value_coefficient = 1.0",
            f"Intervals.log_epochs = {self.log_epochs}",
        ]

    def options(self) -> list[str]:
        """What the program of JAX is told, of which the other settings are those."""
        sizes = {"n-envs": self.n_envs, "n-steps": self.n_steps}
        sizes |= {"n-epochs": self.n_epochs, "minibatch-size": self.batch_size}
        return [f"--{name}={size}" for name, size in sizes.items()]


# Settings of RL Baselines3 Zoo.
_CARTPOLE = Task(
    env="CartPole-v1",
    steps=100_000,
    warm_up=2_560,
    n_envs=8,
    n_steps=32,
    batch_size=256,
    n_epochs=20,
    gamma=0.98,
    lambda_=0.8,
    learning_rate=1e-3,
    falls=True,
    is_python=False,
    log_epochs=10,
    target=475.0,
)

# As many environments as one graph plays at once, and rows of a gradient step to match.
_WIDE = _CARTPOLE._replace(
    steps=4_194_304,
    warm_up=2**20,
    n_envs=1024,
    n_steps=128,
    batch_size=2048,
    n_epochs=4,
    log_epochs=1,
    target=None,
)

TASKS = {
    "cartpole": _CARTPOLE,
    "cartpole-wide": _WIDE,
    # Compiled once for all, which counts.
    "cartpole-population": _CARTPOLE._replace(warm_up=0, target=None),
    "cartpole-python": _CARTPOLE._replace(is_python=True, target=None),
    "pendulum": Task(env="Pendulum-v1", steps=40_960, warm_up=4_096),
    "halfcheetah": Task(env="HalfCheetah-v5", steps=40_960, warm_up=4_096),
}
