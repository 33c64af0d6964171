import pytest

from tfrl.training.rehearsing import _tpu_fitness


def operation(kind, inputs=("4xf32",), outputs=("4xf32",), place="a.py:1"):
    return _tpu_fitness.Operation(kind, place, inputs, outputs)


SOUND = [
    operation(kind)
    for kind in (
        *("Const", "MatMul", "SelectV2", "GatherV2", "TensorListSetItem", "While"),
        *("SparseSoftmaxCrossEntropyWithLogits", "StatelessRandomUniformV2", "TopKV2"),
        *("StatelessRandomGetKeyCounter", "TensorListReserve", "XlaEinsum", "Bitcast"),
    )
]


@pytest.mark.parametrize("check", _tpu_fitness.CHECKS, ids=lambda check: check[0])
def test_sound_operations_are_not_accused(check):
    assert check[2](SOUND) == []


@pytest.mark.parametrize("kind", ["PyFunc", "PyFuncStateless", "EagerPyFunc"])
def test_calls_of_the_host_are_found(kind):
    (finding,) = _tpu_fitness.host_callbacks([*SOUND, operation(kind, place="b.py:7")])
    assert finding.kind == kind and finding.place == "b.py:7"
    assert "calls Python on the host" in finding.reason


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Where", "boolean_mask"),
        ("UniqueV2", "size that depends on values"),
        ("UniqueWithCountsV2", "size that depends on values"),
        ("DynamicPartition", "sizes that depend on values"),
        ("TensorListResize", "TensorArray grow"),
        ("RaggedTensorToTensor", "ragged"),
        ("SparseTensorDenseMatMul", "sparse"),
        ("StatelessShuffle", "argsort"),
        ("StatelessRandomGammaV3", "not compiled by XLA"),
        ("PrintV2", "prints from the host"),
        ("WriteScalarSummary", "writes summaries"),
        ("StringFormat", "works on strings"),
        ("AsString", "works on strings"),
        ("DecodePng", "images"),
        ("ReadFile", "works on files"),
        ("LookupTableFindV2", "table"),
    ],
)
def test_what_tpus_lack_is_found(kind, words):
    (finding,) = _tpu_fitness.lacking([*SOUND, operation(kind)])
    assert words in finding.reason


def test_dynamic_shapes_are_found_where_they_arise():
    operations = [
        operation("Where", ("4xi1",), ("?x1xi64",), "a.py:3"),
        operation("Squeeze", ("?x1xi64",), ("?xi64",)),
        operation("PyFunc", ("4xf32",), ("*xf32",), "a.py:5"),
        operation("StatefulPartitionedCall", ("4xf32",), ("*xf32",)),
    ]
    findings = _tpu_fitness.dynamic_shapes([*SOUND, *operations])
    assert [finding.place for finding in findings] == ["a.py:3", "a.py:5"]


def test_dtypes_without_units_are_found():
    operations = [
        operation("Mul", ("4xf64", "f64"), ("4xf64",), "a.py:1"),
        operation("Cast", ("?xf32",), ("?xf16",), "a.py:2"),
        operation("Identity", ("f64",), ("f64",), "a.py:3"),
        operation("Conj", ("2xcomplex<f64>",), ("2xcomplex<f64>",), "a.py:4"),
        operation("Cast", ("*xf32",), ("*xbf16",), "a.py:5"),
    ]
    findings = _tpu_fitness.unfit_numbers(operations)
    assert [(x.place, x.reason.split(",")[0]) for x in findings] == [
        ("a.py:1", "computes in float64"),
        ("a.py:2", "computes in float16"),
        ("a.py:4", "computes in complex128"),
    ]


def test_dropped_checks_are_found():
    findings = _tpu_fitness.dropped([operation("Assert"), operation("CheckNumerics")])
    assert [finding.kind for finding in findings] == ["Assert", "CheckNumerics"]


def test_findings_are_told_by_reason_with_the_commonest_first():
    findings = [
        _tpu_fitness.Finding("is slow", kind, place)
        for kind, place in [
            *[("Mul", "a.py:1")] * 3,
            *[("Add", "a.py:2")] * 2,
            *[(kind, f"b.py:{kind}") for kind in "CDE"],
        ]
    ]
    first, second = _tpu_fitness.described(
        [*findings, _tpu_fitness.Finding("is wrong", "Where", "c.py:9")]
    )
    assert first == (
        "Mul (3), Add (2), C, 2 more kinds at a.py:1 (3), a.py:2 (2), b.py:C, "
        "2 more places: is slow"
    )
    assert second == "Where at c.py:9: is wrong"


def test_few_findings_are_told_with_their_own_places():
    findings = [
        _tpu_fitness.Finding("is slow", kind, place)
        for kind, place in [("Mul", "a.py:1"), ("Add", "b.py:2"), ("Add", "b.py:2")]
    ]
    (text,) = _tpu_fitness.described(findings)
    assert text == "Add at b.py:2 (2), Mul at a.py:1: is slow"
