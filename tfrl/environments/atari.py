"""Atari games preprocessed as usual: skipped frames, stacks of 84x84 grey pixels."""

import functools
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv

from tfrl._internal import arguments
from tfrl.environments import envpool_vector, vector

_VECTORIZATIONS = ("sync", "async", "envpool")
# As many agent steps as the 108,000 frames after which the field ends a game.
_MAX_STEPS = 27_000


class EndOnLifeLoss(gym.Wrapper, RecordConstructorArgs):
    """Ends an episode when a life is lost, and continues the game at the next reset.

    As in Mnih et al. (2015, "Human-level control through deep reinforcement learning",
    Methods): a lost life is then valued like the end of an episode. The game itself
    begins anew only when its last life is gone.

    Args:
        env: an Atari game.

    Example:
        >>> import ale_py
        >>> env = gym.make("ALE/Breakout-v5", frameskip=4)
        >>> env = EndOnLifeLoss(env)
        >>> _ = env.reset(seed=0)
        >>> env.action_space.seed(0)
        0
        >>> while not env.step(env.action_space.sample())[2]:
        ...     pass
        >>> env.unwrapped.ale.lives()
        4
    """

    def __init__(self, env: gym.Env) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._lives, self._is_over = 0, True

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begins a game, or continues one with a no-op step."""
        seen, info = None, dict[str, Any]()
        if not self._is_over and kwargs.get("seed") is None:
            seen, _, terminated, truncated, info = self.env.step(0)
            self._is_over = terminated or truncated
        if self._is_over or kwargs.get("seed") is not None:
            seen, info = self.env.reset(**kwargs)
        self._lives, self._is_over = self._lives_now(), False
        return seen, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Plays a step."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        self._is_over = terminated or truncated
        lives = self._lives_now()
        terminated = terminated or lives < self._lives
        self._lives = lives
        return seen, reward, terminated, truncated, info

    def _lives_now(self) -> int:
        game: Any = self.env.unwrapped
        lives: int = game.ale.lives()
        return lives


def make_atari(
    game: str,
    n_envs: int = 8,
    vectorization: str = "sync",
    frame_skip: int = 4,
    stack: int = 4,
    size: int = 84,
    noop_max: int = 30,
    end_on_life_loss: bool = False,
    clip_rewards: bool = False,
    repeat_action_probability: float = 0.0,
    max_episode_steps: int = _MAX_STEPS,
) -> VectorEnv:
    """Makes Atari games that step together, preprocessed as usual.

    As in Mnih et al. (2015) and Machado et al. (2018, "Revisiting the Arcade Learning
    Environment"): up to `noop_max` no-op steps first, every action for `frame_skip`
    frames, the maximum of the last two of them, grey, resized to `size` by `size`, and
    the last `stack` of these: observations `[stack, size, size]` uint8. `"envpool"`
    plays the same games, pixel by pixel, in C++ threads.

    With `end_on_life_loss` and `clip_rewards`, which help some algorithms to learn,
    reported returns are those of a life and of signs, in evaluations too.

    Args:
        game: name of the game, such as "Pong" or "SpaceInvaders".
        n_envs: number of games, at least 1.
        vectorization: "sync", "async" or "envpool", see `make_vec`.
        frame_skip: frames of an action, at least 1.
        stack: how many pictures are shown at once, at least 1.
        size: of the pictures, in pixels.
        noop_max: most no-op steps at the beginning.
        end_on_life_loss: whether an episode ends with a life, see `EndOnLifeLoss`; not
            with "envpool".
        clip_rewards: whether rewards are their signs.
        repeat_action_probability: of playing the previous action instead; 0.25 in
            Machado et al., 0 before.
        max_episode_steps: of the agent, after which an episode is truncated.

    Returns:
        The vector environment, as in `make_vec`.

    Raises:
        ImportError: if EnvPool is asked for and missing.
        TypeError: if an argument is of another type.
        ValueError: if an argument is out of range, or there is no such game.

    Example:
        >>> envs = make_atari("Breakout", n_envs=2)
        >>> envs.reset(seed=0)[0].shape
        (2, 4, 84, 84)
        >>> envs.close()
    """
    options: dict[str, Any] = {
        "frame_skip": frame_skip,
        "stack": stack,
        "size": size,
        "noop_max": noop_max,
        "end_on_life_loss": end_on_life_loss,
        "clip_rewards": clip_rewards,
        "repeat_action_probability": repeat_action_probability,
        "max_episode_steps": max_episode_steps,
    }
    _check(game, n_envs, vectorization, options)
    envs: Any
    if vectorization == "envpool":
        envs = envpool_vector.EnvPoolVector(
            f"{game}-v5",
            n_envs,
            stack_num=stack,
            frame_skip=frame_skip,
            img_height=size,
            img_width=size,
            noop_max=noop_max,
            reward_clip=clip_rewards,
            repeat_action_probability=float(repeat_action_probability),
            use_fire_reset=False,
            max_episode_steps=max_episode_steps,
        )
    else:
        kwargs = {"repeat_action_probability": float(repeat_action_probability)}
        envs = vector.make_vec(
            f"ale_py:ALE/{game}-v5",
            n_envs,
            vectorization,
            env_kwargs={**kwargs, "frameskip": 1},
            wrappers=_wrappers(**options),
        )
    envs.remake = functools.partial(
        make_atari, game=game, vectorization=vectorization, **options
    )
    return envs


def _check(game: Any, n_envs: Any, vectorization: Any, options: dict[str, Any]) -> None:
    where = "make_atari"
    arguments.check_type(where, "game", game, str, "the name of a game")
    arguments.check_one_of(where, "vectorization", vectorization, _VECTORIZATIONS)
    arguments.check_whole_number(where, "n_envs", n_envs, low=1)
    for name in ("frame_skip", "stack", "size", "noop_max", "max_episode_steps"):
        low = 0 if name == "noop_max" else 1
        arguments.check_whole_number(where, name, options[name], low=low)
    for name in ("end_on_life_loss", "clip_rewards"):
        arguments.check_type(where, name, options[name], bool, "a bool")
    name = "repeat_action_probability"
    arguments.check_number(where, name, options[name], low=0.0, high=1.0)
    if options["end_on_life_loss"] and vectorization == "envpool":
        raise ValueError(
            f"`{where}`: `end_on_life_loss` expected False of vectorization='envpool', "
            "which begins the next life otherwise than `EndOnLifeLoss`, with pictures "
            "of the last one in its stack; got True; take 'sync' or 'async'"
        )


def _wrappers(
    frame_skip: int,
    stack: int,
    size: int,
    noop_max: int,
    end_on_life_loss: bool,
    clip_rewards: bool,
    max_episode_steps: int,
    **_: Any,
) -> list[Any]:
    """Returns what is put around a game of Gymnasium, the innermost first."""
    wraps, partial = gym.wrappers, functools.partial
    found: list[Any] = [
        partial(
            wraps.AtariPreprocessing,
            noop_max=noop_max,
            frame_skip=frame_skip,
            screen_size=size,
        ),
        partial(wraps.TimeLimit, max_episode_steps=max_episode_steps),
    ]
    if end_on_life_loss:
        found.append(EndOnLifeLoss)
    if clip_rewards:
        found.append(partial(wraps.ClipReward, min_reward=-1, max_reward=1))
    return [*found, partial(wraps.FrameStackObservation, stack_size=stack)]
