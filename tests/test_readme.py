import pathlib
import re

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert 15 <= len(code.splitlines()) <= 30
    exec(compile(code, "README.md", "exec"), {})
    steps, reached = re.search(
        r"(\d+) steps, return ([\d.]+)", capsys.readouterr().out
    ).groups()
    assert int(steps) > 4_500
    # An untrained policy reaches about 22.
    assert float(reached) > 40.0


def test_every_room_is_on_the_floor_map():
    text = README.read_text()
    rooms = pathlib.Path(README.parent, "tfrl").glob("*/__init__.py")
    missing = [
        path.parent.name for path in rooms if f"| `{path.parent.name}` |" not in text
    ]
    assert not missing
