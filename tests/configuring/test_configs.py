"""Tests of `tfrl.configuring.configs`."""

import os
import random
import re

import gin
import keras
import pytest

import tfrl.rl_trainer  # noqa: F401 - registers what configurations name
from tfrl._internal import zoo_files
from tfrl.configuring import _gin_text, configs
from tfrl.core import pytree


def make_agent(
    discount: float = 0.99,
    hidden: tuple[int, ...] = (64, 64),
    rate: float | None = None,
    optimizer=None,
    name: str = "agent",
) -> dict:
    return dict(
        discount=discount, hidden=hidden, rate=rate, optimizer=optimizer, name=name
    )


def make_optimizer(rate: float, clip: bool = True) -> tuple:
    return "optimizer", rate, clip


def collect(n_steps: int = 16, **options) -> dict:
    return {"n_steps": n_steps, **options}


class Dense(keras.layers.Layer):
    def __init__(self, units: int = 3, **kwargs):
        super().__init__(**kwargs)
        self.units = units


class Node(pytree.PyTreeNode):
    size: int = 1


OBJECTS = {
    "make_agent": make_agent,
    "make_optimizer": make_optimizer,
    "collect": collect,
    "Dense": Dense,
    "Node": Node,
}


@pytest.fixture(autouse=True)
def made():
    configs.clear()
    yield configs.register(OBJECTS, module="tests")
    configs.clear()


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text, name="run.gin"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


FULL = """
# A comment.
fast = 0.5
scoped/macro = %fast

make_agent.discount = 0.9
tests.make_agent.hidden = [32,
                           32]
make_agent:
  rate = %scoped/macro
  optimizer = @target/make_optimizer()

make_optimizer.rate = 0.1
target/make_optimizer.rate = %fast
"""


def test_a_file_configures_what_is_built(file, made):
    configs.parse([file(FULL)], ["make_agent.discount = 0.8"])
    assert made["make_agent"](name="mine") == {
        "discount": 0.8,
        "hidden": [32, 32],
        "rate": 0.5,
        "optimizer": ("optimizer", 0.5, True),
        "name": "mine",
    }
    assert made["make_optimizer"]() == ("optimizer", 0.1, True)
    configs.check_all_used()


def test_classes_stay_themselves(made):
    configs.parse(bindings=["Dense.units = 7", "Node.size = 8"])
    dense, node = made["Dense"](), made["Node"]()
    assert (type(dense), dense.units) == (Dense, 7)
    assert (type(node), node.size) == (Node, 8)
    assert node.replace(size=9).size == 9
    configs.check_all_used()


def test_plain_calls_are_not_configured():
    configs.parse(bindings=["collect.n_steps = 7"])
    assert collect() == {"n_steps": 16}


def test_registering_again_changes_nothing(made):
    configs.parse(bindings=["collect.n_steps = 7"])
    assert configs.register(OBJECTS, module="tests") == made
    assert made["collect"]() == {"n_steps": 7}


def test_a_cell_run_twice_registers_the_new_function():
    def redefined(version):
        def cell(x: int = 0):
            return version, x

        return configs.register({"cell": cell}, module="tests")["cell"]

    assert [redefined(version)() for version in (1, 2)] == [(1, 0), (2, 0)]
    configs.parse(bindings=["cell.x = 3"])
    assert redefined(3)() == (3, 3)
    configs.check_all_used()


def test_another_object_of_the_same_name_is_refused():
    with pytest.raises(ValueError, match=r"`objects` expected new names.*tests.Dense"):
        configs.register({"Dense": collect}, module="tests")


def test_parsing_again_forgets_what_was_before(made):
    configs.parse(bindings=["collect.n_steps = 7", "unused = 3"])
    configs.parse(bindings=["make_agent.rate = 1.0"])
    assert made["collect"]() == {"n_steps": 16}
    made["make_agent"]()
    configs.check_all_used()


def test_includes_are_relative_to_their_file(file, made):
    file("collect.n_steps = 1\ncollect.b = 1", "deep/base.gin")
    file("include 'base.gin'\ncollect.n_steps = 2", "deep/middle.gin")
    file("collect.c = 3", "here.gin")
    top = file("include 'deep/middle.gin'\ninclude 'here.gin'")
    configs.parse([top])
    assert made["collect"]() == {"n_steps": 2, "b": 1, "c": 3}
    configs.check_all_used()


