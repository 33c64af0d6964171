"""What the `run.json` of a run of `fit` keeps, from which it is made again."""

import types
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrl.policies import host_policy
from tfrl.replay.sampling import prioritized, uniform
from tfrl.training import _kept_arguments, _run_record, cadence
from tfrl.training import experience as experiences
from tfrl.training.fitting import fit_callbacks

# Of the arguments of `create`, those that a run keeps.
_NUMBERS = ("seed", "n_envs", "n_steps")
_OF_DRAWS = ("epsilon", "replacement", "recent_steps", "recent_ratio", "stratified")

# What does nothing to a run.
_SILENT = (fit_callbacks.Ending, keras.callbacks.History, keras.callbacks.ProgbarLogger)


class _LostError(ValueError):
    """Something of a run that its record cannot say."""


def recorded(model: Any, saved: Any) -> _run_record.RunRecord:
    """Returns the record of a run of `fit`, in a trainer's words as far as they go.

    Args:
        model: the `AgentModel`, made by `create`, with what its `fit` was asked.
        saved: the `RunCheckpoint`.
    """
    recipe = model.recipe
    given = {"seed": 0, **recipe.arguments}
    envs = [part.envs for part in saved.parts.values() if hasattr(part, "envs")]
    makers = [vars(x)["remake"] for x in envs if "remake" in vars(x)]
    arguments = {
        "agent": recipe.config,
        "make_envs": saved.make_envs or (makers[0] if makers else _Unknown()),
        "n_envs": envs[0].num_envs if envs else None,
        "experience": None,
        "seed": given["seed"],
        "n_epochs": model.asked.epochs,
        "network": given.get("network"),
        "intervals": cadence.Intervals(),
        "stop_at_return": None,
        "evaluation": None,
        "fit": None,
    }
    like: Any = types.SimpleNamespace(
        single_observation_space=recipe.observation_space,
        single_action_space=recipe.action_space,
        spec=getattr(envs[0], "spec", None) if envs else None,
    )
    lost = None
    try:
        arguments |= _described(model, saved, arguments["make_envs"])
    except _LostError as error:
        lost = str(error)
    numbers = {name: given[name] for name in _NUMBERS if name in given}
    record = _run_record.of_trainer(arguments, numbers, like)
    if lost is not None:
        record.arguments["fit"] = _kept_arguments.unkept(lost)
    return record


def _described(model: Any, saved: Any, make_envs: Any) -> dict[str, Any]:
    """Returns arguments from which `FitTrainer` makes the run again.

    Raises:
        _LostError: if there are none.
    """
    asked, given = model.asked, dict(model.recipe.arguments)
    player, replay = _players(asked)
    judges = [x for x in asked.callbacks if type(x) is fit_callbacks.Evaluate]
    listed = [x for x in asked.callbacks if not isinstance(x, _SILENT)]
    listed = listed if player in listed else [player, *listed]
    if listed != [player, *judges[:1], saved]:
        kinds = ", ".join(type(x).__name__ for x in listed)
        known = f"{type(player).__name__}, Evaluate, RunCheckpoint"
        raise _LostError(f"the callbacks {kinds}, more than {known} in this order")
    played = [player] if replay is None else [player, replay]
    names = {id(part): name for name, part in saved.parts.items()}
    if {*names} != {*map(id, played)} or len(saved.parts) > len(played):
        kinds = " and ".join(type(x).__name__ for x in played)
        raise _LostError(f"the parts {sorted(saved.parts)}, others than {kinds}")
    for each in (player, *judges):
        if each.settings["policy"] is not None:
            raise _LostError(f"the policy of {type(each).__name__}")
    spaces = model.recipe.observation_space, model.recipe.action_space
    envs = player.envs
    if spaces != (envs.single_observation_space, envs.single_action_space):
        raise _LostError(f"spaces of the model that are not those of {envs}")
    create = {name: given.pop(name) for name in _NUMBERS[1:] if name in given}
    unknown = {*given} - {"seed", "network"}
    if unknown:
        raise _LostError(f"the arguments {sorted(unknown)} of `create`")
    cadences = {"checkpoint_epochs": saved.every_epochs, "checkpoints_kept": saved.keep}
    found: dict[str, Any] = {}
    for judge in judges:
        told, cadences["eval_epochs"] = judge.settings, judge.settings["every_epochs"]
        cadences["eval_episodes"] = told["n_episodes"]
        found["stop_at_return"] = told["stop_at"]
        counts = {"n_envs": judge.envs.num_envs, "seed": told["seed"]}
        made = _remade(judge.envs, saved, make_envs)
        found["evaluation"] = {**counts, "make_envs": made}
    return found | {
        "n_envs": envs.num_envs,
        "experience": _experience(model, player, replay),
        "intervals": cadence.Intervals(log_epochs=1, **cadences),
        "fit": {
            "steps_per_epoch": asked.steps_per_epoch,
            "steps_per_execution": model.steps_per_execution,
            "seed": player.settings["seed"],
            "create": create,
            "parts": [names[id(part)] for part in played],
            "dtypes": [] if replay is None else dtypes_of(replay),
            "make_envs": _remade(envs, saved, make_envs),
        },
    }


