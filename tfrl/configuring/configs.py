"""Gin configurations of a run: read strictly, recorded completely.

A gin file is code: what it `import`s runs, and what it refers to (`@name()`) is
called. Read only files that you would also execute.

Stricter than gin itself: a binding with an unknown name, a misspelled parameter, a
value of the wrong type or an undefined macro is an error before anything runs, told
with its file and line; a binding that nothing used is an error after everything was
built (`check_all_used`). Scopes, macros, references, imports and includes are gin's.
"""

import inspect
import math
import pathlib
import pprint
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import gin
import tensorflow as tf

from tfrl._internal import checks, durable, sealed_folder
from tfrl.configuring import _gin_text, gin_calls
from tfrl.environments import current

_parsed: list[gin_calls.Binding] = []


def register(
    objects: Mapping[str, Callable[..., Any]], module: str = "tfrl"
) -> dict[str, Callable[..., Any]]:
    """Makes functions and classes configurable, without changing them.

    Registering the same ones again, as a notebook cell does when it is run twice,
    replaces the earlier registration.

    Args:
        objects: what configurations may name, by name.
        module: what may precede the name in a configuration, with a dot.

    Returns:
        The configurable versions by name; only calls of these take parameters from
        the configuration. A configurable class creates instances of the class given.

    Raises:
        ValueError: if another object has the name already; nothing is registered.
        TypeError: if something cannot be called, or a name is none.

    Example:
        >>> def make_scaled(factor: float = 1.0) -> float:
        ...     return 2 * factor
        >>> make_configured = register({"make_scaled": make_scaled})["make_scaled"]
        >>> parse(bindings=["make_scaled.factor = 3.0"])
        >>> make_configured()
        6.0
        >>> clear()
    """
    full_names = {name: f"{module}.{name}" for name in objects}
    for name, target in objects.items():
        full_name = full_names[name]
        if not gin_calls.is_name(full_name) or not callable(target):
            raise TypeError(
                "`register`: `objects` expected functions and classes by names; got "
                f"{target!r:.80} as {full_name!r:.80}"
            )
        known, _ = _gin_text.registered.get(full_name, (target, None))
        if _origin(known) != _origin(target):
            raise ValueError(
                f"`register`: `objects` expected new names; got {full_name!r} for "
                f"{_origin(target)}, which {_origin(known)} has"
            )
    for name, target in objects.items():
        known, _ = _gin_text.registered.get(full_names[name], (None, None))
        if known is target:
            continue
        with gin.unlock_config():
            if known is not None:
                gin.enter_interactive_mode()
            wrapper = gin.external_configurable(target, name=name, module=module)
            if known is not None:
                gin.exit_interactive_mode()
        _gin_text.registered[full_names[name]] = target, wrapper
    return {name: _gin_text.registered[full][1] for name, full in full_names.items()}


def parse(
    config_files: Sequence[durable.Path] = (),
    bindings: Sequence[str] = (),
) -> None:
    """Replaces the configuration by the given files and bindings.

    Later bindings override earlier ones. An `include` is looked for beside the file
    that has it, then in the working directory, then among the configurations of the
    zoo, as `include "ppo_cartpole.gin"`. Nothing is changed if anything is
    wrong, except that imported modules stay imported, and that a configuration which
    only a hook of gin's refuses leaves none.

    Args:
        config_files: paths of gin files.
        bindings: single lines of gin, such as `"PPO.gamma = 0.99"`; messages call
            the first one `bindings:1`.

    Raises:
        ValueError: if a file is missing or cannot be parsed; if a configurable, a
            parameter, a reference or a macro is unknown; if a literal has not the
            type that its parameter is annotated with; if a required value is missing;
            if macros or references form a loop. The message is one line with the place
            as `file:line`.
        TypeError: if an argument is no list of texts.

    Example:
        >>> parse(bindings=["speed = %fast"])
        Traceback (most recent call last):
        ...
        ValueError: `parse`: bindings:1: expected a defined macro; got `%fast`; define \
it as `fast = ...`
    """
    given = _gin_text.read_all(config_files, bindings)
    statements = [now for each in given for now in _as_now(each)]
    parsed = [each for each in statements if isinstance(each, gin_calls.Binding)]
    imports = [each for each in statements if isinstance(each, gin_calls.Import)]
    _gin_text.check(parsed)
    clear()
    try:
        gin.parse_config([each.format() for each in imports])
        for each in parsed:
            gin.bind_parameter(gin_calls.key(each), each.value)
        gin.finalize()
    except Exception as error:
        clear()
        got = " ".join(str(error).split())
        raise _gin_text.error_at("finally", "what gin accepts", got) from error
    _parsed.extend(parsed)


