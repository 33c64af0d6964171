"""What is wrong with a compiled environment, found before it plays."""

import inspect
import operator
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf
from gymnasium.vector.utils import batch_space

from tfrl._internal import checks, gym_checks
from tfrl.core import spaces
from tfrl.environments.compiled import protocol, wrappers

_ENV = "`check_compiled`: `env` expected"
_N = 3  # copies to look at, as many as no axis of a game is likely to have
# What leaves the device, or draws what was not given.
_OF_HOST = (
    *("PyFunc", "Print", "LogMessage", "Iterator", "ReadFile", "WriteFile"),
    "String",
)
_CHANCE = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle")
_CALLS = {
    "initial": "initial(self, noise)",
    "step": "step(self, state, actions, noise)",
}


def check_compiled(
    env: protocol.CompiledEnv, n_steps: int = 100, seed: int = 0
) -> None:
    """Raises unless an environment keeps to the contract of `CompiledEnv`.

    Both functions are traced: shapes are static and match the spaces, states keep their
    form, neither Python nor variables are used, TensorFlow draws no number. All of a
    state has the axis of the copies, except for what wrappers keep. Draws in Python, as
    by `np.random`, are not detected: they would be constants from the trace.

    Then three copies play samples of the action space, whatever a mask says:
    observations are elements of their space, rewards are finite, and what comes of a
    step of a copy does not depend on states and actions of the others (of wrappers that
    normalize by what all copies show, it may).

    Args:
        env: the environment.
        n_steps: how many to play, 0 for none.
        seed: of the actions and of the noise.

    Raises:
        TypeError: if it is not one, or a number is no int.
        ValueError: with the first thing that is wrong, or if a number is below 0.

    Example:
        >>> check_compiled(tfrl.environments.compiled.CartPole())
    """
    kind = protocol.CompiledEnv
    checks.check_type("check_compiled", "env", env, kind, "a CompiledEnv")
    for name, value in {"n_steps": n_steps, "seed": seed}.items():
        checks.check_whole_number("check_compiled", name, value, low=0)
    inner = wrappers.layers(env)[-1]
    begun = of_inner = _begun(inner)
    _check_copies(inner, begun)
    try:
        if inner is not env:
            begun = _begun(env)
        _check_step(env, begun, n_steps, seed)
    except ValueError:
        if inner is not env:
            # Whose own fault is told by its name.
            _check_step(inner, of_inner, n_steps, seed)
        raise


def _begun(env: Any) -> Any:
    """`initial`, traced and checked."""
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gym.Space):
            raise _fault(env, name, "to be a space of Gymnasium", repr(space))
    n_noise, _ = protocol.noise_counts("check_compiled", env)
    noise = tf.TensorSpec([_N, n_noise], tf.float32)
    begun = _traced(env, "initial", env.initial, noise)
    state, seen = _pair(env, begun.structured_outputs)
    _check_static(env, "initial", {"state": state, "observations": seen})
    _check_space(env, "initial", seen, env.observation_space)
    return begun


def _check_copies(env: Any, begun: Any) -> None:
    """What wrappers share between copies is no state of the environment inside."""
    state, _ = begun.structured_outputs
    if any(leaf.shape[:1] != [_N] for leaf in tf.nest.flatten(state)):
        raise _fault(
            env,
            "initial",
            f"to return a state of tensors [N, ...], here of {_N} copies",
            f"{_form(state)}; give each copy a row of its own, and keep what all share "
            "in the environment itself",
        )


def _check_step(env: Any, begun: Any, n_steps: int, seed: int) -> None:
    stepped = _stepped(env, begun)
    if n_steps:
        _play(env, begun, stepped, n_steps, seed)