def _players(asked: Any) -> tuple[Any, Any]:
    """Returns who plays for a `fit`, and the replay that it is for, if it is one."""
    x = asked.x
    if type(x) is fit_callbacks.Rollouts:
        return x, None
    if type(x) in (uniform.UniformReplay, prioritized.PrioritizedReplay):
        for each in asked.callbacks:
            is_collect = type(each) is fit_callbacks.Collect
            if is_collect and each.settings["store"] is x.store:
                return each, x
        raise _LostError("a replay that no Collect fills")
    raise _LostError(f"data of {type(x).__module__}.{type(x).__qualname__}")


def _experience(model: Any, player: Any, replay: Any) -> Any:
    """Returns what a trainer would be told to learn from."""
    n_steps, n_envs = player.settings["n_steps"], player.envs.num_envs
    if replay is None:
        return experiences.Trajectories(n_steps)
    settings = dict(replay.settings)
    kind: Any = settings.pop("kind")
    every = player.settings["every_batches"]
    # Of these `Replayed` has the defaults alone; others are told apart below.
    for name in _OF_DRAWS:
        settings.pop(name, None)
    is_uniform = isinstance(replay, uniform.UniformReplay)
    try:
        learned = experiences.Replayed(
            capacity=replay.store.capacity,
            batch_size=model.asked.batch_size or 32,
            n_steps=n_steps,
            updates_per_step=every / (n_steps * n_envs),
            learning_starts=player.settings["warm_up_steps"],
            gamma=kind.discount,
            n_step_returns=kind.n_step,
            sampler="uniform" if is_uniform else "prioritized",
            **settings,
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise _LostError(f"a replay that `Replayed` cannot describe: {error}") from None
    policy = host_policy.HostPolicy(model.agent.policy)
    specs = experiences.step_specs(policy, player.collector)
    like = experiences.replay_of(
        *(learned, specs, n_envs, np.random.default_rng(0)), player.collector.envs
    )
    looks = [
        [x.settings, x.store.capacity, x.store.num_environments, _layout(x.store)]
        for x in (replay, like)
    ]
    if looks[0] != looks[1] or learned.n_gradient_steps(n_envs) != every:
        raise _LostError(f"a replay of other steps or samples than {learned}")
    return learned


def _layout(store: Any) -> Any:
    """What rows look like but for dtypes, which are in the record."""
    return tf.nest.map_structure(lambda x: str(x.shape), store.step_spec)


def dtypes_of(replay: Any) -> list[str]:
    """Returns the dtypes of observations and actions in a replay."""
    step = replay.store.step_spec
    return [x.dtype.name for x in tf.nest.flatten((step.observations, step.actions))]


def _remade(envs: Any, saved: Any, make_envs: Any) -> Any:
    """Returns what makes environments again; None if the run's `make_envs` does.

    Raises:
        _LostError: if nothing does.
    """
    maker = vars(envs).get("remake", saved.make_envs)
    if maker is None:
        raise _LostError(f"environments that `make_vec` did not make, {envs!r:.80}")
    kept, of_run = map(_kept_arguments.kept, (maker, make_envs))
    for place, what in _kept_arguments.lost(kept, "make_envs").items():
        raise _LostError(f"{place} = {what}")
    return maker if _kept_arguments.differences(kept, of_run) else None


class _Unknown:
    """Stands for environments of which nobody said how they are made."""

    def __call__(self, n_envs: int) -> None:
        """Makes none."""
