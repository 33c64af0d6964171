"""Every symbol that users of older libraries look for is here, documented and tested.

`seed_map.csv` names them with the libraries they come from and their names in tfrl.
"""

import csv
import functools
import importlib
import inspect
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).parent
TABLE = (TESTS / "seed_map.csv").read_text(encoding="utf-8")
ROWS = list(csv.DictReader(TABLE.splitlines()))
# PyTorch's words for what TensorFlow and its Probability library call otherwise.
RENAMED = {
    "forward": "__call__",
    "log_abs_det_jacobian": "forward_log_det_jacobian",
    "rsample": "sample",
}
# Gradients are custom gradients of functions; constraints of domains, caches of two
# transforms and builders belong to PyTorch's distributions: a `DistributionSpec` and
# the bijectors of TensorFlow Probability do without.
WITHOUT = {"backward", "codomain", "domain", "get_builder", "with_cache"}


@functools.cache
def words_of_tests():
    texts = [
        path.read_text(encoding="utf-8")
        for path in TESTS.rglob("*")
        if path.suffix in (".py", ".json") and path.name != pathlib.Path(__file__).name
    ]
    return set(re.findall(r"\w+", "\n".join(texts)))


def test_the_table_is_whole():
    assert len(ROWS) == 347
    assert len({row["seed_symbol"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["seed_symbol"])
def test_it_exists_is_documented_and_tested(row):
    room, _, name = row["tfrl_symbol"].rpartition(".")
    module = importlib.import_module(room)
    found = getattr(module, name)
    assert name in getattr(module, "__all__", [name])
    assert (found.__doc__ or "").strip()
    assert name in words_of_tests()
    source = inspect.getsourcefile(inspect.unwrap(found))
    assert pathlib.Path(source).relative_to(TESTS.parent).as_posix() == row["file"]
    for member in set(row["members"].split()) - WITHOUT:
        assert hasattr(found, RENAMED.get(member, member)), member