def test_an_include_may_name_a_configuration_of_the_zoo(file, made):
    top = file("include 'ppo_cartpole.gin'\nPPO.gamma = 0.5", "deep/mine.gin")
    configs.parse([top])
    told = configs.configured()
    assert "PPO.gamma = 0.5\n" in told and "'CartPole-v1'" in told
    # One's own comes first.
    for place in ("ppo_cartpole.gin", "deep/ppo_cartpole.gin"):
        file(f"collect.n_steps = {len(place)}", place)
        configs.parse([file("include 'ppo_cartpole.gin'", "deep/mine.gin")])
        assert made["collect"]() == {"n_steps": len(place)}


def test_an_include_that_is_nowhere_tells_where_it_was_looked_for(file, tmp_path):
    zoo = str(zoo_files.folder())
    top = file("include 'absent.gin'", "deep/mine.gin")
    told = re.escape(f"; looked for in {tmp_path}/deep, {tmp_path}, {zoo}")
    with pytest.raises(ValueError, match=rf"'absent.gin' \(No such [^)]+\){told}$"):
        configs.parse([top])
    for missing, told in {
        "absent.gin": "`tfrl zoo` lists what there is",
        "configs/pp_cartpole.gin": r"did you mean 'ppo_cartpole'\?",
    }.items():
        with pytest.raises(
            ValueError, match=rf"'{missing}' \(No such [^)]+\); {told}$"
        ):
            configs.parse([missing])


def test_imports_run_and_are_recorded(file, monkeypatch, made):
    file(
        "import gin\n@gin.configurable(module='extra')\n"
        "def extra_function(size: int = 1):\n    return size\n",
        "tfrl_test_extra.py",
    )
    monkeypatch.syspath_prepend(os.getcwd())
    configs.parse(bindings=["collect.n_steps = 1"])
    text = "import tfrl_test_extra\nextra_function.size = 3"
    configs.parse([file(text)])
    assert gin.get_configurable("extra_function")() == 3
    configs.check_all_used()
    assert configs.operative().startswith("import tfrl_test_extra\n")
    with pytest.raises(ValueError, match=r"run.gin:2: expected int for"):
        configs.parse([file("import tfrl_test_extra\nextra_function.size = '3'")])


# Every row is one changed line of a valid file, and what its error says.
MUTATIONS = {
    "name": (
        "make_agnt.rate = 1.0",
        "name; got `make_agnt`; did you mean `make_agent`",
    ),
    "far-name": ("qqqq.rate = 1.0", r"got `qqqq`; there are \[.*'Dense'"),
    "module": ("test.make_agent.rate = 1.0", "did you mean `tests.make_agent`"),
    "parameter": (
        "make_agent.discnt = 1.0",
        "a parameter for `make_agent.discnt`; got no such.*did you mean `discount`",
    ),
    "string": (
        "make_agent.discount = '0.9'",
        r"float for `make_agent.discount`; got '0.9' \(str\)",
    ),
    "bool": ("make_agent.discount = True", r"float .*; got True \(bool\)"),
    "float": ("collect.n_steps = 1e3", r"int .*; got 1000.0 \(float\)"),
    "none": ("collect.n_steps = None", r"int .*; got None \(NoneType\)"),
    "union": ("make_agent.rate = 'no'", r"float \| None for .*; got 'no'"),
    "element": ("make_agent.hidden = (64, '64')", r"tuple\[int, ...\] for"),
    "number": (
        "make_agent.hidden = 64",
        r"tuple\[int, ...\] .*; got 64 \(int",
    ),
    "keras": ("Dense.units = '3'", "int for `Dense.units`"),
    "scope": ("eval/collect.n_steps = 'x'", "int for `eval/collect.n_steps`"),
    "macro-type": ("collect.n_steps = %word", r"int .*; got 'three' \(str\)"),
    "macro": ("collect.n_steps = %wrd", "a defined macro; got `%wrd`.*mean `word`"),
    "far-macro": ("collect.a = [%qq]", "macro; got `%qq`; define it as `qq = ...`"),
    "loop": ("word = %word", "macros without a loop; got `word = %word`"),
    "reference": ("make_agent.optimizer = @make_optmzer()", "mean `make_optimizer`"),
    "inner-reference": ("collect.a = {'b': (@c/make_optmzer,)}", "`make_optmzer`"),
    "infinity": ("make_agent.rate = 1e999", "a value that gin can write"),
    "required": (
        "make_agent.rate = %gin.REQUIRED",
        "a value; got `make_agent",
    ),
    "no-value": ("make_agent.rate =", "gin syntax; got Unable to parse value"),
    "no-equals": ("make_agent.rate 0.5", "gin syntax; got Couldn't parse statement"),
    "bare-word": (
        "make_agent.name = agent",
        "gin syntax; got Failed to parse token 'agent'",
    ),
    "open-list": ("make_agent.hidden = [1 2]", "gin syntax; got Expected ',' or"),
    "two-values": ("make_agent.rate = 1 2", "gin syntax; got Expected newline"),
    "include": ("include 'missing.gin'", r"a gin file; got '.*missing.gin' \(No such"),
    "own-include": ("include 'run.gin'", "no file to include itself; got .*run.gin"),
    "import": (
        "import no_such_module",
        "import that works; got `import no_such_module`",
    ),
    "dynamic": ("from __gin__ import dynamic_registration", "is not supported"),
}


