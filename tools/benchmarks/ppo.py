"""PPO: tfrl beside Stable-Baselines3, SBX and a plain PyTorch file.

All train with the same settings, each in a process of its own on one core and one
thread, in turn seed by seed, and then play 20 greedy episodes. The tasks are CartPole
by the settings of rl-zoo, in the vectorized environment where the contender knows how
to play it, and in the same Python environments for everybody; Pendulum and HalfCheetah
by the defaults of Stable-Baselines3 in the same Python environments. CartPole is also
played within one program, by tfrl (configs/ppo_cartpole_compiled.gin) and by JAX. There
every contender trains until 20 greedy episodes, which it plays every 10,240 steps, have
a mean return of 475, too: the seconds from the start of the process to its end.
That is a second process: tfrl has kept what XLA compiled in the run before it, as it
does for users, while JAX, left as it is, compiles again.
`cartpole-wide` is these two alone, of 1,024 environments and 128 steps an epoch,
`cartpole-population` 64 seeds at once, by `train_population` and by `vmap` of JAX, and
beside them one of the runs that the 64 would be one after another.
"""

import argparse
import statistics

from harness import trainings, turns
from peers import ppo_tasks

# Contenders with the environment in the program.
ONE_GRAPH = ("tfrl, one graph", "JAX, one graph")
# Seeds of a population.
MEMBERS = 64


def contenders(task: str) -> dict[str, trainings.Contender]:
    named, sb3 = f"--task={task}", "peers/ppo_sb3.py"
    torch = "peers/ppo_torch.py"
    about = ppo_tasks.TASKS[task]
    bindings, in_graph = about.bindings(), {}
    if task in ("cartpole", "cartpole-wide", "cartpole-population"):
        settings = [x for x in bindings if not x.startswith("make_vec")]
        own = trainings.tfrl_run("ppo_cartpole_compiled", settings)
        theirs = trainings.script_run("peers/ppo_jax.py", *about.options())
        in_graph = dict(zip(ONE_GRAPH, (own, theirs), strict=True))
    if task == "cartpole-wide":
        return in_graph
    if task == "cartpole-population":
        size, jax = f"--members={MEMBERS}", "peers/ppo_jax.py"
        return {
            "tfrl, population": trainings.script_run("peers/ppo_population.py", size),
            "JAX, vmap": trainings.script_run(jax, *about.options(), size),
            "tfrl, one run": in_graph[ONE_GRAPH[0]],
        }
    return {
        "tfrl": trainings.tfrl_run("ppo_cartpole", bindings),
        "stable-baselines3": trainings.script_run(sb3, named),
        "sbx": trainings.script_run(sb3, named, "--library=sbx"),
        "torch": trainings.script_run(torch, named),
        "torch.compile": trainings.script_run(torch, named, "--compile"),
        "torch, EnvPool": trainings.script_run(torch, named, "--envpool"),
        **in_graph,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = [*ppo_tasks.TASKS]
    names = list(dict.fromkeys(x for task in ppo_tasks.TASKS for x in contenders(task)))
    parser.add_argument("--tasks", nargs="+", choices=tasks, default=tasks)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", type=turns.positive, default=3, help="from 0 on")
    parser.add_argument("--steps", type=turns.positive, help="env steps each")
    arguments = parser.parse_args()
    console = turns.console()
    console.print(turns.versions(trainings.PACKAGES), highlight=False)
    for task in arguments.tasks:
        about, all_of_it = ppo_tasks.TASKS[task], contenders(task)
        results = trainings.compare(
            console,
            f"PPO, {task}",
            {name: all_of_it[name] for name in arguments.only if name in all_of_it},
            arguments.seeds,
            arguments.steps or about.steps,
            about.warm_up,
            about.target,
        )
        in_graph = {x: results[x] for x in ONE_GRAPH if x in results}
        if len(in_graph) == len(ONE_GRAPH) < len(results):
            title, caption = f"PPO in one graph, {task}", "of the runs above"
            console.print(trainings.report(title, in_graph, caption))
        grown, one = (results.get(f"tfrl, {x}") for x in ("population", "one run"))
        if grown and one:
            whole = statistics.median(x["process_seconds"] for x in grown)
            each = MEMBERS * statistics.median(x["process_seconds"] for x in one)
            console.print(
                f"{MEMBERS} runs one after another take {MEMBERS} times the one, "
                f"{each:,.0f} s; the population takes {whole:,.0f} s, "
                f"{whole / each:.2f} of that"
            )


if __name__ == "__main__":
    main()