def _stepped(env: Any, begun: Any) -> Any:
    """`step`, traced on what `initial` returned, and checked."""
    state, _ = begun.structured_outputs
    given = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), state)
    actions = _batched(env.action_space)
    noise = tf.TensorSpec([_N, env.n_noise], tf.float32)
    stepped = _traced(env, "step", env.step, given, actions, noise)
    step = stepped.structured_outputs
    if not isinstance(step, protocol.CompiledStep):
        fields = ", ".join(protocol.CompiledStep._fields)
        expected = f"to return a CompiledStep({fields})"
        raise _fault(env, "step", expected, type(step).__name__)
    _check_static(env, "step", step._asdict())
    for seen in (step.observations, step.final_observations):
        _check_space(env, "step", seen, env.observation_space)
    if _form(step.state) != _form(state):
        expected = f"to return states as `initial` does, {_form(state)}"
        raise _fault(env, "step", expected, _form(step.state))
    columns = {"rewards": tf.float32, "terminated": tf.bool, "truncated": tf.bool}
    for name, dtype in columns.items():
        form, own = [_N, dtype.name], getattr(step, name)
        if [*own.shape, own.dtype.name] != form:
            got = f"{own.dtype.name} of shape {own.shape}"
            raise _fault(env, "step", f"{name} [N] {dtype.name}", got)
    return stepped


def _play(env: Any, begun: Any, stepped: Any, n_steps: int, seed: int) -> None:
    """Steps at random; what does not reset by itself begins anew where it ended."""
    space, form = batch_space(env.action_space, _N), _batched(env.action_space)
    space.seed(seed)
    is_apart = _is_apart(env, begun)
    first, *noises = tf.unstack(env.draw(seed, [2 * n_steps + 1, _N]))
    state, seen = begun(first)
    _check_elements(env, "initial", 0, observations=seen)
    for t in range(n_steps):
        actions = tf.nest.map_structure(
            lambda x, spec: tf.constant(x, spec.dtype), _sorted(space.sample()), form
        )
        step = stepped(state, actions, noises[2 * t])
        if is_apart:
            # The noise stays, as some draw in bulk by that of all.
            others = tf.nest.map_structure(
                lambda x, i=t % _N: tf.constant(x.numpy()[[i] * _N]), (state, actions)
            )
            alike = stepped(*others, noises[2 * t])
            _check_same_row(env, t, step, alike)
        last, rewards = step.final_observations, step.rewards.numpy()
        state, seen = step.state, step.observations
        _check_elements(env, "step", t + 1, observations=seen, final_observations=last)
        if not np.isfinite(rewards).all():
            got = f"{rewards} in step {t + 1}"
            raise _fault(env, "step", "rewards that are finite", got)
        ended = step.terminated | step.truncated
        if np.any(ended) and not wrappers.resets_itself(env):
            anew = begun(noises[2 * t + 1])
            state, seen = wrappers.chosen(ended, anew, (state, seen))
            _check_elements(env, "initial", t + 1, observations=seen)


def _is_apart(env: Any, begun: Any) -> bool:
    """Whether no wrapper keeps what all copies share."""
    kinds = wrappers.NormalizeObservations | wrappers.NormalizeRewards
    state, _ = begun.structured_outputs
    has_rows = all(leaf.shape[:1] == [_N] for leaf in tf.nest.flatten(state))
    return has_rows and not any(isinstance(x, kinds) for x in wrappers.layers(env))


def _check_same_row(env: Any, t: int, step: Any, alike: Any) -> None:
    """The row of a copy is the same where all others are like it."""
    i = t % _N
    for part, one, other in zip(step._fields, step, alike, strict=True):
        leaves = zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
        for x, y in leaves:
            if not _are_close(x.numpy()[i], y.numpy()[i]):
                expected = "to step each copy by its own state and action"
                got = f"{part} of copy {i} in step {t + 1} that change with those of "
                got += "the other copies; leave the first axis as it is, of copies"
                raise _fault(env, "step", expected, got)


def _are_close(one: np.ndarray, other: np.ndarray) -> bool:
    if np.array_equal(one, other):
        return True
    is_float = np.issubdtype(one.dtype, np.floating)
    return is_float and np.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def _check_elements(env: Any, name: str, t: int, **nests: Any) -> None:
    for part, nest in nests.items():
        rows = gym_checks.mapped(np.asarray, nest)
        for i in range(_N):
            row = gym_checks.mapped(operator.itemgetter(i), rows)
            fault = gym_checks.misfit(env.observation_space, row, part)
            if fault is None:
                continue
            remedy = "keep it inside, or widen the space"
            if fault.kind == "numbers":
                remedy = "look for a division by 0 or an overflow"
            expected = f"{fault.place} to be {fault.expected}"
            got = f"{fault.got} of copy {i} in step {t}; {remedy}"
            raise _fault(env, name, expected, got)