@pytest.mark.parametrize(("line", "message"), MUTATIONS.values(), ids=list(MUTATIONS))
def test_mistakes_are_told_with_file_and_line(file, made, line, message):
    before, after = "word = 'three'\ncollect.b = 1\n", "\ncollect.c = 1\n"
    configs.parse([file(before + after)])
    with pytest.raises(
        ValueError, match=rf"^`parse`: \S*run.gin:3: expected .*{message}"
    ) as e:
        configs.parse([file(before + line + after)])
    assert "\n" not in str(e.value)
    if "=" in line and "." in line.split("=")[0]:
        with pytest.raises(ValueError, match=r"^`parse`: bindings:2: expected"):
            configs.parse(bindings=["word = 'three'", line])
    # What was parsed before is still in effect.
    assert made["collect"]() == {"n_steps": 16, "b": 1, "c": 1}


def test_mistakes_in_includes_name_the_included_file(file):
    file("collect.a = 1\ncollect.n_steps = ''", "base.gin")
    with pytest.raises(ValueError, match=r"`parse`: .*base.gin:2: expected int"):
        configs.parse([file("include 'base.gin'")])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (["missing.gin"],),
            ValueError,
            r"`config_files`: .* a gin file; got 'missing",
        ),
        ((["."],), ValueError, r"a gin file; got '.' \(Is a directory\)"),
        ((["latin.gin"],), ValueError, r"a gin file; got 'latin.gin' \(no UTF-8 text"),
        ((["a\0b"],), ValueError, r"`config_files`: .* a gin file; got 'a\\x00b'"),
        (("run.gin",), TypeError, "`config_files` expected a list"),
        (([3],), TypeError, r"`config_files` expected a list of texts; got \[3\]"),
        (((), "collect.a = 1"), TypeError, "`bindings` expected a list"),
        (((), None), TypeError, "`bindings` expected a list of texts; got None"),
        (((), [None]), TypeError, r"`bindings` expected a list .*; got \[None\]"),
        (((), {"a": 1}), TypeError, "`bindings` expected a list of texts"),
    ],
)
def test_bad_arguments(file, tmp_path, arguments, error, message):
    file("collect.a = 1")
    (tmp_path / "latin.gin").write_bytes(b"collect.a = '\xe4'")
    with pytest.raises(error, match=message):
        configs.parse(*arguments)


def test_names_that_several_have_need_a_module():
    for module in ("tests", "others"):
        configs.register({"twofold": make_optimizer}, module=module)
    told = "which several have; write `others.twofold` or `tests.twofold`$"
    with pytest.raises(ValueError, match=rf"one configurable; got `twofold`, {told}"):
        configs.parse(bindings=["twofold.rate = 1.0"])
    configs.parse(bindings=["others.twofold.rate = 1.0"])


