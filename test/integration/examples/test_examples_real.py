"""Every manifest in ``examples/`` keeps the promise of its header, on a real control plane."""

import pytest

from support.examples import promises_cluster, promises_coscheduling, promises_failure, promises_run
from support.examples.examples_kit import EXAMPLES, manifests

pytestmark = pytest.mark.cluster

PROMISES = {
    **promises_run.PROMISES,
    **promises_cluster.PROMISES,
    **promises_coscheduling.PROMISES,
    **promises_failure.PROMISES,
}
WITH_NODES = promises_cluster.WITH_NODES
README = EXAMPLES / "README.md"


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", manifests())
async def test_example_keeps_its_promise(outcomes, path):
    """The promise of the example's header is what happens."""
    assert path in PROMISES | WITH_NODES, "add the promise of this example to the table"
    await outcomes[path]
