"""Updates of the tests of this folder are plain graphs, but for slow tests."""

import plain_graphs
import pytest


@pytest.fixture(autouse=True)
def _plain_graphs(request):
    if request.node.get_closest_marker("slow") is not None:
        yield
        return
    with plain_graphs.plain_graphs():
        yield
