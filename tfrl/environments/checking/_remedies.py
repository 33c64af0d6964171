"""What to do about each fault of an environment, errors and warnings."""

ERRORS = {
    "no_space": "set it in `__init__`",
    "bounds": "give it a lower bound below the upper, and a shape without 0",
    "reset_arguments": "write `def reset(self, *, seed=None, options=None)` and call "
    "`super().reset(seed=seed)`",
    "reset_return": "return `observation, info`, info a dict",
    "step_return": "return `observation, reward, terminated, truncated, info`",
    "raises": "mend the environment; the actions were samples of its action space, and "
    "the corners of a Box",
    "observation_form": "return what the space says, or mend the space",
    "observation_dtype": "cast it, or declare its dtype",
    "observation_not_finite": "look for a division by 0 or an overflow",
    "observation_choice": "return an element of the space; its one-hot would be zeros",
    "reset_bounds": "clip it, or widen the space",
    "reward_type": "return a float",
    "reward_not_finite": "look for a division by 0 or an overflow",
    "end_type": "return a bool",
    "info_type": "return a dict, an empty one if there is nothing to say",
    "action_changed": "copy the action before changing it",
    "observation_overwritten": "return a copy; who keeps the array, as a replay does, "
    "keeps another observation",
    "space_changes": "keep both spaces as they are in `__init__`; make another "
    "environment for other spaces",
    "not_reproducible": "draw all random numbers from `self.np_random`, and depend on "
    "no clock, no set order and no other process",
    "global_random": "draw from `self.np_random`, and call `super().reset(seed=seed)`",
    "shared_state": "make it in `__init__`, not in the class, a default or the module",
    "reset_incomplete": "set all that changes anew in `reset`",
}
WARNINGS = {
    "observation_is_state": "return a copy of the state",
    "observation_bounds": "clip it, or widen the space; networks may scale by it",
    "time_limit": "a time limit is `truncated`, not `terminated`: register the "
    "environment with `max_episode_steps`, or wrap it in `TimeLimit`",
    "endless": "register it with `max_episode_steps`, or wrap it in `TimeLimit`",
    "plays_on": "raise, or keep saying that the episode is over",
    "reset_reseeds": "seed only where `reset` is given a seed, and by that seed",
    "reset_drift": "see that nothing is left over, as forces in a simulator may be",
    "wrapper_state": "a wrapper keeps what it learned; where that is not meant, set it "
    "anew in `reset`",
    "info_changes": "return the same keys with the same types; vectors put them into "
    "arrays",
    "info_reused": "return a new dict in each step",
    "observation_constant": "nothing can be told from it; see that it is not the first "
    "one again and again",
    "bounds_equal": "leave out what never changes",
    "action_unbounded": "give it bounds, best -1 and 1",
    "action_scale": "wrap it in `gymnasium.wrappers.RescaleAction(env, -1.0, 1.0)`: "
    "exploration noise has the same scale everywhere",
    "space_kind": "policies of `tfrl` take Box, Discrete, MultiDiscrete, MultiBinary, "
    "Dict and Tuple: turn it into one by a wrapper",
    "seed_default": "take None for no seed, or all episodes are the same",
    "seed_not_kept": "call `super().reset(seed=seed)`",
    "start": "`tfrl` counts from there; where another library does not, subtract it",
    "image": "return uint8 in [0, 255], which networks convolve and divide by 255",
    "render_modes": "write `metadata = {'render_modes': [...], 'render_fps': 30}`",
    "render": "return an array [H, W, 3] of uint8 for 'rgb_array'",
    "close_fails": "let `close` be called twice",
    "not_capturable": "a resumed run begins new episodes; all else is saved",
    "not_sendable": "make it by a function of a module, for workers in processes of "
    "their own",
    "slow": "step several in processes of their own: `vectorization='async'`",
}
