"""Functions of JAX of one copy: made of its libraries' environments, and checked."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import arguments

# JAX has LAPACK compute these on a CPU, of which TensorFlow's XLA has none. What JAX
# gives to TPUs instead is XLA's own, which runs anywhere.
_OWN_OF_XLA = {"cholesky", "triangular_solve", "geqrf", "householder_product", "eigh"}
_NOT_OF_XLA = {"lu", "svd", "eig", "schur", "hessenberg", "tridiagonal"}


class Pure(NamedTuple):
    """`reset(key)` and `step(key, state, action)` of one copy, and its spaces."""

    reset: Callable[..., Any]
    step: Callable[..., Any]
    observation_space: Any
    action_space: Any


def pure(env: Any, params: Any, jax: Any) -> Pure:
    """The two functions of one copy, whatever it is given as."""
    kind = type(env)
    if isinstance(env, tuple | list) and len(env) == 2 and all(map(callable, env)):
        reset, step = env
        return Pure(reset, step, None, None)
    if callable(getattr(kind, "step_env", None)):
        return _of_gymnax(env, params)
    while kind.__name__ == "AutoResetWrapper" and hasattr(env, "env"):
        env, kind = env.env, type(env.env)
    named = ("reset", "step", "action_size")
    if all(hasattr(env, name) for name in named) and not isinstance(env, type):
        return _of_brax(env, jax)
    got = arguments.shown(env)
    if isinstance(env, str):
        got += '; names are those of `make_compiled`, such as "gymnax/CartPole-v1"'
    elif isinstance(env, tuple) and env and hasattr(type(env[0]), "step_env"):
        kinds = [type(x).__name__ for x in env]
        got = f"a tuple of {' and '.join(kinds)}; give both, as `*gymnax.make(...)`"
    raise TypeError(
        "`from_jax_env`: `env` expected an environment of gymnax (without its "
        "wrappers), Brax or MuJoCo Playground, or a pair of functions of JAX; got "
        f"{got}"
    )


def options(names: set[str], platforms: Any) -> dict[str, Any]:
    """How it is converted, by the names of what it computes."""
    asked = sorted(name for name in names if "callback" in name)
    if asked:
        raise TypeError(
            "`from_jax_env`: `env` expected functions that run on the device alone; "
            f"got one that calls Python ({', '.join(asked)}); take it out"
        )
    if "ffi_call" in names:
        raise TypeError(
            "`from_jax_env`: `env` expected functions of what XLA computes; got one "
            "that calls another library (ffi_call); of MuJoCo Playground, load it with "
            'config_overrides={"impl": "jax"}'
        )
    unknown = sorted(names & _NOT_OF_XLA)
    if unknown:
        raise TypeError(
            "`from_jax_env`: `env` expected functions of what XLA computes; got one "
            f"that asks LAPACK for {', '.join(unknown)}, which TensorFlow has not"
        )
    if not names & _OWN_OF_XLA:
        return {"native_serialization_platforms": platforms}
    check = arguments.imported("from_jax_env", "jax.export", "jax", "jax")
    return {
        "native_serialization_platforms": ("tpu",),
        "native_serialization_disabled_checks": [check.DisabledSafetyCheck.platform()],
    }


def traced(jax: Any, function: Any, *specs: Any) -> Any:
    try:
        return jax.make_jaxpr(function, return_shape=True)(*specs)
    except (TypeError, IndexError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise TypeError(
            "`from_jax_env`: `env` expected functions that JAX can trace, with shapes "
            f"that no value decides; got {type(error).__name__}: {reason}"
        ) from error


def has_typed_keys(jax: Any, state: Any) -> bool:
    return any(_is_typed_key(jax, leaf) for leaf in jax.tree.leaves(state))


def with_plain_keys(jax: Any, pure: Pure, state: Any) -> Pure:
    """The functions with typed keys in their state as the numbers they are made of.

    TensorFlow has no dtype for those of `jax.random.key`.
    """
    is_key = functools.partial(_is_typed_key, jax)
    kinds: list[Any] = []

    def note_kinds(state: Any) -> int:
        leaves = jax.tree.leaves(state)
        kinds.extend(jax.random.key_impl(x) if is_key(x) else None for x in leaves)
        return 0

    def plain(nest: Any) -> Any:
        return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, nest)

    def typed(state: Any) -> Any:
        leaves, structure = jax.tree.flatten(state)
        wrap = jax.random.wrap_key_data
        pairs = zip(leaves, kinds, strict=True)
        leaves = [x if kind is None else wrap(x, impl=kind) for x, kind in pairs]
        return jax.tree.unflatten(structure, leaves)

    def step(key: Any, state: Any, action: Any) -> Any:
        return plain(pure.step(key, typed(state), action))

    jax.eval_shape(note_kinds, state)
    return pure._replace(reset=lambda key: plain(pure.reset(key)), step=step)


def check_spaces(jax: Any, pure: Pure, seen: Any) -> None:
    """Refuses spaces that are missing, unknown, or of something else."""
    where, space = "from_jax_env", pure.action_space
    kinds = (spaces.Discrete, spaces.Box)
    arguments.check_type(where, "action_space", space, kinds, "a Discrete or a Box")
    kind = "a Box, a Discrete, or a Dict or Tuple of them"
    whole = pure.observation_space
    arguments.check_type(where, "observation_space", whole, spaces.Space, kind)
    parts = leaves(whole)
    for part in parts:
        arguments.check_type(where, "observation_space", part, kinds, kind)
    found = seen_leaves(jax, seen)
    fits = len(found) == len(parts) and all(map(_is_of, found, parts))
    if not fits:
        forms = [f"{np.dtype(x.dtype).name}{[*x.shape]}" for x in found]
        raise ValueError(
            f"`{where}`: `observation_space` expected one of what is shown, "
            f"{', '.join(forms)}; got {whole}; give the right one"
        )


def check_result(jax: Any, state: Any, seen: Any, result: Any) -> None:
    """Refuses a step that makes something else of a state, or of what is seen."""
    after, observations, *scalars = result

    def kinds(tree: Any) -> Any:
        return [(tuple(x.shape), np.dtype(x.dtype).name) for x in jax.tree.leaves(tree)]

    pairs = {"state": (state, after), "observations": (seen, observations)}
    for name, (first, later) in pairs.items():
        trees = [jax.tree.structure(x) for x in (first, later)]
        if trees[0] != trees[1] or kinds(first) != kinds(later):
            differ = [x for x in zip(kinds(first), kinds(later), strict=False)]
            one, other = next((x for x in differ if x[0] != x[1]), trees)
            raise ValueError(
                f"`from_jax_env`: `env` expected a step that returns the {name} in the "
                f"form of a reset, {one}; got {other}"
            )
    sizes = [int(np.prod(x.shape)) for x in scalars]
    if sizes != [1, 1, 1]:
        raise ValueError(
            "`from_jax_env`: `env` expected functions of one copy, with one reward and "
            f"one end; got {[tuple(x.shape) for x in scalars]}; take batches off"
        )


def primitives(jax: Any, jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(equation.params):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from primitives(jax, inner)


def is_used(jaxpr: Any, variable: Any) -> bool:
    users = [*(equation.invars for equation in jaxpr.eqns), jaxpr.outvars]
    return any(variable is each for used in users for each in used)


def seen_leaves(jax: Any, seen: Any) -> list[Any]:
    """The tensors of what is seen, by key: JAX leaves an OrderedDict as it is."""

    def is_mapping(part: Any) -> bool:
        return isinstance(part, Mapping)

    found: list[Any] = []
    for part in jax.tree.leaves(seen, is_leaf=is_mapping):
        if is_mapping(part):
            found += seen_leaves(jax, [part[key] for key in sorted(part)])
        else:
            found.append(part)
    return found


def as_shown(space: spaces.Space, shown: Iterator[Any]) -> spaces.Space:
    """The space with the dtypes of what is shown."""
    match space:
        case spaces.Dict():
            parts = sorted(space.items())  # a Dict may have them in any order
            return spaces.Dict({k: as_shown(x, shown) for k, x in parts})
        case spaces.Tuple():
            return spaces.Tuple([as_shown(part, shown) for part in space])
        case spaces.Box():
            kind = np.dtype(next(shown).dtype).type
            return spaces.Box(
                space.low.astype(kind), space.high.astype(kind), dtype=kind
            )
    next(shown)
    return space


def leaves(space: spaces.Space) -> list[spaces.Space]:
    """The spaces without parts, in the order of their tensors."""
    return tf.nest.flatten(nest(space))


def nest(space: spaces.Space) -> Any:
    """The space as a nest of those without parts."""
    match space:
        case spaces.Dict():
            return {key: nest(part) for key, part in space.items()}
        case spaces.Tuple():
            return tuple(map(nest, space))
    return space


def _is_of(leaf: Any, space: spaces.Space) -> bool:
    is_whole = np.dtype(leaf.dtype).kind in "biu"
    fits = is_whole or isinstance(space, spaces.Box)
    return fits and tuple(leaf.shape) == tuple(space.shape)


def _is_typed_key(jax: Any, leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", np.float32)
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def _of_gymnax(env: Any, params: Any) -> Pure:
    params = env.default_params if params is None else params
    endless = params
    if hasattr(params, "max_steps_in_episode"):
        endless = params.replace(max_steps_in_episode=np.iinfo(np.int32).max)

    def reset(key: Any) -> Any:
        observations, state = env.reset_env(key, params)
        return state, observations

    def step(key: Any, state: Any, action: Any) -> Any:
        observations, after, reward, done, _ = env.step_env(key, state, action, params)
        # Without a limit; XLA computes but once what both have in common.
        terminated = env.step_env(key, state, action, endless)[3]
        if hasattr(env, "is_truncated"):  # of gymnax 1.0 `step_env` knows no limit
            done |= env.is_truncated(after, params)
        return after, observations, reward, terminated, done & ~terminated

    found = env.observation_space(params), env.action_space(params)
    return Pure(reset, step, *map(_of_gymnax_space, found))


def _of_gymnax_space(space: Any) -> spaces.Space:
    match type(space).__name__:
        case "Discrete":
            return spaces.Discrete(int(space.n))
        case "Dict":
            parts = space.spaces
            return spaces.Dict({k: _of_gymnax_space(x) for k, x in parts.items()})
        case "Tuple":
            return spaces.Tuple([_of_gymnax_space(x) for x in space.spaces])
    dtype = np.dtype(space.dtype)
    low, high = (np.asarray(x, dtype) for x in (space.low, space.high))
    if dtype.kind == "f":  # Its greatest number stands for no bound.
        most = np.finfo(dtype).max
        low = np.where(low <= -most, -np.inf, low)
        high = np.where(high >= most, np.inf, high)
    low, high = (np.broadcast_to(x, space.shape) for x in (low, high))
    return spaces.Box(low, high, tuple(space.shape), dtype.type)


def _of_brax(env: Any, jax: Any) -> Pure:
    layer = env
    while layer is not None:
        kind, home = type(layer).__name__, type(layer).__module__.partition(".")[0]
        if kind.endswith("VmapWrapper") and home in ("brax", "mujoco_playground"):
            raise TypeError(
                "`from_jax_env`: `env` expected an environment of one copy, of which "
                f"as many are made as are asked for; got one in {kind}; take it off"
            )
        layer = getattr(layer, "env", None)

    def reset(key: Any) -> Any:
        state = env.reset(key)
        return state, state.obs

    def step(key: Any, state: Any, action: Any) -> Any:  # noqa: ARG001
        after = env.step(state, action)
        done = jax.numpy.asarray(after.done) != 0
        cut = after.info.get("truncation", jax.numpy.zeros_like(after.done)) != 0
        return after, after.obs, after.reward, done & ~cut, done & cut

    actions = spaces.Box(-1.0, 1.0, (int(env.action_size),))
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    _, (_, seen) = traced(jax, reset, key)
    return Pure(reset, step, _unbounded(seen), actions)


def _unbounded(seen: Any) -> spaces.Space:
    if isinstance(seen, Mapping):
        return spaces.Dict({key: _unbounded(part) for key, part in seen.items()})
    return spaces.Box(-np.inf, np.inf, seen.shape, np.dtype(seen.dtype).type)
