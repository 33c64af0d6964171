"""Updates of the tests of this folder are plain graphs.

A test that asks for the fixture `by_xla` gets what users get.
"""

import plain_graphs
import pytest


@pytest.fixture
def by_xla():
    """Leaves the choice of the compiler as it is."""
    with plain_graphs.own_traces():
        yield


@pytest.fixture(autouse=True)
def _plain_graphs(request):
    if "by_xla" in request.fixturenames:
        yield
        return
    with plain_graphs.plain_graphs():
        yield
