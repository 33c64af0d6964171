"""Actor processes: environment steps a second under a policy, beside the peers' ways.

A step takes a millisecond, in which it sleeps (as behind a network or a simulator of
its own) or computes, or it is one of HalfCheetah. A network of 2 x 64 units plays.
`--actors` processes of one environment each play in turns, `--seconds` each:

    ActorPool, Ray     what a `Trainer` collects from, trajectories of 20 steps
    one actor          the first of these with one actor, alone on the machine
    Actors             into a function
    SubprocVecEnv      of Stable-Baselines3, its policy in this process
    AsyncVectorEnv     of Gymnasium, our policy in this process
    EnvPool            as many threads, our policy in this process; it has no such steps
    TorchRL            MultiSyncCollector and MultiAsyncCollector

    ideal       what so many environments would play if nothing but their steps took
                time; of those that compute, by the processors that there are
    of one actor    what so many would play if each played as one does alone; likewise
    memory      MB of the largest process beside this one

With `--intake` environments take no time, and what is told is what the learner's
process spends on a trajectory of 20 steps, of 4 numbers or of images: its processor
time bounds how many actors one learner can have.

    tools/bench actors
    tools/bench actors --kinds sleeping --actors 8 --rounds 9
    tools/bench actors --intake
"""

import argparse
import functools
import importlib
import importlib.util
import os
import statistics
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
import rich.table  # noqa: E402
from harness import records, turns  # noqa: E402

STEP_SECONDS = 1e-3
N_STEPS = 20


class Sleeping(gym.Env):
    """Steps that wait."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gym.spaces.Discrete(3)
    steps = 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.random(4, np.float32), {}

    def step(self, action):  # noqa: ARG002
        self.wait()
        self.steps += 1
        seen = np.full(4, self.steps, np.float32)
        return seen, 1.0, False, self.steps == 200, {}

    def wait(self):
        time.sleep(STEP_SECONDS)


class Computing(Sleeping):
    """Steps that take processor time, however long that is on a shared machine."""

    def wait(self):
        end = time.thread_time() + STEP_SECONDS
        while time.thread_time() < end:
            pass


ALONE = "ActorPool, one actor"
OWN = "ActorPool", "Actors", "ActorPool, Ray"
KINDS = {"sleeping": Sleeping, "computing": Computing}


def made(kind):
    """One environment."""
    return KINDS[kind]() if kind in KINDS else gym.make(kind)


def vector(kind, n_envs):
    """What an actor plays, or a vector of processes."""
    return gym.vector.SyncVectorEnv([functools.partial(made, kind)] * n_envs)


def agent_of(kind):
    """An agent whose policy plays, which asks for log-probabilities."""
    agents = importlib.import_module("tfrl.agents")
    env = made(kind)
    return agents.IMPALA().create(env.observation_space, env.action_space, seed=0)


class Pool:
    """The collector of a trainer."""

    def __init__(self, kind, count, engine="processes"):
        training = importlib.import_module("tfrl.training")
        agents = importlib.import_module("tfrl.agents")
        folder = importlib.import_module("tempfile").mkdtemp()
        self.trainer = training.Trainer(
            folder,
            agent=agents.IMPALA(),
            make_envs=functools.partial(vector, kind),
            n_envs=count,
            experience=training.Trajectories(N_STEPS),
            collector=training.ActorPool(count, engine=engine),
            intervals=training.Intervals(eval_episodes=1),
        )
        self.play(0.0)

    def play(self, seconds):
        end, before = time.perf_counter() + seconds, self.trainer.env_steps
        while True:
            self.trainer.gather()
            if time.perf_counter() >= end:
                return self.trainer.env_steps - before

    def close(self):
        self.trainer.close()


class Free:
    """`Actors`, into a function."""

    def __init__(self, kind, count):
        training = importlib.import_module("tfrl.training")
        self.actors = training.Actors(
            functools.partial(made, kind), agent_of(kind).policy, ignore, count
        )
        self.actors.wait_for(count)

    def play(self, seconds):
        before = self.actors.env_steps
        time.sleep(seconds)
        return self.actors.env_steps - before

    def close(self):
        self.actors.close()


def ignore(trajectory, env_ids):
    pass


class Together:
    """A vector whose environments step together, under our policy in this process."""

    def __init__(self, kind, count, make):
        policies = importlib.import_module("tfrl.policies")
        self.envs, self.count = make(kind, count), count
        self.policy = policies.HostPolicy(agent_of(kind).policy, log_probs=True)
        self.rng = np.random.default_rng(0)
        self.seen, _ = self.envs.reset(seed=0)
        self.play(0.0)

    def play(self, seconds):
        end, steps = time.perf_counter() + seconds, 0
        while True:
            actions = self.policy.act(self.seen.astype("f"), seed=self.rng).actions
            self.seen = self.envs.step(actions)[0]
            steps += self.count
            if time.perf_counter() >= end:
                return steps

    def close(self):
        self.envs.close()


def asynchronous(kind, count):
    makers = [functools.partial(made, kind)] * count
    return gym.vector.AsyncVectorEnv(makers, context="spawn")


def envpool(kind, count):
    environments = importlib.import_module("tfrl.environments")
    return environments.make_vec(kind, count, vectorization="envpool")


class Subproc:
    """Stable-Baselines3's vector of processes, under its own policy."""

    def __init__(self, kind, count):
        vec_env = importlib.import_module("stable_baselines3.common.vec_env")
        sb3 = importlib.import_module("stable_baselines3")
        make = functools.partial(made, kind)
        self.envs = vec_env.SubprocVecEnv([make] * count, start_method="spawn")
        self.policy = sb3.PPO("MlpPolicy", self.envs, device="cpu").policy
        self.seen, self.count = self.envs.reset(), count
        self.play(0.0)

    def play(self, seconds):
        end, steps = time.perf_counter() + seconds, 0
        while True:
            actions, _ = self.policy.predict(self.seen)
            self.seen = self.envs.step(actions)[0]
            steps += self.count
            if time.perf_counter() >= end:
                return steps

    def close(self):
        self.envs.close()


