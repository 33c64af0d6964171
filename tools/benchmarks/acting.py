"""Acting: from NumPy observations to NumPy actions, and inside a function of one's own.

Three groups of tables, on one core and one thread. Contenders take turns, and each
figure is the median over the rounds, the call included:

    predict    a policy asked for actions; beside it Stable-Baselines3's `predict`, for
               a policy with memory a GRU in torch, likewise from array to array, and
               the LSTM of sb3-contrib
    function   a policy inside one's own tf.function, closed over or handed in, beside
               an empty call of one, and the same by `jax.jit`
    logits     the network alone: NumPy, LiteRT (weights in the model, or inputs that
               were set before), a concrete function, torch and `torch.jit`

    tools/bench acting
    tools/bench acting --groups logits --widths 64 1024 --sizes 1 1024 --rounds 51
"""

import functools
import itertools

from harness import one_core

one_core.start_again()

import gymnasium as gym  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from harness import turns  # noqa: E402

import tfrl  # noqa: E402

try:
    import torch
    from peers import acting_torch
except ImportError:
    torch = acting_torch = None
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
    from peers import acting_jax
except ImportError:
    jax = acting_jax = None
try:
    from ai_edge_litert import interpreter as litert
except ImportError:
    litert = None

S = gym.spaces
SIZES = ("1", "8")
FOUR, THREE = S.Box(-1.0, 1.0, (4,)), S.Box(-1.0, 1.0, (3,))
PICTURES = S.Box(0, 255, (84, 84, 4), np.uint8)
# Observations and actions, what the policy of Stable-Baselines3 is called, settings.
KINDS = {
    "Discrete": (FOUR, S.Discrete(2), "MlpPolicy", {}),
    "MultiDiscrete": (FOUR, S.MultiDiscrete([3, 2]), "MlpPolicy", {}),
    "MultiBinary": (FOUR, S.MultiBinary(3), "MlpPolicy", {}),
    "Box": (THREE, S.Box(-2.0, 2.0, (1,)), "MlpPolicy", {}),
    "Box of 376, 17": (
        S.Box(-9.0, 9.0, (376,)),
        S.Box(-1.0, 1.0, (17,)),
        "MlpPolicy",
        {"normalize_observations": True},
    ),
    "nest": (S.Dict(k=S.Discrete(3), x=FOUR), S.Discrete(2), "MultiInputPolicy", {}),
    "pictures": (PICTURES, S.Discrete(6), "CnnPolicy", {"hidden_units": ()}),
}


