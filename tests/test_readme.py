import pathlib
import re

import tensorflow as tf

README = pathlib.Path(__file__).parents[1] / "README.md"


def run(code, names):
    exec(compile(code, "README.md", "exec"), names)


def test_the_examples_run(capsys):
    first, second = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert 15 <= len(first.splitlines()) <= 30
    names = {}
    run(first, names)
    steps, reached = re.search(
        r"(\d+) steps, return ([\d.]+)", capsys.readouterr().out
    ).groups()
    assert int(steps) > 4_500
    # An untrained policy reaches about 22.
    assert float(reached) > 40.0

    run(second, names)
    assert isinstance(names["strategy"], tf.distribute.Strategy)
    assert int(names["info"]["gradient_steps"]) == 20
    assert int(names["agent"].n_updates_done) == 21


def test_every_room_is_on_the_floor_map():
    text = README.read_text()
    rooms = pathlib.Path(README.parent, "tfrl").glob("*/__init__.py")
    missing = [
        path.parent.name for path in rooms if f"| `{path.parent.name}` |" not in text
    ]
    assert not missing
