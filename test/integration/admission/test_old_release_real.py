"""An API server that does not know the rule of sidecar agents; for ``make test-versions`` only."""

import pytest
import yaml

from jobsetpy.errors import InvalidError
from support.cluster.install import ROOT
from support.cluster.json_api import exchange

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.releases,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("webhooks"),
]

EXAMPLE = ROOT / "examples/in-place-restart/sidecar.yaml"


async def test_sidecar_is_refused_when_the_api_server_drops_its_rule(shared_client, namespace):
    """The API server stores a Job without the rule and without an error."""
    body = yaml.safe_load(EXAMPLE.read_text())
    job = body["spec"]["replicatedJobs"][0]["template"]["spec"]

    async def send(path, sent):
        return await exchange(shared_client, "POST", f"/apis/{path}", sent, dryRun="All")

    jobs = f"batch/v1/namespaces/{namespace}/jobs"
    made = await send(jobs, {"metadata": {"name": "j"}, "spec": job})
    assert b"RestartAllContainers" not in made.body
    with pytest.raises(InvalidError, match=r"no RestartAllContainers: use agents in the mode"):
        await send(f"jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets", body)