class Spaces(gym.Env):
    """Has spaces; nobody plays it."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


def batches(space, rows, count=16):
    """Observations of the space, others each time."""
    space.seed(0)
    drawn = [[space.sample() for _ in range(rows)] for _ in range(count)]
    empty = [gym.vector.utils.create_empty_array(space, rows) for _ in range(count)]
    made = [
        (gym.vector.utils.concatenate(space, *pair),)
        for pair in zip(drawn, empty, strict=True)
    ]
    return itertools.cycle(made)


def actors(observations, actions, name, settings):
    """Name -> function of NumPy observations, of those who are installed."""
    policy = tfrl.agents.PPO(**settings).create(observations, actions, seed=0).policy
    settings = {k: x for k, x in settings.items() if k != "normalize_observations"}
    settings = {"hidden_units": (64, 64), "activation": "tanh", **settings}
    agent = tfrl.agents.BC(**settings).create(observations, actions, seed=0)
    host, rng = tfrl.policies.HostPolicy(policy), np.random.default_rng(0)
    found = {
        "tfrl, policy.act": policy.act,
        "tfrl, policy.act(seed=generator)": lambda x: policy.act(x, seed=rng),
        "tfrl, policy.act(temperature=0)": lambda x: policy.act(x, temperature=0.0),
        "tfrl, agent.sample_actions": agent.sample_actions,
        "tfrl, HostPolicy.act": lambda x: host.act(x, seed=rng),
    }
    if stable_baselines3:
        env = Spaces(observations, actions)
        model = stable_baselines3.PPO(name, env, seed=0, device="cpu")
        found["stable-baselines3"] = model.predict
        found["stable-baselines3, greedy"] = lambda x: model.predict(
            x, deterministic=True
        )
    return found


def with_memory(rows):
    """The same of policies that remember."""
    policy = tfrl.policies.RecurrentPolicy.create(
        FOUR, S.Discrete(2), learner=tfrl.agents.TrainState.create
    )
    host, rng = tfrl.policies.HostPolicy(policy), np.random.default_rng(0)
    memory = host.initial_state(rows)
    found = {
        "tfrl, policy.act": lambda x: policy.act(x, memory, seed=rng),
        "tfrl, HostPolicy.act": lambda x: host.act(x, memory, seed=rng),
    }
    if torch:
        found["torch"] = acting_torch.with_memory(4, 2, memory)
    if sb3_contrib:
        env, sizes = Spaces(FOUR, S.Discrete(2)), {"lstm_hidden_size": 64}
        model = sb3_contrib.RecurrentPPO(
            "MlpLstmPolicy", env, policy_kwargs=sizes, seed=0, device="cpu"
        )
        states = tuple(np.zeros((2, 1, rows, 64), np.float32))
        found["sb3-contrib, LSTM"] = lambda x: model.predict(x, states)
    return found


def of_a_model():
    """`sample_actions` of agents around a Keras model of one's own."""
    layers = [keras.layers.Dense(64, "tanh") for _ in range(2)]
    model = keras.Sequential([keras.Input([4]), *layers, keras.layers.Dense(2)])
    state = tfrl.agents.TrainState.create(model, tx=tfrl.agents.adam(1e-3))
    found = {
        "tfrl, BCAgent(model).sample_actions": tfrl.agents.BCAgent(state).sample_actions
    }
    if stable_baselines3:
        env = Spaces(FOUR, S.Discrete(2))
        sb3 = stable_baselines3.PPO("MlpPolicy", env, seed=0, device="cpu")
        found["stable-baselines3"] = sb3.predict
    return found


def in_a_function():
    """Name -> function of NumPy observations and a seed, compiled by its user."""
    policy = tfrl.agents.PPO().create(FOUR, S.Discrete(2), seed=0).policy
    bare = policy.without_optimizer()

    def closed_over(observations, seed):
        return policy.act(observations, seed=seed).actions

    def handed_in(policy, observations, seed):
        return policy.act(observations, seed=seed).actions

    function = tf.function(handed_in, autograph=False)
    found = {
        "empty call": tf.function(lambda x, seed: (x, seed), autograph=False),
        "tfrl, closed over": tf.function(closed_over, autograph=False),
        "tfrl, closed over, in XLA": tf.function(
            closed_over, autograph=False, jit_compile=True
        ),
        "tfrl, handed in": lambda x, seed: function(policy, x, seed),
        "tfrl, handed in, without optimizer": lambda x, seed: function(bare, x, seed),
    }
    if jax:
        found["jax.jit"] = acting_jax.actor(4, 2)
    return found


def network_of(width):
    """The kernels and biases of a multilayer perceptron with two layers of a width."""
    rng, sizes = np.random.default_rng(0), (4, width, width, 2)
    pairs = itertools.pairwise(sizes)
    kernels = [rng.normal(0, n**-0.5, (n, m)).astype("f") for n, m in pairs]
    return kernels, [np.zeros(x.shape[1], "f") for x in kernels]


def logits_of(width, rows):
    """Name -> function of NumPy observations, which all compute the same."""
    kernels, biases = network_of(width)
    activations = ["tanh", "tanh", "linear"]
    layers = [
        keras.layers.Dense(len(b), a) for b, a in zip(biases, activations, strict=True)
    ]
    model = keras.Sequential([keras.Input([4]), *layers])
    model.set_weights([x for pair in zip(kernels, biases, strict=True) for x in pair])
    concrete = tf.function(model, autograph=False).get_concrete_function(
        tf.TensorSpec([rows, 4])
    )
    found = {
        "tfrl, NumPy": tfrl.host.NumpyNetwork(kernels, biases, activations),
        "concrete function": lambda x: np.asarray(concrete(tf.constant(x))),
    }
    if litert:
        found["LiteRT, weights within"] = litert_of(concrete, [])
        spec = [tf.TensorSpec([rows, 4])]
        spec += [tf.TensorSpec(x.shape) for x in (*kernels, *biases)]
        given = tf.function(dense, autograph=False).get_concrete_function(*spec)
        found["LiteRT, weights as inputs"] = litert_of(given, [*kernels, *biases])
    if torch:
        found |= acting_torch.networks(kernels, biases)
    return found