def test_who_registered_nothing_is_told_what_does(monkeypatch):
    monkeypatch.setattr(_gin_text, "registered", {})
    with pytest.raises(ValueError, match="got `PPOO`; `import tfrl.rl_trainer` before"):
        configs.parse(bindings=["PPOO.gamma = 0.5"])
    # Which is all that it takes, in a configuration or before.
    configs.parse(bindings=["import tfrl.rl_trainer", "PPO.gamma = 0.5"])


def test_what_gin_itself_refuses_leaves_a_clean_state(made, monkeypatch):
    def refuse():
        raise ValueError("No bindings")

    monkeypatch.setattr(gin, "finalize", refuse)
    with pytest.raises(ValueError, match="expected what gin accepts; got No bindings"):
        configs.parse(bindings=["collect.n_steps = 2"])
    assert made["collect"]() == {"n_steps": 16}
    configs.check_all_used()


UNUSED = {
    "not-built": (["make_optimizer.rate = 1.0"], "bindings:1: `make_optimizer.rate"),
    "macro": (["speed = 3"], "`speed = 3`"),
    "scope": (["eval/collect.n_steps = 3"], "`eval/collect.n_steps = 3`"),
    "overridden": (["collect.passed = 3"], "`collect.passed = 3`"),
    "hidden": (["collect.n_steps = 1", "train/collect.n_steps = 2"], "bindings:1"),
    "inner": (["train/a/collect.n_steps = 2"], "`train/a/collect.n_steps"),
}


@pytest.mark.parametrize(("bindings", "message"), UNUSED.values(), ids=list(UNUSED))
def test_unused_bindings_are_told(made, bindings, message):
    configs.parse(bindings=bindings)
    with gin.config_scope("train"):
        made["collect"](passed=4)
    with pytest.raises(ValueError, match=f"got unused .*{message}") as error:
        configs.check_all_used()
    assert str(error.value).count("bindings:") == 1


def test_a_macro_of_an_overridden_binding_alone_is_used(file, made):
    base = file(
        "inner = 0.5\nouter = %inner\nsize = 7\nmake_agent.hidden = (1, %size)\n"
        "make_agent.rate = %outer\n"
    )
    child = file(f'include "{base.name}"\nmake_agent.rate = 0.25\n', "child.gin")
    configs.parse([child], ["make_agent.hidden = (3,)"])
    agent = made["make_agent"]()
    assert (agent["rate"], agent["hidden"]) == (0.25, (3,))
    configs.check_all_used()
    assert configs.inoperative_config_str() == ""
    # What a run keeps is read back without them.
    configs.parse(bindings=configs.operative().splitlines())
    assert made["make_agent"]() == agent
    configs.check_all_used()


INSTEAD = ["collect.a = @make_agent()", "make_agent.optimizer = @make_optimizer()"]
INSTEAD += ["make_agent.hidden = (1, %size)", "size = 7", "make_optimizer.rate = %fast"]
INSTEAD += ["fast = 0.5", "Dense.units = 4"]


@pytest.mark.parametrize(
    "bindings",
    [
        ["collect.a = 1"],
        ["collect.a = @Dense()"],
        ["make_agent.rate = 1.0", "collect.a = 1"],
        ["train/make_agent.rate = 1.0", "collect.a = 1"],
        ["collect.a = @make_optimizer()"],
        ["collect.a = @make_agent", "collect.a = 1"],
        ["collect.a = %size"],
    ],
    ids=lambda x: x[0],
)
def test_what_only_an_overridden_binding_refers_to_is_used(bindings, made):
    configs.parse(bindings=[*INSTEAD, *bindings])
    found = made["collect"]()
    made["Dense"]()
    configs.check_all_used()
    assert configs.inoperative_config_str() == ""
    # What a run keeps is read back without it.
    kept = [x for x in configs.operative().splitlines() if x and x[0] != "#"]
    configs.parse(bindings=kept)
    again = made["collect"]()
    if not isinstance(found["a"], keras.layers.Layer):
        assert again == found
    made["Dense"]()
    configs.check_all_used()


