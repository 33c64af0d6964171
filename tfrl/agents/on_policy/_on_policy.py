"""How on-policy agents learn: advantages of a trajectory, and gradient steps."""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import tensorflow as tf

from tfrl._internal import checks, draws
from tfrl.agents import _raw_actions, advantages, agent, replicated, train_state
from tfrl.agents.on_policy import _settings
from tfrl.core import pytree, random, records
from tfrl.losses import policy as policy_losses
from tfrl.schedules import progress as progresses


class OnPolicyAgent(pytree.PyTreeNode):
    """Base of agents that learn from trajectories of their own policy.

        loss = policy loss + value_coefficient * value loss
               - entropy_coefficient * entropy

    The policy loss is the mean of `-log_prob * advantages`. A subclass may change it in
    `_policy_losses`, and the advantages in `_advantages`.

    Attributes:
        policy: the `ActorCriticPolicy`, or `RecurrentPolicy`.
        config: the hyper-parameters.
    """

    policy: Any
    config: Any = pytree.nonpytree_field()

    # Settings that may be schedules, and what the info has beside what all have.
    _scheduled: ClassVar[tuple[str, ...]] = ("learning_rate", "entropy_coefficient")
    _measured: ClassVar[tuple[str, ...]] = ()

    @property
    def needs_log_probs(self) -> bool:
        """Whether trajectories must have log-probabilities; trainers ask for it."""
        return False

    def update(
        self,
        trajectory: records.Trajectory,
        *,
        progress: progresses.Progress | None = None,
    ) -> tuple[Self, dict]:
        """Learns from a trajectory.

        A brief update is one compiled call. A longer one, on images or with a large
        network, consists of calls of a fraction of a second, between which Python
        handles signals; an interrupted update learns nothing, and the agent stays what
        it was.

        Args:
            trajectory: `[T, N]`, of which actions are the raw ones of the policy's
                head; keep T and N, since each new size is compiled anew.
            progress: what scheduled hyper-parameters follow; the one in context if
                None.

        Returns:
            The new agent, and an info: float32 scalars averaged over the gradient steps
            taken, and the settings of this update that follow a schedule.

        Raises:
            TypeError: if `trajectory` is not one, or choices are no integers.
            ValueError: if the rows of a gradient step do not divide T * N, or the
                replicas cannot share them evenly; if what the policy remembered, or a
                required log-probability, is missing; if an action is none of the
                choices 0, 1, ... that there are (of arrays on the host).
        """
        config, policy = self.config, self.policy
        trajectory = self._given(f"{type(config).__name__}.update", trajectory)
        n_rows = trajectory.rewards.shape[0] * trajectory.rewards.shape[1]
        hyper = agent.settings_at(config, progress, self._scheduled, policy.state.step)
        learner = self.replace(policy=policy.lent())
        counts = n_gradient_steps(config, n_rows), config.minibatch_size or n_rows
        work = replicated.Work(learner.policy.state, *counts)
        if work.is_brief or not tf.executing_eagerly():
            learned, info = replicated.run_update(
                _compiled_update, learner, trajectory, hyper
            )
        else:
            learned, info = _update_in_pieces(work, learner, trajectory, hyper)
        info |= agent.followed(config, hyper)
        return learned.replace(policy=learned.policy.returned(self.policy)), info

    def _given(self, where: str, trajectory: Any) -> records.Trajectory:
        """Returns what is learned from of a trajectory, checked."""
        expected = "a Trajectory [T, N], as on-policy agents learn from"
        checks.check_type(where, "trajectory", trajectory, records.Trajectory, expected)
        n_steps, n_envs = trajectory.rewards.shape
        _settings.check_rows(where, self.config, n_steps, n_envs, "trajectory")
        _raw_actions.check(where, "trajectory", self.policy.head, trajectory.actions)
        # What others recorded and nobody reads would be compiled anew.
        kept: dict[str, Any] = {"log_probs": (), "states": ()}
        asked: dict[str, tuple[int, ...]] = {}
        if self.needs_log_probs:
            asked["log_probs"] = (n_steps, n_envs)
        if advantages.has_memory(self.policy):
            asked["states"] = (n_steps, n_envs, self.policy.units)
        for name, shape in asked.items():
            kept[name] = getattr(trajectory, name)
            if np.shape(kept[name]) != shape:
                raise ValueError(
                    f"`{where}`: `trajectory` expected `{name}` of shape {[*shape]}, "
                    f"as a trainer collects them; got {[*np.shape(kept[name])]}"
                )
        kept["states"] = kept["states"][:1]  # the others follow
        return trajectory._replace(**kept)

    def _advantages(
        self,
        trajectory: records.Trajectory,
        rewards: tf.Tensor,
        outputs: advantages.Outputs | None,
    ) -> advantages.Experience:
        """What is learned from a trajectory, its rewards scaled."""
        return advantages.estimate_advantages(
            self.policy,
            trajectory,
            rewards,
            gamma=self.config.gamma,
            lambda_=self.config.lambda_,
            outputs=outputs,
        )

    def _policy_losses(
        self, log_probs: tf.Tensor, rows: advantages.Experience, hyper: dict
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The loss of the policy and what `_measured` names, `[R]` each."""
        del hyper
        return policy_losses.policy_gradient_loss(log_probs, rows.advantages).loss, {}


def n_gradient_steps(config: Any, n_rows: int) -> int:
    """Returns how many gradient steps an update takes at most.

    Args:
        config: settings with `n_epochs` and `minibatch_size`, None for all rows.
        n_rows: of the trajectory, T * N.

    Returns:
        Their number.
    """
    return config.n_epochs * (n_rows // (config.minibatch_size or n_rows))


class Plan(NamedTuple):
    """What is known before the gradient steps.

    Attributes:
        rows: everything to learn from.
        order: rows of each step `[steps, minibatch_size]`, of a policy with a memory
            sequences; `()` where all take all.
        hyper: the scheduled settings of this update.
        changes: fields of the new agent besides its policy.
    """

    rows: advantages.Experience
    order: Any
    hyper: dict[str, tf.Tensor]
    changes: dict[str, Any]


class Progress(NamedTuple):
    """Where the gradient steps of an update are.

    Attributes:
        step: how many were taken.
        state: `TrainState` after them.
        sums: over the steps, of what `_names` says.
        stop: whether the policy has moved far enough.
    """

    step: tf.Tensor
    state: train_state.TrainState
    sums: tf.Tensor
    stop: tf.Tensor


def prepare(
    agent: Any,
    trajectory: records.Trajectory,
    hyper: dict[str, tf.Tensor],
    outputs: Any = None,
) -> tuple[Plan, Progress]:
    config, rewards = agent.config, trajectory.rewards
    changes: dict[str, Any] = {}
    if config.normalize_rewards:
        ended = trajectory.terminated | trajectory.truncated
        changes["return_scale"], rewards = agent.return_scale(
            rewards, ended, trajectory.valid, gamma=config.gamma
        )
    rows = agent._advantages(trajectory, rewards, outputs)
    order: Any = ()
    if config.minibatch_size is not None:
        changes["n_updates_done"] = agent.n_updates_done + 1
        n_rows = rows.weights.shape[0]  # or sequences
        size = config.minibatch_size * n_rows // rows.weights.shape.num_elements()
        if n_rows > size:
            changes["rng"], seed = random.split_seed(agent.rng, 2)
            keys = draws.uniform([config.n_epochs, n_rows], seed, tf.float32)
            order = tf.reshape(tf.argsort(keys, axis=-1), [-1, size])
    state = train_state.with_rate(agent.policy.state, hyper["learning_rate"])
    sums = tf.zeros([len(_names(agent))])
    progress = Progress(tf.constant(0), state, sums, tf.constant(False))
    return Plan(rows, order, hyper, changes), progress


def _names(agent: Any) -> tuple[str, ...]:
    """What the info gives the means of."""
    return "loss", "policy_loss", "value_loss", "entropy", *agent._measured


def finish(
    agent: Any, trajectory: records.Trajectory, plan: Plan, progress: Progress
) -> tuple[Any, dict]:
    policy = agent.policy.replace(state=progress.state)
    if agent.config.normalize_observations:
        # Only now: the moments that acted must be those that are learned with.
        policy = policy.update_moments(trajectory.observations, trajectory.valid)
    count = tf.cast(progress.step, tf.float32)
    means = tf.unstack(progress.sums / count)
    info = {
        **dict(zip(_names(agent), means, strict=True)),
        "gradient_steps": count,
        "learning_rate": plan.hyper["learning_rate"],
        "explained_variance": plan.rows.explained_variance(),
    }
    return agent.replace(policy=policy, **plan.changes), info


def advance(
    agent: Any, plan: Plan, progress: Progress, until: tf.Tensor | int
) -> Progress:
    """Takes gradient steps until so many were taken, or the policy moved too far."""
    config, rows = agent.config, plan.rows

    def body(step: tf.Tensor, states: Any, sums: tf.Tensor, _: Any) -> tuple:
        minibatch = rows
        if tf.is_tensor(plan.order):
            picked = plan.order[step]
            minibatch = tf.nest.map_structure(lambda x: tf.gather(x, picked), rows)
        if config.normalize_advantages:
            given = minibatch.advantages
            spread = tf.math.rsqrt(minibatch.variance(given) + 1e-8)
            normalized = (given - minibatch.mean(given)) * spread
            minibatch = minibatch._replace(advantages=normalized)
        total = minibatch.total() / replicated.n_replicas()
        states, info = states.apply_loss_fn(
            lambda state, params, part: _loss(
                agent, state, params, part, total, plan.hyper
            ),
            minibatch,
        )
        # As one vector they are one piece of code.
        sums += tf.stack([info[name] for name in _names(agent)])
        stop = tf.constant(False)
        if config.target_kl is not None:
            stop = info["approx_kl"] > 1.5 * config.target_kl
        return step + 1, states, sums, stop

    step, state, sums, stop = progress
    states = replicated.ReplicatedState.create(state)
    step, states, sums, stop = tf.while_loop(
        lambda step, _states, _sums, stop: (step < until) & ~stop,
        body,
        (step, states, sums, stop),
    )
    return Progress(step, states.state, sums, stop)


def _loss(
    agent: Any,
    state: train_state.TrainState,
    params: Any,
    rows: advantages.Experience,
    total: tf.Tensor,
    hyper: dict[str, tf.Tensor],
) -> tuple[tf.Tensor, dict]:
    config, head = agent.config, agent.policy.head
    if advantages.has_memory(agent.policy):
        given = rows.observations, rows.states, rows.begins
        said = state(given, params=params, method="sequences")[:2]
        rows = rows._replace(observations=(), states=(), begins=())
        (parameters, values), rows = tf.nest.map_structure(
            lambda x: tf.reshape(x, [-1, *x.shape[2:]]), (said, rows)
        )
    else:
        parameters, values = state(rows.observations, params=params)
    losses, measured = agent._policy_losses(
        head.log_prob(parameters, rows.actions), rows, hyper
    )
    old_values = None if config.value_clip is None else rows.values
    errors = policy_losses.value_loss(
        values, rows.returns, old_values, config.value_clip
    )
    info = {
        "policy_loss": rows.mean(losses, total),
        "value_loss": rows.mean(errors.loss, total),
        "entropy": rows.mean(head.entropy(parameters), total),
        **{name: rows.mean(x, total) for name, x in measured.items()},
    }
    loss = (
        info["policy_loss"]
        + config.value_coefficient * info["value_loss"]
        - hyper["entropy_coefficient"] * info["entropy"]
    )
    return loss, {"loss": loss, **info}


# Beside the steps of replicas these are compiled, so that all draw what one alone does;
# alone they melt into the one function of a brief update.
_compiled_prepare = replicated.compiled_update(prepare)
_compiled_advance = replicated.compiled_update(advance)
_compiled_finish = replicated.compiled_update(finish)


def _update(
    agent: Any, trajectory: records.Trajectory, hyper: dict[str, tf.Tensor]
) -> tuple[Any, dict]:
    plan, progress = _compiled_prepare(agent, trajectory, hyper)
    n_rows = plan.rows.weights.shape.num_elements()
    progress = advance(agent, plan, progress, n_gradient_steps(agent.config, n_rows))
    return _compiled_finish(agent, trajectory, plan, progress)


_compiled_update = replicated.compiled_update(_update)


def _update_in_pieces(
    work: replicated.Work,
    agent: Any,
    trajectory: records.Trajectory,
    hyper: dict[str, tf.Tensor],
) -> tuple[Any, dict]:
    has_memory = advantages.has_memory(agent.policy)
    cut = _outputs_by_sequences if has_memory else _outputs_in_pieces
    outputs = cut(agent.policy, trajectory, work.n_forward_rows)
    # The successors, half of the data, have said what they had to.
    trajectory = tf.nest.map_structure(
        tf.convert_to_tensor, trajectory._replace(next_observations=())
    )
    plan, progress = replicated.run_alone(
        _compiled_prepare, agent, trajectory, hyper, outputs
    )
    progress = replicated.in_pieces(
        work,
        lambda progress, until: replicated.run_update(
            _compiled_advance, agent, plan, progress, until
        ),
        progress,
    )
    return replicated.run_alone(_compiled_finish, agent, trajectory, plan, progress)


def _outputs_in_pieces(
    policy: Any, trajectory: records.Trajectory, n_rows: int
) -> advantages.Outputs:
    """What a network says to a trajectory, by calls of so many rows, each row's once.

    Most successors are the observations of the next step, of which the values are
    known; the others are those of episodes' ends and of the last step.
    """
    first, second = (
        [np.asarray(leaf) for leaf in tf.nest.flatten(nest)]
        for nest in (trajectory.observations, trajectory.next_observations)
    )
    n_steps, n_envs = trajectory.rewards.shape
    n_all = n_steps * n_envs
    apart = np.ones((n_steps, n_envs), bool)
    apart[:-1] = False
    for now, then in zip(first, second, strict=True):
        differ = then[:-1] != now[1:]
        apart[:-1] |= differ.any(axis=tuple(range(2, differ.ndim)))
    ends = np.flatnonzero(apart)
    # Pieces of one size are compiled once; the last is filled up by its last row.
    size = min(n_rows, n_all)
    rows = np.concatenate([np.arange(n_all), n_all + ends])
    rows = np.pad(rows, (0, -len(rows) % size), "edge")
    flat = [
        [leaf.reshape(n_all, *leaf.shape[2:]) for leaf in leaves]
        for leaves in (first, second)
    ]

    def taken(picked: np.ndarray) -> Any:
        here, there = picked[picked < n_all], picked[picked >= n_all] - n_all
        leaves = [
            np.concatenate([x[here], y[there]]) for x, y in zip(*flat, strict=True)
        ]
        return tf.nest.pack_sequence_as(trajectory.observations, leaves)

    light = policy.without_optimizer()
    pieces = [
        replicated.run_alone(_compiled_outputs, light, taken(rows[i : i + size]))
        for i in range(0, len(rows), size)
    ]
    parameters, values = (np.concatenate(x) for x in zip(*pieces, strict=True))
    following = np.append(values[n_envs:n_all], np.zeros(n_envs, values.dtype))
    following[ends] = values[n_all : n_all + len(ends)]
    return advantages.Outputs(
        *map(tf.constant, (parameters[:n_all], values[:n_all], following))
    )


def _outputs(policy: Any, observations: Any) -> tuple[tf.Tensor, tf.Tensor]:
    return policy.state(policy.normalize(observations))


_compiled_outputs = replicated.compiled_update(_outputs)


def _outputs_by_sequences(
    policy: Any, trajectory: records.Trajectory, n_rows: int
) -> advantages.Outputs:
    """What a network with a memory says to a trajectory, by calls of so many rows."""
    n_steps, n_envs = trajectory.rewards.shape
    size = min(max(1, n_rows // n_steps), n_envs)
    # Pieces of one size are compiled once; the last is filled up by its last sequence.
    envs = np.pad(np.arange(n_envs), (0, -n_envs % size), "edge")
    light = policy.without_optimizer()
    pieces = []
    for start in range(0, len(envs), size):
        picked = envs[start : start + size]
        part = tf.nest.map_structure(
            lambda x, picked=picked: tf.gather(x, picked, axis=1), trajectory
        )
        said = replicated.run_alone(_compiled_sequences, light, part)
        pieces.append([np.reshape(x, [n_steps, size, *x.shape[1:]]) for x in said])
    joined = [np.concatenate(x, axis=1)[:, :n_envs] for x in zip(*pieces, strict=True)]
    flat = [x.reshape(n_steps * n_envs, *x.shape[2:]) for x in joined]
    return advantages.Outputs(*map(tf.constant, flat))


_compiled_sequences = replicated.compiled_update(advantages.outputs_of)