class OfTorchRL:
    """A collector of TorchRL, of processes."""

    def __init__(self, kind, count, name):
        collectors = importlib.import_module("torchrl.collectors")
        make = functools.partial(wrapped, kind)
        self.collector = getattr(collectors, name)(
            [make] * count,
            torch_policy(kind),
            frames_per_batch=N_STEPS * (count if "Sync" in name else 1),
            total_frames=-1,
            device="cpu",
        )
        self.batches = iter(self.collector)
        self.play(0.0)

    def play(self, seconds):
        end, steps = time.perf_counter() + seconds, 0
        while True:
            steps += next(self.batches).numel()
            if time.perf_counter() >= end:
                return steps

    def close(self):
        self.collector.shutdown()


def wrapped(kind):
    envs = importlib.import_module("torchrl.envs")
    env = envs.GymWrapper(made(kind))
    return env if kind in KINDS else envs.TransformedEnv(env, envs.DoubleToFloat())


def torch_policy(kind):
    """Two layers of 64, and draws."""
    nn, torch = importlib.import_module("torch.nn"), importlib.import_module("torch")
    modules = importlib.import_module("torchrl.modules")
    tensordict = importlib.import_module("tensordict.nn")
    env = made(kind)
    is_discrete = isinstance(env.action_space, gym.spaces.Discrete)
    n_seen = env.observation_space.shape[0]
    n_actions = env.action_space.n if is_discrete else env.action_space.shape[0]
    layers = [nn.Linear(n_seen, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
    width = n_actions if is_discrete else 2 * n_actions
    net = nn.Sequential(*layers, nn.Linear(64, width)).to(torch.float32)
    if is_discrete:
        names, kind_of = ["logits"], modules.OneHotCategorical
    else:
        net = nn.Sequential(net, modules.NormalParamExtractor())
        names, kind_of = ["loc", "scale"], modules.TanhNormal
    module = tensordict.TensorDictModule(net, ["observation"], names)
    return modules.ProbabilisticActor(
        module, in_keys=names, out_keys=["action"], distribution_class=kind_of
    )


def contenders(kind):
    """Name -> function of a kind and a count that makes it."""
    found = {ALONE: lambda kind, _: Pool(kind, 1), "ActorPool": Pool, "Actors": Free}
    if importlib.util.find_spec("ray") is not None:
        found["ActorPool, Ray"] = functools.partial(Pool, engine="ray")
    found["AsyncVectorEnv"] = functools.partial(Together, make=asynchronous)
    if kind not in KINDS:
        found["EnvPool"] = functools.partial(Together, make=envpool)
    if importlib.util.find_spec("stable_baselines3") is not None:
        found["SB3, SubprocVecEnv"] = Subproc
    if importlib.util.find_spec("torchrl") is not None:
        for name in ("MultiSyncCollector", "MultiAsyncCollector"):
            found[f"TorchRL, {name}"] = functools.partial(OfTorchRL, name=name)
    return found


def megabytes(pids):
    """Resident memory of the largest of some processes."""
    sizes = [0.0]
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                sizes.append(int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE"))
        except OSError:
            continue
    return max(sizes) / 2**20


def children():
    """Processes that any thread of this one started."""
    me, found = os.getpid(), set()
    for task in os.listdir(f"/proc/{me}/task"):
        with open(f"/proc/{me}/task/{task}/children") as file:
            found |= set(map(int, file.read().split()))
    return found


def measured(kind, count, rounds, seconds):
    """Name -> steps a second in each round, and MB of the largest process."""
    rates, sizes = {}, {}
    for name, make in contenders(kind).items():
        before = children()
        playing = make(kind, count)
        try:
            sizes[name] = megabytes(children() - before)
            found = []
            for _ in range(rounds):
                start = time.perf_counter()
                steps = playing.play(seconds)
                found.append(steps / (time.perf_counter() - start))
            rates[name] = found
        finally:
            playing.close()
    return rates, sizes


class Still(gym.Env):
    """Steps that do nothing."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, shape, dtype):
        self.observation_space = gym.spaces.Box(0, 255, shape, dtype)
        self.seen = np.zeros(shape, dtype)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        return self.seen, {}

    def step(self, action):  # noqa: ARG002
        return self.seen, 1.0, False, False, {}


def stills(n_envs, shape, dtype):
    make = functools.partial(Still, shape, dtype)
    return gym.vector.SyncVectorEnv([make] * n_envs, autoreset_mode="Disabled")


def intake(console, rounds):
    """Prints what the learner spends on what two actors play."""
    training = importlib.import_module("tfrl.training")
    agents = importlib.import_module("tfrl.agents")
    tempfile = importlib.import_module("tempfile")
    found = rich.table.Table(title=f"a trajectory of {N_STEPS} steps in the learner")
    for head in ("engine", "observations", "processor ms", "steps a second of it"):
        found.add_column(head, justify="right", no_wrap=True)
    kinds = ((4,), "float32"), ((84, 84, 4), "uint8")
    engines = ["processes"]
    engines += ["ray"] * (importlib.util.find_spec("ray") is not None)
    for engine in engines:
        for shape, dtype in kinds:
            trainer = training.Trainer(
                tempfile.mkdtemp(),
                agent=agents.IMPALA(),
                make_envs=functools.partial(stills, shape=shape, dtype=dtype),
                n_envs=2,
                experience=training.Trajectories(N_STEPS),
                collector=training.ActorPool(2, engine=engine),
                intervals=training.Intervals(eval_episodes=1),
            )
            count = 100
            for _ in range(count):
                trainer.gather()
            spent = []
            for _ in range(rounds):
                start = time.process_time()
                for _ in range(count):
                    trainer.gather()
                spent.append((time.process_time() - start) / (2 * count))
            trainer.close()
            middle = statistics.median(spent)
            what = "x".join(map(str, shape))
            rate = f"{N_STEPS / middle:,.0f}"
            found.add_row(engine, what, f"{1e3 * middle:.2f}", rate)
    console.print(found)


def table(kind, count, rates, sizes):
    found = rich.table.Table(title=f"{kind}, {count} environments: medians")
    found.add_column("", no_wrap=True)
    heads = "steps/s", "least to most", "of the ideal", "of one actor", "memory"
    for head in heads:
        found.add_column(head, justify="right", no_wrap=True)
    at_once = count if kind == "sleeping" else min(count, len(os.sched_getaffinity(0)))
    alone = statistics.median(rates[ALONE])
    played = {name: rounds for name, rounds in rates.items() if name != ALONE}
    times = {
        f"tfrl, {name}" if name in OWN else name: [1e9 / rate for rate in rounds]
        for name, rounds in played.items()
    }
    title = f"1,000 steps by {count} actors, {kind}"
    records.keep(title, "us", times, "tfrl, ActorPool")
    for name, rounds in rates.items():
        middle = statistics.median(rounds)
        n_envs = 1 if name == ALONE else at_once
        ideal = f"{middle * STEP_SECONDS / n_envs:.2f}" if kind in KINDS else ""
        share = f"{middle / (n_envs * alone):.2f}"
        spread = f"{min(rounds):,.0f} to {max(rounds):,.0f}"
        memory = f"{sizes[name]:.0f}"
        found.add_row(name, f"{middle:,.0f}", spread, ideal, share, memory)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=turns.positive, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--actors", type=turns.positive, nargs="+", default=[4])
    kinds = [*KINDS, "HalfCheetah-v5"]
    parser.add_argument("--kinds", nargs="+", default=kinds, metavar="KIND")
    parser.add_argument("--intake", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    console = turns.console()
    packages = "gymnasium", "envpool", "ray", "stable-baselines3", "torchrl"
    known = [x for x in packages if importlib.util.find_spec(x.replace("-", "_"))]
    console.print(turns.versions(known), highlight=False)
    if arguments.intake:
        intake(console, arguments.rounds)
        return
    for kind in arguments.kinds:
        for count in arguments.actors:
            given = kind, count, arguments.rounds, arguments.seconds
            console.print(table(kind, count, *measured(*given)))


if __name__ == "__main__":
    main()
