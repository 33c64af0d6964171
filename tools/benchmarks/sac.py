"""SAC and its kin: gradient steps of tfrl, Stable-Baselines3 and SBX (JAX) in turns.

All learn from a replay of 10,000 random steps of a task with as many numbers as
Hopper-v5 (11 observed, 3 chosen), 50 minibatches of 256 in a call, by networks of two
hidden layers of 256; TQC with two critics of 25 quantiles. What is measured is drawing
the minibatches and stepping on one core and one thread, per gradient step.

    tools/bench sac
    tools/bench sac --sizes TQC --rounds 51
"""

from harness import one_core

one_core.start_again()

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from harness import turns  # noqa: E402

import tfrl  # noqa: E402
from tfrl.training import _minibatches  # noqa: E402

try:
    import stable_baselines3
except ImportError:
    stable_baselines3 = None
try:
    import sb3_contrib
except ImportError:
    sb3_contrib = None
try:
    import jax
    import sbx
except ImportError:
    jax = sbx = None

S = gym.spaces
N_STEPS, BATCH, N_ROWS = 50, 256, 10_000
SEEN, CHOSEN = S.Box(-np.inf, np.inf, (11,)), S.Box(-1.0, 1.0, (3,))
PACKAGES = ("tensorflow", "torch", "stable-baselines3", "jax", "sbx-rl")
OURS = {
    "SAC": tfrl.agents.SAC(),
    "TQC": tfrl.agents.TQC(n_critics=2),
    "TD3": tfrl.agents.TD3(hidden_units=(256, 256)),
}


class Task(gym.Env):
    """Has spaces; nobody steps in it."""

    observation_space, action_space = SEEN, CHOSEN

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return np.zeros(11, np.float32), {}


def rows():
    """Observations, next observations, actions and rewards at random."""
    rng = np.random.default_rng(0)
    path = rng.normal(size=(N_ROWS + 1, 11)).astype(np.float32)
    actions = rng.normal(size=(N_ROWS, 3)).astype(np.float32)
    return path[:-1], path[1:], actions, rng.normal(size=N_ROWS).astype(np.float32)


def of_tfrl(name):
    seen, following, actions, rewards = rows()
    agent = OURS[name].create(SEEN, CHOSEN)
    specs = tfrl.core.spec_from_space(SEEN), tfrl.core.spec_from_space(CHOSEN)
    store = tfrl.replay.EpisodeStore(*specs, N_ROWS, 1)
    replay = tfrl.replay.UniformReplay(store, tfrl.replay.Transitions(1, 0.99), 0)
    flags = np.zeros([1], bool)
    for i in range(N_ROWS):
        store.add(
            observations=seen[i : i + 1],
            actions=actions[i : i + 1],
            rewards=rewards[i : i + 1],
            terminated=flags,
            truncated=flags,
            next_observations=following[i : i + 1],
        )
    drawn = _minibatches.Minibatches("sac", replay, BATCH)
    kept = [agent]

    def run():
        kept[0], info = kept[0].update(drawn.drawn(N_STEPS))
        float(info["critic_loss"])

    return run


def of_peer(found, finish):
    units = {"net_arch": [256, 256]}
    settings = {"policy_kwargs": units, "batch_size": BATCH, "buffer_size": N_ROWS}
    model = found("MlpPolicy", Task(), **settings)
    model._setup_learn(N_ROWS)
    seen, following, actions, rewards = rows()
    for i in range(N_ROWS):
        step = seen[i : i + 1], following[i : i + 1], actions[i : i + 1]
        model.replay_buffer.add(*step, rewards[i : i + 1], np.zeros(1, bool), [{}])

    def run():
        model.train(gradient_steps=N_STEPS, batch_size=BATCH)
        finish(model)

    return run


def contenders(name):
    runs = {"tfrl": of_tfrl(name)}
    for library in (stable_baselines3, sb3_contrib):
        if hasattr(library, name):
            runs["stable-baselines3"] = of_peer(getattr(library, name), lambda _: None)
    if sbx is not None:
        runs["sbx"] = of_peer(
            getattr(sbx, name),
            lambda x: jax.block_until_ready(x.policy.actor_state.params),
        )
    for run in runs.values():
        run()
    return {label: (run, N_STEPS) for label, run in runs.items()}


def main() -> None:
    arguments = turns.parser(__doc__, list(OURS), "NAME").parse_args()
    console = turns.console()
    console.print(turns.versions(PACKAGES), highlight=False)
    for name in arguments.sizes:
        results = {name: turns.measure(contenders(name), arguments.rounds)}
        console.print(turns.table("a gradient step", results, "tfrl"))


if __name__ == "__main__":
    main()
