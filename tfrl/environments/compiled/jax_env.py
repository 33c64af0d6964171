"""JAX environments as compiled environments, and converted ones saved on disk."""

import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from tfrl._internal import arguments, checks, durable, plain_paths
from tfrl.environments.compiled import _actions, _jax_functions, protocol
from tfrl.saving import typed_json

_KEY_NUMBERS, _DIGITS = 3, 23
_FACTS, _SAVED = "environment.json", "model"


class JaxEnv(protocol.CompiledEnv):
    """What `from_jax_env` and `load_jax_env` return.

    The state is a flat tuple: the leaves of the original's, each `[N, ...]`, and for
    typed keys their `jax.random.key_data`. A JAX key, uint32 `[2]`, is made of three
    uniform numbers: the first 23 binary digits of each are 69, of which the key has 64.
    Functions without a key draw no numbers.

    It resets only within `AutoReset`, has no gradients, and renders no pictures.

    Args:
        programs: gives for a number of copies the two programs of tensors.
        facts: both spaces, whether a reset and a step take a key, the shapes of the
            state, and the number of copies it is for, None for any.

    Attributes:
        n_copies: the only number of copies it works for, None for any.

    Example:
        >>> isinstance(JaxEnv, type) and issubclass(JaxEnv, protocol.CompiledEnv)
        True
    """

    def __init__(
        self, programs: Callable[[int], tuple[Any, Any]], facts: Mapping[str, Any]
    ) -> None:
        self._programs, self._facts = programs, dict(facts)
        self.observation_space = _space_of(facts["observations"])
        self.action_space = _space_of(facts["actions"])
        self.n_copies: int | None = facts["n_copies"]
        self.n_step_noise = _KEY_NUMBERS * facts["step_takes_key"]
        self.n_noise = max(_KEY_NUMBERS * facts["reset_takes_key"], self.n_step_noise)
        self._converted: Callable[[int | None], Any] | None = None

    def initial(self, noise: tf.Tensor) -> tuple[Any, Any]:
        """Begins an episode in every copy, see `CompiledEnv.initial`.

        Raises:
            ValueError: if the number of copies is unknown, or another than it is for.
        """
        noise = tf.convert_to_tensor(noise)
        n = self._checked_copies("initial", noise.shape[0])
        keys = _keys(noise, n, self._facts["reset_takes_key"])
        state, observations = self._programs(n)[0](keys)
        return self._settled(state, n), self._seen(observations, n)

    def step(self, state: Any, actions: Any, noise: tf.Tensor) -> protocol.CompiledStep:
        """Steps every copy, see `CompiledEnv.step`.

        Raises:
            TypeError: if actions are of another kind than the space's.
            ValueError: if they, or the state, have other shapes; if the number of
                copies is unknown, or another than it is for.
        """
        noise = tf.convert_to_tensor(noise)
        n = self._checked_copies("step", noise.shape[0])
        actions = _actions.as_actions(self, actions, n)
        if isinstance(self.action_space, spaces.Discrete):
            actions = tf.cast(actions, tf.int32)
        state = self._settled(state, n)
        keys = _keys(noise, n, self._facts["step_takes_key"])
        state, observations, *rest = self._programs(n)[1](state, actions, keys)
        rewards, terminated, truncated = (tf.ensure_shape(x, [n]) for x in rest)
        observations = self._seen(observations, n)
        return protocol.CompiledStep(
            self._settled(state, n),
            observations,
            rewards,
            terminated,
            truncated,
            observations,
        )

    def save(self, path: durable.Path, n: int | None = None) -> None:
        """Writes a folder that `load_jax_env` reads where JAX is not installed.

        It holds a SavedModel of both programs, and the spaces.

        Args:
            path: the folder, which must not be there yet.
            n: for how many copies; None for any number, which JAX cannot convert for
                environments that compute with the number of copies.

        Raises:
            FileExistsError: if something is there.
            TypeError: if `n` is no int.
            ValueError: if it is below 1, or the environment was loaded.
        """
        where = "JaxEnv.save"
        if n is not None:
            checks.check_whole_number(where, "n", n, low=1)
        if self._converted is None:
            raise ValueError(
                f"`{where}`: expected an environment of `from_jax_env`; got one that "
                "was loaded; copy its folder"
            )
        path = pathlib.Path(path)
        if path.exists():
            raise FileExistsError(
                f"`{where}`: `path` expected a new folder; got {path}"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        module = tf.Module()
        module.reset_program, module.step_program = self._converted(n)
        facts = {**self._facts, "n_copies": n}
        with durable.new_folder(path) as folder:
            model = folder / _SAVED
            tf.saved_model.save(module, str(model))
            (folder / _FACTS).write_text(typed_json.to_json(facts))
            durable.flush_to_disk(*(x for x in model.rglob("*")))

    def _checked_copies(self, name: str, n: int | None) -> int:
        where = f"JaxEnv.{name}"
        if n is None:
            raise ValueError(
                f"`{where}`: `noise` expected a number of copies that is known while "
                "tracing; got None; call `tf.ensure_shape` before"
            )
        if self.n_copies not in (None, n):
            raise ValueError(
                f"`{where}`: `noise` expected {self.n_copies} copies, for which the "
                f"environment was saved; got {n}"
            )
        return n

    def _settled(self, state: Any, n: int) -> tuple[tf.Tensor, ...]:
        specs = self._facts["state"]
        if not isinstance(state, list | tuple) or len(state) != len(specs):
            raise ValueError(
                f"`JaxEnv.step`: `state` expected a tuple of {len(specs)} tensors, as "
                f"`initial` returned it; got {arguments.shown(state)}"
            )
        pairs = zip(state, specs, strict=True)
        return tuple(
            tf.ensure_shape(tf.convert_to_tensor(leaf, dtype), [n, *shape])
            for leaf, (shape, dtype) in pairs
        )

    def _seen(self, observations: Any, n: int) -> Any:
        # A Discrete is int64, which JAX has not unless it is asked for.
        leaves = [
            tf.ensure_shape(tf.cast(leaf, part.dtype), [n, *part.shape])
            for leaf, part in zip(
                observations, _jax_functions.leaves(self.observation_space), strict=True
            )
        ]
        return tf.nest.pack_sequence_as(
            _jax_functions.nest(self.observation_space), leaves
        )


def from_jax_env(
    env: Any,
    params: Any = None,
    *,
    observation_space: spaces.Space | None = None,
    action_space: spaces.Space | None = None,
    platforms: tuple[str, ...] | None = None,
) -> JaxEnv:
    """Returns a compiled environment that steps as a JAX environment does.

    Its functions become TensorFlow's by `jax2tf`, once for each number of copies: they
    run inside a `tf.function`, under XLA and in its loops, without Python. It never
    resets itself: put it in `AutoReset`.

    - Of gymnax it uses `reset_env` and `step_env`, and `is_truncated` where there is
      one. Episodes that end only because of `params.max_steps_in_episode` are
      truncated, all others terminated.
    - Of Brax and MuJoCo Playground it uses `reset` and `step`, without an
      `AutoResetWrapper` around it. What an `EpisodeWrapper` reports as `truncation` is
      truncated. Actions are from -1 to 1.
    - A pair of functions is `reset(key) -> (state, observations)` and `step(key, state,
      action) -> (state, observations, reward, terminated, truncated)`, of one copy
      each.

    Args:
        env: the environment, or the pair of functions.
        params: of gymnax, `env.default_params` if None.
        observation_space: of one copy, that of the original if None; required for a
            pair of functions, and for an environment whose own does not match its
            observations. A Box takes the dtype of the observations, a Discrete is
            int64.
        action_space: likewise, a Discrete or a Box.
        platforms: what it is compiled for, such as ("cpu", "cuda", "tpu"); None for the
            one on which this process runs JAX.

    Returns:
        The environment.

    Raises:
        ImportError: if JAX is missing; `tfrl[jax]` installs it.
        TypeError: if `env` is none of these; if JAX cannot trace its functions, because
            shapes depend on values or Python is called.
        ValueError: if observations are outside their space, or a step turns a state
            into something else.

    Example:
        >>> import gymnax  # doctest: +SKIP
        >>> env = from_jax_env(*gymnax.make("CartPole-v1"))  # doctest: +SKIP
        >>> state, observations = env.reset(0, 1024)  # doctest: +SKIP
    """
    jax = arguments.imported("from_jax_env", "jax", "jax", "jax")
    pure = _jax_functions.pure(env, params, jax)
    given = {"observation_space": observation_space, "action_space": action_space}
    pure = pure._replace(**{k: v for k, v in given.items() if v is not None})
    return _converted_env(jax, pure, platforms)


def load_jax_env(path: durable.Path) -> JaxEnv:
    """Returns the environment that `JaxEnv.save` wrote; JAX is not needed.

    Args:
        path: the folder.

    Returns:
        The environment.

    Raises:
        FileNotFoundError: if there is none.

    Example:
        >>> from_jax_env(*gymnax.make("CartPole-v1")).save("poles")  # doctest: +SKIP
        >>> load_jax_env("poles").action_space  # doctest: +SKIP
        Discrete(2)
    """
    path = pathlib.Path(path)
    if not (path / _FACTS).is_file():
        raise FileNotFoundError(
            f"`load_jax_env`: `path` expected a folder that `JaxEnv.save` wrote; got "
            f"{path}"
        )
    facts = typed_json.from_json((path / _FACTS).read_text())
    with tf.init_scope(), plain_paths.plain(path / _SAVED) as plain:
        model = tf.saved_model.load(plain)
    return JaxEnv(lambda _: (model.reset_program, model.step_program), facts)


def _converted_env(jax: Any, pure: _jax_functions.Pure, platforms: Any) -> JaxEnv:
    """Traces both functions of one copy, checks them, and converts them when asked."""
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    started, (state, seen) = _jax_functions.traced(jax, pure.reset, key)
    if _jax_functions.has_typed_keys(jax, state):
        pure = _jax_functions.with_plain_keys(jax, pure, state)
        state, seen = jax.eval_shape(pure.reset, key)
    leaves, structure = jax.tree.flatten(state)
    _jax_functions.check_spaces(jax, pure, seen)
    shown = iter(_jax_functions.seen_leaves(jax, seen))
    pure = pure._replace(
        observation_space=_jax_functions.as_shown(pure.observation_space, shown)
    )
    action = jax.ShapeDtypeStruct(pure.action_space.shape, _jax_dtype(pure))

    def reset(key: Any) -> Any:
        state, observations = pure.reset(key)
        seen = _jax_functions.seen_leaves(jax, observations)
        return tuple(jax.tree.leaves(state)), tuple(seen)

    def step(leaves: Any, action: Any, key: Any) -> Any:
        state = jax.tree.unflatten(structure, leaves)
        state, observations, *rest = pure.step(key, state, action)
        rewards, *ends = (jax.numpy.reshape(x, ()) for x in rest)
        return (
            tuple(jax.tree.leaves(state)),
            tuple(_jax_functions.seen_leaves(jax, observations)),
            rewards.astype(np.float32),
            *(end.astype(bool) for end in ends),
        )

    went, result = _jax_functions.traced(jax, pure.step, key, state, action)
    if not isinstance(result, tuple) or len(result) != 5:
        kind = "(state, observations, reward, terminated, truncated)"
        raise ValueError(
            f"`from_jax_env`: `env` expected a step that returns {kind}; got "
            f"{arguments.shown(result)}"
        )
    _jax_functions.check_result(jax, state, seen, result)
    names = {
        *_jax_functions.primitives(jax, started.jaxpr),
        *_jax_functions.primitives(jax, went.jaxpr),
    }
    options = _jax_functions.options(names, platforms)
    takes_key = [
        _jax_functions.is_used(x.jaxpr, x.jaxpr.invars[0]) for x in (started, went)
    ]
    facts = {
        "observations": _described(pure.observation_space),
        "actions": _described(pure.action_space),
        "reset_takes_key": takes_key[0],
        "step_takes_key": takes_key[1],
        "state": [(tuple(x.shape), np.dtype(x.dtype).name) for x in leaves],
        "n_copies": None,
    }
    convert = functools.partial(_programs, jax, reset, step, facts, options)
    env = JaxEnv(functools.cache(convert), facts)
    env._converted = convert
    return env


def _programs(
    jax: Any, reset: Any, step: Any, facts: Any, options: Any, n: int | None
) -> tuple[Any, Any]:
    """Both functions for `n` copies as concrete ones of TensorFlow."""
    jax2tf = arguments.imported("from_jax_env", "jax.experimental.jax2tf", "jax", "jax")
    actions = _space_of(facts["actions"])
    dtype = tf.int32 if isinstance(actions, spaces.Discrete) else actions.dtype
    keys = tf.TensorSpec([n, 2], tf.uint32)
    state = tuple(tf.TensorSpec([n, *shape], kind) for shape, kind in facts["state"])
    given = [(keys,), (state, tf.TensorSpec([n, *actions.shape], dtype), keys)]

    def concrete(function: Any, specs: Any) -> Any:
        copies = functools.partial(tf.nest.map_structure, lambda _: "n, ...")
        converted = jax2tf.convert(
            jax.vmap(function),
            polymorphic_shapes=None if n is not None else copies(list(specs)),
            with_gradient=False,
            **options,
        )
        with tf.init_scope():
            program = tf.function(converted, autograph=False)
            return program.get_concrete_function(*specs)

    functions = [
        concrete(x, specs) for x, specs in zip((reset, step), given, strict=True)
    ]
    return functions[0], functions[1]


def _jax_dtype(pure: _jax_functions.Pure) -> Any:
    is_discrete = isinstance(pure.action_space, spaces.Discrete)
    return np.int32 if is_discrete else pure.action_space.dtype


def _keys(noise: tf.Tensor, n: int, takes_key: bool) -> tf.Tensor:
    """Keys uint32 `[n, 2]` of the first three numbers of each copy."""
    if not takes_key:
        return tf.zeros([n, 2], tf.uint32)
    whole = tf.cast(noise[:, :_KEY_NUMBERS] * 2.0**_DIGITS, tf.int32)
    first, second, third = tf.unstack(tf.cast(whole, tf.uint32), axis=1)
    # 23 digits of each of the first two, 9 of the third for each.
    scale, nine = tf.constant(512, tf.uint32), tf.constant(9, tf.uint32)
    low = tf.bitwise.bitwise_and(third, scale - 1)
    high = tf.bitwise.right_shift(third, tf.constant(_DIGITS - 9, tf.uint32))
    shifted = tf.bitwise.left_shift
    return tf.stack([shifted(first, nine) + high, shifted(second, nine) + low], axis=1)


def _described(space: spaces.Space) -> Any:
    """A space as plain values, for files."""
    match space:
        case spaces.Dict():
            return {key: _described(part) for key, part in space.items()}
        case spaces.Tuple():
            return [_described(part) for part in space]
        case spaces.Discrete():
            return int(space.n), int(space.start)
    return np.asarray(space.low), np.asarray(space.high)


def _space_of(described: Any) -> spaces.Space:
    """The space that `_described` described."""
    if isinstance(described, dict):
        return spaces.Dict({key: _space_of(part) for key, part in described.items()})
    if isinstance(described, list):
        return spaces.Tuple([_space_of(part) for part in described])
    low, high = described
    if isinstance(low, int):
        return spaces.Discrete(low, start=high)
    return spaces.Box(low, high, dtype=low.dtype.type)