def _traced(env: Any, name: str, function: Callable[..., Any], *args: Any) -> Any:
    _check_signature(env, name, function, len(args))
    compiled = tf.function(function, autograph=False)
    try:
        made = compiled.get_concrete_function(*args)
    except Exception as error:
        got = _in_words(error)
        raise _fault(env, name, "to be a function of tensors", got) from error
    for kind in _kinds(made.graph):
        if any(word in kind for word in _OF_HOST):
            raise _fault(env, name, "to ask nothing of the host", f"the op {kind}")
        if kind in _CHANCE:
            raise _fault(env, name, "to draw by its noise alone", f"the op {kind}")
    for held in made.graph.variables:
        raise _fault(env, name, "to keep nothing", f"the variable {held.name}")
    return made


def _check_signature(env: Any, name: str, function: Any, n_args: int) -> None:
    try:
        inspect.signature(function).bind(*range(n_args))
    except TypeError as error:
        got = checks.shown(function)
        if callable(function):
            got = f"{name}{inspect.signature(getattr(type(env), name))}"
        raise _fault(env, name, f"to be `{_CALLS[name]}`", got) from error


def _in_words(error: Exception) -> str:
    """Its first sentence: the advice of TensorFlow after it does not hold here."""
    first, _, _ = " ".join(str(error).split()).partition(". ")
    got = f"{type(error).__name__}: {textwrap.shorten(first, 200, placeholder=' ...')}"
    if isinstance(error, tf.errors.OperatorNotAllowedInGraphError) and "bool" in first:
        return f"{got}; choose by `tf.where`, join conditions by `&` and `|`"
    if "symbolic" in first.lower():
        return f"{got}; use TensorFlow's operations, not Python's or NumPy's"
    return got


def _kinds(graph: Any) -> Iterator[str]:
    definition = graph.as_graph_def()
    yield from (node.op for node in definition.node)
    for function in definition.library.function:
        yield from (node.op for node in function.node_def)


def _pair(env: Any, returned: Any) -> tuple[Any, Any]:
    if not isinstance(returned, list | tuple) or len(returned) != 2:
        expected = "to return the state and observations"
        raise _fault(env, "initial", expected, type(returned).__name__)
    return returned[0], returned[1]


def _check_static(env: Any, name: str, parts: dict[str, Any]) -> None:
    for part, nest in parts.items():
        for leaf in tf.nest.flatten(nest):
            if leaf is None:
                raise _fault(env, name, "tensors", f"None as {part}")
            if not leaf.shape.is_fully_defined():
                got = f"{part} of shape {leaf.shape}"
                raise _fault(env, name, "static shapes", got)


def _check_space(env: Any, name: str, seen: Any, space: gym.Space) -> None:
    expected, got = _form(_batched(space)), _form(_sorted(seen))
    if expected != got:
        raise _fault(env, name, f"observations {expected}, of {space}", got)


def _batched(space: gym.Space) -> Any:
    specs = spaces.spec_from_space(space)
    return _sorted(
        tf.nest.map_structure(lambda x: tf.TensorSpec([_N, *x.shape], x.dtype), specs)
    )


def _sorted(nest: Any) -> Any:
    """A nest of dicts in the order of their keys, and of tuples."""
    if type(nest) is tuple:
        return tuple(map(_sorted, nest))
    if not isinstance(nest, dict):
        return nest
    return {key: _sorted(nest[key]) for key in sorted(nest)}


def _form(nest: Any) -> str:
    """Shapes and dtypes by place."""
    leaves = tf.nest.flatten(nest)
    forms = [f"{leaf.dtype.name}{[*leaf.shape]}" for leaf in leaves]
    return str(tf.nest.pack_sequence_as(nest, forms)).replace("'", "")


def _fault(env: Any, name: str, expected: str, got: str) -> ValueError:
    return ValueError(f"{_ENV} `{type(env).__name__}.{name}` {expected}; got {got}")