def dense(values, *weights):
    """The network of `weights`, kernels first, as a function of all of them."""
    kernels, biases = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    for kernel, bias in zip(kernels[:-1], biases[:-1], strict=True):
        values = tf.tanh(values @ kernel + bias)
    return values @ kernels[-1] + biases[-1]


def litert_of(concrete, weights):
    """A concrete function in LiteRT, all inputs but the first set beforehand."""
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
    model = litert.Interpreter(model_content=converter.convert(), num_threads=1)
    model.allocate_tensors()
    first, *others = [x["index"] for x in model.get_input_details()]
    (last,) = [x["index"] for x in model.get_output_details()]
    for index, value in zip(others, weights, strict=True):
        model.set_tensor(index, value)

    def call(values):
        model.set_tensor(first, values)
        model.invoke()
        return model.get_tensor(last)

    return call


def shown(console, title, make, space, arguments, base, seeded=False):
    """Prints one table: contenders down, rows of observations across."""
    results = {}
    for size in arguments.sizes:
        given, runs = batches(space, int(size)), {}
        if seeded:
            seeds = [np.array([0, i], np.int32) for i in range(16)]
            made = [(*next(given), seed) for seed in seeds]
            given = itertools.cycle(made)
        for name, call in make(int(size)).items():
            runs[name] = turns.prepared(call, given)
        results[f"batch {size}"] = turns.measure(runs, arguments.rounds)
    names = next(iter(results.values()))
    base = base if base in names else next(iter(names))
    console.print(turns.table(title, results, base))


def predict_tables(console, arguments):
    base = "stable-baselines3"
    for kind in arguments.kinds:
        made = functools.partial(actors, *KINDS[kind])
        space = KINDS[kind][0]
        shown(console, kind, lambda _, made=made: made(), space, arguments, base)
    shown(console, "Discrete, GRU", with_memory, FOUR, arguments, "torch")
    shown(console, "a Keras model", lambda _: of_a_model(), FOUR, arguments, base)


def logits_tables(console, arguments):
    for width in arguments.widths:
        made = functools.partial(logits_of, width)
        shown(
            console,
            f"logits, 4-{width}-{width}-2",
            made,
            FOUR,
            arguments,
            "tfrl, NumPy",
        )


def main():
    parser = turns.parser(__doc__, SIZES, "B")
    groups = ("predict", "function", "logits")
    parser.add_argument("--groups", nargs="+", choices=groups, default=groups)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--widths", nargs="+", type=turns.positive, default=[64, 256])
    arguments = parser.parse_args()
    if torch:
        torch.set_num_threads(1)
    console = turns.console()
    packages = ("tensorflow-cpu", "numpy", "stable-baselines3", "torch", "jax")
    packages += ("ai-edge-litert",)
    console.print(turns.versions(packages), highlight=False)
    for name, module in {
        "stable-baselines3": stable_baselines3,
        "torch": torch,
        "jax": jax,
        "LiteRT": litert,
        "sb3-contrib": sb3_contrib,
    }.items():
        if module is None:
            console.print(f"{name} left out: it is not installed")
    if "predict" in arguments.groups:
        predict_tables(console, arguments)
    if "function" in arguments.groups:
        title = "in a function, Discrete"
        made, base = lambda _: in_a_function(), "empty call"
        shown(console, title, made, FOUR, arguments, base, seeded=True)
    if "logits" in arguments.groups:
        logits_tables(console, arguments)


if __name__ == "__main__":
    main()
