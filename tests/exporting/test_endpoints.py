"""Tests of `tfrl.exporting.endpoints`."""

import numpy as np
import pytest
import tensorflow as tf

from tfrl.exporting import endpoints, export

VECTOR = {"x": tf.TensorSpec([None])}


def written(path, content):
    export.export_model(content, path)
    return export.verify(path)


def test_one_endpoint_and_several(tmp_path):
    lone = endpoints.Endpoint(lambda x: {"y": 1.0 / x}, {"x": tf.TensorSpec([])})
    found = written(tmp_path / "one", lone._replace(examples={"x": np.float32(4.0)}))
    assert found == {"serving_default": 0.0}
    found = written(tmp_path / "two", {"a": lone, "b": lone})
    assert sorted(found) == ["a", "b"]


@pytest.mark.parametrize("given", [{}, {"x": [1.0], "y": 1}, {"x": [[1.0]]}], ids=str)
def test_examples_that_do_not_fit(tmp_path, given):
    endpoint = endpoints.Endpoint(tf.exp, VECTOR, examples=given)
    with pytest.raises(ValueError, match="`export_model`: `examples` expected "):
        written(tmp_path / "model", endpoint)
