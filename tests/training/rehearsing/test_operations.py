import pathlib

import numpy as np
import tensorflow as tf

from tfrl.training.rehearsing import _tpu_fitness

FILE = pathlib.Path(__file__)


def place_of(mark):
    """`file:line` of the line of this file that ends with a mark."""
    lines = FILE.read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return f"{FILE.relative_to(pathlib.Path.cwd())}:{number}"


def found(function, *specs, **options):
    concrete = tf.function(function, **options).get_concrete_function(*specs)
    return _tpu_fitness.operations(concrete)


def inner(x):
    kept = tf.boolean_mask(x, x > 0.0)  # mask
    called = tf.numpy_function(np.sum, [x], tf.float32)  # call
    return tf.reduce_sum(kept) + called


def outer(x):
    nested = tf.function(inner, autograph=False, jit_compile=True)

    def body(step, total):
        wide = tf.cast(tf.ensure_shape(nested(x), []), tf.float64)
        return step + 1, total + tf.cast(wide * wide, tf.float32)  # wide

    return tf.while_loop(lambda step, _: step < 3, body, (0, 0.0))


def test_nested_functions_and_loops_are_read_with_their_lines():
    operations = found(outer, tf.TensorSpec([3]), autograph=False)
    (where,) = [x for x in operations if x.kind == "Where"]
    assert where.place == place_of("mask")
    assert where.inputs == ("3xi1",) and where.outputs == ("?x1xi64",)
    (call,) = [x for x in operations if x.kind == "PyFunc"]
    assert call.place == place_of("call") and call.outputs == ("*xf32",)
    (product,) = [x for x in operations if x.kind == "Mul"]
    assert product == ("Mul", place_of("wide"), ("f64", "f64"), ("f64",))


def test_lines_survive_autograph():
    def branching(x):
        if tf.reduce_sum(x) > 0.0:
            return tf.exp(x)  # branch
        return x

    operations = found(branching, tf.TensorSpec([2]))
    (exp,) = [x for x in operations if x.kind == "Exp"]
    assert exp == ("Exp", place_of("branch"), ("2xf32",), ("2xf32",))


def test_what_lists_hold_is_no_shape_of_an_operation():
    def function(x):
        rows = tf.TensorArray(tf.float32, size=3, element_shape=None)
        rows = tf.while_loop(
            lambda step, _: step < 3,
            lambda step, rows: (step + 1, rows.write(step, x)),
            (0, rows),
        )[1]
        return rows.stack()

    operations = found(function, tf.TensorSpec([2]), autograph=False)
    (write,) = [x for x in operations if x.kind == "TensorListSetItem"]
    assert (write.inputs, write.outputs) == (("i32", "2xf32"), ())
    (stack,) = [x for x in operations if x.kind == "TensorListStack"]
    assert stack.outputs == ("3x2xf32",)


def test_lines_of_libraries_are_passed_over():
    dense = tf.keras.layers.Dense(2)
    dense.build((None, 3))
    operations = found(lambda x: dense(x), tf.TensorSpec([4, 3]))  # dense
    (product,) = [x for x in operations if x.kind == "MatMul"]
    assert product.place == place_of("dense")


def test_what_tensorflow_prints_is_still_understood():
    """The text is for people: where TensorFlow changes it, this says what changed."""
    made = tf.function(lambda x: tf.exp(x), autograph=False)
    concrete = made.get_concrete_function(tf.TensorSpec([2, None]))
    text = tf.mlir.experimental.convert_function(
        concrete, pass_pipeline="tf-standard-pipeline", show_debug_info=True
    )
    assert '"tf.Exp"(' in text, 'operations are no longer printed as "tf.Kind"('
    (line,) = [line for line in text.splitlines() if '"tf.Exp"(' in line]
    assert " : (" in line and ") -> " in line, "types no longer follow as : (..) -> .."
    assert "tensor<2x?xf32>" in line, "shapes are no longer printed as tensor<2x?xf32>"
    assert " loc(#loc" in line, "places are no longer references to a table, loc(#loc"
    assert "\n#loc" in text, "the table of places no longer has lines of #loc = loc(.."
    frame = f'"{FILE}":'
    assert frame in text, 'frames are no longer printed as "file":line:column'
    (exp,) = [x for x in _tpu_fitness.operations(concrete) if x.kind == "Exp"]
    assert exp.place.startswith(str(FILE.name)) or FILE.name in exp.place
    assert (exp.inputs, exp.outputs) == (("2x?xf32",), ("2x?xf32",))


def test_complex_numbers_are_read():
    operations = found(tf.math.conj, tf.TensorSpec([2], tf.complex128))
    (conj,) = [x for x in operations if x.kind == "Conj"]
    assert conj.outputs == ("2xcomplex<f64>",)