TOLD = {
    "elsewhere": ["collect.n_steps = @make_agent"],
    "elsewhere, scoped": ["collect.n_steps = @train/make_agent"],
    "by a macro": ["collect.n_steps = %one", "one = @make_agent"],
    "by what is not used": ["Node.size = @make_agent()"],
}


@pytest.mark.parametrize("bindings", TOLD.values(), ids=list(TOLD))
def test_what_is_referred_to_elsewhere_must_be_used(bindings, made):
    configs.parse(bindings=[*INSTEAD, *bindings, "collect.a = 1"])
    made["collect"]()
    made["Dense"]()
    with pytest.raises(ValueError, match="got unused") as error:
        configs.check_all_used()
    for name in ("make_agent.optimizer", "make_optimizer.rate", "fast", "size"):
        assert f"`{name} = " in str(error.value)


def test_what_is_used_by_others_must_be_used_wholly(made):
    told = ["train/make_optimizer.clip = False", "Node.size = 2", "collect.a = 1"]
    configs.parse(bindings=[*INSTEAD, *told])
    for name in ("collect", "Dense", "make_optimizer"):
        made[name]()
    with pytest.raises(ValueError, match="got unused") as error:
        configs.check_all_used()
    assert str(error.value).endswith(
        "bindings:8: `train/make_optimizer.clip = False`; bindings:9: `Node.size = 2`"
    )
    with pytest.raises(ValueError, match="expected a parameter for `make_agent.had"):
        configs.parse(bindings=[*INSTEAD, "make_agent.had = 3", "collect.a = 1"])


def test_a_macro_that_no_overridden_binding_reads_is_told(made):
    configs.parse(bindings=["alone = 1", "collect.n_steps = 2", "collect.n_steps = 3"])
    made["collect"]()
    with pytest.raises(ValueError, match="got unused bindings:1: `alone = 1`$"):
        configs.check_all_used()


def test_unused_bindings_are_told_with_file_and_line(file, made):
    configs.parse([file("collect.a = 1\n\nmake_agent.rate = 1.0\nDense.units = 1")])
    made["collect"]()
    with pytest.raises(ValueError, match=r"run.gin:3: `make_agent.*run.gin:4: `Dense"):
        configs.check_all_used()


def test_scopes_and_overridden_lines_count_as_used(file, made):
    configs.parse(
        [file("collect.n_steps = 1\ncollect.n_steps = 2\ntests.collect.n_steps = 3")],
        ["train/inner/collect.n_steps = 4", "train/collect.a = @make_agent"],
    )
    assert made["collect"]() == {"n_steps": 3}
    with gin.config_scope("train/inner"):
        assert made["collect"]()["n_steps"] == 4
    configs.check_all_used()


def build(made):
    return made["make_agent"](), made["make_optimizer"](), made["collect"](given=1)


def test_the_written_config_makes_the_same_run(file, tmp_path, made):
    configs.parse(
        [file(FULL)], ["collect.s = 'a\\n\"b'", "collect.d = {'k': (1, None)}"]
    )
    first = build(made)
    path = configs.write(tmp_path / "new" / "run")
    assert path == tmp_path / "new" / "run" / "config.gin"
    assert path.read_text() == configs.operative()
    assert "make_optimizer.clip = True" in path.read_text()
    configs.parse([path])
    assert build(made) == first
    configs.check_all_used()
    assert configs.operative() == path.read_text()


def test_a_bracket_never_closed_is_told_by_its_line(file):
    with pytest.raises(ValueError, match="run.gin:2: expected gin syntax; got EOF in"):
        configs.parse([file("collect.a = 1\nmake_agent.hidden = [1,\n")])


def test_any_damaged_file_is_parsed_or_told_in_one_line(file):
    rng = random.Random(3)
    told = 0
    for _ in range(400):
        place = rng.randrange(len(FULL))
        new = rng.choice(["", *"\n =.%@/()[]{}'\"\\:,#0a-\t;$\0"])
        path = file(FULL[:place] + new + FULL[place + 1 :])
        try:
            configs.parse([path])
        except ValueError as error:
            assert str(error).startswith(f"`parse`: {path}:")
            assert "\n" not in str(error)
            told += 1
    assert 150 < told < 400
