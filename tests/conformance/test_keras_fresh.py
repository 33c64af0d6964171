"""What Keras saved is loaded by a process that knows nothing of this one."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from conformance import keras_rows, test_keras_classes

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)
# The first process has tfrl and, for the functions that rows are made with, the tests.
WITH_TFRL = """
import sys
sys.path[:0] = sys.argv[2:]
import pathlib
import keras, numpy as np, tensorflow as tf
import tfrl
from conformance import keras_rows
folder = pathlib.Path(sys.argv[1])
found = {}
for path in sorted(folder.glob("*.keras")):
    model = keras.models.load_model(path)
    data = np.ones([5, 3], np.float32)
    if path.stem.isdigit():
        data = keras_rows.LAYERS[int(path.stem)].given(5)
    outputs = tf.nest.flatten(model(data, training=False))
    found |= {f"{path.stem}/{i}": x.numpy() for i, x in enumerate(outputs)}
    if not path.stem.isdigit():
        y = np.ones([5, 1], np.float32)
        found[f"{path.stem}/loss"] = model.evaluate(data, y, verbose=0)
np.savez(folder / "with.npz", **found)
"""
# The second has neither.
WITHOUT_TFRL = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tfrl", "tensorflow_probability"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import pathlib
import numpy as np
import tensorflow as tf
folder = pathlib.Path(sys.argv[1])
found = {}
with np.load(folder / "given.npz") as given:
    for path in sorted(folder.glob("exported-*")):
        name = path.name.removeprefix("exported-")
        model = tf.saved_model.load(str(path))
        leaves = [given[k] for k in sorted(given) if k.startswith(name + "/")]
        keys = [k.split("/")[2] for k in sorted(given) if k.startswith(name + "/")]
        data = leaves[0] if len(leaves) == 1 else leaves
        if keys[0]:
            data = dict(zip(keys, leaves))
        outputs = tf.nest.flatten(model.serve(data))
        found |= {f"{name}/{i}": x.numpy() for i, x in enumerate(outputs)}
assert not any(name.split(".")[0] == "tfrl" for name in sys.modules)
np.savez(folder / "without.npz", **found)
"""


def run(code, *arguments):
    folder = arguments[0]
    (folder / "client.py").write_text(code)
    command = [sys.executable, "-I", str(folder / "client.py"), *map(str, arguments)]
    subprocess.run(command, check=True, cwd=folder)


def run_with_tfrl(folder):
    """Loads and calls what is in a folder; leaves `with.npz` there."""
    tests = pathlib.Path(__file__).parent.parent
    run(WITH_TFRL, folder, tests.parent, tests)


def named_leaves(index, data):
    """Arrays of nests under names that sort as `serve` takes them."""
    if isinstance(data, dict):
        return {f"{index}/0/{key}": x for key, x in data.items()}
    listed = data if isinstance(data, list) else [data]
    return {f"{index}/{place}/": x for place, x in enumerate(listed)}


@pytest.mark.slow
def test_layers_and_models(tmp_path):
    right, given = {}, {}
    for index, row in enumerate(keras_rows.LAYERS):
        model = test_keras_classes.trained(row, row.model())
        model.save(tmp_path / f"{index}.keras")
        model.export(str(tmp_path / f"exported-{index}"), verbose=False)
        given |= named_leaves(index, row.given(5))
        outputs = test_keras_classes.frozen(model)(row.given(5))
        right |= {f"{index}/{i}": x for i, x in enumerate(tf.nest.flatten(outputs))}
    np.savez(tmp_path / "given.npz", **given)
    run_with_tfrl(tmp_path)
    run(WITHOUT_TFRL, tmp_path)
    for name in ("with.npz", "without.npz"):
        with np.load(tmp_path / name) as found:
            assert set(found) == set(right)
            for key, value in right.items():
                np.testing.assert_allclose(
                    found[key], value, rtol=1e-5, atol=1e-6, err_msg=f"{name} {key}"
                )