def check_all_used(
    passed: Collection[str] = (), instead: Mapping[str, str] = {}
) -> None:
    """Makes sure that every binding reached the object it was meant for.

    To be called when everything has been built. A binding is used when a call of its
    configurable, in its scope or an inner one, took its value: not when the caller
    passed another value, and not when a binding of an inner scope hid it. A macro is
    used when it was read. What was used is read off gin's operative configuration.

    What only overridden bindings refer to, macros and configurables, gives way with
    them, and counts as used. So does what only that refers to.

    Args:
        passed: names as they are bound, "Trainer.override", whose bindings give way to
            what the caller passed.
        instead: what to bind in the place of others, for the message.

    Raises:
        ValueError: if another binding was not used; the message names each with its
            file and line.

    Example:
        >>> clear()
        >>> check_all_used()
    """
    unused = [
        f"{binding.place}: `{binding}`"
        for binding in _unused(_parsed)
        if binding.name not in passed
    ]
    if unused:
        names = [x.name for x in _unused(_parsed) if x.name in instead]
        todo = [f"; bind `{instead[name]}` in the place of `{name}`" for name in names]
        raise ValueError(
            "`check_all_used`: expected every binding to be used; got unused "
            f"{'; '.join(unused)}{''.join(todo)}"
        )


def operative() -> str:
    """Returns the configuration that was in effect, as the text of a gin file.

    Beside the bindings used it holds the defaults of every configurable called, so
    that it describes the run even when defaults change later.

    Returns:
        Gin text; `parse` of it makes the same run.

    Example:
        >>> clear()
        >>> operative()
        ''
    """
    return gin.operative_config_str()


def write(
    directory: durable.Path, name: str = "config.gin", text: str | None = None
) -> pathlib.Path:
    """Writes a configuration into a folder, all of it or nothing.

    Args:
        directory: the folder; created if missing.
        name: name of the file.
        text: a configuration, which gets a first line with its digest; None for
            `operative()` as it is.

    Returns:
        Path of the file.

    Raises:
        OSError: if the disk refuses.

    Example:
        >>> import tempfile
        >>> write(tempfile.mkdtemp()).name
        'config.gin'
    """
    path = pathlib.Path(directory) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = operative().encode() if text is None else sealed_folder.digested(text)
    durable.replace_file(path, content)
    return path


def configured() -> str:
    """Returns the configuration as it was parsed, used or not, as gin text.

    Returns:
        Gin text; `parse` of it makes the same configuration.

    Example:
        >>> parse(bindings=["fast = 0.5"])
        >>> configured().splitlines()[-1]
        'fast = 0.5'
        >>> clear()
    """
    return gin.config_str()


def bound(name: str) -> str | None:
    """Returns what was parsed for a parameter, used or not, as gin text.

    Args:
        name: as it is bound, such as `"PPO.gamma"`.

    Returns:
        The text of its last value; None if nothing binds it.

    Example:
        >>> parse(bindings=["speed = 0.5"])
        >>> bound("speed"), bound("slowness")
        ('0.5', None)
        >>> clear()
    """
    (asked,) = map(gin_calls.key, _bindings(f"{name} = None"))
    found = [each.value for each in _parsed if gin_calls.key(each) == asked]
    return repr(found[-1]) if found else None


def inoperative_config_str(
    max_line_length: int = 80, continuation_indent: int = 4
) -> str:
    """Returns the bindings that nothing has used so far, as gin text.

    See `check_all_used` for what counts as used.

    Args:
        max_line_length: where lines are broken, if they can be.
        continuation_indent: blanks at the beginning of further lines of a value.

    Returns:
        Gin text, sorted by name; "" if all was used.

    Example:
        >>> parse(bindings=["fast = 0.5"])
        >>> print(inoperative_config_str().strip())
        fast = 0.5
        >>> clear()
    """
    where = "inoperative_config_str"
    indent = checks.check_whole_number(
        where, "continuation_indent", continuation_indent, low=0
    )
    width = checks.check_whole_number(
        where, "max_line_length", max_line_length, low=indent + 1
    )
    unused = sorted(_unused(_bindings(configured())), key=lambda x: x.name.lower())
    return "".join(
        _formatted(each.name, each.value, width, indent) + "\n" for each in unused
    )


def get_gin_config_strs() -> tuple[str, str]:
    """Returns what was used of the configuration, and what was not, as Markdown.

    Returns:
        `(operative, inoperative)`, for dashboards.

    Example:
        >>> parse(bindings=["fast = 0.5"])
        >>> get_gin_config_strs()
        ('', '    fast = 0.5')
        >>> clear()
    """
    return gin.markdown(operative()), gin.markdown(inoperative_config_str())


def summarize_config() -> None:
    """Writes the configuration, as far as used, and the rest to TensorBoard.

    They are the texts `config/operative_config` and `config/inoperative_config` of the
    default writer, at the step of `tf.summary.experimental.set_step`, or else 0.

    Example:
        >>> summarize_config()
    """
    _summarize("config")


def summarize_gin_config() -> None:
    """Writes what `summarize_config` writes, under `gin/` instead of `config/`.

    Example:
        >>> summarize_gin_config()
    """
    _summarize("gin")


def compute_summary_or_eval_interval(
    config: Any, summary_or_eval_calls: int = 100
) -> int:
    """Returns the number of iterations between summaries, or evaluations.

    It is `ceil(iterations / summary_or_eval_calls)`.

    Args:
        config: has `num_iterations`; where that is 0 or missing, `num_env_steps` and
            `unroll_length`, and iterations are
            `num_env_steps / (unroll_length * n_envs)` with the number of environments
            in the current one.
        summary_or_eval_calls: how many there are to be in the whole training.

    Returns:
        The interval, at least 1.

    Raises:
        ValueError: if a number is missing or out of range, or the steps of training are
            not iterations (`config.update_counter_every_mini_batch`).

    Example:
        >>> import types
        >>> config = types.SimpleNamespace(num_iterations=1001)
        >>> compute_summary_or_eval_interval(config, 10)
        101
    """
    where = "compute_summary_or_eval_interval"
    calls = checks.check_whole_number(
        where, "summary_or_eval_calls", summary_or_eval_calls, low=1
    )
    if getattr(config, "update_counter_every_mini_batch", False):
        raise ValueError(
            f"`{where}`: `config` expected steps that are iterations; got "
            "update_counter_every_mini_batch=True; give the interval yourself"
        )
    iterations = getattr(config, "num_iterations", 0)
    if not iterations:
        steps = getattr(config, "num_env_steps", 0)
        length = getattr(config, "unroll_length", 0)
        if not (steps and length):
            raise ValueError(
                f"`{where}`: `config` expected `num_iterations`, or `num_env_steps` "
                f"and `unroll_length`; got {config!r:.80}; set them"
            )
        iterations = steps / (length * getattr(current.get_env(), "num_envs", 1))
    checks.check_positive(where, "config", iterations)
    return max(math.ceil(iterations / calls), 1)


def clear() -> None:
    """Forgets the configuration, not what `register` made configurable.

    Example:
        >>> clear()
    """
    gin.clear_config()
    _parsed.clear()


def _summarize(prefix: str) -> None:
    step = tf.summary.experimental.get_step()
    texts = zip(("operative", "inoperative"), get_gin_config_strs(), strict=True)
    for name, text in texts:
        if text:
            tag = f"{prefix}/{name}_config"
            tf.summary.text(tag, text, step=0 if step is None else step)


def _bindings(text: str) -> list[gin_calls.Binding]:
    statements = _gin_text.read(text, "configured")
    return [each for each in statements if isinstance(each, gin_calls.Binding)]


def _unused(bindings: Sequence[gin_calls.Binding]) -> list[gin_calls.Binding]:
    """Returns the last bindings of each name that nothing took."""
    last = {gin_calls.key(each): each for each in bindings}
    called = [*map(gin_calls.key, _bindings(operative()))]
    used = _given_way(called)
    for scope, selector, parameter in called:
        # The innermost scope that has a binding gives a call its value.
        scopes = reversed(gin_calls.scopes(scope))
        keys = ((outer, selector, parameter) for outer in scopes)
        used |= {*[key for key in keys if key in last][:1]}
    return [binding for key, binding in last.items() if key not in used]


def _given_way(
    used: Collection[tuple[str, str, str]],
) -> set[tuple[str, str, str]]:
    """Returns the keys of what only overridden bindings refer to, and so on.

    Args:
        used: keys of what was called or read.
    """
    last = {gin_calls.key(each): each for each in _parsed}
    named: dict[gin_calls.Called, list[gin_calls.Binding]] = {}
    for key, binding in last.items():
        named.setdefault(gin_calls.meant(*key[:2]), []).append(binding)

    def reached(waiting: list[gin_calls.Binding]) -> set[gin_calls.Called]:
        found: set[gin_calls.Called] = set()
        for binding in waiting:
            for reference in gin_calls.references(binding.value):
                name = gin_calls.meant(*reference.config_key)
                if name not in found:
                    found.add(name)
                    waiting.extend(named.get(name, ()))
        return found

    old = [each for each in _parsed if each is not last[gin_calls.key(each)]]
    maybe = reached(old)
    kept = named.keys() - maybe | {gin_calls.meant(*key[:2]) for key in used}
    kept |= reached([each for name in kept for each in named.get(name, ())])
    return {key for key in last if gin_calls.meant(*key[:2]) in maybe - kept}


def _as_now(statement: Any) -> list[Any]:
    """Returns what a statement of a run of old says today.

    Trainers took a number of steps themselves before there were kinds of experience.
    """
    trainer, _ = _gin_text.registered.get("tfrl.Trainer", (None, None))
    name = getattr(statement, "selector", "").removeprefix("tfrl.")
    is_old = name == "Trainer" and statement.parameter == "n_steps"
    if not (is_old and trainer) or "n_steps" in inspect.signature(trainer).parameters:
        return [statement]
    made = gin_calls.Reference("Trajectories", True)
    return [
        statement._replace(parameter="experience", value=made),
        statement._replace(selector="Trajectories"),
    ]


def _formatted(name: str, value: Any, width: int, indent: int) -> str:
    """Writes a binding, continued on further lines if it is too long for one."""
    text = pprint.pformat(value, width=width - indent)
    if "\n" not in text and len(f"{name} = {text}") <= width:
        return f"{name} = {text}"
    lines = text.replace("\n", "\n" + " " * indent)
    return f"{name} = \\\n{' ' * indent}{lines}"


def _origin(target: Callable[..., Any]) -> str:
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}.{named.__qualname__}"
